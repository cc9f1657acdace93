//! The lines between the figures and the cases: what settings differ by, and the verdict.

use super::words::{SCORES_SHOWN, figure, name, points};
use crate::flow::eval::numbers::difference::Method;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::comparison::Comparison;
use crate::flow::eval::summary::decision::VerdictReason;
use crate::flow::eval::summary::figures::LevelEnds;
use crate::flow::eval::summary::finding::{Finding, FindingReason, alpha_of_test};
use crate::flow::eval::summary::scores::ScoreDifference;
use crate::text::amounts::counted;

/// All comparisons and the verdict, a line each.
pub(super) fn lines(summary: &Summary) -> String {
    let mut lines = String::new();
    for comparison in &summary.comparisons {
        let look = summary.look.number;
        let (difference, finding) = (difference(comparison), finding(comparison, look));
        lines.push_str(&format!("{difference}\n→ {finding}\n"));
        lines.push_str(&scores(comparison));
    }
    if let Some(threshold) = summary.threshold {
        lines.push_str(&format!("threshold {threshold}   "));
    }
    let (verdict, why) = (summary.verdict.name(), decision(summary));
    lines + &format!("→ {verdict}: {why}\n")
}

/// The other side of a comparison.
pub(super) fn other_side(comparison: &Comparison) -> String {
    let earlier = if comparison.is_earlier {
        " (earlier)"
    } else {
        ""
    };
    name(&comparison.against) + earlier
}

/// Points without the sign of a gain.
fn size(difference: f64) -> String {
    points(difference).trim_start_matches('+').to_owned()
}

/// `new − base   +9 points [−1, +19], paired over 20 cases; so many trials show 14 points or more`.
fn difference(comparison: &Comparison) -> String {
    let ci = comparison
        .ci
        .map(|ci| format!(" [{}, {}]", points(ci.lower), points(ci.upper)));
    let shown = comparison
        .mdd80
        .map(size)
        .map(|size| format!("; the smallest difference that so many trials show: {size} points"));
    format!(
        "{} − {}   {} points{}, paired over {}{}",
        name(&comparison.setting),
        other_side(comparison),
        points(comparison.difference),
        ci.as_deref().unwrap_or(""),
        counted(comparison.cases, "case"),
        shown.as_deref().unwrap_or("")
    )
}

/// The differences of named scores, a line each.
fn scores(comparison: &Comparison) -> String {
    let line = |(score, it): (&String, &ScoreDifference)| {
        let signed = |number: f64| match figure(number) {
            shown if number > 0.0 => format!("+{shown}"),
            shown => shown,
        };
        let ends = |ci: LevelEnds| format!(" [{}, {}]", signed(ci.lower), signed(ci.upper));
        let found = match (it.finding, it.why) {
            (_, Some(FindingReason::CoverageDiffers)) => DIFFERENT_SHARES.to_owned(),
            (Finding::Same, _) => "no case differs".to_owned(),
            (found, _) => format!("{} {}", word(found), test(it.method, it.p_corrected)),
        };
        let (difference, ends) = (signed(it.difference), it.ci.map(ends).unwrap_or_default());
        format!("score {}   {difference}{ends} → {found}\n", name(score))
    };
    comparison
        .scores
        .iter()
        .take(SCORES_SHOWN)
        .map(line)
        .collect()
}

/// Words for what cannot be compared.
const DIFFERENT_SHARES: &str = "cannot say: the share of measured trials differs by more than 10 points; measure what is missing";

fn word(finding: Finding) -> &'static str {
    match finding {
        Finding::Higher => "higher",
        Finding::Lower => "lower",
        Finding::Undecided | Finding::Same => "cannot say",
    }
}

/// A test with its p-value.
fn test(method: Method, p: f64) -> String {
    let test = match method {
        Method::PairedT => "paired t",
        Method::SignFlip => "exact sign flips",
        Method::McNemar => "McNemar's exact test",
        Method::None => "no test",
    };
    if p < 0.0001 {
        format!("({test}, p < 0.0001)")
    } else {
        format!("({test}, p = {p:.4})")
    }
}

