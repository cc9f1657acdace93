//! The tokens that a service says it has counted for an answer, in the form of each API.
//!
//! Unaware of prices.

use super::too_long::TOKEN_CEILING;
use crate::config::api::Api;
use crate::record::event::{Terms, Tokens};
use crate::text::json;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The count of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct AnswerUsage {
    pub tokens: Tokens,
    /// Tokens of the request that came from a cache.
    pub cached: u64,
    /// Tokens of the request that were put into a cache.
    pub cache_written: u64,
    /// Tokens of the answer that are reasoning.
    pub reasoning: u64,
}

/// Why the tokens of a response are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// It has no usage.
    Silent,
    /// Its usage has no valid count of the request's tokens or of the answer's.
    Odd,
}

/// What a response says of its own tokens and its price.
pub(crate) struct ReportedUsage {
    pub counted: Result<AnswerUsage, Uncounted>,
    /// Tokens of the request that came from a cache, if the service reports them.
    pub cached: Option<u64>,
    pub terms: Terms,
}

/// Reads the token counts of a response, and the terms beside them or in them.
pub(crate) fn read_usage(api: Api, body: &[u8]) -> ReportedUsage {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct WithUsage<'b> {
        #[serde(borrow)]
        usage: Option<&'b RawValue>,
        #[serde(borrow)]
        service_tier: Option<&'b RawValue>,
        #[serde(borrow)]
        x_groq: Option<&'b RawValue>,
        #[serde(borrow)]
        choices: Option<&'b RawValue>,
    }
    let said: WithUsage<'_> = serde_json::from_slice(body).unwrap_or_default();
    let inner = |text| {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<WithUsage<'_>>();
        values.next()?.ok()?.usage
    };
    let of_choice = || inner(said.choices?.get().strip_prefix('[')?);
    let found = said
        .usage
        .or_else(|| inner(said.x_groq?.get()))
        .or_else(of_choice);
    let [usage, tier] = [found, said.service_tier].map(json::small);
    let counted = match api {
        Api::Chat => chat_usage(&usage),
        Api::Responses => responses_usage(&usage),
        Api::Messages => messages_usage(&usage),
    };
    let why = match found {
        Some(_) => Uncounted::Odd,
        None => Uncounted::Silent,
    };
    ReportedUsage {
        cached: match api {
            Api::Chat => chat_cached(&usage),
            Api::Responses | Api::Messages => counted.map(|counted| counted.cached),
        },
        counted: counted.ok_or(why),
        terms: Terms {
            service_tier: word(usage.get("service_tier").or(Some(&tier))),
            speed: word(usage.get("speed")),
            inference_geo: word(usage.get("inference_geo")),
        },
    }
}

/// A name among the terms.
fn word(value: Option<&Value>) -> Option<String> {
    let word = value.and_then(Value::as_str).filter(|it| it.len() <= 64);
    word.map(str::to_owned)
}

/// What is below these names.
fn below<'v>(usage: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().try_fold(usage, |value, name| value.get(name))
}

/// A token count; none if it is missing or invalid.
fn figure(usage: &Value, names: &[&str]) -> Option<u64> {
    let figure = below(usage, names).and_then(Value::as_u64);
    figure.filter(|tokens| *tokens <= TOKEN_CEILING)
}

/// A token count that is 0 if it is missing; none if it is invalid.
fn addend(usage: &Value, name: &str) -> Option<u64> {
    match usage.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(_) => figure(usage, &[name]),
    }
}

fn chat_usage(usage: &Value) -> Option<AnswerUsage> {
    let number = |names: &[&str]| figure(usage, names);
    let sum = sum_of(number(&["prompt_tokens"])?, number(&["completion_tokens"])?);
    let written = number(&["prompt_tokens_details", "cache_write_tokens"])
        .or_else(|| number(&["cache_creation_input_tokens"]));
    let reasoning = number(&["completion_tokens_details", "reasoning_tokens"]);
    Some(AnswerUsage {
        tokens: Tokens {
            total_tokens: number(&["total_tokens"]).unwrap_or(sum.total_tokens),
            ..sum
        },
        cached: chat_cached(usage).unwrap_or(0),
        cache_written: written.unwrap_or(0),
        reasoning: reasoning.unwrap_or(0),
    })
}

/// How many of the tokens of a chat completion's request came from a cache.
fn chat_cached(usage: &Value) -> Option<u64> {
    figure(usage, &["prompt_tokens_details", "cached_tokens"])
        .or_else(|| figure(usage, &["prompt_cache_hit_tokens"]))
}

fn responses_usage(usage: &Value) -> Option<AnswerUsage> {
    let detail = |name| figure(usage, &["input_tokens_details", name]).unwrap_or(0);
    Some(AnswerUsage {
        tokens: sum_of(
            figure(usage, &["input_tokens"])?,
            figure(usage, &["output_tokens"])?,
        ),
        cached: detail("cached_tokens"),
        cache_written: detail("cache_write_tokens"),
        reasoning: figure(usage, &["output_tokens_details", "reasoning_tokens"]).unwrap_or(0),
    })
}

fn messages_usage(usage: &Value) -> Option<AnswerUsage> {
    let cached = addend(usage, "cache_read_input_tokens")?;
    let cache_written = addend(usage, "cache_creation_input_tokens")?;
    let prompt = figure(usage, &["input_tokens"])? + cached + cache_written;
    Some(AnswerUsage {
        tokens: sum_of(prompt, figure(usage, &["output_tokens"])?),
        cached,
        cache_written,
        reasoning: figure(usage, &["output_tokens_details", "thinking_tokens"]).unwrap_or(0),
    })
}

fn sum_of(prompt_tokens: u64, completion_tokens: u64) -> Tokens {
    Tokens {
        prompt_tokens,
        completion_tokens,
        total_tokens: prompt_tokens + completion_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_count_makes_the_usage_odd_in_each_api() {
        for (api, usage, counted) in [
            (
                Api::Responses,
                r#"{"input_tokens":7,"output_tokens":2}"#,
                Some(9),
            ),
            (
                Api::Responses,
                r#"{"input_tokens":7.5,"output_tokens":2}"#,
                None,
            ),
            (Api::Responses, r#"{"input_tokens":7}"#, None),
            (
                Api::Responses,
                r#"{"input_tokens":7,"output_tokens":2,"input_tokens_details":{"cached_tokens":-1}}"#,
                Some(9),
            ),
            (
                Api::Messages,
                r#"{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":null}"#,
                Some(9),
            ),
            (
                Api::Messages,
                r#"{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":4}"#,
                Some(13),
            ),
            (
                Api::Messages,
                r#"{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":1.5}"#,
                None,
            ),
            (Api::Messages, r#"{"output_tokens":2}"#, None),
        ] {
            let body = format!("{{\"usage\":{usage}}}");
            let read = read_usage(api, body.as_bytes()).counted;
            let total = read.map(|counted| counted.tokens.total_tokens);
            assert_eq!(total, counted.ok_or(Uncounted::Odd), "{usage}");
        }
        let counted = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        for body in [
            counted.to_owned(),
            format!(r#"{{"x_groq":{counted}}}"#),
            format!(r#"{{"usage":null,"choices":[{counted},{{}}]}}"#),
        ] {
            let read = read_usage(Api::Chat, body.as_bytes()).counted.unwrap();
            assert_eq!(read.tokens.total_tokens, 7, "{body}");
        }
        for body in ["{}", r#"{"usage":null}"#, "no JSON"] {
            let read = read_usage(Api::Chat, body.as_bytes()).counted;
            assert_eq!(read, Err(Uncounted::Silent), "{body}");
        }
    }
}
