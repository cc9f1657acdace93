//! `tools.yaml`: what an agent node is offered, and what a command can call.
//!
//! A tool is one as `agent.yaml` has them, called by an id, with schemas and permissions beside it.

use super::command::{FLOW_DIR, FLOW_HOME, inward, outward, outward_word, parse_word};
use super::fields::{FromKey, fields};
use super::items::{Place, each_item};
use super::problem::Manifest;
use crate::config::keys::Key;
use crate::config::section::{Diagnostic, Section};
use crate::config::tool::definition::{AGENT_HOME, Tool, Word};
use crate::config::tool::load;
use crate::text::yaml::Step;
use crate::unix::doors::{Door, shared_warning};
use serde_json::Value;

fields! {
    /// Rights of a tool beside running its program.
    #[derive(Default)]
    struct Permissions {
        /// The directory that it may write; none: the task's.
        root: Option<Word>,
        allow_network: bool,
        allow_shell: bool,
        /// Hosts that it may reach although it has no network.
        allow_hosts: Vec<Door>,
    }
    beside {
        /// Paths that it may read besides; `~/` is the person's home.
        read: Vec<Word>,
    }
    by hand { "read" }
}

fields! {
    /// A tool of `tools.yaml`.
    struct FlowTool {
        /// For the arguments: a name in [`Flow::schemas`](super::Flow::schemas).
        schema_in: Option<String>,
        schema_out: Option<String>,
        /// The exit code of its program by which the output counts in part.
        partial_exit: Option<i32>,
        /// None: nothing is denied.
        permissions: Option<Permissions>,
    }
    beside {
        /// The id is its name.
        tool: Tool,
        /// Place in the document.
        at: Vec<Step>,
    }
    by hand {
        "id", "description", "command", "exec", "shell", "parameters", "stdin", "timeout_ms", "max_output_bytes", "env"
    }
}

impl FlowTool {
    pub(super) fn place(&self) -> Place<'_> {
        Place {
            kind: "tool",
            id: &self.tool.name,
            at: &self.at,
        }
    }

    /// The keys that are those of a tool in `agent.yaml`, after a flow's own.
    const SHARED: &[&str] = Self::KEYS.split_at(5).1;
}

/// Reads the file: the tools, and the ids of those that cannot be used.
pub(super) fn read_tools(manifest: &mut Manifest) -> (Vec<FlowTool>, Vec<String>) {
    let (mut all, mut wrong): (Vec<FlowTool>, Vec<String>) = Default::default();
    each_item(manifest, "tools", |manifest, section| {
        let id = section.map.get("id").and_then(Value::as_str);
        let about = id.map_or("tool".to_owned(), |id| format!("tool \"{id}\""));
        let tool = manifest.visit(&about, id.as_slice(), section, |node| {
            let tool = read_tool(node);
            let known = all.iter().map(|other| &other.tool.name);
            if id.is_some_and(|id| known.chain(&wrong).any(|other| other == id)) {
                node.error("id", "is defined twice; remove one");
            }
            tool
        });
        match tool {
            Some(tool) => all.push(tool),
            None => wrong.extend(id.map(str::to_owned)),
        }
    });
    (all, wrong)
}

fn read_tool(node: &Section) -> Option<FlowTool> {
    let read = FlowTool::read_keys(node);
    let allows_shell = read.permissions.as_ref().is_none_or(|it| it.allow_shell);
    if !allows_shell && node.has("shell") {
        let message = "shell: needs permissions: allow_shell: true, or write it as exec:";
        node.error("shell", message);
    }
    Some(FlowTool {
        tool: read_shared(node)?,
        at: node.path_to(""),
        ..read
    })
}

/// Reads the keys that a tool shares with one of an agent, which calls the id a name.
fn read_shared(node: &Section) -> Option<Tool> {
    let mut given = inward(node);
    given.retain(|key, _| FlowTool::SHARED.contains(&key.as_str()));
    let Some(id) = node.map.get("id") else {
        return node.refuse("id", "has no id; give it one");
    };
    given.insert("name".to_owned(), id.clone());
    let (tool, said) = match load::load(&given.into()) {
        Ok((tool, said)) => (Some(tool), said),
        Err(said) => (None, said),
    };
    for complaint in said {
        // The subject is there already.
        let parts = complaint.message.split_once("\": ");
        let fault = parts.map_or(&*complaint.message, |(_, fault)| fault);
        let message = fault.replace(AGENT_HOME, FLOW_HOME);
        let mut at = node.path_to("");
        at.extend(complaint.at.into_iter().map(|step| match step {
            Step::Key(key) if key == "name" => Step::Key("id".to_owned()),
            step => step,
        }));
        node.push(Diagnostic {
            at,
            message,
            ..complaint
        });
    }
    let mut read = tool?;
    read.template = outward(&read.template);
    read.command.iter_mut().for_each(outward_word);
    Some(read)
}

impl FromKey for Option<Permissions> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let inner = node.read_section(key.name)?;
        let read = Permissions::read_keys(&inner);
        let paths = inner.texts("read");
        // A path below the task's directory could become a link to anywhere.
        let is_fixed = |path: &&&str| ["/", "~/", FLOW_DIR].iter().any(|it| path.starts_with(it));
        if let Some(path) = paths.iter().find(|path| !is_fixed(path)) {
            let message =
                format!("permissions: read: {path:?} must begin with /, ~/ or {FLOW_DIR}");
            inner.error("read", message);
        }
        Some(Permissions {
            read: paths.into_iter().map(parse_word).collect(),
            ..read
        })
    }
}

/// Warns of what opens more than it seems to.
impl FromKey for Vec<Door> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let (key, name) = (key.name, node.name(key.name));
        let mut doors = Self::new();
        for text in node.texts(key) {
            match Door::parse(text) {
                Ok(door) => doors.push(door),
                Err(why) => node.error(key, format!("{name}: '{text}': {why}")),
            }
        }
        for warning in doors.iter().filter_map(shared_warning) {
            node.warn(key, format!("{name}: {warning}"));
        }
        if !doors.is_empty() && node.value("allow_network") == Some(&Value::Bool(true)) {
            let message = format!("{name} and allow_network contradict each other: omit one");
            node.error(key, message);
        }
        doors
    }
}
