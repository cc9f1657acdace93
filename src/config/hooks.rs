//! `hooks.yaml`: programs that run at certain points.

use super::agent::{Hook, HookEvent, Problem, Severity};
use super::context::command;
use super::document::Document;
use super::legacy;
use crate::config::section::{Section, describe_value};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::time::Duration;

/// A hook's time limit, unless it says otherwise.
const HOOK_TIMEOUT_MS: u64 = 30_000;

/// The key of a file of hooks by which they also see requests for summaries.
const COMPACTION: &str = "compaction";

/// True if hooks also see requests for summaries.
pub(crate) fn sees_compactions(document: &Document) -> bool {
    document.root.get(COMPACTION) == Some(&Value::Bool(true))
}

/// Reads the hooks in a mapping from moments to commands; `below` is its place in the file.
pub(crate) fn load(
    document: &Document,
    map: &Map<String, Value>,
    below: &[Step],
    problems: &mut Vec<Problem>,
) -> Vec<Hook> {
    let mut hooks = Vec::new();
    let section = Section::new(map, vec![]);
    for (key, value) in map {
        let at = vec![Step::Key(key.clone())];
        if key == COMPACTION && below.is_empty() {
            if !value.is_boolean() {
                let found = describe_value(value);
                section.error_at(at, format!("{key}: expected true or false, found {found}"));
            }
            continue;
        }
        let name = match legacy::hook_name(key) {
            Some(name) => {
                let path = [below, &at[..]].concat();
                let message = format!("{key} is called {name} now");
                problems.push(document.problem_at(Severity::Deprecation, &path, message));
                name
            }
            None => key,
        };
        let Some(event) = HookEvent::parse(name) else {
            let meant = nearest(key, HookEvent::ALL.into_iter().map(|(name, _)| name));
            let hint = meant.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            // A misspelt guard is no guard.
            section.error_at(at, format!("unknown key '{key}'{hint}"));
            continue;
        };
        let items: Vec<(Vec<Step>, &Value)> = match value {
            Value::Array(items) => {
                let place = |index| [at.clone(), vec![Step::Item(index)]].concat();
                let numbered = items.iter().enumerate();
                numbered.map(|(index, item)| (place(index), item)).collect()
            }
            single => vec![(at, single)],
        };
        for (at, item) in items {
            hooks.extend(hook(&section, event, at, item));
        }
    }
    document.report_all(below, section.take_diagnostics(), problems);
    hooks
}

fn hook(file: &Section, event: HookEvent, at: Vec<Step>, item: &Value) -> Option<Hook> {
    let Value::Object(map) = item else {
        let (name, found) = (event.name(), describe_value(item));
        let message = format!("{name}: expected {{command: […]}}, found {found}");
        file.error_at(at, message);
        return None;
    };
    let section = file.inner(map, at).within(event.name());
    section.refuse_unknown_keys(&["command", "timeout_ms"]);
    let command = command(&section)?;
    let timeout = section.at_least_one("timeout_ms");
    Some(Hook {
        event,
        command,
        timeout: Duration::from_millis(timeout.unwrap_or(HOOK_TIMEOUT_MS)),
        sees_compactions: false,
    })
}
