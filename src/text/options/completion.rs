//! Candidates for the word at the cursor of an unfinished command line.
//!
//! Unaware of files: the program itself lists the values that are not words of the table.

use super::parse::operand_at;
use super::shell_words;
pub(crate) use super::shell_words::Candidate;
use super::table::{CommandTable, OptionRow, ProgramTable, ValueKind, ValueSpec};
use std::ffi::OsString;

/// The hidden command of each program that completion scripts call.
pub(crate) const COMMAND: &str = "complete";

/// The kinds of words that fit at the cursor.
#[derive(Debug)]
enum CursorPosition {
    Words(Vec<Candidate>),
    Value(TypedValue),
    /// Part of another program's command line, which begins with this word; the words are counted
    /// from 0, without the name of the program.
    Command(usize),
}

/// A value that the cursor is at the end of.
#[derive(Debug)]
pub(crate) struct TypedValue {
    pub value: ValueSpec,
    /// The option it belongs to, `--work-dir`; none for an operand.
    pub option: Option<&'static str>,
    /// The part of the word before it: `--work-dir=`.
    stem: String,
    pub typed: String,
}

/// The shell's own candidates to add (`files`, `dirs` or nothing), and words.
pub(crate) type Offer = (&'static str, Vec<Candidate>);

/// A command line as far as it has been typed.
#[derive(Debug)]
pub(crate) struct TypedLine {
    /// The name; empty before it is known.
    pub command: &'static str,
    options: Vec<(&'static str, String)>,
    /// The operands behind the command.
    pub operands: Vec<String>,
}

impl TypedLine {
    /// The value of an option, if it was given.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|(name, _)| *name == option);
        found.map(|(_, value)| value.as_str())
    }
}

/// The answer to a completion script that hands over the words of a line, the last one under the
/// cursor. `offer` lists the values that the table cannot.
pub(crate) fn complete_line(
    program: &ProgramTable,
    raw: &[OsString],
    home: Option<&str>,
    offer: impl Fn(&TypedValue, &TypedLine) -> Option<Offer>,
) -> String {
    let (line, position) = read_line(program, &shell_words::read(raw, home));
    match position {
        CursorPosition::Words(words) => shell_words::print("", &words),
        CursorPosition::Command(at) => shell_words::print(&format!("command {at}"), &[]),
        CursorPosition::Value(value) => {
            let offered = offer(&value, &line);
            let (own, mut choices) = offered.unwrap_or_else(|| offer_by_kind(&value));
            for choice in &mut choices {
                choice.word.insert_str(0, &value.stem);
            }
            shell_words::print(own, &choices)
        }
    }
}

fn offer_by_kind(value: &TypedValue) -> Offer {
    match value.value.kind {
        ValueKind::Words(words) => ("", Candidate::plain(words.iter().copied())),
        ValueKind::File => ("files", Vec::new()),
        ValueKind::Directory | ValueKind::Workspace => ("dirs", Vec::new()),
        // The path of a run's directory has a slash.
        ValueKind::Run if value.typed.contains('/') => ("dirs", Vec::new()),
        _ => ("", Vec::new()),
    }
}

/// Reads a line without the program's name. The last word, which may be empty, is the one that the
/// cursor is at the end of.
fn read_line(program: &ProgramTable, words: &[String]) -> (TypedLine, CursorPosition) {
    let (typed, cursor) = match words.split_last() {
        Some((cursor, typed)) => (typed, cursor.as_str()),
        None => (words, ""),
    };
    let mut reader = TypedReader {
        program,
        options: program.options.iter().collect(),
        command: None,
        expected: None,
        only_operands: false,
        is_lost: false,
        line: TypedLine {
            command: "",
            options: Vec::new(),
            operands: Vec::new(),
        },
    };
    for (at, word) in typed.iter().enumerate() {
        if reader.passes_into_command(word) {
            return (reader.line, CursorPosition::Command(at));
        }
    }
    let position = reader.position(cursor, typed.len());
    (reader.line, position)
}

struct TypedReader<'p> {
    program: &'p ProgramTable,
    options: Vec<&'static OptionRow>,
    command: Option<&'static CommandTable>,
    /// The option whose value is the next word.
    expected: Option<(&'static str, ValueSpec)>,
    only_operands: bool,
    /// The command is not one of the program's.
    is_lost: bool,
    line: TypedLine,
}

impl TypedReader<'_> {
    /// Takes a word that is complete; true if another program's command line begins with it.
    fn passes_into_command(&mut self, word: &str) -> bool {
        if let Some((option, _)) = self.expected.take() {
            self.line.options.push((option, word.to_owned()));
        } else if word == "--" {
            self.only_operands = true;
        } else if word.len() > 1 && word.starts_with('-') && !self.only_operands {
            self.take_option(word);
        } else if let Some(command) = self.command {
            if self
                .operand()
                .is_some_and(|it| it.kind == ValueKind::Command)
            {
                return true;
            }
            self.line.operands.push(word.to_owned());
            self.only_operands |= command.options_first;
        } else if let Some(command) = self.program.command(word) {
            self.options = command.rows().collect();
            self.command = Some(command);
            self.line.command = command.name;
        } else {
            self.is_lost = true;
        }
        false
    }

    fn option(&self, name: &str) -> Option<&'static OptionRow> {
        self.options.iter().copied().find(|row| row.has_name(name))
    }

    fn take_option(&mut self, word: &str) {
        if word.starts_with("--") {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let Some(row) = self.option(name) else { return };
            match (value, row.value) {
                (Some(value), _) => self.line.options.push((row.long, value.to_owned())),
                (None, Some(expected)) => self.expected = Some((row.long, expected)),
                (None, None) => {}
            }
            return;
        }
        for (at, letter) in word.char_indices().skip(1) {
            let Some(row) = self.option(&format!("-{letter}")) else {
                return;
            };
            let Some(expected) = row.value else { continue };
            let value = &word[at + letter.len_utf8()..];
            if value.is_empty() {
                self.expected = Some((row.long, expected));
            } else {
                self.line.options.push((row.long, value.to_owned()));
            }
            return;
        }
    }

    /// The next operand of the command.
    fn operand(&self) -> Option<ValueSpec> {
        let row = operand_at(self.command?, self.line.operands.len())?;
        Some(row.value)
    }

    fn position(&mut self, cursor: &str, at: usize) -> CursorPosition {
        if self.is_lost {
            return CursorPosition::Words(Vec::new());
        }
        if let Some((option, value)) = self.expected.take() {
            return value_position(value, Some(option), "", cursor);
        }
        if cursor.starts_with('-') && !self.only_operands {
            return self.option_position(cursor);
        }
        match (self.command, self.operand()) {
            (None, _) => {
                let commands = self.program.commands.iter();
                let choice = |command: &CommandTable| Candidate::new(command.name, command.about);
                CursorPosition::Words(commands.map(choice).collect())
            }
            (_, Some(value)) if value.kind == ValueKind::Command => CursorPosition::Command(at),
            (_, Some(value)) => value_position(value, None, "", cursor),
            (_, None) if self.only_operands => CursorPosition::Words(Vec::new()),
            (_, None) => self.option_position(""),
        }
    }

    /// The options, or the value behind `--name=`.
    fn option_position(&self, cursor: &str) -> CursorPosition {
        if let Some((name, typed)) = cursor.split_once('=') {
            let row = self.option(name);
            return match row.and_then(|row| Some((row.long, row.value?))) {
                Some((long, value)) => {
                    value_position(value, Some(long), &format!("{name}="), typed)
                }
                None => CursorPosition::Words(Vec::new()),
            };
        }
        let listed = self.options.iter().filter(|row| !row.about.is_empty());
        let names = listed.flat_map(|row| {
            let names = [row.short, row.long].into_iter();
            let given = names.filter(|name| !name.is_empty());
            given.map(|name| Candidate::new(name, row.about))
        });
        CursorPosition::Words(names.collect())
    }
}

