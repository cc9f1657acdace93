//! The warning about bytes on the standard input that a command does not read: a user who pipes something in probably
//! expects it to be read.
//!
//! Nothing is read, and nothing is waited for.

use crate::cli::args::Common;
use crate::runs::task::GivenPart;
use crate::unix::terminal::Screen;
use rustix::fs::{FileType, SeekFrom, fstat, seek};
use std::io;

/// Looks at the standard input at the start of a command and at its end, and warns once.
pub(crate) struct UnreadStdin {
    /// Nothing reads it, and no warning has been printed.
    is_open: bool,
}

impl UnreadStdin {
    pub(crate) fn watch(common: &Common) -> Self {
        let is_read = common.interactive || common.message.contains(&GivenPart::Stdin);
        let mut watch = Self { is_open: !is_read };
        watch.look();
        watch
    }

    /// Warns of what has come since.
    pub(crate) fn look(&mut self) {
        if self.is_open && has_bytes() {
            self.is_open = false;
            Screen::new(true, false)
                .warn("stdin is ignored; add -m - to include it, or </dev/null to leave it out");
        }
    }
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
