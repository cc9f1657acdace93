//! A trial: one attempt of a flow, an agent or a command at a case, as it was recorded.

use crate::text::names::named_enum;
use serde_json::value::RawValue;

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

/// One trial of a case under a setting.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// The case's id, as the user wrote it.
    pub case: String,
    /// The setting's name.
    pub setting: String,
    /// From 1, within the case and the setting.
    pub number: u32,
    pub outcome: TrialOutcome,
    /// Why the trial ended, in the words of runs and flows, or `asked`, `grader`, `context_full`.
    pub stop_reason: String,
    /// The weighted share of its assertions that hold, 0..=1; none if it was not measured.
    pub score: Option<f64>,
    /// Its assertions with their results, as printed in JSONL: a JSON list, which is parsed where it is needed. None: not asked
    /// for.
    pub assertions: Option<Box<RawValue>>,
    pub run_id: String,
    /// Its directory.
    pub workspace: String,
    /// In the currency of the prices.
    pub cost: Option<f64>,
    pub tokens: Option<u64>,
    /// Wall clock without queueing, retries included.
    pub duration_ms: Option<u64>,
    /// Attempts that ended not measured before this one.
    pub retries: u32,
    /// The models that have answered, in the order of their first answers.
    pub models: Vec<String>,
    /// SHA-256 of the output, by which trials that are identical are found.
    pub output_hash: Option<String>,
    /// What its model was asked to draw with.
    pub seed: Option<u64>,
}
