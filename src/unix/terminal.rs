//! Output for people: progress and messages on stderr, the result on stdout.
//!
//! Unaware of what the texts mean. A reader that has gone away is no error.

use crate::error::{Error, Result, ignore};
use crate::text::disguise::{indented, printable, printable_after, printable_json};
use crate::text::json;
use crate::text::markdown::{Role, parts_of};
use crate::text::table::Table;
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The amount of output, and its use of colour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Screen {
    /// Only results and errors.
    pub quiet: bool,
    /// The words of the model and the tools, too.
    pub verbose: bool,
    colour: bool,
}

/// The kind of a piece of text, for its colour.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// Frame and figures.
    Dim,
    /// The model's words.
    Said,
    /// A command.
    Command,
    Good,
    Bad,
    /// A line that is taken out.
    Removed,
}

impl Screen {
    /// For stderr as it is: colour only on a terminal and without `NO_COLOR`.
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        Self {
            quiet,
            verbose,
            colour: io::stderr().is_terminal() && colour_wanted(),
        }
    }

    /// A line of progress. Nothing that others said in it, on further lines, looks like one.
    pub(crate) fn progress(self, pieces: &[(Tone, &str)]) {
        if !self.quiet {
            self.line(pieces);
        }
    }

    /// A warning, printed also when quiet.
    pub(crate) fn warn(self, text: &str) {
        self.warn_as("delta", text);
    }

    /// A warning of a program of this name, printed also when quiet.
    pub(crate) fn warn_as(self, program: &str, text: &str) {
        self.line(&[(Tone::Bad, &format!("{program}: {text}"))]);
    }

    /// A line as it looks here, without its end.
    pub(crate) fn painted(self, pieces: &[(Tone, &str)]) -> String {
        painted(self.colour, pieces)
    }

    fn line(self, pieces: &[(Tone, &str)]) {
        begin_line();
        let out = indented(&painted(self.colour, pieces)) + "\n";
        ignore(io::stderr().write_all(out.as_bytes()));
    }
}

/// True while the cursor is after a line that will be redrawn.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// True while the cursor is after a text whose line has no end yet.
static HAS_OPEN_TEXT: AtomicBool = AtomicBool::new(false);

/// The last character of the text whose line has no end yet.
static LAST_CHARACTER: AtomicU32 = AtomicU32::new(0);

/// Writes a line in the place of the last one that was drawn so; other output erases it first. Does nothing while the
/// cursor is after a text.
pub(crate) fn redraw_line(text: &str) {
    if HAS_OPEN_TEXT.load(Ordering::Relaxed) {
        return;
    }
    IS_DRAWN.store(true, Ordering::Relaxed);
    ignore(io::stderr().write_all(format!("\r{text}\x1b[K").as_bytes()));
}

/// Erases the line that was drawn last, if it is still there.
pub(crate) fn erase_line() {
    if IS_DRAWN.swap(false, Ordering::Relaxed) {
        ignore(io::stderr().write_all(b"\r\x1b[K"));
    }
}

/// Writes a piece of an answer that is arriving to the terminal: as a result if stdout is one, else as progress. Other
/// output begins on a line of its own.
pub(crate) fn print_piece(parts: &[(Role, String)]) {
    let last = parts.last().and_then(|(_, text)| text.chars().next_back());
    let Some(last) = last else {
        return;
    };
    erase_line();
    HAS_OPEN_TEXT.store(last != '\n', Ordering::Relaxed);
    let before = LAST_CHARACTER.swap(last.into(), Ordering::Relaxed);
    write_piece(&styled(char::from_u32(before).unwrap_or('\n'), parts));
}

/// Writes lines to stderr, as they are, below what it shows.
pub(crate) fn print_below(lines: &str) {
    begin_line();
    ignore(io::stderr().write_all(format!("{lines}\n").as_bytes()));
}

/// An answer as a terminal shows it: each part in the style of its role, and nothing in it controls the terminal.
pub(crate) fn styled_answer(text: &str) -> String {
    styled('\n', &parts_of(text))
}

/// Parts in the style of their roles; a character comes before them.
fn styled(mut before: char, parts: &[(Role, String)]) -> String {
    let has_style = colour_wanted();
    let mut out = String::new();
    for (role, text) in parts {
        let shown = printable_after(before, text);
        before = text.chars().next_back().unwrap_or(before);
        let code = match role {
            Role::Heading | Role::Strong => "1",
            Role::Code => "36",
            Role::Rule => "2",
            Role::Text => "",
        };
        if has_style && !code.is_empty() {
            out.push_str(&format!("\x1b[{code}m{shown}\x1b[0m"));
        } else {
            out.push_str(&shown);
        }
    }
    out
}

/// Ends the line of a text that arrived, if it has no end yet.
pub(crate) fn end_text() {
    if HAS_OPEN_TEXT.swap(false, Ordering::Relaxed) {
        write_piece("\n");
    }
}

fn write_piece(text: &str) {
    let mut stdout = io::stdout().lock();
    ignore(match stdout.is_terminal() {
        true => stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
        false => io::stderr().write_all(text.as_bytes()),
    });
}

/// Leaves the cursor at the beginning of an empty line.
fn begin_line() {
    erase_line();
    end_text();
}

/// True if progress goes to a terminal.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// True unless the person wants no colours (<https://no-color.org>), or the terminal has none.
fn colour_wanted() -> bool {
    let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    is_wanted && terminal_kind().is_some()
}

