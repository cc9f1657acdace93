//! What the retries of a run have taken back: the ends of steps that failed. Whatever was behind them counts no
//! more either, because routing does not come to it before they have ended again.
//!
//! Unaware of which steps these should be.

use super::events::each_line;
use crate::error::Result;
use crate::record::event::{EventKind, FlowEvent, Line};
use crate::record::journal::Journal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// A step as `RETRY` names it: of one task, a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RetriedStep {
    pub task_id: String,
    pub node_id: String,
}

/// The steps that a `RETRY` names; none if it cannot be read.
pub(crate) fn retried_steps(line: &Line<'_>) -> Vec<RetriedStep> {
    let steps = line.steps.map(|steps| serde_json::from_str(steps.get()));
    steps.and_then(std::result::Result::ok).unwrap_or_default()
}

/// Adds the event of a retry: these steps are done again.
pub(crate) fn add_retry(journal: &mut Journal, steps: &[RetriedStep]) {
    journal.add_line(FlowEvent::Retry, |line| {
        line.put("steps", &steps);
    });
}

/// The ends of steps that do not count.
#[derive(Debug, Default)]
pub(crate) struct TakenBack {
    /// By step, the number of the last line that took its end back.
    until: HashMap<RetriedStep, usize>,
    /// How the run stands, as far as it has been read.
    pub standing: RetryStanding,
}

/// How a run stands towards a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetryStanding {
    /// It has not ended, or is being retried.
    #[default]
    Underway,
    Ended,
}

impl TakenBack {
    /// Reads the journal of a run.
    pub(crate) fn read(journal: &Path) -> Result<Self> {
        let (mut taken, mut number) = (Self::default(), 0);
        each_line(journal, true, |line| {
            number += 1;
            match line.kind {
                EventKind::Flow(FlowEvent::Retry) => {
                    taken.standing = RetryStanding::Underway;
                    let steps = retried_steps(line).into_iter();
                    taken.until.extend(steps.map(|step| (step, number)));
                }
                EventKind::EngineEnd => {
                    let is_end = matches!(line.status.as_deref(), Some("COMPLETED" | "FAILED"));
                    if is_end {
                        taken.standing = RetryStanding::Ended;
                    }
                }
                _ => {}
            }
            Ok(true)
        })?;
        Ok(taken)
    }

    /// Takes the ends of more steps back, all that the journal has.
    pub(crate) fn add(&mut self, steps: &[RetriedStep]) {
        let steps = steps.iter().cloned();
        self.until.extend(steps.map(|step| (step, usize::MAX)));
    }

    /// The end in the line with this number, from 1, does not count.
    pub(crate) fn has(&self, line: &Line<'_>, number: usize) -> bool {
        if self.until.is_empty() {
            return false;
        }
        let Some((task_id, node_id)) = line.step() else {
            return false;
        };
        let until = self.until.get(&RetriedStep { task_id, node_id });
        until.is_some_and(|until| number < *until)
    }
}
