//! Chat completions without the reasoning that requests send back.
//!
//! Pure.

use crate::text::json::{self, Fields};
use serde_json::value::RawValue;

/// Members of an assistant's message that are no reasoning.
const OF_MESSAGE: [&str; 5] = ["role", "content", "tool_calls", "refusal", "name"];

const OF_CALL: [&str; 3] = ["id", "type", "function"];

/// A request whose assistant messages and calls have no other members than the usual ones. None if it has no others.
pub(super) fn without_reasoning(request: &[u8]) -> Option<Vec<u8>> {
    let members: Fields<'_> = serde_json::from_slice(request).ok()?;
    let mut has_changed = false;
    let out = json::object(|object| {
        for (name, value) in &members.0 {
            if **name == *"messages" {
                let stripped = |message: &RawValue| strip(message, &OF_MESSAGE, &mut has_changed);
                object.raw(name, &each_of(value, stripped));
            } else {
                object.raw(name, value.get().as_bytes());
            }
        }
    });
    has_changed.then_some(out)
}

/// A list with its elements changed; another value as it is.
fn each_of(value: &RawValue, change: impl FnMut(&RawValue) -> Vec<u8>) -> Vec<u8> {
    match serde_json::from_str::<Vec<&RawValue>>(value.get()) {
        Ok(items) => json::list(items.into_iter().map(change)),
        Err(_) => value.get().into(),
    }
}

/// An assistant's message, or a call, with these members alone; other values as they are. Notes whether that leaves
/// something out.
fn strip(value: &RawValue, kept: &[&str], has_changed: &mut bool) -> Vec<u8> {
    let members = serde_json::from_str::<Fields<'_>>(value.get()).ok();
    let is_ours = |it: &Fields<'_>| kept == OF_CALL || it.get("role") == Some("\"assistant\"");
    let Some(members) = members.filter(is_ours) else {
        return value.get().into();
    };
    json::object(|object| {
        for (name, value) in &members.0 {
            if !kept.contains(&&**name) {
                *has_changed |= value.get() != "null";
            } else if **name == *"tool_calls" {
                let stripped = |call: &RawValue| strip(call, &OF_CALL, has_changed);
                object.raw(name, &each_of(value, stripped));
            } else {
                object.raw(name, value.get().as_bytes());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_left_out_of_answers_and_calls_alone() {
        let request = |answer: &str, call: &str| {
            format!(
                r#"{{"model":"m","extra":1.0,"messages":[{{"role":"user","content":"a","x":1}},{{"role":"assistant","content":null{answer},"tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}{call}}}]}},{{"role":"tool","tool_call_id":"c","content":"r"}}]}}"#
            )
        };
        let plain = request("", "");
        for (answer, call) in [
            (r#","reasoning_content":"t""#, ""),
            (
                r#","thinking_blocks":[{"type":"thinking"}],"provider_state":{}"#,
                "",
            ),
            (
                "",
                r#","extra_content":{"google":{"thought_signature":"s"}}"#,
            ),
        ] {
            let stripped = without_reasoning(request(answer, call).as_bytes());
            assert_eq!(
                stripped.as_deref(),
                Some(plain.as_bytes()),
                "{answer}{call}"
            );
        }
        assert_eq!(without_reasoning(plain.as_bytes()), None);
        assert_eq!(without_reasoning(b"no JSON"), None);
    }
}
