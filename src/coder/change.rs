//! The changes of an edit, as a unified diff. The places are known, so nothing is searched for.

use super::matching::Replacement;
use crate::text::shorten::first_line;
use std::ops::Range;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// Lines of a diff that are shown.
const DIFF_LINES: usize = 60;

/// Characters of a line that are shown.
const LINE_CHARACTERS: usize = 2_000;

/// The sign for a carriage return within a line.
pub(super) const CR_SIGN: char = '␍';

pub(super) const CR_NOTE: &str =
    "carriage returns within lines are shown as ␍ (each is one character, CR)";

/// Some whole lines of the old text, and those that replaced them.
struct Hunk {
    lines: Range<usize>,
    now: Vec<String>,
}

/// The text with its replacements, which are in order and do not overlap.
pub(super) fn replaced(text: &str, places: &[Replacement]) -> String {
    replaced_in(text, 0..text.len(), places)
}

/// A part of the text with the replacements, all of which are in it.
fn replaced_in(text: &str, part: Range<usize>, places: &[Replacement]) -> String {
    let mut out = String::with_capacity(part.len());
    let mut at = part.start;
    for place in places {
        out += &text[at..place.range.start];
        out += &place.text;
        at = place.range.end;
    }
    out += &text[at..part.end];
    out
}

/// The replacements as a diff of the text before them.
pub(super) fn diff(before: &str, places: &[Replacement]) -> String {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let hunks = hunks(before, &lines, places);
    let mut shown = Vec::new();
    let mut added = 0_isize;
    let mut rest = hunks.as_slice();
    while let Some(first) = rest.first() {
        let near = |pair: &[Hunk]| pair[1].lines.start <= pair[0].lines.end + 2 * CONTEXT;
        let together = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let start = first.lines.start.saturating_sub(CONTEXT);
        let mut body: Vec<(char, &str)> = Vec::new();
        let mut at = start;
        for hunk in &rest[..together] {
            let gone = hunk.lines.clone();
            body.extend(lines[at..gone.start].iter().map(|line| (' ', *line)));
            body.extend(lines[gone.clone()].iter().map(|line| ('-', *line)));
            body.extend(hunk.now.iter().map(|line| ('+', line.as_str())));
            at = gone.end;
        }
        let end = (rest[together - 1].lines.end + CONTEXT).min(lines.len());
        body.extend(lines[at..end].iter().map(|line| (' ', *line)));
        let (head, difference) = head(&body, start, added);
        added += difference;
        shown.push(head);
        shown.extend(body.iter().map(|(sign, line)| diff_line(*sign, line)));
        rest = &rest[together..];
    }
    cut(shown)
}

/// The changed lines. Changes that touch the same lines are one.
fn hunks(text: &str, lines: &[&str], places: &[Replacement]) -> Vec<Hunk> {
    let mut starts = vec![0];
    starts.extend(lines.iter().scan(0, |at, line| {
        *at += line.len();
        Some(*at)
    }));
    let mut hunks = Vec::new();
    let mut rest = places;
    while let Some(first) = rest.first() {
        let before = starts.partition_point(|start| *start <= first.range.start);
        let from = (before - 1).min(lines.len());
        let mut count = 1;
        let (to, now) = loop {
            let place = &rest[count - 1];
            let mut to = starts.partition_point(|start| *start < place.range.end);
            to = to.clamp((from + 1).min(lines.len()), lines.len());
            let part = |to: usize| replaced_in(text, starts[from]..starts[to], &rest[..count]);
            // What lost its newline is joined with the next line.
            while to < lines.len() && !part(to).is_empty() && !part(to).ends_with('\n') {
                to += 1;
            }
            match rest.get(count) {
                Some(next) if next.range.start < starts[to] => count += 1,
                _ => break (to, part(to)),
            }
        };
        let now: Vec<&str> = now.split_inclusive('\n').collect();
        let (same, end) = common_ends(&lines[from..to], &now);
        hunks.push(Hunk {
            lines: from + same..to - end,
            now: now[same..now.len() - end]
                .iter()
                .map(ToString::to_string)
                .collect(),
        });
        rest = &rest[count..];
    }
    hunks
}

/// The numbers of lines that are the same at the beginning and at the end.
fn common_ends(old: &[&str], new: &[&str]) -> (usize, usize) {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let start = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old.iter().rev().zip(new.iter().rev());
    (start, end.take_while(same).count())
}

