//! `delta-flow show`: a run as a tree of tasks, one task, or one node with all that it was given.
//!
//! Reads the journal and the records of a run. Unaware of how runs go on.

use super::basis;
use crate::error::{At, Error, Exit, Result, reason};
use crate::flow::graph::router::FlowStatus;
use crate::flow::graph::{Payload, RoutePlan};
use crate::flow::record::{
    CallCode, Lineage, NodeToolCall, RecordedBasis, Replay, Retries, Roots, StepRecord, TaskRecord,
    each_line, events, tool_calls,
};
use crate::record::event::Recorded;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::runs::{find, inspect};
use crate::text::amounts::{format_duration, format_millis};
use crate::text::disguise::printable;
use crate::text::ids::RunId;
use crate::text::shorten::in_short;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::terminal::print;
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;

/// Shows what the names mean: a run, a task, a node, of which each may be left out from the end, the run also from
/// the beginning.
pub(crate) fn show_run(work_dir: &Path, names: &[String]) -> Result<Exit> {
    let (run, rest) = find_run(work_dir, names)?;
    let past = basis::shown_basis(&run, Some("log"))?;
    let lineage = Lineage::read(&run)?;
    let text = match rest {
        [] => printable(&tree_text(&lineage, &run)),
        [task] => printable(&task_text(task, find_task(&lineage, task)?)),
        [task, node, ..] => {
            let text = step_text(&run, &past, task, find_task(&lineage, task)?, node)?;
            // What a node was given and printed goes into a pipe unchanged.
            if std::io::stdout().is_terminal() {
                printable(&text)
            } else {
                text
            }
        }
    };
    print(text.as_bytes())?;
    Ok(Exit::Success)
}

/// The run that is meant, and the names after it. A run need not be named.
pub(super) fn find_run<'n>(work_dir: &Path, names: &'n [String]) -> Result<(RunDir, &'n [String])> {
    let is_task = |name: &str| {
        let digits = name.strip_prefix('T');
        digits.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_run = |name: &str| match (find::open_workspace(work_dir), RunId::parse(name)) {
        (Ok(workspace), Ok(id)) => workspace.run_path(&id).is_dir(),
        _ => false,
    };
    match names {
        [first, rest @ ..] if !is_task(first) || is_run(first) => {
            Ok((find::find_run(work_dir, first)?, rest))
        }
        names => Ok((find::find_run_or_newest(work_dir, None)?, names)),
    }
}

/// Deeper tasks are not indented further.
const DEEPEST: usize = 40;

fn tree_text(lineage: &Lineage, run: &RunDir) -> String {
    let (metadata, _) = inspect::read_summary(run);
    let mut out = format!("run {}  {}", run.id, metadata.status.name());
    // Not all of what it was to do was done.
    let partial = FlowStatus::Partial.name();
    if metadata.status == Status::Completed && metadata.stop_reason.as_deref() == Some(partial) {
        out.push_str(&format!(", {partial}"));
    }
    if let Some(error) = &metadata.error {
        out.push_str(&format!(": {}", in_short(error, 200)));
    }
    out.push('\n');
    for id in &lineage.order {
        let indent = 2 * (id.matches('.').count() + 1).min(DEEPEST);
        let line = task_line(id, &lineage.tasks[id]);
        out.push_str(&format!("{:indent$}{line}\n", ""));
    }
    out
}

fn find_task<'l>(lineage: &'l Lineage, id: &str) -> Result<&'l TaskRecord> {
    lineage.tasks.get(id).ok_or_else(|| {
        let first = &lineage.order[..lineage.order.len().min(20)];
        let known = first.join(", ");
        Error::failure(format!("there is no task {id}; the tasks are {known}"))
    })
}

fn task_text(id: &str, task: &TaskRecord) -> String {
    let mut out = format!("{}\n", task_line(id, task));
    if let Some(parent) = &task.parent {
        let edge = task.edge.as_deref().unwrap_or("?");
        out.push_str(&format!("of {parent}, along {edge}\n"));
    }
    for step in &task.steps {
        out.push_str(&format!("  {}  {}\n", step.node, end_text(task, step)));
    }
    out
}

