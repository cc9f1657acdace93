//! The tests behind the comparisons of settings, and the reason for the verdict.

use super::words::{SCORES_SHOWN, figure, name, points};
use crate::flow::eval::numbers::difference::{DISCORDANT_PAIRS_NEEDED, Method};
use crate::flow::eval::summary::Summary;
use crate::flow::eval::summary::comparison::Comparison;
use crate::flow::eval::summary::decision::VerdictReason;
use crate::flow::eval::summary::figures::LevelEnds;
use crate::flow::eval::summary::finding::{Finding, FindingReason, alpha_of_test};
use crate::flow::eval::summary::scores::ScoreDifference;
use crate::text::amounts::counted;

/// All comparisons: the tests behind them, and what they could show.
pub(super) fn lines(summary: &Summary) -> String {
    let mut lines = String::new();
    for comparison in &summary.comparisons {
        lines += &test_of(comparison, summary);
        lines += &scores(comparison);
    }
    lines
}

/// The other side of a comparison, named so.
pub(super) fn other_side(comparison: &Comparison, named: fn(&str) -> String) -> String {
    let earlier = if comparison.is_earlier {
        " (earlier)"
    } else {
        ""
    };
    named(&comparison.against) + earlier
}

/// Said of an interval of 95 % beside a test that asks for more.
pub(super) fn correction(summary: &Summary) -> &'static str {
    match (summary.comparisons.len(), summary.look.number) {
        (..=1, ..=1) => "",
        _ => " uncorrected",
    }
}

/// Points without their sign.
pub(super) fn size(difference: f64) -> String {
    points(difference).trim_start_matches(['+', '−']).to_owned()
}

/// `new − base: paired t over 12 cases, p = 0.0745; would have shown 31 points`, and what would show the observed difference.
fn test_of(comparison: &Comparison, summary: &Summary) -> String {
    let cases = counted(comparison.cases, "case");
    let found = match comparison.why {
        Some(FindingReason::CoverageDiffers) => DIFFERENT_SHARES.to_owned(),
        Some(FindingReason::TooFewPairs) => {
            let differ = comparison.discordant.map_or(0, |(one, other)| one + other);
            format!("{differ} of {cases} differ, and a test needs {DISCORDANT_PAIRS_NEEDED}")
        }
        Some(FindingReason::NoDifference) => {
            // The rule of three.
            let bound = size((3.0 / comparison.cases as f64).min(1.0));
            format!("over {cases}, a difference below {bound} points cannot be excluded")
        }
        None => {
            let (test, p) = (test(comparison.method), shown_p(comparison.p_corrected));
            let corrected = match summary.comparisons.len() {
                ..=1 => "",
                _ => "corrected ",
            };
            let needed = match summary.look.number {
                ..=1 => String::new(),
                look => format!(" (analysis {look} needs {:.4})", alpha_of_test(look)),
            };
            let shown = comparison.mdd80.map_or_else(String::new, |mdd| {
                format!("; would have shown {} points", size(mdd))
            });
            format!("{test} over {cases}, {corrected}{p}{needed}{shown}")
        }
    };
    let (setting, against) = (name(&comparison.setting), other_side(comparison, name));
    format!("{setting} − {against}: {found}\n{}", more(comparison))
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
            (found, _) => {
                let (test, p) = (test(it.method), shown_p(it.p_corrected));
                format!("{} ({test}, {p})", word(found))
            }
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
pub(super) const DIFFERENT_SHARES: &str =
    "not comparable, as shares of measured trials differ by over 10 points";

fn word(finding: Finding) -> &'static str {
    match finding {
        Finding::Higher => "higher",
        Finding::Lower => "lower",
        Finding::Undecided | Finding::Same => "cannot say",
    }
}

fn test(method: Method) -> &'static str {
    match method {
        Method::PairedT => "paired t",
        Method::SignFlip => "exact sign flips",
        Method::McNemar => "McNemar's exact test",
        Method::None => "no test",
    }
}

fn shown_p(p: f64) -> String {
    match p {
        ..0.0001 => "p < 0.0001".to_owned(),
        _ => format!("p = {p:.4}"),
    }
}

/// What would show the observed difference, if it is real.
fn more(comparison: &Comparison) -> String {
    let Some(more) = comparison.more else {
        return String::new();
    };
    let trials = more.trials_a_case;
    let or = trials.map_or_else(String::new, |trials| {
        format!(", or {trials} trials of each")
    });
    format!(
        "to show the observed {} points, if they are real: about {}{or}\n",
        size(more.difference),
        counted(more.cases, "more case")
    )
}

/// The reason for the verdict.
pub(super) fn reason(summary: &Summary) -> String {
    let count =
        |count: u64, what: &str| counted(usize::try_from(count).unwrap_or(usize::MAX), what);
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
    let threshold = summary.threshold.unwrap_or_default();
    match &summary.decision {
        VerdictReason::AllPassed => "every trial passed".to_owned(),
        VerdictReason::TrialsFailed { trials } => {
            format!(
                "{} failed, and there is no threshold",
                count(*trials, "trial")
            )
        }
        VerdictReason::TrialsMissing { trials } => {
            let missing = count(*trials, "missing trial");
            format!("none failed; the same command measures {missing}")
        }
        VerdictReason::CoverageDiffers { missing } => {
            let missing = count(*missing, "missing trial");
            format!("unevenly measured; the same command measures {missing}")
        }
        VerdictReason::AboveThreshold => {
            format!("the lower bound reaches the threshold {threshold}")
        }
        VerdictReason::BelowThreshold { settings } => {
            format!(
                "the upper bound{} is below the threshold {threshold}",
                of(settings)
            )
        }
        VerdictReason::NothingMeasured => "nothing was measured".to_owned(),
        VerdictReason::ShownLower { settings } => format!("{} shown lower", are(settings)),
        VerdictReason::NotShownLower => "nothing is shown lower".to_owned(),
        VerdictReason::ShownHigher => "shown higher, as required".to_owned(),
        VerdictReason::NotHigher { settings } => {
            let listed = listed(settings);
            format!("higher was required, and no case of {listed} differs")
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
                Some(needed) => format!("{} more would be needed", count(*needed, "trial")),
                None => format!("the rate is too close to the threshold {threshold}"),
            };
            let cases = match cases_needed {
                Some(cases @ 1..) => format!(" ({} more)", count(*cases, "case")),
                _ => String::new(),
            };
            format!("cannot say{}: {needed}{cases}", of(settings))
        }
    }
}
