//! The object that `delta run` and `delta-flow run` print with `--format json`, as far as those that start them read it.

use crate::error::{At, Result};
use crate::text::json;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::Path;

/// The result of a run; empty if its program printed something else.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct PrintedRun {
    pub status: Option<String>,
    pub stop_reason: Option<String>,
    /// Of the agents that a flow waits for.
    pub agent_stop_reasons: Vec<String>,
    /// An agent's answer.
    pub result: Option<String>,
    /// A flow's.
    pub output: Option<Box<RawValue>>,
    pub exit_node: Option<String>,
    pub error: Option<PrintedError>,
    pub interaction: Option<PrintedQuestion>,
    pub awaits: Option<AwaitedRun>,
    /// The reasons why a flow has not ended.
    pub messages: Vec<String>,
    /// The reasons why a flow cannot be loaded.
    pub errors: Vec<PrintedError>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct PrintedError {
    pub node: Option<String>,
    pub code: Option<String>,
    pub message: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct PrintedQuestion {
    pub request_id: String,
    pub prompt: String,
    pub input_type: String,
}

/// The run of a sub-agent that an agent's run waits for.
#[derive(Deserialize)]
pub(crate) struct AwaitedRun {
    pub interaction: Option<PrintedQuestion>,
    pub answer_command: Option<String>,
}

impl PrintedRun {
    /// Reads what a program has printed. `io` is its directory of records.
    pub(crate) fn read(io: &Path) -> Result<Self> {
        let path = io.join("stdout.log");
        Ok(json::read_or_default(
            &std::fs::read(&path).at("read", &path)?,
        ))
    }

    /// The message of the error that has ended it.
    pub(crate) fn error_message(&self) -> Option<String> {
        Some(self.error.as_ref()?.message.clone())
    }
}
