//! The line loop of a conversation: what a person says next, at a terminal or through a pipe.
//!
//! Unaware of who is talked to.

use super::question::{Reply, read_line};
use crate::error::{Error, Result, may_fail, reason};
use crate::unix::signals::{Signals, Stop};
use std::io::{self, Write};

/// Begins and ends a message of several lines.
const QUOTES: &str = "\"\"\"";

/// What comes from the person next.
pub(crate) enum Typed {
    Message(String),
    End,
    Stopped(Stop),
}

/// The person's standard input.
#[derive(Clone, Copy)]
pub(crate) struct LineReader<'s> {
    pub signals: &'s Signals,
    /// A person types: there are prompts, and Ctrl-C only clears the line.
    pub is_typed: bool,
}

impl LineReader<'_> {
    /// Reads up to the end of a message. An empty line is none.
    pub(crate) fn next_message(self) -> Result<Typed> {
        let mut block: Option<Vec<String>> = None;
        loop {
            self.prompt(if block.is_some() { "… " } else { "> " });
            let reply = read_line(self.signals).map_err(|error| {
                Error::usage(format!("cannot read from stdin: {}", reason(&error)))
            })?;
            let line = match reply {
                Reply::Answer(line) => line,
                Reply::Stopped(Stop::Interrupt) if self.is_typed => {
                    self.signals.forget_interrupt();
                    block = None;
                    self.prompt("\n");
                    continue;
                }
                Reply::Stopped(stop) => return Ok(Typed::Stopped(stop)),
                Reply::NobodyThere => {
                    self.prompt("\n");
                    // What has been begun is said, as the last line without an end is.
                    return Ok(match block.map(|lines| lines.join("\n")) {
                        Some(text) if !text.trim().is_empty() => Typed::Message(text),
                        _ => Typed::End,
                    });
                }
            };
            let (text, begins) = match (&block, line.trim_start().strip_prefix(QUOTES)) {
                (None, Some(rest)) => (rest, true),
                _ => (line.as_str(), false),
            };
            if block.is_none() && !begins {
                if text.trim().is_empty() {
                    continue;
                }
                return Ok(Typed::Message(line));
            }
            let lines = block.get_or_insert_default();
            let ending = text.trim_end().strip_suffix(QUOTES);
            let text = ending.unwrap_or(text);
            // Nothing stands beside the quotes.
            if !(text.trim().is_empty() && (begins || ending.is_some())) {
                lines.push(text.to_owned());
            }
            if ending.is_some() {
                let message = block.take().unwrap_or_default().join("\n");
                if !message.trim().is_empty() {
                    return Ok(Typed::Message(message));
                }
            }
        }
    }

    fn prompt(self, text: &str) {
        if self.is_typed {
            may_fail(io::stderr().write_all(text.as_bytes()));
        }
    }
}
