//! One start of delta on the run of a session, in a process of its own.
//!
//! Unaware of the client.

use super::lines::{LineBuffer, Read};
use super::prompt::Prompt;
use crate::error::{Error, Result, reason};
use crate::text::json;
use crate::unix::files;
use crate::unix::own_program::own_program;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The process, and what it prints.
#[derive(Debug)]
pub(super) struct RunProcess {
    child: Child,
    stdout: OwnedFd,
    lines: LineBuffer,
    /// The last line, once it has come.
    pub result: Option<Value>,
    has_signal: bool,
    /// Keeps its files until the process has ended.
    _prompt: Prompt,
}

/// A line of a start.
pub(super) enum RunLine {
    Event(Vec<u8>),
    Delta(Value),
}

impl RunProcess {
    /// Starts delta with these words and a message. The message comes over its standard input.
    pub(super) fn start(words: &[String], prompt: Prompt) -> Result<Self> {
        let failed =
            |what: &str, e: &std::io::Error| Error::failure(format!("{what}: {}", reason(e)));
        let stdin = files::in_memory(prompt.text.as_bytes())
            .map_err(|e| failed("cannot keep the message", &e))?;
        let (stdout, theirs) = std::io::pipe().map_err(|e| failed("cannot make a pipe", &e))?;
        let stdout = OwnedFd::from(stdout);
        rustix::io::ioctl_fionbio(&stdout, true).map_err(|e| failed("a pipe", &e.into()))?;
        let mut command = Command::new(own_program());
        command
            .args(words)
            .args(["--format", "jsonl", "--deltas", "-q"]);
        if !prompt.text.is_empty() {
            command.args(["-m", "-"]);
        }
        for file in &prompt.files {
            command.arg("-f").arg(file);
        }
        let child = command
            .stdin(Stdio::from(stdin))
            .stdout(theirs)
            .process_group(0)
            .spawn();
        Ok(Self {
            child: child.map_err(|e| failed("cannot start delta", &e))?,
            stdout,
            lines: LineBuffer::default(),
            result: None,
            has_signal: false,
            _prompt: prompt,
        })
    }

    /// The pipe that its lines come from, as long as they do.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        (!self.lines.has_ended()).then(|| self.stdout.as_fd())
    }

    /// Asks it to end; once, because a second SIGINT would leave its end unrecorded.
    pub(super) fn interrupt(&mut self) {
        if !std::mem::replace(&mut self.has_signal, true)
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            // It may have ended.
            crate::error::ignore(kill_process(pid, Signal::INT));
        }
    }

    /// Reads what there is, without waiting.
    pub(super) fn read(&mut self) -> Result<()> {
        let lost = |e: std::io::Error| Error::failure(format!("the run's output: {}", reason(&e)));
        self.lines.fill(&self.stdout).map_err(lost)
    }

    /// The next line that has been read.
    pub(super) fn next_line(&mut self) -> Option<RunLine> {
        while let Some(read) = self.lines.next() {
            let Read::Line(line) = read else { continue };
            if line.starts_with(b"{\"seq\"") {
                return Some(RunLine::Event(line));
            }
            let value: Value = json::read_or_default(&line);
            match value["type"].as_str() {
                Some("TEXT_DELTA") => return Some(RunLine::Delta(value)),
                Some("result") => self.result = Some(value),
                _ => {}
            }
        }
        None
    }

    /// The exit code, once it has ended and all that it printed has been read.
    pub(super) fn end(&mut self) -> Option<i32> {
        if !self.lines.has_ended() {
            return None;
        }
        let status = self.child.try_wait().ok()??;
        use std::os::unix::process::ExitStatusExt;
        Some(
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        )
    }
}
