//! Finds the text in a file that a model wants to replace.
//!
//! Byte for byte first. If it is not there, three tolerances, one after the other, each only where exactly
//! one place fits: line ends, blanks at line ends, one shift of the indentation. Never anything that would
//! call two different words the same.

use super::folded::{Fold, Folded, folded_wanted};
use std::ops::Range;

/// The difference of a place from what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    Exact,
    LineEnds,
    TrailingBlanks,
    Indentation,
}

impl Tolerance {
    /// The parts that are not compared, for the model; `None` for [`Tolerance::Exact`].
    pub(crate) fn described(self) -> Option<&'static str> {
        match self {
            Self::Exact => None,
            Self::LineEnds => Some("line ends"),
            Self::TrailingBlanks => Some("blanks at line ends"),
            Self::Indentation => Some("the indentation of the whole block"),
        }
    }
}

/// A part of the file and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub range: Range<usize>,
    pub text: String,
}

/// The outcome of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Matches {
    /// One place, or all of them.
    Found(Vec<Replacement>, Tolerance),
    /// Too many places: where each begins.
    Several(Vec<usize>, Tolerance),
    Nowhere,
}

/// Looks for `old`, which is not empty, and returns the replacements.
pub(crate) fn search(text: &str, old: &str, new: &str, all: bool) -> Matches {
    let found = occurrences(text, old);
    match found.as_slice() {
        [] => {}
        [at] => return Matches::Found(vec![exact(text, *at, old, new)], Tolerance::Exact),
        _ if all => {
            let mut places: Vec<Replacement> = Vec::new();
            for at in found {
                if places.last().is_none_or(|last| last.range.end <= at) {
                    places.push(exact(text, at, old, new));
                }
            }
            return Matches::Found(places, Tolerance::Exact);
        }
        _ => return Matches::Several(found, Tolerance::Exact),
    }
    for (fold, tolerance) in [
        (Fold::LineEnds, Tolerance::LineEnds),
        (Fold::TrailingBlanks, Tolerance::TrailingBlanks),
    ] {
        match search_folded(text, old, new, fold, tolerance) {
            Matches::Nowhere => {}
            other => return other,
        }
    }
    search_shifted(text, old, new)
}

/// The places where `wanted` begins in the text, also where two overlap.
pub(super) fn occurrences(text: &str, wanted: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(wanted)) {
        found.push(from + at);
        let first = text[from + at..].chars().next();
        from += at + first.map_or(1, char::len_utf8);
    }
    found
}

/// An exact place. A line that is added to a file with CRLF gets it, unless `old` shows that the model
/// has the line ends in mind.
fn exact(text: &str, at: usize, old: &str, new: &str) -> Replacement {
    let converts = !old.contains('\n') && !new.contains('\r') && has_only_crlf(text);
    Replacement {
        range: at..at + old.len(),
        text: if converts {
            new.replace('\n', "\r\n")
        } else {
            new.to_owned()
        },
    }
}

/// True if there are line ends, and each is CRLF.
pub(crate) fn has_only_crlf(text: &str) -> bool {
    let mut ends = text.match_indices('\n').peekable();
    ends.peek().is_some() && ends.all(|(at, _)| text[..at].ends_with('\r'))
}

fn search_folded(text: &str, old: &str, new: &str, fold: Fold, tolerance: Tolerance) -> Matches {
    let wanted = folded_wanted(old, fold);
    if wanted.is_empty() {
        return Matches::Nowhere;
    }
    let folded = Folded::new(text, fold);
    let parts = occurrences(&folded.text, &wanted)
        .into_iter()
        .map(|at| at..at + wanted.len());
    let parts: Vec<Range<usize>> = parts.collect();
    match parts.as_slice() {
        [] => Matches::Nowhere,
        [part] => {
            let place = place(text, &folded, part, new);
            Matches::Found(vec![place], tolerance)
        }
        _ => {
            let starts = parts.iter().map(|part| folded.original(part).start);
            Matches::Several(starts.collect(), tolerance)
        }
    }
}

/// A place that was found in a folded text: what goes there has the line ends of the file, and a last
/// line without a newline stays without.
fn place(text: &str, folded: &Folded, part: &Range<usize>, new: &str) -> Replacement {
    let range = folded.original(part);
    let mut new = folded_wanted(new, Fold::LineEnds);
    if folded.passes_end(part) && new.ends_with('\n') {
        new.pop();
    }
    let has_crlf = match text[range.clone()].find('\n') {
        Some(at) => text[range.clone()][..at].ends_with('\r'),
        None => has_only_crlf(text),
    };
    Replacement {
        range,
        text: if has_crlf {
            new.replace('\n', "\r\n")
        } else {
            new
        },
    }
}

