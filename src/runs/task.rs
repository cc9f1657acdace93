//! A command's message to the model: texts, the standard input and files, in the order of the command line.
//!
//! Unaware of runs but for what a message puts into one. A run is known again by its texts and by the names of its files, not by what is in them.

use crate::engine::outbox::judge;
use crate::error::{At, Error, Exit, Result, reason};
use crate::record::attachments::head::recognize;
use crate::record::attachments::{self, Attachment};
use crate::record::blobs::{self, Blobs, LARGEST};
use crate::record::event::MessageEvent;
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, file_head};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Attached, Reading, Turn};
use crate::record::workspace::Workspace;
use crate::text::disguise::disguises;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::signals::Signals;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// More than this is no message but work for a tool.
const LONGEST: usize = 1 << 20;

/// A part of a message as the command line has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GivenPart {
    Text(String),
    Stdin,
    File(PathBuf),
}

/// A part of a message.
#[derive(Debug)]
enum Part {
    Text(String),
    File {
        name: String,
        /// The content, or the reason why it cannot be read: a run that is resumed does not need it.
        content: std::result::Result<FileContent, String>,
    },
}

#[derive(Clone, Debug)]
enum FileContent {
    Text(String),
    Attachment(GivenAttachment),
}

/// A picture or a document of the command line.
#[derive(Clone, Debug)]
pub(crate) struct GivenAttachment {
    pub attachment: Attachment,
    pub bytes: Vec<u8>,
}

/// A message as the model gets it.
#[derive(Debug, Default)]
pub(crate) struct GivenMessage {
    pub text: String,
    pub attached: Vec<GivenAttachment>,
}

impl GivenMessage {
    /// One without attachments.
    pub(crate) fn of_text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            attached: Vec::new(),
        }
    }

    /// The first message of a run, with this text.
    pub(crate) fn first_of(run: &RunDir, text: String) -> Self {
        let journal = files::read_regular(&run.journal()).unwrap_or_default();
        let state = state::read(&journal, Reading::default()).ok();
        let first = state.as_ref().and_then(|state| state.turns.first());
        let attached = first.into_iter().flat_map(Turn::attached);
        let blobs = Blobs::of(&run.path);
        let given = attached.flat_map(Attached::all).filter_map(|attachment| {
            let bytes = attachment.read(&blobs)?;
            let attachment = attachment.clone();
            Some(GivenAttachment { attachment, bytes })
        });
        Self {
            attached: given.collect(),
            text,
        }
    }

    /// Puts the bytes of the attachments into a run's directory. Returns the attachments.
    pub(crate) fn store(&self, workspace: &Workspace, run: &Path) -> Result<Vec<Attachment>> {
        if !self.attached.is_empty() {
            workspace.raise_layout()?;
        }
        for given in &self.attached {
            blobs::store(run, &given.bytes, true)?;
        }
        let attached = self.attached.iter();
        Ok(attached.map(|given| given.attachment.clone()).collect())
    }

    /// Adds it to the journal of the run in a directory.
    pub(crate) fn record(
        &self,
        workspace: &Workspace,
        run: &Path,
        journal: &mut Journal,
        iteration: u64,
    ) -> Result<()> {
        let attachments = self.store(workspace, run)?;
        let message = MessageEvent {
            content: &self.text,
            attachments: &attachments,
            ..MessageEvent::default()
        };
        journal.add(iteration, &message);
        Ok(())
    }
}

/// A message of at least one part.
#[derive(Debug)]
pub(crate) struct Task(Vec<Part>);

