//! What could stand next on a command line, told from what `-h` prints: the help texts are the one
//! list of commands, options and values.
//!
//! Unaware of shells and of files. A new command or option is here as soon as it is in its help text.

use std::ffi::OsString;

/// The command of both programs that completion scripts call.
pub const COMMAND: &str = "complete";

/// A word that could stand next, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The word.
    pub word: String,
    /// In half a line; may be empty.
    pub about: String,
}

/// A program, as its help texts describe it.
#[derive(Debug)]
pub struct Program {
    /// The text that lists the commands, one a line.
    pub overview: &'static str,
    /// The text that lists the options before a command.
    pub options: &'static str,
    /// What stands behind a command; none if there is no such command.
    pub command: fn(&str) -> Option<Syntax>,
}

/// What stands behind a command.
#[derive(Debug)]
pub struct Syntax {
    /// The usage, from the command's name on.
    pub usage: &'static str,
    /// The text that lists its options.
    pub options: &'static str,
    /// Whether options end at the first word that is none.
    pub options_first: bool,
}

/// What could stand where the cursor is.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// One of these words.
    Words(Vec<Choice>),
    /// A value.
    Value {
        /// What the help calls it: DIR, RUN, `text|json`.
        name: String,
        /// The option it belongs to, `--work-dir`; none for an operand.
        option: Option<String>,
        /// What stands before it in the same word: `--work-dir=`.
        stem: String,
    },
    /// Part of another program's command line, which begins with this word; the words are counted
    /// from 0, without the name of the program.
    Command(usize),
}

/// A command line as far as it has been typed.
#[derive(Debug)]
pub struct Line {
    /// The options that have a value, by their long names, and their values.
    pub given: Vec<(String, String)>,
    /// What could stand where the cursor is.
    pub place: Place,
}

impl Line {
    /// The value of an option, if it was given.
    #[must_use]
    pub fn value(&self, option: &str) -> Option<&str> {
        let found = self.given.iter().rev().find(|(name, _)| name == option);
        found.map(|(_, value)| value.as_str())
    }
}

/// An option as the help has it.
#[derive(Debug)]
struct Opt<'h> {
    short: Option<&'h str>,
    long: Option<&'h str>,
    value: Option<&'h str>,
    about: &'h str,
}

impl Opt<'_> {
    fn has(&self, name: &str) -> bool {
        self.short == Some(name) || self.long == Some(name)
    }

    fn name(&self) -> String {
        self.long.or(self.short).unwrap_or_default().to_owned()
    }
}

/// The options of a help text: of `  -w, --work-dir DIR  work in DIR` both names, the value, the rest.
fn options(help: &str) -> Vec<Opt<'_>> {
    let lines = help.lines().map(str::trim_start);
    lines
        .filter(|line| line.starts_with('-'))
        .map(|line| {
            let (head, about) = line.split_once("  ").unwrap_or((line, ""));
            let words = || head.split([',', ' ']).filter(|word| !word.is_empty());
            Opt {
                short: words().find(|word| word.starts_with('-') && word.len() == 2),
                long: words().find(|word| word.starts_with("--")),
                value: words().find(|word| !word.starts_with('-')),
                about: about.trim_start(),
            }
        })
        .collect()
}

/// The commands of an overview: its lines that begin with a word between two margins.
fn commands(overview: &str) -> Vec<Choice> {
    let lines = overview.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| {
            let (head, about) = line.split_once("  ")?;
            Some(Choice {
                word: head.split(' ').next()?.to_owned(),
                about: about.trim_start().to_owned(),
            })
        })
        .collect()
}

