//! Rows of cells below each other. What counts are the columns of a terminal, not characters.
//!
//! Unaware of terminals: the width is passed in. A table that is too wide has its widest text shortened; where only
//! numbers and names remain, it stays too wide.

use crate::text::disguise::printable_line;
use crate::text::shorten::{columns_of, cut_to_columns, in_short};

/// How the cells of a column are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// At the left, always whole.
    Name,
    /// At the left, shortened where there is no room.
    Text,
    /// At the right, always whole.
    Number,
}

/// No text is shortened to fewer columns.
const LEAST_TEXT: usize = 10;

/// Rows of cells. A row may end early.
#[derive(Debug)]
pub(crate) struct Table {
    pub rows: Vec<Vec<String>>,
    /// The last one also counts for all that follow.
    pub columns: Vec<Column>,
    /// Spaces between two columns.
    pub gap: usize,
}

impl Table {
    /// Below a row of names.
    pub(crate) fn with_head(head: &[(&str, Column)]) -> Self {
        Self {
            rows: vec![head.iter().map(|(name, _)| (*name).to_owned()).collect()],
            columns: head.iter().map(|(_, column)| *column).collect(),
            gap: 2,
        }
    }

    /// Removes a column that is named.
    pub(crate) fn remove_column(&mut self, at: usize) {
        self.columns.remove(at);
        for row in self.rows.iter_mut().filter(|row| at < row.len()) {
            row.remove(at);
        }
    }

    /// True if the rows fit a terminal of this width, with texts shortened.
    pub(crate) fn fits(&self, width: usize) -> bool {
        let widths = self.fitting_widths(width);
        widths.iter().sum::<usize>() + self.gap * widths.len().saturating_sub(1) <= width
    }

    fn column(&self, at: usize) -> Column {
        let column = self.columns.get(at).or(self.columns.last());
        column.copied().unwrap_or(Column::Name)
    }

    /// The columns of the terminal that each column takes.
    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = columns_of(&printable_line(cell)).max(*width);
            }
        }
        widths
    }

    /// The same in a terminal of this width.
    fn fitting_widths(&self, most: usize) -> Vec<usize> {
        let mut widths = self.widths();
        loop {
            let taken = widths.iter().sum::<usize>() + self.gap * widths.len().saturating_sub(1);
            let is_long = |at: &usize| self.column(*at) == Column::Text && widths[*at] > LEAST_TEXT;
            let longest = (0..widths.len())
                .filter(is_long)
                .max_by_key(|at| widths[*at]);
            let (Some(longest), 1..) = (longest, taken.saturating_sub(most)) else {
                return widths;
            };
            // Down to the next longest text, which then gives way as well.
            let others = (0..widths.len()).filter(|at| *at != longest && is_long(at));
            let next = others.map(|at| widths[at]).max().unwrap_or(LEAST_TEXT);
            let least = next.min(widths[longest] - 1);
            widths[longest] = widths[longest].saturating_sub(taken - most).max(least);
        }
    }

    /// The rows in a terminal of this width, or of any: cells that fill their columns, each but the first after its gap.
    pub(crate) fn cells(&self, width: Option<usize>) -> Vec<Vec<String>> {
        let widths = self.fitting_widths(width.unwrap_or(usize::MAX));
        let cells = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cell =
                |(at, (cell, width)): (usize, (&String, &usize))| self.cell(at, cell, *width);
            let mut cells: Vec<String> = cells.map(cell).collect();
            if let Some(last) = cells.last_mut() {
                last.truncate(last.trim_end().len());
            }
            cells
        };
        self.rows.iter().map(cells).collect()
    }

    fn cell(&self, at: usize, text: &str, width: usize) -> String {
        let gap = " ".repeat(if at == 0 { 0 } else { self.gap });
        let (column, text) = (self.column(at), printable_line(text));
        let text = match column {
            Column::Text => cut_to_columns(&text, width),
            Column::Name | Column::Number => text,
        };
        let space = " ".repeat(width.saturating_sub(columns_of(&text)));
        match column {
            Column::Number => format!("{gap}{space}{text}"),
            Column::Name | Column::Text => format!("{gap}{text}{space}"),
        }
    }

    /// The rows as lines, without spaces at their ends.
    pub(crate) fn lines(&self, width: Option<usize>) -> String {
        lines(&self.cells(width))
    }

    /// The rows in as many blocks below each other as their columns need; each begins with the rows' names.
    pub(crate) fn blocks(&self, width: Option<usize>) -> String {
        let (widths, cells) = (self.widths(), self.cells(None));
        let Some((first, others)) = widths.split_first() else {
            return String::new();
        };
        let mut blocks = Vec::new();
        let mut from = 1;
        while from < widths.len() {
            let ends = others[from - 1..].iter().scan(*first, |taken, width| {
                *taken += self.gap + width;
                Some(*taken)
            });
            let fitting = ends.take_while(|taken| width.is_none_or(|width| *taken <= width));
            let to = from + fitting.count().max(1);
            let part = |row: &Vec<String>| {
                let cells = row.get(from..to.min(row.len())).unwrap_or_default();
                [&row[..row.len().min(1)], cells].concat()
            };
            blocks.push(lines(&cells.iter().map(part).collect::<Vec<_>>()));
            from = to;
        }
        blocks.join("\n")
    }
}

