//! The protocol between a program and a shell's completion script.

/// A possible next word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub word: String,
    /// Half a line on what it means; may be empty.
    pub about: String,
}

impl Candidate {
    pub(crate) fn new(word: &str, about: &str) -> Self {
        Self {
            word: word.to_owned(),
            about: about.to_owned(),
        }
    }

    /// Words that need no explanation.
    pub(crate) fn plain<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<Self> {
        words.into_iter().map(|word| Self::new(word, "")).collect()
    }
}

use crate::text::disguise::disguises;
use std::ffi::OsString;

/// The words that a shell's script hands over, as the program would get them.
pub(super) fn read(raw: &[OsString], home: Option<&str>) -> Vec<String> {
    let given = raw.strip_prefix(&["--".into()]).unwrap_or(raw);
    let words = given.iter().map(|word| word.to_string_lossy());
    words.map(|word| unquote(&word, home)).collect()
}

/// The lines that a shell's completion script reads: first what the shell is to add itself (`files`,
/// `dirs`, `command N` or nothing), then a word a line, a tab, and what it means.
pub(super) fn print(own: &str, choices: &[Candidate]) -> String {
    let mut out = format!("{own}\n");
    for Candidate { word, about } in choices {
        // Such a word could not be distinguished from two.
        if !word.contains(disguises) {
            let shown = about.replace(disguises, " ");
            out.push_str(&format!("{word}\t{}\n", shown.trim()));
        }
    }
    out
}

/// A word as a person has typed it, without its quotes: also one whose quote is still open. `~` is
/// `home`.
fn unquote(word: &str, home: Option<&str>) -> String {
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

    #[test]
    fn a_word_is_read_as_a_shell_would_even_if_its_quote_is_open() {
        for (typed, expected) in [
            ("plain", "plain"),
            ("a\\ b", "a b"),
            ("'a b", "a b"),
            ("\"a b", "a b"),
            ("'a b'", "a b"),
            ("~/a\\ b", "/home/me/a b"),
            ("'~/a'", "~/a"),
            ("", ""),
        ] {
            assert_eq!(unquote(typed, Some("/home/me")), expected, "{typed}");
        }
    }

    #[test]
    fn a_word_that_would_be_two_is_left_out() {
        let all = [Candidate::new("a", "x\ty"), Candidate::new("b\nc", "")];
        assert_eq!(print("dirs", &all), "dirs\na\tx y\n");
    }
}
