//! The journal's file: locked, appended to, read back, cut where a write was torn.
//!
//! Unaware of what the events add up to; `state` knows that.
//!
//! Architecture invariant: the holder of a `Journal` owns the run, proved by the kernel's lock on
//! the file. An append is one `write`; one that fails leaves the file as it was.

use crate::error::{At, Error, Result, ignore};
use crate::record::event::{self, Event, EventKind};
use crate::record::feed::Feed;
use crate::record::reader::{Tail, check_length, read_whole};
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use crate::unix::{files, locks};
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long others may hold a shared lock to see whether a journal is owned.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// A journal that this process owns.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// How long the file is.
    len: u64,
    /// How long it was when it was opened, without a torn line.
    found: u64,
    /// The number of the last event, in the file or pending.
    seq: u64,
    pending: Vec<u8>,
    synced: bool,
    sync: bool,
    /// Device and inode.
    identity: (u64, u64),
    /// The way the file was left by us.
    left: JournalStamp,
    /// Another process has written the file since it was opened.
    changed: bool,
    /// Gets what is appended.
    feed: Option<Rc<Feed>>,
}

/// Changes with every write to a file, as finely as the kernel's clock for files permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JournalStamp {
    len: u64,
    changed: (i64, i64),
}

impl JournalStamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            len: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// The content of a journal at one moment, read without owning it.
#[derive(Debug)]
pub(crate) struct JournalCopy {
    pub bytes: Vec<u8>,
    /// Device and inode.
    identity: (u64, u64),
    /// The way the file was before it was read.
    left: JournalStamp,
}

impl JournalCopy {
    /// Reads a journal. One that is a link or no regular file is not read.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let file = files::open_unlinked(path)?;
        let meta = file.metadata()?;
        Ok(Self {
            bytes: read_whole(file)?,
            identity: identity(&meta),
            left: JournalStamp::of(&meta),
        })
    }
}

