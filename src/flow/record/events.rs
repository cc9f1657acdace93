//! The events of a workflow's run: how each is written into the journal, and how outputs are read back.
//!
//! Unaware of what they add up to. Beside these, a run has the events that all runs have:
//! `ENGINE_START`, `SYSTEM_MESSAGE`, `ERROR`, `ENGINE_END` ([`crate::record::event`]).
//!
//! Architecture invariant: an output is in the journal as its JSON text, or, if it is
//! large, in a file that was made durable before the line that names it.

use super::made_files::MadeFile;
use super::tool_calls::NodeToolCall;
use crate::error::{At, Error, Result, reason};
use crate::flow::graph::{
    EdgeIx, Effect, Failure, FailureCode, FlowStatus, Graph, NodeIx, Payload, Router, StepRef,
    TaskKind, TaskView,
};
use crate::flow::manifest::policy::Denied;
use crate::record::engine_log::Level;
use crate::record::event::{EventKind, FlowEvent, Line, Raw, Text, flow};
use crate::record::journal::Journal;
use crate::record::reader::{self, Damage, JournalReader, JournalSource, Next};
use crate::record::recording::unreadable;
use crate::record::state::Unreadable;
use crate::text::ids::RunId;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::Used;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer JSON texts, in bytes, get files of their own.
pub(crate) const INLINE: usize = 64 << 10;

/// The beginning of a step, or of another attempt at it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeStart<'e> {
    /// From 1.
    pub attempt: u32,
    /// `DELTA_CALL_ID` of its processes; none if it has none.
    pub call_id: Option<&'e str>,
    /// The directory of records, from the run's directory.
    pub execution_ref: Option<&'e str>,
    /// On one line.
    pub command: Option<&'e str>,
    /// The run that the step goes on with.
    pub own_run: Option<&'e OwnRun>,
    /// The end of its wait.
    pub due_at: Option<Timestamp>,
}

/// The run of an earlier step that a step goes on with, because a retry begins it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnRun {
    pub id: RunId,
    /// The number of retries in its journal when the step's own retry began.
    pub retries: u64,
}

/// The place of a step's output.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// The output is what the step was given, or what a merge makes of that.
    Identity,
    Text(Payload),
    /// In a file, from the run's directory.
    File(String),
}

/// The input of a root task.
#[derive(Clone, Debug)]
pub(crate) struct RootInput {
    pub kept: Output,
    /// The reason why it fails at its start.
    pub fault: Option<String>,
}

/// The end of an attempt, beside its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptEnd {
    /// The directory of records; none of a step that ran nothing.
    pub io: Option<PathBuf>,
    /// From the start of the last attempt.
    pub duration: Duration,
    /// By its processes.
    pub used: Option<Used>,
    /// Nothing was run: the output was known.
    pub cached: bool,
    /// The output is what the step was given.
    pub identity: bool,
    /// The files that it made.
    pub made: Vec<MadeFile>,
    /// The output is partial.
    pub partial: bool,
    /// True if the records do not stay.
    pub records_removed: bool,
    /// The records of the look that has found the end, from the run's directory.
    pub look_ref: Option<String>,
}

impl AttemptEnd {
    /// The size of the context that it was given, if it ran something.
    fn context_bytes(&self) -> Option<u64> {
        let meta = self.io.as_ref()?.join("context.json").metadata();
        Some(meta.map_or(0, |meta| meta.len()))
    }
}

/// The journal of a run, as its engine writes it.
pub(crate) struct EventWriter<'g> {
    pub journal: Journal,
    pub graph: &'g Graph,
}

