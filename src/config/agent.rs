//! An agent, as its files define it.

use crate::config::acceptance::Acceptance;
use crate::config::api::{Api, CacheTime, Header};
use crate::config::pricing::{Budget, PriceList};
use crate::config::tool::definition::{Tool, Word};
use crate::text::json;
use serde_json::Value;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

/// An agent, as its files say.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    /// Absolute, with symbolic links resolved. UTF-8.
    pub home: PathBuf,
    pub name: String,
    pub version: Option<String>,
    pub description: Option<String>,
    /// How its model is reached.
    pub llm: Llm,
    /// The limit of iterations of one start of the engine.
    pub max_iterations: u64,
    /// How many bytes of each of a tool's streams the model is given.
    pub max_output_bytes: u64,
    /// How many of the newest invocations keep their request whole; 0: all.
    pub keep_requests: usize,
    /// Tokens that one start of the engine may spend; 0: no limit.
    pub limit_tokens: u64,
    /// Seconds that one start of the engine may take; 0: no limit.
    pub limit_seconds: u64,
    /// How long a tool may take, unless it says otherwise.
    pub tool_timeout: Option<Duration>,
    /// Put before the command of every tool that has no wrapper of its own.
    pub wrapper: Vec<Word>,
    /// Without `ask_human`.
    pub tools: Vec<Tool>,
    pub ask_human: bool,
    /// The journal reaches the disk before an action starts.
    pub sync: bool,
    /// Names, and prefixes that end in `*`, of the variables that a workspace's `.env` may set; none: all but
    /// those that decide which program runs.
    pub workspace_env: Option<Vec<String>>,
    pub prices: PriceList,
    pub budget: Budget,
    pub acceptance: Acceptance,
    pub context: Context,
    pub hooks: Vec<Hook>,
}

impl Agent {
    /// How long one start of the engine may take.
    pub(crate) fn longest_start(&self) -> Option<Duration> {
        let seconds = self.limit_seconds.min(1 << 32);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

/// How a model is reached.
#[derive(Clone, Debug)]
pub(crate) struct Llm {
    /// None if there is a command, or if no model is named.
    pub model: Option<String>,
    /// The agent names no model: it is the environment's.
    pub is_from_environment: bool,
    /// Keys that are not the engine's own, in the order written; they go into the request.
    pub parameters: Vec<(String, Value)>,
    /// The form of requests and answers.
    pub api: Api,
    /// Headers that are sent beside the usual ones.
    pub headers: Vec<Header>,
    /// Answers come as they are made. Then `timeout` is the longest silence.
    pub stream: bool,
    /// Of Messages: how long the service is asked to keep the beginnings of requests.
    pub cache: CacheTime,
    /// The endpoint, if the agent says one.
    pub base_url: Option<String>,
    /// A program that is the model.
    pub command: Option<Vec<Word>>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How long one attempt may take when its answer comes as it is made.
    pub total_timeout: Duration,
    /// How often an attempt is repeated.
    pub max_retries: u32,
}

impl Llm {
    /// True if a model is named, or a program serves as one.
    pub(crate) fn has_model(&self) -> bool {
        self.model.is_some() || self.command.is_some()
    }

    /// The model's name as JSON.
    pub(crate) fn model_json(&self) -> Option<String> {
        self.model.as_ref().map(json::text)
    }
}

/// The parts of a request.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// In order; all there is.
    pub sources: Vec<Source>,
    /// Every block before the journal is a system message of its own.
    pub separate: bool,
}

/// One part of what the model sees.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A file.
    File {
        /// The block's name.
        id: String,
        /// Where it is.
        path: Word,
        optional: bool,
    },
    /// A file of one name, in the workspace and the directories above it in its repository.
    Upward {
        /// The block's name.
        id: String,
        /// The path from each of these directories.
        name: String,
        /// The most bytes of them all.
        max_bytes: u64,
        optional: bool,
    },
    /// A file that a program writes.
    Computed {
        /// The block's name.
        id: String,
        /// The program.
        command: Vec<Word>,
        /// How long it may take.
        timeout: Duration,
        /// The file it writes.
        output: Word,
        /// The file may be missing, and the program may fail.
        optional: bool,
        /// Run once for each start of the engine instead of before every request.
        once: bool,
    },
    /// The conversation.
    Journal {
        /// How many of the newest iterations; none: all.
        max_iterations: Option<usize>,
    },
}

impl Source {
    /// The block's name; the conversation has none.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::File { id, .. } | Self::Upward { id, .. } | Self::Computed { id, .. } => Some(id),
            Self::Journal { .. } => None,
        }
    }
}

/// A program that is run at a certain moment.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    /// When.
    pub event: HookEvent,
    /// The program.
    pub command: Vec<Word>,
    /// How long it may take.
    pub timeout: Duration,
}

/// The moments at which hooks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    PreLlmRequest,
    PostLlmResponse,
    PreToolExecution,
    PostToolExecution,
    OnError,
    OnRunEnd,
    OnIterationStart,
    OnIterationEnd,
}

impl HookEvent {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::PreLlmRequest,
        Self::PostLlmResponse,
        Self::PreToolExecution,
        Self::PostToolExecution,
        Self::OnError,
        Self::OnRunEnd,
        Self::OnIterationStart,
        Self::OnIterationEnd,
    ];

    /// As it is written in hooks.yaml.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreLlmRequest => "pre_llm_request",
            Self::PostLlmResponse => "post_llm_response",
            Self::PreToolExecution => "pre_tool_execution",
            Self::PostToolExecution => "post_tool_execution",
            Self::OnError => "on_error",
            Self::OnRunEnd => "on_run_end",
            Self::OnIterationStart => "on_iteration_start",
            Self::OnIterationEnd => "on_iteration_end",
        }
    }
}

/// Something wrong, or doubtful, in an agent's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// How grave it is.
    pub severity: Severity,
    /// The file, relative to the current directory where that is shorter.
    pub file: String,
    /// Line, from 1, if it is known.
    pub line: Option<usize>,
    /// Column, from 1, if it is known.
    pub column: Option<usize>,
    /// The fault and the way out.
    pub message: String,
    /// The system lacked something for the moment that has nothing to do with the file.
    pub is_passing: bool,
}

/// How grave a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The agent cannot run.
    Error,
    /// Something was probably not meant.
    Warning,
    /// Written in a form that will go away.
    Deprecation,
    /// A note for a person who checks the agent.
    Advice,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.severity {
            Severity::Error => {}
            Severity::Warning | Severity::Advice => f.write_str("warning: ")?,
            Severity::Deprecation => f.write_str("[DEPRECATION WARNING] ")?,
        }
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Puts problems in the order in which a person works through them: by file and line.
pub(crate) fn sort_problems(problems: &mut [Problem]) {
    problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
}
