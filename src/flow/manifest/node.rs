//! Nodes and edges of `workflow.yaml`: their keys, each by itself.
//!
//! Unaware of the other files: names are looked up later.

use super::command::{FORMS, NodeCommand, parse_word};
use super::fields::{FromKey, fields, named, or_null, row};
use super::file_pattern::FilePattern;
use super::items::{Place, read_item};
use super::memory::StoreName;
use super::problem::{Code, Manifest};
use super::waiting::WaitTime;
use super::{NodeKind, PayloadForm, ResumePolicy};
use crate::config::keys::{Key, count};
use crate::config::section::{Section, describe_value};
use crate::config::tool::definition::{LaterRule, Word};
use crate::flow::graph::{MergeFailureMode, PayloadRule, Role, WinnerRule};
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

fields! {
    /// A node, as it was written, and what was derived for it.
    struct NodeSettings {
        /// `none`, `global` or the id of a profile.
        context: Option<String> = or_null("context"),
        /// The name of a schema; see also [`Flow::schema_out`](super::Flow::schema_out).
        schema_in: Option<String>,
        schema_out: Option<String>,
        /// Names of tools; see also [`Flow::tools_of`](super::Flow::tools_of).
        tools: Option<Vec<String>>,
        /// See also [`Flow::agent`](super::Flow::agent).
        agent_id: Option<String>,
        /// The directory of the flow that it is, as it is written.
        flow_dir: Option<String> = named("flow"),
        name: Option<String>,
        /// None on a deterministic node: its role's default operation.
        command: Option<NodeCommand>,
        /// For a command that may begin something that ends later.
        later: Option<LaterRule>,
        /// The time for which it waits, running nothing.
        wait: Option<WaitTime>,
        /// The time limit of one attempt; None: no limit.
        timeout: Option<Duration> = row(count("timeout_ms", 0, 600_000, "")),
        /// The number of times that a failure is tried again inside the node.
        retries: u32,
        /// The most programs of it that may run at once; None: no limit.
        limit: Option<usize>,
        /// The exit code of its program by which the output counts in part; never 0.
        partial_exit: Option<i32>,
        /// The output is kept and replayed.
        cache: bool,
        /// An agent is always resumed.
        on_resume: ResumePolicy,
        /// The form in which a command gets its payload.
        input: PayloadForm,
        /// The form of a command's standard output.
        output: PayloadForm,
        remember: Vec<Remember>,
        /// The files that it makes, below its task's directory.
        outputs: Vec<FilePattern>,
        default_start: bool,
        always_fail: bool,
        merge_failure_mode: MergeFailureMode,
        winner: Option<WinnerRule>,
        payload: Option<PayloadRule>,
    }
    beside {
        id: String,
        /// Place in the document.
        at: Vec<Step>,
        /// There, if nothing is wrong.
        role: Option<Role>,
        /// There, if nothing is wrong.
        kind: Option<NodeKind>,
        /// The role must be derived.
        lacks_role: bool,
        lacks_context: bool,
        /// The one of `command:`, `exec:`, `shell:` and `flow:` that it has, right or wrong.
        form: Option<&'static str>,
        /// The directory of the flow that it is, absolute.
        flow: Option<PathBuf>,
        continue_on_failure: bool,
        /// Files whose content belongs to the key of the cache.
        cache_files: Vec<Word>,
        /// The keys that were not written, with what was derived for them.
        derived: Vec<(&'static str, String)>,
    }
    for people { "description" }
    by hand { "id", "role", "kind", "continue_on_failure", "fail_on_failure", "exec", "shell", "cache_files" }
}

impl NodeSettings {
    pub(super) fn place(&self) -> Place<'_> {
        Place {
            kind: "node",
            id: &self.id,
            at: &self.at,
        }
    }

    /// The name that people see.
    pub(crate) fn name(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.id)
    }

    /// Otherwise the role's default operation is all that happens.
    pub(crate) fn runs(&self) -> bool {
        self.command.is_some() || self.kind == Some(NodeKind::Agent) || self.flow.is_some()
    }
}

fields! {
    /// `defaults:` of a workflow: the keys of nodes that do not say.
    #[derive(Default)]
    struct Defaults {
        context: Option<String>,
        timeout_ms: Option<u64>,
    }
}

impl FromKey for Defaults {
    fn from_key(node: &Section, key: &Key) -> Self {
        match node.read_section(key.name) {
            Some(section) => Self::read_keys(&section),
            None => Self::default(),
        }
    }
}

/// An edge as it was written.
#[derive(Clone, Debug)]
pub(crate) struct EdgeDraft {
    /// The ids of the nodes where it begins and ends.
    pub ids: [Option<String>; 2],
    /// The nodes, if there are nodes of these ids.
    pub ends: [Option<usize>; 2],
    pub label: Option<String>,
    /// The places of its ends in the document.
    pub at: [Vec<Step>; 2],
}

/// A place in other memory than the task's that a node's output is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remember {
    pub store: StoreName,
    pub tags: Vec<String>,
    /// JSON pointer to the part of the output; empty: all of it.
    pub pointer: String,
}

