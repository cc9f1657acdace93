//! `providers.yaml`: the addresses of models, and the places of their keys.
//!
//! Unaware of who asks, and of the keys themselves.

use super::command::{AGENT_DIR, FLOW_DIR, files_of, fill_home, parse_word};
use super::credential::{Credential, read_credential};
use super::fields::fields;
use super::items::read_items;
use super::problem::Manifest;
use crate::config::api::without_slash;
use crate::config::environment::url_objection;
use crate::config::section::Section;
use crate::text::yaml::Step;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

fields! {
    /// An answerer for models.
    struct Provider {
        /// The models that may be asked for; none: any.
        models: Option<Vec<String>>,
        /// The most programs of nodes that may ask it at once; None: no limit.
        limit: Option<usize>,
        /// Recorded with each run.
        version: Option<String>,
    }
    beside {
        /// The part before the slash in `llm:` of an agent.
        id: String,
        /// Place in the document.
        at: Vec<Step>,
        way: Access,
        /// The place of its key; none: the one that `delta run` finds.
        credential: Option<Credential>,
    }
    for people { "name", "description" }
    by hand { "id", "base_url", "command", "credential" }
}

/// The way to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Under this URL, which holds no credentials.
    Url(String),
    /// By a program, with the flow's directory in its place.
    Command(Vec<String>),
}

impl Default for Access {
    fn default() -> Self {
        Self::Command(Vec::new())
    }
}

#[derive(Default)]
pub(super) struct ProvidersFile {
    pub exists: bool,
    pub all: Vec<Provider>,
    /// The ids of those that cannot be used.
    pub wrong: Vec<String>,
    /// The files below the flow's directory that commands name. Credentials are not included.
    pub files: Vec<PathBuf>,
}

/// The model that an agent asks, as it is recorded. It holds no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AskedModel {
    /// An index in the flow's providers.
    #[serde(skip)]
    pub index: Option<usize>,
    /// The part before the slash in `llm:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The address, if it is not that of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The program that is the model, or the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Reads the file.
pub(super) fn read_providers(home: &Path, manifest: &mut Manifest) -> ProvidersFile {
    let mut file = ProvidersFile {
        exists: manifest.exists(),
        ..ProvidersFile::default()
    };
    read_items(
        manifest,
        "providers",
        "provider",
        |id, node| match read_provider(home, node) {
            Some(provider) => {
                let texts = node.texts("command").into_iter();
                let words: Vec<_> = texts.map(parse_word).collect();
                file.files.extend(files_of(&words, home));
                file.all.push(Provider { id, ..provider });
            }
            None => file.wrong.push(id),
        },
    );
    file
}

fn read_provider(home: &Path, node: &Section) -> Option<Provider> {
    let read = Provider::read_keys(node);
    if read.models.as_ref().is_some_and(Vec::is_empty) {
        let message = "models: is empty; name those that may be asked for, or remove it";
        node.error("models", message);
    }
    let credential = match node.value("credential") {
        None => None,
        Some(Value::Object(map)) => {
            let section = node.inner(map, node.path_to("credential"));
            read_credential(home, &section.within("credential"))
        }
        // Not shown: it may be the key itself.
        Some(_) => node.refuse(
            "credential",
            "credential: expected a mapping of source and name",
        ),
    };
    Some(Provider {
        way: read_access(home, node)?,
        credential,
        at: node.path_to(""),
        ..read
    })
}

fn read_access(home: &Path, node: &Section) -> Option<Access> {
    match ["base_url", "command"].map(|key| node.has(key)) {
        [true, false] => {
            let url = node.read_text("base_url")?;
            match url_objection(url) {
                None => Some(Access::Url(without_slash(url))),
                // The URL itself is not shown: it may hold a key.
                Some(why) => node.refuse("base_url", format!("base_url: {why}")),
            }
        }
        [false, true] => {
            let words: Vec<String> = node.get::<Option<_>>("command")?;
            if words.iter().any(|word| word.contains(AGENT_DIR)) {
                let message = format!("command: {AGENT_DIR} is an agent's; write {FLOW_DIR}");
                node.error("command", message);
            }
            if words.first().is_none_or(String::is_empty) {
                return node.refuse("command", "command: has no program");
            }
            let filled = words.iter().map(|word| fill_home(word, home));
            Some(Access::Command(filled.collect()))
        }
        [true, true] => node.refuse(
            "command",
            "base_url: and command: are mutually exclusive; keep one",
        ),
        [false, false] => node.refuse(
            "",
            "needs base_url: or command: [PROGRAM, …], which is the model",
        ),
    }
}
