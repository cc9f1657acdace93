//! The events that only a workflow's run has, as they are told.

use super::{COMMAND_WIDTH, Entry};
use crate::event::Line;
use crate::screen::{Tone, in_short, time};
use std::borrow::Cow;
use std::time::Duration;

/// The types of these events.
const KINDS: [&str; 9] = [
    "FLOW_START",
    "TASK_CREATED",
    "NODE_START",
    "NODE_END",
    "ROUTE",
    "MERGE",
    "TASK_END",
    "TOOL",
    "POLICY",
];

/// Whether an event is one of these.
pub(super) fn is_one(line: &Line<'_>) -> bool {
    KINDS.contains(&&*line.kind)
}

/// One of these events. What follows from others, such as the way that a task goes, is not told.
pub(super) fn entry(line: &Line<'_>) -> Option<Entry> {
    let text = |from: &Option<Cow<'_, str>>| from.as_deref().unwrap_or("?").to_owned();
    let task = text(&line.task_id);
    let node = text(&line.node_id);
    let why = || {
        let (code, message) = (text(&line.code), text(&line.message));
        in_short(&format!("{code}: {message}"), COMMAND_WIDTH)
    };
    Some(match &*line.kind {
        "NODE_START" => {
            let command = line.resolved_command.as_deref()?;
            Entry::new(task)
                .say(Tone::Said, format!("{node} "))
                .say(Tone::Dim, "$ ")
                .say(Tone::Command, in_short(command, COMMAND_WIDTH))
        }
        "NODE_END" => {
            let entry = Entry::new(task).say(Tone::Said, format!("{node} "));
            if line.status.as_deref() != Some("success") {
                return Some(entry.say(Tone::Bad, why()));
            }
            let took = Duration::from_millis(line.duration_ms.unwrap_or(0));
            let how = match (line.cached, line.memory_bytes) {
                (Some(true), _) => "ok, cached".to_owned(),
                (_, Some(bytes)) => format!("ok, {}, {} MiB", time(took), bytes >> 20),
                (_, None) => "ok".to_owned(),
            };
            entry.say(Tone::Good, how)
        }
        "TOOL" => {
            let name = text(&line.tool_name);
            let entry = Entry::new(task)
                .say(Tone::Said, format!("{node} "))
                .say(Tone::Dim, "calls ")
                .say(Tone::Command, format!("{name}  "));
            if line.status.as_deref() != Some("success") {
                return Some(entry.say(Tone::Bad, why()));
            }
            let took = Duration::from_millis(line.duration_ms.unwrap_or(0));
            entry.say(Tone::Good, format!("ok, {}", time(took)))
        }
        "MERGE" => {
            let (arrived, failed) = (line.arrived.unwrap_or(0), line.failed.unwrap_or(0));
            Entry::new(task)
                .say(Tone::Said, format!("{node} "))
                .say(Tone::Dim, format!("merges {arrived}, {failed} failed"))
        }
        "TASK_END" => match line.status.as_deref() {
            Some("failure") => Entry::new(task).say(Tone::Bad, format!("failure: {}", why())),
            Some(status) if !task.contains('.') => {
                let tone = if status == "success" {
                    Tone::Good
                } else {
                    Tone::Bad
                };
                Entry::new(task).say(tone, status)
            }
            _ => return None,
        },
        _ => return None,
    })
}
