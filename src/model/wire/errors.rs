//! Errors as each service words them: which status they have, and what can be done about them.

use crate::config::api::Api;
use crate::model::attempt::Remedy;
use crate::model::reasons::{error_codes, error_json, their_words};
use crate::text::json::{self, Fields};
use serde_json::Value;

impl Remedy {
    /// The remedy that an error 400 asks for.
    pub(crate) fn of(api: Api, body: &[u8]) -> Option<Self> {
        let said = String::from_utf8_lossy(body).to_lowercase();
        let says = |words: &[&str]| words.iter().any(|it| said.contains(it));
        let codes = error_codes(body);
        let own = match api {
            Api::Messages => {
                const ABOUT_THINKING: [&str; 4] = [
                    "in thinking block",
                    "bound to a different conversation",
                    "cannot be modified",
                    "expected thinking",
                ];
                let plain = said.replace('`', "");
                if ABOUT_THINKING.iter().any(|it| plain.contains(it)) {
                    return Some(Self::WithoutReasoning);
                }
                largest_answer(&said).map(Self::MaxTokens)
            }
            Api::Responses => {
                if codes.iter().any(|code| code == "invalid_encrypted_content") {
                    return Some(Self::WithoutReasoning);
                }
                let about_include = [
                    "\"include\"",
                    "'include",
                    "`include",
                    "include[",
                    "reasoning.encrypted_content",
                ];
                let unsupported =
                    said.contains("encrypted content") && said.contains("not supported");
                (says(&about_include) || unsupported).then_some(Self::WithoutInclude)
            }
            Api::Chat => says(&["stream_options"]).then_some(Self::WithoutStreamOptions),
        };
        let reasoning = || names_reasoning(&said).then_some(Self::WithoutReasoning);
        own.or_else(reasoning)
            .or_else(|| refuses_streams(body).then_some(Self::WithoutStream))
    }

    /// The name in the journal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WithoutReasoning => "without_reasoning",
            Self::WithoutInclude => "without_include",
            Self::WithoutStreamOptions => "without_stream_options",
            Self::WithoutStream => "without_stream",
            Self::MaxTokens(_) => "max_tokens",
        }
    }

    /// Reads what [`Self::name`] writes, and the limit beside it.
    pub(crate) fn parse(name: &str, max_tokens: u64) -> Option<Self> {
        [
            Self::WithoutReasoning,
            Self::WithoutInclude,
            Self::WithoutStreamOptions,
            Self::WithoutStream,
            Self::MaxTokens(max_tokens),
        ]
        .into_iter()
        .find(|remedy| remedy.name() == name)
        .filter(|remedy| *remedy != Self::MaxTokens(0))
    }

    /// The change in words, for the record.
    pub(crate) fn description(self) -> String {
        let words = match self {
            Self::WithoutReasoning => {
                "the server refused the model's earlier reasoning; continuing without it"
            }
            Self::WithoutInclude => {
                "the server knows no encrypted reasoning; continuing without it"
            }
            Self::WithoutStreamOptions => {
                "the server does not know stream_options; continuing without"
            }
            Self::WithoutStream => "the server refuses to stream its answers; continuing without",
            Self::MaxTokens(most) => {
                return format!(
                    "the model's answers have at most {most} tokens; continuing with that limit"
                );
            }
        };
        words.to_owned()
    }
}

/// True for an error that names a member in which reasoning goes back, or the signature of one.
fn names_reasoning(said: &str) -> bool {
    const MEMBERS: [&str; 6] = [
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
        "extra_content",
        "thought_signature",
    ];
    let mut words = said.split(|c: char| c != '_' && !c.is_alphanumeric());
    let is_of_thought = said.contains("thought") || said.contains("thinking");
    is_of_thought && said.contains("signature") || words.any(|word| MEMBERS.contains(&word))
}

/// True for an error about `stream` itself, by its parameter or its words.
fn refuses_streams(body: &[u8]) -> bool {
    let json: Value = json::read_or_default(body);
    let about = json["error"]["param"].as_str();
    let said = their_words(body).to_lowercase();
    let mut words = said.split(|c: char| c != '_' && !c.is_alphanumeric());
    about.map_or_else(
        || words.any(|word| matches!(word, "stream" | "streaming" | "streamed")),
        |name| name == "stream",
    )
}

/// The number in `max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens`.
fn largest_answer(said: &str) -> Option<u64> {
    let (before, _) = said.split_once("which is the maximum")?;
    let (asked, most) = before.rsplit_once('>')?;
    let digits: String = most.chars().filter(char::is_ascii_digit).collect();
    digits
        .parse()
        .ok()
        .filter(|most| asked.contains("max_tokens") && *most > 0)
}

/// The status that an error has which came with status 200 or in a stream; none if the body is no error.
pub(crate) fn error_status(api: Api, body: &[u8]) -> Option<u16> {
    if api == Api::Chat {
        return None;
    }
    let members: Fields<'_> = serde_json::from_slice(body).ok()?;
    let [kind, status, error] = ["type", "status", "error"].map(|key| members.small(key));
    match (api, kind.as_str(), status.as_str()) {
        (Api::Responses, _, Some("cancelled")) => Some(500),
        (Api::Responses, _, Some("failed")) | (Api::Messages, Some("error"), _) => {
            Some(status_of_error(api, body, Some(&error)))
        }
        _ => None,
    }
}

/// The status of an error that a stream reports.
pub(crate) fn stream_error_status(api: Api, body: &[u8]) -> u16 {
    let error = error_json(body).unwrap_or_default();
    status_of_error(api, body, error.get("error"))
}

fn status_of_error(api: Api, body: &[u8], error: Option<&Value>) -> u16 {
    let number = error.and_then(|error| error["code"].as_u64());
    if let Some(status) = number.filter(|number| (400..600).contains(number)) {
        return status as u16;
    }
    let known = |code: &String| {
        Some(match code.as_str() {
            "overloaded_error" => 529,
            "api_error" | "server_error" | "internal_error" => 500,
            "server_is_overloaded" | "slow_down" => 503,
            "timeout_error" => 504,
            "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
            "authentication_error" | "invalid_api_key" => 401,
            "permission_error" => 403,
            "not_found_error" | "model_not_found" => 404,
            "request_too_large" => 413,
            "invalid_request_error" => 400,
            _ => return None,
        })
    };
    // A code says more than a type.
    let found = error_codes(body).iter().find_map(known);
    found.unwrap_or(match api {
        Api::Chat => 500,
        Api::Responses | Api::Messages => 400,
    })
}