fn finding(comparison: &Comparison, look: u32) -> String {
    match comparison.why {
        Some(FindingReason::CoverageDiffers) => DIFFERENT_SHARES.to_owned(),
        Some(FindingReason::TooFewPairs) => {
            let differ = comparison.discordant.map_or(0, |(one, other)| one + other);
            format!("too few cases differ (b + c = {differ}) to say")
        }
        Some(FindingReason::NoDifference) => {
            // The rule of three.
            let bound = size((3.0 / comparison.cases as f64).min(1.0));
            format!("no case differs; a difference below {bound} points cannot be excluded")
        }
        None => {
            let test = test(comparison.method, comparison.p_corrected);
            let needed = match look {
                ..=1 => String::new(),
                _ => format!("; analysis {look} needs p ≤ {:.4}", alpha_of_test(look)),
            };
            format!(
                "{} {test}{needed}{}",
                word(comparison.finding),
                more(comparison)
            )
        }
    }
}

/// The trials that would show a difference.
fn more(comparison: &Comparison) -> String {
    let Some(more) = comparison.more else {
        return String::new();
    };
    let trials = more
        .trials_a_case
        .map(|trials| counted(trials as usize, "trial"));
    let or = trials.map(|trials| format!(", or the same cases with {trials},"));
    format!(
        ". {} more{} would show {} points",
        counted(more.cases, "case"),
        or.as_deref().unwrap_or(""),
        size(more.difference)
    )
}

/// The reason for the verdict.
fn decision(summary: &Summary) -> String {
    let count =
        |count: u64, what: &str| counted(usize::try_from(count).unwrap_or(usize::MAX), what);
    let trials = |trials: u64| count(trials, "trial");
    let listed = |settings: &[String]| {
        let names: Vec<String> = settings.iter().map(|setting| name(setting)).collect();
        names.join(", ")
    };
    let are = |settings: &[String]| match settings {
        [only] => format!("{} is", name(only)),
        several => format!("{} are", listed(several)),
    };
    let of = |settings: &[String]| match summary.settings.len() {
        1 => String::new(),
        _ => format!(" of {}", listed(settings)),
    };
    match &summary.decision {
        VerdictReason::AllPassed => "every trial passed".to_owned(),
        VerdictReason::TrialsFailed { trials: failed } => {
            format!("{} failed, and there is no threshold", trials(*failed))
        }
        VerdictReason::TrialsMissing { trials: missing } => format!(
            "none failed, {} not measured; the same command measures what is missing",
            trials(*missing)
        ),
        VerdictReason::CoverageDiffers { missing } => format!(
            "no verdict while the share of measured trials differs by more than 10 points; the same command measures the {} that are missing",
            trials(*missing)
        ),
        VerdictReason::AboveThreshold => "the lower bound reaches it".to_owned(),
        VerdictReason::BelowThreshold { settings } => {
            format!("the upper bound{} is below it", of(settings))
        }
        VerdictReason::NothingMeasured => "nothing was measured".to_owned(),
        VerdictReason::ShownLower { settings } => format!("{} shown lower", are(settings)),
        VerdictReason::NotShownLower => "nothing is shown lower".to_owned(),
        VerdictReason::ShownHigher => "shown higher, as required".to_owned(),
        VerdictReason::NotHigher { settings } => {
            format!(
                "higher was required, and no case of {} differs",
                listed(settings)
            )
        }
        VerdictReason::NotShownHigher { settings } => {
            format!("higher was required, and {} not shown to be", are(settings))
        }
        VerdictReason::NearThreshold {
            settings,
            trials_needed,
            cases_needed,
        } => {
            let needed = match trials_needed {
                Some(needed) => format!("{} more would be needed", trials(*needed)),
                None => "the rate is too close to it".to_owned(),
            };
            let cases = match cases_needed {
                Some(cases @ 1..) => format!(" ({} more)", count(*cases, "case")),
                _ => String::new(),
            };
            format!("cannot say{}: {needed}{cases}", of(settings))
        }
    }
}
