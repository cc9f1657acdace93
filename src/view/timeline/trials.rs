//! The events that only an evaluation has, a line for each.

use super::{COMMAND_WIDTH, TimelineEntry};
use crate::record::event::{EvaluationEvent, Line};
use crate::text::amounts::format_millis;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;
use std::borrow::Cow;

fn of_trial(line: &Line<'_>) -> TimelineEntry {
    let (suite, trial) = (text(line.suite.as_ref()), text(line.trial.as_ref()));
    TimelineEntry::new("trial").say(Tone::Said, format!("{suite}/{trial} "))
}

pub(super) fn entry(event: EvaluationEvent, line: &Line<'_>) -> Option<TimelineEntry> {
    match event {
        EvaluationEvent::TrialStart => Some(start(line)),
        EvaluationEvent::TrialEnd => end(line),
        EvaluationEvent::Grade => Some(grade(line)),
        EvaluationEvent::Look => Some(look(line)),
    }
}

/// The beginning of a trial, or of another attempt at it.
fn start(line: &Line<'_>) -> TimelineEntry {
    let again = match line.attempt.unwrap_or(1) {
        0 | 1 => String::new(),
        attempt => format!("(attempt {attempt}) "),
    };
    let command = line.resolved_command.as_deref().unwrap_or_default();
    let entry = of_trial(line).say(Tone::Dim, format!("{again}$ "));
    entry.say(Tone::Command, in_short(command, COMMAND_WIDTH))
}

/// The end of a trial's program; none if its answer is judged.
fn end(line: &Line<'_>) -> Option<TimelineEntry> {
    let status = text(line.status.as_ref());
    if status == "answered" {
        return None;
    }
    let took = format_millis(line.duration_ms.unwrap_or(0));
    let reason = text(line.stop_reason.as_ref());
    let entry = of_trial(line).say(Tone::Bad, format!("{}: {reason}", status.replace('_', " ")));
    Some(entry.say(Tone::Dim, format!(", {took}")))
}

/// What the assertions made of an answer.
fn grade(line: &Line<'_>) -> TimelineEntry {
    let status = text(line.status.as_ref());
    let tone = match status {
        "passed" => Tone::Good,
        _ => Tone::Bad,
    };
    of_trial(line).say(tone, status.replace('_', " "))
}

/// A verdict that was printed.
fn look(line: &Line<'_>) -> TimelineEntry {
    let (suite, verdict) = (text(line.suite.as_ref()), text(line.verdict.as_ref()));
    TimelineEntry::new("verdict").say(Tone::Said, format!("{suite}: {verdict}"))
}

fn text<'l>(from: Option<&'l Cow<'_, str>>) -> &'l str {
    from.map(|text| &**text).unwrap_or_default()
}
