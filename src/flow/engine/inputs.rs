//! What root tasks begin with: one input, the lines of a file, or those that come through a pipe.
//!
//! A file is read as far as it is needed and no further; what comes through a pipe is copied into the run as it comes.
//! Unaware of what becomes of the inputs.

use crate::error::{At, Error, Result, reason};
use crate::flow::graph::Payload;
use crate::flow::record::RecordedRoot;
use crate::flow::record::spool::InputSpool;
use crate::runs::task::too_long;
use crate::text::json;
use crate::unix::files::LARGEST_INPUT;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes that are taken from a pipe at once.
const PIECE: usize = 64 << 10;

/// A pipe that inputs come through.
#[derive(Clone, Debug)]
pub(crate) enum StreamSource {
    Stdin,
    /// A named pipe, or another file that is not a regular one.
    Path(PathBuf),
}

/// The inputs that have not been taken.
#[derive(Debug)]
pub(crate) struct Inputs {
    source: InputSource,
    /// The number of the next one, from 1.
    next: usize,
    /// A line that is not JSON is an input that fails, and no error.
    bad_lines_fail: bool,
    /// Lines that have been taken must be what they were.
    compares: bool,
    /// Marks of inputs that an earlier start has taken and that have not come again yet, by their numbers.
    awaited: BTreeMap<usize, u64>,
    /// A message for the user.
    note: Option<String>,
}

#[derive(Debug)]
enum InputSource {
    One(Option<Payload>),
    Known(std::vec::IntoIter<RecordedRoot>),
    File(InputReader),
    Stream(Box<StreamedLines>),
}

/// The input of a new root.
#[derive(Debug)]
pub(crate) struct TakenInput {
    /// From 1.
    pub number: usize,
    pub payload: Payload,
    /// Why the root fails at its start.
    pub fault: Option<String>,
}

/// The next input, as far as it is there.
#[derive(Debug)]
pub(crate) enum Taken {
    Input(TakenInput),
    /// It may still come.
    NotYet,
    End,
}

impl Inputs {
    fn of(source: InputSource) -> Self {
        Self {
            source,
            next: 1,
            bad_lines_fail: false,
            compares: false,
            awaited: BTreeMap::new(),
            note: None,
        }
    }

    /// One input, or none at all.
    pub(crate) fn one(input: Option<Payload>) -> Self {
        Self::of(InputSource::One(input))
    }

    /// Inputs that roots had in another run.
    pub(crate) fn known(inputs: Vec<RecordedRoot>) -> Self {
        Self::of(InputSource::Known(inputs.into_iter()))
    }

    /// The lines of a file; empty ones do not count.
    pub(crate) fn lines(path: &Path) -> Result<Self> {
        let file = File::open(path).at("read", path)?;
        let name = path.display().to_string();
        Ok(Self::of(InputSource::File(InputReader::new(file, name))))
    }

    /// The lines that come through a pipe, beginning with those that the run has. Without a source there are no others.
    pub(crate) fn streamed(run: &Path, source: Option<&StreamSource>) -> Result<Self> {
        let spool = InputSpool::open(run)?;
        let name = match source {
            Some(StreamSource::Path(path)) => path.display().to_string(),
            Some(StreamSource::Stdin) | None => "standard input".to_owned(),
        };
        let mut note = None;
        let mut lines = StreamedLines {
            reader: InputReader::new(spool.reader()?, name.clone()),
            spool,
            source: None,
            compared: 0,
            is_starved: false,
        };
        match source {
            Some(_) if lines.spool.is_whole() => {
                note = Some(format!("the run has all its inputs; {name} is not read"));
            }
            Some(source) => lines.source = Some(source.open()?),
            None if lines.spool.is_whole() => {}
            None => {
                lines.spool.cut_unfinished_line()?;
                let text = "the inputs had not been read to their end; the run goes on with those that had come";
                note = Some(text.to_owned());
            }
        }
        let source = InputSource::Stream(Box::new(lines));
        Ok(Self {
            note,
            ..Self::of(source)
        })
    }

