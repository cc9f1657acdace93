//! Agents written for older engines. Nothing else knows these forms.

use super::agent::{Problem, Severity};
use super::document::{Document, error_in};
use super::sources::AgentSources;
use crate::config::section::describe_value;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The keys of hooks in some agents; the first one also in the main file.
pub(crate) const OLD_HOOKS: [&str; 2] = ["lifecycle_hooks", "hooks"];

/// The agent's main file: `agent.yaml`, or `config.yaml` as it was called before 1.9.
pub(crate) fn main_file(sources: &AgentSources, problems: &mut Vec<Problem>) -> PathBuf {
    let (new, old) = (
        sources.home.join("agent.yaml"),
        sources.home.join("config.yaml"),
    );
    let mut warn = |message: &str| {
        problems.push(Problem {
            severity: Severity::Deprecation,
            ..error_in(&sources.shown_path("config.yaml"), message)
        });
    };
    match (new.exists(), old.exists()) {
        (true, true) => warn("ignored, because agent.yaml exists; remove it"),
        (false, true) => {
            warn("the file is called agent.yaml now; rename it");
            return old;
        }
        _ => {}
    }
    new
}

/// Puts `llm_config: {model_name: …}` in today's form. Returns the key that `llm` is written under.
pub(crate) fn rewrite_llm(document: &mut Document, problems: &mut Vec<Problem>) -> &'static str {
    const OLD: &str = "llm_config";
    let Some(old) = document.root.shift_remove(OLD) else {
        return "llm";
    };
    let at = [Step::Key(OLD.to_owned())];
    let mut say = |severity, message: &str| {
        problems.push(document.problem_at(severity, &at, message));
    };
    if document.root.contains_key("llm") {
        let message = "llm_config is ignored, because llm exists; remove it";
        say(Severity::Deprecation, message);
        return "llm";
    }
    let message = "llm_config is called llm now, and its model_name model";
    say(Severity::Deprecation, message);
    let new = match old {
        Value::Object(old) => {
            let today = |key: String| match key.as_str() {
                "model_name" => "model".to_owned(),
                _ => key,
            };
            old.into_iter()
                .map(|(key, value)| (today(key), value))
                .collect()
        }
        other => other,
    };
    document.root.insert("llm".to_owned(), new);
    OLD
}

/// Takes the hooks under `key` out of a file; `message` says where they belong.
pub(crate) fn take_hooks(
    document: &mut Document,
    key: &str,
    message: &str,
    problems: &mut Vec<Problem>,
) -> Option<Map<String, Value>> {
    let hooks = document.root.shift_remove(key)?;
    let at = [Step::Key(key.to_owned())];
    problems.push(document.problem_at(Severity::Deprecation, &at, message));
    match hooks {
        Value::Object(hooks) => Some(hooks),
        other => {
            let found = describe_value(&other);
            let message = format!("{key}: expected a mapping, found {found}");
            problems.push(document.problem_at(Severity::Error, &at, message));
            None
        }
    }
}

/// Today's name of a hook.
pub(crate) fn hook_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "pre_llm_req" => "pre_llm_request",
        "post_llm_resp" => "post_llm_response",
        "pre_tool_exec" => "pre_tool_execution",
        "post_tool_exec" => "post_tool_execution",
        _ => return None,
    })
}
