//! One node of `workflow.yaml`: what it says, each key by itself.
//!
//! Unaware of the edges and of the other files: names are looked up later.

use super::command::{self, parse_word};
use super::defaults::{Defaults, timeout_of};
use super::file_pattern::FilePattern;
use super::items::{begin_item, key_path, read_limit, read_mappings, read_texts};
use super::memory::StoreName;
use super::problem::{Code, Manifest};
use super::waiting::{read_later_rule, read_wait};
use super::{ContextChoice, NodeKind, NodeSettings, PayloadForm, ResumePolicy};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::definition::Word;
use crate::flow::graph::{MergeFailureMode, PayloadRule, Role, WinnerRule};
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::time::Duration;

/// The keys of a node.
pub const KEYS: [&str; 34] = [
    "id",
    "name",
    "kind",
    "role",
    "context",
    "schema_in",
    "schema_out",
    "tools",
    "continue_on_failure",
    "fail_on_failure",
    "agent_id",
    "command",
    "exec",
    "shell",
    "flow",
    "later",
    "wait",
    "timeout_ms",
    "retries",
    "limit",
    "cache",
    "cache_files",
    "on_resume",
    "input",
    "output",
    "outputs",
    "remember",
    "default_start",
    "always_fail",
    "merge_failure_mode",
    "winner",
    "payload",
    "partial_exit",
    "description",
];

/// How long a node may take unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A place in other memory than the task's that a node's output is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remember {
    /// Which store.
    pub store: StoreName,
    pub tags: Vec<String>,
    /// JSON pointer to the part of the output; empty: all of it.
    pub pointer: String,
}

