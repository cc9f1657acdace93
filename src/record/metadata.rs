//! `metadata.json`: a run's status and summary, for people and scripts.
//!
//! Unaware of how runs continue. A cache: everything in it can be rebuilt from the journal, and
//! where the two disagree the journal is right.

use crate::IS_CHECKED;
use crate::error::{Exit, Result};
use crate::record::event::{ForkedFrom, RunUsage};
use crate::record::state::Run;
use crate::text::json;
use crate::text::names::named_enum;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "metadata.json";

/// Every word of `stop_reason`: those of agents' runs, of signals, of flows and of evaluations.
#[rustfmt::skip]
pub(crate) const STOP_REASONS: [&str; 37] = [
    "final_answer", "length", "content_filter", "call_as_text", "not_accepted", "model_unavailable", "model_refused",
    "context_full", "context", "disk_full", "io_error", "max_iterations", "no_progress", "tokens", "seconds",
    "budget", "deadline", "accept", "hook", "journal_changed", "ask_human", "deferred", "background", "subagent", "SIGINT", "SIGTERM", "SIGHUP",
    "success", "partial", "failure", "paused", "agent", "input",
    "passed", "failed", "undecided", "configuration",
];

named_enum! {
    /// The state of a run.
    #[derive(Default)]
    pub enum Status {
        /// A process works on the run if the journal is locked; otherwise that process has died.
        Running = "RUNNING",
        /// A question to a person is open.
        WaitingForInput = "WAITING_FOR_INPUT",
        /// The model gave its final answer.
        Completed = "COMPLETED",
        /// The run cannot go on without another message.
        Failed = "FAILED",
        /// The same command resumes it.
        #[default]
        Interrupted = "INTERRUPTED",
    }
}

impl Status {
    /// The text with which a run ends, as its result or as what went wrong.
    pub(crate) fn result_or_error<T>(self, text: T) -> (Option<T>, Option<T>) {
        match self {
            Self::Completed => (Some(text), None),
            _ => (None, Some(text)),
        }
    }
}

/// The file's content. Times are RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub run_id: String,
    pub workspace_id: String,
    pub agent_name: String,
    pub status: Status,
    pub created_at: String,
    pub start_time: String,
    pub updated_at: String,
    pub end_time: Option<String>,
    pub initial_message: Option<String>,
    /// Of a first message with files: its texts and their names, by which it is known again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_parts: Option<Value>,
    pub iterations: u64,
    pub max_iterations: u64,
    pub error: Option<String>,
    pub stop_reason: Option<String>,
    pub exit_code: Option<u8>,
    /// Time when a run that waits for calls is to look at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    pub agent_home: String,
    pub work_dir: String,
    pub pid: u32,
    pub hostname: String,
    pub delta_version: String,
    /// Variables of the batch system that started the engine.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub launcher: Map<String, Value>,
    pub parent_run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
    /// Hosts that tools may reach without a network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_hosts: Vec<String>,
    pub usage: RunUsage,
    pub result: Option<String>,
    /// Only in a workflow's run: its files, start and input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<Value>,
}

/// What precedes the content of a file in a message.
pub(crate) fn file_head(name: &str) -> String {
    format!("# File: {name}\n\n")
}

impl Metadata {
    /// True for a run of an agent that is not a part of another run.
    pub(crate) fn is_conversation(&self) -> bool {
        self.flow.is_none() && self.parent_run_id.is_none()
    }

