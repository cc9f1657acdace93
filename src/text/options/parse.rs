//! Parses the words of a command line to plain data, according to its table.

use super::format::{OutputFormat, TableFormat};
use super::table::{
    CommandTable, HELP, OperandRow, OptionRow, ProgramTable, VERSION, ValueKind, ValueSpec,
};
use super::values::{check_value, check_word, lossy, unknown_word};
use crate::IS_CHECKED;
use crate::error::{Error, Result};
use crate::text::manual::page_for;
use crate::text::options::short_help::usage_line;
use crate::text::order::sort_by;
use crate::text::suggestion::nearest;
use lexopt::{Arg, Parser};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A command line that has been understood.
#[derive(Debug)]
pub(crate) enum CommandLine {
    Version,
    /// `-h`, or `--help` for the manual page.
    Help {
        /// None: the program as a whole.
        command: Option<&'static CommandTable>,
        full: bool,
    },
    Command(ParsedCommand),
    /// A command that reads its words itself.
    Raw(&'static str, Vec<OsString>),
}

/// The options and operands of a command. Each value is of the kind that the table names.
#[derive(Debug)]
pub(crate) struct ParsedCommand {
    pub command: &'static CommandTable,
    options: Vec<(&'static str, OsString)>,
    pub operands: Vec<OsString>,
    /// The number of options before each operand.
    places: Vec<usize>,
    /// The number of operands before `--`.
    before_dashes: usize,
}

/// An option with its value, or an operand by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'g> {
    Option(&'static str, &'g OsStr),
    Operand(usize),
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse_line(
    program: &ProgramTable,
    words: impl IntoIterator<Item = OsString>,
) -> Result<CommandLine> {
    let mut reader = WordReader {
        parser: Parser::from_args(words),
        options: Vec::new(),
        has_dashes: false,
    };
    let known: Vec<&OptionRow> = program.options.iter().collect();
    let name = match reader.next(&known)? {
        NextWord::Operand(name) => name.to_string_lossy().into_owned(),
        NextWord::Asked(option) => return Ok(asked(&option, None)),
        NextWord::End => {
            let names = command_names(program).join(", ");
            return Err(Error::usage(format!(
                "no command given; the commands are {names}"
            )));
        }
    };
    if let Some(hidden) = program.hidden.iter().find(|hidden| **hidden == name) {
        return Ok(CommandLine::Raw(hidden, reader.rest()?));
    }
    let Some(command) = program.command(&name) else {
        return Err(unknown_command(program, &name));
    };
    if command.is_raw {
        return Ok(CommandLine::Raw(command.name, reader.rest()?));
    }
    reader.command_line(program, command)
}

fn command_names(program: &ProgramTable) -> Vec<&'static str> {
    program.commands.iter().map(|it| it.name).collect()
}

/// The error for a first word that is no command. A sentence, or an agent's name, was meant for the command
/// that takes them.
fn unknown_command(program: &ProgramTable, name: &str) -> Error {
    let is_task = |row: &OperandRow| row.is_repeatable && row.value.kind == ValueKind::Text;
    let runs = |command: &&CommandTable| command.operands.last().is_some_and(is_task);
    let listed = unknown_word("unknown command", name, &command_names(program));
    let is_misspelt = nearest(name, command_names(program)).is_some();
    let Some(command) = program.commands.iter().find(runs) else {
        return listed;
    };
    let unknown = format!("unknown command '{}'", name.escape_debug());
    let message = if name.starts_with('@') || name.contains(char::is_whitespace) {
        unknown
    } else if is_misspelt {
        return listed;
    } else if let Some(hint) = everyday_word(program, name) {
        format!("{unknown}; {hint}")
    } else {
        listed.message
    };
    let (program, run) = (program.name, command.name);
    Error::usage(format!("{message}; a task is given to `{program} {run}`"))
}

/// The way out for a word that the index of the manual has: the command that does it, or where to read.
fn everyday_word(program: &ProgramTable, word: &str) -> Option<String> {
    let help = program.command("help")?.name;
    let (page, is_whole) = page_for(word)?;
    let does_it = program
        .command(page.name)
        .filter(|_| is_whole && page.section == 1);
    let (program, word) = (program.name, word.escape_debug());
    Some(match does_it {
        Some(command) => format!(
            "did you mean `{program} {}`? See also `{program} {help} {word}`",
            command.name
        ),
        None => format!("see `{program} {help} {word}`"),
    })
}

fn asked(option: &OptionRow, command: Option<&'static CommandTable>) -> CommandLine {
    match option.long {
        "--version" => CommandLine::Version,
        name => CommandLine::Help {
            command,
            full: name == "--help",
        },
    }
}

struct WordReader {
    parser: Parser,
    options: Vec<(&'static str, OsString)>,
    /// `--` has been read: what follows are operands.
    has_dashes: bool,
}

enum NextWord {
    Operand(OsString),
    /// One of the two options that replace what the command does.
    Asked(OptionRow),
    End,
}

impl WordReader {
    /// Reads options up to the next operand.
    fn next(&mut self, known: &[&'static OptionRow]) -> Result<NextWord> {
        loop {
            let ahead = self.parser.try_raw_args();
            self.has_dashes |=
                ahead.is_some_and(|words| words.peek().is_some_and(|word| word == "--"));
            let name = match self.parser.next().map_err(|error| misuse(&error))? {
                None => return Ok(NextWord::End),
                Some(Arg::Value(word)) => return Ok(NextWord::Operand(word)),
                Some(Arg::Short(letter)) => format!("-{letter}"),
                Some(Arg::Long(name)) => format!("--{name}"),
            };
            let Some(row) = known.iter().find(|row| row.has_name(&name)) else {
                return Err(unknown_option(&name, known));
            };
            if row.long == HELP.long || row.long == VERSION.long {
                let is_short = name.len() == 2 && row.long == HELP.long;
                let long = if is_short { HELP.short } else { row.long };
                return Ok(NextWord::Asked(OptionRow { long, ..**row }));
            }
            let value = match &row.value {
                None => OsString::new(),
                Some(ValueSpec {
                    kind: ValueKind::Renamed(successor),
                    ..
                }) => {
                    return Err(Error::usage(format!("{name} is called {successor} now")));
                }
                Some(value) => {
                    let given = self.parser.value().map_err(|error| misuse(&error))?;
                    check_value(value.kind, given, row.long)?
                }
            };
            self.options.push((row.long, value));
        }
    }

    fn rest(&mut self) -> Result<Vec<OsString>> {
        let words = self.parser.raw_args().map_err(|error| misuse(&error))?;
        Ok(words.collect())
    }

    /// Parses the words after the name of a command.
    fn command_line(
        mut self,
        program: &ProgramTable,
        command: &'static CommandTable,
    ) -> Result<CommandLine> {
        let run_operand = command.run_operand();
        let known: Vec<&OptionRow> = command.rows().chain(run_operand).collect();
        let mut operands: Vec<OsString> = Vec::new();
        let (mut places, mut before_dashes) = (Vec::new(), 0);
        loop {
            let word = match self.next(&known)? {
                NextWord::End => break,
                NextWord::Asked(option) => return Ok(asked(&option, Some(command))),
                NextWord::Operand(word) => word,
            };
            let is_command = operand_at(command, operands.len())
                .is_some_and(|row| row.value.kind == ValueKind::Command);
            push_operand(command, &mut operands, word)?;
            places.push(self.options.len());
            before_dashes += usize::from(!self.has_dashes);
            if is_command || command.options_first {
                for word in self.rest()? {
                    push_operand(command, &mut operands, word)?;
                }
                break;
            }
        }
        let mut given = ParsedCommand {
            command,
            options: self.options,
            operands,
            places,
            before_dashes,
        };
        if let Some(row) = run_operand {
            given.move_to_operands(row.long)?;
        }
        given.check_complete(program)?;
        Ok(CommandLine::Command(given))
    }
}

/// The row of the operand with this number, from 0.
pub(super) fn operand_at(command: &CommandTable, at: usize) -> Option<&'static OperandRow> {
    let last = command.operands.last().filter(|row| row.is_repeatable);
    command.operands.get(at).or(last)
}

fn push_operand(
    command: &CommandTable,
    operands: &mut Vec<OsString>,
    word: OsString,
) -> Result<()> {
    let Some(row) = operand_at(command, operands.len()) else {
        let place = match (command.options_first, command.operands.first()) {
            (true, Some(first)) => {
                format!("options go before {}, and text in quotes", first.value.name)
            }
            _ => format!("see {} -h", command.name),
        };
        return Err(Error::usage(format!(
            "{}: unexpected argument '{}'; {place}",
            command.name,
            word.to_string_lossy().escape_debug()
        )));
    };
    let value = match row.value.kind {
        ValueKind::Words(words) => {
            check_word(words, &word, &format!("{}: unknown word", command.name))?
        }
        ValueKind::Text | ValueKind::Pair | ValueKind::Run | ValueKind::Other
            if word.to_str().is_none() =>
        {
            return Err(Error::usage(format!(
                "{}: the argument '{}' is not UTF-8",
                command.name,
                word.as_bytes().escape_ascii()
            )));
        }
        kind => check_value(kind, word, row.value.name)?,
    };
    operands.push(value);
    Ok(())
}

impl ParsedCommand {
    /// Makes the values of an option the first operands.
    fn move_to_operands(&mut self, long: &str) -> Result<()> {
        let is_moved = |(name, _): &mut (&str, OsString)| *name == long;
        let moved = self.options.extract_if(.., is_moved);
        let mut words: Vec<OsString> = moved.map(|(_, value)| value).collect();
        self.before_dashes += words.len();
        words.append(&mut self.operands);
        for word in words {
            push_operand(self.command, &mut self.operands, word)?;
        }
        Ok(())
    }

