//! Sums trials up: the figures of each setting, the differences between settings, and the verdict.
//!
//! Unaware of how trials are run, where they are recorded and how figures are printed.

mod cells;
pub(crate) mod figures;
pub(crate) mod baseline;
pub(crate) mod finding;
pub(crate) mod scores;
pub(crate) mod comparison;
pub(crate) mod decision;

use crate::error::{Error, Result};
use crate::flow::eval::numbers::threshold::alpha_of_look;
use crate::flow::eval::trial::Trial;
use baseline::Baseline;
use cells::columns_of;
use comparison::Comparison;
use decision::{Verdict, VerdictReason};
use figures::SettingFigures;
use serde::Serialize;
use std::collections::BTreeSet;

/// The plan of a suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'p> {
    pub suite: &'p str,
    /// The target in a few words.
    pub target: &'p str,
    /// Of each case under each setting.
    pub trials: u32,
    /// Names, in order; differences are to the first.
    pub settings: &'p [String],
    pub cases: &'p [PlannedCase],
    /// SHA-256 of all assertions and graders.
    pub graders: Option<&'p str>,
    /// 0..=1.
    pub threshold: Option<f64>,
    /// Only settings that are shown higher pass.
    pub require_higher: bool,
    /// The number of the next verdict, from 1.
    pub look: u32,
}

/// A case of the plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedCase {
    pub id: String,
    /// SHA-256 of its text.
    pub hash: Option<String>,
    /// A digest of what judges it.
    pub graders: Option<String>,
}

/// The result of a suite: an element of `suites` in JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub suite: String,
    pub target: String,
    /// SHA-256 of all assertions and graders.
    pub graders: Option<String>,
    /// Planned for each case under each setting.
    pub trials: u32,
    pub settings: Vec<SettingFigures>,
    /// The first of [`Self::comparisons`].
    pub comparison: Option<Comparison>,
    /// All of them, if there is more than one.
    #[serde(skip_serializing_if = "is_single")]
    pub comparisons: Vec<Comparison>,
    pub look: Look,
    pub threshold: Option<f64>,
    pub verdict: Verdict,
    pub decision: VerdictReason,
    /// The doubts about the figures, in words.
    pub warnings: Vec<String>,
}

/// A verdict that is printed for a set of measured trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Look {
    /// From 1.
    pub number: u32,
    /// The error that it spends at each end.
    pub alpha: f64,
    /// Measured trials, of all settings.
    pub trials: u64,
}

fn is_single(comparisons: &[Comparison]) -> bool {
    comparisons.len() < 2
}

/// Sums a suite's trials up, one after another. A planned trial that is missing was not measured; one that was not planned is
/// ignored.
///
/// # Errors
/// Two cases with one id, a trial that comes twice, a score outside 0..=1, or a baseline that cannot be compared.
pub(crate) fn summarize(
    plan: &Plan,
    against: Option<&Baseline>,
    trials: impl Iterator<Item = Trial>,
) -> Result<Summary> {
    let columns = columns_of(plan, trials)?;
    if let Some(refusal) = against.and_then(|baseline| baseline.refusal(plan)) {
        return Err(Error::usage(refusal));
    }
    let cells = columns.iter().flat_map(|column| &column.cells);
    let wide: BTreeSet<&String> = cells.flat_map(|cell| &cell.wide_scores).collect();
    let settings: Vec<SettingFigures> = columns
        .iter()
        .zip(plan.settings)
        .map(|(column, name)| SettingFigures::of(plan, name, column, &wide))
        .collect();
    let comparisons = comparison::compare_settings(&settings, against, plan.look);
    let doubts = decision::doubts(&settings);
    let compared = settings.len() - usize::from(against.is_none());
    let decision = decision::decide(plan, &settings, &comparisons, compared);
    let mut warnings = doubts;
    for (column, name) in columns.iter().zip(plan.settings) {
        warnings.extend(column.repetition_warnings(name));
    }
    let alpha = alpha_of_look(plan.look);
    Ok(Summary {
        suite: plan.suite.to_owned(),
        target: plan.target.to_owned(),
        graders: plan.graders.map(str::to_owned),
        trials: plan.trials,
        look: Look {
            number: plan.look.max(1),
            alpha,
            trials: settings.iter().map(|setting| setting.trials_measured).sum(),
        },
        threshold: plan.threshold,
        verdict: decision.verdict(),
        decision,
        warnings,
        comparison: comparisons.first().cloned(),
        comparisons,
        settings,
    })
}

#[cfg(test)]
pub(crate) mod tests;
