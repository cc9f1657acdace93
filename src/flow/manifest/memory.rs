//! `memory.yaml`: stores, and the profiles by which a node's context is chosen from them.
//!
//! Unaware of items: nothing is read from a store here.

use super::command::{self, NodeCommand, fill, parse_word};
use super::items::{read_id, read_mappings, read_texts};
use super::problem::Manifest;
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::definition::Word;
use crate::text::names::named_enum;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

named_enum! {
    /// One of the three stores.
    pub(crate) enum StoreName {
        Task = "task",
        Project = "project",
        Global = "global",
    }
}

/// Where a store keeps its items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StorePlace {
    /// In the run; they end with it.
    #[default]
    InMemory,
    /// In a file, one JSON object a line. A relative path is below the flow's directory.
    Jsonl(Word),
}

/// A store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreSettings {
    /// Where its items are.
    pub place: StorePlace,
    /// How many of them it keeps; none: all.
    pub max_items: Option<u64>,
}

impl StoreSettings {
    /// The file, if there is one. `cwd` is the workspace.
    pub(crate) fn path(&self, home: &Path, cwd: &Path) -> Option<PathBuf> {
        match &self.place {
            StorePlace::InMemory => None,
            StorePlace::Jsonl(word) => {
                let word = fill(std::slice::from_ref(word), home, cwd).pop()?;
                Some(home.join(word))
            }
        }
    }
}

named_enum! {
    /// How items are ordered before they are taken.
    #[derive(Default)]
    pub(crate) enum Retrieval {
        /// The newest first.
        #[default]
        Recency = "recency",
        /// The nearest in meaning first.
        Semantic = "semantic",
        /// By words and by time.
        Hybrid = "hybrid",
    }
}

/// A part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileSource {
    /// Which store.
    pub store: StoreName,
    /// Only items that have one of these; empty: all items.
    pub tags: Vec<String>,
}

/// How a context is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub id: String,
    /// How much is taken; none: everything.
    pub max_tokens: Option<u64>,
    /// In which order.
    pub retrieval: Retrieval,
    /// From where. Unless the file says otherwise: all that the task remembers.
    pub sources: Vec<ProfileSource>,
}

impl Profile {
    /// The one that a node gets with `context: global`.
    pub(crate) fn global() -> Self {
        Self {
            id: "global".to_owned(),
            max_tokens: Some(4000),
            retrieval: Retrieval::Recency,
            sources: vec![ProfileSource {
                store: StoreName::Global,
                tags: Vec::new(),
            }],
        }
    }
}

/// A program that is asked about texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HelperProgram {
    pub command: NodeCommand,
    /// How long it may take; none: as long as it likes.
    pub timeout: Option<Duration>,
}

/// How long a program may take that does not say.
const TIMEOUT_MS: u64 = 60_000;

/// All of `memory.yaml`. Without the file: three stores in memory, no profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    stores: [StoreSettings; 3],
    /// In the order of the file.
    pub profiles: Vec<Profile>,
    /// Makes vectors of texts.
    pub embedder: Option<HelperProgram>,
    /// Counts tokens.
    pub tokenizer: Option<HelperProgram>,
}

impl Memory {
    pub(crate) fn store(&self, which: StoreName) -> &StoreSettings {
        &self.stores[which as usize]
    }
}

/// Profiles cannot have these names: nodes use them for something else.
const RESERVED: [&str; 2] = ["global", "none"];

const KEYS: [&str; 6] = [
    "task_store",
    "project_store",
    "global_store",
    "context_profiles",
    "embedder",
    "tokenizer",
];

/// Reads the file. The keys may be at the top or below `memory:`.
pub(super) fn read_memory(manifest: &mut Manifest) -> Memory {
    let root = manifest.root.clone();
    let mut out = Diagnostics::about("");
    let (map, at) = match root.get("memory") {
        Some(Value::Object(inner)) => {
            Section::new(&root, vec![]).warn_of_unknown_keys(&["memory"], &mut out);
            (inner, vec![Step::Key("memory".to_owned())])
        }
        Some(Value::Null) if root.len() == 1 => return Memory::default(),
        Some(other) if !other.is_null() => {
            let at = vec![Step::Key("memory".to_owned())];
            let message = format!(
                "memory: expected a mapping, found {}",
                describe_value(other)
            );
            out.error(at, message);
            manifest.report(&[], out);
            return Memory::default();
        }
        _ => (&root, vec![]),
    };
    let node = Section::new(map, at);
    node.warn_of_unknown_keys(&KEYS, &mut out);
    let memory = Memory {
        stores: ["task_store", "project_store", "global_store"]
            .map(|key| read_store(&node, key, &mut out)),
        embedder: read_program(&node, "embedder", &mut out),
        tokenizer: read_program(&node, "tokenizer", &mut out),
        profiles: Vec::new(),
    };
    let profiles = read_mappings(&node, "context_profiles", &mut out);
    let has_embedder = map.get("embedder").is_some_and(|given| !given.is_null());
    manifest.report(&[], out);
    let mut all: Vec<Profile> = Vec::new();
    for (item, at) in profiles {
        let mut out = Diagnostics::about("");
        let profile = read_profile(item, at, (&all, has_embedder), &mut out);
        let ids: Vec<String> = profile.iter().map(|p| p.id.clone()).collect();
        manifest.report(&ids, out);
        all.extend(profile);
    }
    Memory {
        profiles: all,
        ..memory
    }
}

