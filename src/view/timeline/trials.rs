//! The events that only an evaluation has, a line for each, of what there is in them.

use super::{COMMAND_WIDTH, TimelineEntry};
use crate::record::event::evaluation::TrialOutcome;
use crate::record::event::{EvaluationEvent, Line, Recorded};
use crate::text::amounts::format_millis;
use crate::text::json::{Fields, read_or_default};
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

/// The entry of an event. The end of a trial's program has none if its answer is judged.
pub(super) fn entry(line: &Line<'_>) -> Option<TimelineEntry> {
    let Recorded::Evaluation(event) = &line.event else {
        return None;
    };
    let members: Fields<'_> = read_or_default(line.text);
    let text = |name: &str| members.read::<String>(name).unwrap_or_default();
    let number = |name: &str| members.read::<u64>(name).unwrap_or(0);
    let suite = text("suite");
    let of_trial = || {
        let name = format!("{suite}/{} ", text("trial"));
        TimelineEntry::new("trial").say(Tone::Said, name)
    };
    let status = text("status");
    let status_words = status.replace('_', " ");
    Some(match event {
        EvaluationEvent::TrialStart => {
            let again = match number("attempt") {
                0 | 1 => String::new(),
                attempt => format!("(attempt {attempt}) "),
            };
            let command = in_short(&text("resolved_command"), COMMAND_WIDTH);
            of_trial()
                .say(Tone::Dim, format!("{again}$ "))
                .say(Tone::Command, command)
        }
        EvaluationEvent::TrialEnd if status == "answered" => return None,
        EvaluationEvent::TrialEnd => {
            let took = format_millis(number("duration_ms"));
            of_trial()
                .say(
                    Tone::Bad,
                    format!("{status_words}: {}", text("stop_reason")),
                )
                .say(Tone::Dim, format!(", {took}"))
        }
        EvaluationEvent::Grade => {
            let tone = if status == TrialOutcome::Passed.name() {
                Tone::Good
            } else {
                Tone::Bad
            };
            of_trial().say(tone, status_words)
        }
        EvaluationEvent::Look => {
            let verdict = text("verdict");
            TimelineEntry::new("verdict").say(Tone::Said, format!("{suite}: {verdict}"))
        }
    })
}
