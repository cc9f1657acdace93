//! Texts cut to the columns that a terminal has for them, or to a number of bytes.
//!
//! Unaware of terminals. Widths are those of Unicode's UAX #11 (East Asian Width).

use unicode_width::UnicodeWidthStr;

/// More columns than any terminal has.
pub(crate) const WIDEST: usize = 500;

/// No line of a help text is longer.
const HELP_WIDTH: usize = 79;

/// How many columns a line takes.
pub(crate) fn columns_of(line: &str) -> usize {
    line.width()
}

/// The number of things that a message lists.
pub(crate) const MOST_LISTED: usize = 20;

/// Names for a message, of many only the first.
pub(crate) fn list_names(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MOST_LISTED);
    let mut listed: Vec<String> = names.take(MOST_LISTED).collect();
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    listed.join(", ")
}

/// Characters per column that are enough for any script; some have no width.
const MOST_PER_COLUMN: usize = 8;

/// The beginning of a line within a number of columns, with an ellipsis if it is cut.
pub(crate) fn cut_to_columns(line: &str, columns: usize) -> String {
    let most = MOST_PER_COLUMN.saturating_mul(columns);
    if line.chars().nth(most).is_none() && columns_of(line) <= columns {
        return line.to_owned();
    }
    let room = columns.saturating_sub(1);
    let ends: Vec<usize> = line.char_indices().take(most).map(|(at, _)| at).collect();
    // The last place up to which the line fits.
    let fitting = ends.partition_point(|end| columns_of(&line[..*end]) <= room);
    let mut cut = fitting
        .checked_sub(1)
        .map_or("", |last| &line[..ends[last]])
        .to_owned();
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// Words in lines of [`HELP_WIDTH`], a margin before each.
pub(crate) fn push_wrapped(out: &mut String, margin: &str, text: &str) {
    let mut line = margin.to_owned();
    for word in text.split_whitespace() {
        let is_first = line.len() == margin.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > HELP_WIDTH {
            out.push_str(&line);
            out.push('\n');
            line.truncate(margin.len());
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// The first line; empty if there is none.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The last line; empty if there is none.
pub(crate) fn last_line(text: &str) -> &str {
    text.lines().next_back().unwrap_or_default()
}

/// The beginning of a text, at most `bytes` long, cut between characters.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    let end = ends.find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The end of a text, at most `bytes` long, cut between characters.
pub(crate) fn tail(text: &str, bytes: usize) -> &str {
    let mut starts = text.len().saturating_sub(bytes)..=text.len();
    let start = starts.find(|at| text.is_char_boundary(*at));
    &text[start.unwrap_or(text.len())..]
}

/// The beginning of a text on one line.
pub(crate) fn in_short(text: &str, columns: usize) -> String {
    let most = MOST_PER_COLUMN.saturating_mul(columns);
    let (mut line, mut count, mut is_gap) = (String::new(), 0, false);
    for c in text.chars() {
        if c.is_whitespace() {
            is_gap = !line.is_empty();
            continue;
        }
        if is_gap {
            line.push(' ');
        }
        line.push(c);
        count += 1 + usize::from(is_gap);
        is_gap = false;
        // No more is shown.
        if count > most {
            break;
        }
    }
    cut_to_columns(&line, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_combining_ones_none() {
        assert_eq!(columns_of("aé漢e\u{301}🎉"), 1 + 1 + 2 + 1 + 2);
        assert_eq!(columns_of("\u{2764}\u{fe0f}👩\u{200d}🚀"), 2 + 2);
    }

    #[test]
    fn a_cut_line_is_never_wider_than_its_columns() {
        for line in [
            "abcdef",
            "漢字漢字",
            "a漢b字c",
            "e\u{301}e\u{301}e\u{301}",
            "a❤\u{fe0f}❤\u{fe0f}b",
        ] {
            for columns in 0..=columns_of(line) {
                let cut = cut_to_columns(line, columns);
                assert!(columns_of(&cut) <= columns, "{cut} in {columns}");
                assert_eq!(cut == line, columns == columns_of(line));
            }
        }
        assert_eq!(in_short(" a\n b ", 9), "a b");
        let long = in_short(&"\u{301}".repeat(100_000), 40);
        assert!(long.chars().count() < 400 && long.ends_with('…'));
    }

    #[test]
    fn ends_of_a_text_have_whole_characters() {
        assert_eq!(
            (head("aé漢", 2), head("aé漢", 9), head("é", 1)),
            ("a", "aé漢", "")
        );
        assert_eq!(
            (tail("漢éa", 2), tail("漢éa", 9), tail("é", 1)),
            ("a", "漢éa", "")
        );
    }
}
