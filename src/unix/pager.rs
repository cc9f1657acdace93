//! Output longer than the screen, shown in the person's pager.
//!
//! Unaware of what is shown. Without a terminal everything goes to stdout as it comes.

use crate::error::{Result, ignore};
use crate::unix::terminal::{print_while_read, size};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The destination of a long text.
#[derive(Debug)]
pub(crate) enum Pager {
    /// To stdout as it comes.
    Straight,
    /// Held back as long as it fits on the screen.
    Held {
        /// The text written so far.
        text: String,
        /// The rows of the screen that it takes.
        rows: usize,
        /// Rows and columns.
        screen: (usize, usize),
    },
    /// To a program.
    Program(Child),
}

impl Pager {
    /// For stdout as it is.
    pub(crate) fn new() -> Self {
        match size() {
            Some(screen) => Self::Held {
                text: String::new(),
                rows: 0,
                screen,
            },
            None => Self::Straight,
        }
    }

    /// Shows a piece of the text. False if the reader is gone.
    pub(crate) fn show(&mut self, piece: &str) -> Result<bool> {
        match self {
            Self::Straight => print_while_read(piece.as_bytes()),
            Self::Program(child) => Ok(child
                .stdin
                .as_mut()
                .is_some_and(|stdin| stdin.write_all(piece.as_bytes()).is_ok())),
            Self::Held { text, rows, screen } => {
                text.push_str(piece);
                *rows += piece
                    .lines()
                    .map(|line| rows_of(line, screen.1))
                    .sum::<usize>();
                if *rows < screen.0 {
                    return Ok(true);
                }
                let text = std::mem::take(text);
                *self = start().map_or(Self::Straight, Self::Program);
                self.show(&text)
            }
        }
    }

    /// Shows what was held back, and waits until the person has seen enough.
    pub(crate) fn end(self) -> Result<()> {
        match self {
            Self::Straight => Ok(()),
            Self::Held { text, .. } => print_while_read(text.as_bytes()).map(|_| ()),
            Self::Program(mut child) => {
                drop(child.stdin.take());
                ignore(child.wait());
                Ok(())
            }
        }
    }
}

impl Default for Pager {
    fn default() -> Self {
        Self::new()
    }
}

/// The rows that a line takes; its colours take none.
fn rows_of(line: &str, columns: usize) -> usize {
    let mut width = 0;
    let mut in_colour = false;
    for c in line.chars() {
        match c {
            '\x1b' => in_colour = true,
            'm' if in_colour => in_colour = false,
            _ if in_colour => {}
            _ => width += 1,
        }
    }
    width.max(1usize).div_ceil(columns.max(1))
}

/// Starts `$PAGER`, which is a command line for a shell (POSIX, man(1)), or `less -R`.
fn start() -> Option<Child> {
    let wanted = std::env::var("PAGER").ok();
    let line = match wanted.as_deref().map(str::trim) {
        Some("" | "cat") => return None,
        Some(line) => line,
        None => "less -R",
    };
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "R");
    }
    let child = command.spawn().ok()?;
    // Ctrl-C is the pager's affair; a handler, unlike an ignored signal, is not inherited.
    ignore(signal_hook::flag::register(
        signal_hook::consts::SIGINT,
        Arc::new(AtomicBool::new(false)),
    ));
    Some(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_as_many_rows_as_its_letters_need() {
        assert_eq!(rows_of("", 10), 1);
        assert_eq!(rows_of("\x1b[36m0123456789\x1b[0m", 10), 1);
        assert_eq!(rows_of("0123456789a", 10), 2);
    }
}
