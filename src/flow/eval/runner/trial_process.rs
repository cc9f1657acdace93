//! A program that runs for a trial: the target, or a grader of its answer.

use super::TrialIx;
use crate::flow::eval::assertion::{Mark, TargetResult};
use std::path::PathBuf;

/// An answer that is being judged, with the marks of the assertions that have been.
pub(super) struct Judging {
    pub trial: TrialIx,
    pub result: TargetResult,
    pub stop_reason: String,
    pub workspace: PathBuf,
    pub marks: Vec<Mark>,
}

/// What a program does for its trial.
pub(super) enum ProcessRole {
    /// It gives the answer.
    Target,
    /// It judges one.
    Grader(Box<Judging>),
}

/// A program of a trial that runs.
pub(super) struct TrialProcess {
    pub trial: TrialIx,
    /// The directory of records.
    pub io: PathBuf,
    pub call_id: String,
    pub role: ProcessRole,
    /// It printed more than may be, and is being ended.
    pub is_oversized: bool,
}

impl TrialProcess {
    pub(super) fn new(trial: TrialIx, io: PathBuf, call_id: String, role: ProcessRole) -> Self {
        Self {
            trial,
            io,
            call_id,
            role,
            is_oversized: false,
        }
    }
}
