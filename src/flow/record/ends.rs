//! How the steps of a run ended, in the order of its journal.
//!
//! Unaware of graphs, and of attempts that were followed by others.

use super::events::{each_line, failure_of, read_text};
use crate::error::Result;
use crate::flow::graph::{Failure, Payload};
use crate::record::event::{Line, Recorded};
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
    /// Steps in the order of their ends.
    pub order: Vec<StepId>,
    pub by_step: HashMap<StepId, RecordedEnd>,
    /// Tasks that lost a race: how far they came depends on time.
    pub cancelled: HashSet<String>,
    /// Roots in the order of their beginnings.
    pub roots: Vec<RecordedRoot>,
}

/// A root task as it began.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRoot {
    /// From 1.
    pub number: usize,
    pub input: Payload,
    /// The reason why it failed at its start.
    pub fault: Option<String>,
}

impl StepId {
    pub(super) fn of(line: &Line<'_>) -> Option<Self> {
        let (task, node) = line.step()?;
        Some(Self {
            task,
            node,
            edge: line.edge.owned(),
        })
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}", self.task, self.node)
    }

    /// The number of the root that the task belongs to.
    pub(crate) fn root(&self) -> Option<usize> {
        root_of(&self.task)
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
        let end = match &line.event {
            Recorded::TaskCreated(task) if !task.parent_id.is_some() => {
                if let Some(number) = root_number(&line.task_id)
                    && is_meant(Some(number))
                    && let Some(input) = read_text(run, task.input.0, &task.input_ref)?
                {
                    self.roots.push(RecordedRoot {
                        number,
                        input,
                        fault: task.input_error.owned(),
                    });
                }
                return Ok(());
            }
            Recorded::TaskEnd(end) => {
                if &*end.status == "cancelled" {
                    self.cancelled.insert(line.task_id.to_string());
                }
                return Ok(());
            }
            Recorded::NodeEnd(end) => end,
            _ => return Ok(()),
        };
        let Some(step) = StepId::of(line).filter(|step| is_meant(step.root())) else {
            return Ok(());
        };
        let outcome = match &*end.status {
            "success" | "partial" => Ok(read_text(run, end.output.0, &end.output_ref)?),
            _ => Err(failure_of(&end.code, &end.message)),
        };
        let duration = Duration::from_millis(end.duration_ms.unwrap_or_default());
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

/// The number of the root that a task belongs to.
pub(super) fn root_of(task: &str) -> Option<usize> {
    root_number(task.split('.').next()?)
}

/// The number in the id of a root task.
pub(super) fn root_number(id: &str) -> Option<usize> {
    let number = id.strip_prefix('T')?.parse().ok();
    number.filter(|number| *number > 0)
}
