//! Numbers and names, formatted for a table.

use crate::text::disguise::printable;
use crate::text::shorten::in_short;

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
