//! The table of a suite: settings side by side as columns, what they differ by, and the verdict.

use super::cases::{self, CASES_SHOWN};
use super::conclusions;
use super::junit::message;
use super::words::{
    NOTHING, Rows, SCORES_SHOWN, amount, ends, figure, name, percent, percent_figure, reason,
    warning as one_line,
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

/// The table, with a newline at its end. At most `width` columns wide, as long as a single setting fits.
pub(crate) fn text(summary: &Summary, trials: &[Trial], width: Option<usize>) -> String {
    let mut warnings = String::new();
    for it in &summary.warnings {
        warnings.push_str(&format!("warning: {}\n", one_line(it)));
    }
    if !warnings.is_empty() {
        warnings.push('\n');
    }
    let (cases, note) = cases::rows(summary);
    let gap = if cases.is_empty() { "" } else { "\n" };
    [
        &*head(summary),
        &*warnings,
        &*in_blocks(rows(summary), width),
        "\n",
        &*conclusions::lines(summary),
        gap,
        &*in_blocks(cases, width),
        &*note,
        &*failures(summary, trials),
    ]
    .concat()
}

/// The reason why each case failed, or no grader judged it, in its first such trial, and where that trial's workspace is.
fn failures(summary: &Summary, trials: &[Trial]) -> String {
    let mut seen = HashSet::new();
    let first_of_case = trials.iter().filter(|trial| {
        let is_explained = trial.outcome == TrialOutcome::Failed || trial.stop_reason == "grader";
        is_explained && seen.insert(&trial.case)
    });
    let explained: Vec<&Trial> = first_of_case.collect();
    let mut out = String::new();
    for (at, trial) in explained.iter().take(CASES_SHOWN).enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        let setting = match summary.settings.len() {
            1 => String::new(),
            _ => format!(" {}", name(&trial.setting)),
        };
        let (case, number, why) = (name(&trial.case), trial.number, one_line(&message(trial)));
        let place = in_short(&printable(&trial.workspace), usize::MAX);
        out.push_str(&format!(
            "{gap}{case}.{number}{setting}: {why}\n    {place}\n"
        ));
    }
    if let Some(more @ 1..) = explained.len().checked_sub(CASES_SHOWN) {
        out.push_str(&format!(
            "…   ({} more in --format json)\n",
            counted(more, "case")
        ));
    }
    out
}

/// The first line: what was planned, and how much of it there is.
fn head(summary: &Summary) -> String {
    let cases = summary.settings.first().map_or(0, |it| it.cases.len());
    let planned: u64 = summary.settings.iter().map(|it| it.trials_planned).sum();
    let measured = summary.look.trials;
    let share = match planned {
        0 => String::new(),
        _ => format!(" ({})", percent(measured as f64 / planned as f64)),
    };
    let about = match cases {
        1 => "rate of this case",
        _ => "rates of cases like these",
    };
    format!(
        "{}   {} × {}   measured {measured} of {planned}{share}   analysis {}   {about}, 95 %\n\n",
        name(&summary.suite),
        counted(cases, "case"),
        counted(summary.trials as usize, "trial"),
        summary.look.number,
    )
}

/// The figures, a row each; the first row has the names of the settings.
pub(super) fn rows(summary: &Summary) -> Rows {
    let settings = &summary.settings;
    let mut rows = Rows::new();
    let mut add =
        |is_meant: bool, label: &str, cell: &dyn Fn(&SettingFigures) -> Option<String>| {
            if is_meant {
                let cells = settings
                    .iter()
                    .map(|it| cell(it).unwrap_or_else(|| NOTHING.to_owned()));
                rows.push(std::iter::once(label.to_owned()).chain(cells).collect());
            }
        };
    let any = |has: &dyn Fn(&SettingFigures) -> bool| settings.iter().any(has);
    add(true, "", &|it| Some(name(&it.name)));
    add(true, "rate", &rate);
    add(
        any(&|it| it.ci_these_cases.is_some() && it.cases.len() > 1),
        "these cases only",
        &|it| it.ci_these_cases.map(|ci| ends(ci.lower, ci.upper)),
    );
    add(any(&|it| it.missing() > 0), "if missing counted", &|it| {
        let Interval { lower, upper } = it.bounds?;
        Some(format!(
            "{} … {} %",
            percent_figure(lower),
            percent_figure(upper)
        ))
    });
    let differs = |score: f64, rate: f64| (score - rate).abs() > 1e-9;
    add(
        any(&|it| {
            it.score
                .zip(it.rate)
                .is_some_and(|(score, rate)| differs(score, rate))
        }),
        "score",
        &|it| it.score.map(|score| format!("{score:.2}")),
    );
    let scores: BTreeSet<&String> = settings.iter().flat_map(|it| it.scores.keys()).collect();
    for score in scores.into_iter().take(SCORES_SHOWN) {
        add(true, &format!("score {}", name(score)), &|it| {
            let ScoreFigures { mean, ci, .. } = it.scores.get(score)?;
            let ends = ci.map(|ci| format!("  [{}, {}]", figure(ci.lower), figure(ci.upper)));
            Some(figure(*mean) + ends.as_deref().unwrap_or_default())
        });
    }
    if let Some(k) = k_of(settings) {
        add(true, &format!("pass@{k} / pass^{k}"), &|it| chances(it, k));
    }
    add(true, "cost, tokens, s / pass", &|it| Some(per_success(it)));
    add(
        any(&|it| it.cost_not_measured > 0.0),
        "cost, not measured",
        &|it| Some(amount(it.cost_not_measured)),
    );
    add(any(&|it| it.tokens.is_some()), "tokens / trial", &|it| {
        Some(it.tokens?.checked_div(it.trials_measured)?.to_string())
    });
    add(
        any(&|it| it.duration_ms.is_some()),
        "time median, p90",
        &|it| {
            let Durations { median, p90 } = it.duration_ms?;
            Some(format!("{}, {}", format_millis(median), format_millis(p90)))
        },
    );
    add(any(&|it| it.retries > 0), "retries (in times)", &|it| {
        Some(it.retries.to_string())
    });
    add(true, "not measured", &|it| Some(not_measured(it)));
    rows
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
