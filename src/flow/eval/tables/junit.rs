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
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for (summary, trials) in suites {
        for setting in &summary.settings {
            let of_setting = |trial: &&Trial| trial.setting == setting.name;
            let trials: Vec<&Trial> = trials.iter().filter(of_setting).collect();
            push_suite(&mut out, &summary.suite, &setting.name, &trials);
        }
    }
    out.push_str("</testsuites>\n");
    out
}

fn push_suite(out: &mut String, suite: &str, setting: &str, trials: &[&Trial]) {
    let count = |outcome: TrialOutcome| {
        trials
            .iter()
            .filter(|trial| trial.outcome == outcome)
            .count()
    };
    let name = format!("{suite}.{setting}");
    out.push_str(&format!(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{}\">\n",
        escaped(&name),
        trials.len(),
        count(TrialOutcome::Failed),
        count(TrialOutcome::NotMeasured),
        seconds(trials.iter().filter_map(|trial| trial.duration_ms).sum()),
    ));
    for trial in trials {
        push_trial(out, &name, trial);
    }
    out.push_str("  </testsuite>\n");
}

fn push_trial(out: &mut String, class: &str, trial: &Trial) {
    out.push_str(&format!(
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{}\">\n",
        escaped(class),
        escaped(&trial_name(trial)),
        seconds(trial.duration_ms.unwrap_or(0)),
    ));
    let body = escaped(&assertions_against(trial).join("\n"));
    let message = escaped(&in_short(&message(trial), MESSAGE_COLUMNS));
    match trial.outcome {
        TrialOutcome::Passed => {}
        TrialOutcome::Failed => out.push_str(&format!(
            "      <failure type=\"{}\" message=\"{message}\">{body}</failure>\n",
            escaped(&trial.stop_reason)
        )),
        TrialOutcome::NotMeasured => {
            out.push_str(&format!(
                "      <error type=\"not_measured\" message=\"{message}\">{body}</error>\n"
            ));
        }
    }
    let place = format!("run {} in {}", trial.run_id, trial.workspace);
    out.push_str(&format!(
        "      <system-out>{}</system-out>\n    </testcase>\n",
        escaped(&place)
    ));
}

/// `case, trial 3`.
pub(super) fn trial_name(trial: &Trial) -> String {
    format!("{}, trial {}", trial.case, trial.number)
}

/// Why a trial did not pass, on a line.
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
    let marks = trial.assertions.as_ref();
    let marks = marks.and_then(|list| serde_json::from_str::<Vec<Value>>(list.get()).ok());
    let failed = marks
        .iter()
        .flatten()
        .filter(|assertion| assertion.get("passed") == Some(&wanted));
    failed
        .map(|assertion| {
            let kind = assertion["type"].as_str().unwrap_or("assertion");
            ["message", "reason"]
                .into_iter()
                .find_map(|key| assertion[key].as_str())
                .map_or_else(|| kind.to_owned(), |why| format!("{kind}: {why}"))
        })
        .collect()
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// Text for an attribute or an element: without characters that XML 1.0 does not have, or that control a terminal.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{FFFE}' | '\u{FFFF}' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}
