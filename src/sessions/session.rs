//! The files of one session.
//!
//! Unaware of shells: the state is files that are replaced together.
//!
//! Architecture invariant: only the holder of a session's lock changes its files. What is new is written
//! into `next/`, and counts from the instant at which there is a `next/commit`; then it takes the place of
//! the old. The next holder of the lock finishes a commit that was begun and drops what was not committed.

use crate::error::{At, Error, Result};
use crate::sessions::shell::ShellKind;
use crate::text::json;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A session's name: `sess_` and 1 to 32 of `a-z 0-9 _`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SessionId(String);

impl SessionId {
    /// Checks a name from outside; `None` if no session can have it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("sess_")?;
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let fits = (1..=32).contains(&rest.len()) && rest.bytes().all(allowed);
        fits.then(|| Self(text.to_owned()))
    }

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

/// The places of the metadata, in the order of looking: for an instant, while the new one replaces the old,
/// `next/` has the only one.
const METADATA: [&str; 3] = ["metadata.json", "next/metadata.json", "metadata.json"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SessionStatus {
    Active,
    /// No more commands are run.
    Terminated,
}

/// `metadata.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionMetadata {
    pub(crate) session_id: String,
    /// `argv` as it would be typed.
    pub(crate) command: String,
    pub(crate) argv: Vec<String>,
    /// The absolute path that was found for `argv[0]`.
    pub(crate) program: String,
    pub(crate) kind: ShellKind,
    /// RFC 3339, UTC.
    pub(crate) created_at: String,
    /// RFC 3339, UTC; `None` before the first command has ended.
    pub(crate) last_executed_at: Option<String>,
    pub(crate) status: SessionStatus,
    /// For people: `work_dir.txt` decides where the next command begins.
    pub(crate) work_dir: String,
    /// The number of the last command.
    pub(crate) execution_count: u64,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Absolute and UTF-8.
    dir: PathBuf,
}

impl Session {
    /// A session that is there, or is being created. `parent` is absolute and UTF-8.
    pub(crate) fn at(parent: &Path, id: SessionId) -> Self {
        let dir = parent.join(id.as_str());
        Self { id, dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory as a word of a script.
    pub(crate) fn dir_text(&self) -> &str {
        self.dir.to_str().unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// An error if files would be created or removed elsewhere.
    pub(crate) fn refuse_links(&self) -> Result<()> {
        for dir in ["next", "output"].map(|name| self.path(name)) {
            if dir.symlink_metadata().is_ok_and(|m| !m.is_dir()) {
                let message = format!("{} is not a directory", dir.display());
                return Err(Error::failure(message));
            }
        }
        Ok(())
    }

    /// False while it is being started, and after a start that was cut short.
    pub(crate) fn is_begun(&self) -> bool {
        METADATA.iter().any(|place| self.path(place).exists())
    }

    /// The content of a regular file of at most `limit` bytes; neither a link nor a pipe is opened.
    pub(crate) fn read_file(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        let path = self.path(name);
        let file = files::open_regular(&path)?;
        files::read_limited(file, limit).at("read", &path)
    }

    pub(crate) fn read_metadata(&self) -> Result<SessionMetadata> {
        let read = |place: &&str| self.read_file(place, files::LARGEST_METADATA);
        let found = METADATA.iter().find_map(|place| read(place).ok());
        let text = found.map_or_else(|| read(&METADATA[0]), Ok)?;
        let damaged = |e| {
            let path = self.path(METADATA[0]);
            Error::failure(format!("{}: {}", path.display(), json::parser_message(&e)))
        };
        serde_json::from_slice(&text).map_err(damaged)
    }

    /// The working directory that a file names.
    pub(crate) fn read_work_dir(&self, file: &str) -> Option<PathBuf> {
        let mut bytes = self.read_file(file, files::LARGEST_METADATA).ok()?;
        bytes.pop_if(|last| *last == b'\n');
        (!bytes.is_empty()).then(|| OsString::from_vec(bytes).into())
    }

    /// Writes a file for the next command; it need not outlive a crash.
    pub(crate) fn rewrite_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let old = self.read_file(name, bytes.len() as u64);
        if old.is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        files::remove(&path)?;
        files::write(&path, bytes)
    }

    /// Opens the history to append a line.
    pub(crate) fn open_history(&self) -> Result<File> {
        let path = self.path("history.log");
        let file = files::append(&path)?;
        files::refuse_shared(&file).at("open", &path)?;
        Ok(file)
    }

    pub(crate) fn append_history(&self, line: &[u8]) -> Result<()> {
        let path = self.path("history.log");
        self.open_history()?.write_all(line).at("write", &path)
    }

    /// Creates empty files in `next/`, so that the shell's umask does not decide their mode.
    pub(crate) fn create_next(&self, names: &[&str]) -> Result<()> {
        let next = self.path("next");
        files::make_dirs(&next)?;
        for name in names {
            files::create(&next.join(name))?;
        }
        Ok(())
    }

    /// Removes what a shell has written into `next/`.
    pub(crate) fn drop_next(&self) -> Result<()> {
        let next = self.path("next");
        for name in files::names(&next)? {
            files::remove(&next.join(name))?;
        }
        Ok(())
    }

    /// Replaces the metadata, and the state by what is in `next/`, in one step.
    pub(crate) fn commit(&self, metadata: &SessionMetadata) -> Result<()> {
        let mut text = json::text(metadata);
        text.push('\n');
        let next = self.path("next");
        files::make_dirs(&next)?;
        files::write(&next.join("metadata.json"), text.as_bytes())?;
        files::create(&next.join(COMMIT))?;
        self.finish_commit()
    }

    /// Finishes a commit that was begun, or drops what was never committed.
    pub(crate) fn finish_commit(&self) -> Result<()> {
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

    pub(crate) fn remove_dir(&self) -> Result<()> {
        let removed = fs::remove_dir_all(&self.dir).if_there();
        removed.at("remove", &self.dir).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_leave_the_directory_is_no_session() {
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
