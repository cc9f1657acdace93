//! The file of a store: items, one a line, shared by any number of processes.
//!
//! Unaware of runs.
//!
//! Architecture invariant: a process that changes the file holds the kernel's lock on it, and then checks
//! that it is still the file of that name. An append is one `write`; one that fails is undone.
//! Old items are dropped by renaming a new file over it.

use super::item::{self, MemoryItem};
use crate::error::{At, Error, Result, ignore};
use crate::text::order;
use crate::unix::files;
use crate::unix::locks::wait_for_lock;
use crate::unix::signals::Signals;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest store: what the largest output of a node becomes has room in it.
pub(crate) const LARGEST_STORE: u64 = 2 * files::LARGEST_INPUT;

/// A store that is a file.
#[derive(Clone, Debug)]
pub(crate) struct StoreFile {
    pub path: PathBuf,
    /// The number of items kept, the newest; None: all.
    pub max_items: Option<usize>,
}

/// The lock on a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Shared,
    Exclusive,
}

impl StoreFile {
    /// The items, in the order of the lines; none if there is no file.
    ///
    /// # Errors
    /// A line is no item, or the system's.
    pub(crate) fn items(&self, signals: &Signals) -> Result<Vec<MemoryItem>> {
        let Some(file) = self.lock(LockMode::Shared, signals)? else {
            return Ok(Vec::new());
        };
        let bytes = files::read_limited(file, LARGEST_STORE).at("read", &self.path)?;
        let mut items = parse_items(&bytes, &self.path)?;
        self.forget_oldest(&mut items);
        Ok(items)
    }

    /// Makes sure that items can be appended.
    pub(crate) fn make(&self, signals: &Signals) -> Result<()> {
        if let Some(parent) = self.path.parent() {
            files::make_dirs(parent)?;
        }
        self.lock(LockMode::Exclusive, signals).map(drop)
    }

    /// Appends items. `once`: but for those that are there already.
    pub(crate) fn append(&self, items: &[MemoryItem], once: bool, signals: &Signals) -> Result<()> {
        let Some(mut file) = self.lock(LockMode::Exclusive, signals)? else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        let len = file.metadata().at("read", &self.path)?.len();
        // The end is checked: its writer may have died.
        let ends = files::read_part(&file, len.saturating_sub(1), 1).at("read", &self.path)?;
        if once || self.max_items.is_some() || ends != b"\n" {
            let all = file.try_clone();
            let read = all.and_then(|file| files::read_limited(file, LARGEST_STORE));
            bytes = read.at("read", &self.path)?;
        }
        let mut known = parse_items(&bytes, &self.path)?;
        let there: HashSet<&str> = known.iter().map(|item| item.id.as_str()).collect();
        let is_new = |item: &&MemoryItem| !once || !there.contains(item.id.as_str());
        let new: Vec<MemoryItem> = items.iter().filter(is_new).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut lines = item::item_lines(&new);
        known.extend(new);
        if self.forget_oldest(&mut known) {
            return self.replace(&file, &known);
        }
        let mut whole = len;
        match torn_length(&bytes) {
            Some(torn) => whole -= torn as u64,
            // The last line lacks only its end.
            None if !bytes.is_empty() && !bytes.ends_with(b"\n") => lines.insert(0, b'\n'),
            None => {}
        }
        check_length(whole.saturating_add(lines.len() as u64)).at("append to", &self.path)?;
        if whole < len {
            file.set_len(whole).at("cut", &self.path)?;
        }
        let written = file.write_all(&lines);
        if written.is_err() {
            ignore(file.set_len(whole));
        }
        written.at("write", &self.path)?;
        file.sync_data().at("sync", &self.path)
    }

    /// Puts another file in the place of a locked one.
    fn replace(&self, old: &File, items: &[MemoryItem]) -> Result<()> {
        // A link stays one.
        let path = fs::canonicalize(&self.path).at("resolve", &self.path)?;
        let permissions = old.metadata().at("read", &path)?.permissions();
        let lines = item::item_lines(items);
        check_length(lines.len() as u64).at("write", &path)?;
        files::replace(&path, &lines)?;
        fs::set_permissions(&path, permissions).at("write", &path)?;
        let new = File::open(&path).at("open", &path)?;
        new.sync_all().at("sync", &path)
    }

    /// Takes out the oldest items, if there are too many. Of several of one time, the first.
    fn forget_oldest(&self, items: &mut Vec<MemoryItem>) -> bool {
        let most = self.max_items.unwrap_or(usize::MAX);
        let too_many = items.len().saturating_sub(most);
        if too_many == 0 {
            return false;
        }
        let mut order: Vec<usize> = (0..items.len()).collect();
        order::sort_by_key(&mut order, |ix| (items[*ix].timestamp, *ix));
        let old: HashSet<usize> = order.into_iter().take(too_many).collect();
        let mut ix = 0;
        items.retain(|_| {
            ix += 1;
            !old.contains(&(ix - 1))
        });
        true
    }

    /// Opens and locks the file that has the name now. None if it is only to be read and is not there.
    fn lock(&self, how: LockMode, signals: &Signals) -> Result<Option<File>> {
        let path = &self.path;
        loop {
            let file = match open_file(path, how) {
                Err(e) if how == LockMode::Shared && e.kind() == ErrorKind::NotFound => {
                    return Ok(None);
                }
                file => file.at("open", path)?,
            };
            let lock = || match how {
                LockMode::Shared => file.try_lock_shared(),
                LockMode::Exclusive => file.try_lock(),
            };
            wait_for_lock(lock, path, signals, None).map_err(|(error, _)| error)?;
            let inode = |meta: &fs::Metadata| (meta.dev(), meta.ino());
            let ours = file.metadata().at("read", path)?;
            match path.metadata() {
                Ok(there) if inode(&there) == inode(&ours) => return Ok(Some(file)),
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).at("read", path),
                // Another file has replaced it.
                _ => {}
            }
        }
    }
}

/// Checks that what is written can be read.
fn check_length(len: u64) -> io::Result<()> {
    if len > LARGEST_STORE {
        return Err(files::too_large(LARGEST_STORE));
    }
    Ok(())
}

fn open_file(path: &Path, how: LockMode) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(how == LockMode::Exclusive)
        .create(how == LockMode::Exclusive)
        .mode(0o600)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// The items of a file's bytes, without a last line that was torn.
pub(crate) fn parse_items(bytes: &[u8], path: &Path) -> Result<Vec<MemoryItem>> {
    let end = bytes.len() - torn_length(bytes).unwrap_or(0);
    let mut items = Vec::new();
    for (number, line) in bytes[..end].split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let item = MemoryItem::parse(line).map_err(|why| {
            let (path, number) = (path.display(), number + 1);
            Error::failure(format!("{path}:{number}: {why}"))
        })?;
        items.push(item);
    }
    Ok(items)
}

/// The beginning of an item's line.
const BEGINNING: &[u8] = br#"{"id":"#;

/// The length of a last line that was torn while it was written: the beginning of an item, or its remains after a
/// power failure. Any other text is kept, because another program wrote it.
fn torn_length(bytes: &[u8]) -> Option<usize> {
    if bytes.is_empty() || bytes.ends_with(b"\n") {
        return None;
    }
    let start = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
    let line = &bytes[start..];
    let is_begun = line.starts_with(BEGINNING) || BEGINNING.starts_with(line);
    let is_blank = line.iter().all(|byte| *byte == 0);
    let is_torn = is_blank || (is_begun && MemoryItem::parse(line).is_err());
    is_torn.then_some(line.len())
}
