//! The tokens that a service says it has counted for an answer, in the form of each API.
//!
//! Unaware of prices.

use super::too_long::TOKEN_CEILING;
use crate::config::api::Api;
use crate::record::event::{Terms, Tokens};
use crate::text::json::{self, Fields};
use serde_json::Value;

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

/// The reason why the tokens of a response are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// No usage.
    Silent,
    /// A usage without a valid count of the request's tokens or of the answer's.
    Odd,
}

/// A response's statement of its own tokens and its price.
pub(crate) struct ReportedUsage {
    pub counted: Result<AnswerUsage, Uncounted>,
    /// Tokens of the request that came from a cache, if the service reports them.
    pub cached: Option<u64>,
    pub terms: Terms,
}

/// Reads the token counts of a response, and the terms beside them or in them.
pub(crate) fn read_usage(api: Api, body: &[u8]) -> ReportedUsage {
    let said: Fields<'_> = json::read_or_default(body);
    let inner = |text| {
        serde_json::Deserializer::from_str(text)
            .into_iter::<Fields<'_>>()
            .next()?
            .ok()?
            .raw("usage")
    };
    let of_choice = || inner(said.raw("choices")?.get().strip_prefix('[')?);
    let found = said
        .raw("usage")
        .or_else(|| inner(said.raw("x_groq")?.get()))
        .or_else(of_choice);
    let usage = json::small(found);
    let counted = count(api, &usage);
    let why = if found.is_some() {
        Uncounted::Odd
    } else {
        Uncounted::Silent
    };
    let tier = said.small("service_tier");
    ReportedUsage {
        cached: match api {
            Api::Chat => figure(&usage, &CHAT_CACHED),
            Api::Responses | Api::Messages => counted.map(|counted| counted.cached),
        },
        counted: counted.ok_or(why),
        terms: Terms {
            service_tier: word(usage.get("service_tier").unwrap_or(&tier)),
            speed: word(&usage["speed"]),
            inference_geo: word(&usage["inference_geo"]),
        },
    }
}

/// A name among the terms.
fn word(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|it| it.len() <= 64)
        .map(str::to_owned)
}

const CACHE_READ: &str = "cache_read_input_tokens";

const CACHE_WRITTEN: &str = "cache_creation_input_tokens";

/// Places of the tokens of a chat completion's request that came from a cache.
const CHAT_CACHED: [&str; 2] = [
    "prompt_tokens_details/cached_tokens",
    "prompt_cache_hit_tokens",
];

/// The token count at the first of these places that has a valid one.
fn figure(usage: &Value, places: &[&str]) -> Option<u64> {
    let at = |place: &&str| {
        place
            .split('/')
            .try_fold(usage, |value, name| value.get(name))?
            .as_u64()
            .filter(|it| *it <= TOKEN_CEILING)
    };
    places.iter().find_map(at)
}

fn count(api: Api, usage: &Value) -> Option<AnswerUsage> {
    let [prompt, completion, cached, written, reasoning]: [&[&str]; 5] = match api {
        Api::Chat => [
            &["prompt_tokens"],
            &["completion_tokens"],
            &CHAT_CACHED,
            &["prompt_tokens_details/cache_write_tokens", CACHE_WRITTEN],
            &["completion_tokens_details/reasoning_tokens"],
        ],
        Api::Responses => [
            &["input_tokens"],
            &["output_tokens"],
            &["input_tokens_details/cached_tokens"],
            &["input_tokens_details/cache_write_tokens"],
            &["output_tokens_details/reasoning_tokens"],
        ],
        Api::Messages => [
            &["input_tokens"],
            &["output_tokens"],
            &[CACHE_READ],
            &[CACHE_WRITTEN],
            &["output_tokens_details/thinking_tokens"],
        ],
    };
    let or_zero = |places: &[&str]| figure(usage, places).unwrap_or(0);
    let mut sum = Tokens {
        prompt_tokens: figure(usage, prompt)?,
        completion_tokens: figure(usage, completion)?,
        total_tokens: 0,
    };
    if api == Api::Messages {
        // Its request's tokens do not include those of the cache.
        for place in [CACHE_READ, CACHE_WRITTEN] {
            if usage.get(place).is_some_and(|count| !count.is_null()) {
                sum.prompt_tokens += figure(usage, &[place])?;
            }
        }
    }
    let whole = figure(usage, &["total_tokens"]).filter(|_| api == Api::Chat);
    sum.total_tokens = whole.unwrap_or(sum.prompt_tokens + sum.completion_tokens);
    Some(AnswerUsage {
        tokens: sum,
        cached: or_zero(cached),
        cache_written: or_zero(written),
        reasoning: or_zero(reasoning),
    })
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
