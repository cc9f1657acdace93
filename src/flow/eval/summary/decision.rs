//! The verdict on a suite, and the reasons for having none.

use super::Plan;
use super::figures::SettingFigures;
use crate::error::Exit;
use crate::flow::eval::numbers::interval::{TAIL_95, TRIALS_FOR_AN_INTERVAL, of_cases_like_these};
use crate::flow::eval::numbers::threshold::{
    Side, alpha_of_look, cases_needed, fewest_cases, side_of, trials_needed_of_one_case,
};
use crate::text::names::named_enum;
use serde::Serialize;

/// Shares of measured trials that differ by more allow no verdict.
const COVERAGE_MAY_DIFFER: f64 = 0.1;

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

/// Why the verdict is what it is.
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
    /// It is within the bounds of these settings.
    NearThreshold {
        settings: Vec<String>,
        /// The number of further trials needed at the next look, at these rates; None if no number suffices.
        trials_needed: Option<u64>,
        /// The cases that these are, with the planned trials; 0 if they are of a single case.
        cases_needed: Option<u64>,
    },
    /// No case, or none measured.
    NothingMeasured,
}

impl VerdictReason {
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::AllPassed | Self::AboveThreshold => Verdict::Passed,
            Self::TrialsFailed { .. } | Self::BelowThreshold { .. } => Verdict::Failed,
            Self::TrialsMissing { .. }
            | Self::CoverageDiffers { .. }
            | Self::NearThreshold { .. }
            | Self::NothingMeasured => Verdict::Undecided,
        }
    }
}

/// The share that was measured, of all trials and of each case that was planned; from (measured, planned) of the cases.
pub(super) fn coverage_of(cases: impl Iterator<Item = (u32, u32)>) -> (f64, Vec<f64>) {
    let mut sums = (0_u64, 0_u64);
    let mut shares = Vec::new();
    for (measured, planned) in cases.filter(|(_, planned)| *planned > 0) {
        sums.0 += u64::from(measured);
        sums.1 += u64::from(planned);
        shares.push(f64::from(measured) / f64::from(planned));
    }
    (sums.0 as f64 / (sums.1 as f64).max(1.0), shares)
}

/// True if the least and the greatest share differ by more than 10 points.
pub(super) fn differs_too_much(shares: impl IntoIterator<Item = f64>) -> bool {
    let ends = shares
        .into_iter()
        .fold((1.0_f64, 0.0_f64), |(least, most), share| {
            (least.min(share), most.max(share))
        });
    ends.1 - ends.0 > COVERAGE_MAY_DIFFER + 1e-9
}

/// Warnings that the shares of measured trials differ too much for a verdict.
pub(super) fn doubts(settings: &[SettingFigures]) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut shares = Vec::new();
    for setting in settings {
        let cases = setting
            .cases
            .iter()
            .map(|case| (case.counts().measured, case.planned()));
        let (all, by_case) = coverage_of(cases);
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

/// The verdict with its reason.
pub(super) fn decide(
    plan: &Plan,
    settings: &[SettingFigures],
    coverage_differs: bool,
) -> VerdictReason {
    let measured: u64 = settings.iter().map(|setting| setting.trials_measured).sum();
    let missing = settings.iter().map(SettingFigures::missing).sum();
    let failed = settings.iter().flat_map(|setting| &setting.cases);
    let failed: u64 = failed.map(|case| u64::from(case.failed)).sum();
    let Some(threshold) = plan.threshold else {
        return match (failed, missing) {
            _ if measured == 0 => VerdictReason::NothingMeasured,
            (1.., _) => VerdictReason::TrialsFailed { trials: failed },
            (0, 1..) => VerdictReason::TrialsMissing { trials: missing },
            (0, 0) => VerdictReason::AllPassed,
        };
    };
    if measured == 0 {
        return VerdictReason::NothingMeasured;
    }
    if coverage_differs {
        return VerdictReason::CoverageDiffers { missing };
    }
    let alpha = alpha_of_look(plan.look);
    let on = |side: Side| -> Vec<&SettingFigures> {
        let is_there =
            |setting: &&SettingFigures| side_of(&setting.counts(), threshold, alpha) == side;
        settings.iter().filter(is_there).collect()
    };
    let names = |settings: &[&SettingFigures]| {
        settings
            .iter()
            .map(|setting| setting.name.clone())
            .collect()
    };
    let below = on(Side::Below);
    if !below.is_empty() {
        return VerdictReason::BelowThreshold {
            settings: names(&below),
        };
    }
    let near = on(Side::Unknown);
    if near.is_empty() {
        return VerdictReason::AboveThreshold;
    }
    let needs = near.iter().map(|setting| needs(plan, setting, threshold));
    let most: Option<(u64, u64)> = needs
        .collect::<Option<Vec<_>>>()
        .and_then(|needs| needs.into_iter().max());
    VerdictReason::NearThreshold {
        settings: names(&near),
        trials_needed: most.map(|(trials, _)| trials),
        cases_needed: most.map(|(_, cases)| cases),
    }
}

/// How many trials more of a setting, and cases more, would show at the next look on which side it is.
fn needs(plan: &Plan, setting: &SettingFigures, threshold: f64) -> Option<(u64, u64)> {
    let suite = of_cases_like_these(&setting.counts(), TAIL_95)?;
    let alpha = alpha_of_look(plan.look.saturating_add(1));
    if plan.cases.len() == 1 {
        return trials_of_one_case(setting, suite.rate, threshold, alpha).map(|trials| (trials, 0));
    }
    let worth = suite.effective / suite.cases as f64;
    let cases = fewest_cases(suite.rate, worth, threshold, alpha)?;
    let more = cases.saturating_sub(suite.cases).max(1) as u64;
    Some((more * u64::from(plan.trials.max(1)), more))
}

/// Trials more of a single case.
fn trials_of_one_case(
    setting: &SettingFigures,
    rate: f64,
    threshold: f64,
    alpha: f64,
) -> Option<u64> {
    use crate::flow::eval::numbers::distribution::normal_quantile;
    let distance = rate - threshold;
    // Wilson's bound is at the threshold where (p − t)² = z² t (1 − t) / n.
    let square = normal_quantile(alpha).powi(2) * threshold * (1.0 - threshold);
    let trials = (square / (distance * distance)).ceil();
    let trials = trials.max(f64::from(TRIALS_FOR_AN_INTERVAL));
    let more = (trials - setting.trials_measured as f64).max(1.0);
    (more < 1e9).then_some(more as u64)
}

/// The warning that a threshold cannot be reached with the planned trials, even if all pass. None if it can.
pub(crate) fn threshold_warning(threshold: f64, cases: usize, trials: u32) -> Option<String> {
    let alpha = alpha_of_look(1);
    let counted = crate::text::amounts::counted;
    let with = format!(
        "threshold {threshold} cannot be reached with {} of {}, even if all pass",
        counted(cases, "case"),
        counted(trials as usize, "trial")
    );
    if cases == 1 {
        return match trials_needed_of_one_case(threshold, alpha) {
            Some(needed) if needed <= trials => None,
            Some(needed) => Some(format!("{with} ({needed} trials of it needed)")),
            None => Some(format!("{with} (no number is enough)")),
        };
    }
    match cases_needed(threshold, alpha) {
        Some(needed) if needed <= cases => None,
        Some(needed) => Some(format!("{with} ({} needed)", counted(needed, "case"))),
        None => Some(format!("{with} (no number is enough)")),
    }
}