    /// A line that is not JSON is an input that fails, and the others go on.
    pub(crate) fn failing_bad_lines(self, bad_lines_fail: bool) -> Self {
        Self {
            bad_lines_fail,
            ..self
        }
    }

    /// Lines that have been taken must be what they were.
    pub(crate) fn comparing(self, compares: bool) -> Self {
        Self { compares, ..self }
    }

    /// Passes over the input with this number, and those before it: an earlier start has taken it.
    ///
    /// # Errors
    /// The line is not what it was; or it cannot be read.
    pub(crate) fn pass_over(&mut self, number: usize, input: &Payload) -> Result<()> {
        if !self.has_lines() {
            self.next = self.next.max(number + 1);
            if let InputSource::One(input) = &mut self.source {
                *input = None;
            }
            return Ok(());
        }
        self.awaited.insert(number, mark_of(input));
        while self.next <= number {
            match self.read_next()? {
                ReadLine::Line(line) => self.pass(&line)?,
                ReadLine::NotYet => break,
                // The journal has it.
                ReadLine::End => {
                    self.awaited.remove(&number);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The next input.
    ///
    /// # Errors
    /// It cannot be read, or the line is not JSON.
    pub(crate) fn take(&mut self) -> Result<Taken> {
        loop {
            let line = match self.read_next()? {
                ReadLine::End => return Ok(Taken::End),
                ReadLine::NotYet => return Ok(Taken::NotYet),
                ReadLine::Line(line) => line,
            };
            if self.awaited.contains_key(&line.number) {
                self.pass(&line)?;
                continue;
            }
            if let Some(fault) = line.fault.as_ref().filter(|_| !self.bad_lines_fail)
                && self.has_lines()
            {
                return Err(Error::usage(format!(
                    "{fault}; each line is one input (to go on with the others: -k)"
                )));
            }
            return Ok(Taken::Input(line));
        }
    }

    /// Takes in what has come through the pipe.
    ///
    /// # Errors
    /// It cannot be read or kept, or it differs from what came before.
    pub(crate) fn receive(&mut self) -> Result<()> {
        if let InputSource::Stream(lines) = &mut self.source {
            self.note = lines.receive()?.or(self.note.take());
        }
        Ok(())
    }

    /// More may come through a pipe.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.source, InputSource::Stream(lines) if lines.source.is_some())
    }

    /// The pipe, unless enough has come for now. With `if_starved` all must have been taken that has come.
    pub(crate) fn descriptor(&self, if_starved: bool) -> Option<BorrowedFd<'_>> {
        let InputSource::Stream(lines) = &self.source else {
            return None;
        };
        let is_wanted = match if_starved {
            true => lines.is_starved,
            // One byte more than a line may have: of one that is too long, no end is waited for.
            false => lines.bytes_ahead() <= LARGEST_INPUT,
        };
        let source = lines.source.as_ref().filter(|_| is_wanted);
        source.map(AsFd::as_fd)
    }

    /// The message for the user, once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn has_lines(&self) -> bool {
        matches!(self.source, InputSource::File(_) | InputSource::Stream(_))
    }

    /// A line that was taken before must be what it was.
    fn pass(&mut self, line: &TakenInput) -> Result<()> {
        let was = self.awaited.remove(&line.number);
        if !self.compares || was.is_none_or(|was| was == mark_of(&line.payload)) {
            return Ok(());
        }
        let (place, number) = (self.place(), line.number);
        Err(Error::config(format!(
            "{place}: T{number} began with another input; lines can be added, but those that have been taken \
             must stay as they were (or: --changed ok)"
        )))
    }

    /// The place of the last line.
    fn place(&self) -> String {
        match &self.source {
            InputSource::File(reader) => reader.place(),
            InputSource::Stream(lines) => lines.reader.place(),
            InputSource::One(_) | InputSource::Known(_) => String::new(),
        }
    }

    fn read_next(&mut self) -> Result<ReadLine> {
        let line = match &mut self.source {
            InputSource::One(input) => match input.take() {
                Some(payload) => Ok((payload, None)),
                None => return Ok(ReadLine::End),
            },
            InputSource::Known(inputs) => {
                return Ok(inputs.next().map_or(ReadLine::End, |root| {
                    ReadLine::Line(TakenInput {
                        number: root.number,
                        payload: root.input,
                        fault: root.fault,
                    })
                }));
            }
            InputSource::File(reader) => match reader.read_line(false)? {
                Some(line) => parse_line(reader, &line),
                None => return Ok(ReadLine::End),
            },
            InputSource::Stream(lines) => {
                let is_open = lines.source.is_some();
                match lines.reader.read_line(is_open)? {
                    Some(line) => parse_line(&lines.reader, &line),
                    None => {
                        lines.is_starved = true;
                        return Ok(match is_open {
                            true => ReadLine::NotYet,
                            false => ReadLine::End,
                        });
                    }
                }
            }
        };
        let (payload, fault) = line.unwrap_or_else(|(text, fault)| (text, Some(fault)));
        let number = self.next;
        self.next += 1;
        Ok(ReadLine::Line(TakenInput {
            number,
            payload,
            fault,
        }))
    }
}

enum ReadLine {
    Line(TakenInput),
    NotYet,
    End,
}

/// The lines of a file that may still grow.
#[derive(Debug)]
struct InputReader {
    reader: BufReader<File>,
    /// The file's, for people.
    name: String,
    /// The number of the last line, from 1.
    line: usize,
    /// Bytes of all lines that were read.
    consumed: u64,
    /// The beginning of a line whose end has not come.
    unfinished: Vec<u8>,
}

impl InputReader {
    fn new(file: File, name: String) -> Self {
        Self {
            reader: BufReader::new(file),
            name,
            line: 0,
            consumed: 0,
            unfinished: Vec::new(),
        }
    }

