//! The line loop of a conversation: what a person says next, at a terminal or through a pipe.
//!
//! Unaware of who is talked to.

use crate::error::{Error, Result, ignore, reason};
use crate::unix::line_editor::{Completion, LineEditor};
use crate::unix::signals::{Signals, Stop};
use crate::unix::typed::{Reply, read_line};
use std::io::{self, IsTerminal, Write};

/// Begins and ends a message of several lines.
const QUOTES: &str = "\"\"\"";

/// The next input of the person.
pub(crate) enum Typed {
    Message(String),
    End,
    Stopped(Stop),
}

/// The person's standard input.
pub(crate) struct LineReader {
    /// A person types: there are prompts, and Ctrl-C only clears the line.
    pub is_typed: bool,
    editor: Option<LineEditor>,
}

impl LineReader {
    /// At a terminal, lines are edited; `history` can be recalled.
    pub(crate) fn new(completion: Completion, history: Vec<String>) -> Self {
        Self {
            is_typed: io::stdin().is_terminal() && io::stderr().is_terminal(),
            editor: LineEditor::begin(completion, history),
        }
    }

    /// Reads up to the end of a message. Empty lines are ignored.
    pub(crate) fn next_message(&mut self, signals: &Signals) -> Result<Typed> {
        let typed = self.read_message(signals)?;
        if let (Some(editor), Typed::Message(message)) = (&mut self.editor, &typed) {
            editor.remember(message);
        }
        Ok(typed)
    }

    fn read_message(&mut self, signals: &Signals) -> Result<Typed> {
        let mut block: Option<Vec<String>> = None;
        loop {
            let prompt = if block.is_some() { "… " } else { "> " };
            let read = match &mut self.editor {
                Some(editor) => editor.read_line(signals, prompt),
                None => {
                    self.print(prompt);
                    read_line(signals)
                }
            };
            let reply = read.map_err(|error| {
                Error::usage(format!("cannot read from stdin: {}", reason(&error)))
            })?;
            let line = match reply {
                Reply::Answer(line) => line,
                Reply::Stopped(Stop::Interrupt) if self.is_typed => {
                    signals.forget_interrupt();
                    block = None;
                    self.end_line();
                    continue;
                }
                Reply::Stopped(stop) => return Ok(Typed::Stopped(stop)),
                Reply::NobodyThere => {
                    self.end_line();
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
            // A line with the quotes alone adds no line to the message.
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

    /// An editor has ended its own.
    fn end_line(&self) {
        if self.editor.is_none() {
            self.print("\n");
        }
    }

    fn print(&self, text: &str) {
        if self.is_typed {
            ignore(io::stderr().write_all(text.as_bytes()));
        }
    }
}