/// The line above a part of a diff, and how many lines the part adds.
fn head(body: &[(char, &str)], start: usize, added: isize) -> (String, isize) {
    let count = |without: char| body.iter().filter(|(sign, _)| *sign != without).count();
    let range = |start: usize, count: usize| match count {
        0 => format!("{start},0"),
        1 => (start + 1).to_string(),
        _ => format!("{},{count}", start + 1),
    };
    let (old, new) = (count('+'), count('-'));
    (
        format!(
            "@@ -{} +{} @@",
            range(start, old),
            range(start.saturating_add_signed(added), new)
        ),
        new.cast_signed() - old.cast_signed(),
    )
}

fn diff_line(sign: char, line: &str) -> String {
    let end = if line.ends_with('\n') {
        ""
    } else {
        "\n\\ No newline at end of file"
    };
    format!("{sign}{}{end}", shortened(first_line(line)))
}

fn cut(mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(DIFF_LINES);
    if more > 0 {
        lines.truncate(DIFF_LINES);
        lines.push(format!("[… {more} more lines of the diff …]"));
    }
    lines.join("\n")
}

/// A line that may have a megabyte, for a model. An observation leaves out what a carriage return overwrites, so each
/// is shown as a sign.
pub(super) fn shortened(line: &str) -> String {
    let shown = |part: &str| part.replace('\r', &CR_SIGN.to_string());
    match line.char_indices().nth(LINE_CHARACTERS) {
        None => shown(line),
        Some((end, _)) => format!("{}[… {} bytes more]", shown(&line[..end]), line.len() - end),
    }
}

/// True if there is a carriage return that is not before a newline.
pub(super) fn has_lone_cr(text: &str) -> bool {
    text.split('\n')
        .any(|line| line.strip_suffix('\r').unwrap_or(line).contains('\r'))
        || text.ends_with('\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str, old: &str, new: &str) -> Vec<Replacement> {
        let found = text.match_indices(old).map(|(at, _)| Replacement {
            range: at..at + old.len(),
            text: new.to_owned(),
        });
        found.collect()
    }

    /// Applies a diff to the text that it was made of.
    fn patched(text: &str, diff: &str) -> String {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (mut out, mut at) = (String::new(), 0);
        let mut diff = diff.lines().peekable();
        while let Some(line) = diff.next() {
            if let Some(head) = line.strip_prefix("@@ -") {
                let (old, _) = head.split_once(' ').unwrap();
                let (start, count) = old.split_once(',').unwrap_or((old, "1"));
                let start = start.parse::<usize>().unwrap() - usize::from(count != "0");
                out.extend(lines[at..start].iter().copied());
                at = start;
                continue;
            }
            let newline = match diff.next_if(|next| next.starts_with('\\')) {
                Some(_) => "",
                None => "\n",
            };
            match line.split_at(1) {
                (" ", line) => {
                    assert_eq!(lines[at], format!("{line}{newline}"));
                    out.push_str(lines[at]);
                    at += 1;
                }
                ("-", line) => {
                    assert_eq!(lines[at], format!("{line}{newline}"));
                    at += 1;
                }
                (_, line) => out.push_str(&format!("{line}{newline}")),
            }
        }
        out.extend(lines[at..].iter().copied());
        out
    }

    #[test]
    fn only_changed_lines_are_marked() {
        let lines: Vec<String> = (1..=20).map(|n| format!("{n}\n")).collect();
        let text = lines.concat();
        let shown = diff(&text, &places(&text, "9\n10\n11\n", "9\nten\n11\n"));
        assert_eq!(
            shown,
            "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13"
        );
        let shown = diff("a", &places("a", "a", "b"));
        assert_eq!(
            shown,
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file"
        );
        let long = "x\n".repeat(200);
        let shown = diff(&long, &places(&long, "x", "y"));
        assert_eq!(shown.lines().count(), DIFF_LINES + 1);
        assert!(
            shown.ends_with("[… 341 more lines of the diff …]"),
            "{shown}"
        );
    }

    #[test]
    fn a_diff_makes_the_new_text_of_the_old_one() {
        let mut random = fastrand::Rng::with_seed(11);
        let pieces = ["a", "b\n", "\n", "c\n", "ab", "\nb"];
        for _ in 0..10_000 {
            let mut text = |most: usize| {
                let count = random.usize(..most);
                (0..count)
                    .map(|_| pieces[random.usize(..pieces.len())])
                    .collect::<String>()
            };
            let (text, old, new) = (text(24), text(3), text(4));
            if old.is_empty() || old == new {
                continue;
            }
            let places = places(&text, &old, &new);
            let after = replaced(&text, &places);
            let shown = diff(&text, &places);
            if !shown.contains('…') && !places.is_empty() {
                assert_eq!(
                    patched(&text, &shown),
                    after,
                    "{text:?} {old:?} {new:?}\n{shown}"
                );
            }
        }
    }
}