impl Task {
    /// Reads what is given; none if nothing is.
    ///
    /// # Errors
    /// A text is empty or too long, or the standard input is not UTF-8.
    pub(crate) fn read(given: &[GivenPart], signals: &Signals) -> Result<Option<Self>> {
        let mut parts = Vec::new();
        for part in given {
            parts.push(match part {
                GivenPart::Text(text) => Part::Text(text.clone()),
                GivenPart::Stdin => Part::Text(stdin_text(signals)?),
                GivenPart::File(path) => read_file(path, signals)?,
            });
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let task = Self(parts);
        if task.parts().is_none() {
            task.text()?;
        }
        Ok(Some(task))
    }

    /// All of it as one text.
    ///
    /// # Errors
    /// A file cannot be read, or all are too long together.
    pub(crate) fn text(&self) -> Result<String> {
        let texts: Vec<String> = self
            .0
            .iter()
            .map(Part::text)
            .collect::<std::result::Result<_, _>>()
            .map_err(Error::usage)?;
        let text = texts.join("\n\n");
        let attached = self.0.iter().filter_map(Part::attachment).count();
        if attached > attachments::MOST {
            return Err(Error::usage(format!(
                "{attached} pictures and documents: one message has at most {}; leave them in the workspace, and name them in \
                 the task",
                attachments::MOST
            )));
        }
        if text.len() > LONGEST {
            return Err(Error::usage(format!(
                "the message is longer than 1 MiB ({} bytes): leave it in a file in the workspace, and name \
                 that file in the task",
                text.len()
            )));
        }
        Ok(text)
    }

    /// All of it.
    ///
    /// # Errors
    /// As those of the text.
    pub(crate) fn message(&self) -> Result<GivenMessage> {
        let attached = self.0.iter().filter_map(Part::attachment).cloned();
        Ok(GivenMessage {
            text: self.text()?,
            attached: attached.collect(),
        })
    }

    /// The texts and the files' names, for the record; none without files, when the text says it all.
    pub(crate) fn parts(&self) -> Option<Value> {
        let is_file = |part: &Part| matches!(part, Part::File { .. });
        self.0.iter().any(is_file).then(|| {
            let shown = |part: &Part| match part {
                Part::Text(text) => json!({"text": text}),
                Part::File { name, .. } => json!({"file": name}),
            };
            self.0.iter().map(shown).collect()
        })
    }

    /// True if a run began so.
    pub(crate) fn is_beginning_of(&self, metadata: &Metadata) -> bool {
        match self.parts() {
            Some(parts) => metadata.message_parts.as_ref() == Some(&parts),
            None => {
                let text = self.text().ok();
                metadata.message_parts.is_none() && metadata.initial_message == text
            }
        }
    }

    /// The files whose content is not in the first message of the run in a directory.
    pub(crate) fn changed_since<'a>(&'a self, recorded: &str, run: &Path) -> Vec<&'a str> {
        let mut blobs = Blobs::of(run);
        let changed = |part: &'a Part| match part {
            Part::File { name, .. } => {
                let has_blob = part
                    .attachment()
                    .is_none_or(|given| given.attachment.is_in(&mut blobs));
                let is_there = |text: String| recorded.contains(&text) && has_blob;
                (!part.text().is_ok_and(is_there)).then_some(name.as_str())
            }
            Part::Text(_) => None,
        };
        self.0.iter().filter_map(changed).collect()
    }
}

impl Part {
    /// The part as the model reads it.
    fn text(&self) -> std::result::Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File { name, content } => match content.as_ref().map_err(Clone::clone)? {
                FileContent::Text(text) => Ok(file_head(name) + text),
                FileContent::Attachment(given) => Ok(given.attachment.line()),
            },
        }
    }

    fn attachment(&self) -> Option<&GivenAttachment> {
        match self {
            Self::File {
                content: Ok(FileContent::Attachment(given)),
                ..
            } => Some(given),
            Self::File { .. } | Self::Text(_) => None,
        }
    }
}

fn stdin_text(signals: &Signals) -> Result<String> {
    let bytes = read_stdin("message", signals)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let way_out = "convert it with iconv, or leave it in a file and name that in the task";
        Error::usage(format!("the message on stdin is not UTF-8: {way_out}"))
    })?;
    let text = without_last_newline(text);
    if text.is_empty() {
        return Err(Error::usage("the message given with -m - is empty"));
    }
    Ok(text)
}

fn without_last_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