/// A node as it was written. A None was not given, or is wrong.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a key of the manifest"
)]
pub(super) struct NodeDraft {
    /// Place in the document.
    pub at: Vec<Step>,
    pub id: String,
    pub role: Option<Role>,
    /// It must be derived.
    pub lacks_role: bool,
    pub kind: Option<NodeKind>,
    pub context: Option<String>,
    /// It is derived.
    pub lacks_context: bool,
    pub schema_in: Option<String>,
    pub schema_out: Option<String>,
    pub tools: Option<Vec<String>>,
    pub agent_id: Option<String>,
    /// The directory of a flow, as it is written.
    pub flow: Option<String>,
    /// Which of `command:`, `exec:`, `shell:` and `flow:` it has, right or wrong.
    pub form: Option<&'static str>,
    /// Without the kind and what is looked up in other files.
    pub settings: NodeSettings,
    pub continue_on_failure: bool,
    pub default_start: bool,
    pub always_fail: bool,
    pub merge_failure_mode: MergeFailureMode,
    /// Keys that were not written, with what was derived for them.
    pub derived: Vec<(&'static str, String)>,
    pub winner: Option<WinnerRule>,
    pub payload: Option<PayloadRule>,
}

/// Reads an item of `nodes:`. None if it has no id that it could be known by.
pub(super) fn read_node(
    manifest: &mut Manifest,
    item: &Value,
    at: Vec<Step>,
    defaults: &Defaults,
) -> Option<NodeDraft> {
    let mut out = Diagnostics::about("");
    let Some(map) = item.as_object() else {
        out.error(
            at,
            format!("nodes: expected a mapping, found {}", describe_value(item)),
        );
        manifest.report(&[], out);
        return None;
    };
    let node = Section::new(map, at.clone());
    let (id, mut out) = begin_item(manifest, "node", &node, std::iter::empty())?;
    node.warn_of_unknown_keys(&KEYS, &mut out);
    let mut draft = read_draft(id, &node, at, &mut out);
    manifest.report(std::slice::from_ref(&draft.id), out);
    check_words(manifest, &draft, map);
    derive_own(&mut draft, map, defaults);
    Some(draft)
}

/// Derives what neither the edges nor another file decide.
fn derive_own(draft: &mut NodeDraft, map: &Map<String, Value>, defaults: &Defaults) {
    if is_absent(map, "kind") {
        let kind = match is_absent(map, "agent_id") {
            true => NodeKind::Deterministic,
            false => NodeKind::Agent,
        };
        draft.kind = Some(kind);
        draft.derived.push(("kind", kind.name().to_owned()));
    }
    if let Some(timeout) = defaults.timeout
        && !map.contains_key("timeout_ms")
    {
        draft.settings.timeout = timeout;
        let ms = timeout.unwrap_or_default().as_millis();
        if draft.form.is_some() || draft.agent_id.is_some() {
            draft.derived.push(("timeout_ms", ms.to_string()));
        }
    }
}

fn is_absent(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_none_or(Value::is_null)
}

fn read_draft(id: String, node: &Section, at: Vec<Step>, out: &mut Diagnostics) -> NodeDraft {
    let text = |key: &str, out: &mut Diagnostics| node.read_text(key, out).map(str::to_owned);
    let word = |key: &str| node.map.get(key).and_then(Value::as_str);
    text("description", out);
    NodeDraft {
        role: word("role").and_then(Role::parse),
        lacks_role: is_absent(node.map, "role"),
        kind: word("kind").and_then(NodeKind::parse),
        context: read_context(node, out),
        lacks_context: is_absent(node.map, "context"),
        schema_in: text("schema_in", out),
        schema_out: text("schema_out", out),
        tools: read_texts(node, "tools", out),
        agent_id: text("agent_id", out),
        flow: text("flow", out),
        form: command::FORMS
            .into_iter()
            .chain(["flow"])
            .find(|form| node.map.contains_key(*form)),
        settings: read_settings(&id, node, &at, out),
        continue_on_failure: read_continues(node, out),
        default_start: node.read_flag("default_start", out).unwrap_or(false),
        always_fail: node.read_flag("always_fail", out).unwrap_or(false),
        merge_failure_mode: node
            .read_choice("merge_failure_mode", &MergeFailureMode::ALL, out)
            .unwrap_or_default(),
        derived: Vec::new(),
        winner: node.read_choice("winner", &WinnerRule::ALL, out),
        payload: node.read_choice("payload", &PayloadRule::ALL, out),
        at,
        id,
    }
}

fn read_settings(id: &str, node: &Section, at: &[Step], out: &mut Diagnostics) -> NodeSettings {
    NodeSettings {
        name: node.read_text("name", out).unwrap_or(id).to_owned(),
        kind: NodeKind::Deterministic,
        context: ContextChoice::None,
        schema_in: None,
        schema_out: None,
        tools: None,
        agent: None,
        command: command::read_command(node.map, at, out),
        later: read_later_rule(node, at, out),
        wait: read_wait(node, out),
        flow: None,
        timeout: match node.read_count("timeout_ms", out) {
            None => Some(TIMEOUT),
            Some(ms) => timeout_of(ms),
        },
        retries: node
            .read_count("retries", out)
            .unwrap_or(0)
            .min(u32::MAX.into()) as u32,
        limit: read_limit(node, "limit", out),
        partial_exit: node.read_exit_code("partial_exit", out),
        cache: node.read_flag("cache", out).unwrap_or(false),
        cache_files: read_cache_files(node, out),
        on_resume: node
            .read_choice("on_resume", &ResumePolicy::ALL, out)
            .unwrap_or_default(),
        input: node
            .read_choice("input", &PayloadForm::ALL, out)
            .unwrap_or_default(),
        output: node
            .read_choice("output", &PayloadForm::ALL, out)
            .unwrap_or_default(),
        remember: read_remember(node, out),
        outputs: read_outputs(node, out),
    }
}

/// In YAML, `context: null` means the same.
fn read_context(node: &Section, out: &mut Diagnostics) -> Option<String> {
    match node.map.get("context") {
        Some(Value::Null) => None,
        _ => node.read_text("context", out).map(str::to_owned),
    }
}

fn read_continues(node: &Section, out: &mut Diagnostics) -> bool {
    let goes_on = node.read_flag("continue_on_failure", out);
    let fails = node.read_flag("fail_on_failure", out);
    if let (Some(goes_on), Some(fails)) = (goes_on, fails)
        && goes_on == fails
    {
        let message = format!(
            "continue_on_failure: {goes_on} and fail_on_failure: {fails} contradict each other; \
             remove one"
        );
        out.error(node.path_to("fail_on_failure"), message);
    }
    goes_on.unwrap_or_else(|| fails == Some(false))
}

fn read_cache_files(node: &Section, out: &mut Diagnostics) -> Vec<Word> {
    let files = node.read_texts("cache_files", out);
    if files.is_some() && node.map.get("cache") != Some(&Value::Bool(true)) {
        let message = "cache_files has no meaning without cache: true";
        out.warn(node.path_to("cache_files"), message);
    }
    let files = files.unwrap_or_default();
    let leads_out = |text: &&&str| text.starts_with('/') || text.split('/').any(|it| it == "..");
    for text in files.iter().filter(leads_out) {
        let message = format!(
            "cache_files: {text:?} leads elsewhere; name files below the flow's directory, or after ${{CWD}}"
        );
        out.error(node.path_to("cache_files"), message);
    }
    files.into_iter().map(parse_word).collect()
}

fn read_outputs(node: &Section, out: &mut Diagnostics) -> Vec<FilePattern> {
    let mut patterns = Vec::new();
    let items = node.read_list("outputs", out).into_iter().flatten();
    for (index, item) in items.enumerate() {
        let mut at = node.path_to("outputs");
        at.push(Step::Item(index));
        let (text, required) = match item {
            Value::String(text) => (Some(&**text), false),
            Value::Object(map) => {
                let entry = Section::new(map, at.clone()).within("outputs");
                entry.warn_of_unknown_keys(&["path", "required"], out);
                let required = entry.read_flag("required", out).unwrap_or(false);
                (entry.read_text("path", out), required)
            }
            _ => (None, false),
        };
        match text.map(FilePattern::parse) {
            Some(Ok(pattern)) => patterns.push(FilePattern {
                required,
                ..pattern
            }),
            Some(Err(why)) => {
                out.error(at, format!("outputs: {:?} {why}", text.unwrap_or_default()));
            }
            None => {
                let found = describe_value(item);
                out.error(at, format!("outputs: expected a pattern or {{path: PATTERN, required: true}}, found {found}"));
            }
        }
    }
    patterns
}

fn read_remember(node: &Section, out: &mut Diagnostics) -> Vec<Remember> {
    let mut all = Vec::new();
    for (map, at) in read_mappings(node, "remember", out) {
        let node = Section::new(map, at.clone()).within("remember");
        node.warn_of_unknown_keys(&["store", "tags", "pointer"], out);
        let stores = [StoreName::ALL[1], StoreName::ALL[2]];
        if !map.contains_key("store") {
            out.error(at, "remember: has no store; needs project or global");
        }
        let pointer = node.read_text("pointer", out).unwrap_or_default();
        let escapes_well = pointer
            .split('~')
            .skip(1)
            .all(|rest| rest.starts_with(['0', '1']));
        if !escapes_well {
            let message = format!(
                "remember: pointer {pointer:?} is not a JSON pointer; ~ must be followed by 0, for ~ itself, or 1, for /"
            );
            out.error(node.path_to("pointer"), message);
        }
        if !pointer.is_empty() && !pointer.starts_with('/') {
            let message =
                format!("remember: pointer {pointer:?} is not a JSON pointer; begin it with /");
            out.error(node.path_to("pointer"), message);
        }
        let tags = read_texts(&node, "tags", out).unwrap_or_default();
        if let Some(store) = node.read_choice("store", &stores, out) {
            all.push(Remember {
                store,
                tags,
                pointer: pointer.to_owned(),
            });
        }
    }
    all
}

/// A role and a kind have codes of their own.
fn check_words(manifest: &mut Manifest, draft: &NodeDraft, map: &Map<String, Value>) {
    let roles = Role::ALL.map(|(word, _)| word).join(", ");
    let (is_role, is_kind) = (draft.role.is_some(), draft.kind.is_some());
    for (is_good, code, key, wanted) in [
        (is_role, Code::BadRole, "role", format!("one of {roles}")),
        (
            is_kind,
            Code::BadKind,
            "kind",
            "agent or deterministic".to_owned(),
        ),
    ] {
        let Some(value) = map.get(key).filter(|value| !is_good && !value.is_null()) else {
            continue;
        };
        let (id, found) = (&draft.id, describe_value(value));
        let message = format!("node \"{id}\": {key} cannot be {found}; needs {wanted}");
        manifest.add(code, vec![id.clone()], &key_path(&draft.at, key), message);
    }
}
