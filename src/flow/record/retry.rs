//! The retries of a run: they undo the ends of failed steps. Everything after them is undone, too,
//! because routing does not reach it before they have ended again.
//!
//! Unaware of which steps these should be.

use super::events::each_line;
use crate::error::Result;
use crate::record::event::flow::Retry;
use crate::record::event::{FlowEvent, Line, Recorded};
use crate::record::journal::Journal;
use crate::record::reader::JournalSource;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A step as `RETRY` names it: of one task, a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct RetriedStep {
    pub task_id: String,
    pub node_id: String,
}

/// The steps that a `RETRY` names; none if it cannot be read.
pub(crate) fn retried_steps(retry: &Retry<'_>) -> Vec<RetriedStep> {
    retry.steps.read_or_default()
}

/// Adds the event of a retry: these steps are done again.
pub(crate) fn add_retry(journal: &mut Journal, steps: &[RetriedStep]) {
    journal.add_line(FlowEvent::Retry, |line| {
        line.put("steps", &steps);
    });
}

/// The retries of a run, and its state towards another one.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// By step, the number of the last line that took its end back.
    until: HashMap<RetriedStep, usize>,
    /// The number of retries.
    pub count: u64,
    /// The run has ended, and is not being retried.
    pub has_ended: bool,
    has_succeeded: bool,
}

impl Retries {
    /// Reads the journal of a run.
    pub(crate) fn read<'j>(journal: impl Into<JournalSource<'j>>) -> Result<Self> {
        let (mut retries, mut number) = (Self::default(), 0);
        each_line(journal, true, |line| {
            number += 1;
            match &line.event {
                Recorded::Retry(retry) => {
                    retries.count += 1;
                    retries.has_ended = false;
                    let steps = retried_steps(retry).into_iter();
                    retries.until.extend(steps.map(|step| (step, number)));
                }
                Recorded::EngineEnd(end) if matches!(&*end.status, "COMPLETED" | "FAILED") => {
                    retries.has_ended = true;
                    retries.has_succeeded = &*end.stop_reason == "success";
                }
                _ => {}
            }
            Ok(true)
        })?;
        Ok(retries)
    }

    /// Something of the run is left to be done.
    pub(crate) fn is_unfinished(&self) -> bool {
        !(self.has_ended && self.has_succeeded)
    }

    /// Takes the ends of more steps back, all that the journal has.
    pub(crate) fn take_back(&mut self, steps: &[RetriedStep]) {
        let all = steps.iter().cloned();
        self.until.extend(all.map(|step| (step, usize::MAX)));
    }

    /// The end in the line with this number, from 1, does not count.
    pub(crate) fn undo(&self, line: &Line<'_>, number: usize) -> bool {
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
