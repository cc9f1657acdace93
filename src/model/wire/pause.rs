//! A service that pauses in the middle of an answer: what it has said so far goes back to it as it came, and it
//! goes on from there. Only Messages does, while it runs tools of its own.

use crate::model::response::{Answer, calls_json};

/// Stands before the blocks that go back.
const OPENING: &[u8] = br#",{"role":"assistant","content":"#;

/// Adds blocks to a request as its last message.
pub(super) fn append_blocks(request: &mut Vec<u8>, blocks: &[u8]) {
    request.truncate(request.len() - 2);
    request.extend_from_slice(OPENING);
    request.extend_from_slice(blocks);
    request.extend_from_slice(b"}]}");
}

/// The blocks that a recorded request has behind this one, if it has nothing else.
pub(super) fn blocks_behind<'r>(request: &[u8], recorded: &'r [u8]) -> Option<&'r [u8]> {
    let rest = recorded.strip_prefix(request.strip_suffix(b"]}")?)?;
    rest.strip_prefix(OPENING)?.strip_suffix(b"}]}")
}

/// One answer of two parts.
pub(super) fn join(first: Answer, next: Answer) -> Answer {
    let has_said = !next.text.is_empty() || !next.calls.is_empty();
    let items = match (first.items.as_deref(), next.items.as_deref()) {
        (Some([before @ .., b']']), Some([b'[', after @ ..])) => {
            Some([before, b",", after].concat())
        }
        (Some(before), None) if !has_said => Some(before.to_vec()),
        _ => None,
    };
    let thinking = thinking(&first) + &thinking(&next);
    let text = first.text + &next.text;
    let model = next.model.or(first.model);
    let mut whole = Answer::of_parts(text, thinking, next.calls, model);
    whole.finish_reason = next.finish_reason;
    whole.finish_detail = next.finish_detail;
    whole.is_paused = next.is_paused;
    whole.usage = match (first.usage, next.usage) {
        (Some(mut sum), Some(more)) => {
            sum.add(more);
            Some(sum)
        }
        (first, next) => first.or(next),
    };
    whole.cached_tokens = match (first.cached_tokens, next.cached_tokens) {
        (Some(first), Some(next)) => Some(first.saturating_add(next)),
        (first, next) => first.or(next),
    };
    let calls = match whole.calls.as_slice() {
        [] => Vec::new(),
        calls => calls_json(calls),
    };
    whole.view = Some(super::view(&whole.content_json, &calls));
    whole.items = items;
    whole
}

fn thinking(answer: &Answer) -> String {
    let json = answer.reasoning.first().map(|(_, json)| json.as_slice());
    json.and_then(|json| serde_json::from_slice(json).ok())
        .unwrap_or_default()
}
