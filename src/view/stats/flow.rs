//! The work of a flow's nodes, added up.
//!
//! Unaware of the runs that they have started, but for the tokens that these have used.

use super::{add, median};
use crate::record::event::flow::NodeEnd;
use crate::record::event::{Line, Recorded, Tokens};
use crate::record::run_dir::RunDir;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// The attempts at a node in a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct NodeFigures {
    /// How often a task ended at it.
    pub count: u64,
    /// How many of these ends were failures.
    pub failures: u64,
    /// How many attempts failed and were followed by another.
    pub retries: u64,
    /// How many outputs were known already.
    pub cached: u64,
    /// Among the last attempts that were run.
    pub median_ms: u64,
    /// Among the last attempts that were run.
    pub longest_ms: u64,
    /// Median of the times from when a task could have gone on there to when its program was started.
    pub queue_ms: u64,
    /// Processor time of all attempts.
    pub cpu_ms: u64,
    /// The most that one of its processes had resident.
    pub memory_bytes: u64,
    /// The largest of its contexts.
    pub context_bytes: u64,
    /// Tokens of the runs that its programs have started, and of those within them.
    pub tokens: Tokens,
    #[serde(skip)]
    durations: Vec<u64>,
    #[serde(skip)]
    waits: Vec<u64>,
}

/// The figures that only a flow has.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FlowFigures {
    /// Tasks made.
    pub tasks: u64,
    /// Tasks that have failed.
    pub failed_tasks: u64,
    /// By id.
    pub nodes: BTreeMap<String, NodeFigures>,
    #[serde(skip)]
    failed: HashSet<String>,
    /// How long at least one program of a node was running.
    #[serde(skip)]
    pub(super) busy_ms: u64,
    #[serde(skip)]
    busy_since: Option<Timestamp>,
    /// Programs that are running, by task and node.
    #[serde(skip)]
    running: BTreeMap<(String, String), RunningAttempt>,
    /// Since when tasks could have gone on.
    #[serde(skip)]
    ready: HashMap<String, Timestamp>,
}

/// An attempt that has not ended.
#[derive(Clone, Debug)]
struct RunningAttempt {
    /// The path of its records, relative to the run's directory.
    reference: String,
    /// Time when the task could have gone on, and when it did, if this is the first attempt.
    waited: Option<(Timestamp, Timestamp)>,
    is_first: bool,
}

/// The kernel's count of an attempt's resources.
#[derive(Deserialize)]
struct ProcessorUsage {
    cpu_ms: f64,
}

impl FlowFigures {
    /// Counts of all nodes: ends, failures, attempts that were followed by others, known outputs.
    pub(crate) fn all_nodes(&self) -> [u64; 4] {
        let mut sums = [0; 4];
        for node in self.nodes.values() {
            let counts = [node.count, node.failures, node.retries, node.cached];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        sums
    }

    /// Processor time of all nodes.
    pub(crate) fn cpu_ms(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| node.cpu_ms)
            .fold(0, u64::saturating_add)
    }

    pub(super) fn event(&mut self, line: &Line<'_>, at: Option<Timestamp>, run: &RunDir) {
        match &line.event {
            Recorded::TaskCreated(_) => {
                self.tasks += 1;
                self.note_ready(line, at);
            }
            Recorded::Route(_) | Recorded::Merge(_) => self.note_ready(line, at),
            Recorded::NodeStart(start) => self.start(line, start.attempt, at, run),
            Recorded::NodeEnd(end) => self.end(line, end, at),
            Recorded::TaskEnd(end) => self.end_task(&line.task_id, end.has_failed()),
            Recorded::Error(error) => self.retry(line, error.cpu_ms, run),
            _ => {}
        }
        self.look_whether_busy(at);
    }