impl EventWriter<'_> {
    /// Adds an event about a step.
    fn add_step_event(
        &mut self,
        kind: impl Into<EventKind<'static>>,
        step: &StepRef,
        write: impl FnOnce(&mut Object<'_>),
    ) -> Timestamp {
        let graph = self.graph;
        self.journal.add_line(kind, |line| {
            line.put("task_id", &*step.task)
                .put("node_id", &graph.nodes[step.node].id)
                .put_some("edge", edge_told(graph, step).as_ref());
            write(line);
        })
    }

    /// Adds what a router reports. `input` is that of a new root.
    pub(crate) fn add_effect(
        &mut self,
        router: &Router<'_>,
        effect: &Effect,
        input: Option<&RootInput>,
    ) {
        let graph = self.graph;
        let id = |node: NodeIx| &graph.nodes[node].id;
        match effect {
            Effect::Created(task) => self.add_task(&router.view(*task), input),
            Effect::Routed(task, node, edges) => self.add_route(router.id(*task), *node, edges),
            Effect::Merged(task, node, (arrived, failed)) => {
                self.journal.add_line(FlowEvent::Merge, |line| {
                    line.put("task_id", router.id(*task))
                        .put("node_id", id(*node))
                        .put("arrived", arrived)
                        .put("failed", failed);
                });
            }
            Effect::Won(task, node, winner) => {
                self.journal.add_line(FlowEvent::Winner, |line| {
                    line.put("task_id", router.id(*task))
                        .put("node_id", id(*node))
                        .put("winner", router.id(*winner));
                });
            }
            Effect::Ended(task) => self.add_task_end(&router.view(*task)),
            Effect::Start(_) | Effect::Cancel(_) => {}
        }
    }

    fn add_task(&mut self, view: &TaskView<'_>, input: Option<&RootInput>) {
        let graph = self.graph;
        self.journal.add_line(FlowEvent::TaskCreated, |line| {
            line.put("task_id", view.id)
                .put("parent_id", &view.parent)
                .put("kind", view.kind.name())
                .put("index", &view.index)
                .put_some("edge", view.edge.map(|it| edge_name(graph, it)).as_ref());
            if let Some(input) = input.filter(|_| view.kind == TaskKind::Root) {
                put_input(line, &input.kept);
                line.put_some("input_error", input.fault.as_ref());
            }
        });
    }

    fn add_route(&mut self, task: &str, node: NodeIx, edges: &[EdgeIx]) {
        let graph = self.graph;
        self.journal.add_line(FlowEvent::Route, |line| {
            let target = |edge: &EdgeIx| &graph.nodes[graph.edges[*edge].to].id;
            line.put("task_id", task)
                .put("node_id", &graph.nodes[node].id)
                .put("to", &edges.iter().map(target).collect::<Vec<_>>());
            if let [edge] = edges {
                line.put_some("label", graph.edges[*edge].label.as_ref());
            }
        });
    }

    fn add_task_end(&mut self, view: &TaskView<'_>) {
        let graph = self.graph;
        self.journal.add_line(FlowEvent::TaskEnd, |line| {
            let id = |node: NodeIx| &graph.nodes[node].id;
            line.put("task_id", view.id)
                .put("status", view.status.name())
                .put_some("exit_node", view.exit.map(id))
                .put_some("merged_at", view.merged_at.map(id));
            if let Some((node, failure)) = &view.error {
                line.put("node_id", id(*node));
                put_failure(line, failure);
            }
        });
    }

    pub(crate) fn add_node_start(&mut self, step: &StepRef, start: NodeStart<'_>) {
        self.add_step_event(FlowEvent::NodeStart, step, |line| {
            let due_at = start.due_at.map(|due_at| due_at.to_string());
            line.put("attempt", &start.attempt)
                .put_some("call_id", start.call_id)
                .put_some("execution_ref", start.execution_ref)
                .put_some("resolved_command", start.command)
                .put_some("own_run", start.own_run.map(|own| own.id.as_str()))
                .put_some("own_retry", start.own_run.map(|own| &own.retries))
                .put_some("due_at", due_at.as_ref());
        });
    }

    /// Returns the time of the end.
    pub(crate) fn add_node_end(
        &mut self,
        step: &StepRef,
        outcome: &std::result::Result<Output, Failure>,
        end: &AttemptEnd,
    ) -> Timestamp {
        self.add_step_event(FlowEvent::NodeEnd, step, |line| {
            let status = match outcome {
                Ok(_) if end.partial => FlowStatus::Partial,
                Ok(_) => FlowStatus::Success,
                Err(_) => FlowStatus::Failure,
            };
            line.put("status", status.name())
                .put("duration_ms", &(end.duration.as_millis() as u64))
                .put_some("cpu_ms", end.used.map(cpu_ms).as_ref())
                .put_some("memory_bytes", end.used.map(|it| it.memory).as_ref())
                .put_some("context_bytes", end.context_bytes().as_ref())
                .put_some("execution_ref", end.look_ref.as_ref())
                .put_some("records_removed", end.records_removed.then_some(&true))
                .put_some("cached", end.cached.then_some(&true))
                .put_some("outputs", Some(&end.made).filter(|it| !it.is_empty()));
            match outcome {
                Ok(Output::Identity) => {}
                Ok(Output::Text(text)) => {
                    line.raw("output", text.as_bytes());
                }
                Ok(Output::File(path)) => {
                    line.put("output_ref", path);
                }
                Err(failure) => put_failure(line, failure),
            }
        })
    }

    /// An attempt failed, and another one follows at that time. `used` is what the failed one used.
    pub(crate) fn add_retry(
        &mut self,
        step: &StepRef,
        failure: &Failure,
        retry_at: Timestamp,
        used: Option<Used>,
    ) {
        self.add_step_event(EventKind::Error, step, |line| {
            put_failure(line, failure);
            let (code, why) = (failure.code.name(), &failure.message);
            let text = format!("{code}, and is retried: {why}");
            line.put("error_message", &text)
                .raw("error_details", b"{}")
                .put("retry_at", &retry_at.to_string())
                .put_some("cpu_ms", used.map(cpu_ms).as_ref());
        });
    }

    /// Records that something ends later. Returns the time of the event, as [`Self::add_look`] does.
    pub(crate) fn add_deferral(
        &mut self,
        step: &StepRef,
        handle: &str,
        times: (Timestamp, Timestamp),
        execution_ref: &str,
    ) -> Timestamp {
        self.add_step_event(EventKind::ActionDeferred, step, |line| {
            line.put("handle", handle);
            put_times(line, times);
            line.put("execution_ref", execution_ref);
        })
    }

    /// A look has not found the end of what a program has begun.
    pub(crate) fn add_look(
        &mut self,
        step: &StepRef,
        exit_code: Option<i32>,
        times: (Timestamp, Timestamp),
        execution_ref: &str,
    ) -> Timestamp {
        self.add_step_event(EventKind::DeferredLook, step, |line| {
            line.put("exit_code", &exit_code);
            put_times(line, times);
            line.put("execution_ref", execution_ref);
        })
    }

    /// A program has called a tool; `execution_ref` is the directory of the call's records.
    pub(crate) fn add_tool_call(
        &mut self,
        step: &StepRef,
        execution_ref: &str,
        call: &NodeToolCall,
    ) {
        self.add_step_event(FlowEvent::Tool, step, |line| {
            let message = call.code.map(|_| &call.message);
            line.put("tool_name", &call.tool_name)
                .put("call_id", &call.call_id)
                .put("status", call.status())
                .put_some("code", call.code.as_ref())
                .put_some("message", message)
                .put("exit_code", &call.exit_code)
                .put("duration_ms", &call.duration_ms)
                .put("resolved_command", &call.resolved_command)
                .put("execution_ref", execution_ref);
        });
    }

    /// A rule has denied a step something; of a call, with the directory of its records.
    pub(crate) fn add_denial(
        &mut self,
        step: &StepRef,
        denied: &Denied,
        execution_ref: Option<&str>,
    ) {
        self.add_step_event(FlowEvent::Policy, step, |line| {
            line.put("policy", &denied.policy)
                .put("rule", &denied.rule)
                .put("target", &denied.target)
                .put("target_id", &denied.target_id)
                .put("action", "deny")
                .put("reason", &denied.reason)
                .put_some("execution_ref", execution_ref);
        });
    }

    /// A step does not begin, because a person wanted to look first.
    pub(crate) fn add_pause(&mut self, step: &StepRef) {
        let node = &self.graph.nodes[step.node].id;
        let text = format!("paused before {node} of {}", step.task);
        self.add_step_event(EventKind::SystemMessage, step, |line| {
            line.put("paused", &true)
                .put("level", &Level::Info)
                .put("content", &text);
        });
    }
}

