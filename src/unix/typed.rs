//! Input that a person types, read from stdin so that signals end the wait.
//!
//! Unaware of what is asked.

use super::signals::{Signals, Stop};
use crate::error::ignore;
use rustix::event::PollFlags;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcsetattr,
};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;

/// The outcome of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The line, without its newline.
    Answer(String),
    /// The input has ended.
    NobodyThere,
    /// A signal asks the engine to end.
    Stopped(Stop),
}

/// The terminal without some of its modes, until this is dropped. What had been typed before is discarded.
pub(crate) struct ModesOff(Termios);

impl ModesOff {
    pub(crate) fn begin(modes: LocalModes) -> Option<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).ok()?;
        let mut changed = before.clone();
        changed.local_modes.remove(modes);
        // Keys that would stop or kill us here would leave the terminal so.
        changed.special_codes[SpecialCodeIndex::VQUIT] = 0;
        changed.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&stdin, OptionalActions::Flush, &changed).ok()?;
        Some(Self(before))
    }
}

impl Drop for ModesOff {
    fn drop(&mut self) {
        ignore(tcsetattr(io::stdin(), OptionalActions::Now, &self.0));
    }
}

/// A long text that is pasted arrives in pieces, with pauses shorter than this.
const QUIET: Duration = Duration::from_millis(50);

/// Discards what has been typed at the terminal, until nothing more arrives. What comes through a pipe stays.
pub(crate) fn discard_typed(signals: &Signals) {
    let stdin = io::stdin();
    // With ICANON a line would be seen only once it is whole.
    let Some(_modes) = ModesOff::begin(LocalModes::ICANON | LocalModes::ECHO) else {
        return;
    };
    let more = || signals.wait(Some((stdin.as_fd(), PollFlags::IN)), Some(QUIET));
    while matches!(more(), Ok(true)) && tcflush(&stdin, QueueSelector::IFlush).is_ok() {}
}

/// Marks that some terminals put around a text that is pasted: bracketed paste mode.
const PASTE: [&str; 2] = ["\x1b[200~", "\x1b[201~"];

/// True if a pasted text goes on after this line, at whose beginning it did or did not.
fn is_in_paste(line: &[u8], was: bool) -> bool {
    let [begin, end] = PASTE.map(|mark| memchr::memmem::rfind(line, mark.as_bytes()));
    if begin == end { was } else { begin > end }
}

/// Reads one line, byte by byte: what follows it belongs to the next question. At a terminal, the lines of a text that
/// is pasted are one.
pub(crate) fn read_line(signals: &Signals) -> io::Result<Reply> {
    let stdin = io::stdin();
    let (mut line, mut begin, mut in_paste) = (Vec::new(), 0, false);
    let is_terminal = stdin.is_terminal();
    loop {
        let mut byte = [0];
        match (signals.read(&stdin, &mut byte)?, signals.stop()) {
            (None, Some(stop)) => return Ok(Reply::Stopped(stop)),
            (None, None) => continue,
            (Some(0), _) if line.is_empty() => return Ok(Reply::NobodyThere),
            (Some(1), _) => line.push(byte[0]),
            // Ctrl-D also ends a paste whose end got lost.
            (Some(_), _) => break,
        }
        if byte[0] == b'\n' {
            in_paste = is_terminal && is_in_paste(&line[begin..], in_paste);
            begin = line.len();
            if !in_paste {
                break;
            }
        }
    }
    let mut line = String::from_utf8_lossy(&line).into_owned();
    if line.ends_with('\n') {
        line.pop();
    }
    if line.ends_with('\r') {
        line.pop();
    }
    if is_terminal {
        line = PASTE.iter().fold(line, |line, mark| line.replace(mark, ""));
        line.truncate(line.trim_end_matches('\n').len());
    }
    Ok(Reply::Answer(line))
}