    fn note_ready(&mut self, line: &Line<'_>, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.ready.insert(line.task_id.to_string(), at);
        }
    }

    /// A loser of a race is recorded a second time, as cancelled.
    fn end_task(&mut self, task: &str, has_failed: bool) {
        if has_failed {
            self.failed.insert(task.to_owned());
        } else {
            self.failed.remove(task);
        }
        self.failed_tasks = self.failed.len() as u64;
        self.ready.remove(task);
        let first = (task.to_owned(), String::new());
        let keys: Vec<_> = self
            .running
            .range(first..)
            .map(|(key, _)| key.clone())
            .take_while(|key| key.0 == task)
            .collect();
        for key in keys {
            self.running.remove(&key);
        }
    }

    fn start(&mut self, line: &Line<'_>, number: Option<u64>, at: Option<Timestamp>, run: &RunDir) {
        let (Some(key), Some(reference)) = (line.step(), line.execution_ref.get()) else {
            return;
        };
        let before = self.running.remove(&key);
        let ready = self.ready.get(&key.0).copied();
        let attempt = RunningAttempt {
            reference: reference.to_owned(),
            waited: match &before {
                Some(before) => before.waited,
                None => ready.zip(at),
            },
            is_first: before.is_none() && number.unwrap_or(1) <= 1,
        };
        let node = self.nodes.entry(key.1.clone()).or_default();
        if let Some(before) = before {
            // An answer that was sent back, or one that was not wanted any more.
            add(&mut node.cpu_ms, cpu_of(run, &before.reference));
        }
        let bytes = run
            .path
            .join(reference)
            .join("context.json")
            .metadata()
            .map_or(0, |meta| meta.len());
        node.context_bytes = node.context_bytes.max(bytes);
        self.running.insert(key, attempt);
    }

    fn retry(&mut self, line: &Line<'_>, cpu_ms: Option<u64>, run: &RunDir) {
        let Some(key) = line.step() else { return };
        let attempt = self.running.remove(&key);
        let node = self.nodes.entry(key.1).or_default();
        node.retries += 1;
        if let Some(attempt) = attempt {
            let cpu = cpu_ms.unwrap_or_else(|| cpu_of(run, &attempt.reference));
            add(&mut node.cpu_ms, cpu);
        }
        // The next attempt does not wait for its turn any more.
        self.ready.remove(&key.0);
    }

    fn end(&mut self, line: &Line<'_>, end: &NodeEnd<'_>, at: Option<Timestamp>) {
        let Some(key) = line.step() else { return };
        let attempt = self.running.remove(&key);
        let node = self.nodes.entry(key.1).or_default();
        node.count += 1;
        node.failures += u64::from(end.has_failed());
        node.cached += u64::from(end.cached == Some(true));
        add(&mut node.cpu_ms, end.cpu_ms.unwrap_or(0));
        node.memory_bytes = node.memory_bytes.max(end.memory_bytes.unwrap_or(0));
        node.context_bytes = node.context_bytes.max(end.context_bytes.unwrap_or(0));
        let Some(attempt) = attempt else { return };
        let took = end.duration_ms.unwrap_or(0);
        node.durations.push(took);
        if let (Some((ready, prepared)), Some(at)) = (attempt.waited, at) {
            // Programs are recorded some time before there is room for them.
            let started = if attempt.is_first {
                Timestamp::from_millis(at.millis().saturating_sub(took))
            } else {
                prepared
            };
            node.waits.push(started.since(ready).as_millis() as u64);
        }
    }

    /// Programs are running, or none is any more.
    fn look_whether_busy(&mut self, at: Option<Timestamp>) {
        match (self.running.is_empty(), self.busy_since, at) {
            (true, Some(since), Some(at)) => {
                add(&mut self.busy_ms, at.since(since).as_millis() as u64);
                self.busy_since = None;
            }
            (false, None, at) => self.busy_since = at,
            _ => {}
        }
    }

    /// The engine has ended, and with it what it had started.
    pub(super) fn end_of_start(&mut self, at: Timestamp) {
        self.running.clear();
        self.ready.clear();
        self.look_whether_busy(Some(at));
    }

    pub(super) fn spent(&mut self, node: &str, tokens: Tokens) {
        self.nodes
            .entry(node.to_owned())
            .or_default()
            .tokens
            .add(tokens);
    }

    pub(super) fn finish(&mut self) {
        for node in self.nodes.values_mut() {
            node.durations.sort_unstable();
            node.waits.sort_unstable();
            node.median_ms = median(&node.durations);
            node.longest_ms = node.durations.last().copied().unwrap_or(0);
            node.queue_ms = median(&node.waits);
        }
    }
}

fn cpu_of(run: &RunDir, reference: &str) -> u64 {
    /// Bytes that it may have.
    const LONGEST: u64 = 64 << 10;
    let path = Path::new(reference).join("usage.json");
    let read = || {
        let bytes = files::read_below(&run.path, &path, LONGEST).ok()?;
        serde_json::from_slice::<ProcessorUsage>(&bytes).ok()
    };
    read().map_or(0, |usage| usage.cpu_ms as u64)
}
