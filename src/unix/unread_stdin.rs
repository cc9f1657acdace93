//! Bytes on a standard input that a command does not read: a user who pipes something in probably expects it to be read.
//!
//! Nothing is read, and nothing is waited for.

use super::terminal::{Screen, is_in_foreground, stderr_is_terminal};
use crate::error::{Error, Result};
use rustix::fs::{FileType, SeekFrom, fstat, seek};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ways for the command to read the standard input, if it does not and no warning has been printed.
static UNREAD: Mutex<Option<Remedy>> = Mutex::new(None);

/// Ways to have the standard input read: the beginning of a command, and an option.
#[derive(Clone, Copy)]
pub(crate) struct Remedy {
    pub command: &'static str,
    pub option: &'static str,
}

/// True for a file that is the standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    let names = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    names.iter().any(|name| path == Path::new(name))
}

/// Watches from the start of a command on, unless that reads the standard input.
///
/// # Errors
/// As for [`check`].
pub(crate) fn watch(is_read: bool, remedy: Remedy) -> Result<()> {
    *unread() = (!is_read).then_some(remedy);
    check()
}

/// Checks before anything is created and sent.
///
/// # Errors
/// There are bytes, and the user is at a terminal and can repeat the command as it was meant. Elsewhere this is a warning.
pub(crate) fn check() -> Result<()> {
    let refused = unread().take_if(|_| stderr_is_terminal() && is_in_foreground() && has_bytes());
    match refused {
        Some(Remedy { command, .. }) => Err(Error::usage(format!(
            "nothing reads the text on stdin: include it with `{command} …`, or leave it out with `</dev/null`"
        ))),
        None => {
            warn();
            Ok(())
        }
    }
}

/// Warns, once, of bytes that have come.
pub(crate) fn warn() {
    if let Some(Remedy { option, .. }) = unread().take_if(|_| has_bytes()) {
        let text =
            format!("stdin is ignored; add {option} to include it, or </dev/null to leave it out");
        Screen::new(true, false).warn(&text);
    }
}

fn unread() -> MutexGuard<'static, Option<Remedy>> {
    UNREAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if bytes can be read from a pipe or a regular file.
fn has_bytes() -> bool {
    let stdin = io::stdin();
    let Ok(stat) = fstat(&stdin) else {
        return false;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => rustix::io::ioctl_fionread(&stdin).is_ok_and(|bytes| bytes > 0),
        FileType::RegularFile => {
            let at = seek(&stdin, SeekFrom::Current(0));
            at.is_ok_and(|at| u64::try_from(stat.st_size).is_ok_and(|size| at < size))
        }
        _ => false,
    }
}
