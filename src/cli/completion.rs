//! What could stand next on a command line, told from what `-h` prints: the help texts are the one
//! list of commands, options and values.
//!
//! Unaware of files. A new command or option is here as soon as it is in its help text.

mod help;
mod line;
mod shell;

use std::ffi::OsString;

/// The command of both programs that completion scripts call.
pub(crate) const COMMAND: &str = "complete";

/// A word that could stand next, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The word.
    pub word: String,
    /// In half a line; may be empty.
    pub about: String,
}

/// A program, as its help texts describe it.
#[derive(Debug)]
pub(crate) struct Program {
    /// The text that lists the commands, one a line.
    pub overview: &'static str,
    /// The text that lists the options before a command.
    pub options: &'static str,
    /// What stands behind a command; none if there is no such command.
    pub command: fn(&str) -> Option<Syntax>,
}

/// What stands behind a command.
#[derive(Debug)]
pub(crate) struct Syntax {
    /// The usage, from the command's name on.
    pub usage: &'static str,
    /// The text that lists its options.
    pub options: &'static str,
    /// Whether options end at the first word that is none.
    pub options_first: bool,
}

/// What could stand where the cursor is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// One of these words.
    Words(Vec<Choice>),
    /// A value.
    Value(Value),
    /// Part of another program's command line, which begins with this word; the words are counted
    /// from 0, without the name of the program.
    Command(usize),
}

/// A value that could stand where the cursor is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// What the help calls it: DIR, RUN.
    pub name: String,
    /// The option it belongs to, `--work-dir`; none for an operand.
    pub option: Option<String>,
    /// What stands before it in the same word: `--work-dir=`.
    pub stem: String,
    /// What of it has been typed.
    pub typed: String,
}

/// What a value can be: what the shell is to add (`files`, `dirs` or nothing), and words.
pub(crate) type Known = (&'static str, Vec<Choice>);

/// A command line as far as it has been typed.
#[derive(Debug)]
pub(crate) struct Line {
    /// The options that have a value, by their long names, and their values.
    pub given: Vec<(String, String)>,
    /// The operands behind the command.
    pub operands: Vec<String>,
    /// What could stand where the cursor is.
    pub place: Place,
}

impl Line {
    /// The value of an option, if it was given.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        let found = self.given.iter().rev().find(|(name, _)| name == option);
        found.map(|(_, value)| value.as_str())
    }
}

impl Choice {
    /// A word, and what it means.
    pub(crate) fn new(word: &str, about: &str) -> Self {
        Self {
            word: word.to_owned(),
            about: about.to_owned(),
        }
    }
}

/// What a completion script is told about the words that it hands over; `known` says what a value can
/// be.
pub(crate) fn told(
    program: &Program,
    raw: &[OsString],
    known: impl Fn(&Value, &Line) -> Known,
) -> String {
    let line = line::read(program, &shell::words(raw));
    match &line.place {
        Place::Words(words) => shell::lines("", words),
        Place::Command(at) => shell::lines(&format!("command {at}"), &[]),
        Place::Value(value) => {
            let (own, mut choices) = known(value, &line);
            for choice in &mut choices {
                choice.word.insert_str(0, &value.stem);
            }
            shell::lines(own, &choices)
        }
    }
}
