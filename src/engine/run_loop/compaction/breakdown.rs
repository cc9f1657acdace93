//! The parts of a request that is too long, as a table.

use super::super::Engine;
use crate::error::Result;
use crate::model::wire::Neutral;
use crate::record::messages::Form;
use crate::record::state::{Run, Turn};
use crate::text::amounts::grouped;
use crate::text::table::{Column, Table};
use crate::unix::terminal::{Tone, columns};

/// Prints what a request consists of: bytes, and tokens by estimate.
pub(super) fn print(engine: &mut Engine<'_>, request: Neutral, run: &Run<'_>) -> Result<()> {
    let sent = engine.measure(&request)?;
    let attached = engine.sizes.attachment_tokens;
    let texts = engine.sizes.tokens(sent) - attached;
    let rate = texts as f64 / request.bytes.len().max(1) as f64;
    let conversation = engine.transcript.messages().len();
    let form = engine.transcript.form();
    let (said, answers, observations) = of_turns(run, form);
    let spoken = (said + answers + observations) as usize;
    let system = request
        .stable
        .saturating_sub(request.messages)
        .saturating_sub(conversation);
    let rows = [
        ("tools and settings", request.messages),
        ("system prompt and context before the conversation", system),
        ("people's messages", said as usize),
        ("summary", conversation.saturating_sub(spoken)),
        ("answers and calls", answers as usize),
        ("observations", observations as usize),
        (
            "context after the conversation",
            request.bytes.len() - request.stable,
        ),
        ("all", request.bytes.len()),
    ];
    let mut table = Table::with_head(&[
        ("what", Column::Text),
        ("bytes", Column::Number),
        ("tokens, about", Column::Number),
    ]);
    for (what, bytes) in rows.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let more = if what == "all" { attached } else { 0 };
        let tokens = (bytes as f64 * rate).ceil() as u64 + more;
        table.rows.push(vec![
            what.to_owned(),
            grouped(bytes as u64),
            grouped(tokens),
        ]);
    }
    if attached > 0 {
        let what = "of these, pictures and documents".to_owned();
        table
            .rows
            .push(vec![what, String::new(), grouped(attached)]);
    }
    for line in table.lines(columns()).lines() {
        engine.log.screen.progress(&[(Tone::Dim, line)]);
    }
    Ok(())
}

/// The bytes of people's messages, of answers, and of observations in requests as they are.
fn of_turns(run: &Run<'_>, form: &Form) -> (u64, u64, u64) {
    let sizes = super::plan::turn_sizes(run, form, f64::INFINITY);
    let (mut said, mut answers, mut observations) = (0, 0, 0);
    for (turn, size) in run.turns.iter().zip(sizes) {
        match turn {
            Turn::User(_) | Turn::Refusal(_) => said += size,
            Turn::Thought(thought) => {
                let calls = thought.calls.iter();
                let results: u64 = calls
                    .map(|call| call.result.map_or(0, str::len) as u64)
                    .sum();
                observations += results.min(size);
                answers += size - results.min(size);
            }
        }
    }
    (said, answers, observations)
}
