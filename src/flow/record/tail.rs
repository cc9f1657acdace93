//! The complete lines of a journal from an offset on, while an engine may still be writing to it.
//!
//! Unaware of what the lines mean.

use crate::error::{At, Error, Result};
use crate::record::reader::LONGEST_EVENT;
use crate::unix::files;
use std::path::Path;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// Lines, and the offset behind them.
#[derive(Debug, Default)]
pub(crate) struct TailPart {
    /// Whole lines, each with its newline; may be empty.
    pub bytes: Vec<u8>,
    /// The offset after the last line.
    pub end: u64,
}

/// Reads the next lines behind `offset`, some 256 KiB at most unless one line is longer. A journal that has become
/// shorter than that is read from its beginning.
///
/// # Errors
/// It cannot be read, or is a link; or a line is longer than any event.
pub(crate) fn read_tail(journal: &Path, offset: u64) -> Result<TailPart> {
    let file = files::open_unlinked(journal).at("read", journal)?;
    let len = file.metadata().at("read", journal)?.len();
    let start = if len < offset { 0 } else { offset };
    let mut size = CHUNK;
    loop {
        let mut bytes = files::read_part(&file, start, size).at("read", journal)?;
        let is_all = bytes.len() < size;
        if let Some(last) = memchr::memrchr(b'\n', &bytes) {
            bytes.truncate(last + 1);
            let end = start + bytes.len() as u64;
            return Ok(TailPart { bytes, end });
        }
        if is_all {
            let bytes = Vec::new();
            return Ok(TailPart { bytes, end: start });
        }
        if size > LONGEST_EVENT {
            let path = journal.display();
            return Err(Error::failure(format!(
                "{path} is damaged: the line from byte {start} on has no end"
            )));
        }
        size = (4 * size).min(LONGEST_EVENT + 1);
    }
}
