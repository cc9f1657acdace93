//! Escapes in JSON of characters outside the basic plane: pairs of surrogates, halves of which can be lost or apart.

use super::{readable, text};
use std::borrow::Cow;

/// JSON in which every `\uD800` that is not half of a pair has become U+FFFD; none if it has no such escapes.
/// Some servers cut a text in the middle of a character; the rest of it is worth having.
pub(crate) fn without_lone_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let has = |mark: &[u8]| memchr::memmem::find(json, mark).is_some();
    if !has(b"\\ud") && !has(b"\\uD") {
        return None;
    }
    let mut paired = json.to_vec();
    for (at, _) in lone_surrogates(json) {
        paired[at..at + ESCAPE].copy_from_slice(b"\\uFFFD");
    }
    Some(paired)
}

/// In texts that are still to be joined, this precedes the four digits of a lone surrogate, and of itself.
const MARK: char = '\u{FFFF}';

/// JSON as text with marks in place of lone surrogates, which no Rust string can hold: joined texts may pair them.
pub(crate) fn marked(json: &[u8]) -> Cow<'_, str> {
    let mut text = String::from_utf8_lossy(json);
    if text.contains(MARK) {
        text = text.replace(MARK, "\\uffff").into();
    }
    let (mut out, mut copied) = (String::new(), 0);
    for (at, _) in odd_escapes(text.as_bytes()) {
        out += &text[copied..at];
        out.push(MARK);
        copied = at + "\\u".len();
    }
    if copied == 0 {
        return text;
    }
    (out + &text[copied..]).into()
}

/// JSON without marks: the surrogates that meet are pairs, the others U+FFFD.
pub(crate) fn unmarked(json: Vec<u8>) -> Vec<u8> {
    match std::str::from_utf8(&json) {
        Ok(text) if text.contains(MARK) => {
            let escaped = text.replace(MARK, "\\u");
            readable(escaped.as_bytes()).into_owned().into_bytes()
        }
        _ => json,
    }
}

/// A text without marks.
pub(crate) fn unmarked_text(marked: &str) -> Cow<'_, str> {
    if !marked.contains(MARK) {
        return marked.into();
    }
    super::read_or_default(&unmarked(text(marked).into_bytes()))
}

/// Splits off the mark of a high surrogate at the end of a text, which the next piece may complete.
pub(crate) fn split_half(text: &mut String) -> String {
    let at = text.len().saturating_sub(MARK.len_utf8() + 4);
    let is_half = text.get(at..).is_some_and(|end| {
        let unit = end.strip_prefix(MARK).map(|it| u16::from_str_radix(it, 16));
        matches!(unit, Some(Ok(0xD800..=0xDBFF)))
    });
    text.split_off(if is_half { at } else { text.len() })
}

/// The length of an escape such as `\uD800`.
pub(super) const ESCAPE: usize = 6;

/// Where escapes begin that are one half of a surrogate pair without the other, and which.
pub(super) fn lone_surrogates(json: &[u8]) -> impl Iterator<Item = (usize, u16)> {
    odd_escapes(json).filter(|(_, unit)| *unit != MARK as u16)
}

/// Lone surrogates and escaped marks.
fn odd_escapes(json: &[u8]) -> impl Iterator<Item = (usize, u16)> {
    let unit = |at: usize| {
        let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut next = 0;
    std::iter::from_fn(move || {
        while let Some(found) = memchr::memchr(b'\\', json.get(next..)?) {
            let at = next + found;
            let is_low = |unit: Option<u16>| matches!(unit, Some(0xDC00..=0xDFFF));
            let (length, odd) = match unit(at) {
                Some(0xD800..=0xDBFF) if is_low(unit(at + ESCAPE)) => (2 * ESCAPE, None),
                Some(unit @ (0xD800..=0xDFFF | 0xFFFF)) => (ESCAPE, Some((at, unit))),
                Some(_) => (ESCAPE, None),
                None => (2, None),
            };
            next = at + length;
            if odd.is_some() {
                return odd;
            }
        }
        None
    })
}
