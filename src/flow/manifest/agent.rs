//! `agents.yaml`: agents, which nodes name by `agent_id`.
//!
//! Unaware of how an agent is run.

use super::command::{FLOW_DIR, FORMS, NodeCommand, read_command, replace_texts};
use super::fields::{fields, or_null};
use super::items::{Place, read_items};
use super::problem::Manifest;
use super::providers::AskedModel;
use crate::config::load::check_limits;
use crate::config::section::Section;
use crate::error::reason;
use crate::text::yaml::Step;
use crate::unix::files;
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

impl AgentBody {
    /// True for a run of delta.
    pub(crate) fn is_run(&self) -> bool {
        !matches!(self, Self::Command(_))
    }
}

/// Nothing, where it is wrong.
impl Default for AgentBody {
    fn default() -> Self {
        Self::Command(NodeCommand::default())
    }
}

fields! {
    /// An agent of `agents.yaml`.
    struct FlowAgent {
        /// For nodes that do not say: a name in [`Flow::schemas`](super::Flow::schemas).
        schema_out: Option<String>,
        /// For nodes that do not say.
        context: Option<String>,
        /// For nodes that do not say: names in [`Flow::tools`](super::Flow::tools).
        tools: Option<Vec<String>> = or_null("tools"),
    }
    beside {
        id: String,
        /// Place in the document.
        at: Vec<Step>,
        body: AgentBody,
        /// For `llm:` of an agent that is made from a model.
        config: Map<String, Value>,
        /// The model that it asks.
        asked: AskedModel,
        /// The number of times that an answer which does not fit is sent back.
        repairs: u32,
        /// Keys of agent.yaml that its run overrides: what it may spend, and what checks its answer.
        limits: Map<String, Value>,
    }
    for people { "name", "description" }
    by hand {
        "id", "kind", "path", "llm", "prompt", "command", "exec", "shell", "config", "repairs", "ask_human", "limits",
        "max_iterations", "budget", "pricing", "accept"
    }
}

impl FlowAgent {
    pub(super) fn place(&self) -> Place<'_> {
        Place {
            kind: "agent",
            id: &self.id,
            at: &self.at,
        }
    }
}

/// Keys that are those of agent.yaml.
const LIMITS: [&str; 5] = ["limits", "max_iterations", "budget", "pricing", "accept"];

/// The key of agent.yaml by which an agent may ask a person. In a flow it needs the flow's consent.
const ASK_HUMAN: &str = "ask_human";

/// The number of repairs of an agent that does not say.
const REPAIRS: u32 = 1;

/// Reads the file.
pub(super) fn read_agents(home: &Path, manifest: &mut Manifest) -> Vec<FlowAgent> {
    read_items(manifest, "agents", "agent", |id, node| FlowAgent {
        id,
        ..read_agent(home, node)
    })
}

fn read_agent(home: &Path, node: &Section) -> FlowAgent {
    let read = FlowAgent::read_keys(node);
    node.read_choice("kind", &[("agent", ())]);
    let given = node
        .value("config")
        .and_then(|_| node.read_mapping("config"));
    let mut config = given.cloned().unwrap_or_default();
    // The agent that is made from it lies elsewhere.
    for value in config.values_mut() {
        replace_texts(value, FLOW_DIR, &home.to_string_lossy());
    }
    if node.has("llm") {
        check_settings(&config, node);
    }
    // What is wrong with it is reported with the limits.
    let repairs = node.value("repairs").and_then(Value::as_u64);
    FlowAgent {
        body: read_body(home, node).unwrap_or_default(),
        config,
        limits: read_limits(home, node),
        repairs: repairs.map_or(REPAIRS, |n| n.min(u32::MAX.into()) as u32),
        at: node.path_to(""),
        ..read
    }
}

