//! Why a start of the engine ended, and the exit code that follows.

use crate::error::Exit;
use crate::record::metadata::Status;
use crate::unix::procfs::Stop;

/// Why a start of the engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model answered without a call.
    FinalAnswer,
    /// The model's answer was cut off at its limit of tokens.
    Length,
    /// The model's answer was filtered, or it refused to give one.
    ContentFilter,
    /// The model gave no answer, however often it was asked.
    ModelUnavailable,
    /// The model's server refused the request as such.
    ModelRefused,
    /// The conversation is longer than the model takes.
    ContextFull,
    /// A required context source is not there.
    Context,
    DiskFull,
    IoError,
    MaxIterations,
    /// The tokens of `limits`.
    Tokens,
    /// The seconds of `limits`.
    Seconds,
    /// The `budget` is spent, or nobody knows how much of it.
    Budget,
    /// The deadline is near.
    Deadline,
    /// A hook ended the run.
    Hook,
    /// Somebody else wrote the journal while the run was live.
    JournalChanged,
    /// A question to a person is open.
    AskHuman,
    Signal(Stop),
}

impl StopReason {
    /// All but the signals.
    pub const ALL: [Self; 17] = [
        Self::FinalAnswer,
        Self::Length,
        Self::ContentFilter,
        Self::ModelUnavailable,
        Self::ModelRefused,
        Self::ContextFull,
        Self::Context,
        Self::DiskFull,
        Self::IoError,
        Self::MaxIterations,
        Self::Tokens,
        Self::Seconds,
        Self::Budget,
        Self::Deadline,
        Self::Hook,
        Self::JournalChanged,
        Self::AskHuman,
    ];

    /// The reason as `stop_reason` in journal, metadata and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::FinalAnswer => "final_answer",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::ModelUnavailable => "model_unavailable",
            Self::ModelRefused => "model_refused",
            Self::ContextFull => "context_full",
            Self::Context => "context",
            Self::DiskFull => "disk_full",
            Self::IoError => "io_error",
            Self::MaxIterations => "max_iterations",
            Self::Tokens => "tokens",
            Self::Seconds => "seconds",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::Hook => "hook",
            Self::JournalChanged => "journal_changed",
            Self::AskHuman => "ask_human",
            Self::Signal(stop) => stop.name(),
        }
    }

    /// The status of a run that ended for this reason.
    pub(crate) fn status(self) -> Status {
        match self {
            Self::FinalAnswer => Status::Completed,
            Self::Length | Self::ContentFilter => Status::Failed,
            Self::AskHuman => Status::WaitingForInput,
            Self::ModelUnavailable
            | Self::ModelRefused
            | Self::ContextFull
            | Self::Context
            | Self::DiskFull
            | Self::IoError
            | Self::MaxIterations
            | Self::Tokens
            | Self::Seconds
            | Self::Budget
            | Self::Deadline
            | Self::Hook
            | Self::JournalChanged
            | Self::Signal(_) => Status::Interrupted,
        }
    }

    /// The exit code of `delta`: 75 if the same command may well succeed later, 4 if somebody must decide
    /// first.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::FinalAnswer => Exit::Success,
            Self::Length | Self::ContentFilter => Exit::Failure,
            Self::AskHuman => Exit::Waiting,
            Self::ModelUnavailable | Self::DiskFull | Self::IoError | Self::Deadline => {
                Exit::TempFail
            }
            Self::ModelRefused
            | Self::ContextFull
            | Self::Context
            | Self::MaxIterations
            | Self::Tokens
            | Self::Seconds
            | Self::Budget
            | Self::Hook
            | Self::JournalChanged => Exit::Undecided,
            Self::Signal(stop) => stop.into(),
        }
    }

    /// True for a failure, false for an end that was wanted or expected.
    pub(crate) fn is_error(self) -> bool {
        match self {
            Self::Length
            | Self::ContentFilter
            | Self::ModelUnavailable
            | Self::ModelRefused
            | Self::ContextFull
            | Self::Context
            | Self::DiskFull
            | Self::IoError
            | Self::JournalChanged => true,
            Self::FinalAnswer
            | Self::MaxIterations
            | Self::Tokens
            | Self::Seconds
            | Self::Budget
            | Self::Deadline
            | Self::Hook
            | Self::AskHuman
            | Self::Signal(_) => false,
        }
    }
}