/// The way in which all lines of a block are indented differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shift<'t> {
    /// The file has this before each line.
    Deeper(&'t str),
    /// The model has this before each line.
    Shallower(&'t str),
}

impl<'t> Shift<'t> {
    /// The shift between a line of the file and the same line of the model's.
    fn between(line: &'t str, wanted: &'t str) -> Option<Self> {
        if let Some(shift) = line.strip_suffix(wanted) {
            return is_blank(shift).then_some(Self::Deeper(shift));
        }
        let shift = wanted.strip_suffix(line)?;
        is_blank(shift).then_some(Self::Shallower(shift))
    }

    /// A text of whole lines, shifted as the file is; none if one of them cannot be.
    fn apply(self, text: &str) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            match self {
                _ if is_blank(line.trim_end_matches('\n')) => out.push_str(line),
                Self::Deeper(shift) => out.extend([shift, line]),
                Self::Shallower(shift) => out.push_str(line.strip_prefix(shift)?),
            }
        }
        Some(out)
    }
}

fn is_blank(text: &str) -> bool {
    text.chars().all(|c| matches!(c, ' ' | '\t'))
}

/// Looks for whole lines that are all indented by the same more, or the same less.
fn search_shifted(text: &str, old: &str, new: &str) -> Matches {
    let folded = Folded::new(text, Fold::TrailingBlanks);
    let wanted = folded_wanted(old, Fold::TrailingBlanks);
    let wanted: Vec<&str> = wanted.lines().collect();
    let Some(first) = wanted.iter().position(|line| !line.is_empty()) else {
        return Matches::Nowhere;
    };
    let remainder = wanted[first].trim_start();
    let lines: Vec<&str> = folded.text.lines().collect();
    let mut starts = vec![0];
    starts.extend(folded.text.match_indices('\n').map(|(at, _)| at + 1));
    let mut found = Vec::new();
    for at in 0..(lines.len() + 1).saturating_sub(wanted.len()) {
        if lines[at + first].ends_with(remainder)
            && let Some(shift) = shift_of(&lines[at..at + wanted.len()], &wanted)
        {
            // Without the last newline, unless the model's text has it.
            let end = starts[at + wanted.len()] - usize::from(!old.ends_with('\n'));
            found.push((starts[at]..end, shift));
        }
    }
    match found.as_slice() {
        [] => Matches::Nowhere,
        [(part, shift)] => match shift.apply(&folded_wanted(new, Fold::LineEnds)) {
            Some(new) => {
                let place = place(text, &folded, part, &new);
                Matches::Found(vec![place], Tolerance::Indentation)
            }
            None => Matches::Nowhere,
        },
        _ => {
            let starts = found.iter().map(|(part, _)| folded.original(part).start);
            Matches::Several(starts.collect(), Tolerance::Indentation)
        }
    }
}