/// Reads an item of `nodes:`. None if it has no id that it could be known by.
pub(super) fn read_node(
    manifest: &mut Manifest,
    section: &Section,
    defaults: &Defaults,
) -> Option<NodeSettings> {
    let read = |id, node: &Section| read_settings(id, node, defaults);
    let node = read_item(manifest, "node", section, read)?;
    // A role and a kind have codes of their own.
    let roles = Role::ALL.map(|(word, _)| word).join(", ");
    for (key, is_good, code, wanted) in [
        (
            "role",
            node.role.is_some(),
            Code::BadRole,
            format!("one of {roles}"),
        ),
        (
            "kind",
            node.kind.is_some(),
            Code::BadKind,
            "agent or deterministic".to_owned(),
        ),
    ] {
        if let Some(value) = section.map.get(key).filter(|it| !is_good && !it.is_null()) {
            let found = describe_value(value);
            let message = format!("{key} cannot be {found}; needs {wanted}");
            manifest.add_to(node.place(), key, Some(code), message);
        }
    }
    Some(node)
}

/// Reads the keys, and derives what neither the edges nor another file decide.
fn read_settings(id: String, node: &Section, defaults: &Defaults) -> NodeSettings {
    let mut read = NodeSettings::read_keys(node);
    read.id = id;
    read.at = node.path_to("");
    let word = |key: &str| node.map.get(key).and_then(Value::as_str);
    read.role = word("role").and_then(Role::parse);
    read.kind = word("kind").and_then(NodeKind::parse);
    read.lacks_role = node.value("role").is_none();
    read.lacks_context = node.value("context").is_none();
    let mut forms = FORMS.into_iter().chain(["flow"]);
    read.form = forms.find(|form| node.has(form));
    read.continue_on_failure = read_continues(node);
    read.cache_files = read_cache_files(node);
    if node.value("kind").is_none() {
        let kind = if node.value("agent_id").is_none() {
            NodeKind::Deterministic
        } else {
            NodeKind::Agent
        };
        read.kind = Some(kind);
        read.derived.push(("kind", kind.name().to_owned()));
    }
    if let Some(ms) = defaults.timeout_ms
        && !node.has("timeout_ms")
    {
        read.timeout = Some(Duration::from_millis(ms)).filter(|time| !time.is_zero());
        if read.form.is_some() || read.agent_id.is_some() {
            read.derived.push(("timeout_ms", ms.to_string()));
        }
    }
    read
}

fn read_continues(node: &Section) -> bool {
    let goes_on: Option<bool> = node.get("continue_on_failure");
    let fails: Option<bool> = node.get("fail_on_failure");
    if let (Some(goes_on), Some(fails)) = (goes_on, fails)
        && goes_on == fails
    {
        let message = format!(
            "continue_on_failure: {goes_on} and fail_on_failure: {fails} contradict each other; \
             remove one"
        );
        node.error("fail_on_failure", message);
    }
    goes_on.unwrap_or(fails == Some(false))
}

fn read_cache_files(node: &Section) -> Vec<Word> {
    let Some(files): Option<Vec<String>> = node.get("cache_files") else {
        return Vec::new();
    };
    if node.value("cache") != Some(&Value::Bool(true)) {
        node.warn(
            "cache_files",
            "cache_files has no meaning without cache: true",
        );
    }
    for text in &files {
        if text.starts_with('/') || text.split('/').any(|it| it == "..") {
            let message = format!(
                "cache_files: {text:?} leads elsewhere; name files below the flow's directory, or after ${{CWD}}"
            );
            node.error("cache_files", message);
        }
    }
    files.iter().map(|text| parse_word(text)).collect()
}

impl FromKey for Vec<FilePattern> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let mut patterns = Self::new();
        let items = node.read_list(key.name);
        for (index, item) in items.into_iter().flatten().enumerate() {
            let at = node.path_to_item(key.name, index);
            let (text, required) = match item {
                Value::String(text) => (Some(&**text), false),
                Value::Object(map) => {
                    let entry = node.inner(map, at.clone()).within("outputs");
                    entry.warn_of_unknown_keys(&["path", "required"]);
                    let required = entry.get("required");
                    (entry.read_text("path"), required)
                }
                _ => (None, false),
            };
            let Some(text) = text else {
                let found = describe_value(item);
                let message = format!(
                    "outputs: expected a pattern or {{path: PATTERN, required: true}}, found {found}"
                );
                node.error_at(at, message);
                continue;
            };
            match FilePattern::parse(text) {
                Ok(pattern) => patterns.push(FilePattern {
                    required,
                    ..pattern
                }),
                Err(why) => node.error_at(at, format!("outputs: {text:?} {why}")),
            }
        }
        patterns
    }
}

impl FromKey for Vec<Remember> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let mut all = Self::new();
        for plain in node.mappings(key.name) {
            let item = plain.within("remember");
            item.warn_of_unknown_keys(&["store", "tags", "pointer"]);
            if !item.has("store") {
                item.error("", "remember: has no store; needs project or global");
            }
            let pointer = item.read_text("pointer").unwrap_or("");
            let mut escapes = pointer.split('~').skip(1);
            if !escapes.all(|rest| rest.starts_with(['0', '1'])) {
                let message = format!(
                    "remember: pointer {pointer:?} is not a JSON pointer; ~ must be followed by 0, for ~ itself, or 1, for /"
                );
                item.error("pointer", message);
            }
            if !pointer.is_empty() && !pointer.starts_with('/') {
                let message =
                    format!("remember: pointer {pointer:?} is not a JSON pointer; begin it with /");
                item.error("pointer", message);
            }
            let tags = item.get("tags");
            let [_, stores @ ..] = StoreName::ALL;
            let store = item.read_choice("store", &stores);
            all.extend(store.map(|store| Remember {
                store,
                tags,
                pointer: pointer.to_owned(),
            }));
        }
        all
    }
}
