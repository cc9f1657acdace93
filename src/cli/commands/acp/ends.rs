//! The end of a start of delta as the end of a turn.
//!
//! Pure.

use crate::record::metadata::Status;
use crate::record::stop_reason::StopReason;
use crate::text::json;
use serde_json::Value;

/// The end of a turn for the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TurnEnd {
    /// A stop reason of the protocol, and what is said before.
    Stop(&'static str, Option<String>),
    /// An error.
    Failed(String),
}

pub(super) const END_TURN: &str = "end_turn";
pub(super) const CANCELLED: &str = "cancelled";

/// The end that the last line of `--format jsonl` describes. A question that the client can answer comes before.
pub(super) fn end_of(result: &Value) -> TurnEnd {
    let text = |value: &Value, name: &str| json::member_text(value, name).to_owned();
    let said = text(&result["error"], "message");
    if result["status"] == Status::Completed.name() {
        return TurnEnd::Stop(END_TURN, None);
    }
    let asks = [&result["awaits"]["interaction"], &result["interaction"]];
    if let Some(asks) = asks.into_iter().find(|asks| asks.is_object()) {
        let command = text(&result["awaits"], "answer_command");
        let command = Some(command)
            .filter(|it| !it.is_empty())
            .map_or_else(String::new, |it| format!("\n\nanswer with: {it}"));
        return TurnEnd::Stop(END_TURN, Some(text(asks, "prompt") + &command));
    }
    let reason = text(result, "stop_reason");
    let is = |reasons: &[StopReason]| reasons.iter().any(|it| it.name() == reason);
    use StopReason::{
        Budget, ContentFilter, Deferred, Length, MaxIterations, NoProgress, Seconds, Tokens,
    };
    if is(&[ContentFilter, Deferred]) {
        TurnEnd::Stop(END_TURN, Some(said))
    } else if is(&[Length]) {
        TurnEnd::Stop("max_tokens", Some(said))
    } else if is(&[MaxIterations, Tokens, Seconds, Budget, NoProgress]) {
        TurnEnd::Stop("max_turn_requests", Some(said))
    } else {
        TurnEnd::Failed(said)
    }
}
