//! The parts of a recorded run that one line of a journal gives.
//!
//! Pure. Unaware of the lines before it.

use crate::export::recorded::{ExportedCall, RecordedAgent, RunEnd};
use crate::record::event::recorded::{EngineEnd, Thought};
use crate::record::event::{Raw, StartConfig};
use crate::record::metadata::Status;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) fn agent_of(config: &StartConfig<'_>, home: Option<String>) -> RecordedAgent {
    let text = |value: Raw<'_>| match value.read()? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    RecordedAgent {
        name: text(config.get("name")).unwrap_or_else(|| "agent".to_owned()),
        version: text(config.get("version")),
        home,
        model: text(config.llm().get("model")),
        llm: config.get("llm").read_or_default(),
        pricing: config.get("pricing").read(),
    }
}

pub(super) fn end_of(end: &EngineEnd<'_>) -> RunEnd {
    let status = end.status.get().unwrap_or(Status::Failed.name());
    RunEnd {
        status: status.to_owned(),
        stop_reason: end.stop_reason.owned(),
        exit_code: end.exit_code,
        error: end.error.owned(),
    }
}

/// The text in which a server has sent the model's reasoning.
pub(super) fn reasoning_of(thought: &Thought<'_>) -> Option<String> {
    let texts = [
        thought.reasoning_content,
        thought.reasoning,
        thought.thinking,
    ];
    texts.into_iter().find_map(Raw::read)
}

pub(super) fn calls_of(thought: &Thought<'_>) -> Vec<ExportedCall> {
    let mut invalid: BTreeMap<String, String> = thought.invalid_arguments.read_or_default();
    let mut calls: Vec<ExportedCall> = Vec::new();
    for call in thought.calls() {
        let arguments = call.function.sent();
        let (arguments, broken) = match serde_json::from_str(&arguments) {
            Ok(map) => (map, None),
            Err(_) => (Map::new(), Some(arguments.into_owned())),
        };
        calls.push(ExportedCall {
            id: unique_id(&calls, &call.id),
            name: call.function.name.into(),
            arguments,
            invalid_arguments: invalid.remove(&*call.id).or(broken),
            action_id: call.id.into(),
            ..ExportedCall::default()
        });
    }
    calls
}

/// An id that none of these calls has.
pub(super) fn unique_id(calls: &[ExportedCall], id: &str) -> String {
    let mut unique = id.to_owned();
    let mut count = 1;
    while calls.iter().any(|call| call.id == unique) {
        count += 1;
        unique = format!("{id}~{count}");
    }
    unique
}
