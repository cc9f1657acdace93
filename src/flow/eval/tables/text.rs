//! The table of a suite: settings side by side as columns, what they differ by, and the verdict.

use super::cases::{self, CASES_SHOWN};
use super::conclusions;
use super::junit::message;
use super::words::{
    NOTHING, Rows, amount, ends, name, percent, percent_figure, reason, warning as one_line,
};
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::figures::SettingFigures;
use crate::flow::eval::trial::{Trial, TrialOutcome};
use crate::text::amounts::{counted, format_millis};
use crate::text::disguise::printable;
use crate::text::shorten::in_short;
use crate::text::table::{Column, Table};
use std::collections::HashSet;

/// Columns between two columns.
const GAP: usize = 3;

/// The table, with a newline at its end. At most `width` columns wide, as long as a single setting fits.
pub(crate) fn text((summary, trials): (&Summary, &[Trial]), width: Option<usize>) -> String {
    let mut out = head(summary);
    out.push('\n');
    for warning in &summary.warnings {
        out.push_str(&format!(
            "warning: {}
",
            one_line(warning)
        ));
    }
    if !summary.warnings.is_empty() {
        out.push('\n');
    }
    out.push_str(&in_blocks(rows(summary), width));
    out.push('\n');
    for line in conclusions::lines(summary) {
        out.push_str(&line);
        out.push('\n');
    }
    let (rows, note) = cases::rows(summary);
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&in_blocks(rows, width));
    }
    if let Some(note) = note {
        out.push_str(&format!("{note}\n"));
    }
    push_failures(&mut out, summary, trials);
    out
}

/// Adds why each case failed, or no grader judged it, in its first such trial, and where that trial's workspace is.
fn push_failures(out: &mut String, summary: &Summary, trials: &[Trial]) {
    let mut seen = HashSet::new();
    let first_of_case = trials.iter().filter(|trial| {
        let is_explained = trial.outcome == TrialOutcome::Failed || trial.stop_reason == "grader";
        is_explained && seen.insert(&trial.case)
    });
    let explained: Vec<&Trial> = first_of_case.collect();
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
}

/// The first line: what was planned, and how much of it there is.
fn head(summary: &Summary) -> String {
    let cases = summary
        .settings
        .first()
        .map_or(0, |setting| setting.cases.len());
    let planned: u64 = summary
        .settings
        .iter()
        .map(|setting| setting.trials_planned)
        .sum();
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
        "{}   {} × {}   measured {measured} of {planned}{share}   look {}   {about}, 95 %\n",
        name(&summary.suite),
        counted(cases, "case"),
        counted(summary.trials as usize, "trial"),
        summary.look.number,
    )
}

/// The figures, a row each; the first row has the names of the settings.
fn rows(summary: &Summary) -> Rows {
    let settings = &summary.settings;
    let mut rows = Rows::new();
    let mut add = |label: &str, cell: &dyn Fn(&SettingFigures) -> String| {
        let cells = settings.iter().map(cell);
        rows.push(std::iter::once(label.to_owned()).chain(cells).collect());
    };
    let any = |has: &dyn Fn(&SettingFigures) -> bool| settings.iter().any(has);
    add("", &|setting| name(&setting.name));
    add("rate", &rate);
    if any(&|setting| setting.ci_these_cases.is_some() && setting.cases.len() > 1) {
        add("these cases only", &|setting| {
            let ends = setting.ci_these_cases.map(|ci| ends(ci.lower, ci.upper));
            ends.unwrap_or_else(nothing)
        });
    }
    if any(&|setting| setting.missing() > 0) {
        add("if missing counted", &|setting| {
            let bounds = setting.bounds.map(|bounds| {
                format!(
                    "{} … {} %",
                    percent_figure(bounds.lower),
                    percent_figure(bounds.upper)
                )
            });
            bounds.unwrap_or_else(nothing)
        });
    }
    if any(&|setting| {
        setting
            .score
            .zip(setting.rate)
            .is_some_and(|(score, rate)| (score - rate).abs() > 1e-9)
    }) {
        add("score", &|setting| {
            setting
                .score
                .map_or_else(nothing, |score| format!("{score:.2}"))
        });
    }
    if let Some(k) = k_of(summary) {
        add(&format!("pass@{k} / pass^{k}"), &|setting| {
            chances(setting, k)
        });
    }
    if any(&|setting| setting.cost.is_some()) {
        add("cost / success", &|setting| {
            setting.cost_per_success.map_or_else(nothing, amount)
        });
    }
    if any(&|setting| setting.cost_not_measured > 0.0) {
        add("cost, not measured", &|setting| {
            amount(setting.cost_not_measured)
        });
    }
    if any(&|setting| setting.tokens.is_some()) {
        add("tokens / trial", &|setting| {
            let tokens = setting
                .tokens
                .and_then(|tokens| tokens.checked_div(setting.trials_measured));
            tokens.map_or_else(nothing, |tokens| tokens.to_string())
        });
    }
    if any(&|setting| setting.duration_ms.is_some()) {
        let shown = |ms: u64| format_millis(ms);
        add("time median, p90", &|setting| {
            let times = setting
                .duration_ms
                .map(|times| format!("{}, {}", shown(times.median), shown(times.p90)));
            times.unwrap_or_else(nothing)
        });
    }
    if any(&|setting| setting.retries > 0) {
        add("retries (in times)", &|setting| setting.retries.to_string());
    }
    add("not measured", &not_measured);
    rows
}

fn nothing() -> String {
    NOTHING.to_owned()
}

fn rate(setting: &SettingFigures) -> String {
    let Some(rate) = setting.rate else {
        return nothing();
    };
    match (&setting.ci, setting.cases.as_slice()) {
        (Some(ci), _) => format!("{}  {}", percent(rate), ends(ci.lower, ci.upper)),
        // Too few trials of the only case: the count says more.
        (None, [case]) => format!("{}/{}", case.passed, case.passed + case.failed),
        (None, cases) => {
            let passed: u32 = cases.iter().map(|case| case.passed).sum();
            format!("{passed}/{}", setting.trials_measured)
        }
    }
}

/// The greatest k that all settings have, up to the planned trials. None for one trial.
fn k_of(summary: &Summary) -> Option<u32> {
    let greatest = |setting: &SettingFigures| setting.pass_at_k.keys().next_back().copied();
    summary
        .settings
        .iter()
        .filter_map(greatest)
        .min()
        .filter(|k| *k > 1)
}

fn chances(setting: &SettingFigures, k: u32) -> String {
    let chances = setting.pass_at_k.get(&k).zip(setting.pass_hat_k.get(&k));
    let Some((any, all)) = chances else {
        return nothing();
    };
    let left_out = setting
        .pass_k_intervals
        .iter()
        .find(|interval| interval.k == k);
    match left_out.map_or(0, |interval| interval.cases_left_out) {
        0 => format!("{} / {}", percent(*any), percent(*all)),
        cases => format!(
            "{} / {} ({} left out)",
            percent(*any),
            percent(*all),
            counted(cases, "case")
        ),
    }
}

/// How many trials, and why.
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
