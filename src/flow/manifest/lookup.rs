//! Names in one manifest of what is defined in another.

use super::agent::{AgentBody, AgentDraft};
use super::items::key_path;
use super::memory::{Memory, StorePlace};
use super::node::NodeDraft;
use super::problem::{Code, Manifest};
use super::{ContextChoice, FlowAgent, NodeKind, NodeSettings};
use crate::config::section::Diagnostics;
use crate::flow::graph::PayloadRule;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use std::collections::HashMap;

/// Everything that names are looked up in.
pub(super) struct NameLookup {
    pub(super) profiles: Names,
    pub(super) tools: Names,
    pub(super) agents: Names,
    pub(super) schemas: Names,
}

/// The names that count, each with its index, and those that are defined but wrong.
pub(super) type KnownNames = HashMap<String, Option<usize>>;

impl NameLookup {
    pub(super) fn new(
        profiles: KnownNames,
        tools: KnownNames,
        agents: KnownNames,
        schemas: KnownNames,
    ) -> Self {
        let names = |code, what, of, known| Names {
            code,
            what,
            of,
            known,
        };
        Self {
            profiles: names(
                Code::UnknownContext,
                "context profile",
                "memory.yaml",
                profiles,
            ),
            tools: names(Code::UnknownTool, "tool", "tools.yaml", tools),
            agents: names(Code::UnknownAgent, "agent", "agents.yaml", agents),
            schemas: names(Code::UnknownSchema, "schema", "schemas/", schemas),
        }
    }

    /// A context by its name. An error names the place of the name.
    pub(super) fn context(&self, name: &str) -> Option<ContextChoice> {
        match name {
            "none" => Some(ContextChoice::None),
            "global" => Some(ContextChoice::Global),
            name => {
                let known = self.profiles.known.get(name).copied().flatten();
                known.map(ContextChoice::Profile)
            }
        }
    }

    /// Adds a context in `defaults:` that there is not, once for all nodes.
    pub(super) fn check_default_context(&self, file: &mut Manifest, name: Option<&str>) {
        let is_unknown = |name: &&str| {
            !matches!(*name, "none" | "global") && !self.profiles.known.contains_key(*name)
        };
        if let Some(name) = name.filter(is_unknown) {
            let message = format!("defaults: {}", self.profiles.unknown(name));
            let at = ["defaults", "context"].map(|key| Step::Key(key.to_owned()));
            file.add(self.profiles.code, Vec::new(), &at, message);
        }
    }
}

/// Something that names are looked up in.
pub(super) struct Names {
    code: Code,
    /// How messages call one, and the file that defines it.
    what: &'static str,
    of: &'static str,
    known: KnownNames,
}

impl Names {
    /// The sentence about a name that there is not.
    fn unknown(&self, name: &str) -> String {
        let mut candidates: Vec<&str> = Vec::new();
        // Looking for what was meant takes a while in a long list.
        if self.known.len() <= 1000 {
            candidates.extend(self.known.keys().map(String::as_str));
            candidates.sort_unstable();
        }
        let hint = match nearest(name, candidates) {
            Some(near) => format!("; did you mean \"{near}\"?"),
            None => format!("; define it in {}", self.of),
        };
        format!("there is no {} \"{name}\"{hint}", self.what)
    }
}

/// Looks up what one item of a manifest names.
pub(super) struct Finder<'f> {
    pub file: &'f mut Manifest,
    /// The kind of the item and its id.
    pub kind: &'static str,
    pub id: &'f str,
    /// The place of the item.
    pub at: &'f [Step],
}

