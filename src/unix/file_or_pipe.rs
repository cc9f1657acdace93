//! Files that may be pipes: a password manager writes to one what no disk is to hold.
//!
//! Unaware of what is read. Opening never waits.

use crate::unix::files::{not_regular, read_limited, too_large};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time within which a program must have written to a pipe.
const WAIT: Duration = Duration::from_secs(5);

/// Opens a regular file or a pipe for reading.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_fifo() {
        return Ok(file);
    }
    Err(not_regular())
}

/// What pipes have delivered, by their paths.
static DELIVERED: Mutex<Vec<(PathBuf, Vec<u8>)>> = Mutex::new(Vec::new());

/// The content of such a file of at most `limit` bytes. A process reads a pipe once, however often this is called: its
/// writer may write once only.
pub(crate) fn read_once(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut delivered = DELIVERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, bytes)) = delivered.iter().find(|(known, _)| known == path) {
        return Ok(bytes.clone());
    }
    let file = open(path)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    let bytes = read(file, limit)?;
    if is_pipe {
        delivered.push((path.to_owned(), bytes.clone()));
    }
    Ok(bytes)
}

/// The content of such a file of at most `limit` bytes.
pub(crate) fn read(mut file: File, limit: u64) -> io::Result<Vec<u8>> {
    if file.metadata()?.is_file() {
        return read_limited(file, limit);
    }
    let end = Instant::now() + WAIT;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() as u64 <= limit {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                let secs = WAIT.as_secs();
                let why = format!("it is a pipe, and no program has written to it in {secs} s");
                return Err(io::Error::other(why));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        match file.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Err(too_large(limit))
}
