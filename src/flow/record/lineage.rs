//! The tasks of a run and the steps of each, as its journal has them.
//!
//! Unaware of graphs: a journal reads the same when the flow's files are gone.

use super::ends::{StepId, root_of};
use super::events::{OwnRun, each_line, failure_of, own_run_of};
use super::retry::{RetriedStep, retried_steps};
use crate::error::{Error, Result};
use crate::flow::graph::Failure;
use crate::record::event::flow::{NodeEnd, NodeStart, Policy};
use crate::record::event::recorded::{self, ActionDeferred, DeferredLook};
use crate::record::event::{Line, Recorded};
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
    pausing: Vec<StepId>,
    acknowledged: Vec<StepId>,
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
    /// The edge that the task took, if more than one leads to the node.
    edge: Option<String>,
    pub attempts: Attempts,
    /// Directories of records, from the run's directory.
    pub records: Vec<String>,
    /// The command of the last attempt, on one line.
    pub command: Option<String>,
    /// The last attempt: what policies denied it.
    pub denied: Vec<String>,
    /// The last attempt is without an end.
    pub is_running: bool,
    pub call_id: Option<String>,
    /// The last attempt: records of calls that the journal has; see [`denial_name`].
    pub calls: Vec<String>,
    pub end: Option<StepEnd>,
    /// True if it has not ended and a retry of the run begins it anew.
    is_retired: bool,
    /// True if the last retry of the run does it again, with the same input.
    is_taken_back: bool,
    /// The run that the last attempt goes on with.
    pub own_run: Option<OwnRun>,
    /// The work of the last attempt that ends later.
    pub deferred: Option<DeferredStep>,
}

/// Work that an attempt has begun and that ends without it.
#[derive(Clone, Debug)]
pub(crate) struct DeferredStep {
    pub state: Deferred,
    /// `DELTA_CALL_ID` of the attempt and of all looks.
    pub call_id: String,
    /// The attempt's directory of records, from the run's directory.
    pub reference: String,
}

/// The earlier life of a step that is begun anew: the same node was begun in the same task, and that is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct BegunBefore {
    /// The number of earlier lives.
    pub times: u32,
    /// The last time: the number of failed attempts before the last one.
    pub failed: u32,
    /// The last time: the run that it went on with.
    pub own_run: Option<OwnRun>,
    /// The last time is what the retry does again, with the same input.
    pub is_taken_back: bool,
}

/// The attempts at a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    pub failed: u32,
    /// The number of the last one that began.
    pub last: u32,
    /// A person knows that the run stopped before the step: the next start begins it.
    pub pause_acknowledged: bool,
    /// The time of the next one, if it has not begun.
    pub retry_at: Option<Timestamp>,
    /// The end of the wait that the last one is.
    pub due_at: Option<Timestamp>,
}

#[derive(Debug)]
pub(crate) struct StepEnd {
    pub failure: Option<Failure>,
    pub cached: bool,
    pub duration: Duration,
    /// True if the records are gone.
    pub records_removed: bool,
    /// CPU milliseconds and bytes of memory, if programs ran.
    pub used: Option<(u64, u64)>,
}

