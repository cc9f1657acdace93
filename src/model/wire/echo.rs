//! Chat completions without the reasoning that requests send back.
//!
//! Pure.

use crate::text::json::{Members, Object};
use serde_json::value::RawValue;

/// Members of an assistant's message that are no reasoning.
const OF_MESSAGE: [&str; 5] = ["role", "content", "tool_calls", "refusal", "name"];

const OF_CALL: [&str; 3] = ["id", "type", "function"];

/// A request whose assistant messages and calls have no other members than the usual ones. None if it has no others.
pub(super) fn without_reasoning(request: &[u8]) -> Option<Vec<u8>> {
    let members: Members = serde_json::from_slice(request).ok()?;
    let (mut out, mut has_changed) = (Vec::with_capacity(request.len()), false);
    let mut object = Object::begin(&mut out);
    for (name, value) in &members.0 {
        if name != "messages" {
            object.raw(name, value.get().as_bytes());
            continue;
        }
        let messages: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
        let mut list = Vec::with_capacity(value.get().len());
        for message in messages {
            list.push(if list.is_empty() { b'[' } else { b',' });
            has_changed |= strip(message, &OF_MESSAGE, &mut list);
        }
        list.push(b']');
        object.raw(name, &list);
    }
    object.end();
    has_changed.then_some(out)
}

/// Appends an assistant's message, or a call, with these members alone; other values as they are. True if that leaves
/// something out.
fn strip(value: &RawValue, kept: &[&str], out: &mut Vec<u8>) -> bool {
    let members: Option<Members> = serde_json::from_str(value.get()).ok();
    let is_ours =
        |members: &Members| kept == OF_CALL || members.get("role") == Some("\"assistant\"");
    let Some(members) = members.filter(is_ours) else {
        out.extend_from_slice(value.get().as_bytes());
        return false;
    };
    let mut has_changed = false;
    let mut object = Object::begin(out);
    for (name, value) in &members.0 {
        if !kept.contains(&name.as_str()) {
            has_changed |= value.get() != "null";
            continue;
        }
        let calls = match name.as_str() {
            "tool_calls" => serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_default(),
            _ => Vec::new(),
        };
        if calls.is_empty() {
            object.raw(name, value.get().as_bytes());
            continue;
        }
        let list = object.nest(name);
        for (at, call) in calls.into_iter().enumerate() {
            list.push(if at == 0 { b'[' } else { b',' });
            has_changed |= strip(call, &OF_CALL, list);
        }
        list.push(b']');
    }
    object.end();
    has_changed
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