/// The operands of a usage, in order: what is no option, no option's value and no punctuation.
fn operands<'h>(usage: &'h str, options: &[Opt<'_>]) -> Vec<&'h str> {
    let mut found = Vec::new();
    let mut words = usage.split_whitespace().skip(1);
    while let Some(word) = words.next() {
        let word = word.trim_matches(['[', ']', '…']).trim_end_matches("...");
        let word = word.trim_end_matches([']', '…']);
        if word.starts_with('-') {
            if options.iter().any(|o| o.has(word) && o.value.is_some()) {
                words.next();
            }
        } else if !matches!(word, "" | "|" | "OPTIONS" | "OPTION") {
            found.push(word);
        }
    }
    found
}

/// Whether the last operand of a usage may be repeated.
fn repeats(usage: &str) -> bool {
    let last = usage.split_whitespace().rfind(|word| {
        let bare = word.trim_start_matches('[');
        !bare.starts_with('-') && !bare.contains('|')
    });
    last.is_some_and(|word| word.contains("...") || word.contains('…'))
}

/// Reads a command line without the program's name. The last word, which may be empty, is the one
/// that the cursor is at the end of.
#[must_use]
pub fn read(program: &Program, words: &[String]) -> Line {
    let (typed, cursor) = match words.split_last() {
        Some((cursor, typed)) => (typed, cursor.as_str()),
        None => (words, ""),
    };
    let mut reader = Reader {
        options: options(program.options),
        syntax: None,
        expected: None,
        operands: 0,
        only_operands: false,
        is_lost: false,
        given: Vec::new(),
    };
    for (at, word) in typed.iter().enumerate() {
        if reader.pass(program, word) {
            let given = reader.given;
            let place = Place::Command(at);
            return Line { given, place };
        }
    }
    let place = reader.place(program, cursor, typed.len());
    Line {
        given: reader.given,
        place,
    }
}

struct Reader {
    options: Vec<Opt<'static>>,
    syntax: Option<Syntax>,
    /// The option whose value is the next word.
    expected: Option<(String, &'static str)>,
    /// How many operands there are so far.
    operands: usize,
    only_operands: bool,
    /// Whether the command is none that we know.
    is_lost: bool,
    given: Vec<(String, String)>,
}

impl Reader {
    /// Takes a word that is complete; true if another program's command line begins with it.
    fn pass(&mut self, program: &Program, word: &str) -> bool {
        if let Some((option, _)) = self.expected.take() {
            self.given.push((option, word.to_owned()));
        } else if word == "--" {
            self.only_operands = true;
        } else if word.len() > 1 && word.starts_with('-') && !self.only_operands {
            self.take_option(word);
        } else if self.syntax.is_some() {
            if self.operand().is_some_and(is_command) {
                return true;
            }
            self.operands += 1;
            self.only_operands |= self.syntax.as_ref().is_some_and(|s| s.options_first);
        } else if let Some(syntax) = (program.command)(word) {
            self.options = options(syntax.options);
            self.syntax = Some(syntax);
        } else {
            self.is_lost = true;
        }
        false
    }

    fn take_option(&mut self, word: &str) {
        if word.starts_with("--") {
            let (name, value) = word.split_once('=').unzip();
            let name = name.unwrap_or(word);
            let Some(option) = self.options.iter().find(|o| o.has(name)) else {
                return;
            };
            match (value, option.value) {
                (Some(value), _) => self.given.push((option.name(), value.to_owned())),
                (None, Some(expected)) => self.expected = Some((option.name(), expected)),
                (None, None) => {}
            }
            return;
        }
        for (at, letter) in word.char_indices().skip(1) {
            let name = format!("-{letter}");
            let Some(option) = self.options.iter().find(|o| o.has(&name)) else {
                return;
            };
            let Some(expected) = option.value else {
                continue;
            };
            let attached = &word[at + letter.len_utf8()..];
            if attached.is_empty() {
                self.expected = Some((option.name(), expected));
            } else {
                self.given.push((option.name(), attached.to_owned()));
            }
            return;
        }
    }

    /// What the help calls the next operand.
    fn operand(&self) -> Option<&'static str> {
        let usage = self.syntax.as_ref()?.usage;
        let operands = operands(usage, &self.options);
        let last = operands.last().copied().filter(|_| repeats(usage));
        operands.get(self.operands).copied().or(last)
    }

    fn place(&mut self, program: &Program, cursor: &str, at: usize) -> Place {
        if self.is_lost {
            return Place::Words(Vec::new());
        }
        if let Some((option, name)) = self.expected.take() {
            return value(name, Some(option), String::new());
        }
        if cursor.starts_with('-') && !self.only_operands {
            return self.option_at(cursor);
        }
        match (&self.syntax, self.operand()) {
            (None, _) => Place::Words(commands(program.overview)),
            (_, Some(name)) if is_command(name) => Place::Command(at),
            // A word of the command line itself, as in `delta tool expand`.
            (_, Some(word)) if word.starts_with(|c: char| c.is_lowercase()) => {
                value(word, None, String::new())
            }
            (_, Some(name)) => value(name, None, String::new()),
            (_, None) if self.only_operands => Place::Words(Vec::new()),
            (_, None) => self.option_at(""),
        }
    }

    /// The options, or the value behind `--name=`.
    fn option_at(&self, cursor: &str) -> Place {
        if let Some((name, _)) = cursor.split_once('=') {
            let option = self.options.iter().find(|o| o.has(name));
            let expected = option.and_then(|o| Some((o.name(), o.value?)));
            return match expected {
                Some((option, expected)) => value(expected, Some(option), format!("{name}=")),
                None => Place::Words(Vec::new()),
            };
        }
        let names = self.options.iter().flat_map(|option| {
            let both = [option.short, option.long].into_iter().flatten();
            both.map(|name| Choice {
                word: name.to_owned(),
                about: option.about.to_owned(),
            })
        });
        Place::Words(names.collect())
    }
}

fn is_command(operand: &str) -> bool {
    matches!(operand, "COMMAND" | "PROGRAM")
}

/// The place of a value; where the help lists all values, these.
fn value(name: &str, option: Option<String>, stem: String) -> Place {
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Place::Value {
            name: name.to_owned(),
            option,
            stem,
        };
    }
    let words = name.split('|').map(|word| Choice {
        word: format!("{stem}{word}"),
        about: String::new(),
    });
    Place::Words(words.collect())
}