/// Refuses the journal of a run in which something is recorded of a task that no event begins: a run resumed
/// from it would repeat what was done. `must_begin`: there was an input, so that one of its tasks has begun at least.
///
/// # Errors
/// It is damaged, or cannot be read.
pub(crate) fn check_beginnings(journal: &JournalSource<'_>, must_begin: bool) -> Result<()> {
    let mut begun: HashSet<usize> = HashSet::new();
    each_line(journal.clone(), false, |line| {
        let is_about_task = matches!(
            line.event,
            Recorded::TaskCreated(_)
                | Recorded::TaskEnd(_)
                | Recorded::NodeStart(_)
                | Recorded::NodeEnd(_)
                | Recorded::Route(_)
                | Recorded::Merge(_)
                | Recorded::Winner(_)
        );
        let Some(task) = line.task_id.get().filter(|_| is_about_task) else {
            return Ok(true);
        };
        let root = root_of(task);
        if matches!(line.event, Recorded::TaskCreated(_)) && !task.contains('.') {
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
        match &line.event {
            Recorded::EngineEnd(_) => self.acknowledged.append(&mut self.pausing),
            Recorded::Retry(retry) => self.reopen(&retried_steps(retry)),
            _ => {}
        }
        let Some(id) = line.task_id.get() else {
            return;
        };
        if !self.tasks.contains_key(id) {
            self.order.push(id.to_owned());
        }
        let task = self.tasks.entry(id.to_owned()).or_default();
        match &line.event {
            Recorded::TaskCreated(created) => {
                task.parent = created.parent_id.owned();
                task.edge = line.edge.owned();
            }
            Recorded::TaskEnd(end) => {
                task.status = end.status.owned();
                task.error = end.code.is_some().then(|| {
                    let failure = failure_of(&end.code, &end.message);
                    (line.node_id.to_string(), failure)
                });
            }
            Recorded::NodeStart(start) => task.open_or_add(line).begin_attempt(line, start),
            Recorded::NodeEnd(end) => task.update_open(line, |step| step.end(line, end)),
            Recorded::Tool(_) => task.update_open(line, |step| {
                step.calls.extend(line.execution_ref.owned());
            }),
            Recorded::Policy(denied) => task.update_open(line, |step| step.deny(line, denied)),
            Recorded::Error(error) => task.update_open(line, |step| step.fail_attempt(error)),
            Recorded::ActionDeferred(event) => {
                task.update_open(line, |step| step.defer(line, event));
            }
            Recorded::DeferredLook(look) => {
                task.update_open(line, |step| step.add_look(line, look));
            }
            Recorded::SystemMessage(note) if note.paused == Some(true) => {
                self.pausing.extend(StepId::of(line));
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

    /// The earlier life of each step that was begun already and is over, by task and node.
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

    /// The calls of steps that have not ended, of all roots or of one.
    pub(crate) fn running_calls(&self, root: Option<usize>) -> Vec<String> {
        let is_of = |id: &str| root.is_none() || root_of(id) == root;
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
        let is_it =
            |it: &StepId| it.task == task && it.node == node && fits(it.edge.as_deref(), edge);
        Attempts {
            pause_acknowledged: self.acknowledged.iter().any(is_it),
            ..open.map(|step| step.attempts).unwrap_or_default()
        }
    }

    /// Forgets a root task, and all that came of it.
    pub(crate) fn forget(&mut self, root: usize) {
        self.order.retain(|id| root_of(id) != Some(root));
        self.tasks.retain(|id, _| root_of(id) != Some(root));
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

    fn begin_attempt(&mut self, line: &Line<'_>, start: &NodeStart<'_>) {
        self.attempts.last = start.attempt.unwrap_or_default() as u32;
        self.attempts.retry_at = None;
        self.attempts.due_at = Timestamp::parse(&start.due_at);
        self.is_running = true;
        self.call_id = start.call_id.owned();
        self.add_records(line);
        self.own_run = own_run_of(start);
        self.deferred = None;
        self.command = start.resolved_command.owned();
        self.denied.clear();
        self.calls.clear();
    }

    /// Only an attempt that has a program and no end is deferred.
    fn defer(&mut self, line: &Line<'_>, event: &ActionDeferred<'_>) {
        let call_id = self.call_id.as_ref().filter(|_| self.is_running);
        if let (Some(call_id), Some(reference)) = (call_id, line.execution_ref.owned()) {
            self.deferred = Some(DeferredStep {
                state: Deferred::of(event, line.time()),
                call_id: call_id.clone(),
                reference,
            });
            self.is_running = false;
        }
    }

    fn add_look(&mut self, line: &Line<'_>, look: &DeferredLook<'_>) {
        if let Some(deferred) = &mut self.deferred {
            deferred.state.add_look(look, line.time());
            self.add_records(line);
        }
    }

    fn add_records(&mut self, line: &Line<'_>) {
        self.records.extend(line.execution_ref.owned());
    }

    fn fail_attempt(&mut self, error: &recorded::Error<'_>) {
        self.deferred = None;
        self.attempts.failed += 1;
        self.attempts.retry_at = Timestamp::parse(&error.retry_at);
        self.is_running = false;
    }

    fn deny(&mut self, line: &Line<'_>, denied: &Policy<'_>) {
        match line.execution_ref.get() {
            Some(reference) => self.calls.push(denial_name(reference)),
            None => {
                let (target, id) = (&*denied.target, &*denied.target_id);
                self.denied.push(format!("{target} {id}"));
            }
        }
    }

    fn end(&mut self, line: &Line<'_>, end: &NodeEnd<'_>) {
        self.is_running = false;
        self.deferred = None;
        self.add_records(line);
        let failure = || failure_of(&end.code, &end.message);
        self.end = Some(StepEnd {
            failure: end.has_failed().then(failure),
            cached: end.cached == Some(true),
            duration: Duration::from_millis(end.duration_ms.unwrap_or_default()),
            records_removed: end.records_removed == Some(true),
            used: end.cpu_ms.zip(end.memory_bytes),
        });
    }
}

impl TaskRecord {
    fn find_open(&self, line: &Line<'_>) -> Option<usize> {
        let mut steps = self.steps.iter();
        steps.rposition(|step| step.is_open_at(&line.node_id, line.edge.get()))
    }

    fn update_open(&mut self, line: &Line<'_>, change: impl FnOnce(&mut StepRecord)) {
        if let Some(at) = self.find_open(line) {
            change(&mut self.steps[at]);
        }
    }

    fn open_or_add(&mut self, line: &Line<'_>) -> &mut StepRecord {
        let at = self.find_open(line).unwrap_or_else(|| {
            self.steps.push(StepRecord {
                node: line.node_id.to_string(),
                edge: line.edge.owned(),
                ..StepRecord::default()
            });
            self.steps.len() - 1
        });
        &mut self.steps[at]
    }
}
