//! The parts of a recorded run that one line of a journal gives.
//!
//! Pure. Unaware of the lines before it.

use crate::export::recorded::{
    CallResult, ExportedAttachment, ExportedCall, RecordedAgent, RunEnd,
};
use crate::record::attachments::read_list;
use crate::record::event::Line;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::state::decoded;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) fn agent_of(config: &Value, home: Option<String>) -> RecordedAgent {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    RecordedAgent {
        name: text(&config["name"]).unwrap_or_else(|| "agent".to_owned()),
        version: text(&config["version"]),
        home,
        model: text(&config["llm"]["model"]),
        llm: config["llm"].as_object().cloned().unwrap_or_default(),
        pricing: serde_json::from_value(config["pricing"].clone()).ok(),
    }
}

pub(super) fn end_of(line: &Line<'_>) -> RunEnd {
    let text = |from: &Option<std::borrow::Cow<'_, str>>| from.as_deref().map(str::to_owned);
    RunEnd {
        status: text(&line.status).unwrap_or_else(|| Status::Failed.name().to_owned()),
        stop_reason: text(&line.stop_reason),
        exit_code: line.exit_code,
        error: text(&line.error),
    }
}

pub(super) fn result_of(line: &Line<'_>, text: String) -> CallResult {
    CallResult {
        at: line.time(),
        text,
        is_success: line.is_success(),
        status: line.status.as_deref().map(str::to_owned),
        exit_code: line.exit_code,
        duration_ms: line.duration_ms,
        attachments: Vec::new(),
    }
}

/// The attachments of an event.
pub(super) fn attachments_of(line: &Line<'_>, run: &RunDir) -> Vec<ExportedAttachment> {
    let list = read_list(line.attachments).into_iter();
    let exported = list.map(|attachment| ExportedAttachment {
        attachment,
        run: run.path.clone(),
    });
    exported.collect()
}

pub(super) fn text_of(json: &RawValue) -> String {
    decoded(json.get()).into_owned()
}

/// The text in which a server has sent the model's reasoning.
pub(super) fn reasoning_of(line: &Line<'_>) -> Option<String> {
    let texts = [line.reasoning_content, line.reasoning, line.thinking];
    let mut texts = texts.into_iter().flatten();
    texts.find_map(|json| serde_json::from_str::<String>(json.get()).ok())
}

pub(super) fn calls_of(line: &Line<'_>) -> Vec<ExportedCall> {
    let invalid = line.invalid_arguments.map_or("{}", RawValue::get);
    let mut invalid: BTreeMap<String, String> = serde_json::from_str(invalid).unwrap_or_default();
    let mut calls: Vec<ExportedCall> = Vec::new();
    for call in line.calls() {
        let arguments = decoded(call.function.arguments.map_or("null", RawValue::get));
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