impl Journal {
    /// Creates and locks a new journal.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .at("create", path)?;
        file.try_lock().map_err(|_| locks::held_error(path))?;
        let meta = file.metadata().at("read", path)?;
        Ok(Self::new(file, path, &meta))
    }

    /// Opens and locks a journal; `None` if another process keeps it locked. A link is refused: what is appended
    /// and cut off must not be another file.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let began = Instant::now();
        loop {
            if path.symlink_metadata().at("open", path)?.is_symlink() {
                return Err(files::not_regular()).at("open", path);
            }
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
                .open(path)
                .at("open", path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock)
                    if Self::is_locked(path) || began.elapsed() > PROBE_TIME =>
                {
                    return Ok(None);
                }
                // Others only looked whether it is owned, and have done so by now.
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(cause)) => return Err(cause).at("lock", path),
            }
            // An editor may have put another file in its place meanwhile.
            let (ours, there) = (
                file.metadata().at("read", path)?,
                path.metadata().at("read", path)?,
            );
            if !ours.is_file() {
                return Err(files::not_regular()).at("open", path);
            }
            if identity(&ours) == identity(&there) {
                return Ok(Some(Self::new(file, path, &ours)));
            }
        }
    }

    fn new(file: File, path: &Path, meta: &Metadata) -> Self {
        Self {
            file,
            path: path.to_owned(),
            len: meta.len(),
            found: meta.len(),
            identity: identity(meta),
            left: JournalStamp::of(meta),
            changed: false,
            seq: 0,
            pending: Vec::new(),
            synced: false,
            sync: true,
            feed: None,
        }
    }

    /// True if a process holds the lock now, as the owner does and any other can. `false` if there is no journal.
    pub(crate) fn is_locked(path: &Path) -> bool {
        let Ok(file) = files::open_readable(path) else {
            return false;
        };
        // A shared lock does not disturb other readers.
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Says that the file has been moved together with its directory.
    pub(crate) fn moved_to(&mut self, path: &Path) {
        path.clone_into(&mut self.path);
    }

    /// Numbers of new events follow this one.
    pub(crate) fn continue_after(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// Gives a program what has been appended since the journal was opened, and what will be. `content` is all that
    /// the file holds.
    pub(crate) fn feed(&mut self, feed: Rc<Feed>, content: &[u8]) {
        let appended = content.get(self.found as usize..).unwrap_or_default();
        feed.add(appended.trim_ascii_start());
        self.feed = Some(feed);
    }

    /// Sets whether `sync` reaches the disk (the default).
    pub(crate) fn set_sync(&mut self, sync: bool) {
        self.sync = sync;
    }

    /// Puts an event behind those that wait to be written.
    pub(crate) fn add(&mut self, iteration: u64, event: &dyn Event) {
        self.seq += 1;
        event.write(&mut self.pending, self.seq, Timestamp::now(), iteration);
    }

    /// Puts a line of any type behind those that wait to be written. Returns its time.
    pub(crate) fn add_line(
        &mut self,
        kind: impl Into<EventKind<'static>>,
        fields: impl FnOnce(&mut Object<'_>),
    ) -> Timestamp {
        self.seq += 1;
        let now = Timestamp::now();
        event::write_line(&mut self.pending, self.seq, now, &kind.into(), 0, fields);
        now
    }

    /// Puts whole lines of another journal behind those that wait. `seq` is the number of the last.
    pub(crate) fn copy(&mut self, lines: &[u8], seq: u64) {
        self.pending.extend_from_slice(lines);
        self.seq = seq;
    }

    /// Writes what waits, in one write. If that fails, the file is as it was and nothing waits.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let Some(there) = self.in_place() else {
            self.pending.clear();
            return Err(Error::failure(format!(
                "{} has been replaced or removed while the run was live: stop a run before you edit its \
                 journal; nothing more is recorded",
                self.path.display()
            )));
        };
        self.look_for_changes(&there)?;
        let written = self.file.write_all(&self.pending);
        if written.is_ok() {
            self.len += self.pending.len() as u64;
            self.synced = false;
        } else if !self.changed {
            // Part of it may be there: a torn line in the middle would damage the journal.
            ignore(self.file.set_len(self.len));
        }
        let lines = std::mem::take(&mut self.pending);
        written.at("write", &self.path)?;
        self.remember_stamp()?;
        if let Some(feed) = &self.feed {
            feed.add(lines.trim_ascii_start());
        }
        Ok(())
    }

    fn remember_stamp(&mut self) -> Result<()> {
        let meta = self.file.metadata().at("read", &self.path)?;
        self.left = JournalStamp::of(&meta);
        Ok(())
    }

    /// Notices changes by other processes. A line of theirs that lacks its newline gets one
    /// before ours.
    fn look_for_changes(&mut self, there: &Metadata) -> Result<()> {
        if self.left == JournalStamp::of(there) {
            return Ok(());
        }
        self.changed = true;
        self.len = there.len();
        let mut last = [b'\n'];
        if self.len > 0 {
            let at = self.len - 1;
            self.file
                .read_exact_at(&mut last, at)
                .at("read", &self.path)?;
        }
        if last != *b"\n" {
            self.pending.insert(0, b'\n');
        }
        Ok(())
    }

    /// True if another process is known to have written the file while this one owned it.
    pub(crate) fn was_changed(&self) -> bool {
        self.changed
    }

    /// Writes what waits and makes all of the file durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.flush()?;
        if !self.synced && self.sync {
            self.file.sync_data().at("sync", &self.path)?;
        }
        self.synced = true;
        Ok(())
    }

    /// All that the file holds: a copy that was made before the lock was taken, unless the file has changed since.
    pub(crate) fn read_or(&self, copy: Option<JournalCopy>) -> Result<Vec<u8>> {
        let is_current = |copy: &JournalCopy| {
            let is_same = copy.identity == self.identity && copy.left == self.left;
            is_same && copy.bytes.len() as u64 == self.len
        };
        if let Some(copy) = copy.filter(is_current) {
            return Ok(copy.bytes);
        }
        let mut bytes = Vec::new();
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Adds to `bytes`, which the file began with, what it has gained. Reads all of it anew if another process has
    /// written it.
    pub(crate) fn read_gained(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut gained = Vec::new();
        let start = self.read_new(bytes.len() as u64, &mut gained)?;
        bytes.truncate(start as usize);
        bytes.append(&mut gained);
        Ok(())
    }

    /// Reads the whole file into `buffer`, which is emptied first.
    pub(crate) fn read_into(&self, buffer: &mut Vec<u8>) -> Result<()> {
        self.read_from(0, buffer)
    }

    /// Reads what follows `start` if no other process has written the file, else all of it. Returns where it
    /// began to read.
    pub(crate) fn read_new(&mut self, start: u64, buffer: &mut Vec<u8>) -> Result<u64> {
        let meta = self.file.metadata().at("read", &self.path)?;
        if self.left != JournalStamp::of(&meta) {
            self.changed = true;
            self.len = meta.len();
        }
        let start = if self.changed { 0 } else { start };
        self.read_from(start, buffer)?;
        Ok(start)
    }

    fn read_from(&self, start: u64, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        check_length(self.len).at("read", &self.path)?;
        buffer.resize(self.len.saturating_sub(start) as usize, 0);
        self.file
            .read_exact_at(buffer, start)
            .at("read", &self.path)
    }

    /// Mends the end of the file as [`crate::record::reader::tail`] found it.
    pub(crate) fn mend_tail(&mut self, tail: &Tail) -> Result<()> {
        match tail {
            Tail::Whole => Ok(()),
            Tail::Unended => {
                self.pending.push(b'\n');
                self.flush()
            }
            Tail::Torn(bytes) => {
                self.len -= bytes;
                self.found = self.len;
                self.file.set_len(self.len).at("cut", &self.path)?;
                self.remember_stamp()
            }
        }
    }

    /// True if the file is still in its place: an editor may have put another there, and with it
    /// the lock is lost.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place().is_some()
    }

    fn in_place(&self) -> Option<Metadata> {
        let there = self.path.metadata().ok()?;
        (identity(&there) == self.identity).then_some(there)
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_serves_until_the_file_is_written_or_replaced() {
        let dir = std::env::temp_dir().join(format!("delta-journal-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("journal.jsonl");
        std::fs::write(&path, "{}\n").unwrap();
        let read = || {
            let mut copy = JournalCopy::read(&path).unwrap();
            // Shows which of the two is returned.
            copy.bytes = b"[]\n".to_vec();
            copy
        };
        let open = || Journal::open(&path).unwrap().unwrap();
        assert_eq!(open().read_or(Some(read())).unwrap(), b"[]\n");
        assert_eq!(open().read_or(None).unwrap(), b"{}\n");
        let copy = read();
        std::fs::write(&path, "{}\n{}\n").unwrap();
        assert_eq!(open().read_or(Some(copy)).unwrap(), b"{}\n{}\n");
        let copy = read();
        let other = dir.join("other");
        std::fs::copy(&path, &other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(open().read_or(Some(copy)).unwrap(), b"{}\n{}\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
