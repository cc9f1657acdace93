//! How a child ended, or why it did not start.
//!
//! Unaware of waiting.

use crate::error::reason;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Why a child could not be started.
#[derive(Debug)]
pub(crate) enum SpawnError {
    /// There is no such program, or its interpreter is missing: 127 for a shell.
    NotFound,
    /// The file exists and cannot be executed: 126 for a shell.
    NotExecutable(io::Error),
    /// The arguments and environment are longer than the system takes (E2BIG).
    TooLong,
    /// The system has no room for another process.
    Other(io::Error),
}

impl SpawnError {
    pub(super) fn of(error: io::Error) -> Self {
        const ENOEXEC: i32 = 8;
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::NotFound | ErrorKind::NotADirectory, _) => Self::NotFound,
            (ErrorKind::ArgumentListTooLong, _) => Self::TooLong,
            (ErrorKind::PermissionDenied | ErrorKind::IsADirectory, _) | (_, Some(ENOEXEC)) => {
                Self::NotExecutable(error)
            }
            _ => Self::Other(error),
        }
    }

    /// The exit code that a shell would give.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::NotFound => 127,
            Self::NotExecutable(_) | Self::TooLong | Self::Other(_) => 126,
        }
    }

    /// What is said of it.
    pub(crate) fn message(&self, program: &str) -> String {
        match self {
            Self::NotFound => format!("{program}: not found"),
            Self::NotExecutable(e) => format!("{program}: cannot be executed: {}", reason(e)),
            Self::TooLong => format!("{program}: the arguments are too long for the system"),
            Self::Other(e) => format!("{program}: cannot be started: {}", reason(e)),
        }
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself; 128+n for a signal.
    Exited(i32),
    TimedOut,
    /// The engine was asked to end; with the child's exit code.
    Interrupted(i32),
}

impl Ended {
    /// The exit code that is recorded.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Exited(code) | Self::Interrupted(code) => code,
            Self::TimedOut => 124,
        }
    }
}

/// The end of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// How it ended.
    pub how: Ended,
    /// From its start to its end.
    pub duration: Duration,
    /// Use by the child and by those of its processes that it waited for, if the kernel was asked.
    pub used: Option<Used>,
}

/// A child's use of resources, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// User and system time.
    pub cpu: Duration,
    /// The most memory that one of its processes had resident, in bytes.
    pub memory: u64,
}
