//! A journal line by line: the bytes of one, or a file that may grow, be cut, or be replaced by an editor,
//! of which no more is held than one line.
//!
//! Unaware of what the events add up to.
//!
//! Architecture invariant: this is the only place that decides where a line ends, which lines are
//! damaged, and whether the last one was torn.

use crate::error::{At, Error, Result};
use crate::record::event::{EventKind, Line, ReadUsage, Recorded, Text};
use crate::record::legacy::read_line;
use crate::text::json::{Fields, LARGEST_INTEGER, parser_words};
use crate::unix::files;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// As much is read at once, unless a line is longer.
const CHUNK: usize = 256 << 10;

/// A longer line is damage.
pub(crate) const LONGEST_EVENT: usize = 512 << 20;

/// A place in a journal that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// From 1.
    pub line: usize,
    /// From 1; 0 if the whole line is meant.
    pub column: usize,
    pub message: String,
}

/// The column of a damage, 0 for all of the line, and what is wrong there.
pub(crate) type Fault = (usize, String);

/// The way a journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The last line is whole.
    Whole,
    /// The line lacks only its newline.
    Unended,
    /// The line was torn in writing; this many bytes of it exist.
    Torn(u64),
}

/// A journal that may have been read already.
#[derive(Clone, Debug)]
pub(crate) struct JournalSource<'j> {
    pub path: PathBuf,
    /// The bytes.
    pub read: Option<&'j [u8]>,
}

impl From<&PathBuf> for JournalSource<'_> {
    fn from(path: &PathBuf) -> Self {
        Self {
            path: path.clone(),
            read: None,
        }
    }
}

impl<'j> JournalSource<'j> {
    /// The bytes.
    pub(crate) fn bytes(&self) -> io::Result<Cow<'j, [u8]>> {
        match self.read {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => read_journal(&self.path).map(Cow::Owned),
        }
    }
}

/// The bytes of a journal. One that is a link or no regular file is not read.
pub(crate) fn read_journal(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(files::open_unlinked(path)?)
}

/// The bytes of a journal that has been opened.
pub(crate) fn read_whole(file: File) -> io::Result<Vec<u8>> {
    files::read_limited(file, files::LARGEST)
}

/// Refuses a journal that is too long to be read whole, and so to be resumed.
pub(crate) fn check_length(len: u64) -> io::Result<()> {
    if len <= files::LARGEST {
        return Ok(());
    }
    Err(files::too_large(files::LARGEST))
}

/// The way a journal with these bytes ends. One that is in another form altogether is left to [`rewritten`].
pub(crate) fn tail(bytes: &[u8]) -> Tail {
    if bytes.is_empty() || bytes.ends_with(b"\n") || rewritten(bytes).is_some() {
        return Tail::Whole;
    }
    let last = split_lines(bytes).last().map_or(bytes, |(_, line)| line);
    if is_whole(last) {
        Tail::Unended
    } else {
        Tail::Torn(last.len() as u64)
    }
}

/// The lines of a journal without their newlines, each with the place where it begins.
pub(crate) fn split_lines(journal: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = journal.get(start..).filter(|rest| !rest.is_empty())?;
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = (start, &rest[..end]);
        start += end + 1;
        Some(line)
    })
}

/// The events of a journal, as [`JournalReader`] reads them. A torn last line is ignored.
pub(crate) fn events(
    journal: &[u8],
) -> impl Iterator<Item = std::result::Result<Box<Line<'_>>, Damage>> {
    let mut seq = 0;
    split_lines(journal)
        .enumerate()
        .filter(|(_, (start, line))| {
            let is_ended = start + line.len() < journal.len();
            !line.trim_ascii().is_empty() && (is_ended || is_whole(line))
        })
        .map(move |(index, (_, bytes))| match read_event(bytes, seq) {
            Ok(line) => {
                seq = line.seq.unwrap_or(seq);
                Ok(line)
            }
            Err((column, message)) => Err(Damage {
                line: index + 1,
                column,
                message,
            }),
        })
}

/// The lines of a journal that can be read, whatever their numbers, each with the place where it begins.
pub(crate) fn readable_lines(journal: &[u8]) -> impl Iterator<Item = (usize, Box<Line<'_>>)> {
    split_lines(journal).filter_map(|(start, line)| Some((start, read_event(line, 0).ok()?)))
}

/// The lines of a journal with what counts time and tokens: also of a line that cannot be read whole, the time, the run,
/// the usage and the engine's working time.
pub(crate) fn counted_lines(journal: &[u8]) -> impl Iterator<Item = Box<Line<'_>>> {
    split_lines(journal).filter_map(|(_, line)| {
        let whole = read_event(line, 0).ok();
        whole.or_else(|| salvaged(std::str::from_utf8(line).ok()?))
    })
}

