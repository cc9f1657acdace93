//! Compares the named scores that graders give, case by case.

use super::figures::{CaseFigures, LevelEnds};
use super::finding::{Finding, FindingReason, coverage_differs, finding_of};
use crate::flow::eval::numbers::difference::{Method, compare_means};
use crate::flow::eval::numbers::exact;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a score differs by from that of another setting, paired by case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScoreDifference {
    pub difference: f64,
    pub ci: Option<LevelEnds>,
    pub method: Method,
    /// That have it on both sides.
    pub cases: usize,
    pub p_value: f64,
    /// With Holm's correction over all scores of all comparisons.
    pub p_corrected: f64,
    pub finding: Finding,
    pub why: Option<FindingReason>,
}

/// The differences of all scores that some case has on both sides, not yet corrected for each other.
pub(super) fn compare_scores(
    pairs: &[(&CaseFigures, &CaseFigures)],
) -> BTreeMap<String, ScoreDifference> {
    let difference = |name: &String| {
        let scores = |case: &CaseFigures| case.scores.get(name).copied();
        let both = pairs
            .iter()
            .filter_map(|(before, after)| Some(scores(after)?.mean - scores(before)?.mean));
        let shown = compare_means(&both.collect::<Vec<f64>>(), None)?;
        let coverage =
            |case: &CaseFigures| (scores(case).map_or(0, |it| it.trials), case.planned());
        let differs = coverage_differs(
            pairs.iter().map(|(before, _)| coverage(before)),
            pairs.iter().map(|(_, after)| coverage(after)),
        );
        Some(ScoreDifference {
            difference: shown.difference,
            ci: shown.interval.map(LevelEnds::from),
            method: shown.method,
            cases: shown.cases,
            p_value: shown.p_value,
            p_corrected: shown.p_value,
            finding: Finding::Undecided,
            why: FindingReason::of(differs, &shown),
        })
    };
    let names: BTreeSet<&String> = pairs
        .iter()
        .flat_map(|(_, after)| after.scores.keys())
        .collect();
    let named = names.into_iter();
    named
        .filter_map(|name| Some((name.clone(), difference(name)?)))
        .collect()
}

/// Corrects the differences for each other, and says what they show at this look.
pub(super) fn conclude<'s>(scores: impl Iterator<Item = &'s mut ScoreDifference>, look: u32) {
    let mut all: Vec<&mut ScoreDifference> = scores.collect();
    let p_values: Vec<f64> = all.iter().map(|score| score.p_value).collect();
    for (score, corrected) in all.iter_mut().zip(exact::holm(&p_values)) {
        score.p_corrected = corrected;
        score.finding = finding_of(score.difference, corrected, score.why, look);
    }
}
