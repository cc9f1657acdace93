//! The end of a start of the engine.

use crate::engine::due::Registration;
use crate::error::{Error, Exit, ignore};
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::spending::{Amount, Denial};
use crate::record::stop_reason::StopReason;
use crate::unix::signals::Stop;

/// The end of a start of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The run's status from now on.
    pub status: Status,
    /// The reason in one word.
    pub stop_reason: String,
    /// The exit code.
    pub exit: Exit,
    /// The result, or what went wrong.
    pub text: String,
}

impl Ending {
    pub(crate) fn new(reason: StopReason, text: impl Into<String>) -> Self {
        Self {
            status: reason.status(),
            stop_reason: reason.name().to_owned(),
            exit: reason.exit(),
            text: text.into(),
        }
    }

    pub(super) fn completed(text: String) -> Self {
        Self::new(StopReason::FinalAnswer, text)
    }

    pub(crate) fn stopped(stop: Stop) -> Self {
        if stop == Stop::Deadline {
            let text = "the deadline is near: nothing more is begun";
            return Self::new(StopReason::Deadline, text);
        }
        Self::new(
            StopReason::Signal(stop),
            format!("ended by {}", stop.name()),
        )
    }

    /// The end of a run that may not spend anything more, or whose spending is not known.
    pub(super) fn denied(denial: Denial) -> Self {
        match denial {
            Denial::Exhausted(text) | Denial::Pending(text) | Denial::Foreign(text) => {
                Self::new(StopReason::Budget, text)
            }
            Denial::Unusable(error) if error.disk_full => {
                Self::new(StopReason::DiskFull, error.message)
            }
            Denial::Unusable(error) => Self::new(StopReason::IoError, error.message),
            Denial::Stopped(stop) => Self::stopped(stop),
        }
    }

    pub(super) fn waiting(prompt: &str) -> Self {
        Self::new(
            StopReason::AskHuman,
            if prompt.contains('\n') {
                format!("waiting for an answer:\n{prompt}")
            } else {
                format!("waiting for an answer: {prompt}")
            },
        )
    }

    /// True if something went wrong, rather than having been wished or foreseen.
    pub(super) fn is_error(&self) -> bool {
        let reason = StopReason::ALL
            .into_iter()
            .find(|reason| reason.name() == self.stop_reason);
        reason.is_some_and(StopReason::is_error)
    }
}

/// Reason to stop the work before its next step.
#[derive(Debug)]
pub(super) enum Halt {
    /// This start ends here.
    Ended(Ending),
    /// The step failed.
    Failed(Error),
}

/// Result of a step of the work, unless the work stops.
pub(super) type Step<T> = std::result::Result<T, Halt>;

impl From<Ending> for Halt {
    fn from(ending: Ending) -> Self {
        Self::Ended(ending)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Stops the work if there is an ending.
pub(super) fn halt_on(ending: Option<Ending>) -> Step<()> {
    ending.map_or(Ok(()), |ending| Err(ending.into()))
}

/// A start of the engine that is over.
pub(crate) struct EndedRun {
    /// The end itself.
    pub ending: Ending,
    /// The run's summary.
    pub metadata: Metadata,
    /// The run's directory.
    pub run: RunDir,
    /// Spending of the run and the runs below it over their whole lives, and whether that has a price.
    pub spent: Option<(Amount, bool)>,
    /// The part of the model's window that the last request and its answer take, if both are known.
    pub window_share: Option<f64>,
    /// The files that tools have reported as changed in this start, in words.
    pub changed: String,
    /// The run's place in the registry of those that wait.
    pub registration: Option<Registration>,
    /// The terminal shows the result already.
    pub is_shown: bool,
    /// Keeps the run ours until all is said.
    pub(super) journal: Journal,
}

impl EndedRun {
    /// Writes the summary. Until then the run counts as one whose end has not been printed, so that the
    /// same command prints it again rather than starting anew. Returns it, and the journal: the run is this
    /// process's until that is dropped.
    pub(crate) fn seal(self) -> (Metadata, Journal) {
        if self.journal.is_in_place() {
            ignore(self.metadata.write(&self.run.path));
        }
        (self.metadata, self.journal)
    }
}
