//! The lock of a session, which one command holds at a time.

use crate::error::{At, Result};
use crate::sessions::session::Session;
use crate::unix::files;
use crate::unix::process;
use crate::unix::signals::Signals;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// The choice when a command holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    Wait,
    EndIt,
}

/// Held until it is dropped. The file holds the call id of the command that runs, if one does.
#[derive(Debug)]
pub(crate) struct SessionLock {
    file: File,
    path: PathBuf,
}

impl SessionLock {
    /// Waits for the lock, or for a signal.
    ///
    /// The system's own wait for a lock cannot be woken by a handler that lets calls restart, and there is
    /// no descriptor to poll for one: it is tried again and again, at most 25 ms apart.
    pub(crate) fn acquire(
        session: &Session,
        signals: &Signals,
        when_busy: WhenBusy,
    ) -> Result<Self> {
        let path = session.path("lock");
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = options.open(&path).at("open", &path)?;
        files::refuse_shared(&file).at("open", &path)?;
        let mut pause = Duration::from_millis(1);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file, path }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(e).at("lock", &path),
            }
            if when_busy == WhenBusy::EndIt && end_running(&file) {
                pause = Duration::from_millis(1);
            }
            signals.sleep(pause)?;
            pause = (pause * 2).min(Duration::from_millis(25));
        }
    }

    /// Ends what a killed `delta-sessions` left running. Returns whether there was anything.
    pub(crate) fn end_leftovers(&mut self) -> Result<bool> {
        let found = end_running(&self.file);
        self.write_call_id("")?;
        Ok(found)
    }

    /// Records which command runs; an empty id: none does.
    pub(crate) fn write_call_id(&mut self, call_id: &str) -> Result<()> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(call_id.as_bytes()))
            .at("write", &self.path)
    }
}

/// Ends the command whose call id a lock holds. Returns whether any of it was running.
fn end_running(lock: &File) -> bool {
    let call_id = files::read_part(lock, 0, 4096).unwrap_or_default();
    let call_id = String::from_utf8(call_id).unwrap_or_default();
    !call_id.is_empty() && process::end_leftovers(&call_id) > 0
}
