//! The events that only a workflow's run has, a line for each.

use super::{COMMAND_WIDTH, OUTPUT_WIDTH, TimelineEntry};
use crate::record::event::flow::{NodeEnd, NodeStart, TaskCreated, TaskEnd, Tool};
use crate::record::event::recorded::Error;
use crate::record::event::{Line, Raw, Recorded, Text};
use crate::text::amounts::format_millis;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

/// The entry of the task that an event is about.
fn of_task(line: &Line<'_>) -> TimelineEntry {
    TimelineEntry::new(text(&line.task_id))
}

/// The entry of the task and the node that an event is about.
fn at_node(line: &Line<'_>) -> TimelineEntry {
    of_task(line).say(Tone::Said, format!("{} ", text(&line.node_id)))
}

/// The entry of an event. Some follow from the start of the run, the ends of nodes and the calls of tools.
pub(super) fn entry(line: &Line<'_>) -> Option<TimelineEntry> {
    Some(match &line.event {
        Recorded::TaskCreated(task) => created(line, task),
        Recorded::NodeStart(start) => return begin(line, start),
        Recorded::NodeEnd(end) => node_end(line, end),
        Recorded::Tool(call) => tool(line, call),
        Recorded::Route(route) => {
            let nodes: Vec<String> = route.to.read_or_default();
            let nodes = in_short(&nodes.join(", "), COMMAND_WIDTH);
            at_node(line).say(Tone::Dim, format!("→ {nodes}"))
        }
        Recorded::Merge(merge) => {
            let [arrived, failed] = [merge.arrived, merge.failed].map(|it| it.get().unwrap_or("0"));
            at_node(line).say(Tone::Dim, format!("merges {arrived}, {failed} failed"))
        }
        Recorded::Winner(won) => {
            at_node(line).say(Tone::Good, format!("won by {}", text(&won.winner)))
        }
        Recorded::Retry(retry) => retry_of_run(retry.steps),
        Recorded::TaskEnd(end) => task_end(line, end),
        _ => return None,
    })
}

/// The beginning of a node; none if it runs nothing: then its end says enough.
fn begin(line: &Line<'_>, start: &NodeStart<'_>) -> Option<TimelineEntry> {
    let command = start.resolved_command.get()?;
    let again = match start.attempt.unwrap_or(1) {
        0 | 1 => String::new(),
        attempt => format!("(attempt {attempt}) "),
    };
    Some(
        at_node(line)
            .say(Tone::Dim, format!("{again}$ "))
            .say(Tone::Command, in_short(command, COMMAND_WIDTH)),
    )
}

/// An attempt at a node that another one follows.
pub(super) fn retry(line: &Line<'_>, error: &Error<'_>) -> TimelineEntry {
    let reason = failure_reason(&error.code, &error.message);
    at_node(line).say(Tone::Bad, format!("{reason}, and is retried"))
}

fn tool(line: &Line<'_>, call: &Tool<'_>) -> TimelineEntry {
    let entry = at_node(line)
        .say(Tone::Dim, "calls ")
        .say(Tone::Command, format!("{}  ", text(&call.tool_name)));
    if &*call.status == "failure" {
        entry.say(Tone::Bad, failure_reason(&call.code, &call.message))
    } else {
        entry.say(Tone::Good, format!("ok, {}", took(call.duration_ms)))
    }
}

/// The steps that are done again.
fn retry_of_run(steps: Raw<'_>) -> TimelineEntry {
    #[derive(serde::Deserialize)]
    struct NamedStep {
        task_id: String,
        node_id: String,
    }
    let steps: Vec<NamedStep> = steps.read_or_default();
    let names = steps
        .iter()
        .map(|step| format!("{} of {}", step.node_id, step.task_id))
        .collect::<Vec<_>>()
        .join(", ");
    TimelineEntry::new("retry").say(Tone::Said, in_short(&names, COMMAND_WIDTH))
}

fn task_end(line: &Line<'_>, end: &TaskEnd<'_>) -> TimelineEntry {
    let exit = end.exit_node.get();
    if end.has_failed() {
        // A task that ends in an exit that always fails has no reason of its own.
        let reason = match exit.filter(|_| !end.code.is_some()) {
            Some(node) => format!("at {node}"),
            None => failure_reason(&end.code, &end.message),
        };
        return of_task(line).say(Tone::Bad, format!("failure: {reason}"));
    }
    let status = text(&end.status);
    let tone = match status {
        "success" => Tone::Good,
        _ => Tone::Bad,
    };
    let place = match (exit, end.merged_at.get()) {
        (Some(node), _) => format!(" at {node}"),
        (None, Some(node)) => format!(", merged at {node}"),
        (None, None) => String::new(),
    };
    of_task(line).say(tone, status).say(Tone::Dim, place)
}

fn text<'t>(from: &'t Text<'_>) -> &'t str {
    from.get().unwrap_or("?")
}

/// Reason why something is no success.
fn failure_reason(code: &Text<'_>, message: &Text<'_>) -> String {
    in_short(&format!("{}: {}", text(code), text(message)), COMMAND_WIDTH)
}

fn took(duration_ms: Option<u64>) -> String {
    format_millis(duration_ms.unwrap_or(0))
}

fn created(line: &Line<'_>, task: &TaskCreated<'_>) -> TimelineEntry {
    let entry = of_task(line);
    match task.parent_id.get() {
        Some(parent) => {
            let edge = text(&line.edge);
            entry.say(Tone::Dim, format!("from {parent} along {edge}"))
        }
        None => entry
            .say(Tone::Dim, "begins with ")
            .say(Tone::Said, value(task.input.0, &task.input_ref)),
    }
}

fn node_end(line: &Line<'_>, end: &NodeEnd<'_>) -> TimelineEntry {
    let entry = at_node(line);
    if end.has_failed() {
        return entry.say(Tone::Bad, failure_reason(&end.code, &end.message));
    }
    let how = match (end.cached, end.memory_bytes) {
        (Some(true), _) => "ok, cached".to_owned(),
        (_, Some(bytes)) => format!("ok, {}, {} MiB", took(end.duration_ms), bytes >> 20),
        (_, None) => "ok".to_owned(),
    };
    let output = match value(end.output.0, &end.output_ref) {
        text if text.is_empty() => text,
        text => format!("  {text}"),
    };
    entry.say(Tone::Good, how).say(Tone::Dim, output)
}

/// A JSON value in short, or where it is; nothing if it is what came in.
fn value(json: Raw<'_>, file: &Text<'_>) -> String {
    match (json.get(), file.get()) {
        (Some(json), _) => in_short(json, OUTPUT_WIDTH),
        (None, Some(file)) => format!("({file})"),
        (None, None) => String::new(),
    }
}
