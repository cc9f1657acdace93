//! How a start of the engine ended.

use crate::error::{Exit, may_fail};
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::unix::procfs::Stop;

/// How a start of the engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The run's status from now on.
    pub status: Status,
    /// Why, in one word.
    pub stop_reason: String,
    /// The exit code.
    pub exit: Exit,
    /// The result, or what went wrong.
    pub text: String,
}

impl Ending {
    pub(super) fn completed(text: String) -> Self {
        Self {
            status: Status::Completed,
            stop_reason: "final_answer".to_owned(),
            exit: Exit::Success,
            text,
        }
    }

    pub(super) fn failed(stop_reason: &str, text: impl Into<String>) -> Self {
        Self {
            status: Status::Failed,
            stop_reason: stop_reason.to_owned(),
            exit: Exit::Failure,
            text: text.into(),
        }
    }

    /// To be resumed by the same command.
    pub(super) fn interrupted(stop_reason: &str, text: impl Into<String>) -> Self {
        Self {
            status: Status::Interrupted,
            stop_reason: stop_reason.to_owned(),
            exit: Exit::TempFail,
            text: text.into(),
        }
    }

    pub(super) fn stopped(stop: Stop) -> Self {
        Self {
            exit: stop.into(),
            ..Self::interrupted(stop.name(), format!("ended by {}", stop.name()))
        }
    }

    pub(super) fn waiting(prompt: &str) -> Self {
        Self {
            status: Status::WaitingForInput,
            stop_reason: "ask_human".to_owned(),
            exit: Exit::Waiting,
            text: format!("waiting for an answer: {prompt}"),
        }
    }

    /// Whether something went wrong, rather than having been wished or foreseen.
    pub(super) fn is_error(&self) -> bool {
        const WRONG: [&str; 3] = ["model_unavailable", "disk_full", "io_error"];
        self.status == Status::Failed || WRONG.contains(&self.stop_reason.as_str())
    }
}

/// A start of the engine that is over.
pub(crate) struct Ended {
    /// How.
    pub ending: Ending,
    /// The run's summary.
    pub metadata: Metadata,
    /// The run's directory.
    pub run: RunDir,
    /// Keeps the run ours until all is said.
    pub(super) journal: Journal,
}

impl Ended {
    /// Writes the summary. Until then the run counts as one whose end nobody has been told, so that the
    /// same command tells it again rather than starting anew.
    pub(crate) fn seal(self) {
        self.run.release_reserve();
        if self.journal.is_in_place() {
            may_fail(self.metadata.write(&self.run.path));
        }
    }
}
