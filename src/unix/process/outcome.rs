//! The end of a child, or why it did not start.
//!
//! Unaware of waiting.

use crate::error::reason;
use crate::unix::files;
use crate::unix::programs::find_program;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// The reason why a child could not be started.
#[derive(Debug)]
pub(crate) enum SpawnError {
    /// There is no such program: 127 for a shell.
    NotFound,
    /// A script whose interpreter is missing, also 127, and what is wrong with its first line.
    NoInterpreter(String),
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

    /// The reason of a program that can be looked at.
    pub(super) fn of_program(error: io::Error, program: &Path, path: &OsStr) -> Self {
        match Self::of(error) {
            Self::NotFound => {
                interpreter_fault(program, path).map_or(Self::NotFound, Self::NoInterpreter)
            }
            other => other,
        }
    }

    /// The exit code that a shell would give.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::NotFound | Self::NoInterpreter(_) => 127,
            Self::NotExecutable(_) | Self::TooLong | Self::Other(_) => 126,
        }
    }

    /// The message about it.
    pub(crate) fn message(&self, program: &str) -> String {
        match self {
            Self::NotFound => format!("{program}: not found"),
            Self::NoInterpreter(why) => format!("{program}: {why}"),
            Self::NotExecutable(e) => format!("{program}: cannot be executed: {}", reason(e)),
            Self::TooLong => format!("{program}: the arguments are too long for the system"),
            Self::Other(e) => format!("{program}: cannot be started: {}", reason(e)),
        }
    }
}

/// The fault in the first line of a script that is there and not found.
pub(crate) fn interpreter_fault(program: &Path, path: &OsStr) -> Option<String> {
    const LENGTH: usize = 256;
    let found = match program.components().count() {
        1 if !program.has_root() => find_program(program.to_str()?, path)?,
        _ => program.to_owned(),
    };
    let bytes = files::read_part(&files::open_readable(&found).ok()?, 0, LENGTH).ok()?;
    let first = bytes.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(first.strip_prefix(b"#!")?).into_owned();
    if line.ends_with('\r') {
        return Some(
            "its first line ends in a carriage return: sed -i 's/\\r$//' removes them".into(),
        );
    }
    let interpreter = line.split_whitespace().next()?;
    let is_missing = !found.parent()?.join(interpreter).exists();
    is_missing.then(|| format!("its interpreter {interpreter} is not there"))
}

/// The way a child ended.
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

    /// The failure of a program that had this time, in words; `None` if it has not failed.
    pub(crate) fn fault(self, time: Duration) -> Option<String> {
        match self {
            Self::Exited(0) => None,
            Self::Exited(code) => Some(format!("exit code {code}")),
            Self::TimedOut => Some(format!("it took longer than {} s", time.as_secs())),
            Self::Interrupted(_) => Some("it was ended".to_owned()),
        }
    }
}

/// The end of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The way it ended.
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
