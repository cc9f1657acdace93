//! `tools.yaml`: what an agent node is offered, and what a command can call.
//!
//! A tool is one as `agent.yaml` has them, called by an id, with schemas and permissions beside it.

use super::command::{inward, outward, outward_word, parse_word};
use super::items::{key_path, read_items, read_texts};
use super::problem::Manifest;
use crate::config::section::{Diagnostics, Section};
use crate::config::tool::definition::{Tool, Word};
use crate::config::tool::load;
use crate::text::yaml::Step;
use crate::unix::doors::{Door, shared_warning};
use serde_json::{Map, Value};

/// Rights of a tool beside running its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    /// Where it may write; none: in the task's directory.
    pub root: Option<Word>,
    /// What it may read besides; `~/` is the person's home.
    pub read: Vec<Word>,
    pub allow_network: bool,
    pub allow_shell: bool,
    /// Hosts that it may reach although it has no network.
    pub allow_hosts: Vec<Door>,
}

/// A tool as it was written. Schemas are looked up later.
#[derive(Debug)]
pub(super) struct ToolDraft {
    /// Place in the document.
    pub at: Vec<Step>,
    pub tool: Tool,
    pub schema_in: Option<String>,
    pub schema_out: Option<String>,
    pub partial_exit: Option<i32>,
    pub permissions: Option<Permissions>,
}

/// The keys that are those of a tool in `agent.yaml`.
const SHARED: [&str; 9] = [
    "description",
    "command",
    "exec",
    "shell",
    "parameters",
    "stdin",
    "timeout_ms",
    "max_output_bytes",
    "env",
];

/// The keys that only a flow's tools have.
const OWN: [&str; 5] = [
    "id",
    "schema_in",
    "schema_out",
    "partial_exit",
    "permissions",
];

/// Reads the file: the tools, and the ids of those that cannot be used.
pub(super) fn read_tools(manifest: &mut Manifest) -> (Vec<ToolDraft>, Vec<String>) {
    let (mut all, mut wrong): (Vec<ToolDraft>, Vec<String>) = Default::default();
    for (map, at) in read_items(manifest, "tools") {
        let id = map.get("id").and_then(Value::as_str);
        let about = id.map_or("tool".to_owned(), |id| format!("tool \"{id}\""));
        let mut out = Diagnostics::about(about);
        let draft = read_tool(&map, &at, &mut out);
        let known = all.iter().map(|other| &*other.tool.name);
        let mut known = known.chain(wrong.iter().map(String::as_str));
        if id.is_some_and(|id| known.any(|other| other == id)) {
            out.error(key_path(&at, "id"), "is defined twice; remove one");
        }
        let ids: Vec<String> = id.map(str::to_owned).into_iter().collect();
        manifest.report(&ids, out);
        match draft {
            Some(draft) => all.push(draft),
            None => wrong.extend(ids),
        }
    }
    (all, wrong)
}

fn read_tool(map: &Map<String, Value>, at: &[Step], out: &mut Diagnostics) -> Option<ToolDraft> {
    let node = Section::new(map, at.to_vec());
    let known: Vec<&str> = OWN.into_iter().chain(SHARED).collect();
    node.warn_of_unknown_keys(&known, out);
    let tool = read_shared(map, at, out);
    let permissions = read_permissions(&node, out);
    if let Some(permissions) = &permissions
        && !permissions.allow_shell
        && map.contains_key("shell")
    {
        let message = "shell: needs permissions: allow_shell: true, or write it as exec:";
        out.error(node.path_to("shell"), message);
    }
    let text = |key: &str, out: &mut Diagnostics| node.read_text(key, out).map(str::to_owned);
    let (schema_in, schema_out) = (text("schema_in", out), text("schema_out", out));
    Some(ToolDraft {
        at: at.to_vec(),
        tool: tool?,
        schema_in,
        schema_out,
        partial_exit: node.read_exit_code("partial_exit", out),
        permissions,
    })
}

