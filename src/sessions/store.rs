//! The directory of sessions: their names, files and locks.
//!
//! Unaware of shells: the state is files that are replaced together.
//!
//! Architecture invariant: whoever changes a session's files holds its lock. What is new is written
//! into `next/`, and counts from the instant at which there is a `next/commit`; then it takes the
//! place of the old. Whoever takes the lock finishes a commit that was begun and throws away what
//! was not committed.

use crate::error::{At, Error, Result};
use crate::sessions::shell::Kind;
use crate::text::ids;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process;
use crate::unix::procfs::{Signals, Stop};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A session's name: `sess_` and 1 to 32 of `a-z 0-9 _`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SessionId(String);

impl SessionId {
    /// Takes a name from outside; `None` if no session can have it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("sess_")?;
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let fits = (1..=32).contains(&rest.len()) && rest.bytes().all(allowed);
        fits.then(|| Self(text.to_owned()))
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// While this is in `next/`, what is beside it counts.
const COMMIT: &str = "commit";

/// Where the metadata is looked for, in order: it is nowhere but in `next/` for an instant, while the
/// new one takes the place of the old.
const METADATA: [&str; 3] = ["metadata.json", "next/metadata.json", "metadata.json"];

/// Whether a session takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// It does.
    Active,
    /// It has been ended.
    Terminated,
}

/// `metadata.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// The session's name, as the directory has it.
    pub session_id: String,
    /// What was started, as it would be typed.
    pub command: String,
    /// What was started, word by word.
    pub argv: Vec<String>,
    /// The program that was found for its first word.
    pub program: String,
    /// How it is run and what it keeps.
    pub kind: Kind,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// RFC 3339, UTC; `None` before the first command has ended.
    pub last_executed_at: Option<String>,
    /// Whether it takes commands.
    pub status: Status,
    /// Where the next command begins, for people; `work_dir.txt` decides.
    pub work_dir: String,
    /// The number of the last command.
    pub execution_count: u64,
}

/// A folder of sessions.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
}

impl Store {
    /// The folder may not be there yet.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let dir = files::absolute(dir)?;
        if dir.to_str().is_none() {
            let message = format!("the path of the sessions, {}, is not UTF-8", dir.display());
            return Err(Error::failure(message));
        }
        Ok(Self { dir })
    }

    /// Makes a directory for a new session, and the folder if need be.
    pub(crate) fn create(&self) -> Result<Session> {
        files::make_dirs(&self.dir)?;
        let ignore = self.dir.join(".gitignore");
        if !ignore.exists() {
            files::replace_shared(&ignore, b"*\n")?;
        }
        let name = files::make_unique_dir(&self.dir, &format!("sess_{}", ids::hex(8)))?;
        Ok(Session {
            dir: self.dir.join(&name),
            id: SessionId(name),
        })
    }

    /// Finds a session by the name somebody gave.
    pub(crate) fn open(&self, name: &str) -> Result<Session> {
        let session = SessionId::parse(name).map(|id| Session {
            dir: self.dir.join(id.as_str()),
            id,
        });
        session
            .filter(|session| session.dir.symlink_metadata().is_ok_and(|m| m.is_dir()))
            .filter(Session::is_begun)
            .ok_or_else(|| {
                Error::failure(format!(
                    "no session '{}' in {}; `delta-sessions start` makes one, `list` shows them",
                    name.escape_debug(),
                    self.dir.display()
                ))
            })
    }

    /// All directories that are sessions or were about to become ones, by name.
    pub(crate) fn all(&self) -> Result<Vec<Session>> {
        let sessions = files::names(&self.dir)?
            .into_iter()
            .filter_map(|name| SessionId::parse(&name))
            .map(|id| Session {
                dir: self.dir.join(id.as_str()),
                id,
            })
            .filter(|session| session.dir.symlink_metadata().is_ok_and(|m| m.is_dir()));
        Ok(sessions.collect())
    }
}

/// A session's directory.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its name.
    pub id: SessionId,
    dir: PathBuf,
}

impl Session {
    /// The directory: absolute and UTF-8.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Whether its start has come to an end.
    pub(crate) fn is_begun(&self) -> bool {
        METADATA.iter().any(|place| self.path(place).exists())
    }

