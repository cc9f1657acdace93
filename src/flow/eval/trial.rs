//! A trial: one attempt of a flow, an agent or a command at a case, as it was recorded.

pub(crate) use crate::record::event::evaluation::TrialOutcome;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What this start of the evaluation has done with a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    #[default]
    None,
    Judged,
    Run,
}

/// One trial of a case under a setting; as printed in JSONL, without its suite.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    /// The case's id, as the user wrote it.
    pub case: String,
    /// The setting's name.
    pub setting: String,
    /// From 1, within the case and the setting.
    #[serde(rename = "trial")]
    pub number: u32,
    #[serde(rename = "status")]
    pub outcome: TrialOutcome,
    /// The reason of the end, in the words of runs and flows, or `asked`, `grader`, `context_full`.
    pub stop_reason: String,
    /// The weighted share of its assertions that hold, 0..=1; none if it was not measured.
    pub score: Option<f64>,
    /// The assertions with their results: a JSON list, which is parsed where it is needed. None: not asked for, or not judged.
    #[serde(serialize_with = "list_or_empty")]
    pub assertions: Option<Box<RawValue>>,
    pub run_id: String,
    /// Its directory.
    pub workspace: String,
    /// In the currency of the prices.
    pub cost: Option<f64>,
    /// Wall clock without queueing, retries included.
    pub duration_ms: Option<u64>,
    /// The models that have answered, in the order of their first answers.
    pub models: Vec<String>,
    pub tokens: Option<u64>,
    /// How many of them are estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_estimated: Option<u64>,
    /// Attempts that ended not measured before this one.
    pub retries: u32,
    /// Asked of its model as the seed of what it draws.
    pub seed: Option<u64>,
    /// Given by graders, by their names; all finite.
    pub scores: BTreeMap<String, f64>,
    /// The reason of the grade, or what a grader said of an answer that passed.
    pub reason: Option<String>,
    /// SHA-256 of the output, by which trials that are identical are found.
    #[serde(skip)]
    pub output_hash: Option<String>,
    /// The directory of records with its answer, from the run's directory.
    #[serde(skip)]
    pub execution_ref: Option<String>,
    #[serde(skip)]
    pub activity: Activity,
}

#[allow(clippy::ref_option)] // As serde calls it.
fn list_or_empty<S: Serializer>(list: &Option<Box<RawValue>>, to: S) -> Result<S::Ok, S::Error> {
    match list {
        Some(list) => list.serialize(to),
        None => to.collect_seq([(); 0]),
    }
}
