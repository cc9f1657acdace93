//! The events that only a workflow's run has, as they are told: a line for each.

use super::{COMMAND_WIDTH, Entry, OUTPUT_WIDTH};
use crate::record::event::Line;
use crate::unix::terminal::{Tone, in_short, time};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::Duration;

/// The types of these events.
const KINDS: [&str; 10] = [
    "FLOW_START",
    "TASK_CREATED",
    "NODE_START",
    "NODE_END",
    "ROUTE",
    "MERGE",
    "TASK_END",
    "TOOL",
    "POLICY",
    "MEMORY",
];

/// Whether an event is one of these.
pub(super) fn is_one(line: &Line<'_>) -> bool {
    KINDS.contains(&&*line.kind) || is_retry(line)
}

/// Whether it tells of an attempt at a node that another one follows.
fn is_retry(line: &Line<'_>) -> bool {
    line.kind == "ERROR" && line.node_id.is_some()
}

/// One of these events. The beginning of a node that runs nothing is told by its end, and that of a flow by
/// the beginning of its run.
pub(super) fn entry(line: &Line<'_>) -> Option<Entry> {
    let task = text(line.task_id.as_ref());
    let node = text(line.node_id.as_ref());
    let entry = Entry::new(task);
    let at_node = |entry: Entry| entry.say(Tone::Said, format!("{node} "));
    let bad = line.status.as_deref() == Some("failure");
    Some(match &*line.kind {
        "TASK_CREATED" => created(entry, line),
        "NODE_START" => {
            let command = line.resolved_command.as_deref()?;
            let again = match line.attempt.unwrap_or(1) {
                0 | 1 => String::new(),
                attempt => format!("(attempt {attempt}) "),
            };
            at_node(entry)
                .say(Tone::Dim, format!("{again}$ "))
                .say(Tone::Command, in_short(command, COMMAND_WIDTH))
        }
        "NODE_END" if bad => at_node(entry).say(Tone::Bad, why(line)),
        "NODE_END" => ended(at_node(entry), line),
        "ERROR" => at_node(entry).say(Tone::Bad, format!("{}, and is tried again", why(line))),
        "TOOL" => {
            let name = text(line.tool_name.as_ref());
            let entry = at_node(entry)
                .say(Tone::Dim, "calls ")
                .say(Tone::Command, format!("{name}  "));
            if bad {
                return Some(entry.say(Tone::Bad, why(line)));
            }
            entry.say(Tone::Good, format!("ok, {}", took(line)))
        }
        "ROUTE" => at_node(entry).say(Tone::Dim, format!("→ {}", targets(line.to))),
        "MERGE" => {
            let (arrived, failed) = (line.arrived.unwrap_or(0), line.failed.unwrap_or(0));
            at_node(entry).say(Tone::Dim, format!("merges {arrived}, {failed} failed"))
        }
        "TASK_END" if bad => entry.say(Tone::Bad, format!("failure: {}", why(line))),
        "TASK_END" => {
            let status = text(line.status.as_ref());
            let tone = match &*status {
                "success" => Tone::Good,
                _ => Tone::Bad,
            };
            let place = match (&line.exit_node, &line.merged_at) {
                (Some(node), _) => format!(" at {node}"),
                (None, Some(node)) => format!(", merged at {node}"),
                (None, None) => String::new(),
            };
            entry.say(tone, status).say(Tone::Dim, place)
        }
        _ => return None,
    })
}

fn text(from: Option<&Cow<'_, str>>) -> String {
    from.map_or_else(|| "?".to_owned(), ToString::to_string)
}

/// Why something is no success. A task that ends in an exit that always fails has no reason of its own.
fn why(line: &Line<'_>) -> String {
    match (&line.code, &line.exit_node) {
        (None, Some(node)) => format!("at {node}"),
        (code, _) => {
            let (code, message) = (text(code.as_ref()), text(line.message.as_ref()));
            in_short(&format!("{code}: {message}"), COMMAND_WIDTH)
        }
    }
}

fn took(line: &Line<'_>) -> String {
    time(Duration::from_millis(line.duration_ms.unwrap_or(0)))
}

fn created(entry: Entry, line: &Line<'_>) -> Entry {
    match &line.parent_id {
        Some(parent) => {
            let edge = text(line.edge.as_ref());
            entry.say(Tone::Dim, format!("from {parent} along {edge}"))
        }
        None => entry
            .say(Tone::Dim, "begins with ")
            .say(Tone::Said, value(line.input, line.input_ref.as_ref())),
    }
}

fn ended(entry: Entry, line: &Line<'_>) -> Entry {
    let how = match (line.cached, line.memory_bytes) {
        (Some(true), _) => "ok, cached".to_owned(),
        (_, Some(bytes)) => format!("ok, {}, {} MiB", took(line), bytes >> 20),
        (_, None) => "ok".to_owned(),
    };
    let output = value(line.output, line.output_ref.as_ref());
    let output = match output.as_str() {
        "" => output,
        text => format!("  {text}"),
    };
    entry.say(Tone::Good, how).say(Tone::Dim, output)
}

/// A JSON value in short, or where it is; nothing if it is what came in.
fn value(json: Option<&RawValue>, file: Option<&Cow<'_, str>>) -> String {
    match (json, file) {
        (Some(json), _) => in_short(json.get(), OUTPUT_WIDTH),
        (None, Some(file)) => format!("({file})"),
        (None, None) => String::new(),
    }
}

/// The nodes that a way leads to.
fn targets(to: Option<&RawValue>) -> String {
    let nodes: Vec<String> = to
        .and_then(|to| serde_json::from_str(to.get()).ok())
        .unwrap_or_default();
    in_short(&nodes.join(", "), COMMAND_WIDTH)
}
