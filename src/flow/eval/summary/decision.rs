//! The verdict on a suite, and the reasons for having none.

use super::Plan;
use super::comparison::Comparison;
use super::figures::{CaseFigures, SettingFigures};
use super::finding::{Finding, FindingReason, coverage_of, differs_too_much};
use crate::error::Exit;
use crate::flow::eval::numbers::distribution::normal_quantile;
use crate::flow::eval::numbers::interval::{TAIL_95, TRIALS_FOR_AN_INTERVAL, of_cases_like_these};
use crate::flow::eval::numbers::threshold::{
    Side, alpha_of_look, cases_needed, fewest_cases, side_of, trials_needed_of_one_case,
};
use crate::text::amounts::counted;
use crate::text::names::named_enum;
use serde::Serialize;

named_enum! {
    /// A suite's verdict.
    pub(crate) enum Verdict {
        Passed = "passed",
        Failed = "failed",
        Undecided = "undecided",
    }
}

impl Verdict {
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Passed => Exit::Success,
            Self::Failed => Exit::Failure,
            Self::Undecided => Exit::Undecided,
        }
    }
}

/// The reason for the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(crate) enum VerdictReason {
    /// Every planned trial was measured and passed.
    AllPassed,
    /// The number of failed trials, without a threshold.
    TrialsFailed { trials: u64 },
    /// The number of trials not measured; none failed.
    TrialsMissing { trials: u64 },
    /// Too different shares of the trials were measured.
    CoverageDiffers { missing: u64 },
    /// The lower bound of every setting reaches the threshold.
    AboveThreshold,
    /// The upper bound of these settings is below it.
    BelowThreshold { settings: Vec<String> },
    /// Within the bounds of these settings.
    NearThreshold {
        settings: Vec<String>,
        /// The number of further trials needed at the next look, at these rates; None if no number suffices.
        trials_needed: Option<u64>,
        /// The cases that these are, with the planned trials; 0 if they are of a single case.
        cases_needed: Option<u64>,
    },
    /// No case, or none measured.
    NothingMeasured,
    /// These settings are shown lower than the other side of their comparisons.
    ShownLower { settings: Vec<String> },
    /// No setting is, and none had to be shown higher.
    NotShownLower,
    /// Every setting is shown higher, as was required.
    ShownHigher,
    /// No case of these settings differs, and higher was required.
    NotHigher { settings: Vec<String> },
    /// Higher was required, and for these settings neither is shown.
    NotShownHigher { settings: Vec<String> },
}

impl VerdictReason {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::AllPassed | Self::AboveThreshold | Self::NotShownLower | Self::ShownHigher => {
                Verdict::Passed
            }
            Self::TrialsFailed { .. }
            | Self::BelowThreshold { .. }
            | Self::ShownLower { .. }
            | Self::NotHigher { .. } => Verdict::Failed,
            Self::TrialsMissing { .. }
            | Self::CoverageDiffers { .. }
            | Self::NearThreshold { .. }
            | Self::NotShownHigher { .. }
            | Self::NothingMeasured => Verdict::Undecided,
        }
    }
}

/// Warnings that the shares of measured trials differ too much for a verdict.
pub(super) fn doubts(settings: &[SettingFigures]) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut shares = Vec::new();
    for setting in settings {
        let (all, by_case) = coverage_of(setting.cases.iter().map(CaseFigures::coverage));
        shares.push(all);
        if differs_too_much(by_case) {
            doubts.push(format!(
                "{}: the share of measured trials differs between cases by more than 10 points",
                setting.name
            ));
        }
    }
    if differs_too_much(shares) {
        doubts.push(
            "the share of measured trials differs between settings by more than 10 points"
                .to_owned(),
        );
    }
    doubts
}

/// The verdict with its reason. `compared` settings should have a comparison.
pub(super) fn decide(
    plan: &Plan,
    settings: &[SettingFigures],
    comparisons: &[Comparison],
    compared: usize,
) -> VerdictReason {
    if settings.iter().all(|setting| setting.trials_measured == 0) {
        return VerdictReason::NothingMeasured;
    }
    let missing = settings.iter().map(SettingFigures::missing).sum();
    let of_comparisons = || {
        if comparisons.len() == compared {
            of_comparisons(comparisons, plan.require_higher, missing)
        } else {
            VerdictReason::CoverageDiffers { missing }
        }
    };
    let Some(threshold) = plan.threshold else {
        if compared > 0 {
            return of_comparisons();
        }
        let cases = settings.iter().flat_map(|setting| &setting.cases);
        let failed: u64 = cases.map(|case| u64::from(case.failed)).sum();
        return match (failed, missing) {
            (1.., _) => VerdictReason::TrialsFailed { trials: failed },
            (0, 1..) => VerdictReason::TrialsMissing { trials: missing },
            (0, 0) => VerdictReason::AllPassed,
        };
    };
    let decided = of_threshold(plan, settings, threshold);
    if !plan.require_higher || decided.verdict() == Verdict::Failed {
        return decided;
    }
    let required = of_comparisons();
    match (decided.verdict(), required.verdict()) {
        (Verdict::Undecided, Verdict::Undecided | Verdict::Passed) => decided,
        _ => required,
    }
}

