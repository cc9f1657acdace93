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
use crate::unix::origin::{
    ForeignReason, Origin, adopts_all, check_origin, make_stamped_dir, stamp_dir,
};
use crate::unix::process;
use crate::unix::procfs::{Signals, Stop};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
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
    pub(crate) session_id: String,
    /// What was started, as it would be typed.
    pub(crate) command: String,
    /// What was started, word by word.
    pub(crate) argv: Vec<String>,
    /// The program that was found for its first word.
    pub(crate) program: String,
    /// How it is run and what it keeps.
    pub(crate) kind: Kind,
    /// RFC 3339, UTC.
    pub(crate) created_at: String,
    /// RFC 3339, UTC; `None` before the first command has ended.
    pub(crate) last_executed_at: Option<String>,
    /// Whether it takes commands.
    pub(crate) status: Status,
    /// Where the next command begins, for people; `work_dir.txt` decides.
    pub(crate) work_dir: String,
    /// The number of the last command.
    pub(crate) execution_count: u64,
}

/// A sessions directory.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    /// Nothing in it is run then: `env.sh` is code.
    foreign: Option<ForeignReason>,
}

impl Store {
    /// The directory need not exist. `adopt` stamps it and all sessions in it.
    pub(crate) fn open(dir: &Path, adopt: bool) -> Result<Self> {
        let dir = files::absolute(dir)?;
        if dir.to_str().is_none() {
            let message = format!("the path of the sessions, {}, is not UTF-8", dir.display());
            return Err(Error::failure(message));
        }
        let foreign = foreign_reason(&dir)?;
        let mut store = Self { dir, foreign };
        if store.dir.symlink_metadata().is_ok() && (adopt || foreign.is_some() && adopts_all()) {
            stamp_dir(&store.dir)?;
            for session in store.all()? {
                stamp_dir(&session.dir)?;
            }
            store.foreign = None;
        }
        Ok(store)
    }

    /// Creates the directory of a new session, and the sessions directory unless it exists.
    pub(crate) fn create_session(&mut self) -> Result<Session> {
        make_stamped_dir(&self.dir, &[(".gitignore", b"*\n")])?;
        // Looked at before the stamp: whoever starts the first session at the same time stamps first.
        let is_unused = self.all()?.is_empty();
        self.foreign = foreign_reason(&self.dir)?;
        if is_unused && self.foreign == Some(ForeignReason::NoStamp) {
            stamp_dir(&self.dir)?;
            files::replace_shared(&self.dir.join(".gitignore"), b"*\n")?;
            self.foreign = None;
        }
        self.refuse_foreign()?;
        let name = files::make_unique_dir(&self.dir, &format!("sess_{}", ids::hex(8)))?;
        let session = Session {
            dir: self.dir.join(&name),
            id: SessionId(name),
        };
        stamp_dir(&session.dir)?;
        Ok(session)
    }

    /// Finds a session to run, by a name that may come from a model.
    pub(crate) fn open_session(&self, name: &str) -> Result<Session> {
        let session = self.session(name).filter(Session::is_begun);
        let session = session.ok_or_else(|| {
            Error::failure(format!(
                "no session '{}' in {}; 'delta-sessions start' begins one, 'list' prints them",
                name.escape_debug(),
                self.dir.display()
            ))
        })?;
        self.refuse_foreign()?;
        if let Some(reason) = foreign_reason(&session.dir)? {
            return Err(foreign_error(&session.dir, reason));
        }
        session.refuse_links()?;
        Ok(session)
    }

    /// An error if nothing in this directory may be run.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        let error = |reason| Err(foreign_error(&self.dir, reason));
        self.foreign.map_or(Ok(()), error)
    }

    /// Whether a session may only be shown.
    pub(crate) fn is_foreign(&self, session: &Session) -> Result<bool> {
        Ok(self.foreign.is_some() || foreign_reason(&session.dir)?.is_some())
    }

    /// All directories that are sessions or were about to become ones, by name.
    pub(crate) fn all(&self) -> Result<Vec<Session>> {
        let names = files::names(&self.dir)?.into_iter();
        Ok(names.filter_map(|name| self.session(&name)).collect())
    }

    fn session(&self, name: &str) -> Option<Session> {
        let id = SessionId::parse(name)?;
        let dir = self.dir.join(id.as_str());
        let is_dir = dir.symlink_metadata().is_ok_and(|m| m.is_dir());
        is_dir.then_some(Session { id, dir })
    }
}

fn foreign_reason(dir: &Path) -> Result<Option<ForeignReason>> {
    Ok(match check_origin(dir)? {
        Origin::Foreign(reason) => Some(reason),
        Origin::Own | Origin::Missing => None,
    })
}

fn foreign_error(dir: &Path, reason: ForeignReason) -> Error {
    Error::failure(format!(
        "{} {reason}; nothing in it is run: if you trust it, --adopt makes it yours",
        dir.display()
    ))
}

/// A session's directory.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its name.
    pub(crate) id: SessionId,
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

    /// An error if files would be created or removed elsewhere.
    fn refuse_links(&self) -> Result<()> {
        for dir in ["next", "output"].map(|name| self.path(name)) {
            if dir.symlink_metadata().is_ok_and(|m| !m.is_dir()) {
                let message = format!("{} is not a directory", dir.display());
                return Err(Error::failure(message));
            }
        }
        Ok(())
    }

    /// Whether its start has come to an end.
    pub(crate) fn is_begun(&self) -> bool {
        METADATA.iter().any(|place| self.path(place).exists())
    }

    /// The content of a file; neither a link nor a pipe is opened.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.path(name);
        let mut bytes = Vec::new();
        let read = files::open_regular(&path)?.read_to_end(&mut bytes);
        read.at("read", &path).map(|_| bytes)
    }

    /// Reads `metadata.json`.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let found = METADATA.iter().find_map(|place| self.read(place).ok());
        let text = found.map_or_else(|| self.read(METADATA[0]), Ok)?;
        let damaged = |e| Error::failure(format!("{}: {e}", self.path(METADATA[0]).display()));
        serde_json::from_slice(&text).map_err(damaged)
    }

    /// The directory that a file names.
    pub(crate) fn work_dir(&self, file: &str) -> Option<PathBuf> {
        let mut bytes = self.read(file).ok()?;
        bytes.pop_if(|last| *last == b'\n');
        (!bytes.is_empty()).then(|| OsString::from_vec(bytes).into())
    }

    /// Writes a file of the next command's; it need not outlive a crash.
    pub(crate) fn write_anew(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        if self.read(name).is_ok_and(|old| old == bytes) {
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
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(flags);
        let file = options.open(&path).at("open", &path)?;
        if !file.metadata().at("open", &path)?.is_file() {
            return Err(io::Error::other("it is not a regular file")).at("open", &path);
        }
        let mut pause = Duration::from_millis(1);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Ok(Lock { file, path })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(e).at("lock", &path),
            }
            if when == Busy::End && end_running(&file) {
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
        let found = end_running(&self.file);
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

/// Ends the command whose call id a lock holds. Returns whether any of it was running.
fn end_running(lock: &File) -> bool {
    let call_id = files::read_part(lock, 0, 4096).unwrap_or_default();
    let call_id = String::from_utf8(call_id).unwrap_or_default();
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
