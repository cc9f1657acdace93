//! The findings of comparisons, and what keeps a test from one.

use crate::flow::eval::numbers::difference::{Difference, Method};
use crate::flow::eval::numbers::threshold::alpha_of_look;
use serde::Serialize;

/// Shares of measured trials that differ by more allow no verdict.
const COVERAGE_MAY_DIFFER: f64 = 0.1;

/// The finding of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Higher,
    Lower,
    /// Not shown.
    Undecided,
    /// No case differs.
    Same,
}

/// The reason why a test cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FindingReason {
    /// One trial a case, and fewer than six cases that differ.
    TooFewPairs,
    NoDifference,
    /// Too different shares of the trials were measured.
    CoverageDiffers,
}

impl FindingReason {
    pub(super) fn of(coverage_differs: bool, shown: &Difference) -> Option<Self> {
        match shown {
            _ if coverage_differs => Some(Self::CoverageDiffers),
            _ if shown.method == Method::None => Some(Self::NoDifference),
            _ if shown.has_too_few_pairs() => Some(Self::TooFewPairs),
            _ => None,
        }
    }
}

/// The finding of a test whose p-value is corrected for the others. At a later look it must be smaller.
pub(super) fn finding_of(
    difference: f64,
    p_corrected: f64,
    why: Option<FindingReason>,
    look: u32,
) -> Finding {
    match why {
        Some(FindingReason::NoDifference) => Finding::Same,
        None if p_corrected <= alpha_of_test(look) && difference > 0.0 => Finding::Higher,
        None if p_corrected <= alpha_of_test(look) => Finding::Lower,
        _ => Finding::Undecided,
    }
}

/// The p-value of both sides that shows a difference at a look.
pub(crate) fn alpha_of_test(look: u32) -> f64 {
    2.0 * alpha_of_look(look)
}

/// The most that a plan for more may ask for, as a multiple of what there is: further away, the noise of the estimate decides.
const MOST_MORE: u64 = 4;

/// True if so many cases or trials are enough to foretell that so many more would decide.
pub(crate) fn is_credible(there: u64, more: u64) -> bool {
    more <= there.saturating_mul(MOST_MORE)
}

/// The share that was measured, of all trials and of each case that was planned; by the measured and the planned trials
/// of cases.
pub(super) fn coverage_of(cases: impl Iterator<Item = (u32, u32)>) -> (f64, Vec<f64>) {
    let counts: Vec<(u32, u32)> = cases.filter(|(_, planned)| *planned > 0).collect();
    let measured: u64 = counts
        .iter()
        .map(|(measured, _)| u64::from(*measured))
        .sum();
    let planned: u64 = counts.iter().map(|(_, planned)| u64::from(*planned)).sum();
    let shares = counts
        .iter()
        .map(|(measured, planned)| f64::from(*measured) / f64::from(*planned));
    (
        measured as f64 / (planned as f64).max(1.0),
        shares.collect(),
    )
}

/// True if the shares of measured trials differ too much for a comparison; by the measured and the planned trials of cases.
pub(super) fn coverage_differs(
    before: impl Iterator<Item = (u32, u32)>,
    after: impl Iterator<Item = (u32, u32)>,
) -> bool {
    let ((before_all, before), (after_all, after)) = (coverage_of(before), coverage_of(after));
    differs_too_much([before_all, after_all]) || differs_too_much(before) || differs_too_much(after)
}

/// True if the least and the greatest share differ by more than 10 points.
pub(super) fn differs_too_much(shares: impl IntoIterator<Item = f64>) -> bool {
    let shares: Vec<f64> = shares.into_iter().collect();
    let least = shares.iter().copied().fold(1.0, f64::min);
    shares.iter().copied().fold(0.0, f64::max) - least > COVERAGE_MAY_DIFFER + 1e-9
}
