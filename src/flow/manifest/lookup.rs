//! Names in one manifest of what is defined in another.

use super::ContextChoice;
use super::items::key_path;
use super::memory::{Memory, StorePlace};
use super::node::NodeDraft;
use super::problem::{Code, Manifest};
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
}

/// Something that names are looked up in.
pub(super) struct Names {
    code: Code,
    /// How messages call one, and the file that defines it.
    what: &'static str,
    of: &'static str,
    known: KnownNames,
}

/// Looks up what one item of a manifest names.
pub(super) struct Finder<'f> {
    pub file: &'f mut Manifest,
    /// The kind of the item and its id.
    pub kind: &'static str,
    pub id: &'f str,
    /// Where the item stands.
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
        let mut candidates: Vec<&str> = Vec::new();
        // Looking for what was meant takes a while in a long list.
        if names.known.len() <= 1000 {
            candidates.extend(names.known.keys().map(String::as_str));
            candidates.sort_unstable();
        }
        let hint = match nearest(name, candidates) {
            Some(near) => format!("; did you mean \"{near}\"?"),
            None => format!("; define it in {}", names.of),
        };
        let Self { kind, id, .. } = self;
        let message = format!(
            "{kind} \"{id}\": there is no {} \"{name}\"{hint}",
            names.what
        );
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
        match name? {
            "none" => Some(ContextChoice::None),
            "global" => Some(ContextChoice::Global),
            name => self
                .find(&lookup.profiles, "context", Some(name))
                .map(ContextChoice::Profile),
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

/// Warns of what nodes remember where nobody finds it: in the run only, and in no context.
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

/// Names with their indices; of two that are the same, the first counts.
pub(super) fn index_names<'n>(list: impl Iterator<Item = &'n str>) -> KnownNames {
    let mut known = KnownNames::new();
    for (index, name) in list.enumerate() {
        known.entry(name.to_owned()).or_insert(Some(index));
    }
    known
}
