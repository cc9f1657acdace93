//! `agents.yaml`: what nodes name by `agent_id`.
//!
//! Unaware of how an agent is run.

use super::command::{self, FLOW_HOME, NodeCommand};
use super::items::{begin_item, read_items};
use super::problem::Manifest;
use super::tool;
use crate::config::load::check_limits;
use crate::config::section::{Diagnostics, Section};
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentBody {
    /// An agent's directory, absolute.
    Directory(PathBuf),
    /// A model and its prompt.
    Model {
        /// `provider/model`.
        llm: String,
        /// The system prompt.
        prompt: String,
        /// The file, below the flow's directory, that the prompt was read from.
        prompt_file: Option<String>,
    },
    /// A program that answers like a node's command.
    Command(NodeCommand),
}

/// An agent as it was written. Schemas, tools and profiles are looked up later.
#[derive(Debug)]
pub(super) struct AgentDraft {
    /// Place in the document.
    pub at: Vec<Step>,
    pub id: String,
    pub body: Option<AgentBody>,
    pub schema_out: Option<String>,
    pub context: Option<String>,
    pub tools: Option<Vec<String>>,
    pub config: Map<String, Value>,
    pub repairs: u32,
    pub limits: Map<String, Value>,
}

const KEYS: [&str; 14] = [
    "id",
    "kind",
    "name",
    "description",
    "path",
    "llm",
    "prompt",
    "command",
    "exec",
    "shell",
    "schema_out",
    "context",
    "tools",
    "config",
];

/// Keys that are those of agent.yaml.
const LIMITS: [&str; 5] = ["limits", "max_iterations", "budget", "pricing", "accept"];

/// The key of agent.yaml by which an agent may ask a person. In a flow it needs the flow's consent.
const ASK_HUMAN: &str = "ask_human";

/// How often an answer that does not fit is sent back.
const REPAIRS: u32 = 1;

/// Reads the file.
pub(super) fn read_agents(home: &Path, manifest: &mut Manifest) -> Vec<AgentDraft> {
    let mut all: Vec<AgentDraft> = Vec::new();
    for (map, at) in read_items(manifest, "agents") {
        let node = Section::new(&map, at.clone());
        let known = all.iter().map(|other| &*other.id);
        if let Some((id, mut out)) = begin_item(manifest, "agent", &node, known) {
            let draft = read_agent(home, id, &node, at, &mut out);
            manifest.report(std::slice::from_ref(&draft.id), out);
            all.push(draft);
        }
    }
    all
}

fn read_agent(
    home: &Path,
    id: String,
    node: &Section,
    at: Vec<Step>,
    out: &mut Diagnostics,
) -> AgentDraft {
    let known: Vec<&str> = KEYS
        .into_iter()
        .chain(["repairs", ASK_HUMAN])
        .chain(LIMITS)
        .collect();
    node.warn_of_unknown_keys(&known, out);
    node.read_choice("kind", &[("agent", ())], out);
    let text = |key: &str, out: &mut Diagnostics| node.read_text(key, out).map(str::to_owned);
    text("name", out);
    text("description", out);
    let mut config = match node.map.get("config") {
        None | Some(Value::Null) => Map::new(),
        Some(_) => node
            .read_mapping("config", out)
            .cloned()
            .unwrap_or_default(),
    };
    // The agent that is made from it lies elsewhere.
    for value in config.values_mut() {
        fill_home(value, home);
    }
    if node.map.contains_key("llm") {
        check_settings(&config, node.path_to("config"), out);
    }
    // What is wrong with it is reported with the limits.
    let repairs = node.map.get("repairs").and_then(Value::as_u64);
    AgentDraft {
        body: read_body(home, node, &at, out),
        schema_out: text("schema_out", out),
        context: text("context", out),
        tools: tool::read_tool_names(node, out),
        config,
        limits: read_limits(home, node, out),
        repairs: repairs.map_or(REPAIRS, |n| n.min(u32::MAX.into()) as u32),
        at,
        id,
    }
}

/// What the agent's run may spend and what checks its answer. What is wrong with it is said now, and not when
/// the run begins.
fn read_limits(home: &Path, node: &Section, out: &mut Diagnostics) -> Map<String, Value> {
    let llm = node.map.get("llm").and_then(Value::as_str).unwrap_or("");
    let model = llm.split_once('/').map_or(llm, |(_, model)| model);
    check_limits(node, (!model.is_empty()).then_some(model), out);
    let given = LIMITS.into_iter().filter_map(|key| {
        let mut value = node.map.get(key).filter(|value| !value.is_null())?.clone();
        fill_home(&mut value, home);
        Some((key.to_owned(), value))
    });
    let mut given: Map<String, Value> = given.collect();
    if given.contains_key("accept")
        && let Some(repairs) = node.map.get("repairs")
    {
        given.insert("repairs".to_owned(), repairs.clone());
    }
    let asks = node.read_flag(ASK_HUMAN, out);
    if let Some(asks) = asks {
        given.insert(ASK_HUMAN.to_owned(), asks.into());
    }
    let mut programs = command::FORMS
        .into_iter()
        .filter(|form| node.map.contains_key(*form));
    if let (Some(form), Some((key, _))) = (programs.next_back(), given.iter().next()) {
        let message = format!("{key}: is for a run of delta, and {form}: is a program; remove it");
        out.error(node.path_to(key), message);
    }
    // With consent its own file decides.
    let decides = asks == Some(true) && !node.map.contains_key("llm");
    if decides {
        given.remove(ASK_HUMAN);
    } else {
        given.insert(ASK_HUMAN.to_owned(), (asks == Some(true)).into());
    }
    given
}

