//! The tasks of a run and the steps of each, as its journal has them.
//!
//! Unaware of graphs: a journal reads the same when the flow's files are gone.

use super::ends::root_number;
use super::events::{OwnRun, each_line, failure_of, own_run_of};
use super::retry::{RetriedStep, retried_steps};
use crate::error::{Error, Result};
use crate::flow::graph::Failure;
use crate::record::event::{EventKind, FlowEvent, Line};
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use crate::record::state::Deferred;
use crate::text::timestamp::Timestamp;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// All tasks, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    pub order: Vec<String>,
    pub tasks: HashMap<String, TaskRecord>,
    /// Steps before which this start of an engine paused: the pause counts when that start has ended.
    pausing: Vec<StepName>,
    acknowledged: Vec<StepName>,
}

#[derive(Debug, Default)]
pub(crate) struct TaskRecord {
    pub parent: Option<String>,
    pub edge: Option<String>,
    pub status: Option<String>,
    /// The node that failed, and how.
    pub error: Option<(String, Failure)>,
    pub steps: Vec<StepRecord>,
}

/// A node in a task.
#[derive(Debug, Default)]
pub(crate) struct StepRecord {
    pub node: String,
    /// Where the task came from, if more than one edge leads to the node.
    edge: Option<String>,
    pub attempts: Attempts,
    /// Directories of records, from the run's directory.
    pub records: Vec<String>,
    /// Of the last attempt, on one line.
    pub command: Option<String>,
    /// The last attempt: what policies denied it.
    pub denied: Vec<String>,
    /// The last attempt is without an end.
    pub is_running: bool,
    pub call_id: Option<String>,
    /// The last attempt: records of calls that the journal has; see [`denial_name`].
    pub calls: Vec<String>,
    pub end: Option<StepEnd>,
    /// It has not ended, and a retry of the run begins it anew.
    is_retired: bool,
    /// It is what the last retry of the run does again, with the same input.
    is_taken_back: bool,
    /// The run that the last attempt goes on with.
    own_run: Option<OwnRun>,
    /// What the last attempt has begun, if it ends later.
    pub deferred: Option<DeferredStep>,
}

/// What an attempt has begun and what ends without it.
#[derive(Clone, Debug)]
pub(crate) struct DeferredStep {
    pub state: Deferred,
    /// `DELTA_CALL_ID` of the attempt and of all looks.
    pub call_id: String,
    /// The attempt's directory of records, from the run's directory.
    pub reference: String,
}

/// What was before a step that is begun anew: the same node was begun in the same task, and that is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct BegunBefore {
    /// How often.
    pub times: u32,
    /// The last time: the number of failed attempts before the last one.
    pub failed: u32,
    /// The last time: the run that it went on with.
    pub own_run: Option<OwnRun>,
    /// The last time is what the retry does again, with the same input.
    pub is_taken_back: bool,
}

