//! `memory.yaml`: stores, and the profiles by which a node's context is chosen from them.
//!
//! Unaware of items: nothing is read from a store here.

use super::command::fill;
use super::fields::{FromKey, fields, named, needed, or_null};
use super::items::read_id;
use super::problem::Manifest;
use crate::config::keys::Key;
use crate::config::section::Section;
use crate::config::tool::definition::Word;
use crate::text::names::named_enum;
use serde_json::Value;
use std::path::{Path, PathBuf};

named_enum! {
    /// One of the three stores.
    pub(crate) enum StoreName {
        Task = "task",
        Project = "project",
        Global = "global",
    }
}

named_enum! {
    /// The place of a store's items.
    pub(crate) enum StoreType {
        /// In a file, one JSON object a line.
        Jsonl = "jsonl",
        /// In the run; they end with it.
        InMemory = "in_memory",
    }
}

fields! {
    /// A store.
    #[derive(Default)]
    struct StoreSettings {
        kind: Option<StoreType> = needed("type", "jsonl or in_memory"),
        /// The file, if there is one. A relative path is below the flow's directory.
        file: Option<Word> = named("file_path"),
        /// The number of items that it keeps; none: all.
        max_items: Option<u64>,
    }
}

impl StoreSettings {
    /// The file, if there is one. `cwd` is the workspace.
    pub(crate) fn path(&self, home: &Path, cwd: &Path) -> Option<PathBuf> {
        let word = self.file.as_ref()?;
        Some(home.join(fill(std::slice::from_ref(word), home, cwd).pop()?))
    }
}

impl FromKey for StoreSettings {
    fn from_key(node: &Section, key: &Key) -> Self {
        let Some(store) = node.read_section(key.name) else {
            return Self::default();
        };
        let mut read = Self::read_keys(&store);
        let (key, file) = (key.name, read.file.take());
        match read.kind {
            Some(StoreType::Jsonl) => {
                read.file = file.filter(|word| !word.0.is_empty());
                if read.file.is_none() {
                    store.error("file_path", format!("{key}: type: jsonl needs file_path"));
                }
            }
            Some(StoreType::InMemory) if file.is_some() => {
                let message = format!("{key}: file_path has no meaning with type: in_memory");
                store.warn("file_path", message);
            }
            _ => {}
        }
        read
    }
}

named_enum! {
    /// The order of items before they are taken.
    #[derive(Default)]
    pub(crate) enum Retrieval {
        /// The newest first.
        #[default]
        Recency = "recency",
        /// By words and by time.
        Hybrid = "hybrid",
    }
}

/// A part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileSource {
    pub store: StoreName,
    /// Only items that have one of these; empty: all items.
    pub tags: Vec<String>,
}

fields! {
    /// The choice of a context.
    #[derive(Clone, Default)]
    struct Profile {
        /// The most that is taken; none: everything.
        max_tokens: Option<u64>,
    }
    beside {
        id: String,
        /// The order in which it is taken.
        retrieval: Retrieval,
        /// Unless the file says otherwise: all that the task remembers.
        sources: Vec<ProfileSource>,
    }
    by hand { "id", "retrieval_policy", "sources" }
}

impl Profile {
    /// The one that a node gets with `context: global`.
    pub(crate) fn global() -> Self {
        Self {
            id: "global".to_owned(),
            max_tokens: Some(4000),
            retrieval: Retrieval::Recency,
            sources: all_of(StoreName::Global),
        }
    }
}

fn all_of(store: StoreName) -> Vec<ProfileSource> {
    let tags = Vec::new();
    vec![ProfileSource { store, tags }]
}

fields! {
    /// All of `memory.yaml`. Without the file: three stores in memory, no profiles.
    #[derive(Default)]
    struct Memory {
        task_store: StoreSettings = or_null("task_store"),
        project_store: StoreSettings = or_null("project_store"),
        global_store: StoreSettings = or_null("global_store"),
    }
    beside {
        /// In the order of the file.
        profiles: Vec<Profile>,
    }
    by hand { "context_profiles", "embedder", "tokenizer" }
}

impl Memory {
    pub(crate) fn store(&self, which: StoreName) -> &StoreSettings {
        match which {
            StoreName::Task => &self.task_store,
            StoreName::Project => &self.project_store,
            StoreName::Global => &self.global_store,
        }
    }
}

/// Keys that are gone, each with the way out.
const REMOVED: [(&str, &str); 2] = [
    ("embedder", NO_EMBEDDER),
    ("tokenizer", "is gone: 4 bytes count as a token; remove it"),
];

/// The way out for `semantic`, too, which needed an embedder.
const NO_EMBEDDER: &str =
    "is gone: use retrieval_policy: hybrid, or let a node before this one ask the program";

/// Reads the file. The keys may be at the top or below `memory:`.
pub(super) fn read_memory(manifest: &mut Manifest) -> Memory {
    let root = std::mem::take(&mut manifest.root);
    let top = Section::new(&root, vec![]);
    let mut memory = Memory::default();
    let profiles = manifest.visit("", &[], &top, |top| {
        let node = match root.get("memory") {
            Some(Value::Null) if root.len() == 1 => return None,
            None | Some(Value::Null) => top.clone(),
            Some(_) => {
                let map = top.read_mapping("memory")?;
                top.warn_of_unknown_keys(&["memory"]);
                top.inner(map, top.path_to("memory"))
            }
        };
        memory = Memory::read_keys(&node);
        for (key, way_out) in REMOVED {
            if node.has(key) {
                node.error(key, format!("{key}: {way_out}"));
            }
        }
        Some(node.mappings("context_profiles"))
    });
    for plain in profiles.into_iter().flatten() {
        if let Some(id) = manifest.visit("", &[], &plain, |node| read_id(node, "profile")) {
            let of = format!("context profile '{id}'");
            let section = plain.of(&of);
            let read = |node: &Section| read_profile(node, &id, &of, &memory.profiles);
            let profile = manifest.visit("", &[&id], &section, read);
            memory.profiles.push(Profile { id, ..profile });
        }
    }
    memory
}

fn read_profile(node: &Section, id: &str, of: &str, others: &[Profile]) -> Profile {
    let mut profile = Profile::read_keys(node);
    // Nodes use these names for something else.
    if matches!(id, "global" | "none") {
        let message = format!("{of}: '{id}' means something else; rename it");
        node.error("id", message);
    } else if others.iter().any(|other| other.id == *id) {
        node.error("id", format!("{of} is defined twice; remove one"));
    }
    for plain in node.mappings("sources") {
        let source = plain.of(&format!("a source of {of}"));
        source.warn_of_unknown_keys(&["store", "tags"]);
        if !source.has("store") {
            let message = format!("{of}: a source has no store; needs task, project or global");
            source.error("", message);
        }
        let tags = source.get("tags");
        let store: Option<StoreName> = source.get("store");
        let read = store.map(|store| ProfileSource { store, tags });
        profile.sources.extend(read);
    }
    if node.value("sources").is_none() {
        profile.sources = all_of(StoreName::Task);
    }
    if node.value("retrieval_policy") == Some(&"semantic".into()) {
        node.error("retrieval_policy", format!("{of}: semantic {NO_EMBEDDER}"));
    } else {
        profile.retrieval = node.get("retrieval_policy");
    }
    profile
}
