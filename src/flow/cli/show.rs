//! `delta-flow show`: a run as a tree of tasks, one task, or one node with all that it was given.
//!
//! Reads the journal and the records of a run. Unaware of how runs go on.

use super::args::ShowArgs;
use super::basis;
use crate::error::{Error, Exit, Result, reason};
use crate::flow::graph::router::FlowStatus;
use crate::flow::graph::{Payload, RoutePlan};
use crate::flow::record::{
    CallCode, Lineage, NodeToolCall, Replay, Roots, StepRecord, TakenBack, TaskRecord, each_line,
    events, tool_calls,
};
use crate::record::event::{EventKind, FlowEvent};
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::runs::origin::warn_if_foreign_run;
use crate::runs::{find, inspect};
use crate::text::amounts::{format_duration, format_millis};
use crate::text::disguise::printable;
use crate::text::ids::RunId;
use crate::text::shorten::in_short;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::terminal::print;
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;

/// Runs the command.
pub(crate) fn show_run(wanted: &ShowArgs) -> Result<Exit> {
    let (run, rest) = find_run(&wanted.work_dir, &wanted.names)?;
    warn_if_foreign_run(&run)?;
    if basis::read_recorded_basis(&run)?.is_none() {
        return Err(basis::not_of_flow(&run, "log", "shows"));
    }
    let lineage = Lineage::read(&run)?;
    let text = match rest {
        [] => printable(&tree_text(&lineage, &run)),
        [task] => printable(&task_text(task, find_task(&lineage, task)?)),
        [task, node, ..] => {
            let text = step_text(&run, task, find_task(&lineage, task)?, node)?;
            match std::io::stdout().is_terminal() {
                true => printable(&text),
                // What a node was given and printed goes into a pipe unchanged.
                false => text,
            }
        }
    };
    print(text.as_bytes())?;
    Ok(Exit::Success)
}

/// The run that is meant, and the names after it. A run need not be named.
pub(super) fn find_run<'n>(work_dir: &Path, names: &'n [String]) -> Result<(RunDir, &'n [String])> {
    let is_task = |name: &str| {
        let digits = name.strip_prefix('T').unwrap_or_default();
        digits.starts_with(|c: char| c.is_ascii_digit())
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
        let known: Vec<&str> = lineage.order.iter().map(String::as_str).take(20).collect();
        let known = known.join(", ");
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

fn step_text(run: &RunDir, id: &str, task: &TaskRecord, node: &str) -> Result<String> {
    let Some(step) = task.steps.iter().rfind(|step| step.node == node) else {
        let known: Vec<&str> = task.steps.iter().map(|step| &*step.node).collect();
        return Err(Error::failure(format!(
            "task {id} has not been at {node}; it was at {}",
            known.join(", ")
        )));
    };
    let mut out = printable(&format!("{id} {node}  {}\n", end_text(task, step)));
    let mut part = |name: &str, text: &str| {
        let text = text.trim_end();
        if !text.is_empty() {
            out.push_str(&format!("--- {name}\n{text}\n"));
        }
    };
    part("denied", &step.denied.join("\n"));
    let end = step.end.as_ref().filter(|end| end.records_removed);
    if let Some(end) = end {
        part("records", "removed: the run keeps those of failures only");
        part("command", step.command.as_deref().unwrap_or_default());
        if let Some((cpu, memory)) = end.used {
            part(
                "usage",
                &format!("{{\"cpu_ms\":{cpu},\"memory_bytes\":{memory}}}"),
            );
        }
    }
    let Some(last) = step.records.last().filter(|_| end.is_none()) else {
        let (input, output) = payloads_of(run, id, node)?;
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
        Some(why) => format!(
            "{name}  {}: {}\n",
            call.code.map_or("ok", CallCode::name),
            in_short(why, 200)
        ),
        None => {
            let took = format_millis(call.duration_ms);
            format!("{name}  ok, {took}\n")
        }
    };
    Ok(tool_calls::read_calls(io)?.into_iter().map(line).collect())
}

/// The text of a record, or why it cannot be shown; empty if it is missing.
fn read_shown(run: &RunDir, record: &Path) -> String {
    match files::read_below(&run.path, record, LARGEST_INPUT) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => format!("({}: {})", record.display(), reason(&e)),
    }
}

fn task_line(id: &str, task: &TaskRecord) -> String {
    let path: Vec<&str> = task.steps.iter().map(|step| &*step.node).collect();
    let status = task.status.as_deref().unwrap_or("open");
    let error = task
        .error
        .as_ref()
        .map_or_else(String::new, |(node, failure)| {
            let text = format!("{node}: {}: {}", failure.code.name(), failure.message);
            format!("  {}", in_short(&text, 200))
        });
    format!("{id}  {status}  {}{error}", path.join(" > "))
}

/// How a node in a task ended, or why it has not.
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
fn payloads_of(run: &RunDir, task: &str, node: &str) -> Result<(Option<Payload>, Option<Payload>)> {
    let past = basis::read_recorded_basis(run)?;
    let flow = past.as_ref().and_then(basis::RecordedBasis::unchanged_flow);
    let start = flow.as_ref().zip(past.as_ref());
    let start = start.and_then(|(flow, past)| flow.graph.find(past.start()));
    let plan = flow.as_ref().zip(start);
    let plan = plan.map(|(flow, start)| RoutePlan::new(&flow.graph, start));
    let taken = TakenBack::read(&run.journal())?;
    let mut replay = plan
        .as_ref()
        .map(|plan| Replay::new(plan, &run.path, taken));
    let mut roots = Roots::new();
    let (mut input, mut output) = (None, None);
    each_line(&run.journal(), true, |line| {
        let is_it = line.task_id.as_deref() == Some(task) && line.node_id.as_deref() == Some(node);
        if is_it && line.kind == EventKind::Flow(FlowEvent::NodeEnd) {
            output = events::read_text(&run.path, line.output, line.output_ref.as_deref())?;
        }
        if let Some(replay) = &mut replay {
            replay.follow(&mut roots, line, |_, _| None)?;
            input = input.take().or_else(|| replay.input_of(&roots, task, node));
        }
        Ok(true)
    })?;
    Ok((input, output))
}