/// The name of an edge.
pub(crate) fn edge_name(graph: &Graph, edge: EdgeIx) -> String {
    let edge = &graph.edges[edge];
    let id = |node: NodeIx| &graph.nodes[node].id;
    format!("{}>{}", id(edge.from), id(edge.to))
}

/// The edge that events about a step name: only an exit with several ways in needs it.
pub(crate) fn edge_told(graph: &Graph, step: &StepRef) -> Option<String> {
    let edge = step.edge.filter(|_| graph.incoming(step.node).len() > 1)?;
    Some(edge_name(graph, edge))
}

/// Writes what something was given, or the file that has it.
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

/// Writes the times of the next look and of the last one.
fn put_times(line: &mut Object<'_>, times: (Timestamp, Timestamp)) {
    line.put("due_at", &times.0.to_string())
        .put("expires_at", &times.1.to_string());
}

fn cpu_ms(used: Used) -> u64 {
    used.cpu.as_millis() as u64
}

fn put_failure(line: &mut Object<'_>, failure: &Failure) {
    line.put("code", failure.code.name())
        .put("message", &*failure.message);
}

/// The file that has the input of a root task, if the journal has no room for it.
pub(crate) fn input_name(number: usize) -> String {
    format!("io/input-{number}.json")
}

/// Puts a JSON text where it belongs: into the line, or into a durable file of this name in the run's
/// directory.
pub(crate) fn keep_text(run: &Path, name: &str, text: &Payload) -> Result<Output> {
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

/// Reads back what [`keep_text`] has put somewhere. None if the line has none.
pub(crate) fn read_text(run: &Path, text: Raw<'_>, file: &Text<'_>) -> Result<Option<Payload>> {
    if let Some(text) = text.get() {
        return Ok(Some(text.into()));
    }
    let Some(name) = file.get() else {
        return Ok(None);
    };
    let path = run.join(name);
    match files::read_text_below(run, Path::new(name), files::LARGEST) {
        Ok(text) => Ok(Some(text.into())),
        // Another attempt would find it no better.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Other) => {
            Err(Error::damaged(&path, reason(&e)))
        }
        Err(e) => Err(e).at("read", &path),
    }
}