    /// Reads `metadata.json`.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let path = self.path(METADATA[0]);
        let mut found = Err(ErrorKind::NotFound.into());
        for place in METADATA {
            found = fs::read(self.path(place));
            if !found
                .as_ref()
                .is_err_and(|e| e.kind() == ErrorKind::NotFound)
            {
                break;
            }
        }
        serde_json::from_slice(&found.at("read", &path)?)
            .map_err(|e| Error::failure(format!("{}: {e}", path.display())))
    }

    /// The directory that a file names.
    pub(crate) fn work_dir(&self, file: &str) -> Option<PathBuf> {
        let mut bytes = fs::read(self.path(file)).ok()?;
        bytes.pop_if(|last| *last == b'\n');
        (!bytes.is_empty()).then(|| OsString::from_vec(bytes).into())
    }

    /// Writes a file of the next command's; it need not outlive a crash.
    pub(crate) fn write_anew(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        files::remove(&path)?;
        files::write(&path, bytes)
    }

    /// Adds a line to `history.log`.
    pub(crate) fn add_history(&self, line: &[u8]) -> Result<()> {
        let path = self.path("history.log");
        files::append(&path)?.write_all(line).at("write", &path)
    }

    /// Empty files in `next/`, made here so that the shell's umask has no say in their mode.
    pub(crate) fn make_next(&self, names: &[&str]) -> Result<()> {
        let next = self.path("next");
        files::make_dirs(&next)?;
        for name in names {
            files::create(&next.join(name))?;
        }
        Ok(())
    }

    /// Throws away what a shell has written into `next/`.
    pub(crate) fn drop_next(&self) -> Result<()> {
        let next = self.path("next");
        for name in files::names(&next)? {
            files::remove(&next.join(name))?;
        }
        Ok(())
    }

    /// Makes this the metadata and what is in `next/` the state of the session, in one step.
    pub(crate) fn commit(&self, metadata: &Metadata) -> Result<()> {
        let mut text = json::text(metadata);
        text.push('\n');
        let next = self.path("next");
        files::make_dirs(&next)?;
        files::write(&next.join("metadata.json"), text.as_bytes())?;
        files::create(&next.join(COMMIT))?;
        self.settle()
    }

    /// Finishes a commit that was begun; throws away what was never committed.
    pub(crate) fn settle(&self) -> Result<()> {
        let next = self.path("next");
        if !next.join(COMMIT).exists() {
            return self.drop_next();
        }
        for name in files::names(&next)?.iter().filter(|name| *name != COMMIT) {
            let (from, to) = (next.join(name), self.path(name));
            // Renaming onto a file makes ext4 write the new one to the disk at once. What has been
            // committed cannot be lost, so the old one may go first.
            files::remove(&to)?;
            fs::rename(&from, &to).at("rename", &from)?;
        }
        files::remove(&next.join(COMMIT))
    }

    /// Removes the whole directory.
    pub(crate) fn remove(&self) -> Result<()> {
        remove_dir_all(&self.dir)
    }

    /// Waits for the lock, or for a signal.
    ///
    /// The system's own wait for a lock cannot be woken by a handler that lets calls restart, and
    /// there is no descriptor to poll for one: it is tried again and again, at most 25 ms apart.
    pub(crate) fn lock(
        &self,
        signals: &Signals,
        when: Busy,
    ) -> Result<std::result::Result<Lock, Stop>> {
        let path = self.path("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .at("open", &path)?;
        let mut pause = Duration::from_millis(1);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Ok(Lock { file, path })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(e).at("lock", &path),
            }
            if when == Busy::End && end_running(&path) {
                pause = Duration::from_millis(1);
            }
            if let Err(stop) = signals.sleep(pause) {
                return Ok(Err(stop));
            }
            pause = (pause * 2).min(Duration::from_millis(25));
        }
    }
}

/// What is done about a command that runs while the lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// It is waited for.
    Wait,
    /// It is ended.
    End,
}

/// A session's lock, held. The file holds the call id of the command that runs, if one does.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Ends what a `delta-sessions` left running that was killed. Tells whether there was anything.
    pub(crate) fn end_leftovers(&mut self) -> Result<bool> {
        let found = end_running(&self.path);
        self.write("")?;
        Ok(found)
    }

    /// Says that a command runs, or, with an empty id, that none does.
    pub(crate) fn write(&mut self, call_id: &str) -> Result<()> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(call_id.as_bytes()))
            .at("write", &self.path)
    }
}

/// Ends the command whose call id the file holds. Tells whether there was any of it.
fn end_running(lock: &Path) -> bool {
    let call_id = fs::read_to_string(lock).unwrap_or_default();
    !call_id.is_empty() && process::end_leftovers(&call_id) > 0
}

fn remove_dir_all(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).at("remove", path),
        _ => Ok(()),
    }
}

/// The time now, as it stands in the files.
pub(crate) fn now() -> String {
    Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_leave_the_folder_is_no_session() {
        for bad in [
            "",
            "sess_",
            "..",
            "sess_/..",
            "sess_../x",
            "sess_a/b",
            "/sess_a",
            "sess_A",
            "sess_a\n",
            "sess_é",
            "SESS_a",
            ".sess_a",
            "sess_a\0",
            "metadata.json",
        ] {
            assert_eq!(SessionId::parse(bad), None, "{bad:?}");
        }
        assert!(SessionId::parse(&format!("sess_{}", "a".repeat(33))).is_none());
        assert!(SessionId::parse("sess_1a2b3c4d").is_some());
    }
}
