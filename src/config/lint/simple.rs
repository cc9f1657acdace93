//! The simple command that a place in a script belongs to, as far as that can be told without parsing
//! the script (XCU 2.9.1).
//!
//! Good enough for advice. Unaware of here-documents and of what the words mean.

use crate::config::tool::argv_template::is_identifier;

/// What stands around a place.
pub(super) struct Place {
    /// The words of the command before the one that the place is in, without quotes.
    pub words: Vec<String>,
    /// That word begins before the place.
    pub begun: bool,
    /// That word is the place and nothing else.
    pub alone: bool,
}

/// A list of commands that is open, such as the script itself or a command substitution.
#[derive(Default)]
struct List {
    words: Vec<String>,
    word: Option<String>,
    /// Double quotes are open.
    quoted: bool,
}

impl List {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.word = None;
        self.words.clear();
    }
}

/// The command around `script[start..end]`, which is no part of a comment or of single quotes.
pub(super) fn around(script: &str, start: usize, end: usize) -> Place {
    let mut lists = vec![List::default()];
    let mut letters = script[..start].chars().peekable();
    while let Some(c) = letters.next() {
        let is_nested = lists.len() > 1;
        let Some(list) = lists.last_mut() else { break };
        match c {
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(c) => list.push(c),
            },
            '$' if letters.next_if_eq(&'(').is_some() => lists.push(List::default()),
            '"' => {
                list.quoted = !list.quoted;
                list.word.get_or_insert_default();
            }
            _ if list.quoted => list.push(c),
            '\'' => {
                list.word.get_or_insert_default();
                letters
                    .by_ref()
                    .take_while(|c| *c != '\'')
                    .for_each(|c| list.push(c));
            }
            ' ' | '\t' => list.end_word(),
            '#' if list.word.is_none() => {
                letters.by_ref().take_while(|c| *c != '\n').for_each(drop);
                list.end_command();
            }
            '(' => lists.push(List::default()),
            ')' if is_nested => {
                lists.pop();
                if let Some(outer) = lists.last_mut() {
                    outer.word.get_or_insert_default();
                }
            }
            // Of a redirection, as in 2>&1.
            '&' | '|' if list.word.as_ref().is_some_and(|w| w.ends_with(['<', '>'])) => {
                list.push(c);
            }
            '\n' | ';' | '&' | '|' | '`' | ')' => list.end_command(),
            _ => list.push(c),
        }
    }
    let list = lists.pop().unwrap_or_default();
    let begun = list.word.as_ref().is_some_and(|word| !word.is_empty());
    let behind = &script[end..];
    let behind = behind.strip_prefix('"').filter(|_| list.quoted).or({
        // Inside quotes whatever follows belongs to the word.
        (!list.quoted).then_some(behind)
    });
    let ends = |text: &str| {
        text.is_empty() || text.starts_with([' ', '\t', '\n', ';', '&', '|', ')', '`'])
    };
    Place {
        words: of_command(list.words),
        begun,
        alone: !begun && behind.is_some_and(ends),
    }
}

/// The words from the program's name on.
fn of_command(mut words: Vec<String>) -> Vec<String> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if is_before_a_command(word) {
            at += 1;
        } else if is_redirection(word) {
            // The file may be a word of its own.
            at += if word.ends_with(['<', '>', '&', '|']) {
                2
            } else {
                1
            };
        } else {
            break;
        }
    }
    words.drain(..at.min(words.len()));
    words
}

/// Whether a word begins as a redirection does, without quotes (XCU 2.7).
fn is_redirection(word: &str) -> bool {
    word.trim_start_matches(|c: char| c.is_ascii_digit())
        .starts_with(['<', '>'])
}

/// Reserved words behind which a command begins, and assignments.
fn is_before_a_command(word: &str) -> bool {
    const RESERVED: [&str; 10] = [
        "if", "then", "else", "elif", "while", "until", "do", "!", "{", "exec",
    ];
    let name = word.split_once('=').map(|(name, _)| name);
    RESERVED.contains(&word) || name.is_some_and(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_before_a_place_are_those_of_its_command() {
        for (script, words, begun, alone) in [
            ("cat @", vec!["cat"], false, true),
            ("cat \"@\" x", vec!["cat"], false, true),
            ("cat x@", vec!["cat"], true, false),
            ("cat @x", vec!["cat"], false, false),
            ("cat \"@ x\"", vec!["cat"], false, false),
            (
                "a; b | c 'x; y' \"z | \\\"\" @;",
                vec!["c", "x; y", "z | \""],
                false,
                true,
            ),
            ("if A=1 B= cat @", vec!["cat"], false, true),
            ("echo a \\\n @", vec!["echo", "a"], false, true),
            ("# it's\necho @", vec!["echo"], false, true),
            ("echo \"$(cat @)\"", vec!["cat"], false, true),
            ("echo \"$(cat x)\" @", vec!["echo", ""], false, true),
            ("(cat @)", vec!["cat"], false, true),
            ("sh -c \"cd x; cat @\"", vec!["sh", "-c"], true, false),
            ("@", vec![], false, true),
            (">&2 2> x <y cat @", vec!["cat"], false, true),
            (
                "cat 2>&1 >| x @ & y",
                vec!["cat", "2>&1", ">|", "x"],
                false,
                true,
            ),
            ("a & > x @", vec![], false, true),
        ] {
            let at = script.find('@').unwrap();
            let place = around(script, at, at + 1);
            assert_eq!(place.words, words, "{script}");
            assert_eq!((place.begun, place.alone), (begun, alone), "{script}");
        }
    }
}