    fn check_complete(&self, program: &ProgramTable) -> Result<()> {
        let missing_option = self
            .command
            .rows()
            .find(|row| row.is_required && !self.has(row.long))
            .map(OptionRow::usage);
        let missing_operand = self
            .command
            .operands
            .get(self.operands.len())
            .filter(|row| row.is_required);
        let missing = missing_operand
            .map(|row| row.value.display_name())
            .or(missing_option);
        match missing {
            None => Ok(()),
            Some(missing) => Err(Error::usage(format!(
                "{} needs {missing}: {}",
                self.command.name,
                usage_line(program, self.command)
            ))),
        }
    }

    /// These options and the operands, in the order in which they were given; an operand by its number.
    pub(crate) fn in_order(&self, longs: &[&str]) -> Vec<Given<'_>> {
        let operands = self
            .places
            .iter()
            .enumerate()
            .map(|(at, place)| (2 * place, Given::Operand(at)));
        let options = self
            .options
            .iter()
            .enumerate()
            .filter(|(_, (name, _))| longs.contains(name))
            .map(|(at, (name, value))| (2 * at + 1, Given::Option(name, value)));
        let mut all: Vec<_> = operands.chain(options).collect();
        sort_by(&mut all, |(a, _), (b, _)| a.cmp(b));
        all.into_iter().map(|(_, given)| given).collect()
    }