/// The one shift between all lines and the wanted ones.
fn shift_of<'t>(lines: &[&'t str], wanted: &[&'t str]) -> Option<Shift<'t>> {
    let mut common = None;
    for (line, wanted) in lines.iter().zip(wanted) {
        if line.is_empty() && wanted.is_empty() {
            continue;
        }
        if line.is_empty() || wanted.is_empty() {
            return None;
        }
        let shift = Shift::between(line, wanted)?;
        if *common.get_or_insert(shift) != shift {
            return None;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text after the edit, and the tolerance; an error names the number of places.
    fn edited(text: &str, old: &str, new: &str) -> Result<(String, Tolerance), usize> {
        match search(text, old, new, false) {
            Matches::Found(places, tolerance) => {
                assert_eq!(places.len(), 1);
                let place = &places[0];
                let mut text = text.to_owned();
                text.replace_range(place.range.clone(), &place.text);
                Ok((text, tolerance))
            }
            Matches::Several(starts, _) => Err(starts.len()),
            Matches::Nowhere => Err(0),
        }
    }

    #[test]
    fn overlapping_places_count_each() {
        assert_eq!(edited("aaa", "aa", "b"), Err(2));
        assert_eq!(edited("éé", "é", "b"), Err(2));
        let Matches::Found(places, _) = search("aaaaa", "aa", "b", true) else {
            panic!("not found");
        };
        let ranges: Vec<_> = places.into_iter().map(|place| place.range).collect();
        assert_eq!(ranges, [0..2, 2..4]);
    }

    #[test]
    fn what_goes_into_a_file_with_crlf_has_it_too() {
        let text = "one\r\ntwo\r\nthree\r\n";
        let whole = |new: &str, tolerance| Ok((new.to_owned(), tolerance));
        assert_eq!(
            edited(text, "one\ntwo\n", "1\n2\n"),
            whole("1\r\n2\r\nthree\r\n", Tolerance::LineEnds)
        );
        assert_eq!(
            edited(text, "two", "two\nmore"),
            whole("one\r\ntwo\r\nmore\r\nthree\r\n", Tolerance::Exact)
        );
        // Who writes CRLF means it.
        assert_eq!(
            edited(text, "one\r\n", "1\n"),
            whole("1\ntwo\r\nthree\r\n", Tolerance::Exact)
        );
        assert_eq!(
            edited("a\nb\n", "a\r\nb", "c\r\nd"),
            whole("c\nd\n", Tolerance::LineEnds)
        );
        // In a file with both, the text around the place decides.
        assert_eq!(
            edited("a\nb\nc\r\nd\r\n", "c\nd\n", "e\nf\n"),
            whole("a\nb\ne\r\nf\r\n", Tolerance::LineEnds)
        );
    }

    #[test]
    fn a_byte_order_mark_and_a_missing_final_newline_stay() {
        assert_eq!(
            edited("\u{feff}a\nb", "\u{feff}a\nb\n", "c\nd\n"),
            Ok(("\u{feff}c\nd".to_owned(), Tolerance::LineEnds))
        );
    }

    #[test]
    fn blanks_at_line_ends_are_passed_over_and_go_with_their_line() {
        assert_eq!(
            edited("a  \nb\t\nc\n", "a\nb", "x\ny"),
            Ok(("x\ny\nc\n".to_owned(), Tolerance::TrailingBlanks))
        );
        assert_eq!(
            edited("a\nb\n", "a \nb ", "x\ny"),
            Ok(("x\ny\n".to_owned(), Tolerance::TrailingBlanks))
        );
        assert_eq!(edited("a \nb\na\t\nb\n", "a\nb", "x"), Err(2));
        assert_eq!(edited("a\n", "  ", "x"), Err(0));
    }

    #[test]
    fn a_block_is_found_at_another_depth_and_stays_there() {
        let text = "fn f() {\n\tif x {\n\t\ty();\n\n\t}\n}\n";
        assert_eq!(
            edited(text, "if x {\n\ty();\n\n}\n", "if z {\n\n\tw();\n}\n"),
            Ok((
                "fn f() {\n\tif z {\n\n\t\tw();\n\t}\n}\n".to_owned(),
                Tolerance::Indentation
            ))
        );
        assert_eq!(
            edited("a:\n  b\n  c\nd\n", "    b\n    c", "    e\n      f"),
            Ok(("a:\n  e\n    f\nd\n".to_owned(), Tolerance::Indentation))
        );
        // Not one shift, but two; not blanks, but a word; a new line that cannot be shifted.
        assert_eq!(edited("  a\n    b\n", "a\nb", "c"), Err(0));
        assert_eq!(edited("xa\nxb\n", "a\nb\n", "c"), Err(0));
        assert_eq!(edited("a\nb\n", "  a\n  b", "c"), Err(0));
        // Tabs are not spaces.
        assert_eq!(edited("\ta\n\tb\n", "    a\n    b", "    c"), Err(0));
        assert_eq!(edited("  a\n  b\n\n\ta\n\tb\n", "a\nb", "c\nd"), Err(2));
    }

    #[test]
    fn words_are_never_taken_for_others() {
        for (text, old) in [
            ("let total = 1;\n", "let totals = 1;"),
            ("“quoted”\n", "\"quoted\""),
            ("a - b\n", "a – b"),
            ("Name\n", "name"),
            ("a  b\n", "a b"),
        ] {
            assert_eq!(edited(text, old, "x"), Err(0), "{old}");
        }
    }

    #[test]
    fn outside_the_place_no_byte_changes() {
        let mut random = fastrand::Rng::with_seed(7);
        let piece = ["a", "b ", "\t", "\r\n", "\n", " ", "é", "ab"];
        for _ in 0..20_000 {
            let mut text = |most: usize| {
                let count = random.usize(1..most);
                (0..count)
                    .map(|_| piece[random.usize(..piece.len())])
                    .collect::<String>()
            };
            let (text, old, new) = (text(14), text(5), text(5));
            if let Matches::Found(places, _) = search(&text, &old, &new, true) {
                let mut end = 0;
                for place in places {
                    assert!(end <= place.range.start && place.range.end <= text.len());
                    assert!(text.is_char_boundary(place.range.start));
                    assert!(text.is_char_boundary(place.range.end));
                    let squeezed = |t: &str| t.replace(['\r', '\n', ' ', '\t'], "");
                    assert_eq!(squeezed(&text[place.range.clone()]), squeezed(&old));
                    end = place.range.end;
                }
            }
        }
    }
}
