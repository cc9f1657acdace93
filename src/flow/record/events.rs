//! The events of a workflow's run: how each is written into the journal, and how it is read back.
//!
//! Unaware of what they add up to. Beside these, a run has the events that all runs have:
//! `ENGINE_START`, `SYSTEM_MESSAGE`, `ERROR`, `ENGINE_END` ([`crate::record::event`]).
//!
//! Architecture invariant: an output stands in the journal as the JSON text that it is, or, if it is
//! large, in a file that was made durable before the line that names it.

mod denied;

pub(crate) use denied::policy;

use super::tool_calls::NodeToolCall;
use crate::error::{At, Result};
use crate::flow::graph::choice::{Failure, FailureCode, Payload};
use crate::flow::graph::router::{TaskKind, TaskView};
use crate::flow::graph::topology::{EdgeIx, Graph, NodeIx};
use crate::record::event::EventKind;
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::Used;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

/// Longer JSON texts stand in files of their own.
pub(crate) const INLINE: usize = 64 << 10;

/// Which step an event is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'e> {
    /// The task's id.
    pub task: &'e str,
    /// The node.
    pub node: NodeIx,
    /// The edge by which the task came. Only an exit with several ways in needs it to be told.
    pub edge: Option<EdgeIx>,
}

/// The beginning of a step, or of another attempt at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeStart<'e> {
    /// From 1.
    pub attempt: u32,
    /// `DELTA_CALL_ID` of its processes; none if it has none.
    pub call_id: Option<&'e str>,
    /// Its directory, from the run's directory.
    pub execution_ref: Option<&'e str>,
    /// The command on one line.
    pub command: Option<&'e str>,
}

/// Where the output of a step is.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// It is what the step was given, or what a merge makes of that.
    Identity,
    /// Here.
    Text(Payload),
    /// In a file, from the run's directory.
    File(String),
}

/// The end of a step.
#[derive(Clone, Debug)]
pub(crate) struct NodeEnd {
    /// The output, or why there is none.
    pub outcome: std::result::Result<Output, Failure>,
    /// From the start of the last attempt.
    pub duration: Duration,
    /// What its processes used.
    pub used: Option<Used>,
    /// It was not run: the output was known.
    pub cached: bool,
}

/// The name of an edge.
pub(crate) fn edge_name(graph: &Graph, edge: EdgeIx) -> String {
    let edge = &graph.edges[edge];
    let id = |node: NodeIx| &graph.nodes[node].id;
    format!("{}>{}", id(edge.from), id(edge.to))
}

fn about(line: &mut Object<'_>, graph: &Graph, about: About<'_>) {
    line.put("task_id", about.task)
        .put("node_id", &graph.nodes[about.node].id);
    if let Some(edge) = about.edge
        && graph.incoming(about.node).len() > 1
    {
        line.put("edge", &edge_name(graph, edge));
    }
}

/// A task has come to be. Of a root, with its input or the file that has it.
pub(crate) fn task_created(
    journal: &mut Journal,
    graph: &Graph,
    view: &TaskView<'_>,
    input: Option<&Output>,
) {
    journal.add_line(&EventKind::TaskCreated, |line| {
        line.put("task_id", view.id)
            .put("parent_id", &view.parent)
            .put("kind", kind_name(view.kind))
            .put("index", &view.index);
        if let Some(edge) = view.edge {
            line.put("edge", &edge_name(graph, edge));
        }
        if let Some(input) = input {
            put_input(line, input);
        }
    });
}

/// Says what something was given, or which file has it.
pub(crate) fn put_input(line: &mut Object<'_>, input: &Output) {
    match input {
        Output::Text(text) => {
            line.raw("input", text.as_bytes());
        }
        Output::File(path) => {
            line.put("input_ref", path);
        }
        Output::Identity => {}
    }
}

/// The file that has the input of a root task, if the journal has no room for it.
pub(crate) fn input_name(number: usize) -> String {
    format!("io/input-{number}.json")
}

/// As it stands in files.
pub(crate) fn kind_name(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Root => "root",
        TaskKind::Clone => "clone",
        TaskKind::Subtask => "subtask",
    }
}

