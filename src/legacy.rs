//! Old forms of the journal's lines.
//!
//! Engines up to 1.3 nest an event's fields under `payload` and call the first and the last event
//! `RUN_START` and `RUN_END`. Nothing else in the crate knows that.

use crate::event::Line;
use std::borrow::Cow;

/// A line in today's form.
///
/// # Errors
/// The parser's, if a nested payload cannot be read.
pub fn flat(line: Line<'_>) -> Result<Line<'_>, serde_json::Error> {
    let mut line = match line.payload {
        None => line,
        Some(payload) => Line {
            kind: line.kind,
            seq: line.seq,
            timestamp: line.timestamp,
            iteration: line.iteration,
            ..Line::parse(payload.get())?
        },
    };
    match &*line.kind {
        "RUN_START" => line.kind = Cow::Borrowed("ENGINE_START"),
        "RUN_END" => line.kind = Cow::Borrowed("ENGINE_END"),
        _ => {}
    }
    Ok(line)
}
