//! The record of an invocation, `metadata.json`: each of its attempts, and what it came to.
//!
//! Unaware of why an attempt is followed by another.

use super::{Asked, Invocation};
use crate::error::Result;
use crate::model::response::Answer;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
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
}

/// The facts about an invocation for its metadata.json.
#[derive(Default)]
pub(super) struct InvocationRecord {
    pub attempts: Vec<AttemptRecord>,
    pub http_status: Option<u16>,
    pub timed_out: bool,
    model: Option<String>,
    usage: Option<TokenCounts>,
}

impl InvocationRecord {
    pub(super) fn add_attempt(&mut self, began: Timestamp, took: Duration, outcome: String) {
        self.attempts.push(AttemptRecord {
            started_at: began.to_string(),
            duration_ms: took.as_millis() as u64,
            outcome,
        });
    }

    pub(super) fn note_answer(&mut self, answer: &Answer) {
        self.model.clone_from(&answer.model);
        self.usage = answer.usage.map(|usage| TokenCounts {
            prompt: usage.prompt_tokens,
            completion: usage.completion_tokens,
            total: usage.total_tokens,
            cached: answer.cached_tokens,
        });
    }

    pub(super) fn write(
        self,
        invocation: &Invocation<'_>,
        asked: &Asked,
        took: Duration,
    ) -> Result<()> {
        let status = match asked {
            Asked::Answered(_) => "SUCCESS",
            _ if self.timed_out => "TIMEOUT",
            _ => "FAILED",
        };
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object
            .put("model_id", &self.model)
            .put("status", status)
            .put("duration_ms", &(took.as_millis() as u64))
            .put("token_usage", &self.usage)
            .put("http_status", &self.http_status)
            .put("attempts", &self.attempts);
        if let Some((name, bytes)) = invocation.extends {
            let mut extends = Object::begin(object.nest("extends"));
            extends.put("invocation", name).put("bytes", &bytes);
            extends.end();
        }
        object.end();
        out.push(b'\n');
        files::write(&invocation.dir.join("metadata.json"), &out)
    }
}
