//! Compares settings, case by case: with the first one, or with an earlier result.

use super::baseline::{Baseline, BaselineSetting};
use super::decision::{coverage_of, differs_too_much};
use super::figures::{LevelEnds, SettingFigures};
use crate::flow::eval::numbers::difference::{self, Difference, Method};
use crate::flow::eval::numbers::interval::TRIALS_FOR_AN_INTERVAL;
use crate::flow::eval::numbers::threshold::ALPHA;
use crate::flow::eval::numbers::{Counts, exact};
use serde::Serialize;

/// The finding of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Higher,
    Lower,
    /// Not shown.
    Undecided,
    /// One trial a case, and fewer than six cases that differ.
    TooFewPairs,
    /// No case differs.
    NoDifference,
    /// Too different shares of the trials were measured.
    CoverageDiffers,
}

/// The difference of a setting to another.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// The setting.
    pub setting: String,
    /// The other side of the comparison.
    pub against: String,
    /// True if that is an earlier result.
    pub is_earlier: bool,
    /// Mean over the cases, −1..=1.
    pub difference: f64,
    pub ci: Option<LevelEnds>,
    /// The smallest difference that this many trials would have shown four times of five.
    pub mdd80: Option<f64>,
    pub method: Method,
    /// Measured on both sides.
    pub cases: usize,
    /// Of the test that decides.
    pub p_value: f64,
    /// With Holm's correction over all comparisons.
    pub p_corrected: f64,
    /// With one trial a case: how many cases only the other one passes, and only this one.
    pub discordant: Option<(u32, u32)>,
    pub finding: Finding,
    /// What would show a difference that these trials could not.
    pub more: Option<MoreTrials>,
    pub case_differences: Vec<CaseDifference>,
}

/// What would show a difference of a size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct MoreTrials {
    pub difference: f64,
    /// Cases more, with the trials they have.
    pub cases: usize,
    /// Trials a case in all, with the same cases; none if they alone cannot show it.
    pub trials_a_case: Option<u32>,
}

/// A case of a comparison: an element of a list, not a verdict.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseDifference {
    pub id: String,
    /// Of the other one.
    pub before: Counts,
    pub after: Counts,
    pub difference: Option<f64>,
    /// Fisher's exact test with Holm's correction over the cases; from five trials on both sides.
    pub p_corrected: Option<f64>,
    /// True if that shows a difference.
    pub flagged: bool,
}

/// One side: its name, and for each case of the plan its counts and how many trials were planned.
struct ComparedSide<'s> {
    name: &'s str,
    cases: Vec<(Counts, u32)>,
}

impl<'s> ComparedSide<'s> {
    fn of_setting(setting: &'s SettingFigures) -> Self {
        let cases = setting.cases.iter();
        Self {
            name: &setting.name,
            cases: cases.map(|case| (case.counts(), case.planned())).collect(),
        }
    }

    /// In the order of the setting's cases.
    fn of_earlier(earlier: &'s BaselineSetting, setting: &SettingFigures) -> Self {
        let by_id: std::collections::HashMap<&str, (Counts, u32)> = earlier
            .cases
            .iter()
            .map(|case| (case.id.as_str(), (case.counts(), case.planned())))
            .collect();
        let none = (
            Counts {
                passed: 0,
                measured: 0,
            },
            0,
        );
        let counts = |id: &str| by_id.get(id).copied().unwrap_or(none);
        Self {
            name: &earlier.name,
            cases: setting.cases.iter().map(|case| counts(&case.id)).collect(),
        }
    }
}

/// All settings against the earlier result, or else against the first one. Those without a common case have no comparison.
pub(super) fn compare_settings(
    settings: &[SettingFigures],
    earlier: Option<&Baseline>,
) -> Vec<Comparison> {
    let mut found = Vec::new();
    match earlier {
        Some(earlier) => {
            for setting in settings {
                let Some(before) = earlier.setting_for(&setting.name) else {
                    continue;
                };
                let before = ComparedSide::of_earlier(before, setting);
                found.extend(compare(&before, setting, true));
            }
        }
        None => {
            if let Some((first, others)) = settings.split_first() {
                let first = ComparedSide::of_setting(first);
                found.extend(
                    others
                        .iter()
                        .filter_map(|setting| compare(&first, setting, false)),
                );
            }
        }
    }
    let p_values: Vec<f64> = found.iter().map(|comparison| comparison.p_value).collect();
    for (comparison, corrected) in found.iter_mut().zip(exact::holm(&p_values)) {
        comparison.p_corrected = corrected;
        if comparison.finding == Finding::Undecided && corrected <= ALPHA {
            comparison.finding = match comparison.difference > 0.0 {
                true => Finding::Higher,
                false => Finding::Lower,
            };
            comparison.more = None;
        }
    }
    found
}