/// How often a step was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    pub failed: u32,
    /// The number of the last one that began.
    pub last: u32,
    /// A person knows that the run stopped before the step: the next start begins it.
    pub pause_acknowledged: bool,
    /// When the next one is due, if it has not begun.
    pub retry_at: Option<Timestamp>,
    /// The end of the wait that the last one is.
    pub due_at: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) struct StepEnd {
    pub failure: Option<Failure>,
    pub cached: bool,
    pub duration: Duration,
    /// Its records are gone.
    pub records_removed: bool,
    /// CPU milliseconds and bytes of memory, if programs ran.
    pub used: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StepName {
    task: String,
    node: String,
    edge: Option<String>,
}

impl StepName {
    fn of(line: &Line<'_>) -> Option<Self> {
        let (task, node) = line.step()?;
        let edge = line.edge.as_ref().map(ToString::to_string);
        Some(Self { task, node, edge })
    }
}

/// Refuses the journal of a run in which something is recorded of a task that no event begins: a run resumed
/// from it would repeat what was done. `must_begin`: there was an input, so that one of its tasks has begun at least.
///
/// # Errors
/// It is damaged, or cannot be read.
pub(crate) fn check_beginnings(journal: &JournalSource<'_>, must_begin: bool) -> Result<()> {
    let mut begun: HashSet<usize> = HashSet::new();
    each_line(journal.clone(), false, |line| {
        let EventKind::Flow(event) = line.kind else {
            return Ok(true);
        };
        let is_about_task = matches!(
            event,
            FlowEvent::TaskCreated
                | FlowEvent::TaskEnd
                | FlowEvent::NodeStart
                | FlowEvent::NodeEnd
                | FlowEvent::Route
                | FlowEvent::Merge
                | FlowEvent::Winner
        );
        let Some(task) = line.task_id.as_deref().filter(|_| is_about_task) else {
            return Ok(true);
        };
        let root = root_number(task.split('.').next().unwrap_or_default());
        if event == FlowEvent::TaskCreated && !task.contains('.') {
            begun.extend(root);
        }
        if root.is_some_and(|root| begun.contains(&root)) {
            return Ok(true);
        }
        let kind = line.kind.name();
        let number = line.seq.map_or_else(String::new, |seq| format!(" {seq}"));
        let what = format!("{kind}{number} is about task {task}, which no TASK_CREATED begins");
        Err(Error::damaged(&journal.path, what))
    })?;
    if must_begin && begun.is_empty() {
        let what = "the run has ended, and no TASK_CREATED begins its task T1";
        return Err(Error::damaged(&journal.path, what));
    }
    Ok(())
}

/// The name of a denied call among the records of calls.
pub(crate) fn denial_name(execution_ref: &str) -> String {
    format!("denied {execution_ref}")
}

impl Lineage {
    /// Reads the journal of a run that may be live.
    pub(crate) fn read(run: &RunDir) -> Result<Self> {
        let mut lineage = Self::default();
        each_line(&run.journal(), true, |line| {
            lineage.add(line);
            Ok(true)
        })?;
        Ok(lineage)
    }

    /// Takes in the next line of the journal.
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        if line.kind == EventKind::EngineEnd {
            self.acknowledged.append(&mut self.pausing);
        }
        if line.kind == EventKind::Flow(FlowEvent::Retry) {
            self.reopen(&retried_steps(line));
        }
        let Some(id) = line.task_id.as_deref() else {
            return;
        };
        if !self.tasks.contains_key(id) {
            self.order.push(id.to_owned());
        }
        let task = self.tasks.entry(id.to_owned()).or_default();
        match line.kind {
            EventKind::Flow(event) => task.add(event, line),
            EventKind::Error => task.update_open(line, |step| step.fail_attempt(line)),
            EventKind::ActionDeferred => task.update_open(line, |step| step.defer(line)),
            EventKind::DeferredLook => task.update_open(line, |step| step.add_look(line)),
            EventKind::SystemMessage if line.paused == Some(true) => {
                self.pausing.extend(StepName::of(line));
            }
            _ => {}
        }
    }

    /// The tasks of these steps, and those that they came from, go on.
    fn reopen(&mut self, steps: &[RetriedStep]) {
        for step in steps {
            let id = &step.task_id;
            let ends = id.match_indices('.').map(|(at, _)| at);
            for end in ends.chain([id.len()]) {
                if let Some(task) = self.tasks.get_mut(&id[..end]) {
                    task.status = None;
                    task.error = None;
                }
            }
        }
    }

    /// Retires the steps that had not ended and are not wanted any more, at the start of a retry. `wanted` are the steps
    /// that are open now.
    pub(crate) fn retire(&mut self, wanted: &HashSet<(String, String)>) {
        for (id, task) in &mut self.tasks {
            for step in &mut task.steps {
                let is_wanted = wanted.contains(&(id.clone(), step.node.clone()));
                step.is_retired |= !is_wanted;
                step.is_taken_back = is_wanted;
            }
        }
    }

    /// What was before each step that was begun already and is over, by task and node.
    pub(crate) fn begun_before(&self) -> HashMap<(String, String), BegunBefore> {
        let mut begun: HashMap<_, BegunBefore> = HashMap::new();
        for (id, task) in &self.tasks {
            let is_over = |step: &&StepRecord| step.is_retired || step.end.is_some();
            for step in task.steps.iter().filter(is_over) {
                let before = begun.entry((id.clone(), step.node.clone())).or_default();
                *before = BegunBefore {
                    times: before.times + 1,
                    failed: step.attempts.failed,
                    own_run: step.own_run.clone(),
                    is_taken_back: step.is_taken_back,
                };
            }
        }
        begun
    }

    /// The run that the last attempt of an open step went on with, and whether that attempt has not ended.
    pub(crate) fn own_run(
        &self,
        task: &str,
        node: &str,
        edge: Option<&str>,
    ) -> Option<(OwnRun, bool)> {
        let step = self.open_step(task, node, edge)?;
        Some((step.own_run.clone()?, step.is_running))
    }

    /// The calls of steps that have not ended, of all roots or of one.
    pub(crate) fn running_calls(&self, root: Option<&str>) -> Vec<String> {
        let is_of = |id: &str| root.is_none_or(|root| id.split('.').next() == Some(root));
        let tasks = self.tasks.iter().filter(|(id, _)| is_of(id));
        let steps = tasks.flat_map(|(_, task)| &task.steps);
        let running = steps.filter(|step| step.is_running || step.deferred.is_some());
        running.filter_map(|step| step.call_id.clone()).collect()
    }

    /// The step of a task that has not ended. An edge that is not known fits any.
    pub(crate) fn open_step(
        &self,
        task: &str,
        node: &str,
        edge: Option<&str>,
    ) -> Option<&StepRecord> {
        let steps = &self.tasks.get(task)?.steps;
        steps.iter().rfind(|step| step.is_open_at(node, edge))
    }

    /// The step's attempts before this start of an engine.
    pub(crate) fn attempts(&self, task: &str, node: &str, edge: Option<&str>) -> Attempts {
        let open = self.open_step(task, node, edge);
        let is_it = |name: &StepName| {
            name.task == task && name.node == node && fits(name.edge.as_deref(), edge)
        };
        Attempts {
            pause_acknowledged: self.acknowledged.iter().any(is_it),
            ..open.map_or_else(Attempts::default, |step| step.attempts)
        }
    }

    /// Forgets a root task, and all that came of it.
    pub(crate) fn forget(&mut self, root: &str) {
        let is_of = |id: &str| id.split('.').next() == Some(root);
        self.order.retain(|id| !is_of(id));
        self.tasks.retain(|id, _| !is_of(id));
    }
}