/// The run that a step goes on with, as its start says it.
pub(crate) fn own_run_of(start: &flow::NodeStart<'_>) -> Option<OwnRun> {
    let id = RunId::parse(&start.own_run).ok()?;
    let retries = start.own_retry?;
    Some(OwnRun { id, retries })
}

/// The failure that an end reports.
pub(crate) fn failure_of(code: &Text<'_>, message: &Text<'_>) -> Failure {
    let code = FailureCode::parse(code).unwrap_or(FailureCode::Operation);
    Failure::new(code, &**message)
}

/// Calls something with each line of a journal, until it has enough.
///
/// # Errors
/// A line is damaged, unless damaged lines are skipped.
pub(crate) fn each_line<'j>(
    journal: impl Into<JournalSource<'j>>,
    skip_damaged: bool,
    mut with: impl FnMut(&Line<'_>) -> Result<bool>,
) -> Result<()> {
    let JournalSource { path, read } = journal.into();
    let mut take = |event: std::result::Result<Box<Line<'_>>, Damage>| match event {
        Ok(line) => with(&line),
        Err(_) if skip_damaged => Ok(true),
        Err(damage) => Err(unreadable(&Unreadable::Damaged(damage), &path)),
    };
    if let Some(bytes) = read {
        for event in reader::events(bytes) {
            if !take(event)? {
                break;
            }
        }
        return Ok(());
    }
    let mut reader = JournalReader::open(&path)?;
    loop {
        let event = match reader.read_next()? {
            Next::Event(line) => Ok(line),
            Next::Damaged(damage) => Err(damage),
            Next::End { .. } => return Ok(()),
        };
        if !take(event)? {
            return Ok(());
        }
    }
}
