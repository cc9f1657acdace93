//! Patterns for ids, as a shell has them for names: `*`, `?`, `[a-z]` and `[!a-z]`.
//!
//! Unaware of what the ids name.

use super::fields::FromKey;
use crate::config::keys::Key;
use crate::config::section::Section;

/// A pattern. It must fit all of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    /// The pattern as it was written.
    pub text: String,
    pieces: Vec<GlobPiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobPiece {
    /// Any characters, or none.
    Any,
    One(Class),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    ranges: Vec<(char, char)>,
    /// Everything but these.
    is_negated: bool,
}

impl Class {
    fn has(&self, c: char) -> bool {
        let within = |&(first, last): &(char, char)| (first..=last).contains(&c);
        self.ranges.iter().any(within) != self.is_negated
    }
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The fault of the pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            match c {
                // Several say the same as one, and cost more.
                '*' if pieces.last() == Some(&GlobPiece::Any) => {}
                '*' => pieces.push(GlobPiece::Any),
                '?' => pieces.push(GlobPiece::One(Class {
                    ranges: Vec::new(),
                    is_negated: true,
                })),
                '[' => pieces.push(GlobPiece::One(class(&mut rest)?)),
                c => pieces.push(GlobPiece::One(Class {
                    ranges: vec![(c, c)],
                    is_negated: false,
                })),
            }
        }
        if pieces.is_empty() {
            return Err("is empty, and fits nothing; * fits everything".to_owned());
        }
        Ok(Self {
            text: text.to_owned(),
            pieces,
        })
    }

    pub(crate) fn fits(&self, text: &str) -> bool {
        let (mut piece, mut rest) = (0, text);
        // Where to go on if what follows the last star does not fit: it takes one more character.
        let mut again: Option<(usize, &str)> = None;
        loop {
            let next = rest.chars().next();
            match (self.pieces.get(piece), next) {
                (Some(GlobPiece::Any), _) => {
                    piece += 1;
                    again = Some((piece, rest));
                    continue;
                }
                (Some(GlobPiece::One(class)), Some(c)) if class.has(c) => {
                    piece += 1;
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((behind, from)) = again else {
                return false;
            };
            let mut longer = from.chars();
            if longer.next().is_none() {
                return false;
            }
            (piece, rest) = (behind, longer.as_str());
            again = Some((behind, rest));
        }
    }
}

/// The pattern of a key, or of an item of its list.
fn read_glob(node: &Section, key: &str, text: &str) -> Option<Glob> {
    match Glob::parse(text) {
        Ok(glob) => Some(glob),
        Err(why) => node.refuse(key, format!("{key}: the pattern {text:?} {why}")),
    }
}

impl FromKey for Option<Glob> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let text = node.read_text(key.name)?;
        read_glob(node, key.name, text)
    }
}

impl FromKey for Vec<Glob> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let texts = node.texts(key.name).into_iter();
        texts
            .filter_map(|text| read_glob(node, key.name, text))
            .collect()
    }
}

/// The characters between brackets. A `]` that comes first is one of them.
fn class(rest: &mut std::str::Chars<'_>) -> Result<Class, String> {
    let unclosed = || "has a [ without a ]; [[] fits a bracket itself".to_owned();
    let body = rest.as_str();
    let is_negated = body.starts_with(['!', '^']);
    let body = &body[usize::from(is_negated)..];
    let first = body.chars().next().ok_or_else(unclosed)?;
    let close = body[first.len_utf8()..].find(']').ok_or_else(unclosed)?;
    let (inside, behind) = body.split_at(first.len_utf8() + close);
    *rest = behind[1..].chars();
    let inside: Vec<char> = inside.chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(&first) = inside.get(at) {
        let (last, taken) = match inside.get(at + 1..at + 3) {
            Some(&['-', last]) => (last, 3),
            _ => (first, 1),
        };
        if last < first {
            return Err(format!("has the range {first}-{last}, which holds nothing"));
        }
        ranges.push((first, last));
        at += taken;
    }
    Ok(Class { ranges, is_negated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_those_of_a_shell_do() {
        for (pattern, fit, other) in [
            ("a", "a", "aa ab b"),
            ("*", "a ab x.y-z_0", ""),
            ("a*", "a ab abc", "ba"),
            ("*a", "a ba aba", "ab"),
            ("a*b*c", "abc a1b2c abbcc aXbYbZc", "ac ab acb"),
            ("**a**", "a bab", "b"),
            ("?", "a é", "ab"),
            ("a?c", "abc a.c", "ac abbc"),
            ("[a-c]x", "ax bx cx", "dx x"),
            ("[!a-c]x", "dx -x", "ax"),
            ("[^a]", "b", "a"),
            ("[]x]", "] x", "["),
            ("[[]", "[", "]"),
            ("[a-]", "a -", "b"),
            ("[a-a]", "a", "- b"),
            ("[*]?", "*a", "aa"),
            ("web.[0-9]*", "web.1 web.10", "webx1 web."),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            for text in fit.split(' ') {
                assert!(glob.fits(text), "{pattern} {text}");
            }
            for text in other.split(' ').filter(|text| !text.is_empty()) {
                assert!(!glob.fits(text), "{pattern} {text}");
            }
        }
        assert!(Glob::parse("*").unwrap().fits(""));
        for wrong in ["", "[", "a[", "[]", "[!", "[!]", "[b-a]"] {
            assert!(Glob::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_text_times_pattern() {
        let glob = Glob::parse(&"*a".repeat(200)).unwrap();
        assert!(!glob.fits(&"a".repeat(199)));
        assert!(glob.fits(&"a".repeat(10_000)));
        assert!(!glob.fits(&format!("{}b", "a".repeat(10_000))));
    }
}
