//! All steps of a run as messages of chat completions, independent of any window.

use super::recorded::{ExportedCall, RecordedRun, What};
use crate::text::json;
use serde_json::{Value, json};

/// Replaces a result that was never recorded: every call has one in a conversation.
const NO_RESULT: &str = "(this call has no result)";

/// The messages of the system, then those of the steps.
pub(super) fn messages(run: &RecordedRun) -> Vec<Value> {
    let system = run.head.system.iter();
    let mut messages: Vec<Value> = system
        .map(|text| json!({"role": "system", "content": text}))
        .collect();
    for step in &run.steps {
        messages.extend(messages_of(&step.what));
    }
    messages
}

/// A step as messages: none of what the model did not see.
pub(super) fn messages_of(what: &What) -> Vec<Value> {
    match what {
        What::User(text)
        | What::System {
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
            [message].into_iter().chain(results).collect()
        }
    }
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
