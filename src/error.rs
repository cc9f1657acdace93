//! What can go wrong, and the exit code that says so.
//!
//! Errors travel up as values and are printed once, in `main`. This module does not know how.

use rustix::io::Errno;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// The exit codes of `delta`. Scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The run is complete, or the command did what it was asked to do.
    Success = 0,
    /// The run failed for good, or there is no such run.
    Failure = 1,
    /// The command line was wrong (sysexits has 64; shells and most tools use 2).
    Usage = 2,
    /// A workflow went on after a failure: its result is partial.
    Partial = 3,
    /// Interrupted until a person decides: a limit was reached, the model's server refuses, a
    /// context source is not there.
    Undecided = 4,
    /// A tool of `delta flow` was called in a way in which it cannot be (`EX_USAGE`).
    Misuse = 64,
    /// A defect in delta: a panic (`EX_SOFTWARE`).
    Software = 70,
    /// Interrupted for now: the same command line resumes it and may succeed (`EX_TEMPFAIL`).
    TempFail = 75,
    /// The agent's files are wrong, and nothing has been created (`EX_CONFIG`).
    Config = 78,
    /// A question to a person is open.
    Waiting = 101,
    /// `delta sandbox` could not set the sandbox up; the command has not been run (as with `env`, `nice`).
    NotSetUp = 125,
    /// The command of `delta sandbox`, or the program of `delta flow`, is there and cannot be executed,
    /// as a shell says it.
    NotExecutable = 126,
    /// There is no such command, as a shell says it.
    NotFound = 127,
    /// Ended by SIGHUP.
    Hangup = 129,
    /// Ended by SIGINT.
    Interrupt = 130,
    /// Ended by SIGTERM.
    Terminate = 143,
}

impl Exit {
    /// The number given to the system.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

/// An error: what a person reads, the exit code a script reads.
#[derive(Debug)]
pub(crate) struct Error {
    /// The exit code that goes with it.
    pub exit: Exit,
    /// One line or several; lower case, no full stop; names the thing, the place and the way out.
    pub message: String,
    /// The system had no room left: the run can be resumed once there is.
    pub disk_full: bool,
    /// The system lacked something for the moment that has nothing to do with the file.
    pub is_passing: bool,
    /// A record of a run is not what an engine wrote: the same command fails again.
    pub is_damage: bool,
}

/// The result of every fallible function of the crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with an exit code of its own.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            disk_full: false,
            is_passing: false,
            is_damage: false,
        }
    }

    /// A record of a run that is damaged, with its file: exit code 1.
    pub(crate) fn damaged(path: &Path, what: impl Display) -> Self {
        let path = path.display();
        Self {
            is_damage: true,
            ..Self::failure(format!("{path}: damaged: {what}"))
        }
    }

    /// Exit code 1.
    pub(crate) fn failure(message: impl Into<String>) -> Self {
        Self::new(Exit::Failure, message)
    }

    /// Exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Exit code 78.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Exit::Config, message)
    }

    /// The same as wrong usage, because the command line names something unusable. Temporary failures stay as they are.
    pub(crate) fn into_usage(self) -> Self {
        if self.is_passing {
            return self;
        }
        let exit = Exit::Usage;
        Self { exit, ..self }
    }

    /// An error of the system, with what was being done to which file.
    pub(crate) fn io(doing: &str, path: &Path, cause: &io::Error) -> Self {
        let message = format!("cannot {doing} {}: {}", path.display(), reason(cause));
        Self {
            disk_full: is_disk_full(cause),
            is_passing: is_passing(cause),
            ..Self::failure(message)
        }
    }

    /// The kind of error in one word, for scripts.
    pub(crate) fn kind(&self) -> &'static str {
        match self.exit {
            Exit::Usage => "usage",
            Exit::Config => "config",
            _ if self.disk_full => "disk_full",
            _ if self.is_passing => "io_error",
            Exit::TempFail => "busy",
            Exit::Interrupt | Exit::Terminate | Exit::Hangup => "interrupted",
            _ => "failure",
        }
    }

    /// The error as a command ends with it that starts a run or resumes one: the same command may succeed when the
    /// system has again what it lacked.
    pub(crate) fn of_run(mut self) -> Self {
        if self.disk_full || (self.is_passing && self.exit == Exit::Failure) {
            self.exit = Exit::TempFail;
        }
        self
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Gives an I/O error its path.
pub(crate) trait At<T> {
    /// `doing` completes "cannot …": `read`, `create`, `write`.
    fn at(self, doing: &str, path: &Path) -> Result<T>;

    /// None if there is no such file.
    fn if_there(self) -> io::Result<Option<T>>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|cause| Error::io(doing, path, &cause.into()))
    }

    fn if_there(self) -> io::Result<Option<T>> {
        match self.map_err(Into::into) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }
}

/// Says that nothing depends on whether something succeeded.
pub(crate) fn ignore<T, E>(_: std::result::Result<T, E>) {}

/// The system's words for an error, without Rust's "(os error 2)".
pub(crate) fn reason(cause: &io::Error) -> String {
    let whole = cause.to_string();
    let text = whole.split(" (os error").next().unwrap_or(&whole);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !text.starts_with("I/O") => {
            first.to_lowercase().collect::<String>() + chars.as_str()
        }
        _ => text.to_owned(),
    }
}

/// True if the system refused because no room is left: a full disk, a quota, a file-size limit.
pub(crate) fn is_disk_full(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// True if the system lacked something that it may have again: descriptors, room, a device that answers.
pub(crate) fn is_passing(cause: &io::Error) -> bool {
    let number = cause.raw_os_error().map(Errno::from_raw_os_error);
    let is_lacking = |number| [Errno::MFILE, Errno::NFILE, Errno::IO].contains(&number);
    is_disk_full(cause) || number.is_some_and(is_lacking)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_names_what_was_done_to_which_file() {
        let cause = io::Error::from_raw_os_error(2);
        let error = Error::io("read", Path::new("/x/y"), &cause);
        assert_eq!(error.message, "cannot read /x/y: no such file or directory");
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        let error = Error::io("write", Path::new("j"), &io::Error::from_raw_os_error(28));
        assert!(error.disk_full);
    }
}