fn salvaged(text: &str) -> Option<Box<Line<'_>>> {
    let outer: Fields<'_> = serde_json::from_str(text).ok()?;
    let word = |name: &str| outer.word(name).map(Cow::Owned);
    let mut line = Box::new(Line::of_kind(EventKind::of(outer.word("type")?)));
    line.place.timestamp = Text(word("timestamp"));
    let usage = || {
        let usage: Fields<'_> = outer.read("usage").ok()?;
        let count = |name: &str| usage.read(name).unwrap_or(0);
        Some(ReadUsage {
            prompt_tokens: count("prompt_tokens"),
            completion_tokens: count("completion_tokens"),
            total_tokens: count("total_tokens"),
            ..ReadUsage::default()
        })
    };
    match &mut line.event {
        Recorded::EngineStart(start) => start.run_id = Text(word("run_id")),
        Recorded::Thought(thought) => thought.usage = usage(),
        Recorded::Compaction(compaction) => compaction.usage = usage(),
        Recorded::SystemMessage(note) => note.usage = usage(),
        Recorded::EngineEnd(end) => end.engine_ms = outer.read("engine_ms").unwrap_or(None),
        _ => {}
    }
    Some(line)
}

/// Reads a line that follows the event number `before`. One without a number takes none.
pub(crate) fn read_event(bytes: &[u8], before: u64) -> std::result::Result<Box<Line<'_>>, Fault> {
    let text =
        std::str::from_utf8(bytes).map_err(|e| (e.valid_up_to() + 1, "not UTF-8".to_owned()))?;
    let line = read_line(text).map_err(|e| (e.column(), parser_words(&e)))?;
    if line.kind.name().is_empty() {
        return Err((0, "not an event: it has no type".to_owned()));
    }
    if let Some(seq) = line.seq
        && (seq <= before || seq > LARGEST_INTEGER)
    {
        return Err((0, format!("seq {seq} does not follow {before}")));
    }
    match line.iteration {
        Some(LARGEST_INTEGER..) => Err((0, "iteration is out of range".to_owned())),
        _ => Ok(line),
    }
}

/// True if a line without a newline holds a whole event: an object that ends is complete.
fn is_whole(line: &[u8]) -> bool {
    line.starts_with(b"{")
        && std::str::from_utf8(line).is_ok_and(|text| Line::parse(text.trim_end()).is_ok())
}

/// A place among the events: the last number, and how many lines without one follow it.
type Position = (u64, u64);

/// A journal's file that is being read.
#[derive(Debug)]
pub(crate) struct JournalReader {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been read already.
    used: usize,
    /// Place where the buffer begins in the file.
    start: u64,
    /// Place where reading began.
    first: u64,
    /// Lines before that, if they have been counted.
    before: OnceCell<usize>,
    /// Newlines from there to the part of the buffer that has not been read.
    passed: usize,
    /// Behind the last event that was read.
    position: Position,
    /// Events up to this place have been reported and are skipped.
    reported: Position,
}

/// The next piece of a journal.
#[derive(Debug)]
pub(crate) enum Next<'l> {
    /// An event.
    Event(Box<Line<'l>>),
    /// A line that cannot be read.
    Damaged(Damage),
    /// No whole line follows. Whether there is part of one.
    End {
        /// The last line has no end yet.
        torn: bool,
    },
}

/// Reason why reading stopped.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// No whole line follows. Whether there is part of one.
    AtEnd { torn: bool },
    /// A line cannot be read.
    AtDamage(Damage),
    /// The caller has enough.
    Enough,
}

/// The change of a file since it was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing but, perhaps, more lines.
    None,
    /// The file has been replaced or cut; reading goes on behind what was read.
    Replaced,
    /// The last line read is no longer in the file; reading goes on at its end.
    CutBack,
}