/// One comparison, not yet corrected for the others: undecided unless something forbids a decision.
fn compare(
    before: &ComparedSide,
    setting: &SettingFigures,
    is_earlier: bool,
) -> Option<Comparison> {
    let after = ComparedSide::of_setting(setting);
    let pairs: Vec<(Counts, Counts)> = before
        .cases
        .iter()
        .zip(&after.cases)
        .map(|(before, after)| (before.0, after.0))
        .collect();
    let shown = difference::compare(&pairs)?;
    let finding = match &shown {
        _ if coverage_differs(before, &after) => Finding::CoverageDiffers,
        _ if shown.method == Method::None => Finding::NoDifference,
        _ if shown.has_too_few_pairs() => Finding::TooFewPairs,
        _ => Finding::Undecided,
    };
    Some(Comparison {
        setting: setting.name.clone(),
        against: before.name.to_owned(),
        is_earlier,
        difference: shown.difference,
        ci: shown.interval.map(LevelEnds::from),
        mdd80: shown.detectable,
        method: shown.method,
        cases: shown.cases,
        p_value: shown.p_value,
        p_corrected: shown.p_value,
        discordant: shown.discordant,
        finding,
        more: (finding == Finding::Undecided)
            .then(|| plan_more(&shown, &pairs))
            .flatten(),
        case_differences: case_differences(setting, &pairs),
    })
}

fn coverage_differs(before: &ComparedSide, after: &ComparedSide) -> bool {
    let of = |side: &ComparedSide| {
        coverage_of(
            side.cases
                .iter()
                .map(|(counts, planned)| (counts.measured, *planned)),
        )
    };
    let (before_all, before_cases) = of(before);
    let (after_all, after_cases) = of(after);
    differs_too_much([before_all, after_all])
        || differs_too_much(before_cases)
        || differs_too_much(after_cases)
}

/// What would show the greatest round difference that needs more than there is.
fn plan_more(shown: &Difference, pairs: &[(Counts, Counts)]) -> Option<MoreTrials> {
    let steps = [0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01];
    let needs_more = |step: &f64| shown.cases_for(*step) > shown.cases;
    let difference = steps.into_iter().find(needs_more)?;
    let trials = pairs
        .iter()
        .map(|(before, after)| before.measured.max(after.measured))
        .max()?;
    let factor = shown.trials_factor_for(difference);
    let trials = factor.map(|factor| (f64::from(trials) * factor).ceil());
    Some(MoreTrials {
        difference,
        cases: shown.cases_for(difference) - shown.cases,
        trials_a_case: trials
            .filter(|trials| *trials < 1e6)
            .map(|trials| trials as u32),
    })
}

/// All cases in the order of the plan; flagged by Fisher's test with Holm's correction over those that have enough trials.
fn case_differences(setting: &SettingFigures, pairs: &[(Counts, Counts)]) -> Vec<CaseDifference> {
    let enough = |counts: Counts| counts.measured >= TRIALS_FOR_AN_INTERVAL;
    let tested: Vec<usize> = (0..pairs.len())
        .filter(|at| enough(pairs[*at].0) && enough(pairs[*at].1))
        .collect();
    let test = |at: &usize| {
        let (before, after) = pairs[*at];
        exact::fisher(
            (before.passed, before.measured),
            (after.passed, after.measured),
        )
    };
    let p_values: Vec<f64> = tested.iter().map(test).collect();
    let mut corrected = vec![None; pairs.len()];
    for (at, p) in tested.into_iter().zip(exact::holm(&p_values)) {
        corrected[at] = Some(p);
    }
    let cases = setting.cases.iter().zip(pairs).zip(corrected);
    cases
        .map(|((case, (before, after)), p_corrected)| CaseDifference {
            id: case.id.clone(),
            before: *before,
            after: *after,
            difference: before
                .rate()
                .zip(after.rate())
                .map(|(before, after)| after - before),
            p_corrected,
            flagged: p_corrected.is_some_and(|p| p <= ALPHA),
        })
        .collect()
}