fn value_position(
    value: ValueSpec,
    option: Option<&'static str>,
    stem: &str,
    typed: &str,
) -> CursorPosition {
    CursorPosition::Value(TypedValue {
        value,
        option,
        stem: stem.to_owned(),
        typed: typed.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::{FORMATS, HELP, command, flag, operand, valued};
    use super::*;

    const PROGRAM: ProgramTable = ProgramTable {
        name: "prog",
        commands: &[
            CommandTable {
                operands: &[
                    operand("", ValueKind::Words(&["sub"])),
                    operand("FILE", ValueKind::File),
                    operand("RUN", ValueKind::Run).optional().repeatable(),
                ],
                options: &[&[
                    valued(
                        "-w",
                        "--work-dir",
                        "DIR",
                        ValueKind::Workspace,
                        "the workspace",
                    ),
                    valued("", "--format", "", FORMATS, "the form"),
                    flag("-q", "--quiet", "be quiet"),
                    flag("", "--unlisted", ""),
                ]],
                ..command("look", "look at it")
            },
            CommandTable {
                operands: &[
                    operand("COMMAND", ValueKind::Command),
                    operand("ARGUMENT", ValueKind::Bytes)
                        .optional()
                        .repeatable(),
                ],
                options: &[&[
                    valued(
                        "-w",
                        "--work-dir",
                        "DIR",
                        ValueKind::Directory,
                        "a directory",
                    ),
                    flag("-q", "--quiet", "be quiet"),
                ]],
                ..command("wrap", "wrap a command")
            },
            CommandTable {
                operands: &[operand("PAGE", ValueKind::Other).optional()],
                ..command("page", "print a page")
            },
        ],
        hidden: &[],
        options: &[HELP],
    };

    fn at(line: &str) -> (TypedLine, CursorPosition) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        read_line(&PROGRAM, &words)
    }

    /// The text that a completion script gets, for a program that lists nothing.
    fn offered(line: &str) -> String {
        let raw: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let said = complete_line(&PROGRAM, &raw, None, |_, _| None);
        let words = said.lines().map(|line| line.split('\t').next().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    fn value_name(line: &str) -> &'static str {
        match at(line).1 {
            CursorPosition::Value(value) => value.value.name,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn commands_options_and_words_come_from_the_table() {
        for (line, expected) in [
            ("lo", " look wrap page"),
            ("-", " -h --help"),
            ("look -", " -w --work-dir --format -q --quiet -h --help"),
            ("look --format ", " text json"),
            ("look --format=j", " --format=text --format=json"),
            ("look --none=", ""),
            ("look -- ", " sub"),
            ("look sub ", "files"),
            ("look sub f ws/", "dirs"),
            ("look -w ", "dirs"),
            ("page x ", " -h --help"),
            ("none ", ""),
        ] {
            assert_eq!(offered(line), expected, "{line:?}");
        }
    }

    #[test]
    fn values_and_operands_are_found_in_every_form() {
        assert_eq!(value_name("look -w "), "DIR");
        assert_eq!(value_name("look -qw "), "DIR");
        assert_eq!(value_name("look --work-dir=x"), "DIR");
        assert_eq!(value_name("look sub "), "FILE");
        assert_eq!(value_name("look -w x sub f "), "RUN");
        assert_eq!(value_name("look -wx -q sub f r1 r2 "), "RUN");
        assert_eq!(value_name("page "), "PAGE");
        for line in [
            "look -w x ",
            "look -wx ",
            "look --work-dir=x ",
            "look --work-dir x ",
        ] {
            assert_eq!(at(line).0.value("--work-dir"), Some("x"), "{line}");
        }
        assert_eq!(at("look sub f r").0.operands, ["sub", "f"]);
    }

    #[test]
    fn another_command_line_begins_where_the_table_says() {
        for (line, word) in [("wrap ", 1), ("wrap -q -- ", 3), ("wrap -w x make -j ", 3)] {
            assert_eq!(offered(line), format!("command {word}"), "{line}");
        }
    }
}
