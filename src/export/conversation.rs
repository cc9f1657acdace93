//! All steps of a run as messages of chat completions, independent of any window.

use super::recorded::{ExportedAttachment, ExportedCall, ExportedStep, RecordedRun, What};
use crate::text::json;
use serde_json::{Value, json};

/// Replaces a result that was never recorded: every call has one in a conversation.
const NO_RESULT: &str = "(this call has no result)";

/// The form of an attachment as a part of a message; none if it is left out.
pub(super) type PartForm = dyn Fn(&ExportedAttachment) -> Option<Value>;

/// The messages of the system, then those of the steps.
pub(super) fn messages(run: &RecordedRun, part: &PartForm) -> Vec<Value> {
    let system = run.head.system.iter();
    let mut messages: Vec<Value> = system
        .map(|text| json!({"role": "system", "content": text}))
        .collect();
    for step in &run.steps {
        messages.extend(messages_of(step, part));
    }
    messages
}

/// A step as messages: none of what the model did not see.
pub(super) fn messages_of(step: &ExportedStep, part: &PartForm) -> Vec<Value> {
    match &step.what {
        What::User(text) => {
            let content = content(text, &step.attachments, part);
            vec![json!({"role": "user", "content": content})]
        }
        What::System {
            text,
            is_told: true,
            ..
        } => {
            vec![json!({"role": "user", "content": text})]
        }
        What::System { .. } | What::Node(_) => Vec::new(),
        What::Answer(answer) => {
            if answer.is_compaction || (answer.text.is_none() && answer.calls.is_empty()) {
                return Vec::new();
            }
            let mut message = json!({"role": "assistant", "content": answer.text});
            if let Some(reasoning) = &answer.reasoning {
                message["reasoning_content"] = reasoning.as_str().into();
            }
            if !answer.calls.is_empty() {
                message["tool_calls"] = answer.calls.iter().map(call).collect();
            }
            let results = answer.calls.iter().map(result);
            let all = [message].into_iter().chain(results);
            all.chain(attached(&answer.calls, part)).collect()
        }
    }
}

/// A text followed by its attachments as parts.
pub(super) fn content(text: &str, attachments: &[ExportedAttachment], part: &PartForm) -> Value {
    let parts: Vec<Value> = attachments.iter().filter_map(part).collect();
    match parts.is_empty() {
        true => text.into(),
        false => {
            let text = json!({"type": "text", "text": text});
            [text].into_iter().chain(parts).collect()
        }
    }
}

/// The message with what the results of calls have attached, if they have.
fn attached(calls: &[ExportedCall], part: &PartForm) -> Option<Value> {
    let mut parts = Vec::new();
    for call in calls {
        let attachments = call.result.as_ref().map_or(&[][..], |it| &it.attachments);
        let head = format!("Attachments of call {} ({}):", call.id, call.name);
        if let Value::Array(group) = content(&head, attachments, part) {
            parts.extend(group);
        }
    }
    (!parts.is_empty()).then(|| json!({"role": "user", "content": parts}))
}

fn call(call: &ExportedCall) -> Value {
    let arguments = json::text(&call.arguments);
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

fn result(call: &ExportedCall) -> Value {
    let text = call.result.as_ref().map(|it| it.text.as_str());
    json!({"role": "tool", "tool_call_id": call.id, "content": text.unwrap_or(NO_RESULT)})
}