/// The keys that limit the agent's run and check its answer. What is wrong with them is reported now, and not when
/// the run begins.
fn read_limits(home: &Path, node: &Section) -> Map<String, Value> {
    let llm = node.value("llm").and_then(Value::as_str).unwrap_or("");
    let model = llm.split_once('/').map_or(llm, |(_, model)| model);
    let named = Some(model).filter(|it| !it.is_empty());
    check_limits(node, named);
    let mut given = Map::new();
    for key in LIMITS {
        if let Some(value) = node.value(key) {
            let given = given.entry(key).or_insert(value.clone());
            replace_texts(given, FLOW_DIR, &home.to_string_lossy());
        }
    }
    if given.contains_key("accept")
        && let Some(repairs) = node.map.get("repairs")
    {
        given.insert("repairs".to_owned(), repairs.clone());
    }
    let asks = node.read_flag(ASK_HUMAN);
    let mut keys = given.keys().map(String::as_str);
    let first = keys.next().or(asks.map(|_| ASK_HUMAN));
    let mut programs = FORMS.into_iter().filter(|form| node.has(form));
    if let (Some(form), Some(key)) = (programs.next_back(), first) {
        let message = format!("{key}: is for a run of delta, and {form}: is a program; remove it");
        node.error(key, message);
    }
    // With consent its own file decides.
    let is_asking = asks == Some(true);
    if !is_asking || node.has("llm") {
        given.insert(ASK_HUMAN.to_owned(), is_asking.into());
    }
    given
}

/// Reports errors in the settings of a model now, before an agent is made from them.
fn check_settings(config: &Map<String, Value>, node: &Section) {
    let section = node.inner(config, node.path_to("config")).within("config");
    crate::config::llm::read_model(&section);
    let url = config.get("base_url").and_then(Value::as_str);
    if let Some(why) = url.and_then(crate::config::environment::url_objection) {
        // Not shown: there may be a key in it.
        let message = format!("config: base_url cannot be used: {why}");
        section.error("base_url", message);
    }
}

/// Exactly one of a directory, a model with a prompt, and a program.
fn read_body(home: &Path, node: &Section) -> Option<AgentBody> {
    let mut given: Vec<&str> = ["path", "llm"].into_iter().chain(FORMS).collect();
    given.retain(|key| node.has(key));
    match given.as_slice() {
        [] => {
            let message = "needs one of path: (an agent's directory), llm: and command:";
            node.refuse("", message)
        }
        ["path"] => read_directory(home, node),
        ["llm"] => read_model(home, node),
        [_] => read_command(node).map(AgentBody::Command),
        [.., last] => {
            let message = format!("{}: are mutually exclusive; keep one", given.join(": and "));
            node.refuse(last, message)
        }
    }
}

fn read_directory(home: &Path, node: &Section) -> Option<AgentBody> {
    let path = node.read_text("path")?;
    let dir = path_below(home, path);
    if !dir.is_dir() {
        return node.refuse("path", format!("path: {path}: there is no such directory"));
    }
    Some(AgentBody::Directory(dir))
}

fn read_model(home: &Path, node: &Section) -> Option<AgentBody> {
    let llm = node.read_text("llm")?;
    // The settings may name a model of their own.
    let config = node.value("config").and_then(Value::as_object);
    let names_model = config.is_some_and(|config| config.contains_key("model"));
    if llm.is_empty() {
        node.error("llm", "llm: is empty; name a model: PROVIDER/MODEL");
    } else if llm.ends_with('/') && !names_model {
        node.error("llm", format!("llm: {llm} has no model behind the slash"));
    }
    if !node.has("prompt") {
        let message = "has no prompt; write prompt: TEXT or prompt: ./FILE";
        return node.refuse("prompt", message);
    }
    let prompt = node.read_text("prompt")?;
    let is_path = prompt.starts_with("./") || prompt.starts_with(&format!("{FLOW_DIR}/"));
    if !is_path || prompt.contains('\n') {
        return Some(AgentBody::Model {
            llm: llm.to_owned(),
            prompt: prompt.to_owned(),
            prompt_file: None,
        });
    }
    let path = path_below(home, prompt);
    let read = files::read_regular(&path)
        .map_err(|e| format!("cannot read {prompt}: {}", reason(&e)))
        .and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| format!("{prompt}: it is not UTF-8"))
        });
    match read {
        Ok(prompt) => Some(AgentBody::Model {
            llm: llm.to_owned(),
            prompt,
            prompt_file: Some(
                path.strip_prefix(home)
                    .unwrap_or(&path)
                    .display()
                    .to_string(),
            ),
        }),
        Err(why) => node.refuse("prompt", format!("prompt: {why}")),
    }
}

/// A path of a manifest: relative ones are below the flow's directory.
fn path_below(home: &Path, path: &str) -> PathBuf {
    let below = path.strip_prefix(&format!("{FLOW_DIR}/"));
    let below = Path::new(below.unwrap_or(path));
    home.join(below.strip_prefix("./").unwrap_or(below))
}
