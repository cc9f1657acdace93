//! The events that only runs of evaluations have, as they are written and read; see `flow::eval::record`.

use super::{EvaluationEvent, Line, Recorded};
use crate::text::names::named_enum;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The file in a trial's directory of records that has the result.
pub(crate) const RESULT: &str = "result.json";

/// The directory of a run with the results of its suites as they were printed last, a file for each.
pub(crate) const RESULTS: &str = "results";

named_enum! {
    /// The result of a trial.
    pub(crate) enum TrialOutcome {
        /// A final answer of which every assertion holds.
        Passed = "passed",
        /// Any other failure of the target itself, its own limits included.
        Failed = "failed",
        /// An end that says nothing of the target: an outage, a signal, a broken grader.
        NotMeasured = "not_measured",
    }
}

/// The beginning of a trial, or of another attempt at it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrialStart<'e> {
    pub suite: Cow<'e, str>,
    pub trial: Cow<'e, str>,
    pub case: Cow<'e, str>,
    pub setting: Cow<'e, str>,
    pub number: u32,
    /// From 1.
    pub attempt: u32,
    pub seed: u32,
    /// From the evaluation's workspace.
    pub workspace: Cow<'e, str>,
    pub call_id: Cow<'e, str>,
    pub resolved_command: Cow<'e, str>,
    /// The directory of records, from the run's directory.
    pub execution_ref: Cow<'e, str>,
}

/// The end of a target's program, before anything is judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrialEnd {
    /// `answered`, `failed` or `not_measured`.
    pub status: String,
    pub stop_reason: String,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub cost: Option<f64>,
    pub tokens: Option<u64>,
    /// How many of them are estimates, because the model did not say or the run was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_estimated: Option<u64>,
    /// Repeated attempts to reach the model.
    pub retries: u32,
    /// Those that have answered.
    pub models: Vec<String>,
    pub output_sha256: Option<String>,
    /// The directory of records, from the run's directory. The result is in it.
    pub execution_ref: String,
}

/// The file of a trial's result, from the run's directory. None if that leads anywhere else: no path of a journal is obeyed.
pub(crate) fn result_path(execution_ref: &str) -> Option<PathBuf> {
    let below = Path::new(execution_ref).join(RESULT);
    (files::is_below(&below) && below.starts_with("io/trials")).then_some(below)
}

/// The judgment of an answer by assertions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Grade {
    #[serde(rename = "status")]
    pub outcome: TrialOutcome,
    #[serde(default)]
    pub stop_reason: String,
    pub score: Option<f64>,
    /// The digest of all that judged it.
    #[serde(default)]
    pub grading: String,
    /// Given by graders, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
    /// Why it did not pass, or what a grader said of an answer that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The assertions with their results: a JSON list.
    pub assertions: Box<RawValue>,
}

/// True for a number that graders may give by a name.
pub(crate) fn is_score(score: f64) -> bool {
    /// The sum of the squares of so great numbers is a number, too.
    const GREATEST: f64 = 1e100;
    score.abs() <= GREATEST
}

/// A verdict that was printed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RecordedLook {
    pub suite: String,
    /// From 1, since the assertions changed last.
    pub number: u32,
    pub alpha: f64,
    /// `passed`, `failed` or `undecided`.
    pub verdict: String,
    /// The digest of the names of the trials that were measured.
    pub trials: String,
    /// The digest of what judges each case, by its id.
    pub gradings: BTreeMap<String, String>,
    /// The names of the agents; empty in records of earlier versions, and where none is tried.
    pub agents: Vec<String>,
    /// The numbers of each setting, for display.
    pub rates: Vec<Value>,
}

/// An event about a suite and, but for looks, one of its trials.
pub(crate) struct TrialLine {
    pub suite: String,
    pub trial: String,
    pub event: TrialEvent,
}

pub(crate) enum TrialEvent {
    Start(TrialStart<'static>),
    End(TrialEnd),
    /// None if it names no outcome or no assertions.
    Grade(Option<Grade>),
    Look(RecordedLook),
}

impl TrialLine {
    /// Reads a line; none if it is another or cannot be read.
    pub(crate) fn read(line: &Line<'_>) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct OfTrial {
            suite: String,
            trial: String,
        }
        let Recorded::Evaluation(kind) = &line.event else {
            return None;
        };
        let OfTrial { suite, trial } = serde_json::from_str(line.text).ok()?;
        Some(Self {
            suite,
            trial,
            event: match kind {
                EvaluationEvent::TrialStart => {
                    TrialEvent::Start(serde_json::from_str(line.text).ok()?)
                }
                EvaluationEvent::TrialEnd => TrialEvent::End(serde_json::from_str(line.text).ok()?),
                EvaluationEvent::Grade => TrialEvent::Grade(Grade::read(line.text)),
                EvaluationEvent::Look => TrialEvent::Look(serde_json::from_str(line.text).ok()?),
            },
        })
    }
}

impl Grade {
    fn read(line: &str) -> Option<Self> {
        let mut grade: Self = serde_json::from_str(line).ok()?;
        grade.score = grade.score.filter(|score| (0.0..=1.0).contains(score));
        grade.scores.retain(|_, score| is_score(*score));
        Some(grade)
    }
}
