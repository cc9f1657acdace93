//! Compares settings, case by case: with the first one, or with an earlier result.

use super::baseline::Baseline;
use super::figures::{CaseFigures, LevelEnds, SettingFigures};
use super::finding::{Finding, FindingReason, coverage_differs, finding_of, is_credible};
use super::scores::{self, ScoreDifference};
use crate::flow::eval::numbers::difference::{self, Difference, Method};
use crate::flow::eval::numbers::interval::TRIALS_FOR_AN_INTERVAL;
use crate::flow::eval::numbers::threshold::ALPHA;
use crate::flow::eval::numbers::{Counts, exact};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

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
    /// The cases that only the other one passes, and those that only this one passes; with one trial a case.
    pub discordant: Option<(u32, u32)>,
    pub finding: Finding,
    pub why: Option<FindingReason>,
    /// By their names.
    pub scores: BTreeMap<String, ScoreDifference>,
    /// The trials that would show a difference which these could not; none where the number would be a guess.
    pub more: Option<MoreTrials>,
    pub case_differences: Vec<CaseDifference>,
}

/// The fewest cases from which more are planned.
const CASES_TO_PLAN: usize = 10;

/// The trials that would show the observed difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct MoreTrials {
    /// Without its sign.
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

/// All settings against the earlier result, or else against the first one. Those without a common case have no comparison.
pub(super) fn compare_settings(
    settings: &[SettingFigures],
    earlier: Option<&Baseline>,
    look: u32,
) -> Vec<Comparison> {
    let first = settings.first();
    let compared = settings
        .iter()
        .skip(usize::from(earlier.is_none()))
        .filter_map(|setting| match (earlier, first) {
            (Some(earlier), _) => {
                let before = earlier.setting_for(&setting.name)?;
                compare(&before.name, &before.cases, setting, true)
            }
            (None, first) => compare(&first?.name, &first?.cases, setting, false),
        });
    let mut found: Vec<Comparison> = compared.collect();
    let p_values: Vec<f64> = found.iter().map(|comparison| comparison.p_value).collect();
    for (comparison, corrected) in found.iter_mut().zip(exact::holm(&p_values)) {
        comparison.p_corrected = corrected;
        comparison.finding = finding_of(comparison.difference, corrected, comparison.why, look);
        if comparison.finding != Finding::Undecided {
            comparison.more = None;
        }
    }
    let compared = found.iter_mut();
    scores::conclude(compared.flat_map(|it| it.scores.values_mut()), look);
    found
}

/// One comparison, not yet corrected for the others and undecided. An earlier result has
/// the cases of the plan, perhaps in another order.
fn compare(
    against: &str,
    earlier: &[CaseFigures],
    setting: &SettingFigures,
    is_earlier: bool,
) -> Option<Comparison> {
    let by_id: HashMap<&str, &CaseFigures> = earlier.iter().map(|it| (&*it.id, it)).collect();
    let cases = setting.cases.iter();
    let both: Vec<(&CaseFigures, &CaseFigures)> = cases
        .filter_map(|after| Some((*by_id.get(&*after.id)?, after)))
        .collect();
    let pairs: Vec<(Counts, Counts)> = both
        .iter()
        .map(|(before, after)| (before.counts(), after.counts()))
        .collect();
    let shown = difference::compare(&pairs)?;
    let differs = coverage_differs(
        both.iter().map(|(before, _)| before.coverage()),
        both.iter().map(|(_, after)| after.coverage()),
    );
    let why = FindingReason::of(differs, &shown);
    Some(Comparison {
        setting: setting.name.clone(),
        against: against.to_owned(),
        is_earlier,
        difference: shown.difference,
        ci: shown.interval.map(LevelEnds::from),
        mdd80: shown.detectable,
        method: shown.method,
        cases: shown.cases,
        p_value: shown.p_value,
        p_corrected: shown.p_value,
        discordant: shown.discordant,
        finding: Finding::Undecided,
        more: match why {
            None => plan_more(&shown, &pairs),
            Some(_) => None,
        },
        why,
        scores: scores::compare_scores(&both),
        case_differences: case_differences(setting, &pairs),
    })
}

/// The trials that would show the observed difference, four times of five. None where that is a guess: of fewer than ten
/// cases too little is known, and a difference near 0 is mostly noise.
fn plan_more(shown: &Difference, pairs: &[(Counts, Counts)]) -> Option<MoreTrials> {
    let difference = shown.difference.abs();
    let needed = shown.cases_for(difference);
    let cases = needed.checked_sub(shown.cases).filter(|more| *more > 0)?;
    if shown.cases < CASES_TO_PLAN || !is_credible(shown.cases as u64, cases as u64) {
        return None;
    }
    let trials = pairs
        .iter()
        .flat_map(|(before, after)| [before, after])
        .map(|side| side.measured)
        .max()?;
    let factor = shown.trials_factor_for(difference);
    let trials = factor.map(|factor| (f64::from(trials) * factor).ceil());
    Some(MoreTrials {
        difference,
        cases,
        trials_a_case: trials
            .filter(|trials| *trials < 1e6)
            .map(|trials| trials as u32),
    })
}

/// All cases in the order of the plan; flagged by Fisher's test with Holm's correction over those that have enough trials.
fn case_differences(setting: &SettingFigures, pairs: &[(Counts, Counts)]) -> Vec<CaseDifference> {
    let enough = |counts: &Counts| counts.measured >= TRIALS_FOR_AN_INTERVAL;
    let is_tested = |(before, after): &&(Counts, Counts)| enough(before) && enough(after);
    let p_values: Vec<f64> = pairs
        .iter()
        .filter(is_tested)
        .map(|(before, after)| exact::fisher(*before, *after))
        .collect();
    let mut corrected = exact::holm(&p_values).into_iter();
    setting
        .cases
        .iter()
        .zip(pairs)
        .map(|(case, pair)| {
            let (before, after) = *pair;
            let p_corrected = if is_tested(&pair) {
                corrected.next()
            } else {
                None
            };
            let rates = before.rate().zip(after.rate());
            CaseDifference {
                id: case.id.clone(),
                before,
                after,
                difference: rates.map(|(before, after)| after - before),
                p_corrected,
                flagged: p_corrected.is_some_and(|p| p <= ALPHA),
            }
        })
        .collect()
}
