//! All steps of a run as messages of chat completions, independent of any window.

use super::content::PartForm;
use super::recorded::{ExportedCall, ExportedStep, RecordedRun, What};
use crate::text::json;
use serde_json::{Value, json};

/// Replaces a result that was never recorded: every call has one in a conversation.
const NO_RESULT: &str = "(this call has no result)";

/// The messages of the system, then those of the steps.
pub(super) fn messages(run: &RecordedRun, form: PartForm) -> Vec<Value> {
    let system = run.head.system.iter();
    let mut messages: Vec<Value> = system
        .map(|text| json!({"role": "system", "content": text}))
        .collect();
    for step in &run.steps {
        messages.extend(messages_of(step, form));
    }
    messages
}

/// A step as messages: none of what the model did not see.
pub(super) fn messages_of(step: &ExportedStep, form: PartForm) -> Vec<Value> {
    match &step.what {
        What::User(content) => vec![json!({"role": "user", "content": content.json(form)})],
        What::System {
            text,
            is_told: true,
            ..
        } => {
            vec![json!({"role": "user", "content": text})]
        }
        What::System { .. } | What::Node(_) => Vec::new(),
        What::Answer(answer) => {
            if answer.is_summary || (answer.text.is_none() && answer.calls.is_empty()) {
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
            all.chain(beside_results(&answer.calls, form)).collect()
        }
    }
}

/// The message with what the results of calls have beside their texts, if they have.
fn beside_results(calls: &[ExportedCall], form: PartForm) -> Option<Value> {
    let parts = calls.iter().flat_map(|call| {
        let head = format!("Attachments of call {} ({}):", call.id, call.name);
        let result = call.result.iter();
        result.flat_map(move |it| it.content.parts(&head, form))
    });
    let parts: Vec<Value> = parts.collect();
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
    let text = call.result.as_ref().map(|it| it.content.text.as_str());
    json!({"role": "tool", "tool_call_id": call.id, "content": text.unwrap_or(NO_RESULT)})
}
