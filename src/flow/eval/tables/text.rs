//! The table of a suite: settings side by side as columns, the tests of their differences, and the answer.

use super::answer;
use super::cases::{self, CASES_SHOWN};
use super::conclusions::{self, correction};
use super::junit::message;
use super::words::{
    CaseNames, NOTHING, Rows, SCORES_SHOWN, amount, ends, figure, name, percent, percent_figure,
    reason, warning as one_line,
};
use crate::flow::eval::numbers::interval::Interval;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::figures::{Durations, ScoreFigures, SettingFigures};
use crate::flow::eval::trial::{Trial, TrialOutcome};
use crate::text::amounts::{counted, format_millis};
use crate::text::disguise::printable;
use crate::text::shorten::in_short;
use crate::text::table::{Column, Table};
use std::collections::{BTreeSet, HashSet};

/// Columns between two columns.
const GAP: usize = 3;

/// The table and, below all that explains it, the answer. At most `width` columns wide, as long as a single setting fits.
pub(crate) fn text(
    summary: &Summary,
    trials: &[Trial],
    names: &CaseNames,
    width: Option<usize>,
) -> String {
    let warnings = summary.warnings.iter();
    let warnings: Vec<String> = warnings
        .map(|it| format!("warning: {}\n", one_line(it)))
        .collect();
    let (cases, note) = cases::rows(summary, names);
    let parts = [
        format!("{}   {}", name(&summary.suite), about(summary)),
        warnings.concat(),
        in_blocks(rows(summary), width),
        conclusions::lines(summary),
        in_blocks(cases, width) + &note,
        failures(summary, trials, names),
        answer::lines(summary, names),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|it| !it.is_empty()).collect();
    parts.join("\n")
}

/// The reason why each case failed, or no grader judged it, in its first such trial, and where that trial's workspace is.
fn failures(summary: &Summary, trials: &[Trial], names: &CaseNames) -> String {
    let mut seen = HashSet::new();
    let first_of_case = trials.iter().filter(|trial| {
        let is_explained = trial.outcome == TrialOutcome::Failed || trial.stop_reason == "grader";
        is_explained && seen.insert(&trial.case)
    });
    let explained: Vec<&Trial> = first_of_case.collect();
    let mut out = String::new();
    for trial in explained.iter().take(CASES_SHOWN) {
        let setting = match summary.settings.len() {
            1 => String::new(),
            _ => format!(" {}", name(&trial.setting)),
        };
        let (case, number, why) = (name(&trial.case), trial.number, one_line(&message(trial)));
        let beginning = names.beginning(&trial.case);
        let input = beginning.map_or_else(String::new, |input| format!(" \"{input}\""));
        let place = in_short(&printable(&trial.workspace), usize::MAX);
        out.push_str(&format!(
            "{case}.{number}{setting}{input}: {why}\n    {place}\n"
        ));
    }
    if let Some(more @ 1..) = explained.len().checked_sub(CASES_SHOWN) {
        let more = counted(more, "case");
        out.push_str(&format!("…   ({more} more in --format json)\n"));
    }
    out
}

/// What was planned, how much of it there is, and what the intervals are about, a line each.
pub(super) fn about(summary: &Summary) -> String {
    let cases = summary.settings.first().map_or(0, |it| it.cases.len());
    let planned: u64 = summary.settings.iter().map(|it| it.trials_planned).sum();
    let like = match cases {
        1 => "this case",
        _ => "similar cases",
    };
    let correction = match correction(summary) {
        "" => "",
        _ => ", uncorrected",
    };
    format!(
        "{} × {}   measured {} of {planned}   analysis {}\n95 % intervals over {like}{correction}\n",
        counted(cases, "case"),
        counted(summary.trials as usize, "trial"),
        summary.look.trials,
        summary.look.number,
    )
}

/// The cell of a setting, if it has one.
type CellOf<'c> = dyn Fn(&SettingFigures) -> Option<String> + 'c;