impl JournalReader {
    /// At the beginning.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is no longer a journal.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = files::open_unlinked(path).at("read", path)?;
        let lines = Self {
            file,
            path: path.to_owned(),
            buffer: Vec::new(),
            used: 0,
            start: 0,
            first: 0,
            before: OnceCell::new(),
            passed: 0,
            position: (0, 0),
            reported: (0, 0),
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
                (lines.start, lines.first) = (end, end);
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
                // The last line ends at the first of them; after it may be a torn one.
                if ends > count {
                    lines.start = from + at as u64 + 1;
                    lines.first = lines.start;
                    return Ok(lines);
                }
            }
            end = from;
        }
        Ok(lines)
    }

    /// Passes on each event until the caller has enough or none can be read. Reading may continue after it.
    pub(crate) fn read_while(
        &mut self,
        mut wants_more: impl FnMut(&Line<'_>) -> Result<bool>,
    ) -> Result<Stopped> {
        loop {
            match self.read_next()? {
                Next::Event(line) => {
                    if !wants_more(&line)? {
                        return Ok(Stopped::Enough);
                    }
                }
                Next::Damaged(damage) => return Ok(Stopped::AtDamage(damage)),
                Next::End { torn } => return Ok(Stopped::AtEnd { torn }),
            }
        }
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
            if self.position >= self.reported {
                break line;
            }
            match read_event(&self.buffer[line.clone()], self.position.0) {
                Ok(event) if self.position_after(event.seq) <= self.reported => {
                    self.position = self.position_after(event.seq);
                }
                _ => break line,
            }
        };
        let bytes = &self.buffer[line.clone()];
        match read_event(bytes, self.position.0) {
            Ok(event) => {
                self.position = self.position_after(event.seq);
                Ok(Next::Event(event))
            }
            Err((column, message)) => Ok(Next::Damaged(Damage {
                line: self.line_number(&line)?,
                column,
                message,
            })),
        }
    }

    /// The place behind the next event, which has this number.
    fn position_after(&self, seq: Option<u64>) -> Position {
        match seq {
            Some(seq) => (seq, 0),
            None => (self.position.0, self.position.1 + 1),
        }
    }

    /// The range in the buffer of the next line that is not empty.
    fn find(&mut self) -> Result<Option<Range<usize>>> {
        let mut looked = self.used;
        loop {
            match memchr::memchr(b'\n', &self.buffer[looked..]) {
                Some(at) => {
                    let line = self.used..looked + at;
                    if line.len() > LONGEST_EVENT {
                        return Err(self.too_long());
                    }
                    self.used = line.end + 1;
                    self.passed += 1;
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
                    if looked > LONGEST_EVENT {
                        return Err(self.too_long());
                    }
                    if !self.fill()? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn too_long(&self) -> Error {
        let (path, limit) = (self.path.display(), LONGEST_EVENT >> 20);
        let from = self.start + self.used as u64;
        Error::failure(format!(
            "{path} is damaged: the line from byte {from} on is longer than {limit} MiB"
        ))
    }

    /// A last line that is whole and lacks only its newline, as some editors leave it.
    fn unended(&mut self) -> Option<Range<usize>> {
        let line = self.used..self.buffer.len();
        is_whole(&self.buffer[line.clone()]).then(|| {
            self.used = line.end;
            line
        })
    }

    /// True if the last line is whole and lacks its newline.
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
        let at = self.start + self.buffer.len() as u64;
        self.buffer.reserve(CHUNK);
        let room = rustix::buffer::spare_capacity(&mut self.buffer);
        let read = rustix::io::pread(&self.file, room, at).map_err(io::Error::from);
        Ok(read.at("read", &self.path)? > 0)
    }

    /// Checks whether the file is still the one that was opened, and switches to the one in its place.
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
        let (reported, last) = (self.position, whole.position);
        *self = Self::open(&self.path)?;
        self.reported = reported.min(last);
        Ok(if last < reported {
            Change::CutBack
        } else {
            Change::Replaced
        })
    }

    /// The number of the line in the buffer that was found last.
    fn line_number(&self, found: &Range<usize>) -> Result<usize> {
        let before = match self.before.get() {
            Some(before) => *before,
            None => {
                let counted = self.count_before()?;
                *self.before.get_or_init(|| counted)
            }
        };
        let is_ended = self.used > found.end;
        Ok(before + self.passed + usize::from(!is_ended))
    }

    /// The number of lines before the place where reading began.
    fn count_before(&self) -> Result<usize> {
        let mut block = vec![0; CHUNK];
        let (mut from, mut lines) = (0, 0);
        while from < self.first {
            let want = (self.first - from).min(CHUNK as u64) as usize;
            let read = self
                .file
                .read_at(&mut block[..want], from)
                .at("read", &self.path)?;
            if read == 0 {
                break;
            }
            lines += memchr::memchr_iter(b'\n', &block[..read]).count();
            from += read as u64;
        }
        Ok(lines)
    }
}

/// The way in which an editor or one of its plugins rewrote a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// One JSON array instead of lines.
    Array,
    /// Objects spread over several lines.
    PrettyPrinted,
}

impl Rewritten {
    /// Says so, with the way back.
    pub(crate) fn error(self, path: &Path) -> Error {
        let (what, filter) = match self {
            Self::Array => ("rewritten as a JSON array", "'.[]'"),
            Self::PrettyPrinted => ("pretty-printed", "."),
        };
        let path = path.display();
        Error::failure(format!(
            "{path} is no longer a journal: it has been {what}, probably by an editor; \
             a journal has one event a line: jq -c {filter} {path}"
        ))
    }
}

