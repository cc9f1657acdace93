//! The shorter form of a conversation: a summary with people's messages in place of its beginning, and
//! observations without their middle.

use crate::record::event::decoded;
use crate::record::state::{Call, Compaction, MessageRules, Run, Turn, UserMessage};
use crate::text::amounts::counted;
use crate::text::shorten::{head, tail};

/// A shorter observation stays whole.
pub(crate) const LONGEST_WHOLE: usize = 1000;

/// Bytes that are kept of each end of an observation.
const END: usize = 200;

/// Replaces a secret in an observation.
const REDACTED: &str = "[redacted]";

/// An observation without its middle; none if it stays whole.
pub(crate) fn observation(call: &Call<'_>, compaction: &Compaction<'_>) -> Option<String> {
    let output = call.output_ref.as_deref()?;
    let result = call.result.filter(|json| json.len() > LONGEST_WHOLE)?;
    let text = decoded(result);
    if text.len() <= LONGEST_WHOLE || text.contains(REDACTED) {
        return None;
    }
    let (head, tail) = (head(&text, END), tail(&text, END));
    let left_out = text.len() - head.len() - tail.len();
    let run = &compaction.run_id;
    Some(format!(
        "{head}\n[{left_out} bytes left out here; the whole output: .delta/{run}/{output}/stdout.log]\n{tail}"
    ))
}

/// The message in place of the first turns; none if there is no summary.
pub(crate) fn summary(run: &Run<'_>, turns: usize) -> Option<String> {
    let summary = run.compaction.summary.as_ref()?;
    Some(message(
        &run.turns[..turns],
        &summary.text,
        &summary.messages,
        &run.compaction.run_id,
    ))
}

/// What people said in some turns, word for word, and a summary of the rest. Of people's messages, the first and the
/// newest stay.
pub(crate) fn message(
    turns: &[Turn<'_>],
    summary: &str,
    rules: &MessageRules,
    run: &str,
) -> String {
    let said: Vec<&UserMessage<'_>> = turns
        .iter()
        .filter_map(|turn| match turn {
            Turn::User(message) => Some(message),
            Turn::Thought(_) | Turn::Refusal(_) => None,
        })
        .collect();
    let times = rules
        .times
        .iter()
        .map(|time| Some(time.as_str()))
        .chain(std::iter::repeat(None));
    let said: Vec<_> = said.into_iter().zip(times).collect();
    let (first, others) = said.split_at(said.len().min(1));
    let mut room = rules.most_bytes.unwrap_or(u64::MAX);
    let fits = |(message, _): &&(&UserMessage<'_>, Option<&str>)| {
        let left = room.checked_sub(message.content.len() as u64);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let kept = others.iter().rev().take_while(fits).count();
    let (left_out, newest) = others.split_at(others.len() - kept);
    let mut text = String::new();
    for (message, time) in first {
        add_message(&mut text, message, *time);
    }
    if !left_out.is_empty() {
        let messages = counted(left_out.len(), "message");
        text += &format!("({messages} left out here.)\n\n");
    }
    for (message, time) in newest {
        add_message(&mut text, message, *time);
    }
    let iterations = turns.iter().filter_map(|turn| match turn {
        Turn::Thought(thought) => Some(thought.iteration),
        Turn::User(_) | Turn::Refusal(_) => None,
    });
    let (first, to) = iterations.fold((None, 0), |(from, _), at| (from.or(Some(at)), at));
    let from = first.unwrap_or(0);
    text += &format!(
        "## Summary of iterations {from} to {to}\n\n{}\n\nEverything that was said and done up to here is in .delta/{run}/journal.jsonl.",
        quoted(summary.trim())
    );
    text
}

/// A text with a mark before every line, however it is ended: nothing in it reads as a message or a heading.
fn quoted(text: &str) -> String {
    let ends = [
        '\n', '\r', '\u{B}', '\u{C}', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    let lines: Vec<String> = text
        .replace("\r\n", "\n")
        .split(ends)
        .map(|line| format!("> {line}"))
        .collect();
    lines.join("\n")
}

fn add_message(text: &mut String, message: &UserMessage<'_>, time: Option<&str>) {
    match time.or(message.at.as_deref()) {
        Some(at) => *text += &format!("## Message of {at}\n\n"),
        None => *text += "## Message\n\n",
    }
    *text += decoded(message.content).trim_end_matches('\n');
    *text += "\n\n";
}