    /// The first operand, unless it follows `--`.
    pub(crate) fn first_before_dashes(&self) -> Option<&OsStr> {
        let first = self.operands.first().filter(|_| self.before_dashes > 0);
        first.map(OsString::as_os_str)
    }

    /// The long names of the options that were given.
    pub(crate) fn given_options(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|(name, _)| *name)
    }

    /// The number of operands before `--`.
    pub(crate) fn count_before_dashes(&self) -> usize {
        self.before_dashes
    }

    /// True if an option was given.
    pub(crate) fn has(&self, long: &str) -> bool {
        self.value(long).is_some()
    }

    /// The value that was given last.
    pub(crate) fn value(&self, long: &str) -> Option<&OsStr> {
        self.values(long).last()
    }

    fn values(&self, long: &str) -> impl Iterator<Item = &OsStr> {
        let is_in_table = || self.command.rows().any(|row| row.long == long);
        assert!(
            !IS_CHECKED || is_in_table(),
            "{} has no {long}",
            self.command.name
        );
        let given = self.options.iter().filter(move |(name, _)| *name == long);
        given.map(|(_, value)| value.as_os_str())
    }

    pub(crate) fn path(&self, long: &str) -> Option<PathBuf> {
        self.value(long).map(PathBuf::from)
    }