/// The words that a shell's script hands over, as the program would get them.
#[must_use]
pub fn words(raw: &[OsString]) -> Vec<String> {
    let home = std::env::var("HOME").ok();
    let raw = raw.strip_prefix(&["--".into()]).unwrap_or(raw);
    let words = raw.iter().map(|word| word.to_string_lossy());
    words.map(|word| unquoted(&word, home.as_deref())).collect()
}

/// The lines that tell a shell's completion script what could stand next: first what of its own it is
/// to add (`files`, `dirs`, `command N` or nothing), then a word a line, a tab, and what it means.
#[must_use]
pub fn lines(own: &str, choices: &[Choice]) -> String {
    let mut out = format!("{own}\n");
    for Choice { word, about } in choices {
        // Such a word could not be told from two.
        if !word.contains(char::is_control) {
            let about = about.replace(char::is_control, " ");
            out.push_str(&format!("{word}\t{}\n", about.trim()));
        }
    }
    out
}

/// A word as a person has typed it, without its quotes: also one whose quote is still open. `~` is
/// `home`.
fn unquoted(word: &str, home: Option<&str>) -> String {
    let closed = |end: &str| shlex::split(&format!("{word}{end}"));
    let words = [closed(""), closed("'"), closed("\"")];
    let first = words
        .into_iter()
        .flatten()
        .find_map(|w| w.into_iter().next());
    let text = first.unwrap_or_default();
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) if word.starts_with('~') => format!("{home}/{rest}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERVIEW: &str = "\
usage: prog COMMAND

  look [DIR] [RUN...]  look at it
  wrap             wrap a command

  -h, --help  print this
";
    const LOOK: &str = "\
  -w, --work-dir DIR      the workspace
      --format text|json  the form
  -q                      be quiet
";

    fn program() -> Program {
        Program {
            overview: OVERVIEW,
            options: OVERVIEW,
            command: |name| {
                let usage = match name {
                    "look" => "look [-w DIR] [-q | --format text|json] sub FILE [RUN...]",
                    "wrap" => "wrap [OPTIONS] -- COMMAND [ARGUMENT…]",
                    _ => return None,
                };
                Some(Syntax {
                    usage,
                    options: LOOK,
                    options_first: name == "wrap",
                })
            },
        }
    }

    fn at(line: &str) -> Line {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        read(&program(), &words)
    }

    fn words(line: &str) -> String {
        match at(line).place {
            Place::Words(words) => words
                .iter()
                .map(|c| c.word.as_str())
                .collect::<Vec<_>>()
                .join(" "),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn value_at(line: &str) -> (String, String) {
        match at(line).place {
            Place::Value { name, stem, .. } => (name, stem),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn commands_and_options_come_from_the_help() {
        assert_eq!(words("lo"), "look wrap");
        assert_eq!(words("-"), "-h --help");
        assert_eq!(words("look -"), "-w --work-dir --format -q");
        assert_eq!(words("look --format "), "text json");
        assert_eq!(words("look --format=j"), "--format=text --format=json");
        assert_eq!(words("look --none="), "");
        assert_eq!(words("look -- "), "sub");
        assert_eq!(words("none "), "");
    }

    #[test]
    fn values_and_operands_are_found_in_every_form() {
        assert_eq!(value_at("look -w ").0, "DIR");
        assert_eq!(value_at("look -qw ").0, "DIR");
        let attached = ("DIR".to_owned(), "--work-dir=".to_owned());
        assert_eq!(value_at("look --work-dir=x"), attached);
        assert_eq!(value_at("look sub ").0, "FILE");
        assert_eq!(value_at("look -w x sub f ").0, "RUN");
        assert_eq!(value_at("look -wx -q sub f r1 r2 ").0, "RUN");
        for line in [
            "look -w x ",
            "look -wx ",
            "look --work-dir=x ",
            "look --work-dir x ",
        ] {
            assert_eq!(at(line).value("--work-dir"), Some("x"), "{line}");
        }
    }

    #[test]
    fn another_command_line_begins_where_the_usage_says() {
        for line in ["wrap ", "wrap -q -- ", "wrap -w x make -j "] {
            let at_word = line.split(' ').position(|w| w == "make");
            let words = line.split(' ').count() - 1;
            let expected = Place::Command(at_word.unwrap_or(words));
            assert_eq!(at(line).place, expected, "{line}");
        }
    }

    #[test]
    fn a_word_is_read_as_a_shell_would_even_if_its_quote_is_open() {
        for (typed, read) in [
            ("plain", "plain"),
            ("a\\ b", "a b"),
            ("'a b", "a b"),
            ("\"a b", "a b"),
            ("'a b'", "a b"),
            ("~/a\\ b", "/home/me/a b"),
            ("'~/a'", "~/a"),
            ("", ""),
        ] {
            assert_eq!(unquoted(typed, Some("/home/me")), read, "{typed}");
        }
    }

    #[test]
    fn a_word_that_would_be_two_is_left_out() {
        let choice = |word: &str, about: &str| Choice {
            word: word.to_owned(),
            about: about.to_owned(),
        };
        let all = [choice("a", "x\ty"), choice("b\nc", "")];
        assert_eq!(lines("dirs", &all), "dirs\na\tx y\n");
    }
}
