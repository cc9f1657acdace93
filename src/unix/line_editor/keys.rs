//! The process in which lines are edited: the only place that knows the library.

use super::{Completion, EditRequest, Edited, RECALLED};
use crate::error::{Error, Exit, Result, ignore, reason};
use crate::text::disguise::disguises;
use crate::text::order;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use signal_hook::consts::SIGINT;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The number of file names that Tab offers at most.
const COMPLETIONS: usize = 500;

/// Edits a line for each request on stderr, a socket, until that is closed.
pub(crate) fn edit_lines() -> Result<Exit> {
    // The library then leaves the terminal as it was, and the reply finds no reader.
    ignore(set_parent_process_death_signal(Some(Signal::INT)));
    // Until the library handles the signal, it must not end this process: the terminal may be in raw mode already.
    let ignored = Arc::new(AtomicBool::new(false));
    ignore(signal_hook::flag::register(SIGINT, ignored));
    let broken = |e: io::Error| Error::failure(format!("cannot edit lines: {}", reason(&e)));
    let socket = io::stderr().as_fd().try_clone_to_owned().map_err(broken)?;
    let socket = UnixStream::from(socket);
    let mut requests = BufReader::new(&socket);
    let config = Config::builder()
        .auto_add_history(false)
        .completion_type(CompletionType::List);
    let mut editor = config
        .max_history_size(RECALLED)
        .map(rustyline::config::Builder::build)
        .and_then(|config| {
            let history = MemHistory::with_config(&config);
            Editor::<Words<'_>, MemHistory>::with_history(config, history)
        })
        .map_err(|e| Error::failure(format!("cannot edit lines: {e}")))?;
    let mut line = String::new();
    while requests.read_line(&mut line).map_err(broken)? > 0 {
        let request = serde_json::from_str(&line).map_err(|e| broken(e.into()))?;
        let EditRequest {
            prompt,
            completion,
            history,
        } = request;
        for entry in history {
            ignore(editor.add_history_entry(entry));
        }
        editor.set_helper(Some(Words {
            completion,
            socket: &socket,
            modes: tcgetattr(io::stdin()).map_err(|e| broken(e.into()))?,
        }));
        let edited = match editor.readline(&prompt) {
            Ok(line) => Edited::Line(line),
            Err(ReadlineError::Interrupted) => Edited::Cleared,
            Err(ReadlineError::Eof) => Edited::End,
            Err(_) => return Ok(Exit::Failure),
        };
        let mut reply = serde_json::to_vec(&edited).map_err(|e| broken(e.into()))?;
        reply.push(b'\n');
        (&socket).write_all(&reply).map_err(broken)?;
        line.clear();
    }
    Ok(Exit::Success)
}

/// The words that Tab completes, for the process that listens on a socket.
struct Words<'s> {
    completion: Completion,
    socket: &'s UnixStream,
    /// The terminal's while no line is edited.
    modes: Termios,
}

impl Words<'_> {
    fn is_listened_to(&self) -> bool {
        let mut ends = [PollFd::new(self.socket, PollFlags::empty())];
        let at_once = Timespec::default();
        ignore(poll(&mut ends, Some(&at_once)));
        !ends[0].revents().contains(PollFlags::HUP)
    }
}

impl Completer for Words<'_> {
    type Candidate = String;

    /// The place of what is completed, and what it may become.
    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..cursor];
        let Some((word, path)) = typed.split_once(' ') else {
            let words = self
                .completion
                .iter()
                .filter(|(word, _)| !typed.is_empty() && word.starts_with(typed));
            return Ok((0, words.map(|(word, _)| word.clone()).collect()));
        };
        let takes_path = |(known, takes_path): &(String, bool)| *takes_path && known == word;
        if !self.completion.iter().any(takes_path) {
            return Ok((cursor, Vec::new()));
        }
        let (dir, name) = path.split_at(path.rfind('/').map_or(0, |at| at + 1));
        Ok((cursor - name.len(), names(dir, name)))
    }
}

/// The names in a directory that begin so. Those that could change the terminal are left out.
fn names(dir: &str, beginning: &str) -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let dir = match dir.strip_prefix("~/") {
        Some(below) => format!("{home}/{below}"),
        None => format!("./{dir}").replacen(".//", "/", 1),
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_meant = name.starts_with(beginning)
            && beginning.starts_with('.') == name.starts_with('.')
            && !name.contains(disguises);
        let end = if entry.path().is_dir() { "/" } else { "" };
        is_meant.then(|| name + end)
    });
    let mut names: Vec<String> = named.take(COMPLETIONS).collect();
    order::sort(&mut names);
    names
}

impl Hinter for Words<'_> {
    type Hint = String;

    /// There are no hints. The library asks for one before it waits for a key; a signal that came earlier does not end
    /// that wait.
    fn hint(&self, _: &str, _: usize, _: &Context<'_>) -> Option<String> {
        if !self.is_listened_to() {
            ignore(tcsetattr(io::stdin(), OptionalActions::Now, &self.modes));
            // Pasted text is no longer marked.
            ignore(io::stdout().write_all(b"\x1b[?2004l\r\n"));
            ignore(kill_process(getpid(), Signal::TERM));
        }
        None
    }
}

impl Highlighter for Words<'_> {}
impl Validator for Words<'_> {}
impl Helper for Words<'_> {}