    pub(crate) fn paths(&self, long: &str) -> Vec<PathBuf> {
        self.values(long).map(PathBuf::from).collect()
    }

    /// The workspace of commands that work in the current directory without `-w`.
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.path("--work-dir").unwrap_or_else(|| ".".into())
    }

    pub(crate) fn text(&self, long: &str) -> Option<String> {
        self.value(long).map(lossy)
    }

    /// The meaning of the word that was given last, or the default.
    pub(crate) fn choice<T: Default>(&self, long: &str, parse: fn(&str) -> Option<T>) -> T {
        let word = self.value(long).and_then(OsStr::to_str);
        word.and_then(parse).unwrap_or_default()
    }

    pub(crate) fn format(&self) -> OutputFormat {
        OutputFormat::of_word(self.text("--format").as_deref())
    }

    pub(crate) fn table_format(&self) -> TableFormat {
        TableFormat::of_word(self.text("--format").as_deref())
    }

    pub(crate) fn texts(&self, long: &str) -> Vec<String> {
        self.values(long).map(lossy).collect()
    }

    /// The values of a repeatable KEY=VALUE.
    pub(crate) fn pairs(&self, long: &str) -> Vec<(String, String)> {
        let texts = self.texts(long).into_iter();
        let pair = |text: String| {
            let (key, value) = text.split_once('=').unwrap_or((&text, ""));
            (key.to_owned(), value.to_owned())
        };
        texts.map(pair).collect()
    }

    pub(crate) fn number<N: TryFrom<u64>>(&self, long: &str) -> Option<N> {
        let text = self.text(long)?;
        text.parse()
            .ok()
            .and_then(|number: u64| number.try_into().ok())
    }

    pub(crate) fn operand_text(&self, at: usize) -> Option<String> {
        self.operands.get(at).map(|word| lossy(word))
    }

    /// An operand that the command must have.
    pub(crate) fn required_text(&self, at: usize) -> String {
        self.operand_text(at).unwrap_or_default()
    }

    pub(crate) fn operand_texts(&self) -> Vec<String> {
        self.operands.iter().map(|word| lossy(word)).collect()
    }

    /// An operand that is a directory; without it the current one.
    pub(crate) fn operand_dir(&self, at: usize) -> PathBuf {
        let word = self.operands.get(at);
        word.map_or_else(|| ".".into(), PathBuf::from)
    }
}

/// The library's message, in the form of ours.
fn misuse(error: &lexopt::Error) -> Error {
    Error::usage(error.to_string())
}

fn unknown_option(name: &str, known: &[&OptionRow]) -> Error {
    let listed = known.iter().filter(|row| !row.about.is_empty());
    let longs = listed.map(|row| row.long.trim_start_matches('-'));
    let near = if name.starts_with("--") {
        nearest(name.trim_start_matches('-'), longs)
    } else {
        None
    };
    let hint = near.map_or_else(
        || "; see -h".to_owned(),
        |near| format!("; did you mean --{near}?"),
    );
    Error::usage(format!("unknown option {}{hint}", name.escape_debug()))
}