/// A step begins.
pub(crate) fn node_start(
    journal: &mut Journal,
    graph: &Graph,
    step: About<'_>,
    start: NodeStart<'_>,
) {
    journal.add_line(&EventKind::NodeStart, |line| {
        about(line, graph, step);
        line.put("attempt", &start.attempt);
        for (key, value) in [
            ("call_id", start.call_id),
            ("execution_ref", start.execution_ref),
            ("resolved_command", start.command),
        ] {
            if let Some(value) = value {
                line.put(key, value);
            }
        }
    });
}

/// A step has ended. Returns when.
pub(crate) fn node_end(
    journal: &mut Journal,
    graph: &Graph,
    step: About<'_>,
    end: &NodeEnd,
) -> Timestamp {
    journal.add_line(&EventKind::NodeEnd, |line| {
        about(line, graph, step);
        line.put("status", status_of(end))
            .put("duration_ms", &(end.duration.as_millis() as u64));
        if let Some(used) = end.used {
            line.put("cpu_ms", &(used.cpu.as_millis() as u64))
                .put("memory_bytes", &used.memory);
        }
        if end.cached {
            line.put("cached", &true);
        }
        match &end.outcome {
            Ok(Output::Identity) => {}
            Ok(Output::Text(text)) => {
                line.raw("output", text.as_bytes());
            }
            Ok(Output::File(path)) => {
                line.put("output_ref", path);
            }
            Err(failure) => {
                failed(line, failure);
            }
        }
    })
}

fn status_of(end: &NodeEnd) -> &'static str {
    match &end.outcome {
        Ok(_) => "success",
        Err(_) => "failure",
    }
}

fn failed(line: &mut Object<'_>, failure: &Failure) {
    line.put("code", failure.code.name())
        .put("message", &*failure.message);
}

/// A program has called a tool, and this came of it.
pub(crate) fn tool(
    journal: &mut Journal,
    graph: &Graph,
    step: About<'_>,
    execution_ref: &str,
    call: &NodeToolCall,
) {
    journal.add_line(&EventKind::Tool, |line| {
        about(line, graph, step);
        line.put("tool_name", &call.tool_name)
            .put("call_id", &call.call_id)
            .put("status", call.status());
        if let Some(code) = &call.code {
            line.put("code", code).put("message", &call.message);
        }
        line.put("exit_code", &call.exit_code)
            .put("duration_ms", &call.duration_ms)
            .put("resolved_command", &call.resolved_command)
            .put("execution_ref", execution_ref);
    });
}

/// An attempt failed, and another one follows.
pub(crate) fn attempt_failed(
    journal: &mut Journal,
    graph: &Graph,
    step: About<'_>,
    failure: &Failure,
) {
    journal.add_line(&EventKind::Error, |line| {
        about(line, graph, step);
        failed(line, failure);
        let text = format!(
            "{}, and is tried again: {}",
            failure.code.name(),
            failure.message
        );
        line.put("error_message", &text).raw("error_details", b"{}");
    });
}

/// A task went on.
pub(crate) fn route(
    journal: &mut Journal,
    graph: &Graph,
    task: &str,
    node: NodeIx,
    edges: &[EdgeIx],
) {
    journal.add_line(&EventKind::Route, |line| {
        let targets = edges
            .iter()
            .map(|edge| &graph.nodes[graph.edges[*edge].to].id);
        let targets: Vec<&String> = targets.collect();
        line.put("task_id", task)
            .put("node_id", &graph.nodes[node].id)
            .put("to", &targets);
        if let [edge] = edges
            && let Some(label) = &graph.edges[*edge].label
        {
            line.put("label", label);
        }
    });
}

/// A merge has gathered so many arrivals and failures.
pub(crate) fn merge(
    journal: &mut Journal,
    graph: &Graph,
    (task, node): (&str, NodeIx),
    (arrived, failed): (usize, usize),
) {
    journal.add_line(&EventKind::Merge, |line| {
        line.put("task_id", task)
            .put("node_id", &graph.nodes[node].id)
            .put("arrived", &arrived)
            .put("failed", &failed);
    });
}

/// A task has ended.
pub(crate) fn task_end(journal: &mut Journal, graph: &Graph, view: &TaskView<'_>) {
    journal.add_line(&EventKind::TaskEnd, |line| {
        line.put("task_id", view.id)
            .put("status", view.status.name());
        for (key, node) in [("exit_node", view.exit), ("merged_at", view.merged_at)] {
            if let Some(node) = node {
                line.put(key, &graph.nodes[node].id);
            }
        }
        if let Some((node, failure)) = &view.error {
            line.put("node_id", &graph.nodes[*node].id);
            failed(line, failure);
        }
    });
}

