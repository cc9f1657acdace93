//! Names in one manifest of what is defined in another.

use super::NodeKind;
use super::agent::FlowAgent;
use super::items::Place;
use super::memory::Memory;
use super::node::NodeSettings;
use super::problem::{Code, Manifest};
use super::tool::FlowTool;
use crate::flow::graph::PayloadRule;
use crate::text::order;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use std::collections::HashSet;

/// Everything that is defined, right or wrong: what is wrong has been reported.
pub(super) struct KnownNames {
    pub profiles: HashSet<String>,
    pub tools: HashSet<String>,
    pub agents: HashSet<String>,
    pub schemas: HashSet<String>,
}

impl KnownNames {
    /// Adds the names in a key of an item that mean nothing.
    fn check<'n>(
        &self,
        file: &mut Manifest,
        item: Place<'_>,
        key: &str,
        names: impl IntoIterator<Item = &'n String>,
    ) {
        for name in names {
            if let Some((code, message)) = self.find_fault(key, name) {
                file.add_to(item, key, Some(code), message);
            }
        }
    }

    pub(super) fn check_tools(&self, file: &mut Manifest, tools: &[FlowTool]) {
        for tool in tools {
            self.check(file, tool.place(), "schema_in", &tool.schema_in);
            self.check(file, tool.place(), "schema_out", &tool.schema_out);
        }
    }

    pub(super) fn check_agent(&self, file: &mut Manifest, agent: &FlowAgent) {
        let place = agent.place();
        self.check(file, place, "schema_out", &agent.schema_out);
        self.check(file, place, "context", &agent.context);
        self.check(file, place, "tools", agent.tools.iter().flatten());
    }

    pub(super) fn check_nodes(&self, file: &mut Manifest, nodes: &[NodeSettings]) {
        for node in nodes {
            let place = node.place();
            let context = node.context.iter().filter(|_| !node.lacks_context);
            self.check(file, place, "schema_in", &node.schema_in);
            self.check(file, place, "schema_out", &node.schema_out);
            self.check(file, place, "context", context);
            self.check(file, place, "tools", node.tools.iter().flatten());
            self.check(file, place, "agent_id", &node.agent_id);
        }
    }

    /// Adds a context in `defaults:` that there is not, once for all nodes.
    pub(super) fn check_default_context(&self, file: &mut Manifest, name: Option<&str>) {
        if let Some((code, message)) = name.and_then(|name| self.find_fault("context", name)) {
            let at = ["defaults", "context"].map(|key| Step::Key(key.to_owned()));
            file.push(Some(code), &[], &at, format!("defaults: {message}"));
        }
    }

    /// The sentence about a name that there is not.
    fn find_fault(&self, key: &str, name: &str) -> Option<(Code, String)> {
        let (code, what, of, known) = match key {
            "context" if matches!(name, "none" | "global") => return None,
            "context" => (
                Code::UnknownContext,
                "context profile",
                "memory.yaml",
                &self.profiles,
            ),
            "tools" => (Code::UnknownTool, "tool", "tools.yaml", &self.tools),
            "agent_id" => (Code::UnknownAgent, "agent", "agents.yaml", &self.agents),
            _ => (Code::UnknownSchema, "schema", "schemas/", &self.schemas),
        };
        if known.contains(name) {
            return None;
        }
        let mut candidates: Vec<&str> = Vec::new();
        // Looking for what was meant takes a while in a long list.
        if known.len() <= 1000 {
            candidates.extend(known.iter().map(String::as_str));
            order::sort(&mut candidates);
        }
        let hint = match nearest(name, candidates) {
            Some(near) => format!("; did you mean \"{near}\"?"),
            None => format!("; define it in {of}"),
        };
        Some((code, format!("there is no {what} \"{name}\"{hint}")))
    }
}

/// The agent that a node asks.
pub(super) fn agent_of<'a>(node: &NodeSettings, agents: &'a [FlowAgent]) -> Option<&'a FlowAgent> {
    let id = node.agent_id.as_ref()?;
    let is_asked = |agent: &&FlowAgent| agent.id == *id && node.kind == Some(NodeKind::Agent);
    agents.iter().find(is_asked)
}

/// Warns of memory that no context reads: kept in the run only.
pub(super) fn warn_of_unseen(file: &mut Manifest, nodes: &[NodeSettings], memory: &Memory) {
    let mut contexts = nodes.iter().map(|node| node.context.as_deref());
    let has_global = contexts.any(|context| context == Some("global"));
    for node in nodes {
        for remember in &node.remember {
            let which = remember.store;
            let name = which.name();
            let mut sources = memory.profiles.iter().flat_map(|it| &it.sources);
            let is_seen = sources.any(|source| source.store == which)
                || (has_global && name == "global")
                || memory.store(which).file.is_some();
            if !is_seen {
                let message = format!(
                    "no node can read what the {name} store remembers: it exists only in the run, and no \
                     profile lists it; give it type: jsonl in memory.yaml"
                );
                file.add_to(node.place(), "remember", None, message);
            }
        }
    }
}

/// Warns of nodes that are runs, and have keys of nodes that run a program.
pub(super) fn warn_of_runs(file: &mut Manifest, nodes: &[NodeSettings], agents: &[FlowAgent]) {
    for node in nodes {
        let asks_run = agent_of(node, agents).is_some_and(|agent| agent.body.is_run());
        let is_run = node.flow_dir.is_some() || asks_run;
        let runs_nothing = node.form.is_none() && node.agent_id.is_none();
        if node.cache && is_run {
            let message =
                "cache has no meaning here: flows, and agents with path or llm, are never cached";
            file.add_to(node.place(), "cache", None, message);
        }
        if node.partial_exit.is_some() && (is_run || runs_nothing) {
            let message = "partial_exit has no meaning here: the node runs no program of its own";
            file.add_to(node.place(), "partial_exit", None, message);
        }
    }
}

/// Lets the output go on from decisions that do not say, unless an agent without a schema decides.
pub(super) fn derive_payloads(nodes: &mut [NodeSettings], agents: &[FlowAgent]) {
    for node in nodes {
        let agent = agent_of(node, agents);
        if node.schema_out.is_some() || agent.is_none_or(|it| it.schema_out.is_some()) {
            node.payload.get_or_insert(PayloadRule::Output);
        }
    }
}
