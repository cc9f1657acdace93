//! Numbers and names, formatted for a table.

use crate::config::tool::definition::text_of;
use crate::flow::eval::suite::Case;
use crate::text::digest::sha256;
use crate::text::disguise::printable;
use crate::text::json;
use crate::text::shorten::{columns_of, cut_to_columns, in_short};
use std::collections::HashMap;

/// The longest name of a suite, a setting or a case.
const NAME_COLUMNS: usize = 40;

/// The longest warning.
const WARNING_COLUMNS: usize = 200;

/// The number of named scores in a table; JSON has all.
pub(super) const SCORES_SHOWN: usize = 16;

/// Rows of cells; the first cell is the row's name.
pub(super) type Rows = Vec<Vec<String>>;

/// The cell where nothing is known.
pub(super) const NOTHING: &str = "–";

/// A name or a reason that others wrote, on one line.
pub(super) fn name(text: &str) -> String {
    in_short(&printable(text), NAME_COLUMNS)
}

/// The longest name in a sentence.
const SHORT_COLUMNS: usize = 24;

/// A name in a sentence. Of a path that is too long the end is shown.
pub(super) fn short(text: &str) -> String {
    let whole = in_short(&printable(text), usize::MAX);
    if columns_of(&whole) <= SHORT_COLUMNS {
        return whole;
    }
    let mut ends = whole.match_indices('/').map(|(at, _)| &whole[at..]);
    match ends.find(|end| columns_of(end) < SHORT_COLUMNS) {
        Some(end) if end.len() > 1 => format!("…{end}"),
        _ => cut_to_columns(&whole, SHORT_COLUMNS),
    }
}

/// The beginnings of the inputs of cases, by ids that are only digests of them.
#[derive(Default)]
pub(crate) struct CaseNames(HashMap<String, String>);

impl CaseNames {
    pub(crate) fn of<'c>(cases: impl Iterator<Item = &'c Case>) -> Self {
        let is_digest = |case: &&Case| {
            let digest = case.id.split('_').next().unwrap_or_default();
            digest.len() >= 12 && sha256(json::text(&case.input).as_bytes()).starts_with(digest)
        };
        let beginning = |case: &Case| (case.id.clone(), name(&text_of(&case.input)));
        Self(cases.filter(is_digest).map(beginning).collect())
    }

    /// The beginning of the input of a case without an id of its own.
    pub(super) fn beginning(&self, id: &str) -> Option<&String> {
        self.0.get(id)
    }

    /// A case in a sentence: its own id, or else the beginning of its input.
    pub(super) fn short(&self, id: &str) -> String {
        match self.0.get(id) {
            Some(beginning) => format!("\"{}\"", cut_to_columns(beginning, SHORT_COLUMNS)),
            None => short(id),
        }
    }

    /// A case in a table: its id, after which comes the beginning of its input if the id does not say anything.
    pub(super) fn whole(&self, id: &str) -> String {
        match self.0.get(id) {
            Some(beginning) => format!("{} \"{beginning}\"", name(id)),
            None => name(id),
        }
    }
}

/// A warning, which has names in it, on one line.
pub(super) fn warning(text: &str) -> String {
    in_short(&printable(text), WARNING_COLUMNS)
}

/// A reason in words.
pub(super) fn reason(text: &str) -> String {
    name(&text.replace('_', " "))
}

/// A rate in whole percent without its sign. Only 0 and 1 are 0 and 100.
pub(super) fn percent_figure(rate: f64) -> String {
    let percent = rate * 100.0;
    match rate {
        _ if rate > 0.0 && percent < 0.5 => format!("{:.1}", percent.max(0.1)),
        _ if rate < 1.0 && percent >= 99.5 => format!("{:.1}", percent.min(99.9)),
        _ => format!("{percent:.0}"),
    }
}

/// A rate in percent.
pub(super) fn percent(rate: f64) -> String {
    format!("{} %", percent_figure(rate))
}

/// The ends of an interval of rates.
pub(super) fn ends(lower: f64, upper: f64) -> String {
    format!("[{}, {}]", percent_figure(lower), percent_figure(upper))
}

/// A difference in points with its sign: `+9`, `−12`, `0`.
pub(super) fn points(difference: f64) -> String {
    let points = (difference * 100.0).round();
    match points {
        _ if points > 0.0 => format!("+{points:.0}"),
        _ if points < 0.0 => format!("−{:.0}", -points),
        // Too little for a point is not nothing.
        _ if difference.abs() > 1e-9 => format!(
            "{}{:.1}",
            if difference > 0.0 { '+' } else { '−' },
            difference.abs() * 100.0
        ),
        _ => "0".to_owned(),
    }
}

/// A number of any size with two figures that count.
pub(super) fn figure(number: f64) -> String {
    let sign = if number < 0.0 { "−" } else { "" };
    format!("{sign}{}", amount(number.abs()))
}

/// An amount of money with two figures that count.
pub(super) fn amount(amount: f64) -> String {
    if amount <= 0.0 || !amount.is_finite() {
        return "0".to_owned();
    }
    format!(
        "{amount:.0$}",
        (1.0 - amount.log10().floor()).clamp(2.0, 9.0) as usize
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_to_all_or_nothing_only_if_it_is() {
        for (rate, shown) in [
            (0.0, "0 %"),
            (0.0001, "0.1 %"),
            (0.004, "0.4 %"),
            (0.714, "71 %"),
            (0.996, "99.6 %"),
            (0.9999, "99.9 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(rate), shown);
        }
    }

    #[test]
    fn points_have_their_sign() {
        assert_eq!(
            [0.09, -0.75, 0.0, 0.001, -0.002].map(points),
            ["+9", "−75", "0", "+0.1", "−0.2"]
        );
    }

    #[test]
    fn amounts_have_two_figures_that_count() {
        assert_eq!(
            [0.021, 1.5, 12.0, 0.000_12, 0.0].map(amount),
            ["0.021", "1.50", "12.00", "0.00012", "0"]
        );
    }

    #[test]
    fn names_stay_on_their_line() {
        assert_eq!(name("a\x1b[2J\nb\u{202e}c"), "a\u{FFFD}[2J b\\u{202e}c");
        assert!(name(&"x".repeat(1000)).chars().count() <= NAME_COLUMNS);
    }
}
