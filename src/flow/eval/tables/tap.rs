//! TAP 14, the Test Anything Protocol: a test point for each trial.
//!
//! A trial that was not measured is skipped.

use super::junit::{assertions_against, message, trial_name};
use crate::flow::eval::summary::Summary;
use crate::flow::eval::trial::{Trial, TrialOutcome};
use crate::text::disguise::printable;
use crate::text::json;
use crate::text::shorten::in_short;

/// The longest description or reason.
const LINE_COLUMNS: usize = 200;

/// Suites with their trials as one stream.
pub(crate) fn tap(suites: &[(&Summary, &[Trial])]) -> String {
    let count: usize = suites.iter().map(|(_, trials)| trials.len()).sum();
    let mut out = format!("TAP version 14\n1..{count}\n");
    let points = suites
        .iter()
        .flat_map(|(summary, trials)| trials.iter().map(move |trial| (*summary, trial)));
    for (number, (summary, trial)) in points.enumerate() {
        push_point(&mut out, number + 1, &summary.suite, trial);
    }
    out
}

fn push_point(out: &mut String, number: usize, suite: &str, trial: &Trial) {
    let name = escaped(&format!(
        "{suite} / {} / {}",
        trial.setting,
        trial_name(trial)
    ));
    match trial.outcome {
        TrialOutcome::Passed => out.push_str(&format!("ok {number} - {name}\n")),
        TrialOutcome::NotMeasured => out.push_str(&format!(
            "ok {number} - {name} # SKIP {}\n",
            escaped(&message(trial))
        )),
        TrialOutcome::Failed => {
            out.push_str(&format!("not ok {number} - {name}\n  ---\n"));
            for (key, text) in [
                ("message", &message(trial)),
                ("run_id", &trial.run_id),
                ("workspace", &trial.workspace),
            ] {
                out.push_str(&format!("  {key}: {}\n", quoted(text)));
            }
            let failed = assertions_against(trial);
            if !failed.is_empty() {
                out.push_str("  assertions:\n");
            }
            for assertion in failed {
                out.push_str(&format!("    - {}\n", quoted(&assertion)));
            }
            out.push_str("  ...\n");
        }
    }
}

/// Text on one line in which nothing begins a directive.
fn escaped(text: &str) -> String {
    let line = in_short(&printable(text), LINE_COLUMNS);
    line.replace('\\', "\\\\").replace('#', "\\#")
}

/// A string in YAML, with no other escapes than those that every reader of TAP knows.
fn quoted(text: &str) -> String {
    let is_character = |c: &char| !matches!(c, '\u{FFFE}' | '\u{FFFF}');
    let text: String = printable(text).chars().filter(is_character).collect();
    json::text(&text)
}
