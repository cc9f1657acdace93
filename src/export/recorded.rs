//! A run as it was recorded: its steps in order, each call with its result, and the runs that it has started.
//!
//! Unaware of journals and of the forms in which it leaves.

use super::content::Content;
use super::records::{RecordedInvocation, RequestHead};
use crate::config::pricing::Pricing;
use crate::record::event::Tokens;
use crate::record::reader::Damage;
use crate::text::timestamp::Timestamp;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A run, and all that it has started.
#[derive(Debug, Default)]
pub(crate) struct RecordedRun {
    /// Unique among the runs that are exported together.
    pub id: String,
    /// The outermost run that this one is a part of, or itself.
    pub root: String,
    /// The run and the call that started it.
    pub parent: Option<(String, Option<String>)>,
    /// The span of another program that it is a part of, as `TRACEPARENT` has it.
    pub traceparent: Option<String>,
    pub agent: RecordedAgent,
    pub is_flow: bool,
    pub hostname: Option<String>,
    pub delta_version: Option<String>,
    pub forked_from: Option<String>,
    pub began: Option<Timestamp>,
    /// The time of the last event.
    pub ended: Option<Timestamp>,
    /// None if it has not ended.
    pub end: Option<RunEnd>,
    pub head: RequestHead,
    pub steps: Vec<ExportedStep>,
    /// Requests that no answer belongs to.
    pub unanswered: Vec<RecordedInvocation>,
    pub children: Vec<RecordedRun>,
    /// Lines of journals that cannot be read, of the runs below, too.
    pub damaged: Vec<(PathBuf, Damage)>,
}

/// The agent of the newest start.
#[derive(Debug, Default)]
pub(crate) struct RecordedAgent {
    pub name: String,
    pub version: Option<String>,
    /// The agent's directory.
    pub home: Option<String>,
    pub model: Option<String>,
    /// The keys of `llm` in the configuration.
    pub llm: Map<String, Value>,
    pub pricing: Option<Pricing>,
}

/// The way the engine ended.
#[derive(Debug)]
pub(crate) struct RunEnd {
    pub status: String,
    pub stop_reason: Option<String>,
    pub exit_code: Option<i64>,
    pub error: Option<String>,
}

/// One thing that happened.
#[derive(Debug)]
pub(crate) struct ExportedStep {
    pub at: Option<Timestamp>,
    /// It happened in the run that this one is a fork of.
    pub is_copied: bool,
    pub what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    /// A message of a person.
    User(Content),
    /// The engine noted something.
    System {
        text: String,
        /// The model has read it as the user's words.
        is_told: bool,
        extra: Map<String, Value>,
    },
    Answer(Box<ExportedAnswer>),
    /// A step of a workflow: the call that it is, and those that its program made.
    Node(Vec<ExportedCall>),
}

/// An answer of the model.
#[derive(Debug, Default)]
pub(crate) struct ExportedAnswer {
    /// The number of its event.
    pub seq: u64,
    /// It is a summary, which shortens the conversation.
    pub is_summary: bool,
    pub text: Option<String>,
    pub reasoning: Option<String>,
    pub finish_reason: Option<String>,
    pub usage: Option<Tokens>,
    pub invocation: Option<RecordedInvocation>,
    /// The model's settings at that time.
    pub llm: Map<String, Value>,
    pub pricing: Option<Pricing>,
    pub calls: Vec<ExportedCall>,
}

/// A call of a tool.
#[derive(Debug, Default)]
pub(crate) struct ExportedCall {
    /// Unique in its step.
    pub id: String,
    /// Its text in the journal.
    pub action_id: String,
    pub name: String,
    pub arguments: Map<String, Value>,
    /// The model's text in place of a JSON object, if it sent one.
    pub invalid_arguments: Option<String>,
    /// `DELTA_CALL_ID` of its processes.
    pub call_id: Option<String>,
    /// Time when the action was started.
    pub began: Option<Timestamp>,
    pub result: Option<CallResult>,
    /// The runs that it has started: places in the list of children.
    pub started: Vec<usize>,
}

/// The result of a call.
#[derive(Debug, Default)]
pub(crate) struct CallResult {
    pub at: Option<Timestamp>,
    pub content: Content,
    pub is_success: bool,
    pub status: Option<String>,
    pub exit_code: Option<i64>,
    pub duration_ms: Option<u64>,
}

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub prompt: u64,
    pub completion: u64,
    pub cached: u64,
    /// None where no price is known.
    pub cost: Option<f64>,
}

impl RecordedRun {
    /// What the run's own answers have used; with `below`, those of the runs that it has started, too.
    pub(super) fn spent(&self, below: bool) -> Spent {
        let own = self
            .steps
            .iter()
            .filter(|step| !step.is_copied)
            .filter_map(|step| match &step.what {
                What::Answer(answer) => answer.spent(),
                _ => None,
            });
        let children = self.children.iter().filter(|_| below);
        own.chain(children.map(|child| child.spent(true)))
            .fold(Spent::default(), Spent::plus)
    }
}

impl ExportedStep {
    pub(super) fn calls(&self) -> &[ExportedCall] {
        match &self.what {
            What::Answer(answer) => &answer.calls,
            What::Node(calls) => calls,
            What::User(_) | What::System { .. } => &[],
        }
    }
}

impl Spent {
    fn plus(self, other: Self) -> Self {
        let cost = match (self.cost, other.cost) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        };
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            completion: self.completion.saturating_add(other.completion),
            cached: self.cached.saturating_add(other.cached),
            cost,
        }
    }
}

impl ExportedAnswer {
    /// None if the server did not count.
    pub(super) fn spent(&self) -> Option<Spent> {
        let usage = self.usage?;
        let (prompt, completion) = (usage.prompt_tokens, usage.completion_tokens);
        let record = self.invocation.as_ref();
        // They are part of the request's.
        let cached = record
            .and_then(RecordedInvocation::cached)
            .unwrap_or(0)
            .min(prompt);
        let written = record.and_then(|it| it.cache_written).unwrap_or(0);
        let cost = self
            .pricing
            .map(|prices| prices.cost((prompt, completion), cached, written));
        Some(Spent {
            prompt,
            completion,
            cached,
            cost: cost.filter(|cost| cost.is_finite()),
        })
    }
}