/// A step is not begun, because a person wanted to look first.
pub(crate) fn paused(journal: &mut Journal, graph: &Graph, step: About<'_>) {
    journal.add_line(&EventKind::SystemMessage, |line| {
        about(line, graph, step);
        let node = &graph.nodes[step.node].id;
        let text = format!("paused before {node} of {}", step.task);
        line.put("paused", &true)
            .put("level", "INFO")
            .put("content", &text);
    });
}

/// Puts a JSON text where it belongs: into the line, or into a durable file of this name in the run's
/// directory.
pub(crate) fn kept(run: &Path, name: &str, text: &Payload) -> Result<Output> {
    if text.len() <= INLINE {
        return Ok(Output::Text(text.clone()));
    }
    let path = run.join(name);
    let file = match File::open(&path) {
        Ok(file) if std::fs::read(&path).is_ok_and(|there| there == text.as_bytes()) => file,
        _ => {
            files::remove(&path)?;
            files::write(&path, text.as_bytes())?;
            File::open(&path).at("open", &path)?
        }
    };
    file.sync_data().at("sync", &path)?;
    Ok(Output::File(name.to_owned()))
}

/// A line as it is read back. Fields that nobody here knows are passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FlowLine<'l> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'l, str>,
    pub seq: u64,
    #[serde(borrow)]
    pub timestamp: Cow<'l, str>,
    #[serde(borrow)]
    pub task_id: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub parent_id: Option<Cow<'l, str>>,
    pub index: usize,
    #[serde(borrow)]
    pub node_id: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub edge: Option<Cow<'l, str>>,
    pub attempt: u32,
    #[serde(borrow)]
    pub call_id: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub execution_ref: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub status: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub code: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub message: Option<Cow<'l, str>>,
    #[serde(borrow, deserialize_with = "present")]
    pub output: Option<&'l RawValue>,
    #[serde(borrow)]
    pub output_ref: Option<Cow<'l, str>>,
    #[serde(borrow, deserialize_with = "present")]
    pub input: Option<&'l RawValue>,
    #[serde(borrow)]
    pub input_ref: Option<Cow<'l, str>>,
    pub duration_ms: u64,
    pub cached: bool,
    #[serde(borrow)]
    pub target: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub target_id: Option<Cow<'l, str>>,
    pub paused: bool,
    #[serde(borrow)]
    pub item_id: Option<Cow<'l, str>>,
    #[serde(borrow)]
    pub flow: Option<&'l RawValue>,
}

/// A value that is there, even if it is null.
fn present<'de: 'l, 'l, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<&'l RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

impl FlowLine<'_> {
    /// The failure that an end tells of.
    pub(crate) fn failure(&self) -> Failure {
        let code = self.code.as_deref().and_then(FailureCode::parse);
        let message = self.message.as_deref().unwrap_or_default();
        Failure::new(code.unwrap_or(FailureCode::Operation), message)
    }
}

/// Reads back what [`kept`] has put somewhere. None if the line has none.
pub(crate) fn read_back(
    run: &Path,
    text: Option<&RawValue>,
    file: Option<&str>,
) -> Result<Option<Payload>> {
    if let Some(text) = text {
        return Ok(Some(text.get().into()));
    }
    let Some(name) = file else { return Ok(None) };
    let path = run.join(name);
    let text = std::fs::read_to_string(&path).at("read", &path)?;
    Ok(Some(text.into()))
}

/// Calls something with each line of a journal, until it has enough.
pub(crate) fn each_line(
    run: &RunDir,
    mut with: impl FnMut(&FlowLine<'_>) -> Result<bool>,
) -> Result<()> {
    let path = run.journal();
    let mut reader = BufReader::new(File::open(&path).at("read", &path)?);
    let mut text = String::new();
    while {
        text.clear();
        reader.read_line(&mut text).at("read", &path)? > 0
    } {
        // The last line of a live run may be half there.
        if let Ok(line) = serde_json::from_str::<FlowLine<'_>>(&text)
            && !with(&line)?
        {
            break;
        }
    }
    Ok(())
}