/// An edge that is not known fits any.
fn fits(a: Option<&str>, b: Option<&str>) -> bool {
    a.is_none() || b.is_none() || a == b
}

impl StepRecord {
    fn is_open_at(&self, node: &str, edge: Option<&str>) -> bool {
        self.end.is_none()
            && !self.is_retired
            && self.node == node
            && fits(self.edge.as_deref(), edge)
    }

    fn begin_attempt(&mut self, line: &Line<'_>) {
        self.attempts.last = line.attempt.unwrap_or_default() as u32;
        self.attempts.retry_at = None;
        self.attempts.due_at = line.due_at.as_deref().and_then(Timestamp::parse);
        self.is_running = true;
        self.call_id = line.call_id.as_deref().map(str::to_owned);
        self.add_records(line);
        self.own_run = own_run_of(line);
        self.deferred = None;
        self.command = line.resolved_command.as_deref().map(str::to_owned);
        self.denied.clear();
        self.calls.clear();
    }

    /// Only an attempt that has a program and no end is deferred.
    fn defer(&mut self, line: &Line<'_>) {
        let call_id = self.call_id.as_ref().filter(|_| self.is_running);
        if let (Some(call_id), Some(reference)) = (call_id, line.execution_ref.as_deref()) {
            self.deferred = Some(DeferredStep {
                state: Deferred::of(line),
                call_id: call_id.clone(),
                reference: reference.to_owned(),
            });
            self.is_running = false;
        }
    }