    /// The words of the first message as lists show them: the texts beside its files, or else what is in the first file.
    pub(crate) fn task_words(&self) -> Cow<'_, str> {
        let message = self.initial_message.as_deref().unwrap_or_default();
        let parts = self
            .message_parts
            .as_ref()
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let texts: Vec<&str> = parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect();
        if !texts.is_empty() {
            return texts.join(" ").into();
        }
        parts
            .first()
            .and_then(|part| part["file"].as_str())
            .and_then(|name| message.strip_prefix(&file_head(name)))
            .unwrap_or(message)
            .into()
    }

    /// How long the last start took; nothing if it has not ended.
    pub(crate) fn running_time(&self) -> Duration {
        let start = Timestamp::parse(&self.start_time);
        let end = self.end_time.as_deref().and_then(Timestamp::parse);
        start
            .zip(end)
            .map_or(Duration::ZERO, |(start, end)| end.since(start))
    }

    /// True if the run has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status, Status::Completed | Status::Failed)
    }

    /// True if the run needs a person before it can continue.
    pub(crate) fn needs_attention(&self) -> bool {
        match self.status {
            Status::Running => false,
            Status::Failed | Status::WaitingForInput => true,
            Status::Completed | Status::Interrupted => {
                matches!(self.exit_code, Some(3 | 4 | 78 | 101))
            }
        }
    }

    /// True if the same command may well bring the run to its end: it was to be tried later, a signal ended it, or
    /// its process died. A reason without an exit code leaves that open.
    pub(crate) fn is_retryable(&self) -> bool {
        let is_told = self.exit_code.is_some() || self.stop_reason.is_none();
        self.status == Status::Interrupted && is_told && !self.needs_attention()
    }

    /// Replaces the file in the directory of a live run.
    pub(crate) fn update(&self, run_dir: &Path) -> Result<()> {
        files::exchange(&run_dir.join(FILE), &self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Writes the file into the directory of a run that is being made.
    pub(crate) fn create(&self, run_dir: &Path) -> Result<()> {
        files::write(&run_dir.join(FILE), &self.bytes())
    }

    /// Replaces the file in a run's directory.
    pub(crate) fn write(&self, run_dir: &Path) -> Result<()> {
        files::replace(&run_dir.join(FILE), &self.bytes())
    }

    /// Describes the end of this start.
    pub(crate) fn end(&mut self, status: Status, reason: &str, exit: Exit, text: String) {
        let is_listed = || STOP_REASONS.contains(&reason);
        assert!(!IS_CHECKED || is_listed(), "{reason} is not listed");
        self.status = status;
        self.stop_reason = Some(reason.to_owned());
        self.exit_code = Some(exit.code());
        self.updated_at = Timestamp::now().to_string();
        self.end_time = Some(self.updated_at.clone());
        (self.result, self.error) = status.result_or_error(text);
    }

    /// Corrects what a journal knows better. A run that is not at its end has been interrupted.
    pub(crate) fn correct(&mut self, run: &Run<'_>) {
        let text =
            |from: &Option<std::borrow::Cow<'_, str>>| from.as_ref().map(ToString::to_string);
        let start = &run.start;
        for (field, known) in [
            (&mut self.created_at, text(&run.created_at)),
            (&mut self.start_time, text(&run.started_at)),
            (&mut self.updated_at, text(&run.updated_at)),
            (&mut self.agent_home, start.agent_home.owned()),
            (&mut self.work_dir, start.work_dir.owned()),
            (&mut self.hostname, start.hostname.owned()),
        ] {
            if let Some(known) = known {
                *field = known;
            }
        }
        if run.starts > 0 {
            self.launcher = start.launcher();
        }
        if start.parent_run_id.is_some() {
            self.parent_run_id = start.parent_run_id.owned();
            self.parent_call_id = start.parent_call_id.owned();
        }
        if run.first_message.is_some() {
            self.initial_message = text(&run.first_message);
        }
        self.message_parts.clone_from(&start.message_parts);
        self.forked_from.clone_from(&start.forked_from);
        self.set = start.set();
        self.allow_hosts = start.allow_hosts();
        self.iterations = run.iterations;
        self.max_iterations = run.max_iterations.unwrap_or(self.max_iterations);
        self.usage = run.usage;
        (self.error, self.result, self.end_time) = (None, None, None);
        let wait = run.open_wait();
        // What a run below it waits for, its journal does not say.
        let waits_below = run.is_flow || self.stop_reason.as_deref() == Some("subagent");
        if wait.is_some() || !waits_below {
            self.due_at = wait.map(|wait| wait.due_at.to_string());
        }
        let Some(end) = &run.end else {
            self.status = Status::Interrupted;
            (self.stop_reason, self.exit_code) = (None, None);
            return;
        };
        self.status = Status::parse(&end.status).unwrap_or(Status::Failed);
        self.stop_reason = text(&end.stop_reason);
        self.exit_code = end.exit_code.and_then(|code| u8::try_from(code).ok());
        self.end_time = text(&end.at);
        match self.status {
            Status::Completed => self.result = text(&end.text),
            _ => self.error = text(&end.text),
        }
    }
}

/// The largest file that counts as metadata.
pub(super) const LARGEST: u64 = 64 << 20;

/// The metadata of a run; `None` if the file is missing, torn or a link.
pub(crate) fn read(run_dir: &Path) -> Option<Metadata> {
    let file = files::open_unlinked(&run_dir.join(FILE)).ok()?;
    let text = files::read_limited(file, LARGEST).ok()?;
    json::read(&text)
}

/// The summary of a run, a cache: empty if it is lost or damaged.
pub(crate) fn read_or_empty(run_dir: &Path) -> Metadata {
    read(run_dir).unwrap_or_default()
}
