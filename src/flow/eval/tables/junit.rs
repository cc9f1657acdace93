//! `JUnit` XML: a suite of tests for each setting of a suite, a test case for each trial.
//!
//! A trial that was not measured is an `error`, which is no failure.

use crate::flow::eval::summary::Summary;
use crate::flow::eval::trial::{Trial, TrialOutcome};
use crate::text::disguise::printable;
use crate::text::shorten::in_short;
use serde_json::Value;

/// The longest message in an attribute.
const MESSAGE_COLUMNS: usize = 200;

/// Suites with their trials as one document.
pub(crate) fn junit(suites: &[(&Summary, &[Trial])]) -> String {
    let suites: String = suites
        .iter()
        .flat_map(|(summary, trials)| {
            summary
                .settings
                .iter()
                .map(|it| suite_element(&summary.suite, &it.name, trials))
        })
        .collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

fn suite_element(suite: &str, setting: &str, trials: &[Trial]) -> String {
    let name = escaped(&format!("{suite}.{setting}"));
    let trials = || trials.iter().filter(|trial| trial.setting == setting);
    let count = |outcome| trials().filter(|trial| trial.outcome == outcome).count();
    let cases: String = trials().map(|trial| case_element(&name, trial)).collect();
    format!(
        "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{}\">\n{cases}  </testsuite>\n",
        trials().count(),
        count(TrialOutcome::Failed),
        count(TrialOutcome::NotMeasured),
        seconds(trials().filter_map(|trial| trial.duration_ms).sum()),
    )
}

/// `class` is escaped.
fn case_element(class: &str, trial: &Trial) -> String {
    let body = escaped(&assertions_against(trial).join("\n"));
    let message = escaped(&in_short(&message(trial), MESSAGE_COLUMNS));
    let outcome = match trial.outcome {
        TrialOutcome::Passed => String::new(),
        TrialOutcome::Failed => format!(
            "      <failure type=\"{}\" message=\"{message}\">{body}</failure>\n",
            escaped(&trial.stop_reason)
        ),
        TrialOutcome::NotMeasured => {
            format!("      <error type=\"not_measured\" message=\"{message}\">{body}</error>\n")
        }
    };
    let place = format!("run {} in {}", trial.run_id, trial.workspace);
    format!(
        "    <testcase classname=\"{class}\" name=\"{}\" time=\"{}\">\n{outcome}      <system-out>{}</system-out>\n    </testcase>\n",
        escaped(&trial_name(trial)),
        seconds(trial.duration_ms.unwrap_or(0)),
        escaped(&place)
    )
}

/// `case, trial 3`.
pub(super) fn trial_name(trial: &Trial) -> String {
    format!("{}, trial {}", trial.case, trial.number)
}

/// The reason why a trial did not pass, on a line.
pub(super) fn message(trial: &Trial) -> String {
    let reason = match trial.outcome {
        TrialOutcome::NotMeasured => format!("not measured: {}", trial.stop_reason),
        TrialOutcome::Passed | TrialOutcome::Failed => trial.stop_reason.clone(),
    };
    match assertions_against(trial).first() {
        Some(first) => format!("{reason}: {first}"),
        None => reason,
    }
}

/// The assertions that do not hold, or of a trial that was not measured those that nothing judged, each on a line:
/// `contains: "refund" is not in the output`.
pub(super) fn assertions_against(trial: &Trial) -> Vec<String> {
    let wanted = match trial.outcome {
        TrialOutcome::NotMeasured => Value::Null,
        TrialOutcome::Passed | TrialOutcome::Failed => Value::Bool(false),
    };
    trial
        .assertions
        .as_ref()
        .and_then(|list| serde_json::from_str::<Vec<Value>>(list.get()).ok())
        .into_iter()
        .flatten()
        .filter(|it| it.get("passed") == Some(&wanted))
        .map(|assertion| {
            let kind = assertion["type"].as_str().unwrap_or("assertion");
            let why = assertion["message"]
                .as_str()
                .or(assertion["reason"].as_str());
            why.map_or_else(|| kind.to_owned(), |why| format!("{kind}: {why}"))
        })
        .collect()
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Text for an attribute or an element: without characters that XML 1.0 does not have, or that control a terminal.
fn escaped(text: &str) -> String {
    let text = printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&apos;")
        .replace('\n', "&#10;");
    text.replace('\t', "&#9;")
        .replace(['\u{FFFE}', '\u{FFFF}'], "\u{FFFD}")
}
