//! The answer of an evaluation, to be read aloud: the verdict with its rates, the cases by which it can be checked, and what
//! was paid. A line each, of at most [`WIDTH`] columns, whatever is named in it.

use super::conclusions::{DIFFERENT_SHARES, correction, other_side, reason};
use super::words::{CaseNames, amount, ends, percent, points, short};
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::comparison::Comparison;
use crate::flow::eval::summary::decision::VerdictReason;
use crate::flow::eval::summary::figures::CaseFigures;
use crate::flow::eval::summary::finding::{Finding, FindingReason};
use crate::flow::eval::trial::{Activity, Trial};
use crate::text::amounts::{counted, grouped};
use crate::text::order;
use crate::text::shorten::columns_of;

/// Columns of a terminal that is not asked for its width.
const WIDTH: usize = 80;

/// The most cases that are named for one reason.
const MOST_NAMED: usize = 8;

/// The verdict and the cases, a line each, which a newline ends. Comparisons that decide alone are the verdict.
pub(crate) fn lines(summary: &Summary, names: &CaseNames) -> String {
    let of_comparisons = matches!(
        summary.decision,
        VerdictReason::ShownLower { .. } | VerdictReason::NotShownLower
    );
    let mut out = String::new();
    if !of_comparisons || summary.comparisons.is_empty() {
        let (verdict, why) = (summary.verdict.name(), reason(summary));
        out += &match summary.settings.as_slice() {
            [only] if summary.comparisons.is_empty() => {
                let interval = only.ci.map(|ci| format!(" {}", ends(ci.lower, ci.upper)));
                let rate = only.rate.map_or_else(String::new, |rate| {
                    let interval = interval.unwrap_or_default();
                    format!("{} passes {}{interval}: ", short(&only.name), percent(rate))
                });
                sentence(&format!("{verdict}: {rate}"), &why)
            }
            _ => sentence(&format!("{verdict}: "), &why),
        };
    }
    for comparison in &summary.comparisons {
        out += &compared(comparison, correction(summary));
        out += &differing(comparison, names);
    }
    if let ([only], []) = (&*summary.settings, &*summary.comparisons) {
        let of = |is_meant: &dyn Fn(&CaseFigures) -> bool| {
            let cases = only.cases.iter().filter(|it| is_meant(it));
            cases.map(|it| names.short(&it.id)).collect()
        };
        out += &listed(
            &[
                ("failed", of(&|it| it.failed > 0)),
                ("not measured", of(&|it| it.not_measured > 0)),
            ],
            &[],
        );
    }
    out
}

/// Two parts on one line, or on two if they are too long for one.
fn sentence(start: &str, end: &str) -> String {
    match columns_of(start) + columns_of(end) {
        ..=WIDTH => format!("{start}{end}\n"),
        _ => format!("{}\n  {end}\n", start.trim_end()),
    }
}

/// `new passes 90 %, base 70 %: better by 20 points [+2, +38]`.
fn compared(comparison: &Comparison, correction: &str) -> String {
    let cases = &comparison.case_differences;
    let both = cases.iter().filter(|it| it.difference.is_some());
    let rates: Vec<(f64, f64)> = both
        .filter_map(|it| Some((it.before.rate()?, it.after.rate()?)))
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64| {
        percent(rates.iter().map(of).sum::<f64>() / rates.len().max(1) as f64)
    };
    let (setting, against) = (short(&comparison.setting), other_side(comparison, short));
    let (after, before) = (mean(|it| it.1), mean(|it| it.0));
    let rates = format!("{setting} passes {after}, {against} {before}: ");
    let interval = comparison.ci.map_or_else(String::new, |ci| {
        format!(" [{}, {}]{correction}", points(ci.lower), points(ci.upper))
    });
    let difference = points(comparison.difference);
    let by = difference.trim_start_matches(['+', '−']);
    let found = match (comparison.finding, comparison.why) {
        (_, Some(FindingReason::CoverageDiffers)) => DIFFERENT_SHARES.to_owned(),
        (Finding::Same, _) => "no case differs".to_owned(),
        (Finding::Higher, _) => format!("better by {by} points{interval}"),
        (Finding::Lower, _) => format!("worse by {by} points{interval}"),
        (Finding::Undecided, why) => {
            let clearly = match comparison.difference {
                _ if why == Some(FindingReason::TooFewPairs) => "too few cases differ",
                it if it > 0.0 => "not clearly better",
                it if it < 0.0 => "not clearly worse",
                _ => "no clear difference",
            };
            format!("{clearly}, {difference} points{interval}")
        }
    };
    sentence(&rates, &found)
}