fn read_store(node: &Section, key: &str, out: &mut Diagnostics) -> StoreSettings {
    if node.map.get(key).is_none_or(Value::is_null) {
        return StoreSettings::default();
    }
    let Some(map) = node.read_mapping(key, out) else {
        return StoreSettings::default();
    };
    let node = Section::new(map, node.path_to(key)).within(key);
    node.warn_of_unknown_keys(&["type", "file_path", "max_items"], out);
    let types = [("jsonl", true), ("in_memory", false)];
    let is_file = node.read_choice("type", &types, out);
    let path = node.read_text("file_path", out);
    if !map.contains_key("type") {
        out.error(
            node.path_to(""),
            format!("{key}: has no type; needs jsonl or in_memory"),
        );
    }
    let place = match (is_file, path) {
        (Some(true), Some(path)) if !path.is_empty() => StorePlace::Jsonl(parse_word(path)),
        (Some(true), _) => {
            let message = format!("{key}: type: jsonl needs file_path");
            out.error(node.path_to("file_path"), message);
            StorePlace::InMemory
        }
        (Some(false), Some(_)) => {
            let message = format!("{key}: file_path has no meaning with type: in_memory");
            out.warn(node.path_to("file_path"), message);
            StorePlace::InMemory
        }
        _ => StorePlace::InMemory,
    };
    StoreSettings {
        place,
        max_items: node.read_count("max_items", out),
    }
}

fn read_program(node: &Section, key: &str, out: &mut Diagnostics) -> Option<HelperProgram> {
    let map = node.read_mapping(key, out)?;
    let at = node.path_to(key);
    let node = Section::new(map, at.clone()).within(key);
    node.warn_of_unknown_keys(&["command", "exec", "shell", "timeout_ms"], out);
    let timeout = node.read_count("timeout_ms", out).unwrap_or(TIMEOUT_MS);
    let read = command::read_needed_command(map, &at, &format!("{key}: "), out);
    Some(HelperProgram {
        command: read?,
        timeout: (timeout > 0).then(|| Duration::from_millis(timeout)),
    })
}

fn read_profile(
    map: &Map<String, Value>,
    at: Vec<Step>,
    (all, has_embedder): (&[Profile], bool),
    out: &mut Diagnostics,
) -> Option<Profile> {
    let node = Section::new(map, at);
    let id = read_id(&node, "profile", out)?;
    let of = format!("context profile '{id}'");
    let node = node.of(&of);
    node.warn_of_unknown_keys(&["id", "max_tokens", "retrieval_policy", "sources"], out);
    if RESERVED.contains(&id.as_str()) {
        let message = format!("{of}: '{id}' means something else; rename it");
        out.error(node.path_to("id"), message);
    } else if all.iter().any(|other| other.id == id) {
        out.error(
            node.path_to("id"),
            format!("{of} is defined twice; remove one"),
        );
    }
    let mut sources = Vec::new();
    for (map, at) in read_mappings(&node, "sources", out) {
        let missing = at.clone();
        let node = Section::new(map, at).of(&format!("a source of {of}"));
        node.warn_of_unknown_keys(&["store", "tags"], out);
        if !map.contains_key("store") {
            let message = format!("{of}: a source has no store; needs task, project or global");
            out.error(missing, message);
        }
        let tags = read_texts(&node, "tags", out).unwrap_or_default();
        if let Some(store) = node.read_choice("store", &StoreName::ALL, out) {
            sources.push(ProfileSource { store, tags });
        }
    }
    if map.get("sources").is_none_or(Value::is_null) {
        sources.push(ProfileSource {
            store: StoreName::Task,
            tags: Vec::new(),
        });
    }
    let retrieval = node.read_choice("retrieval_policy", &Retrieval::ALL, out);
    if retrieval == Some(Retrieval::Semantic) && !has_embedder {
        let message = format!("{of}: semantic needs an embedder; define one, or use hybrid");
        out.error(node.path_to("retrieval_policy"), message);
    }
    Some(Profile {
        max_tokens: node.read_count("max_tokens", out),
        retrieval: retrieval.unwrap_or_default(),
        sources,
        id,
    })
}
