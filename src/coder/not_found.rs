//! The answer to an edit that cannot be made: the lines that were probably meant, as they are.

use super::change::shortened;
use super::folded::MARK;
use std::collections::HashSet;

/// The number of lines that are shown.
const SHOWN: usize = 12;

/// The lines of the text nearest to what was looked for, under a line that says where they are; the first lines if
/// nothing in it resembles that. A model that sees no line of the file tends to send the same call again.
pub(super) fn lines_for(text: &str, old: &str) -> String {
    let lines: Vec<&str> = text.strip_prefix(MARK).unwrap_or(text).lines().collect();
    let (what, line, before) = match nearest_line(&lines, old) {
        Some((line, before)) => ("nearest", line, before),
        None if lines.is_empty() => return "The file is empty".to_owned(),
        None => ("first", 0, 0),
    };
    let start = line
        .saturating_sub(before.min(SHOWN / 2))
        .min(lines.len().saturating_sub(SHOWN));
    let end = (start + SHOWN).min(lines.len());
    let mut shown = format!("The {what} lines {}–{end} are:\n", start + 1);
    for line in &lines[start..end] {
        shown += &shortened(line);
        shown.push('\n');
    }
    shown
}

/// The line closest to the most distinctive line of `old`, and the number of lines before that one in `old`.
///
/// The most distinctive line is the longest of those that occur in the file, or of all if none does.
fn nearest_line(lines: &[&str], old: &str) -> Option<(usize, usize)> {
    let there: HashSet<&str> = lines.iter().map(|line| line.trim()).collect();
    let wanted = old
        .lines()
        .map(str::trim)
        .enumerate()
        .filter(|(_, line)| line.chars().any(char::is_alphanumeric));
    let wanted_line =
        wanted.max_by_key(|(index, line)| (there.contains(line), line.len(), usize::MAX - index));
    let (before, wanted_line) = wanted_line?;
    let words: HashSet<&str> = words_of(wanted_line).collect();
    let likeness = |line: &str| {
        let found: HashSet<&str> = words_of(line).filter(|word| words.contains(word)).collect();
        let common: usize = found.iter().map(|word| word.len()).sum();
        (line.trim() == wanted_line, common)
    };
    let scored = lines
        .iter()
        .enumerate()
        .map(|(at, line)| (likeness(line), at));
    let ((is_same, common), at) = scored.max_by_key(|(score, at)| (*score, usize::MAX - at))?;
    (is_same || common > 0).then_some((at, before))
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_around_the_most_telling_one_are_shown() {
        let lines: Vec<String> = (1..=40).map(|n| format!("line number {n}\n")).collect();
        let mut text = lines.concat();
        text.push_str("    fn compute_total(items: &[Item]) -> u64 {\n        0\n    }\n");
        let shown = lines_for(&text, "  }\n  fn compute_total(item: &Item) {");
        assert!(
            shown.starts_with("The nearest lines 32–43 are:\n"),
            "{shown}"
        );
        assert!(shown.contains("\n    fn compute_total(items: &[Item]) -> u64 {\n"));
        assert_eq!(shown.lines().count(), SHOWN + 1);
        let first = lines_for(&text, "zzz");
        assert!(first.starts_with("The first lines 1–12 are:\nline number 1\n"));
        assert_eq!(lines_for("", "x"), "The file is empty");
        // A line that is there counts more than a longer one that is not.
        let shown = lines_for("a\nb\nthe end\n", "something much longer\nthe end");
        assert_eq!(shown, "The nearest lines 1–3 are:\na\nb\nthe end\n");
    }
}