impl Finder<'_> {
    /// The index of a name; a problem if there is no such thing. One that is there and wrong has been
    /// complained about.
    pub(super) fn find(&mut self, names: &Names, key: &str, name: Option<&str>) -> Option<usize> {
        let name = name?;
        if let Some(known) = names.known.get(name) {
            return *known;
        }
        let Self { kind, id, .. } = self;
        let message = format!("{kind} \"{id}\": {}", names.unknown(name));
        let at = key_path(self.at, key);
        self.file
            .add(names.code, vec![self.id.to_owned()], &at, message);
        None
    }

    pub(super) fn context(
        &mut self,
        lookup: &NameLookup,
        name: Option<&str>,
    ) -> Option<ContextChoice> {
        match lookup.context(name?) {
            None => self
                .find(&lookup.profiles, "context", name)
                .map(ContextChoice::Profile),
            known => known,
        }
    }

    pub(super) fn tools(
        &mut self,
        lookup: &NameLookup,
        names: Option<&[String]>,
    ) -> Option<Vec<usize>> {
        let find = |name: &String| self.find(&lookup.tools, "tools", Some(name));
        Some(names?.iter().filter_map(find).collect())
    }
}

/// Warns of memory that no context reads: kept in the run only.
pub(super) fn warn_of_unseen(file: &mut Manifest, drafts: &[NodeDraft], memory: &Memory) {
    let is_global = |draft: &NodeDraft| draft.context.as_deref() == Some("global");
    let has_global = drafts.iter().any(is_global);
    for draft in drafts {
        let mut out = Diagnostics::about(format!("node \"{}\"", draft.id));
        for remember in &draft.settings.remember {
            let which = remember.store;
            let name = which.name();
            let mut sources = memory.profiles.iter().flat_map(|it| &it.sources);
            let is_seen = sources.any(|source| source.store == which)
                || (has_global && name == "global")
                || memory.store(which).place != StorePlace::InMemory;
            if !is_seen {
                let message = format!(
                    "no node can read what the {name} store remembers: it exists only in the run, and no \
                     profile lists it; give it type: jsonl in memory.yaml"
                );
                out.warn(key_path(&draft.at, "remember"), message);
            }
        }
        file.report(std::slice::from_ref(&draft.id), out);
    }
}

/// Warns of nodes that are runs, and have keys of nodes that run a program.
pub(super) fn warn_of_runs(file: &mut Manifest, drafts: &[NodeDraft], agents: &[AgentDraft]) {
    let asks = |id: &str| {
        let mut agents = agents.iter().filter(|agent| agent.id == id);
        agents.any(|agent| {
            matches!(
                agent.body,
                Some(AgentBody::Directory(_) | AgentBody::Model { .. })
            )
        })
    };
    for draft in drafts {
        let is_asked = draft.agent_id.as_deref().is_some_and(asks);
        let is_run = draft.flow.is_some() || (is_asked && draft.kind == Some(NodeKind::Agent));
        let runs_nothing = draft.form.is_none() && draft.agent_id.is_none();
        let mut out = Diagnostics::about(format!("node \"{}\"", draft.id));
        if draft.settings.cache && is_run {
            let message =
                "cache has no meaning here: flows, and agents with path or llm, are never cached";
            out.warn(key_path(&draft.at, "cache"), message);
        }
        if draft.settings.partial_exit.is_some() && (is_run || runs_nothing) {
            let message = "partial_exit has no meaning here: the node runs no program of its own";
            out.warn(key_path(&draft.at, "partial_exit"), message);
        }
        file.report(std::slice::from_ref(&draft.id), out);
    }
}

/// Lets the output go on from decisions that do not say, unless an agent without a schema decides.
pub(super) fn derive_payloads(
    drafts: &mut [NodeDraft],
    nodes: &[Option<NodeSettings>],
    agents: &[Option<FlowAgent>],
) {
    for (draft, node) in drafts.iter_mut().zip(nodes) {
        let agent = node.as_ref().and_then(|node| agents[node.agent?].as_ref());
        if draft.schema_out.is_some() || agent.is_none_or(|it| it.schema_out.is_some()) {
            draft.payload.get_or_insert(PayloadRule::Output);
        }
    }
}

/// Names with their indices; of two that are the same, the first counts.
pub(super) fn index_names<'n>(list: impl Iterator<Item = &'n str>) -> KnownNames {
    let mut known = KnownNames::new();
    for (index, name) in list.enumerate() {
        known.entry(name.to_owned()).or_insert(Some(index));
    }
    known
}
