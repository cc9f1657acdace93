//! The events that only a workflow's run has, a line for each.

use super::{COMMAND_WIDTH, OUTPUT_WIDTH, TimelineEntry};
use crate::record::event::{FlowEvent, Line};
use crate::text::amounts::format_millis;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The entry of the task that an event is about.
fn of_task(line: &Line<'_>) -> TimelineEntry {
    TimelineEntry::new(text(line.task_id.as_ref()))
}

/// The entry of the task and the node that an event is about.
fn at_node(line: &Line<'_>) -> TimelineEntry {
    of_task(line).say(Tone::Said, format!("{} ", text(line.node_id.as_ref())))
}

fn is_failure(line: &Line<'_>) -> bool {
    line.status.as_deref() == Some("failure")
}

/// The entry of an event. Some follow from the start of the run, the ends of nodes and the calls of tools.
pub(super) fn entry(event: FlowEvent, line: &Line<'_>) -> Option<TimelineEntry> {
    match event {
        FlowEvent::TaskCreated => Some(created(line)),
        FlowEvent::NodeStart => start(line),
        FlowEvent::NodeEnd => Some(end(line)),
        FlowEvent::Tool => Some(tool(line)),
        FlowEvent::Route => Some(route(line)),
        FlowEvent::Merge => Some(merge(line)),
        FlowEvent::Winner => Some(winner(line)),
        FlowEvent::Retry => Some(retry_of_run(line)),
        FlowEvent::TaskEnd => Some(task_end(line)),
        FlowEvent::FlowStart | FlowEvent::Policy | FlowEvent::Memory => None,
    }
}

/// The beginning of a node; none if it runs nothing: then its end says enough.
fn start(line: &Line<'_>) -> Option<TimelineEntry> {
    let command = line.resolved_command.as_deref()?;
    let again = match line.attempt.unwrap_or(1) {
        0 | 1 => String::new(),
        attempt => format!("(attempt {attempt}) "),
    };
    let entry = at_node(line).say(Tone::Dim, format!("{again}$ "));
    Some(entry.say(Tone::Command, in_short(command, COMMAND_WIDTH)))
}

/// An attempt at a node that another one follows.
pub(super) fn retry(line: &Line<'_>) -> TimelineEntry {
    at_node(line).say(
        Tone::Bad,
        format!("{}, and is retried", failure_reason(line)),
    )
}

fn tool(line: &Line<'_>) -> TimelineEntry {
    let name = text(line.tool_name.as_ref());
    let entry = at_node(line)
        .say(Tone::Dim, "calls ")
        .say(Tone::Command, format!("{name}  "));
    if is_failure(line) {
        entry.say(Tone::Bad, failure_reason(line))
    } else {
        entry.say(Tone::Good, format!("ok, {}", took(line)))
    }
}

/// The next nodes of a task.
fn route(line: &Line<'_>) -> TimelineEntry {
    let nodes: Vec<String> = line
        .to
        .and_then(|to| serde_json::from_str(to.get()).ok())
        .unwrap_or_default();
    let nodes = in_short(&nodes.join(", "), COMMAND_WIDTH);
    at_node(line).say(Tone::Dim, format!("→ {nodes}"))
}

fn merge(line: &Line<'_>) -> TimelineEntry {
    let (arrived, failed) = (line.arrived.unwrap_or(0), line.failed.unwrap_or(0));
    at_node(line).say(Tone::Dim, format!("merges {arrived}, {failed} failed"))
}

fn winner(line: &Line<'_>) -> TimelineEntry {
    at_node(line).say(Tone::Good, format!("won by {}", text(line.winner.as_ref())))
}

/// The steps that are done again.
fn retry_of_run(line: &Line<'_>) -> TimelineEntry {
    #[derive(serde::Deserialize)]
    struct NamedStep {
        task_id: String,
        node_id: String,
    }
    let steps = line.steps.map(|steps| serde_json::from_str(steps.get()));
    let steps: Vec<NamedStep> = steps.and_then(Result::ok).unwrap_or_default();
    let names = steps
        .iter()
        .map(|step| format!("{} of {}", step.node_id, step.task_id));
    let names = names.collect::<Vec<_>>().join(", ");
    TimelineEntry::new("retry").say(Tone::Said, in_short(&names, COMMAND_WIDTH))
}

fn task_end(line: &Line<'_>) -> TimelineEntry {
    if is_failure(line) {
        return of_task(line).say(Tone::Bad, format!("failure: {}", failure_reason(line)));
    }
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
    of_task(line).say(tone, status).say(Tone::Dim, place)
}

fn text(from: Option<&Cow<'_, str>>) -> String {
    from.map_or_else(|| "?".to_owned(), ToString::to_string)
}

/// Why something is no success. A task that ends in an exit that always fails has no reason of its own.
fn failure_reason(line: &Line<'_>) -> String {
    match (&line.code, &line.exit_node) {
        (None, Some(node)) => format!("at {node}"),
        (code, _) => {
            let (code, message) = (text(code.as_ref()), text(line.message.as_ref()));
            in_short(&format!("{code}: {message}"), COMMAND_WIDTH)
        }
    }
}

fn took(line: &Line<'_>) -> String {
    format_millis(line.duration_ms.unwrap_or(0))
}

fn created(line: &Line<'_>) -> TimelineEntry {
    let entry = of_task(line);
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

fn end(line: &Line<'_>) -> TimelineEntry {
    let entry = at_node(line);
    if is_failure(line) {
        return entry.say(Tone::Bad, failure_reason(line));
    }
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