fn lines(rows: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| format!("{}\n", row.concat().trim_end());
    rows.iter().map(line).collect()
}

/// A name in a table, on one line and short enough to be laid out: no name that delta accepts is longer.
pub(crate) fn name_cell(name: &str) -> String {
    in_short(&printable_line(name), 100)
}

/// A line of RFC 4180, but for its end, which is a newline alone.
pub(crate) fn csv_line(cells: &[String]) -> String {
    let quoted = |cell: &String| {
        if cell.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    };
    let cells: Vec<String> = cells.iter().map(quoted).collect();
    cells.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[&[&str]], columns: &[Column]) -> Table {
        let row = |cells: &&[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        Table {
            rows: rows.iter().map(row).collect(),
            columns: columns.to_vec(),
            gap: 2,
        }
    }

    const COLUMNS: &[Column] = &[Column::Name, Column::Text, Column::Number];

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_on_a_terminal() {
        let table = table(
            &[
                &["a", "1", "22"],
                &["漢字", "e\u{301}e\u{301}", "4"],
                &["b"],
            ],
            COLUMNS,
        );
        assert_eq!(
            table.lines(None),
            "a     1   22\n漢字  e\u{301}e\u{301}   4\nb\n"
        );
    }

    #[test]
    fn the_widest_text_is_shortened_to_the_width_and_no_other_cell() {
        let long = "漢".repeat(40);
        let table = table(
            &[&["a name of thirty-one characters", &long, "12345"]],
            COLUMNS,
        );
        for width in 50..150 {
            let line = table.lines(Some(width));
            let line = line.trim_end();
            assert!(columns_of(line) <= width, "{line} in {width}");
            assert!(line.starts_with("a name of thirty-one characters  漢"));
            assert!(line.ends_with("  12345"));
        }
        assert!(!table.lines(Some(125)).contains('…'));
        // Less than what must be shown.
        assert!(columns_of(table.lines(Some(20)).trim_end()) <= 31 + 2 + 10 + 2 + 5);
    }

    #[test]
    fn texts_of_one_length_are_shortened_alike() {
        let long = "x".repeat(60);
        let table = table(&[&[&long, &long, "y"]], &[Column::Text]);
        let cells = table.cells(Some(65));
        let width = |at: usize| columns_of(&cells[0][at]);
        assert!(width(0).abs_diff(width(1) - 2) <= 1, "{cells:?}");
        assert_eq!(width(0) + width(1) + width(2), 65);
    }

    #[test]
    fn blocks_take_as_many_columns_as_fit_and_at_least_one() {
        let table = table(
            &[&["n", "aa", "bb", "cc"], &["m", "1", "2", "3"]],
            &[Column::Name, Column::Number],
        );
        assert_eq!(table.blocks(None), "n  aa  bb  cc\nm   1   2   3\n");
        assert_eq!(
            table.blocks(Some(10)),
            "n  aa  bb\nm   1   2\n\nn  cc\nm   3\n"
        );
        assert_eq!(table.blocks(Some(0)).matches('n').count(), 3);
    }
}
