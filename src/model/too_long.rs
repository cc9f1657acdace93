//! Refusals of a conversation that is longer than the model takes, in the words of each service.
//!
//! Pure.

use crate::text::json::{self, LONGEST_EXCERPT};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A refusal of a request that is too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The tokens that the model takes, if the service says so.
    pub window: Option<u64>,
    /// The limit of the answer with which the same request fits.
    pub max_tokens: Option<u64>,
}

/// The first is `OpenAI`'s, the second llama.cpp's.
const CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];

const WORDS: [&str; 5] = [
    "prompt is too long",
    "exceed context limit",
    "maximum context length",
    "exceeds the context window",
    "exceeds the available context size",
];

/// Words before the number of tokens that the model takes.
const BEFORE_WINDOW: [&str; 3] = ["> ", "maximum context length is ", "context size ("];

/// An answer with a smaller limit is not worth asking for.
const LEAST_ANSWER: u64 = 4096;

/// The tokens by which a service may count differently the second time.
const MARGIN: u64 = 1000;

/// Larger counts of tokens are ignored.
pub(super) const TOKEN_CEILING: u64 = 1_000_000_000;

impl TooLong {
    /// Reads a refusal whose status or code says that the request is too long.
    pub(crate) fn read(body: &[u8]) -> Self {
        let body = &body[..body.len().min(LONGEST_EXCERPT)];
        let said = String::from_utf8_lossy(body).to_lowercase();
        let n_ctx = error_json(body).and_then(|json| window(json.get("error")?.get("n_ctx")));
        let mut numbers = BEFORE_WINDOW.iter().filter(|_| says_so(&said));
        let said_window = numbers.find_map(|words| number_behind(&said, words));
        Self {
            window: n_ctx.or(said_window),
            max_tokens: fitting_answer(&said),
        }
    }

    /// The refusal, if an error has a code for it.
    pub(crate) fn by_code(body: &[u8]) -> Option<Self> {
        let error = error_json(body)?;
        let has = |name: &str| {
            let code = error.get("error")?.get(name)?.as_str()?;
            CODES.contains(&code).then_some(())
        };
        (has("code").is_some() || has("type").is_some()).then(|| Self::read(body))
    }

    /// The refusal, if an error has a code for it, or says so.
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        let part = &body[..body.len().min(LONGEST_EXCERPT)];
        let said = String::from_utf8_lossy(part).to_lowercase();
        Self::by_code(body).or_else(|| says_so(&said).then(|| Self::read(body)))
    }

    /// The refusal in what came in place of an answer, if that is an error.
    pub(crate) fn in_place_of_answer(body: &[u8]) -> Option<Self> {
        let error = error_json(body)?;
        let is_error = error.get("error").is_some_and(|error| !error.is_null());
        is_error.then(|| Self::of(body)).flatten()
    }
}

/// True if an error says that the request is too long for the model. A page of a proxy has other numbers.
fn says_so(said: &str) -> bool {
    WORDS.iter().any(|words| said.contains(words))
}

/// A server's error as JSON; of a large one, the members that say something.
pub(super) fn error_json(body: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct ErrorMembers<'b> {
        #[serde(borrow, default)]
        error: Option<&'b RawValue>,
        #[serde(borrow, default)]
        message: Option<&'b RawValue>,
        #[serde(borrow, default)]
        detail: Option<&'b RawValue>,
    }
    if body.len() <= LONGEST_EXCERPT {
        return serde_json::from_slice(body).ok();
    }
    let ErrorMembers {
        error,
        message,
        detail,
    } = serde_json::from_slice(body).ok()?;
    let [error, message, detail] = [error, message, detail].map(json::small);
    Some(serde_json::json!({"error": error, "message": message, "detail": detail}))
}

fn window(value: Option<&Value>) -> Option<u64> {
    value?
        .as_u64()
        .filter(|window| (1..=TOKEN_CEILING).contains(window))
}

/// The number behind the first place of these words that has one. It may have commas.
fn number_behind(said: &str, words: &str) -> Option<u64> {
    said.match_indices(words)
        .filter_map(|(at, _)| number_at(&said[at + words.len()..]))
        .find(|number| (1..=TOKEN_CEILING).contains(number))
}

fn number_at(text: &str) -> Option<u64> {
    let is_digit = |c: char| c.is_ascii_digit();
    let end = text.find(|c: char| !is_digit(c) && c != ',');
    let digits: String = text[..end.unwrap_or(text.len())]
        .chars()
        .filter(|c| is_digit(*c))
        .collect();
    digits.parse().ok()
}

/// The limit in `exceed context limit: 188240 + 21333 > 200000`, where the answer may have 21333 tokens.
fn fitting_answer(said: &str) -> Option<u64> {
    let (_, sum) = said.split_once("exceed context limit: ")?;
    let input = number_at(sum)?;
    let (asked, _) = sum.split_once('>')?;
    let left = number_behind(sum, "> ")?.checked_sub(input.checked_add(MARGIN)?)?;
    (asked.contains('+') && left >= LEAST_ANSWER).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_its_own_words() {
        for (body, window, max_tokens) in [
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                Some(200_000),
                None,
            ),
            (
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length"}}"#,
                Some(200_000),
                Some(10_760),
            ),
            (
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 198240 + 21333 > 200000"}}"#,
                Some(200_000),
                None,
            ),
            (
                r#"{"error":{"code":"context_length_exceeded","message":"This model's maximum context length is 128,000 tokens. However, you sent 130000"}}"#,
                Some(128_000),
                None,
            ),
            (
                r#"{"error":{"code":400,"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192,"message":"too large"}}"#,
                Some(8192),
                None,
            ),
            (
                "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
                Some(8192),
                None,
            ),
            (
                r#"{"error":{"message":"Your input exceeds the context window of this model"}}"#,
                None,
                None,
            ),
        ] {
            let expected = TooLong { window, max_tokens };
            assert_eq!(TooLong::of(body.as_bytes()), Some(expected), "{body}");
        }
        for other in [
            "the model is overloaded",
            r#"{"error":{"message":"max_tokens: 64000 > 32000, which is the maximum"}}"#,
            "",
        ] {
            assert_eq!(TooLong::of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_page_of_a_proxy_names_no_window() {
        let page = b"<html> <h1> 413 Request Entity Too Large</h1> <hr> 1048576</html>";
        assert_eq!(TooLong::read(page), TooLong::default());
    }

    #[test]
    fn an_answer_that_speaks_of_lengths_is_no_refusal() {
        let answer = br#"{"choices":[{"message":{"content":"the prompt is too long"}}]}"#;
        assert_eq!(TooLong::in_place_of_answer(answer), None);
        assert_eq!(TooLong::in_place_of_answer(b"prompt is too long"), None);
        let error = br#"{"error":{"message":"prompt is too long"}}"#;
        assert!(TooLong::in_place_of_answer(error).is_some());
    }
}
