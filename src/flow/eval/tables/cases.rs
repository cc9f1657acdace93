//! The list of cases: those that differ, and those that did not pass every trial.

use super::conclusions::other_side;
use super::words::{NOTHING, Rows, name, points};
use crate::flow::eval::numbers::Counts;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::comparison::CaseDifference;
use crate::flow::eval::summary::figures::CaseFigures;
use crate::text::amounts::counted;

/// The number of cases listed; JSON has all.
pub(super) const CASES_SHOWN: usize = 50;

const PERFECT: &str = "that passed every trial";

/// The rows, the first with the names of the columns, and the note about the cases that are not listed.
pub(super) fn rows(summary: &Summary) -> (Rows, Option<String>) {
    match summary.comparisons.is_empty() {
        true => imperfect(summary),
        false => different(summary),
    }
}

/// Cases that did not pass every trial under every setting.
fn imperfect(summary: &Summary) -> (Rows, Option<String>) {
    let count = summary
        .settings
        .first()
        .map_or(0, |setting| setting.cases.len());
    let of = |at: usize| {
        summary
            .settings
            .iter()
            .filter_map(move |setting| setting.cases.get(at))
    };
    let is_imperfect = |case: &CaseFigures| case.failed > 0 || case.not_measured > 0;
    let mut listed: Vec<usize> = (0..count).filter(|at| of(*at).any(is_imperfect)).collect();
    let least = |at: usize| of(at).filter_map(|case| case.rate).fold(1.0_f64, f64::min);
    listed.sort_by(|a, b| least(*a).total_cmp(&least(*b)));
    let mut head = vec!["case".to_owned()];
    head.extend(summary.settings.iter().map(|setting| name(&setting.name)));
    let row = |at: &usize| -> Vec<String> {
        let id = of(*at)
            .next()
            .map_or_else(String::new, |case| name(&case.id));
        let counts = of(*at).map(|case| shown(case.counts()));
        std::iter::once(id).chain(counts).collect()
    };
    let rows = with_head(head, listed.iter().take(CASES_SHOWN).map(row));
    let note = note(count - listed.len(), PERFECT, listed.len());
    (rows, note)
}

/// Cases that differ in a comparison, the greatest differences first, and those that did not pass every trial.
fn different(summary: &Summary) -> (Rows, Option<String>) {
    let comparisons = &summary.comparisons;
    let count = comparisons
        .first()
        .map_or(0, |comparison| comparison.case_differences.len());
    let of = |at: usize| {
        comparisons
            .iter()
            .filter_map(move |comparison| comparison.case_differences.get(at))
    };
    let greatest = |at: usize| {
        let sizes = of(at).filter_map(|case| case.difference).map(f64::abs);
        sizes.fold(0.0_f64, f64::max)
    };
    let is_whole = |counts: Counts| counts.measured > 0 && counts.passed == counts.measured;
    let is_imperfect =
        |at: usize| of(at).any(|case| !is_whole(case.before) || !is_whole(case.after));
    let mut listed: Vec<usize> = (0..count).filter(|at| is_imperfect(*at)).collect();
    listed.sort_by(|a, b| greatest(*b).total_cmp(&greatest(*a)));
    // Against a setting of this evaluation all comparisons have the same other side.
    let is_earlier = comparisons.iter().any(|comparison| comparison.is_earlier);
    let mut head = vec!["case".to_owned()];
    for (number, comparison) in comparisons.iter().enumerate() {
        if is_earlier || number == 0 {
            head.push(other_side(comparison));
        }
        head.push(name(&comparison.setting));
        head.push("diff".to_owned());
    }
    let row = |at: &usize| -> Vec<String> {
        let mut row = vec![
            of(*at)
                .next()
                .map_or_else(String::new, |case| name(&case.id)),
        ];
        for (number, case) in of(*at).enumerate() {
            if is_earlier || number == 0 {
                row.push(shown(case.before));
            }
            row.push(shown(case.after));
            row.push(flagged(case));
        }
        row
    };
    let rows = with_head(head, listed.iter().take(CASES_SHOWN).map(row));
    let note = note(count - listed.len(), PERFECT, listed.len());
    (rows, note)
}

fn with_head(head: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> Rows {
    let rows: Rows = rows.collect();
    match rows.is_empty() {
        true => rows,
        false => std::iter::once(head).chain(rows).collect(),
    }
}

/// `3/4`.
fn shown(counts: Counts) -> String {
    match counts.measured {
        0 => NOTHING.to_owned(),
        measured => format!("{}/{measured}", counts.passed),
    }
}

/// The difference in points, with a mark if a test shows it.
fn flagged(case: &CaseDifference) -> String {
    let Some(difference) = case.difference else {
        return NOTHING.to_owned();
    };
    let mark = match case.flagged {
        true if difference > 0.0 => " ▲",
        true => " ▼",
        false => "",
    };
    format!("{}{mark}", points(difference))
}

/// The cases that are not listed.
fn note(others: usize, what: &str, listed: usize) -> Option<String> {
    let mut parts = Vec::new();
    if listed > CASES_SHOWN {
        parts.push(format!(
            "{} more in --format json",
            counted(listed - CASES_SHOWN, "case")
        ));
    }
    if others > 0 {
        parts.push(format!("{} {what}", counted(others, "case")));
    }
    match parts.is_empty() {
        true => None,
        false => Some(format!("…   ({})", parts.join(", "))),
    }
}