/// The keys that a tool shares with one of an agent, which calls the id a name.
fn read_shared(map: &Map<String, Value>, at: &[Step], out: &mut Diagnostics) -> Option<Tool> {
    let mut given = inward(map, at, out);
    given.retain(|key, _| SHARED.contains(&key.as_str()));
    match map.get("id") {
        Some(id) => given.insert("name".to_owned(), id.clone()),
        None => {
            out.error(at.to_vec(), "has no id; give it one");
            return None;
        }
    };
    let (tool, said) = match load::load(&given.into()) {
        Ok((tool, said)) => (Some(tool), said),
        Err(said) => (None, said),
    };
    for complaint in said {
        // The subject is there already.
        let message = complaint.message.split_once("\": ");
        let message = message.map_or(&*complaint.message, |(_, message)| message);
        let message = message.replace(
            crate::config::tool::definition::AGENT_HOME,
            super::command::FLOW_HOME,
        );
        let mut at = at.to_vec();
        at.extend(complaint.at.into_iter().map(|step| match step {
            Step::Key(key) if key == "name" => Step::Key("id".to_owned()),
            step => step,
        }));
        if complaint.warning {
            out.warn(at, message);
        } else {
            out.error(at, message);
        }
    }
    let mut tool = tool?;
    tool.template = outward(&tool.template);
    tool.command = tool.command.into_iter().map(outward_word).collect();
    Some(tool)
}

fn read_permissions(node: &Section, out: &mut Diagnostics) -> Option<Permissions> {
    let map = node.read_mapping("permissions", out)?;
    let node = Section::new(map, node.path_to("permissions")).within("permissions");
    let known = [
        "root",
        "read",
        "allow_network",
        "allow_shell",
        "allow_hosts",
    ];
    node.warn_of_unknown_keys(&known, out);
    let read = read_texts(&node, "read", out).unwrap_or_default();
    // A path below the task's directory could become a link to anywhere.
    let fixed = ["/", "~/", "${FLOW_HOME}"];
    let is_fixed = |path: &&String| fixed.iter().any(|it| path.starts_with(it));
    if let Some(path) = read.iter().find(|path| !is_fixed(path)) {
        let message =
            format!("permissions: read: {path:?} must begin with /, ~/ or ${{FLOW_HOME}}");
        out.error(node.path_to("read"), message);
    }
    Some(Permissions {
        root: node.read_text("root", out).map(parse_word),
        read: read.iter().map(|path| parse_word(path)).collect(),
        allow_network: node.read_flag("allow_network", out).unwrap_or(false),
        allow_shell: node.read_flag("allow_shell", out).unwrap_or(false),
        allow_hosts: read_hosts(&node, out),
    })
}

/// Reads `allow_hosts`, and warns of what opens more than it seems to.
fn read_hosts(node: &Section, out: &mut Diagnostics) -> Vec<Door> {
    let mut doors = Vec::new();
    for text in read_texts(node, "allow_hosts", out).unwrap_or_default() {
        match Door::parse(&text) {
            Ok(door) => doors.push(door),
            Err(why) => {
                let message = format!("permissions: allow_hosts: '{text}': {why}");
                out.error(node.path_to("allow_hosts"), message);
            }
        }
    }
    for warning in doors.iter().filter_map(shared_warning) {
        let message = format!("permissions: allow_hosts: {warning}");
        out.warn(node.path_to("allow_hosts"), message);
    }
    if !doors.is_empty() && node.read_flag("allow_network", out) == Some(true) {
        let message = "permissions: allow_hosts and allow_network contradict each other: omit one";
        out.error(node.path_to("allow_hosts"), message);
    }
    doors
}

/// The names of tools in a list, or none where the key is not there.
pub(crate) fn read_tool_names(node: &Section, out: &mut Diagnostics) -> Option<Vec<String>> {
    match node.map.get("tools") {
        None | Some(Value::Null) => None,
        Some(_) => read_texts(node, "tools", out),
    }
}
