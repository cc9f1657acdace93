//! The tokens that a service says it has counted for an answer, in the form of each API.
//!
//! Unaware of prices.

use crate::config::api::Api;
use crate::record::event::Tokens;
use serde::Deserialize;
use serde_json::Value;

/// The count of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AnswerUsage {
    pub tokens: Tokens,
    /// Of the request's tokens, those that came from a cache.
    pub cached: u64,
    /// Of the request's tokens, those that were put into a cache.
    pub cache_written: u64,
}

/// Reads the count in a response, whatever its answer is; none if it says nothing of tokens.
pub(super) fn read_usage(api: Api, body: &[u8]) -> Option<AnswerUsage> {
    #[derive(Deserialize)]
    struct WithUsage {
        #[serde(default)]
        usage: Option<Value>,
    }
    let with_usage: WithUsage = serde_json::from_slice(body).ok()?;
    let usage = with_usage.usage.filter(Value::is_object)?;
    let counted = match api {
        Api::Chat => chat_usage(&usage),
        Api::Responses => responses_usage(&usage),
        Api::Messages => messages_usage(&usage),
    };
    (counted.tokens.total_tokens > 0).then_some(counted)
}

fn chat_usage(usage: &Value) -> AnswerUsage {
    let detail = |name: &str| usage.get("prompt_tokens_details")?.get(name)?.as_u64();
    let number = |name: &str| usage.get(name)?.as_u64();
    let written = detail("cache_write_tokens").or_else(|| number("cache_creation_input_tokens"));
    AnswerUsage {
        tokens: chat_tokens(usage),
        cached: chat_cached(usage).unwrap_or(0),
        cache_written: written.unwrap_or(0),
    }
}

/// The tokens of a chat completion.
pub(super) fn chat_tokens(usage: &Value) -> Tokens {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64);
    let (prompt, completion) = (number("prompt_tokens"), number("completion_tokens"));
    let sum = sum_of(prompt.unwrap_or(0), completion.unwrap_or(0));
    Tokens {
        total_tokens: number("total_tokens").unwrap_or(sum.total_tokens),
        ..sum
    }
}

/// How many of the tokens of a chat completion's request came from a cache.
pub(super) fn chat_cached(usage: &Value) -> Option<u64> {
    let number = |place: &str| usage.pointer(place).and_then(Value::as_u64);
    number("/prompt_tokens_details/cached_tokens").or_else(|| number("/prompt_cache_hit_tokens"))
}

fn responses_usage(usage: &Value) -> AnswerUsage {
    let number = |place: &str| usage.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    AnswerUsage {
        tokens: sum_of(number("/input_tokens"), number("/output_tokens")),
        cached: number("/input_tokens_details/cached_tokens"),
        cache_written: number("/input_tokens_details/cache_write_tokens"),
    }
}

fn messages_usage(usage: &Value) -> AnswerUsage {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let cached = number("cache_read_input_tokens");
    let cache_written = number("cache_creation_input_tokens");
    let prompt = number("input_tokens")
        .saturating_add(cached)
        .saturating_add(cache_written);
    AnswerUsage {
        tokens: sum_of(prompt, number("output_tokens")),
        cached,
        cache_written,
    }
}

fn sum_of(prompt_tokens: u64, completion_tokens: u64) -> Tokens {
    Tokens {
        prompt_tokens,
        completion_tokens,
        total_tokens: prompt_tokens.saturating_add(completion_tokens),
    }
}