/// Reports errors in the settings of a model now, before an agent is made from them.
fn check_settings(config: &Map<String, Value>, at: Vec<Step>, out: &mut Diagnostics) {
    let node = Section::new(config, at).within("config");
    crate::config::llm::read_model(&node, out);
    let url = config.get("base_url").and_then(Value::as_str);
    if let Some(why) = url.and_then(crate::config::environment::url_objection) {
        // Not shown: there may be a key in it.
        out.error(
            node.path_to("base_url"),
            format!("config: base_url cannot be used: {why}"),
        );
    }
}

/// Exactly one of a directory, a model with a prompt, and a program.
fn read_body(home: &Path, node: &Section, at: &[Step], out: &mut Diagnostics) -> Option<AgentBody> {
    let mut given: Vec<&str> = vec!["path", "llm"];
    given.extend(command::FORMS);
    given.retain(|key| node.map.contains_key(*key));
    match given.as_slice() {
        [] => {
            let message = "needs one of path: (an agent's directory), llm: and command:";
            out.error(at.to_vec(), message);
            None
        }
        ["path"] => read_directory(home, node, out),
        ["llm"] => read_model(home, node, out),
        [_] => command::read_command(node.map, at, out).map(AgentBody::Command),
        [.., last] => {
            let message = format!("{}: are mutually exclusive; keep one", given.join(": and "));
            out.error(node.path_to(last), message);
            None
        }
    }
}

fn read_directory(home: &Path, node: &Section, out: &mut Diagnostics) -> Option<AgentBody> {
    let path = node.read_text("path", out)?;
    let dir = path_below(home, path);
    if !dir.is_dir() {
        let message = format!("path: {path}: there is no such directory");
        out.error(node.path_to("path"), message);
        return None;
    }
    Some(AgentBody::Directory(dir))
}

fn read_model(home: &Path, node: &Section, out: &mut Diagnostics) -> Option<AgentBody> {
    let llm = node.read_text("llm", out)?;
    if llm.is_empty() {
        out.error(
            node.path_to("llm"),
            "llm: is empty; name a model: PROVIDER/MODEL",
        );
    } else if llm.ends_with('/') && !names_model(node) {
        let message = format!("llm: {llm} has no model behind the slash");
        out.error(node.path_to("llm"), message);
    }
    if !node.map.contains_key("prompt") {
        out.error(
            node.path_to("prompt"),
            "has no prompt; write prompt: TEXT or prompt: ./FILE",
        );
        return None;
    }
    let prompt = node.read_text("prompt", out)?;
    let is_path = prompt.starts_with("./") || prompt.starts_with(&format!("${{{FLOW_HOME}}}/"));
    if !is_path || prompt.contains('\n') {
        return Some(AgentBody::Model {
            llm: llm.to_owned(),
            prompt: prompt.to_owned(),
            prompt_file: None,
        });
    }
    let path = path_below(home, prompt);
    let read = crate::unix::files::read_regular(&path)
        .map_err(|e| format!("cannot read {prompt}: {}", crate::error::reason(&e)))
        .and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| format!("{prompt}: it is not UTF-8"))
        });
    let text = match read {
        Ok(text) => text,
        Err(why) => {
            out.error(node.path_to("prompt"), format!("prompt: {why}"));
            return None;
        }
    };
    let name = path.strip_prefix(home).unwrap_or(&path);
    Some(AgentBody::Model {
        llm: llm.to_owned(),
        prompt: text,
        prompt_file: Some(name.display().to_string()),
    })
}

/// The settings name a model of their own.
fn names_model(node: &Section) -> bool {
    let config = node.map.get("config").and_then(Value::as_object);
    config.is_some_and(|config| config.contains_key("model"))
}

/// Puts the flow's directory in its place in every text of a value.
fn fill_home(value: &mut Value, home: &Path) {
    match value {
        Value::String(text) => {
            *text = text.replace(&format!("${{{FLOW_HOME}}}"), &home.to_string_lossy());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_home(item, home)),
        Value::Object(map) => map.values_mut().for_each(|item| fill_home(item, home)),
        _ => {}
    }
}

/// A path of a manifest: relative ones are below the flow's directory.
fn path_below(home: &Path, path: &str) -> PathBuf {
    let rest = path.strip_prefix(&format!("${{{FLOW_HOME}}}/"));
    let rest = Path::new(rest.unwrap_or(path));
    home.join(rest.strip_prefix("./").unwrap_or(rest))
}