fn step_text(
    run: &RunDir,
    past: &RecordedBasis,
    id: &str,
    task: &TaskRecord,
    node: &str,
) -> Result<String> {
    let Some(step) = task.steps.iter().rfind(|step| step.node == node) else {
        let known: Vec<&str> = task.steps.iter().map(|step| &*step.node).collect();
        return Err(Error::failure(format!(
            "task {id} has not been at {node}; it was at {}",
            known.join(", ")
        )));
    };
    let mut out = printable(&format!("{id} {node}  {}\n", end_text(task, step)));
    let mut part = |name: &str, text: &str| {
        let shown = text.trim_end();
        if !shown.is_empty() {
            out.push_str(&format!("--- {name}\n{shown}\n"));
        }
    };
    part("denied", &step.denied.join("\n"));
    let end = step.end.as_ref().filter(|end| end.records_removed);
    if let Some(end) = end {
        part("records", "removed: the run keeps those of failures only");
        part("command", step.command.as_deref().unwrap_or_default());
        if let Some((cpu, memory)) = end.used {
            let usage = json!({"cpu_ms": cpu, "memory_bytes": memory});
            part("usage", &usage.to_string());
        }
    }
    let Some(last) = step.records.last().filter(|_| end.is_none()) else {
        let (input, output) = payloads_of(run, past, id, node)?;
        part("input", input.as_deref().unwrap_or_default());
        if step.end.as_ref().is_some_and(|end| end.failure.is_none()) {
            part("output", output.as_deref().unwrap_or("the input, as it is"));
        }
        return Ok(out);
    };
    for records in &step.records {
        part("records", &run.path.join(records).to_string_lossy());
    }
    let dir = Path::new(last);
    for (name, file) in [
        ("command", "command.txt"),
        ("input", "input.json"),
        ("context", "context.json"),
        ("said", "stderr.log"),
        ("output", "output.json"),
        ("usage", "usage.json"),
    ] {
        part(name, &read_shown(run, &dir.join(file)));
    }
    if files::is_dir_below(&run.path, &dir.join(tool_calls::DIR)) {
        part("tools", &tool_lines(&run.path.join(dir))?);
    }
    Ok(out)
}

/// The tools that an attempt has called, a line each.
fn tool_lines(io: &Path) -> Result<String> {
    let line = |(name, call): (String, NodeToolCall)| match &call.message {
        Some(why) => {
            let code = call.code.map_or("ok", CallCode::name);
            format!("{name}  {code}: {}\n", in_short(why, 200))
        }
        None => format!("{name}  ok, {}\n", format_millis(call.duration_ms)),
    };
    Ok(tool_calls::read_calls(io)?.into_iter().map(line).collect())
}

/// The text of a record, or why it cannot be shown; empty if it is missing.
fn read_shown(run: &RunDir, record: &Path) -> String {
    match files::read_below(&run.path, record, LARGEST_INPUT).if_there() {
        Ok(bytes) => String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned(),
        Err(e) => format!("({}: {})", record.display(), reason(&e)),
    }
}

fn task_line(id: &str, task: &TaskRecord) -> String {
    let path: Vec<&str> = task.steps.iter().map(|step| &*step.node).collect();
    let status = task.status.as_deref().unwrap_or("open");
    let mut line = format!("{id}  {status}  {}", path.join(" > "));
    if let Some((node, failure)) = &task.error {
        let text = format!("{node}: {}: {}", failure.code.name(), failure.message);
        line.push_str(&format!("  {}", in_short(&text, 200)));
    }
    line
}

/// The end of a node in a task, or the reason for its absence.
fn end_text(task: &TaskRecord, step: &StepRecord) -> String {
    match (&step.end, &task.status) {
        (Some(end), _) => match &end.failure {
            Some(failure) => {
                let message = in_short(&failure.message, usize::MAX);
                format!("{}: {message}", failure.code.name())
            }
            None if end.cached => "ok, cached".to_owned(),
            None => format!("ok, {}", format_duration(end.duration)),
        },
        (None, Some(_)) => "cancelled".to_owned(),
        (None, None) if let Some(deferred) = &step.deferred => {
            let (handle, due_at) = (&deferred.state.handle, deferred.state.due_at);
            format!("waits for {handle}; next look at {due_at}")
        }
        (None, None) => match step.attempts.due_at {
            Some(due_at) => format!("waits until {due_at}"),
            None => "running, or interrupted".to_owned(),
        },
    }
}

/// The input and the output of a node that keeps no records. The input is found by routing again, if the
/// flow is still there as it was.
fn payloads_of(
    run: &RunDir,
    past: &RecordedBasis,
    task: &str,
    node: &str,
) -> Result<(Option<Payload>, Option<Payload>)> {
    let flow = past.unchanged_flow();
    let plan = flow.as_ref().and_then(|flow| {
        let start = flow.graph.find(&past.start)?;
        Some(RoutePlan::new(&flow.graph, start))
    });
    let retries = Retries::read(&run.journal())?;
    let mut replay = plan
        .as_ref()
        .map(|plan| Replay::new(plan, &run.path, retries));
    let mut roots = Roots::new();
    let (mut input, mut output) = (None, None);
    each_line(&run.journal(), true, |line| {
        let is_it = line.task_id.get() == Some(task) && line.node_id.get() == Some(node);
        if let Recorded::NodeEnd(end) = &line.event
            && is_it
        {
            output = events::read_text(&run.path, end.output.0, &end.output_ref)?;
        }
        if let Some(replay) = &mut replay {
            replay.follow(&mut roots, line, |_, _| None)?;
            input = input.take().or_else(|| replay.input_of(&roots, task, node));
        }
        Ok(true)
    })?;
    Ok((input, output))
}
