//! Lines that are typed with an editor: keys that move, a history, Tab. Where there is no terminal, or none on which lines can
//! be redrawn, [`read_line`] reads them.
//!
//! The library waits for keys in a way that no signal, deadline or end of a parent cuts short. So it runs in a process of its
//! own, the command [`COMMAND`], which has the terminal as stdin and stdout, and a socket to this process as stderr.
//!
//! Unaware of what lines mean.

mod keys;

pub(crate) use keys::edit_lines;

use super::own_program::own_program;
use super::signals::{Signals, Stop};
use super::terminal::{can_redraw, stderr_is_terminal};
use super::typed::{Reply, read_line};
use crate::error::ignore;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

/// The command of `delta` that lets a person edit lines.
pub(crate) const COMMAND: &str = "edit-lines";

/// The number of newest lines that can be recalled.
pub(crate) const RECALLED: usize = 1000;

/// The words completed at the beginning of a line, and whether a path follows.
pub(crate) type Completion = Vec<(String, bool)>;

/// A request of this process to the other one, as a line of JSON.
#[derive(Serialize, Deserialize)]
struct EditRequest {
    prompt: String,
    completion: Completion,
    /// Lines that the other process does not know, oldest first.
    history: Vec<String>,
}

/// A reply of the other process, as a line of JSON.
#[derive(Serialize, Deserialize)]
enum Edited {
    Line(String),
    /// Ctrl-C.
    Cleared,
    /// Ctrl-D.
    End,
}

/// An editor at the terminal that stdin and stderr are.
pub(crate) struct LineEditor {
    completion: Completion,
    history: Vec<String>,
    process: Option<EditorProcess>,
}

impl LineEditor {
    /// Starts an editor; none where it cannot work.
    pub(crate) fn begin(completion: Completion, history: Vec<String>) -> Option<Self> {
        let is_usable = io::stdin().is_terminal() && stderr_is_terminal() && can_redraw();
        Some(Self {
            process: Some(is_usable.then(EditorProcess::start)?.ok()?),
            completion,
            history,
        })
    }

    /// Adds a line to those that can be recalled.
    pub(crate) fn remember(&mut self, line: &str) {
        self.history.push(line.to_owned());
    }

    /// Reads a line after a prompt. A text that is pasted is one line, with line feeds.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(crate) fn read_line(&mut self, signals: &Signals, prompt: &str) -> io::Result<Reply> {
        let (above, prompt) = prompt.rsplit_once('\n').unwrap_or(("", prompt));
        if !above.is_empty() {
            ignore(io::stderr().write_all(format!("{above}\n").as_bytes()));
        }
        // Something may have ended the process while nothing was typed.
        for _ in 0..2 {
            let process = match self.process.take() {
                Some(process) => Ok(process),
                None => EditorProcess::start(),
            };
            let Ok(mut process) = process else { break };
            let request = EditRequest {
                prompt: prompt.to_owned(),
                completion: self.completion.clone(),
                history: self
                    .history
                    .split_off(process.known.min(self.history.len())),
            };
            let edited = process.edit(&request, signals);
            self.history.extend(request.history);
            process.known = self.history.len();
            if let Some(stop) = signals.stop() {
                return Ok(Reply::Stopped(stop));
            }
            let Ok(Some(edited)) = edited else { continue };
            self.process = Some(process);
            return Ok(match edited {
                Edited::Line(line) => Reply::Answer(line),
                Edited::End => Reply::NobodyThere,
                Edited::Cleared => {
                    // As the terminal does while no editor reads the key.
                    ignore(kill_process(getpid(), Signal::INT));
                    Reply::Stopped(signals.stop().unwrap_or(Stop::Interrupt))
                }
            });
        }
        ignore(io::stderr().write_all(prompt.as_bytes()));
        read_line(signals)
    }
}

/// The process that has the terminal while a line is edited.
struct EditorProcess {
    child: Child,
    socket: UnixStream,
    /// The terminal's modes while no line is edited.
    modes: Termios,
    is_editing: bool,
    /// Lines of the history that it has received.
    known: usize,
}

impl EditorProcess {
    fn start() -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let modes = tcgetattr(io::stdin())?;
        let child = Command::new(own_program())
            .arg(COMMAND)
            .stdout(io::stderr().as_fd().try_clone_to_owned()?)
            .stderr(OwnedFd::from(theirs))
            .spawn()?;
        Ok(Self {
            child,
            socket,
            modes,
            is_editing: false,
            known: 0,
        })
    }

    /// Lets a line be edited. None if a signal came, or if the process has ended.
    fn edit(&mut self, request: &EditRequest, signals: &Signals) -> io::Result<Option<Edited>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.socket.write_all(&line)?;
        self.is_editing = true;
        let (mut reply, mut buffer) = (Vec::new(), [0; 4096]);
        while !reply.ends_with(b"\n") {
            match signals.read(&self.socket, &mut buffer)? {
                Some(0) | None => return Ok(None),
                Some(count) => reply.extend_from_slice(&buffer[..count]),
            }
        }
        self.is_editing = false;
        Ok(serde_json::from_slice(&reply).ok())
    }
}

impl Drop for EditorProcess {
    fn drop(&mut self) {
        ignore(self.child.kill());
        ignore(self.child.wait());
        if self.is_editing {
            ignore(tcsetattr(io::stdin(), OptionalActions::Now, &self.modes));
            // Pasted text is no longer marked.
            ignore(io::stderr().write_all(b"\x1b[?2004l\r\n"));
        }
    }
}
