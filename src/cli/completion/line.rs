//! A command line as far as it has been typed, and what could stand where the cursor is.
//!
//! Unaware of what values there are.

use super::help::{Opt, begins_command, commands, operands, options, repeats};
use super::{Choice, Line, Place, Program, Syntax, Value};

/// Reads a command line without the program's name. The last word, which may be empty, is the one
/// that the cursor is at the end of.
pub(super) fn read(program: &Program, words: &[String]) -> Line {
    let (typed, cursor) = match words.split_last() {
        Some((cursor, typed)) => (typed, cursor.as_str()),
        None => (words, ""),
    };
    let mut reader = Reader {
        options: options(program.options),
        syntax: None,
        expected: None,
        operands: Vec::new(),
        only_operands: false,
        is_lost: false,
        given: Vec::new(),
    };
    for (at, word) in typed.iter().enumerate() {
        if reader.pass(program, word) {
            return reader.line(Place::Command(at));
        }
    }
    let place = reader.place(program, cursor, typed.len());
    reader.line(place)
}

struct Reader {
    options: Vec<Opt<'static>>,
    syntax: Option<Syntax>,
    /// The option whose value is the next word.
    expected: Option<(String, &'static str)>,
    /// The operands so far.
    operands: Vec<String>,
    only_operands: bool,
    /// Whether the command is none that we know.
    is_lost: bool,
    given: Vec<(String, String)>,
}

impl Reader {
    fn line(self, place: Place) -> Line {
        Line {
            given: self.given,
            operands: self.operands,
            place,
        }
    }

    /// Takes a word that is complete; true if another program's command line begins with it.
    fn pass(&mut self, program: &Program, word: &str) -> bool {
        if let Some((option, _)) = self.expected.take() {
            self.given.push((option, word.to_owned()));
        } else if word == "--" {
            self.only_operands = true;
        } else if word.len() > 1 && word.starts_with('-') && !self.only_operands {
            self.take_option(word);
        } else if self.syntax.is_some() {
            if self.operand().is_some_and(|(_, is_command)| is_command) {
                return true;
            }
            self.operands.push(word.to_owned());
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

    /// What the help calls the next operand, and whether it begins another program's command line.
    fn operand(&self) -> Option<(&'static str, bool)> {
        let usage = self.syntax.as_ref()?.usage;
        let operands = operands(usage, &self.options);
        let at = self.operands.len();
        if let Some(name) = operands.get(at) {
            return Some((name, begins_command(&operands, at)));
        }
        let last = operands.last().filter(|_| repeats(usage))?;
        Some((last, false))
    }

    fn place(&mut self, program: &Program, cursor: &str, at: usize) -> Place {
        if self.is_lost {
            return Place::Words(Vec::new());
        }
        if let Some((option, name)) = self.expected.take() {
            return value(name, Some(option), "", cursor);
        }
        if cursor.starts_with('-') && !self.only_operands {
            return self.option_at(cursor);
        }
        match (&self.syntax, self.operand()) {
            (None, _) => Place::Words(commands(program.overview)),
            (_, Some((_, true))) => Place::Command(at),
            (_, Some((name, false))) => value(name, None, "", cursor),
            (_, None) if self.only_operands => Place::Words(Vec::new()),
            (_, None) => self.option_at(""),
        }
    }

    /// The options, or the value behind `--name=`.
    fn option_at(&self, cursor: &str) -> Place {
        if let Some((name, typed)) = cursor.split_once('=') {
            let option = self.options.iter().find(|o| o.has(name));
            let expected = option.and_then(|o| Some((o.name(), o.value?)));
            return match expected {
                Some((option, expected)) => {
                    value(expected, Some(option), &format!("{name}="), typed)
                }
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

/// The place of a value; where the help has its words (`text|json`, or `expand` as a word of the
/// command line itself), these.
fn value(name: &str, option: Option<String>, stem: &str, typed: &str) -> Place {
    if name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let word = |word: &str| Choice::new(&format!("{stem}{word}"), "");
        return Place::Words(name.split('|').map(word).collect());
    }
    Place::Value(Value {
        name: name.to_owned(),
        option,
        stem: stem.to_owned(),
        typed: typed.to_owned(),
    })
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
      --to LANGUAGE
                          in a language
";

    fn program() -> Program {
        Program {
            overview: OVERVIEW,
            options: OVERVIEW,
            command: |name| {
                let usage = match name {
                    "look" => "look [-w DIR] [-q | --format text|json] sub FILE [RUN...]",
                    "page" => "page [COMMAND]",
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
            Place::Value(Value { name, stem, .. }) => (name, stem),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn commands_and_options_come_from_the_help() {
        assert_eq!(words("lo"), "look wrap");
        assert_eq!(words("-"), "-h --help");
        assert_eq!(words("look -"), "-w --work-dir --format -q --to");
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
    fn operands_are_kept_and_a_word_is_a_command_only_if_arguments_follow_it() {
        assert_eq!(at("look sub f r").operands, ["sub", "f"]);
        assert_eq!(value_at("page ").0, "COMMAND");
        assert_eq!(words("page x "), "-w --work-dir --format -q --to");
        assert_eq!(value_at("look --to ").0, "LANGUAGE");
        assert_eq!(value_at("look -w --to=").0, "DIR");
        let Place::Words(options) = at("look -").place else {
            panic!()
        };
        assert_eq!(options.last().unwrap().about, "in a language");
    }
}