    /// The next line that is not empty, without white space around it. With `may_grow`, one without a line break is
    /// not yet read.
    ///
    /// # Errors
    /// It cannot be read; or it is longer than [`LARGEST_INPUT`].
    fn read_line(&mut self, may_grow: bool) -> Result<Option<Vec<u8>>> {
        loop {
            let room = (LARGEST_INPUT as usize + 1).saturating_sub(self.unfinished.len());
            let mut bounded = self.reader.by_ref().take(room as u64);
            let read = bounded.read_until(b'\n', &mut self.unfinished);
            read.at("read", Path::new(&self.name))?;
            if self.unfinished.len() as u64 > LARGEST_INPUT && !self.unfinished.ends_with(b"\n") {
                self.line += 1;
                return Err(too_long(&self.place()));
            }
            let is_whole = self.unfinished.ends_with(b"\n");
            if self.unfinished.is_empty() || (!is_whole && may_grow) {
                return Ok(None);
            }
            self.line += 1;
            self.consumed += self.unfinished.len() as u64;
            let line = std::mem::take(&mut self.unfinished);
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                return Ok(Some(trimmed.to_vec()));
            }
        }
    }

    /// Forgets what it has read of a line that has been cut off, also what it holds in advance.
    fn forget_unfinished(&mut self) -> Result<()> {
        self.unfinished.clear();
        let place = SeekFrom::Start(self.consumed);
        self.reader.seek(place).at("read", Path::new(&self.name))?;
        Ok(())
    }

    fn place(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }
}

/// The lines that come through a pipe, read from their copy.
#[derive(Debug)]
struct StreamedLines {
    reader: InputReader,
    spool: InputSpool,
    /// None: nothing more will come.
    source: Option<File>,
    /// The number of bytes that this start has received; the copy may have more from an earlier one.
    compared: u64,
    /// Nothing is left that has come.
    is_starved: bool,
}

impl StreamedLines {
    /// Bytes that have come and that no root has begun with.
    fn bytes_ahead(&self) -> u64 {
        self.spool.len().saturating_sub(self.reader.consumed)
    }

