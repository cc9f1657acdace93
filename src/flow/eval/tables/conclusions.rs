//! The lines between the figures and the cases: what settings differ by, and the verdict.

use super::words::{name, points};
use crate::flow::eval::numbers::difference::Method;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::comparison::{Comparison, Finding};
use crate::flow::eval::summary::decision::VerdictReason;
use crate::text::amounts::counted;

/// All comparisons, and the verdict behind them.
pub(super) fn lines(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    for comparison in &summary.comparisons {
        lines.push(difference(comparison));
        lines.push(format!("→ {}", finding(comparison)));
    }
    let verdict = format!("{}: {}", summary.verdict.name(), decision(summary));
    lines.push(match summary.threshold {
        Some(threshold) => format!("threshold {threshold}   → {verdict}"),
        None => format!("→ {verdict}"),
    });
    lines
}

/// What a comparison is with.
pub(super) fn other_side(comparison: &Comparison) -> String {
    match comparison.is_earlier {
        true => format!("{} (earlier)", name(&comparison.against)),
        false => name(&comparison.against),
    }
}

/// `new − base   +9 points [−1, +19], paired over 20 cases; this many trials could have shown 14`.
fn difference(comparison: &Comparison) -> String {
    let mut line = format!(
        "{} − {}   {} points",
        name(&comparison.setting),
        other_side(comparison),
        points(comparison.difference)
    );
    if let Some(ci) = comparison.ci {
        line.push_str(&format!(" [{}, {}]", points(ci.lower), points(ci.upper)));
    }
    line.push_str(&format!(
        ", paired over {}",
        counted(comparison.cases, "case")
    ));
    if let Some(detectable) = comparison.mdd80 {
        let shown = points(detectable);
        line.push_str(&format!(
            "; this many trials could have shown {}",
            shown.trim_start_matches('+')
        ));
    }
    line
}

fn finding(comparison: &Comparison) -> String {
    let test = || {
        let test = match comparison.method {
            Method::PairedT => "paired t",
            Method::SignFlip => "exact sign flips",
            Method::McNemar => "McNemar's exact test",
            Method::None => "no test",
        };
        let p = comparison.p_corrected;
        match p < 0.0001 {
            true => format!("{test}, p < 0.0001"),
            false => format!("{test}, p = {p:.4}"),
        }
    };
    match comparison.finding {
        Finding::Higher => format!("higher ({})", test()),
        Finding::Lower => format!("lower ({})", test()),
        Finding::CoverageDiffers => {
            "cannot say: the share of measured trials differs by more than 10 points; measure what is missing".to_owned()
        }
        Finding::TooFewPairs => {
            let (one, other) = comparison.discordant.unwrap_or_default();
            format!("too few cases differ (b + c = {}) to say", one + other)
        }
        Finding::NoDifference => {
            // The rule of three.
            let bound = (3.0 / comparison.cases as f64).min(1.0);
            format!("no case differs; a difference below {} points cannot be excluded", points(bound).trim_start_matches('+'))
        }
        Finding::Undecided => format!("cannot say ({}){}", test(), more(comparison)),
    }
}

/// What would show a difference.
fn more(comparison: &Comparison) -> String {
    let Some(more) = comparison.more else {
        return String::new();
    };
    let size = points(more.difference);
    let size = size.trim_start_matches('+');
    let cases = counted(more.cases, "case");
    match more.trials_a_case {
        Some(trials) => format!(
            ". {cases} more, or the same cases with {}, would show {size} points",
            counted(trials as usize, "trial")
        ),
        None => format!(". {cases} more would show {size} points"),
    }
}

/// Why the verdict is what it is.
fn decision(summary: &Summary) -> String {
    let trials = |count: u64| counted(usize::try_from(count).unwrap_or(usize::MAX), "trial");
    let of = |settings: &[String]| match summary.settings.len() {
        1 => String::new(),
        _ => {
            let names: Vec<String> = settings.iter().map(|setting| name(setting)).collect();
            format!(" of {}", names.join(", "))
        }
    };
    match &summary.decision {
        VerdictReason::AllPassed => "every trial passed".to_owned(),
        VerdictReason::TrialsFailed { trials: failed } => format!("{} failed", trials(*failed)),
        VerdictReason::TrialsMissing { trials: missing } => {
            format!(
                "none failed, {} not measured; the same command measures what is missing",
                trials(*missing)
            )
        }
        VerdictReason::CoverageDiffers { missing } => format!(
            "no verdict while the share of measured trials differs by more than 10 points; the same command measures the {} that are missing",
            trials(*missing)
        ),
        VerdictReason::AboveThreshold => "the lower bound reaches it".to_owned(),
        VerdictReason::BelowThreshold { settings } => {
            format!("the upper bound{} is below it", of(settings))
        }
        VerdictReason::NothingMeasured => "nothing was measured".to_owned(),
        VerdictReason::NearThreshold {
            settings,
            trials_needed,
            cases_needed,
        } => {
            let cannot = format!("cannot say{}", of(settings));
            match (trials_needed, cases_needed) {
                (Some(needed), Some(1..)) => {
                    let cases = cases_needed.unwrap_or_default();
                    format!(
                        "{cannot}: {} more would be needed ({} more)",
                        trials(*needed),
                        counted(usize::try_from(cases).unwrap_or(usize::MAX), "case")
                    )
                }
                (Some(needed), _) => format!("{cannot}: {} more would be needed", trials(*needed)),
                (None, _) => format!("{cannot}: the rate is too close to it"),
            }
        }
    }
}
