//! `llm` in agent.yaml: which model is asked, and how it is reached.
//!
//! Unaware of API keys and of the environment.

use super::agent::Llm;
use super::context::{at_least_one, command};
use crate::config::environment::{APPENDED_PATH, has_appended_path};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::text::yaml::Step;
use serde_json::Value;
use std::time::Duration;

const LLM_KEYS: [&str; 5] = ["model", "base_url", "command", "timeout_ms", "max_retries"];

/// `key` is where it stands in the file.
pub(super) fn read_llm(section: &Section<'_>, key: &str, out: &mut Diagnostics) -> Option<Llm> {
    let at = vec![Step::Key(key.to_owned())];
    let Some(value) = section.map.get("llm") else {
        out.error(vec![], "llm: missing; it names the model: llm: {model: …}");
        return None;
    };
    let Value::Object(map) = value else {
        let found = describe_value(value);
        out.error(at, format!("{key}: expected a mapping, found {found}"));
        return None;
    };
    let section = Section::new(map, at.clone()).within("llm");
    let url = map.get("base_url").and_then(Value::as_str);
    if url.is_some_and(has_appended_path) {
        out.error(
            section.path_to("base_url"),
            format!("llm: base_url: {APPENDED_PATH}"),
        );
    }
    read_model(&section, at, out)
}

/// The settings of a model, wherever they stand.
pub(crate) fn read_model(llm: &Section<'_>, at: Vec<Step>, out: &mut Diagnostics) -> Option<Llm> {
    let map = llm.map;
    let command = map.contains_key("command").then(|| command(llm, out));
    let model = llm.read_text("model", out);
    if model.is_some_and(|model| model.trim().is_empty()) {
        out.error(llm.path_to("model"), "llm: model: it is empty; name one");
    }
    if model.is_none() && command.is_none() && !map.contains_key("model") {
        out.error(
            at,
            "llm: model: missing; name one, or make a program the model with command: […]",
        );
    }
    let base_url = llm.read_text("base_url", out);
    if let Some(url) = base_url
        && !url.starts_with("http://")
        && !url.starts_with("https://")
    {
        out.error(
            llm.path_to("base_url"),
            format!("llm: base_url: '{url}' does not begin with http:// or https://"),
        );
    }
    let reserved = [
        (
            "api_key",
            "keys belong in the environment, as DELTA_API_KEY",
        ),
        ("messages", "context.yaml defines what the model sees"),
        ("tools", "tools belong at the top of the file"),
    ];
    for (key, reason) in reserved {
        if map.contains_key(key) {
            out.error(llm.path_to(key), format!("llm: {key}: {reason}"));
        }
    }
    if map.get("stream") == Some(&Value::Bool(true)) {
        out.error(
            llm.path_to("stream"),
            "llm: stream: answers are read whole; leave it out",
        );
    }
    let parameters = map
        .iter()
        .filter(|(key, _)| !LLM_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Some(Llm {
        model: model.map(str::to_owned),
        parameters,
        base_url: base_url.map(str::to_owned),
        command: match command {
            Some(command) => Some(command?),
            None => None,
        },
        timeout: Duration::from_millis(at_least_one(llm, "timeout_ms", 600_000, out)),
        max_retries: llm.read_count("max_retries", out).unwrap_or(8).min(1000) as u32,
    })
}
