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

/// The contents of pipes, or why they could not be read, by their paths.
static DELIVERED: Mutex<Vec<(PathBuf, Delivered)>> = Mutex::new(Vec::new());

/// The content of a pipe, or why it could not be read.
type Delivered = Result<Vec<u8>, String>;

/// The content of such a file of at most `limit` bytes. A process reads a pipe once, however often this is called: its
/// writer may write once only, and one that has not written is not waited for again.
pub(crate) fn read_once(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut delivered = DELIVERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, kept)) = delivered.iter().find(|(known, _)| known == path) {
        return kept.clone().map_err(io::Error::other);
    }
    let file = open(path)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    let read = read(file, limit);
    if is_pipe {
        let kept = read.as_ref().map_err(ToString::to_string).cloned();
        delivered.push((path.to_owned(), kept));
    }
    read
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use std::io::Write;

    #[test]
    fn a_pipe_that_could_not_be_read_is_not_read_again() {
        let path = std::env::temp_dir().join(format!("delta-pipe-{}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut both = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        both.write_all(b"long").unwrap();
        let first = read_once(&path, 3).unwrap_err().to_string();
        both.write_all(b"ok").unwrap();
        drop(both);
        let second = read_once(&path, 3).map_err(|e| e.to_string());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(second, Err(first));
    }
}