fn read_file(path: &Path, signals: &Signals) -> Result<Part> {
    let shown = path.display();
    let name = match path.to_str() {
        Some(name) if !name.contains(disguises) => name.to_owned(),
        _ => {
            let lossy = path.to_string_lossy();
            let shown = lossy.escape_debug();
            return Err(Error::usage(format!(
                "-f: '{shown}' cannot be named in a message: only printable UTF-8 can; rename or link it"
            )));
        }
    };
    let content = match read_at_most(path, signals) {
        Err(error) if error.exit != Exit::Failure => return Err(error),
        Err(error) => Err(error.message),
        Ok(bytes) if recognize(&bytes).is_some() => {
            let base = files::name_of(path);
            let judged = judge(&base, &bytes).map_err(|why| format!("-f {shown}: {why}"));
            judged.map(|attachment| FileContent::Attachment(GivenAttachment { attachment, bytes }))
        }
        Ok(bytes) if bytes.len() > LONGEST => Err(format!(
            "-f {shown}: longer than 1 MiB: leave it in the workspace, and name it in the task"
        )),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(FileContent::Text(without_last_newline(text))),
            Err(_) => Err(format!(
                "-f {shown}: neither a picture, a PDF without a password, nor UTF-8: convert it with iconv, or leave it in \
                 the workspace and name it in the task"
            )),
        },
    };
    Ok(Part::File { name, content })
}

/// The bytes of a file, or a few more than are taken. What is read may be a pipe: `-f <(git diff)`.
fn read_at_most(path: &Path, signals: &Signals) -> Result<Vec<u8>> {
    let wrong = |error: std::io::Error| {
        let why = reason(&error);
        Error::failure(format!("-f {}: cannot read it: {why}", path.display()))
    };
    let file = open_waiting(path).map_err(wrong)?;
    let name = path.display().to_string();
    let read = read_to_end(file, &name, LARGEST, signals);
    read.and_then(|bytes| bytes.map_err(wrong))
}

/// All that a file holds, or what comes through a pipe, up to [`LARGEST_INPUT`]. A signal ends the reading.
pub(crate) fn read_path(path: &Path, signals: &Signals) -> Result<Vec<u8>> {
    let file = open_waiting(path).at("read", path);
    let name = path.display().to_string();
    let read = read_to_end(
        file.map_err(Error::into_usage)?,
        &name,
        LARGEST_INPUT,
        signals,
    )?;
    within_limit(&name, read.at("read", path).map_err(Error::into_usage)?)
}

fn within_limit(name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if bytes.len() as u64 > LARGEST_INPUT {
        Err(too_long(name))
    } else {
        Ok(bytes)
    }
}

/// The error of an input of more than [`LARGEST_INPUT`] bytes; `name` says which.
pub(crate) fn too_long(name: &str) -> Error {
    Error::usage(format!(
        "{name} is longer than 256 MiB; leave the data in a file, and give its path instead"
    ))
}

/// Opens a file or a pipe. Without a writer, opening a pipe would wait where no signal ends it.
fn open_waiting(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// The bytes of a descriptor until its end, or a few more than `most`; or why it cannot be read.
///
/// # Errors
/// A signal came; `name` says while what was read.
fn read_to_end(
    from: impl AsFd,
    name: &str,
    most: u64,
    signals: &Signals,
) -> Result<std::io::Result<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while bytes.len() as u64 <= most {
        match (signals.read(&from, &mut buffer), signals.stop()) {
            (Err(error), _) => return Ok(Err(error)),
            (Ok(Some(0)), _) => break,
            (Ok(Some(read)), _) => bytes.extend_from_slice(&buffer[..read]),
            (Ok(None), Some(stop)) => {
                let message = format!("{} while reading {name}", stop.name());
                return Err(Error::new(stop.into(), message));
            }
            (Ok(None), None) => {}
        }
    }
    Ok(Ok(bytes))
}

/// All of the standard input, which is called `name` in errors, up to [`LARGEST_INPUT`]. A signal ends the reading.
pub(crate) fn read_stdin(name: &str, signals: &Signals) -> Result<Vec<u8>> {
    let read = read_to_end(
        std::io::stdin(),
        &format!("the {name}"),
        LARGEST_INPUT,
        signals,
    )?;
    let bytes = read.map_err(|e| {
        let reason = reason(&e);
        Error::usage(format!("cannot read the {name} from stdin: {reason}"))
    })?;
    within_limit(&format!("the {name} on stdin"), bytes)
}
