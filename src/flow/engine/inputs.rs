//! The inputs of root tasks: one, the lines of a file, or those that come through a pipe.
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
use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A pipe that inputs come through.
#[derive(Clone, Debug)]
pub(crate) enum StreamSource {
    Stdin,
    /// A named pipe, or another file that is not a regular one.
    Path(PathBuf),
}

/// The inputs that have not been taken.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Without lines: all of them.
    known: VecDeque<RecordedRoot>,
    lines: Option<InputReader>,
    /// The lines come through a pipe.
    stream: Option<InputStream>,
    /// The number of the last line that was taken.
    last: usize,
    /// A line that is not JSON is an input that fails, and the others go on.
    pub bad_lines_fail: bool,
    /// Lines that have been taken must be what they were.
    pub compares: bool,
    /// Marks of inputs that an earlier start has taken and that have not come again yet, by their numbers.
    awaited: BTreeMap<usize, u64>,
    /// A message for the user.
    note: Option<String>,
}

/// The next input, as far as it is there.
#[derive(Debug)]
pub(crate) enum Taken {
    Input(RecordedRoot),
    /// The next input may still come.
    NotYet,
    End,
}

impl Inputs {
    /// One input, or none at all.
    pub(crate) fn one(input: Option<Payload>) -> Self {
        let root = |input| RecordedRoot {
            number: 1,
            input,
            fault: None,
        };
        Self::known(input.into_iter().map(root).collect())
    }

    /// Inputs that roots had in another run.
    pub(crate) fn known(inputs: Vec<RecordedRoot>) -> Self {
        Self {
            known: inputs.into(),
            ..Self::default()
        }
    }

    /// The lines of a file; empty ones do not count.
    pub(crate) fn lines(path: &Path) -> Result<Self> {
        let file = File::open(path).at("read", path)?;
        let name = path.display().to_string();
        Ok(Self {
            lines: Some(InputReader::new(file, name)),
            ..Self::default()
        })
    }

    /// The lines that come through a pipe, beginning with those that the run has. Without a source there are no others.
    pub(crate) fn streamed(run: &Path, source: Option<&StreamSource>) -> Result<Self> {
        let mut spool = InputSpool::open(run)?;
        let name = match source {
            Some(StreamSource::Path(path)) => path.display().to_string(),
            Some(StreamSource::Stdin) | None => "standard input".to_owned(),
        };
        let lines = InputReader::new(spool.reader()?, name.clone());
        let (mut note, mut open) = (None, None);
        match source {
            Some(_) if spool.is_whole() => {
                note = Some(format!("the run has all its inputs; {name} is not read"));
            }
            Some(source) => open = Some(source.open()?),
            None if spool.is_whole() => {}
            None => {
                spool.cut_unfinished_line()?;
                let text = "the inputs had not been read to their end; the run goes on with those that had come";
                note = Some(text.to_owned());
            }
        }
        Ok(Self {
            note,
            lines: Some(lines),
            stream: Some(InputStream {
                spool,
                source: open,
                compared: 0,
                is_starved: false,
            }),
            ..Self::default()
        })
    }

