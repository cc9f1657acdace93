//! The list of cases: those that differ, and those that did not pass every trial.

use super::conclusions::other_side;
use super::words::{CaseNames, NOTHING, Rows, name, points};
use crate::flow::eval::numbers::Counts;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::comparison::CaseDifference;
use crate::text::amounts::counted;
use crate::text::order;

/// The number of cases listed; JSON has all.
pub(super) const CASES_SHOWN: usize = 50;

/// A column: its head, and the cell of each case.
type Cells<'s> = (String, Box<dyn Fn(usize) -> Option<String> + 's>);

/// The rows, the first with the names of the columns, and the note about the cases that are not listed: those that
/// differ in a comparison, the greatest differences first, and those that did not pass every trial.
pub(super) fn rows(summary: &Summary, names: &CaseNames) -> (Rows, String) {
    let (settings, comparisons) = (&summary.settings, &summary.comparisons);
    let cases = settings.first().map_or(&[][..], |it| &it.cases);
    let mut columns: Vec<Cells<'_>> = vec![(
        "case".to_owned(),
        Box::new(|at| Some(names.whole(&cases[at].id))),
    )];
    let mut listed: Vec<usize> = (0..cases.len()).collect();
    if comparisons.is_empty() {
        let of = |at: usize| settings.iter().filter_map(move |it| it.cases.get(at));
        listed.retain(|at| of(*at).any(|case| case.failed > 0 || case.not_measured > 0));
        let least = |at: &usize| of(*at).filter_map(|case| case.rate).fold(1.0_f64, f64::min);
        order::sort_by(&mut listed, |a, b| least(a).total_cmp(&least(b)));
        for it in settings {
            let cell = |at: usize| Some(shown(it.cases.get(at)?.counts()));
            columns.push((name(&it.name), Box::new(cell)));
        }
    } else {
        let of = |at: usize| {
            comparisons
                .iter()
                .filter_map(move |it| it.case_differences.get(at))
        };
        let is_whole = |it: Counts| it.measured > 0 && it.passed == it.measured;
        listed.retain(|at| of(*at).any(|it| !is_whole(it.before) || !is_whole(it.after)));
        let sizes = |at: &usize| of(*at).filter_map(|it| it.difference).map(f64::abs);
        let greatest = |at: &usize| sizes(at).fold(0.0_f64, f64::max);
        order::sort_by(&mut listed, |a, b| greatest(b).total_cmp(&greatest(a)));
        for (number, it) in comparisons.iter().enumerate() {
            let of = |at: usize| it.case_differences.get(at);
            // Against a setting of this evaluation all comparisons have the same other side.
            if it.is_earlier || number == 0 {
                columns.push((
                    other_side(it, name),
                    Box::new(move |at| Some(shown(of(at)?.before))),
                ));
            }
            columns.push((
                name(&it.setting),
                Box::new(move |at| Some(shown(of(at)?.after))),
            ));
            columns.push((
                "diff".to_owned(),
                Box::new(move |at| Some(flagged(of(at)?))),
            ));
        }
    }
    let head = columns.iter().map(|(head, _)| head.clone()).collect();
    let row = |at: &usize| columns.iter().filter_map(|(_, cell)| cell(*at)).collect();
    let mut rows: Rows = listed.iter().take(CASES_SHOWN).map(row).collect();
    if !rows.is_empty() {
        rows.insert(0, head);
    }
    (rows, note(cases.len() - listed.len(), listed.len()))
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
    points(difference) + mark
}

/// The cases that are not listed.
fn note(others: usize, listed: usize) -> String {
    let mut parts = Vec::new();
    if listed > CASES_SHOWN {
        let more = counted(listed - CASES_SHOWN, "case");
        parts.push(format!("{more} more in --format json"));
    }
    if others > 0 {
        parts.push(format!(
            "{} that passed every trial",
            counted(others, "case")
        ));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("…   ({})\n", parts.join(", "))
}