/// The figures, a row each; the first row has the names of the settings.
pub(super) fn rows(summary: &Summary) -> Rows {
    let settings = &summary.settings;
    let mut rows = Rows::new();
    let mut add = |label: &str, cell: &CellOf<'_>| {
        let cells: Vec<Option<String>> = settings.iter().map(cell).collect();
        // The names are there also if all are empty.
        if rows.is_empty() || cells.iter().any(Option::is_some) {
            let shown = cells
                .into_iter()
                .map(|it| it.unwrap_or_else(|| NOTHING.to_owned()));
            rows.push(std::iter::once(label.to_owned()).chain(shown).collect());
        }
    };
    add("", &|it| Some(name(&it.name)));
    add("rate", &|it| {
        Some(rate(it).unwrap_or_else(|| NOTHING.to_owned()))
    });
    add("these cases only", &|it| {
        let ci = it.ci_these_cases.filter(|_| it.cases.len() > 1)?;
        Some(ends(ci.lower, ci.upper))
    });
    let is_any_missing = settings.iter().any(|it| it.missing() > 0);
    add("if missing counted", &|it| {
        let Interval { lower, upper } = it.bounds.filter(|_| is_any_missing)?;
        let (lower, upper) = (percent_figure(lower), percent_figure(upper));
        Some(format!("{lower} … {upper} %"))
    });
    add_scores(settings, &mut add);
    if let Some(k) = k_of(settings) {
        add(&format!("pass@{k} / pass^{k}"), &|it| chances(it, k));
    }
    add("cost, tokens, s / pass", &|it| Some(per_success(it)));
    let is_any_lost = settings.iter().any(|it| it.cost_not_measured > 0.0);
    add("cost, not measured", &|it| {
        is_any_lost.then(|| amount(it.cost_not_measured))
    });
    add("tokens / trial", &|it| {
        Some(it.tokens?.checked_div(it.trials_measured)?.to_string())
    });
    add("time median, p90", &|it| {
        let Durations { median, p90 } = it.duration_ms?;
        Some(format!("{}, {}", format_millis(median), format_millis(p90)))
    });
    let is_any_retried = settings.iter().any(|it| it.retries > 0);
    add("retries (in times)", &|it| {
        is_any_retried.then(|| it.retries.to_string())
    });
    add("not measured", &|it| Some(not_measured(it)));
    rows
}

/// The mean scores: of assertions where they differ from the rates, and those that graders named.
fn add_scores(settings: &[SettingFigures], add: &mut dyn FnMut(&str, &CellOf<'_>)) {
    let differs = |it: &SettingFigures| {
        let both = it.score.zip(it.rate);
        both.is_some_and(|(score, rate)| (score - rate).abs() > 1e-9)
    };
    let is_any_other = settings.iter().any(differs);
    add("score", &|it| {
        let score = it.score.filter(|_| is_any_other)?;
        Some(format!("{score:.2}"))
    });
    let scores: BTreeSet<&String> = settings.iter().flat_map(|it| it.scores.keys()).collect();
    for score in scores.into_iter().take(SCORES_SHOWN) {
        add(&format!("score {}", name(score)), &|it| {
            let ScoreFigures { mean, ci, .. } = it.scores.get(score)?;
            let ends = ci.map(|ci| format!("  [{}, {}]", figure(ci.lower), figure(ci.upper)));
            Some(figure(*mean) + ends.as_deref().unwrap_or_default())
        });
    }
}

/// The cost, the tokens and the time of all measured trials for each that passed.
fn per_success(setting: &SettingFigures) -> String {
    let shown = |part: Option<String>| part.unwrap_or_else(|| NOTHING.to_owned());
    format!(
        "{}, {}, {}",
        shown(setting.cost_per_success.map(amount)),
        shown(setting.tokens_per_success.map(|it| format!("{it:.0}"))),
        shown(setting.seconds_per_success.map(|it| format!("{it:.1}")))
    )
}

fn rate(setting: &SettingFigures) -> Option<String> {
    let rate = setting.rate?;
    Some(match &setting.ci {
        Some(ci) => format!("{}  {}", percent(rate), ends(ci.lower, ci.upper)),
        // Too few trials of the only case: the count says more.
        None => {
            let passed: u32 = setting.cases.iter().map(|case| case.passed).sum();
            format!("{passed}/{}", setting.trials_measured)
        }
    })
}

/// The greatest k that all settings have, up to the planned trials. None for one trial.
fn k_of(settings: &[SettingFigures]) -> Option<u32> {
    settings
        .iter()
        .filter_map(|it| it.pass_at_k.keys().next_back())
        .min()
        .copied()
        .filter(|k| *k > 1)
}

fn chances(setting: &SettingFigures, k: u32) -> Option<String> {
    let (any, all) = (setting.pass_at_k.get(&k)?, setting.pass_hat_k.get(&k)?);
    let mut shown = format!("{} / {}", percent(*any), percent(*all));
    let about = setting.pass_k_intervals.iter().find(|it| it.k == k);
    if let Some(cases @ 1..) = about.map(|it| it.cases_left_out) {
        shown.push_str(&format!(" ({} left out)", counted(cases, "case")));
    }
    Some(shown)
}

/// The number of trials not measured, and the reasons.
fn not_measured(setting: &SettingFigures) -> String {
    let reasons: Vec<_> = setting.not_measured.iter().collect();
    match reasons.as_slice() {
        [] => "0".to_owned(),
        [(only, count)] => format!("{count} ({})", reason(only)),
        several => {
            let parts: Vec<String> = several
                .iter()
                .map(|(why, count)| format!("{count} {}", reason(why)))
                .collect();
            format!("{} ({})", setting.missing(), parts.join(", "))
        }
    }
}

/// Rows with their cells below each other, in blocks.
fn in_blocks(rows: Rows, width: Option<usize>) -> String {
    let table = Table {
        rows,
        columns: vec![Column::Name],
        gap: GAP,
    };
    table.blocks(width)
}
