//! Texts cut to the columns that a terminal has for them.
//!
//! Unaware of terminals. Widths are those of Unicode's UAX #11 (East Asian Width), by blocks.

/// Blocks whose characters take two columns.
const WIDE: [(u32, u32); 13] = [
    (0x1100, 0x115F),
    (0x2E80, 0x303E),
    (0x3041, 0xA4CF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60),
    (0xFFE0, 0xFFE6),
    (0x1F300, 0x1F64F),
    (0x1F680, 0x1F6FF),
    (0x1F900, 0x1FAFF),
    (0x20000, 0x3FFFD),
];

/// Blocks whose characters are drawn over the one before.
const COMBINING: [(u32, u32); 7] = [
    (0x0300, 0x036F),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x200B, 0x200D),
    (0x20D0, 0x20FF),
    (0xFE00, 0xFE0F),
    (0xFE20, 0xFE2F),
];

fn width_of(c: char) -> usize {
    let is_in = |blocks: &[(u32, u32)]| {
        let code = u32::from(c);
        blocks
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&code))
    };
    match c {
        '\0'..='\u{2FF}' => 1,
        _ if is_in(&COMBINING) => 0,
        _ if is_in(&WIDE) => 2,
        _ => 1,
    }
}

/// How many columns a line takes.
pub(crate) fn columns_of(line: &str) -> usize {
    line.chars().map(width_of).sum()
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
    if columns_of(line) <= columns && line.chars().nth(most).is_none() {
        return line.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |c: &char| {
        let width = width_of(*c);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let mut cut: String = line.chars().take(most).take_while(fits).collect();
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// The beginning of a text on one line.
pub(crate) fn in_short(text: &str, columns: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_to_columns(&line, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_combining_ones_none() {
        assert_eq!(columns_of("aé漢e\u{301}🎉"), 1 + 1 + 2 + 1 + 2);
    }

    #[test]
    fn a_cut_line_is_never_wider_than_its_columns() {
        for line in ["abcdef", "漢字漢字", "a漢b字c", "e\u{301}e\u{301}e\u{301}"] {
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
}
