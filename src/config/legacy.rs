//! Agents written for older engines. Nothing else knows these forms.

use super::document::Document;
use super::load::Found;
use super::{Problem, Severity};
use crate::yaml::Step;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The agent's main file: `agent.yaml`, or `config.yaml` as it was called before 1.9.
#[must_use]
pub fn main_file(found: &Found, problems: &mut Vec<Problem>) -> PathBuf {
    let (new, old) = (
        found.home.join("agent.yaml"),
        found.home.join("config.yaml"),
    );
    let mut warn = |message: &str| {
        problems.push(Problem {
            severity: Severity::Deprecation,
            file: found.shown("config.yaml"),
            line: None,
            column: None,
            message: message.to_owned(),
        });
    };
    match (new.exists(), old.exists()) {
        (true, true) => warn("passed over, because agent.yaml is there; remove it"),
        (false, true) => {
            warn("the file is called agent.yaml now; rename it");
            return old;
        }
        _ => {}
    }
    new
}

/// Puts `llm_config: {model_name: …}` in today's form.
pub fn rewrite_llm(document: &mut Document, problems: &mut Vec<Problem>) {
    let Some(Value::Object(old)) = document.root.get("llm_config") else {
        return;
    };
    let mut new = Map::new();
    for (key, value) in old {
        let key = if key == "model_name" { "model" } else { key };
        new.insert(key.to_owned(), value.clone());
    }
    let message = "llm_config is called llm now, and its model_name model";
    problems.push(document.problem(
        Severity::Deprecation,
        &[Step::Key("llm_config".into())],
        message,
    ));
    document.root.shift_remove("llm_config");
    document.root.entry("llm").or_insert(Value::Object(new));
}

/// Takes `lifecycle_hooks` out of the main file.
pub fn take_hooks(
    document: &mut Document,
    problems: &mut Vec<Problem>,
) -> Option<Map<String, Value>> {
    let hooks = document.root.get("lifecycle_hooks")?.as_object()?.clone();
    let message = "lifecycle_hooks belong into hooks.yaml now, without this key around them";
    problems.push(document.problem(
        Severity::Deprecation,
        &[Step::Key("lifecycle_hooks".into())],
        message,
    ));
    document.root.shift_remove("lifecycle_hooks");
    Some(hooks)
}

/// Today's name of a hook.
#[must_use]
pub fn hook_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "pre_llm_req" => "pre_llm_request",
        "post_llm_resp" => "post_llm_response",
        "pre_tool_exec" => "pre_tool_execution",
        "post_tool_exec" => "post_tool_execution",
        _ => return None,
    })
}
