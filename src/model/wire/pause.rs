//! A service that pauses in the middle of an answer: what it has said so far goes back to it as it came, and it
//! goes on from there. Only Messages does, while it runs tools of its own.

use super::messages::without_thinking;
use super::neutral::Recorded;
use crate::model::response::Answer;
use crate::text::json;

/// Precedes the blocks that go back.
const OPENING: &[u8] = br#",{"role":"assistant","content":"#;

/// The beginning of an answer that is not whole.
pub(super) struct Paused {
    pub answer: Answer,
    /// The digest of what precedes it; empty if it is not known.
    pub prefix: String,
    /// The number of the service's pauses.
    pub count: u32,
}

impl Paused {
    /// Notes the digest of what precedes the answer in the next request. Thinking that was made after other content
    /// is dropped, unless the service does not verify that.
    pub(super) fn follow(&mut self, prefix: &str, is_unbound: bool) {
        if !self.prefix.is_empty() && self.prefix != prefix && !is_unbound {
            self.drop_thinking();
        }
        prefix.clone_into(&mut self.prefix);
    }

    pub(super) fn drop_thinking(&mut self) {
        let items = self.answer.items.take();
        self.answer.items = items.and_then(|items| without_thinking(&items));
    }

    pub(super) fn has_thinking(&self) -> bool {
        let items = self.answer.items.as_deref();
        items.is_some_and(|items| without_thinking(items).as_deref() != Some(items))
    }

    /// The blocks with which the service goes on; none if it has said nothing that can go back.
    pub(super) fn blocks(&self) -> Option<Vec<u8>> {
        blocks(&self.answer)
    }
}

/// The blocks of an answer that go back.
pub(super) fn blocks(answer: &Answer) -> Option<Vec<u8>> {
    if let Some(items) = &answer.items {
        return super::messages::sent_back(items);
    }
    // Something was taken out of what came.
    (!answer.text.trim().is_empty()).then(|| {
        let block = json::object(|block| {
            block.put("type", "text").put("text", &answer.text);
        });
        json::list([block])
    })
}

/// The recorded part of an answer as the response that it was in.
pub(super) fn as_response(recorded: &Recorded<'_>) -> Vec<u8> {
    let items = recorded.joined_items();
    format!("{{\"content\":[{items}],\"stop_reason\":\"pause_turn\"}}").into_bytes()
}

/// Adds blocks to a request as its last message.
pub(super) fn append_blocks(request: &mut Vec<u8>, blocks: &[u8]) {
    request.truncate(request.len() - 2);
    request.extend_from_slice(OPENING);
    request.extend_from_slice(blocks);
    request.extend_from_slice(b"}]}");
}

/// The blocks by which a recorded request goes on from this one, if by nothing else.
pub(super) fn blocks_behind<'r>(request: &[u8], recorded: &'r [u8]) -> Option<&'r [u8]> {
    recorded
        .strip_prefix(request.strip_suffix(b"]}")?)?
        .strip_prefix(OPENING)?
        .strip_suffix(b"}]}")
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
    (whole.counted, whole.terms) = (next.counted, next.terms);
    whole.view = Some(super::view_of(&whole));
    whole.items = items;
    whole
}

fn thinking(answer: &Answer) -> String {
    let json = answer.reasoning.first().map(|(_, json)| json.as_slice());
    json.and_then(|json| serde_json::from_slice(json).ok())
        .unwrap_or_default()
}
