//! A journal line by line, without holding more of it than one line: also while it grows, is cut,
//! or is replaced by an editor.
//!
//! Unaware of what the events add up to. `state` reads a journal as a whole.

use crate::error::{At, Result};
use crate::record::event::Line;
use crate::record::journal::rewritten;
use crate::record::legacy::flat;
use crate::record::state::{Damage, LARGEST_NUMBER, parser_words};
use crate::unix::files;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// As much is read at once, unless a line is longer.
const CHUNK: usize = 256 << 10;

/// A place in a journal, and what has been read of it.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// What of the buffer has been read already.
    used: usize,
    /// Where the buffer begins in the file.
    start: u64,
    /// The number of the last event that was read.
    seq: u64,
    /// Events up to this number have been told and are passed over.
    told: u64,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next<'l> {
    /// An event: the line as it is, without its newline, and what it says.
    Event(&'l str, Box<Line<'l>>),
    /// A line that cannot be read.
    Damaged(Damage),
    /// No whole line follows. Whether there is part of one.
    End {
        /// The last line has no end yet.
        torn: bool,
    },
}

/// What happened to a file since it was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing but, perhaps, more lines.
    None,
    /// It has been replaced or cut; reading goes on behind what was read.
    Replaced,
    /// What was read last is not in it any more; reading goes on at its end.
    CutBack,
}