    /// Takes in a piece. Returns a message for the user.
    fn receive(&mut self) -> Result<Option<String>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let mut piece = vec![0; PIECE];
        match rustix::io::read(source, &mut piece) {
            Ok(0) => self.end(),
            Ok(len) => self.add(&piece[..len]).map(|()| None),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(errno) => {
                let (name, why) = (&self.reader.name, reason(&io::Error::from(errno)));
                Err(Error::failure(format!("cannot read {name}: {why}")))
            }
        }
    }

    /// What an earlier start has got must come again, unless nothing comes.
    fn add(&mut self, piece: &[u8]) -> Result<()> {
        let known = self.spool.len() - self.compared;
        let (again, new) = piece.split_at(piece.len().min(known as usize));
        if self.spool.read(self.compared, again.len())? != again {
            let name = &self.reader.name;
            return Err(Error::config(format!(
                "{name} differs from what the run was given before; give the same again, go on without \
                 --inputs, or begin another run with --run-id"
            )));
        }
        self.spool.append(new)?;
        self.compared += piece.len() as u64;
        self.is_starved = false;
        Ok(())
    }

    fn end(&mut self) -> Result<Option<String>> {
        self.source = None;
        self.is_starved = false;
        let mut note = None;
        if self.compared < self.spool.len() {
            let name = &self.reader.name;
            note = Some(format!(
                "{name} ended before what the run was given earlier; the run goes on with that"
            ));
            if self.spool.cut_unfinished_line()? {
                self.reader.forget_unfinished()?;
            }
        }
        self.spool.complete()?;
        Ok(note)
    }
}

impl StreamSource {
    /// Opens it for reading; no process needs to write yet.
    fn open(&self) -> Result<File> {
        match self {
            Self::Stdin => {
                let copy = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3);
                let copy = copy.map_err(|errno| {
                    let why = reason(&io::Error::from(errno));
                    Error::usage(format!("cannot read the inputs from stdin: {why}"))
                });
                Ok(File::from(copy?))
            }
            Self::Path(path) => OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(path)
                .at("open", path),
        }
    }
}

/// A line as JSON; or, with what is wrong with it, as a string.
fn parse_line(
    reader: &InputReader,
    line: &[u8],
) -> std::result::Result<(Payload, Option<String>), (Payload, String)> {
    let what = match std::str::from_utf8(json::without_mark(line)) {
        Ok(text) => match json::check(text) {
            Ok(()) => return Ok((text.into(), None)),
            Err(error) => format!("not JSON: {}", json::parser_message(&error)),
        },
        Err(_) => "not UTF-8".to_owned(),
    };
    let text = json::text(&*String::from_utf8_lossy(line)).into();
    Err((text, format!("{}: {what}", reader.place())))
}

/// A mark to recognise an input by within one process.
fn mark_of(input: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn next_line(inputs: &mut Inputs) -> Option<String> {
        match inputs.take().unwrap() {
            Taken::Input(input) => Some(input.payload.to_string()),
            Taken::NotYet | Taken::End => None,
        }
    }

    #[test]
    fn a_line_that_is_cut_off_is_gone_also_where_it_was_read_in_advance() {
        // The end of the pipe comes before anybody has asked for the last line, or after.
        for taken_before in 0..=3 {
            let name = format!("delta-inputs-{}-{taken_before}", std::process::id());
            let run = std::env::temp_dir().join(name);
            fs::create_dir_all(run.join("io")).unwrap();
            fs::write(run.join("io/inputs.part"), "1\n2\n3").unwrap();
            let ended = StreamSource::Path("/dev/null".into());
            let mut inputs = Inputs::streamed(&run, Some(&ended)).unwrap();
            let mut lines: Vec<_> = (0..taken_before)
                .filter_map(|_| next_line(&mut inputs))
                .collect();
            inputs.receive().unwrap();
            assert!(!inputs.is_open());
            lines.extend(std::iter::from_fn(|| next_line(&mut inputs)));
            assert_eq!(lines, ["1", "2"]);
            fs::remove_dir_all(&run).unwrap();
        }
    }
}
