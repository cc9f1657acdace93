//! How the steps of a run ended, in the order of its journal.
//!
//! Unaware of graphs, and of attempts that were followed by others.

use super::events::{each_line, failure_of, read_text};
use crate::error::Result;
use crate::flow::graph::{Failure, Payload};
use crate::record::event::{EventKind, FlowEvent, Line};
use crate::record::run_dir::RunDir;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// The name of a step in a journal: task, node, and the edge that the task took, if only the edge distinguishes two
/// steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StepId {
    pub task: String,
    pub node: String,
    pub edge: Option<String>,
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedEnd {
    /// An output of none is what the step was given.
    pub outcome: std::result::Result<Option<Payload>, Failure>,
    pub duration: Duration,
}

/// The ends of a run's steps.
#[derive(Debug, Default)]
pub(crate) struct RecordedEnds {
    /// As they ended.
    pub order: Vec<StepId>,
    pub by_step: HashMap<StepId, RecordedEnd>,
    /// Tasks that lost a race: how far they came depends on time.
    pub cancelled: HashSet<String>,
    /// As they began.
    pub roots: Vec<RecordedRoot>,
}

/// A root task as it began.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRoot {
    /// From 1.
    pub number: usize,
    pub input: Payload,
    /// Why it failed at its start.
    pub fault: Option<String>,
}

impl StepId {
    fn of(line: &Line<'_>) -> Option<Self> {
        let (task, node) = line.step()?;
        let edge = line.edge.as_deref().map(str::to_owned);
        Some(Self { task, node, edge })
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}", self.task, self.node)
    }

    /// The number of the root that the task belongs to.
    pub(crate) fn root(&self) -> Option<usize> {
        root_number(self.task.split('.').next()?)
    }
}

impl RecordedEnds {
    /// Reads the journal of a run: all of it, or what belongs to one root.
    pub(crate) fn read(run: &RunDir, root: Option<usize>) -> Result<Self> {
        let mut ends = Self::default();
        each_line(&run.journal(), true, |line| {
            ends.add(&run.path, line, root).map(|()| true)
        })?;
        Ok(ends)
    }

    fn add(&mut self, run: &Path, line: &Line<'_>, root: Option<usize>) -> Result<()> {
        let is_meant = |number: Option<usize>| root.is_none() || number == root;
        if line.kind == EventKind::Flow(FlowEvent::TaskCreated)
            && line.parent_id.is_none()
            && let Some(number) = line.task_id.as_deref().and_then(root_number)
            && is_meant(Some(number))
            && let Some(input) = read_text(run, line.input, line.input_ref.as_deref())?
        {
            self.roots.push(RecordedRoot {
                number,
                input,
                fault: line.input_error.as_deref().map(str::to_owned),
            });
        }
        if line.kind == EventKind::Flow(FlowEvent::TaskEnd)
            && line.status.as_deref() == Some("cancelled")
        {
            let task = line.task_id.as_deref().unwrap_or_default();
            self.cancelled.insert(task.to_owned());
        }
        if line.kind != EventKind::Flow(FlowEvent::NodeEnd) {
            return Ok(());
        }
        let Some(step) = StepId::of(line).filter(|step| is_meant(step.root())) else {
            return Ok(());
        };
        let outcome = match line.status.as_deref() {
            Some("success" | "partial") => {
                Ok(read_text(run, line.output, line.output_ref.as_deref())?)
            }
            _ => Err(failure_of(line)),
        };
        let duration = Duration::from_millis(line.duration_ms.unwrap_or_default());
        let end = RecordedEnd { outcome, duration };
        if self.by_step.insert(step.clone(), end).is_none() {
            self.order.push(step);
        }
        Ok(())
    }
}

impl RecordedEnd {
    /// The status, as nodes and tasks have it.
    pub(crate) fn status(&self) -> &'static str {
        match self.outcome {
            Ok(_) => "success",
            Err(_) => "failure",
        }
    }

    /// The output, if there is one in the journal.
    pub(crate) fn output(&self) -> Option<&str> {
        self.outcome.as_ref().ok()?.as_deref()
    }

    /// Status and output are those of another end: a failure has the same code, an output the same JSON value.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.outcome, &other.outcome) {
            (Err(one), Err(other)) => one.code == other.code,
            (Ok(one), Ok(other)) => is_same_value(one.as_deref(), other.as_deref()),
            _ => false,
        }
    }
}

fn is_same_value(one: Option<&str>, other: Option<&str>) -> bool {
    let value = |text: Option<&str>| serde_json::from_str::<serde_json::Value>(text?).ok();
    one == other || (one.is_some() && value(one) == value(other))
}

/// The number in the id of a root task.
pub(super) fn root_number(id: &str) -> Option<usize> {
    let number = id.strip_prefix('T')?.parse().ok();
    number.filter(|number| *number > 0)
}