    /// Passes over the input with this number, and those before it: an earlier start has taken it.
    ///
    /// # Errors
    /// The line is not what it was; or it cannot be read.
    pub(crate) fn pass_over(&mut self, number: usize, input: &Payload) -> Result<()> {
        if self.lines.is_none() {
            self.known.retain(|it| it.number > number);
            return Ok(());
        }
        self.awaited.insert(number, mark_of(input));
        while self.last < number {
            match self.read_next()? {
                Taken::Input(line) => self.pass(&line)?,
                Taken::NotYet => break,
                // The journal has it.
                Taken::End => {
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
            let taken = self.read_next()?;
            match &taken {
                Taken::Input(line) if self.awaited.contains_key(&line.number) => self.pass(line)?,
                Taken::Input(line) if self.lines.is_some() && !self.bad_lines_fail => {
                    return match &line.fault {
                        None => Ok(taken),
                        Some(fault) => Err(Error::usage(format!(
                            "{fault}; each line is one input (to go on with the others: -k)"
                        ))),
                    };
                }
                _ => return Ok(taken),
            }
        }
    }

    /// Takes in what has come through the pipe.
    ///
    /// # Errors
    /// It cannot be read or kept, or it differs from what came before.
    pub(crate) fn receive(&mut self) -> Result<()> {
        if let (Some(stream), Some(lines)) = (&mut self.stream, &mut self.lines) {
            self.note = stream.receive(lines)?.or(self.note.take());
        }
        Ok(())
    }

    /// More may come through a pipe.
    pub(crate) fn is_open(&self) -> bool {
        self.stream.as_ref().is_some_and(|it| it.source.is_some())
    }

    /// The pipe, unless enough has come for now. With `if_starved` all must have been taken that has come.
    pub(crate) fn descriptor(&self, if_starved: bool) -> Option<BorrowedFd<'_>> {
        let stream = self.stream.as_ref()?;
        let is_wanted = if if_starved {
            stream.is_starved
        } else {
            // One byte more than a line may have: of one that is too long, no end is waited for.
            stream
                .spool
                .len()
                .saturating_sub(self.lines.as_ref()?.consumed)
                <= LARGEST_INPUT
        };
        stream
            .source
            .as_ref()
            .filter(|_| is_wanted)
            .map(AsFd::as_fd)
    }

    /// The message for the user, once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// A line that was taken before must be what it was.
    fn pass(&mut self, line: &RecordedRoot) -> Result<()> {
        let was = self.awaited.remove(&line.number);
        if !self.compares || was.is_none_or(|was| was == mark_of(&line.input)) {
            return Ok(());
        }
        let place = self
            .lines
            .as_ref()
            .map_or_else(String::new, InputReader::place);
        Err(Error::config(format!(
            "{place}: T{} began with another input; lines can be added, but those that have been taken \
             must stay as they were (or: --changed ok)",
            line.number
        )))
    }

    fn read_next(&mut self) -> Result<Taken> {
        let is_open = self.is_open();
        let Some(reader) = &mut self.lines else {
            return Ok(self.known.pop_front().map_or(Taken::End, Taken::Input));
        };
        let Some(line) = reader.read_line(is_open)? else {
            if let Some(stream) = &mut self.stream {
                stream.is_starved = true;
            }
            return Ok(if is_open { Taken::NotYet } else { Taken::End });
        };
        self.last += 1;
        let fault = match std::str::from_utf8(json::without_mark(&line)) {
            Ok(text) => match json::check(text) {
                Ok(()) => {
                    return Ok(Taken::Input(RecordedRoot {
                        number: self.last,
                        input: text.into(),
                        fault: None,
                    }));
                }
                Err(error) => format!("not JSON: {}", json::parser_message(&error)),
            },
            Err(_) => "not UTF-8".to_owned(),
        };
        // As a string.
        Ok(Taken::Input(RecordedRoot {
            number: self.last,
            input: json::text(&*String::from_utf8_lossy(&line)).into(),
            fault: Some(format!("{}: {fault}", reader.place())),
        }))
    }
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
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.trim_ascii().to_vec()));
            }
        }
    }

    /// Forgets what it has read of a line that has been cut off, also what it holds in advance.
    fn forget_unfinished(&mut self) -> Result<()> {
        self.unfinished.clear();
        self.reader
            .seek(SeekFrom::Start(self.consumed))
            .at("read", Path::new(&self.name))?;
        Ok(())
    }

    fn place(&self) -> String {
        format!("{}:{}", self.name, self.line)
    }
}

/// A pipe, and the copy of what has come through it.
#[derive(Debug)]
struct InputStream {
    spool: InputSpool,
    /// None: nothing more will come.
    source: Option<File>,
    /// The number of bytes that this start has received; the copy may have more from an earlier one.
    compared: u64,
    /// Nothing is left that has come.
    is_starved: bool,
}

impl InputStream {
    /// Takes in a piece for the lines that are read from the copy. Returns a message for the user.
    fn receive(&mut self, lines: &mut InputReader) -> Result<Option<String>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let name = lines.name.clone();
        let mut piece = vec![0; 64 << 10];
        match rustix::io::read(source, &mut piece) {
            Ok(0) => self.end(lines),
            Ok(len) => self.add(&piece[..len], &name).map(|()| None),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(None),
            Err(errno) => {
                let why = reason(&io::Error::from(errno));
                Err(Error::failure(format!("cannot read {name}: {why}")))
            }
        }
    }

    /// Adds a piece: what an earlier start has got must come again, unless nothing comes.
    fn add(&mut self, piece: &[u8], name: &str) -> Result<()> {
        let known = self.spool.len() - self.compared;
        let (again, new) = piece.split_at(piece.len().min(known as usize));
        if self.spool.read(self.compared, again.len())? != again {
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

    fn end(&mut self, lines: &mut InputReader) -> Result<Option<String>> {
        self.source = None;
        self.is_starved = false;
        let is_short = self.compared < self.spool.len();
        if is_short && self.spool.cut_unfinished_line()? {
            lines.forget_unfinished()?;
        }
        self.spool.complete()?;
        let name = &lines.name;
        Ok(is_short.then(|| {
            format!("{name} ended before what the run was given earlier; the run goes on with that")
        }))
    }
}

impl StreamSource {
    /// Opens it for reading; no process needs to write yet.
    fn open(&self) -> Result<File> {
        match self {
            Self::Stdin => {
                let copy = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map_err(|errno| {
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
            Taken::Input(input) => Some(input.input.to_string()),
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