impl Lines {
    /// At the beginning.
    ///
    /// # Errors
    /// It cannot be read, or is no journal any more.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = files::open_readable(path).at("read", path)?;
        let lines = Self {
            file,
            path: path.to_owned(),
            buffer: Vec::new(),
            used: 0,
            start: 0,
            seq: 0,
            told: 0,
        };
        let mut head = vec![0; 4096];
        let read = lines.file.read_at(&mut head, 0).at("read", path)?;
        match rewritten(&head[..read]) {
            Some(form) => Err(form.error(path)),
            None => Ok(lines),
        }
    }

    /// At the last `count` lines.
    pub(crate) fn open_at_last(path: &Path, count: usize) -> Result<Self> {
        let mut lines = Self::open(path)?;
        let mut end = lines.file.metadata().at("read", path)?.len();
        let mut block = vec![0; CHUNK];
        let mut ends = 0;
        if lines.last_is_unended(end)? {
            if count == 0 {
                lines.start = end;
                return Ok(lines);
            }
            ends = 1;
        }
        while end > 0 {
            let from = end.saturating_sub(CHUNK as u64);
            let part = &mut block[..(end - from) as usize];
            lines.file.read_exact_at(part, from).at("read", path)?;
            for at in memchr::memrchr_iter(b'\n', part) {
                ends += 1;
                // The last line ends at the first of them; behind it may be one that is torn.
                if ends > count {
                    lines.start = from + at as u64 + 1;
                    return Ok(lines);
                }
            }
            end = from;
        }
        Ok(lines)
    }

    /// The next event. After [`Next::End`] there may be another one, if the file has grown.
    pub(crate) fn read_next(&mut self) -> Result<Next<'_>> {
        let line = loop {
            let Some(line) = self.find()?.or_else(|| self.unended()) else {
                let torn = self.used < self.buffer.len();
                // What is there of a line is read again: it may be cut off, and another follow.
                self.start += self.used as u64;
                self.buffer.clear();
                self.used = 0;
                return Ok(Next::End { torn });
            };
            if self.seq >= self.told {
                break line;
            }
            match read(&self.buffer[line.clone()], self.seq) {
                Ok((_, _, seq)) if seq <= self.told => self.seq = seq,
                _ => break line,
            }
        };
        let at = self.start + line.start as u64;
        match read(&self.buffer[line], self.seq) {
            Ok((text, event, seq)) => {
                self.seq = seq;
                Ok(Next::Event(text, Box::new(event)))
            }
            Err((column, message)) => Ok(Next::Damaged(Damage {
                line: self.line_number(at)?,
                column,
                message,
            })),
        }
    }

    /// Where the next line that is not empty stands in the buffer.
    fn find(&mut self) -> Result<Option<Range<usize>>> {
        let mut looked = self.used;
        loop {
            match memchr::memchr(b'\n', &self.buffer[looked..]) {
                Some(at) => {
                    let line = self.used..looked + at;
                    self.used = line.end + 1;
                    looked = self.used;
                    if !self.buffer[line.clone()].trim_ascii().is_empty() {
                        return Ok(Some(line));
                    }
                }
                None => {
                    self.buffer.drain(..self.used);
                    self.start += self.used as u64;
                    self.used = 0;
                    looked = self.buffer.len();
                    if !self.fill()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// A last line that is whole and lacks only its newline, as some editors leave it.
    fn unended(&mut self) -> Option<Range<usize>> {
        let line = self.used..self.buffer.len();
        is_whole(&self.buffer[line.clone()]).then(|| {
            self.used = line.end;
            line
        })
    }

    /// Whether the last line is whole and lacks its newline.
    fn last_is_unended(&self, len: u64) -> Result<bool> {
        let mut tail = Vec::new();
        let mut from = len;
        while from > 0 {
            let to = from;
            from = to.saturating_sub(CHUNK as u64);
            let mut part = vec![0; (to - from) as usize];
            self.file
                .read_exact_at(&mut part, from)
                .at("read", &self.path)?;
            let newline = memchr::memrchr(b'\n', &part);
            part.drain(..newline.map_or(0, |at| at + 1));
            part.append(&mut tail);
            tail = part;
            if newline.is_some() {
                break;
            }
        }
        Ok(is_whole(&tail))
    }

    fn fill(&mut self) -> Result<bool> {
        let filled = self.buffer.len();
        self.buffer.resize(filled + CHUNK, 0);
        let at = self.start + filled as u64;
        let read = self.file.read_at(&mut self.buffer[filled..], at);
        let read = read.at("read", &self.path)?;
        self.buffer.truncate(filled + read);
        Ok(read > 0)
    }

    /// Looks whether the file is still the one that was opened, and goes on with the one that is there.
    pub(crate) fn catch_up(&mut self) -> Result<Change> {
        let Ok(there) = self.path.metadata() else {
            // An editor is about to put another file in its place.
            return Ok(Change::None);
        };
        let ours = self.file.metadata().at("read", &self.path)?;
        let same = (ours.dev(), ours.ino()) == (there.dev(), there.ino());
        if same && ours.len() >= self.start {
            return Ok(Change::None);
        }
        let mut whole = Self::open(&self.path)?;
        while matches!(whole.read_next()?, Next::Event(..)) {}
        let (told, last) = (self.seq, whole.seq);
        *self = Self::open(&self.path)?;
        self.told = told.min(last);
        Ok(if last < told {
            Change::CutBack
        } else {
            Change::Replaced
        })
    }

    fn line_number(&self, at: u64) -> Result<usize> {
        let mut block = vec![0; CHUNK];
        let (mut from, mut lines) = (0, 1);
        while from < at {
            let want = (at - from).min(CHUNK as u64) as usize;
            let read = self.file.read_at(&mut block[..want], from);
            let read = read.at("read", &self.path)?;
            if read == 0 {
                break;
            }
            lines += memchr::memchr_iter(b'\n', &block[..read]).count();
            from += read as u64;
        }
        Ok(lines)
    }
}

/// Column and message.
type Fault = (usize, String);

/// Reads a line that follows the event number `before`.
fn read(bytes: &[u8], before: u64) -> std::result::Result<(&str, Line<'_>, u64), Fault> {
    let text =
        std::str::from_utf8(bytes).map_err(|e| (e.valid_up_to() + 1, "not UTF-8".to_owned()))?;
    let line = Line::parse(text).and_then(flat);
    let line = line.map_err(|e| (e.column(), parser_words(&e)))?;
    if line.kind.is_empty() {
        return Err((0, "no event: it has no type".to_owned()));
    }
    let seq = line.seq.unwrap_or(before + 1);
    if seq <= before || seq > LARGEST_NUMBER {
        return Err((0, format!("seq {seq} does not follow {before}")));
    }
    Ok((text, line, seq))
}

/// Whether a line without a newline is all of an event: an object that ends is all there.
fn is_whole(line: &[u8]) -> bool {
    line.starts_with(b"{")
        && std::str::from_utf8(line).is_ok_and(|text| Line::parse(text.trim_end()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scratch(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("delta-lines-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    fn event(seq: u64) -> String {
        format!("{{\"seq\":{seq},\"type\":\"X\"}}\n")
    }

    fn seqs(lines: &mut Lines) -> Vec<u64> {
        let mut found = Vec::new();
        while let Next::Event(_, line) = lines.read_next().unwrap() {
            found.push(line.seq.unwrap());
        }
        found
    }

    #[test]
    fn a_torn_line_is_read_when_it_is_whole_and_forgotten_when_it_is_cut() {
        let path = scratch("torn", &(event(1) + "{\"seq\":2,\"ty"));
        let mut lines = Lines::open(&path).unwrap();
        assert_eq!(seqs(&mut lines), [1]);
        assert!(matches!(
            lines.read_next().unwrap(),
            Next::End { torn: true }
        ));
        fs::write(&path, event(1) + &event(2)).unwrap();
        assert_eq!(lines.catch_up().unwrap(), Change::None);
        assert_eq!(seqs(&mut lines), [2]);
        assert!(matches!(
            lines.read_next().unwrap(),
            Next::End { torn: false }
        ));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn after_an_editor_has_replaced_the_file_only_what_is_new_is_read() {
        let path = scratch("replaced", &(event(1) + &event(2)));
        let mut lines = Lines::open(&path).unwrap();
        assert_eq!(seqs(&mut lines), [1, 2]);
        let other = scratch("other", &(event(1) + &event(2) + &event(3)));
        fs::rename(other, &path).unwrap();
        assert_eq!(lines.catch_up().unwrap(), Change::Replaced);
        assert_eq!(seqs(&mut lines), [3]);
        let other = scratch("other", &event(1));
        fs::rename(other, &path).unwrap();
        assert_eq!(lines.catch_up().unwrap(), Change::CutBack);
        assert_eq!(seqs(&mut lines), [0; 0]);
        fs::write(&path, event(1) + &event(2)).unwrap();
        assert_eq!(seqs(&mut lines), [2]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_last_lines_are_found_wherever_the_blocks_end() {
        let all: String = (1..=30_000).map(event).collect();
        let path = scratch("last", &all);
        for count in [0, 1, 2, 9_999, 29_999, 30_000, 40_000] {
            let mut lines = Lines::open_at_last(&path, count).unwrap();
            let found = seqs(&mut lines);
            assert_eq!(found.len(), count.min(30_000));
            assert!(found.last().is_none_or(|last| *last == 30_000));
        }
        fs::write(&path, all + "{\"torn").unwrap();
        assert_eq!(
            seqs(&mut Lines::open_at_last(&path, 2).unwrap()),
            [29_999, 30_000]
        );
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_last_line_that_lacks_only_its_newline_is_an_event() {
        let whole = event(2).trim_end().to_owned();
        let path = scratch("unended", &(event(1) + &whole));
        let mut lines = Lines::open(&path).unwrap();
        assert_eq!(seqs(&mut lines), [1, 2]);
        for (count, last) in [(0, &[][..]), (1, &[2]), (2, &[1, 2]), (3, &[1, 2])] {
            assert_eq!(seqs(&mut Lines::open_at_last(&path, count).unwrap()), last);
        }
        // It is told once, also when its newline comes, and others after it.
        fs::write(&path, event(1) + &event(2) + &event(3)).unwrap();
        assert_eq!(lines.catch_up().unwrap(), Change::None);
        assert_eq!(seqs(&mut lines), [3]);
        for end in 1..whole.len() {
            fs::write(&path, event(1) + &whole[..end]).unwrap();
            let mut lines = Lines::open(&path).unwrap();
            assert_eq!(seqs(&mut lines), [1], "{end}");
            assert!(matches!(
                lines.read_next().unwrap(),
                Next::End { torn: true }
            ));
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_line_may_be_longer_than_a_block() {
        let long = format!("{{\"seq\":2,\"type\":\"{}\"}}\n", "x".repeat(3 * CHUNK));
        let path = scratch("long", &(event(1) + &long + &event(3)));
        assert_eq!(seqs(&mut Lines::open(&path).unwrap()), [1, 2, 3]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn damage_has_its_line_also_when_reading_began_later() {
        let path = scratch("damage", &(event(1) + "\n{]\n" + &event(3)));
        let mut first = Lines::open(&path).unwrap();
        assert!(matches!(first.read_next().unwrap(), Next::Event(..)));
        for mut lines in [first, Lines::open_at_last(&path, 2).unwrap()] {
            let Next::Damaged(damage) = lines.read_next().unwrap() else {
                panic!("no damage")
            };
            assert_eq!((damage.line, damage.column), (3, 2));
        }
        fs::remove_file(path).unwrap();
    }
}
