//! Names in one manifest of what is defined in another.

use super::ContextChoice;
use super::memory::{Memory, StorePlace};
use super::node::NodeDraft;
use super::problem::{Code, FlowProblem, Manifest};
use crate::config::section::Diagnostics;
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

/// What kind of thing names something, and its id.
pub(super) type Whose<'w> = (&'w str, &'w str);

/// The names that count, each with its index, and those that are defined but wrong.
pub(super) type Known = HashMap<String, Option<usize>>;

impl NameLookup {
    pub(super) fn new(profiles: Known, tools: Known, agents: Known, schemas: Known) -> Self {
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

    pub(super) fn context(
        &self,
        name: &str,
        whose: Whose,
        file: &mut Manifest,
        at: &[Step],
        problems: &mut Vec<FlowProblem>,
    ) -> Option<ContextChoice> {
        match name {
            "none" => Some(ContextChoice::None),
            "global" => Some(ContextChoice::Global),
            name => {
                let profile = self.profiles.find(name, whose, file, at, problems);
                profile.map(ContextChoice::Profile)
            }
        }
    }

    pub(super) fn tools(
        &self,
        names: &[String],
        whose: Whose,
        file: &mut Manifest,
        at: &[Step],
        problems: &mut Vec<FlowProblem>,
    ) -> Vec<usize> {
        let find = |name: &String| self.tools.find(name, whose, file, at, problems);
        names.iter().filter_map(find).collect()
    }
}

/// Something that names are looked up in.
pub(super) struct Names {
    code: Code,
    /// What it is, and where it is defined.
    what: &'static str,
    of: &'static str,
    known: Known,
}

impl Names {
    /// The index of a name; a problem if there is no such thing. One that is there and wrong has been
    /// complained about.
    pub(super) fn find(
        &self,
        name: &str,
        (kind, id): Whose,
        file: &mut Manifest,
        at: &[Step],
        problems: &mut Vec<FlowProblem>,
    ) -> Option<usize> {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let mut candidates: Vec<&str> = Vec::new();
        // Looking for what was meant takes a while in a long list.
        if self.known.len() <= 1000 {
            candidates.extend(self.known.keys().map(String::as_str));
            candidates.sort_unstable();
        }
        let meant = nearest(name, candidates);
        let hint = match meant {
            Some(near) => format!("; did you mean \"{near}\"?"),
            None => format!("; define it in {}", self.of),
        };
        let message = format!(
            "{kind} \"{id}\": there is no {} \"{name}\"{hint}",
            self.what
        );
        problems.push(file.problem(self.code, vec![id.to_owned()], at, message));
        None
    }
}

/// Warns of what nodes remember where nobody finds it: in the run only, and in no context.
pub(super) fn unseen(
    file: &mut Manifest,
    drafts: &[NodeDraft],
    memory: &Memory,
    problems: &mut Vec<FlowProblem>,
) {
    let is_global = |draft: &NodeDraft| draft.context.as_deref() == Some("global");
    let has_global = drafts.iter().any(is_global);
    for draft in drafts {
        let mut out = Diagnostics::about(format!("node \"{}\"", draft.id));
        for remember in &draft.remember {
            let which = remember.store;
            let name = which.name();
            let mut sources = memory.profiles.iter().flat_map(|it| &it.sources);
            let is_seen = sources.any(|source| source.store == which)
                || (has_global && name == "global")
                || memory.store(which).place != StorePlace::InMemory;
            if !is_seen {
                let message = format!(
                    "nobody finds what the {name} store remembers: it lives in the run only, and no \
                     profile has it; give it type: jsonl in memory.yaml"
                );
                out.warn(draft.key("remember"), message);
            }
        }
        file.report(std::slice::from_ref(&draft.id), out.into_list(), problems);
    }
}

/// Names with their indices; of two that are the same, the first counts.
pub(super) fn names<'n>(list: impl Iterator<Item = &'n str>) -> Known {
    let mut known = Known::new();
    for (index, name) in list.enumerate() {
        known.entry(name.to_owned()).or_insert(Some(index));
    }
    known
}