/// True if output to stdout may be coloured.
pub(crate) fn stdout_has_colour() -> bool {
    io::stdout().is_terminal() && colour_wanted()
}

/// Pieces of text one after another, without control characters of their own.
pub(crate) fn painted(colour: bool, pieces: &[(Tone, &str)]) -> String {
    let mut out = String::new();
    for (tone, text) in pieces {
        let code = match tone {
            Tone::Dim => "2",
            Tone::Said => "0",
            Tone::Command => "36",
            Tone::Good => "32",
            Tone::Bad => "33",
            Tone::Removed => "31",
        };
        let text = printable(text);
        if colour && !text.is_empty() {
            out.push_str(&format!("\x1b[{code}m{text}\x1b[0m"));
        } else {
            out.push_str(&text);
        }
    }
    out
}

/// A table for stdout, fit for the terminal if it is one. `tone` is that of a row below the head, from 0, and a column.
pub(crate) fn painted_table(table: &Table, tone: impl Fn(usize, usize) -> Tone) -> String {
    let colour = stdout_has_colour();
    let rows = table.cells(columns()).into_iter().enumerate();
    let line = |(at, cells): (usize, Vec<String>)| {
        let tone_of = |column| at.checked_sub(1).map_or(Tone::Dim, |row| tone(row, column));
        let pieces: Vec<_> = cells
            .iter()
            .enumerate()
            .map(|(at, cell)| (tone_of(at), &**cell))
            .collect();
        format!("{}\n", painted(colour, &pieces).trim_end())
    };
    rows.map(line).collect()
}

/// Rows and columns of stdout, if it is a terminal.
pub(crate) fn size() -> Option<(usize, usize)> {
    let stdout = io::stdout();
    stdout.is_terminal().then(|| size_of(&stdout)).flatten()
}

/// Columns of stdout, if it is a terminal.
pub(crate) fn columns() -> Option<usize> {
    size().map(|(_, columns)| columns)
}

/// Rows and columns of the terminal that stderr is.
pub(crate) fn stderr_size() -> (usize, usize) {
    size_of(io::stderr()).unwrap_or(USUAL_SIZE)
}

/// The size of a terminal that does not report one.
const USUAL_SIZE: (usize, usize) = (24, 80);

fn size_of(terminal: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    let known = |value: u16, usual: usize| if value == 0 { usual } else { value.into() };
    Some((
        known(size.ws_row, USUAL_SIZE.0),
        known(size.ws_col, USUAL_SIZE.1),
    ))
}

/// True if stderr is a terminal on which lines can be overwritten.
pub(crate) fn can_redraw() -> bool {
    io::stderr().is_terminal() && terminal_kind().is_some()
}

/// The kind of the terminal, if it can do more than print characters.
fn terminal_kind() -> Option<OsString> {
    let kind = std::env::var_os("TERM")?;
    (!kind.is_empty() && kind != "dumb").then_some(kind)
}

/// True if this process may overwrite lines on stderr's terminal: it is not in the background.
pub(crate) fn is_in_foreground() -> bool {
    let group = rustix::termios::tcgetpgrp(io::stderr());
    // A terminal that does not control this process has no such group.
    group.map_or(true, |group| group == rustix::process::getpgrp())
}

/// True if a person sees what this process prints and can answer: all three streams are terminals, and it is not in the
/// background.
pub(crate) fn has_person() -> bool {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    is_terminal && io::stderr().is_terminal() && is_in_foreground()
}

/// An error as it is printed: each line of it after the program's name.
pub(crate) fn print_error(program: &str, error: &Error) {
    let mut out = String::new();
    for (index, line) in printable(&error.message).lines().enumerate() {
        // A text to paste, below the first line, stays free of marks.
        if index == 0 || line.starts_with("warning: ") {
            out.push_str(&format!("{program}: {line}\n"));
        } else {
            out.push_str(&format!("{line}\n"));
        }
    }
    begin_line();
    ignore(io::stderr().write_all(out.as_bytes()));
}

/// Prints a warning on stderr.
pub(crate) fn warn(text: &str) {
    Screen::new(false, false).warn(text);
}

/// Writes to stdout. A pipe whose reader has gone is a quiet success.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<()> {
    print_while_read(text.as_ref()).map(drop)
}

/// Prints a value as a line of JSON on stdout.
pub(crate) fn print_value(value: &serde_json::Value) -> Result<()> {
    print_json(format!("{}\n", json::text(value)))
}

/// Prints JSON on stdout, without characters that control a terminal or disguise the text.
pub(crate) fn print_json(json: impl AsRef<[u8]>) -> Result<()> {
    print_json_while_read(json.as_ref()).map(drop)
}

/// Prints JSON likewise. False if the reader is gone.
pub(crate) fn print_json_while_read(bytes: &[u8]) -> Result<bool> {
    let text = str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::from);
    print_while_read(printable_json(&text).as_bytes())
}

/// Writes to stdout. False if the reader is gone.
pub(crate) fn print_while_read(bytes: &[u8]) -> Result<bool> {
    begin_line();
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => {
            // However full the disk of a result is: the run's own is another matter.
            let reason = crate::error::reason(&e);
            Err(Error::failure(format!("cannot write to stdout: {reason}")))
        }
        Ok(()) => Ok(true),
    }
}