/// Recognises a journal that has been rewritten in another form.
pub(crate) fn rewritten(bytes: &[u8]) -> Option<Rewritten> {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let text = &bytes[start..];
    if text[0] == b'[' {
        return Some(Rewritten::Array);
    }
    let end = memchr::memchr(b'\n', text)?;
    (text[..end].trim_ascii() == b"{").then_some(Rewritten::PrettyPrinted)
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

    fn seqs(lines: &mut JournalReader) -> Vec<u64> {
        let mut found = Vec::new();
        while let Next::Event(line) = lines.read_next().unwrap() {
            found.push(line.seq.unwrap());
        }
        found
    }

    #[test]
    fn a_torn_line_is_read_when_it_is_whole_and_forgotten_when_it_is_cut() {
        let path = scratch("torn", &(event(1) + "{\"seq\":2,\"ty"));
        let mut lines = JournalReader::open(&path).unwrap();
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
    fn events_in_memory_are_those_of_the_file_at_every_truncation() {
        let text = event(1) + "\nno event\n" + &event(1) + &event(2);
        for end in 0..=text.len() {
            let path = scratch("events", &text[..end]);
            let mut lines = JournalReader::open(&path).unwrap();
            let mut expected = Vec::new();
            loop {
                expected.push(match lines.read_next().unwrap() {
                    Next::Event(line) => Ok(line.text.to_owned()),
                    Next::Damaged(damage) => Err(damage),
                    Next::End { .. } => break,
                });
            }
            let found = events(&text.as_bytes()[..end]);
            let found: Vec<_> = found
                .map(|it| it.map(|line| line.text.to_owned()))
                .collect();
            assert_eq!(found, expected, "{end}");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn after_an_editor_has_replaced_the_file_only_what_is_new_is_read() {
        let path = scratch("replaced", &(event(1) + &event(2)));
        let mut lines = JournalReader::open(&path).unwrap();
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
            let mut lines = JournalReader::open_at_last(&path, count).unwrap();
            let found = seqs(&mut lines);
            assert_eq!(found.len(), count.min(30_000));
            assert!(found.last().is_none_or(|last| *last == 30_000));
        }
        fs::write(&path, all + "{\"torn").unwrap();
        assert_eq!(
            seqs(&mut JournalReader::open_at_last(&path, 2).unwrap()),
            [29_999, 30_000]
        );
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_last_line_that_lacks_only_its_newline_is_an_event() {
        let whole = event(2).trim_end().to_owned();
        let path = scratch("unended", &(event(1) + &whole));
        let mut lines = JournalReader::open(&path).unwrap();
        assert_eq!(seqs(&mut lines), [1, 2]);
        for (count, last) in [(0, &[][..]), (1, &[2]), (2, &[1, 2]), (3, &[1, 2])] {
            assert_eq!(
                seqs(&mut JournalReader::open_at_last(&path, count).unwrap()),
                last
            );
        }
        // It is reported once, also when its newline follows, and others after it.
        fs::write(&path, event(1) + &event(2) + &event(3)).unwrap();
        assert_eq!(lines.catch_up().unwrap(), Change::None);
        assert_eq!(seqs(&mut lines), [3]);
        for end in 1..whole.len() {
            fs::write(&path, event(1) + &whole[..end]).unwrap();
            let mut lines = JournalReader::open(&path).unwrap();
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
        assert_eq!(seqs(&mut JournalReader::open(&path).unwrap()), [1, 2, 3]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn lines_are_counted_as_they_are_read_and_not_again_for_each_damage() {
        let path = scratch("counted", &(event(1) + "\n" + &event(1).repeat(3)));
        let mut lines = JournalReader::open(&path).unwrap();
        assert!(matches!(lines.read_next().unwrap(), Next::Event(..)));
        // All is in memory: who counts from the beginning of the file counts nothing.
        fs::write(&path, "").unwrap();
        for number in 3..6 {
            let Next::Damaged(damage) = lines.read_next().unwrap() else {
                panic!("no damage")
            };
            assert_eq!(damage.line, number);
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn damage_has_its_line_also_when_reading_began_later() {
        let path = scratch("damage", &(event(1) + "\n{]\n" + &event(3)));
        let mut first = JournalReader::open(&path).unwrap();
        assert!(matches!(first.read_next().unwrap(), Next::Event(..)));
        for mut lines in [first, JournalReader::open_at_last(&path, 2).unwrap()] {
            let Next::Damaged(damage) = lines.read_next().unwrap() else {
                panic!("no damage")
            };
            assert_eq!((damage.line, damage.column), (3, 2));
        }
        fs::remove_file(path).unwrap();
    }
}
