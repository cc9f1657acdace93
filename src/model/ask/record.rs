//! The record of an invocation, `metadata.json`: each of its attempts, and the outcome.
//!
//! Unaware of why an attempt is followed by another.

use super::{Asked, Invocation, NextStep};
use crate::error::Result;
use crate::model::response::Answer;
use crate::record::event::Terms;
use crate::record::invocations::{InvocationStatus, OpenAnswer, read_file};
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

#[derive(Deserialize, Serialize)]
pub(super) struct AttemptRecord {
    started_at: String,
    duration_ms: u64,
    outcome: String,
}

#[derive(Default, Serialize)]
struct TokenCounts {
    prompt: u64,
    completion: u64,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<u64>,
    #[serde(flatten)]
    terms: Terms,
}

/// The facts about an invocation for its metadata.json.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct InvocationRecord {
    pub attempts: Vec<AttemptRecord>,
    pub http_status: Option<u16>,
    pub timed_out: bool,
    /// The answer that the service is making.
    pub open: Option<OpenAnswer>,
    #[serde(skip)]
    model: Option<String>,
    #[serde(skip)]
    usage: Option<TokenCounts>,
}

impl InvocationRecord {
    /// The record that an earlier start has left.
    pub(super) fn read(dir: &Path) -> Self {
        let text = read_file(dir, "metadata.json", files::LARGEST_METADATA);
        text.map_or_else(|_| Self::default(), |text| json::read_or_default(&text))
    }

    /// The step that follows a failed attempt; one that will hardly end in another way is repeated once.
    pub(super) fn again_or_refused(&self, why: &str, is_lasting: bool) -> NextStep {
        let mut before = self.attempts.iter();
        if is_lasting && before.any(|attempt| attempt.outcome == why) {
            NextStep::End(Asked::Refused(why.to_owned(), None))
        } else {
            NextStep::Again(why.to_owned(), None)
        }
    }

    pub(super) fn add_attempt(&mut self, began: Timestamp, took: Duration, outcome: String) {
        self.attempts.push(AttemptRecord {
            started_at: began.to_string(),
            duration_ms: took.as_millis() as u64,
            outcome,
        });
    }

    pub(super) fn note_answer(&mut self, answer: &Answer) {
        self.model.clone_from(&answer.model);
        let some = |tokens: u64| (tokens > 0).then_some(tokens);
        self.usage = answer.usage.map(|usage| TokenCounts {
            prompt: usage.prompt_tokens,
            completion: usage.completion_tokens,
            total: usage.total_tokens,
            cached: answer.cached_tokens,
            cache_write: some(answer.counted.cache_written),
            reasoning: some(answer.counted.reasoning),
            terms: answer.terms.clone(),
        });
    }

    /// Writes that the answer is open, so that a later start finds it.
    pub(super) fn write_open(&self, invocation: &Invocation<'_>) -> Result<()> {
        let text = self.text(invocation, InvocationStatus::Pending, Duration::ZERO);
        files::replace(&invocation.dir.join("metadata.json"), &text)
    }

    pub(super) fn write(
        self,
        invocation: &Invocation<'_>,
        asked: &Asked,
        took: Duration,
    ) -> Result<()> {
        let status = match asked {
            Asked::Answered(_) => InvocationStatus::Success,
            _ if self.open.is_some() => InvocationStatus::Pending,
            _ if self.timed_out => InvocationStatus::Timeout,
            _ => InvocationStatus::Failed,
        };
        let text = self.text(invocation, status, took);
        let path = invocation.dir.join("metadata.json");
        match path.symlink_metadata() {
            // It has the id of an answer that was open, which a kill must not lose.
            Ok(_) => files::replace(&path, &text),
            Err(_) => files::write(&path, &text),
        }
    }

    fn text(
        &self,
        invocation: &Invocation<'_>,
        status: InvocationStatus,
        took: Duration,
    ) -> Vec<u8> {
        let mut out = json::object(|object| {
            object
                .put("model_id", &self.model)
                .put("status", &status)
                .put("duration_ms", &(took.as_millis() as u64))
                .put("token_usage", &self.usage)
                .put("http_status", &self.http_status)
                .put("attempts", &self.attempts)
                .put_some("open", self.open.as_ref())
                .put_some("context", invocation.context);
            if let Some((name, bytes)) = invocation.extends {
                object.object("extends", |extends| {
                    extends.put("invocation", name).put("bytes", &bytes);
                });
            }
        });
        out.push(b'\n');
        out
    }
}
