//! What the retries of a run have undone: the ends of failed steps. Everything after them is undone, too,
//! because routing does not reach it before they have ended again.
//!
//! Unaware of which steps these should be.

use super::events::each_line;
use crate::error::Result;
use crate::flow::manifest::problem::sha256;
use crate::record::event::{EventKind, FlowEvent, Line};
use crate::record::journal::Journal;
use crate::record::metadata::Status;
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

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
    /// The run's state towards a retry, as far as it has been read.
    pub standing: RetryStanding,
}

/// Whether a run can be retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RetryStanding {
    /// It has not ended, or is being retried.
    #[default]
    Underway,
    Ended,
}

/// Whether a nested flow's run can be retried with the step that it is.
#[derive(Debug, Default)]
pub(crate) struct InnerStanding {
    /// So often it was retried.
    pub retries: u64,
    /// It has ended, and is not being retried.
    pub has_ended: bool,
    has_succeeded: bool,
    input_sha256: Option<String>,
}

impl InnerStanding {
    /// None if there is no such run.
    pub(crate) fn read(run: &RunDir) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Basis {
            input_sha256: Option<String>,
        }
        let journal = run.journal();
        if !journal.is_file() {
            return Ok(None);
        }
        let mut standing = Self::default();
        each_line(&journal, true, |line| {
            match line.kind {
                EventKind::Flow(FlowEvent::FlowStart) => {
                    let basis = line.flow.map(|flow| serde_json::from_str(flow.get()));
                    let basis: Option<Basis> = basis.and_then(std::result::Result::ok);
                    standing.input_sha256 = basis.and_then(|basis| basis.input_sha256);
                }
                EventKind::Flow(FlowEvent::Retry) => {
                    standing.retries += 1;
                    standing.has_ended = false;
                }
                EventKind::EngineEnd if is_end(line) => {
                    standing.has_ended = true;
                    standing.has_succeeded = line.stop_reason.as_deref() == Some("success");
                }
                _ => {}
            }
            Ok(true)
        })?;
        Ok(Some(standing))
    }

    /// Something of it is left to be done, with the input that the step has now.
    pub(crate) fn goes_on_with(&self, input: &str) -> bool {
        let is_done = self.has_ended && self.has_succeeded;
        !is_done && self.input_sha256.as_deref() == Some(&*sha256(input.as_bytes()))
    }
}

/// The `ENGINE_END` of a run that has ended, rather than been interrupted.
fn is_end(line: &Line<'_>) -> bool {
    let status = line.status.as_deref().and_then(Status::parse);
    matches!(status, Some(Status::Completed | Status::Failed))
}

impl TakenBack {
    /// Reads the journal of a run.
    pub(crate) fn read<'j>(journal: impl Into<JournalSource<'j>>) -> Result<Self> {
        let (mut taken, mut number) = (Self::default(), 0);
        each_line(journal, true, |line| {
            number += 1;
            match line.kind {
                EventKind::Flow(FlowEvent::Retry) => {
                    taken.standing = RetryStanding::Underway;
                    let steps = retried_steps(line).into_iter();
                    taken.until.extend(steps.map(|step| (step, number)));
                }
                EventKind::EngineEnd if is_end(line) => taken.standing = RetryStanding::Ended,
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
