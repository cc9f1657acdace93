//! `providers.yaml`: where models are reached, and with which credential.
//!
//! Unaware of who asks, and of keys: where a key is, is only said here.

use super::command::{FLOW_HOME, files_of, parse_word};
use super::credential::{self, Credential, fill_home};
use super::items::{begin_item, read_items, read_limit, read_texts};
use super::problem::Manifest;
use crate::config::environment::url_objection;
use crate::config::section::{Diagnostics, Section};
use crate::config::tool::definition::AGENT_HOME;
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Who answers for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provider {
    /// The part before the slash in `llm:` of an agent.
    pub id: String,
    /// How it is reached.
    pub way: Access,
    /// The models that may be asked for; none: any.
    pub models: Option<Vec<String>>,
    /// Where its key is; none: the one that `delta run` finds.
    pub credential: Option<Credential>,
    /// How many programs of nodes may ask it at once; none: as many as like.
    pub limit: Option<usize>,
    /// Recorded with each run.
    pub version: Option<String>,
    /// Place in the document.
    pub(super) at: Vec<Step>,
}

/// How a provider is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Under this URL, which holds no credentials.
    Url(String),
    /// By a program, with the flow's directory in its place.
    Command(Vec<String>),
}

const KEYS: [&str; 9] = [
    "id",
    "name",
    "description",
    "base_url",
    "command",
    "models",
    "credential",
    "limit",
    "version",
];

#[derive(Default)]
pub(super) struct ProvidersFile {
    pub all: Vec<Provider>,
    /// The ids of those that cannot be used.
    pub wrong: Vec<String>,
    /// The files below the flow's directory that commands name. Credentials are not included.
    pub files: Vec<PathBuf>,
}

/// Reads the file.
pub(super) fn read_providers(home: &Path, manifest: &mut Manifest) -> ProvidersFile {
    let mut read = ProvidersFile::default();
    for (map, at) in read_items(manifest, "providers") {
        let node = Section::new(&map, at.clone());
        let known = read.all.iter().map(|other| &other.id);
        let known = known.chain(&read.wrong).map(String::as_str);
        let Some((id, mut out)) = begin_item(manifest, "provider", &node, known) else {
            continue;
        };
        let provider = read_provider(home, &id, &node, at, &mut out);
        manifest.report(std::slice::from_ref(&id), out);
        match provider {
            Some(provider) => {
                let words = map.get("command").and_then(Value::as_array);
                let words = words.into_iter().flatten().filter_map(Value::as_str);
                let words: Vec<_> = words.map(parse_word).collect();
                read.files.extend(files_of(&words, home));
                read.all.push(provider);
            }
            None => read.wrong.push(id),
        }
    }
    read
}

fn read_provider(
    home: &Path,
    id: &str,
    node: &Section,
    at: Vec<Step>,
    out: &mut Diagnostics,
) -> Option<Provider> {
    node.warn_of_unknown_keys(&KEYS, out);
    node.read_text("name", out);
    node.read_text("description", out);
    let models = read_texts(node, "models", out);
    if models.as_ref().is_some_and(Vec::is_empty) {
        let message = "models: is empty; name those that may be asked for, or remove it";
        out.error(node.path_to("models"), message);
    }
    let credential = match node.map.get("credential") {
        None | Some(Value::Null) => None,
        Some(Value::Object(map)) => {
            credential::read_credential(home, map, node.path_to("credential"), out)
        }
        Some(_) => {
            // Not shown: it may be the key itself.
            let message = "credential: expected a mapping of source and name";
            out.error(node.path_to("credential"), message);
            None
        }
    };
    let version = node.read_text("version", out).map(str::to_owned);
    Some(Provider {
        id: id.to_owned(),
        way: read_access(home, node, &at, out)?,
        models,
        credential,
        limit: read_limit(node, "limit", out),
        version,
        at,
    })
}

fn read_access(home: &Path, node: &Section, at: &[Step], out: &mut Diagnostics) -> Option<Access> {
    let (path, message) = match ["base_url", "command"].map(|key| node.map.contains_key(key)) {
        [true, false] => {
            let url = node.read_text("base_url", out)?;
            match url_objection(url) {
                None => return Some(Access::Url(url.trim_end_matches('/').to_owned())),
                // The URL itself is not shown: it may hold a key.
                Some(why) => (node.path_to("base_url"), format!("base_url: {why}")),
            }
        }
        [false, true] => {
            let words = read_texts(node, "command", out)?;
            let agents = format!("${{{AGENT_HOME}}}");
            if words.iter().any(|word| word.contains(&agents)) {
                let message = format!("command: {agents} is an agent's; write ${{{FLOW_HOME}}}");
                out.error(node.path_to("command"), message);
            }
            if words.first().is_some_and(|program| !program.is_empty()) {
                let words = words.iter().map(|word| fill_home(word, home));
                return Some(Access::Command(words.collect()));
            }
            (
                node.path_to("command"),
                "command: has no program".to_owned(),
            )
        }
        [true, true] => {
            let message = "base_url: and command: are mutually exclusive; keep one";
            (node.path_to("command"), message.to_owned())
        }
        [false, false] => {
            let message = "needs base_url: or command: [PROGRAM, …], which is the model";
            (at.to_vec(), message.to_owned())
        }
    };
    out.error(path, message);
    None
}