/// The verdict where comparisons decide.
fn of_comparisons(comparisons: &[Comparison], is_strict: bool, missing: u64) -> VerdictReason {
    let found = |is_meant: &dyn Fn(&Comparison) -> bool| {
        let named = comparisons.iter().filter(|it| is_meant(it));
        let settings: Vec<String> = named.map(|it| it.setting.clone()).collect();
        (!settings.is_empty()).then_some(settings)
    };
    if let Some(settings) = found(&|it| it.finding == Finding::Lower) {
        return VerdictReason::ShownLower { settings };
    }
    if found(&|it| it.why == Some(FindingReason::CoverageDiffers)).is_some() {
        return VerdictReason::CoverageDiffers { missing };
    }
    if !is_strict {
        return VerdictReason::NotShownLower;
    }
    if let Some(settings) = found(&|it| it.finding == Finding::Same) {
        return VerdictReason::NotHigher { settings };
    }
    match found(&|it| it.finding == Finding::Undecided) {
        Some(settings) => VerdictReason::NotShownHigher { settings },
        None => VerdictReason::ShownHigher,
    }
}

/// The verdict where a threshold decides.
fn of_threshold(plan: &Plan, settings: &[SettingFigures], threshold: f64) -> VerdictReason {
    if !doubts(settings).is_empty() {
        let missing = settings.iter().map(SettingFigures::missing).sum();
        return VerdictReason::CoverageDiffers { missing };
    }
    let alpha = alpha_of_look(plan.look);
    let on = |side: Side| {
        let is_there = move |it: &&SettingFigures| side_of(&it.counts(), threshold, alpha) == side;
        settings.iter().filter(is_there)
    };
    let names = |side: Side| -> Vec<String> { on(side).map(|it| it.name.clone()).collect() };
    let (below, near) = (names(Side::Below), names(Side::Unknown));
    if !below.is_empty() {
        return VerdictReason::BelowThreshold { settings: below };
    }
    if near.is_empty() {
        return VerdictReason::AboveThreshold;
    }
    let needs: Option<Vec<(u64, u64)>> = on(Side::Unknown)
        .map(|setting| needs(plan, setting, threshold))
        .collect();
    let most = needs.and_then(|needs| needs.into_iter().max());
    VerdictReason::NearThreshold {
        settings: near,
        trials_needed: most.map(|(trials, _)| trials),
        cases_needed: most.map(|(_, cases)| cases),
    }
}

/// The further trials of a setting, and further cases, that would show at the next look on which side it is.
fn needs(plan: &Plan, setting: &SettingFigures, threshold: f64) -> Option<(u64, u64)> {
    let suite = of_cases_like_these(&setting.counts(), TAIL_95)?;
    let alpha = alpha_of_look(plan.look.saturating_add(1));
    if plan.cases.len() == 1 {
        let distance = suite.rate - threshold;
        // Wilson's bound is at the threshold where (p − t)² = z² t (1 − t) / n.
        let square = normal_quantile(alpha).powi(2) * threshold * (1.0 - threshold);
        let trials = (square / (distance * distance))
            .ceil()
            .max(f64::from(TRIALS_FOR_AN_INTERVAL));
        let more = (trials - setting.trials_measured as f64).max(1.0);
        return (more < 1e9).then_some((more as u64, 0));
    }
    let worth = suite.effective / suite.cases as f64;
    let more = fewest_cases(suite.rate, worth, threshold, alpha)?
        .saturating_sub(suite.cases)
        .max(1) as u64;
    Some((more * u64::from(plan.trials.max(1)), more))
}

/// The warning that a threshold cannot be reached with the planned trials, even if all pass. None if it can.
pub(crate) fn threshold_warning(threshold: f64, cases: usize, trials: u32) -> Option<String> {
    let alpha = alpha_of_look(1);
    let needed = match cases {
        1 => trials_needed_of_one_case(threshold, alpha).map(|needed| needed as usize),
        _ => cases_needed(threshold, alpha),
    };
    let planned = if cases == 1 { trials as usize } else { cases };
    if needed.is_some_and(|needed| needed <= planned) {
        return None;
    }
    let needed = match needed {
        Some(needed) if cases == 1 => format!("{needed} trials of it needed"),
        Some(needed) => format!("{} needed", counted(needed, "case")),
        None => "no number is enough".to_owned(),
    };
    Some(format!(
        "threshold {threshold} cannot be reached with {} of {}, even if all pass ({needed})",
        counted(cases, "case"),
        counted(trials as usize, "trial")
    ))
}
