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
    let points: Vec<String> = suites
        .iter()
        .flat_map(|(summary, trials)| {
            let name = &summary.suite;
            trials.iter().map(move |trial| (name, trial))
        })
        .enumerate()
        .map(|(at, (suite, trial))| point(at + 1, suite, trial))
        .collect();
    format!("TAP version 14\n1..{}\n{}", points.len(), points.concat())
}

fn point(number: usize, suite: &str, trial: &Trial) -> String {
    let name = escaped(&format!(
        "{suite} / {} / {}",
        trial.setting,
        trial_name(trial)
    ));
    let message = message(trial);
    match trial.outcome {
        TrialOutcome::Passed => format!("ok {number} - {name}\n"),
        TrialOutcome::NotMeasured => {
            format!("ok {number} - {name} # SKIP {}\n", escaped(&message))
        }
        TrialOutcome::Failed => {
            let failed = assertions_against(trial);
            let head = if failed.is_empty() {
                ""
            } else {
                "  assertions:\n"
            };
            let failed: Vec<String> = failed
                .iter()
                .map(|it| format!("    - {}\n", quoted(it)))
                .collect();
            let failed = failed.concat();
            format!(
                "not ok {number} - {name}\n  ---\n  message: {}\n  run_id: {}\n  workspace: {}\n{head}{failed}  ...\n",
                quoted(&message),
                quoted(&trial.run_id),
                quoted(&trial.workspace)
            )
        }
    }
}

/// Text on one line in which nothing begins a directive.
fn escaped(text: &str) -> String {
    in_short(&printable(text), LINE_COLUMNS)
        .replace('\\', "\\\\")
        .replace('#', "\\#")
}

/// A string in YAML, with no other escapes than those that every reader of TAP knows.
fn quoted(text: &str) -> String {
    let is_character = |c: &char| !matches!(c, '\u{FFFE}' | '\u{FFFF}');
    let text: String = printable(text).chars().filter(is_character).collect();
    json::text(&text)
}