/// `better: a, b; worse: c; 9 cases alike`.
fn differing(comparison: &Comparison, names: &CaseNames) -> String {
    let mut cases: Vec<_> = comparison.case_differences.iter().collect();
    let size = |difference: Option<f64>| difference.unwrap_or(0.0).abs();
    order::sort_by(&mut cases, |a, b| {
        size(b.difference).total_cmp(&size(a.difference))
    });
    let of = |is_meant: fn(f64) -> bool| {
        let meant = cases
            .iter()
            .filter(|it| it.difference.is_some_and(is_meant));
        meant.map(|it| names.short(&it.id)).collect::<Vec<_>>()
    };
    let (better, worse, alike) = (of(|it| it > 0.0), of(|it| it < 0.0), of(|it| it == 0.0));
    let others = cases.len() - better.len() - worse.len() - alike.len();
    let counts = [("alike", alike.len()), ("not compared", others)];
    listed(&[("better", better), ("worse", worse)], &counts)
}

/// As many names as fit into a line, and the numbers of others; nothing if there is none.
fn listed(named: &[(&str, Vec<String>)], counts: &[(&str, usize)]) -> String {
    let with = |most: usize| {
        let mut parts: Vec<String> = named
            .iter()
            .filter(|(_, cases)| !cases.is_empty())
            .map(|(word, cases)| match cases.len().checked_sub(most) {
                Some(more @ 1..) if most > 0 => {
                    format!("{word}: {} and {more} more", cases[..most].join(", "))
                }
                Some(all @ 1..) => format!("{word}: {}", counted(all, "case")),
                _ => format!("{word}: {}", cases.join(", ")),
            })
            .collect();
        let some = counts.iter().filter(|(_, count)| *count > 0);
        parts.extend(some.map(|(word, count)| format!("{} {word}", counted(*count, "case"))));
        parts.join("; ")
    };
    let fitting = (0..=MOST_NAMED).rev().map(with);
    match fitting.reduce(|best, next| {
        if columns_of(&best) <= WIDTH {
            best
        } else {
            next
        }
    }) {
        Some(line) if !line.is_empty() => line + "\n",
        _ => String::new(),
    }
}

/// The number of trials, and what they cost together.
#[derive(Default)]
struct Bill {
    trials: usize,
    /// None if the cost of one is unknown.
    cost: Option<f64>,
    tokens: u64,
}

impl Bill {
    fn of<'t>(trials: impl Iterator<Item = &'t Trial>) -> Self {
        let none = Self {
            cost: Some(0.0),
            ..Self::default()
        };
        trials.fold(none, |sum, it| Self {
            trials: sum.trials + 1,
            cost: sum.cost.zip(it.cost).map(|(sum, cost)| sum + cost),
            tokens: sum.tokens.saturating_add(it.tokens.unwrap_or(0)),
        })
    }

    /// `24 trials, cost 0.42`.
    fn describe(&self, verb: &str) -> String {
        let trials = counted(self.trials, "trial");
        match self.cost {
            Some(cost) => format!("{trials}{verb}, cost {}", amount(cost)),
            None if self.tokens > 0 => {
                format!("{trials}{verb}, {} tokens", grouped(self.tokens))
            }
            None => trials + verb,
        }
    }
}

/// The line that says what this start has run, and whether anything was paid.
pub(crate) fn paid(trials: &[Vec<Trial>]) -> String {
    let of =
        |is_meant: fn(&Trial) -> bool| Bill::of(trials.iter().flatten().filter(|it| is_meant(it)));
    let ran = of(|it| it.activity == Activity::Run);
    let judged = of(|it| it.activity == Activity::Judged).trials;
    let recorded = of(|it| it.duration_ms.is_some());
    let now = match (ran.trials, judged) {
        (0, 0) => "nothing ran, nothing was paid".to_owned(),
        (0, _) => format!("no trial ran, {} judged again", counted(judged, "answer")),
        _ => ran.describe(" ran"),
    };
    if ran.trials == recorded.trials {
        now + "\n"
    } else {
        format!("{now}; recorded: {}\n", recorded.describe(""))
    }
}