    fn add_look(&mut self, line: &Line<'_>) {
        if let Some(deferred) = &mut self.deferred {
            deferred.state.add_look(line);
            self.add_records(line);
        }
    }

    fn add_records(&mut self, line: &Line<'_>) {
        let reference = line.execution_ref.as_deref();
        self.records.extend(reference.map(str::to_owned));
    }

    fn fail_attempt(&mut self, line: &Line<'_>) {
        self.deferred = None;
        self.attempts.failed += 1;
        self.attempts.retry_at = line.retry_at.as_deref().and_then(Timestamp::parse);
        self.is_running = false;
    }

    /// A call of a tool, or what a policy denied.
    fn add_call(&mut self, line: &Line<'_>) {
        let is_denial = line.kind == EventKind::Flow(FlowEvent::Policy);
        match line.execution_ref.as_deref() {
            Some(reference) if is_denial => self.calls.push(denial_name(reference)),
            Some(reference) => self.calls.push(reference.to_owned()),
            None if is_denial => {
                let what = [&line.target, &line.target_id];
                let what = what.map(|it| it.as_deref().unwrap_or_default());
                self.denied.push(what.join(" "));
            }
            None => {}
        }
    }

    fn end(&mut self, line: &Line<'_>) {
        let failed = line.status.as_deref() == Some("failure");
        self.is_running = false;
        self.deferred = None;
        self.add_records(line);
        self.end = Some(StepEnd {
            failure: failed.then(|| failure_of(line)),
            cached: line.cached == Some(true),
            duration: Duration::from_millis(line.duration_ms.unwrap_or_default()),
            records_removed: line.records_removed == Some(true),
            used: line.cpu_ms.zip(line.memory_bytes),
        });
    }
}

impl TaskRecord {
    fn find_open(&self, line: &Line<'_>) -> Option<usize> {
        let node = line.node_id.as_deref().unwrap_or_default();
        let edge = line.edge.as_deref();
        let mut steps = self.steps.iter();
        steps.rposition(|step| step.is_open_at(node, edge))
    }

    /// Changes the open step that a line is about, if there is one.
    fn add(&mut self, event: FlowEvent, line: &Line<'_>) {
        let text = |from: &Option<std::borrow::Cow<'_, str>>| from.as_deref().map(str::to_owned);
        match event {
            FlowEvent::TaskCreated => {
                self.parent = text(&line.parent_id);
                self.edge = text(&line.edge);
            }
            FlowEvent::TaskEnd => {
                self.status = text(&line.status);
                let node = text(&line.node_id).unwrap_or_default();
                self.error = line.code.as_ref().map(|_| (node, failure_of(line)));
            }
            FlowEvent::NodeStart => self.open_or_add(line).begin_attempt(line),
            FlowEvent::NodeEnd => self.update_open(line, |step| step.end(line)),
            FlowEvent::Tool | FlowEvent::Policy => {
                self.update_open(line, |step| step.add_call(line));
            }
            FlowEvent::FlowStart
            | FlowEvent::Route
            | FlowEvent::Merge
            | FlowEvent::Winner
            | FlowEvent::Memory
            | FlowEvent::Retry => {}
        }
    }

    fn update_open(&mut self, line: &Line<'_>, change: impl FnOnce(&mut StepRecord)) {
        if let Some(at) = self.find_open(line) {
            change(&mut self.steps[at]);
        }
    }

    fn open_or_add(&mut self, line: &Line<'_>) -> &mut StepRecord {
        let at = self.find_open(line).unwrap_or_else(|| {
            self.steps.push(StepRecord {
                node: line.node_id.as_deref().unwrap_or_default().to_owned(),
                edge: line.edge.as_deref().map(str::to_owned),
                ..StepRecord::default()
            });
            self.steps.len() - 1
        });
        &mut self.steps[at]
    }
}
