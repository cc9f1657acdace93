//! `hooks.yaml`: programs that run at certain points.

use super::agent::{Hook, HookEvent, Problem, Severity};
use super::context::command;
use super::document::Document;
use super::legacy;
use crate::config::section::{Diagnostics, Section, describe_value};
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
    let mut out = Diagnostics::about("");
    for (key, value) in map {
        let at = vec![Step::Key(key.clone())];
        if key == COMPACTION && below.is_empty() {
            if !value.is_boolean() {
                let found = describe_value(value);
                out.error(at, format!("{key}: expected true or false, found {found}"));
            }
            continue;
        }
        let name = match legacy::hook_name(key) {
            Some(name) => {
                let mut path = below.to_vec();
                path.extend(at.clone());
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
            out.error(at, format!("unknown key '{key}'{hint}"));
            continue;
        };
        let items: Vec<(Vec<Step>, &Value)> = match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| ([at.clone(), vec![Step::Item(index)]].concat(), item))
                .collect(),
            single => vec![(at, single)],
        };
        for (at, item) in items {
            hooks.extend(hook(event, at, item, &mut out));
        }
    }
    document.report_all(below, out.into_list(), problems);
    hooks
}

fn hook(event: HookEvent, at: Vec<Step>, item: &Value, out: &mut Diagnostics) -> Option<Hook> {
    let Value::Object(map) = item else {
        let name = event.name();
        out.error(
            at,
            format!(
                "{name}: expected {{command: […]}}, found {}",
                describe_value(item)
            ),
        );
        return None;
    };
    let section = Section::new(map, at).within(event.name());
    section.refuse_unknown_keys(&["command", "timeout_ms"], out);
    let command = command(&section, out)?;
    let timeout = section.at_least_one("timeout_ms", out);
    Some(Hook {
        event,
        command,
        timeout: Duration::from_millis(timeout.unwrap_or(HOOK_TIMEOUT_MS)),
        sees_compactions: false,
    })
}
