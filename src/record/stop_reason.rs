//! Reason why a start of the engine ended, and the exit code that follows.

use crate::error::Exit;
use crate::record::metadata::Status;
use crate::record::state::CALL_AS_TEXT;
use crate::unix::signals::Stop;

/// Reason why a start of the engine ended.
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
    /// The model has repeated one call, with the same result, `same_call` times.
    NoProgress,
    /// The tokens of `limits`.
    Tokens,
    /// The seconds of `limits`.
    Seconds,
    /// The `budget` is used up, or the amount spent is unknown.
    Budget,
    /// The deadline is near.
    Deadline,
    /// The model wrote a call as text once more after it was told.
    CallAsText,
    /// The checks refused the answer, and all repairs are used up.
    NotAccepted,
    /// A check of the answer cannot be run.
    AcceptUnable,
    /// A check of the answer must be repeated later.
    AcceptLater,
    /// A hook ended the run.
    Hook,
    /// Another program wrote the journal while the run was live.
    JournalChanged,
    /// A question to a person is open.
    AskHuman,
    /// Calls end later.
    Deferred,
    /// The service is still making an answer in the background.
    Background,
    /// The run of a sub-agent is suspended.
    Subagent(Suspension),
    Signal(Stop),
}

/// Reason why a sub-agent's run is suspended, and with it the run whose call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// It waits for a person's answer.
    Asks,
    /// It may go on by itself.
    Resumable,
    /// A person must decide something.
    Undecided,
    /// Its agent's files are wrong.
    Misconfigured,
}

impl Suspension {
    /// The suspension that an exit code of `delta` says; None if the run has ended.
    pub(crate) fn of_code(code: i32) -> Option<Self> {
        /// The ones of shells for programs that a signal ended.
        const SIGNALS: std::ops::RangeInclusive<i32> = 129..=192;
        match code {
            101 => Some(Self::Asks),
            75 => Some(Self::Resumable),
            4 => Some(Self::Undecided),
            78 => Some(Self::Misconfigured),
            code if SIGNALS.contains(&code) => Some(Self::Resumable),
            _ => None,
        }
    }

    /// How much it asks of a person: of several runs the one with the most decides.
    pub(crate) fn demand(self) -> u8 {
        match self {
            Self::Resumable => 0,
            Self::Asks => 1,
            Self::Undecided => 2,
            Self::Misconfigured => 3,
        }
    }

    fn exit(self) -> Exit {
        match self {
            Self::Asks => Exit::Waiting,
            Self::Resumable => Exit::TempFail,
            Self::Undecided => Exit::Undecided,
            Self::Misconfigured => Exit::Config,
        }
    }
}

impl StopReason {
    /// All but the signals.
    pub const ALL: [Self; 25] = [
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
        Self::NoProgress,
        Self::Tokens,
        Self::Seconds,
        Self::Budget,
        Self::Deadline,
        Self::CallAsText,
        Self::NotAccepted,
        Self::AcceptUnable,
        Self::AcceptLater,
        Self::Hook,
        Self::JournalChanged,
        Self::AskHuman,
        Self::Deferred,
        Self::Background,
        Self::Subagent(Suspension::Resumable),
    ];

    /// The name, the exit code, and whether it is a failure.
    fn row(self) -> (&'static str, Exit, bool) {
        match self {
            Self::FinalAnswer => ("final_answer", Exit::Success, false),
            Self::Length => ("length", Exit::Failure, true),
            Self::ContentFilter => ("content_filter", Exit::Failure, true),
            Self::ModelUnavailable => ("model_unavailable", Exit::TempFail, true),
            Self::ModelRefused => ("model_refused", Exit::Undecided, true),
            Self::ContextFull => ("context_full", Exit::Undecided, true),
            Self::Context => ("context", Exit::Undecided, true),
            Self::DiskFull => ("disk_full", Exit::TempFail, true),
            Self::IoError => ("io_error", Exit::TempFail, true),
            Self::MaxIterations => ("max_iterations", Exit::Undecided, false),
            Self::NoProgress => ("no_progress", Exit::Undecided, false),
            Self::Tokens => ("tokens", Exit::Undecided, false),
            Self::Seconds => ("seconds", Exit::Undecided, false),
            Self::Budget => ("budget", Exit::Undecided, false),
            Self::Deadline => ("deadline", Exit::TempFail, false),
            Self::CallAsText => (CALL_AS_TEXT, Exit::Failure, true),
            Self::NotAccepted => ("not_accepted", Exit::Failure, true),
            Self::AcceptUnable => ("accept", Exit::Undecided, true),
            Self::AcceptLater => ("accept", Exit::TempFail, true),
            Self::Hook => ("hook", Exit::Undecided, false),
            Self::JournalChanged => ("journal_changed", Exit::Undecided, true),
            Self::AskHuman => ("ask_human", Exit::Waiting, false),
            Self::Deferred => ("deferred", Exit::TempFail, false),
            Self::Background => ("background", Exit::TempFail, false),
            Self::Subagent(suspension) => ("subagent", suspension.exit(), false),
            Self::Signal(stop) => (stop.name(), stop.into(), false),
        }
    }

    /// The reason as `stop_reason` in journal, metadata and results.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The status of a run that ended for this reason.
    pub(crate) fn status(self) -> Status {
        match (self, self.exit()) {
            (Self::Subagent(_) | Self::Signal(_), _) => Status::Interrupted,
            (_, Exit::Success) => Status::Completed,
            (_, Exit::Failure) => Status::Failed,
            (_, Exit::Waiting) => Status::WaitingForInput,
            _ => Status::Interrupted,
        }
    }

    /// The exit code of `delta`: 75 if the same command may well succeed later, 4 if a person must decide
    /// first.
    pub(crate) fn exit(self) -> Exit {
        self.row().1
    }

    /// True for a failure, false for an end that was wanted or expected.
    pub(crate) fn is_error(self) -> bool {
        self.row().2
    }
}
