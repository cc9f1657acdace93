//! `.env` files: text to pairs.
//!
//! Unaware of which file is read and of what the variables mean. Lines are `NAME=value`, `export
//! NAME=value`, empty, or comments. A value may be bare (a ` #` ends it), in single quotes (taken
//! literally) or in double quotes (`\n`, `\t`, `\"`, `\\`, `\$` are escapes). Nothing is expanded.

use crate::text::json::after_mark;

/// A line that means nothing, by its number from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadLine(pub usize);

/// The pairs of a `.env` file in their order, and the lines that could not be read.
pub(crate) fn parse(text: &str) -> (Vec<(String, String)>, Vec<BadLine>) {
    let mut pairs = Vec::new();
    let mut bad = Vec::new();
    for (index, line) in after_mark(text).lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match pair(line) {
            Some(pair) => pairs.push(pair),
            None => bad.push(BadLine(index + 1)),
        }
    }
    (pairs, bad)
}

fn pair(line: &str) -> Option<(String, String)> {
    let (before, rest) = line
        .strip_prefix("export ")
        .unwrap_or(line)
        .split_once('=')?;
    let name = before.trim();
    let mut letters = name.chars();
    let first = letters.next()?;
    if !(first.is_ascii_alphabetic() || first == '_')
        || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        return None;
    }
    Some((name.to_owned(), value(rest.trim())?))
}

fn value(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('\'') {
        return only_comment_after(rest, rest.find('\'')?).map(str::to_owned);
    }
    let Some(rest) = text.strip_prefix('"') else {
        let end = text.find(" #").unwrap_or(text.len());
        return Some(text[..end].trim_end().to_owned());
    };
    let mut out = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return only_comment_after(rest, at).map(|_| out),
            '\\' => out.push(match letters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            }),
            other => out.push(other),
        }
    }
    None
}

/// The text before `end`, if nothing but a comment follows the closing quote there.
fn only_comment_after(text: &str, end: usize) -> Option<&str> {
    let after = text[end + 1..].trim_start();
    (after.is_empty() || after.starts_with('#')).then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_line_is_read() {
        let text = "# c\n\nA=1\nexport B = two words # c\nC='a \"b\" $x'  # c\nD=\"l1\\nl2 \\\"q\\\"\"\nE=\nF=a#b\n";
        let (pairs, bad) = parse(text);
        let shown: Vec<_> = pairs
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("A", "1"),
                ("B", "two words"),
                ("C", "a \"b\" $x"),
                ("D", "l1\nl2 \"q\""),
                ("E", ""),
                ("F", "a#b"),
            ]
        );
        assert!(bad.is_empty());
    }

    #[test]
    fn a_byte_order_mark_and_carriage_returns_are_no_text() {
        let (pairs, bad) = parse("\u{feff}A=1\r\nB=\"2\"\r\n");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(pairs, [pair("A", "1"), pair("B", "2")]);
        assert!(bad.is_empty());
    }

    #[test]
    fn lines_without_meaning_are_named() {
        let (pairs, bad) = parse("x\n1A=2\nB='open\nC=\"x\" y\nD=1");
        assert_eq!(pairs, [("D".to_owned(), "1".to_owned())]);
        assert_eq!(bad, [BadLine(1), BadLine(2), BadLine(3), BadLine(4)]);
    }
}
