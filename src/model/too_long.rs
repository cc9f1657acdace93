//! Refusals of a conversation that is longer than the model takes, in the words of each service.
//!
//! Pure.

use super::reasons::{error_json, full_words, has_code};
use serde_json::Value;

/// A refusal of a request that is too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The tokens that the model takes, if the service says so.
    pub window: Option<u64>,
    /// The limit of the answer with which the same request fits.
    pub max_tokens: Option<u64>,
    /// The service gives another reason, or none: the length is only a guess.
    pub is_guess: bool,
}

/// The first is `OpenAI`'s, the second llama.cpp's.
const CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];

/// Fragments of refusals. `tests/it/model/too_long.jsonl` has the wordings of services.
const FRAGMENTS: [&str; 25] = [
    "context length",
    "context window",
    "context size",
    "context limit",
    "contextwindowexceeded",
    "context_length_exceeded",
    "context_window_exceeded",
    "max_seq_len",
    "prompt length",
    "prompt token",
    "prompt exceeds",
    "prompt too long",
    "prompt is too long",
    "prompt 超长",
    "input length",
    "input token",
    "input is too long",
    "`inputs` tokens",
    "`inputs` must have",
    "tokens in the prompt",
    "model token limit",
    "maximum model length",
    "reduce the length of",
    "too many tokens",
    "token limit exceeded",
];

/// Fragments of refusals that have another reason.
const OTHER_FRAGMENTS: [&str; 4] = ["per minute", "per day", "please wait", "characters"];

/// Words before the number of tokens that the model takes, the surest first.
const BEFORE_WINDOW: [&str; 12] = [
    "> ",
    "<= ",
    "less than ",
    "up to ",
    "cannot exceed ",
    "[1, ",
    "max",
    "limit of ",
    "limit is ",
    "limit: ",
    "context",
    "model with ",
];

/// Words that may be between them and the number. With `max`, the first is a part of a word.
const BETWEEN: [&str; 16] = [
    "imum",
    "model",
    "context",
    "prompt",
    "input",
    "allowed",
    "number",
    "tokens",
    "length",
    "size",
    "window",
    "limit",
    "of",
    "is",
    "only",
    "max_seq_len",
];

/// An answer with a smaller limit is not worth asking for.
const LEAST_ANSWER: u64 = 4096;

/// The tokens by which a service may count differently the second time.
const MARGIN: u64 = 1000;

/// Larger counts of tokens are ignored.
pub(super) const TOKEN_CEILING: u64 = 1_000_000_000;

impl TooLong {
    /// Reads a refusal whose status or code says that the request is too long.
    pub(crate) fn read(body: &[u8]) -> Self {
        let said = full_words(body).to_lowercase();
        let n_ctx = error_json(body).and_then(|json| window(json.get("error")?.get("n_ctx")));
        let mut words = BEFORE_WINDOW.iter().filter(|_| says_so(&said));
        let said_window = words.find_map(|words| number_after(&said, words));
        Self {
            window: n_ctx.or(said_window),
            max_tokens: fitting_answer(&said),
            is_guess: false,
        }
    }

    /// The refusal, if an error has a code for it.
    pub(crate) fn by_code(body: &[u8]) -> Option<Self> {
        has_code(body, &CODES).then(|| Self::read(body))
    }

    /// The refusal, if an error has a code for it, or says so.
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        let says_so = || says_so(&full_words(body).to_lowercase()).then(|| Self::read(body));
        Self::by_code(body).or_else(says_so)
    }

    /// The refusal in what came in place of an answer, if that is an error.
    pub(crate) fn in_place_of_answer(body: &[u8]) -> Option<Self> {
        let answer = error_json(body)?;
        if !answer["error"].is_null() {
            return Self::of(body);
        }
        let of_choice = answer.pointer("/choices/0/error");
        Self::of(of_choice?.to_string().as_bytes())
    }
}

/// True if an error says that the request is too long for the model. A page of a proxy has other numbers.
fn says_so(said: &str) -> bool {
    let has = |fragments: &[&str]| fragments.iter().any(|it| said.contains(it));
    has(&FRAGMENTS) && !has(&OTHER_FRAGMENTS)
}

fn window(value: Option<&Value>) -> Option<u64> {
    value?
        .as_u64()
        .filter(|window| (1..=TOKEN_CEILING).contains(window))
}

/// The number after the first place of these words that has one. It may have commas.
fn number_after(said: &str, words: &str) -> Option<u64> {
    said.match_indices(words)
        .filter_map(|(at, _)| number_at(&said[at + words.len()..]))
        .find(|number| (1..=TOKEN_CEILING).contains(number))
}

fn number_at(text: &str) -> Option<u64> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, ',' | '_')))
        .map(|word| word.trim_matches(','))
        .find(|word| !word.is_empty() && !BETWEEN.contains(word))?
        .replace(',', "")
        .parse()
        .ok()
}

/// The limit in `exceed context limit: 188240 + 21333 > 200000`, where the answer may have 21333 tokens.
fn fitting_answer(said: &str) -> Option<u64> {
    let (_, sum) = said.split_once("exceed context limit: ")?;
    let input = number_at(sum)?;
    let (asked, _) = sum.split_once('>')?;
    let left = number_after(sum, "> ")?.checked_sub(input.checked_add(MARGIN)?)?;
    (asked.contains('+') && left >= LEAST_ANSWER).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_has_its_own_words() {
        for row in include_str!("../../tests/it/model/too_long.jsonl").lines() {
            let row: Value = serde_json::from_str(row).unwrap();
            let expected = TooLong {
                window: row["window"].as_u64(),
                max_tokens: row["max_tokens"].as_u64(),
                is_guess: false,
            };
            let body = row["body"].to_string();
            assert_eq!(TooLong::of(body.as_bytes()), Some(expected), "{row}");
        }
        let plain = "request (9000 tokens) exceeds the available context size (8192 tokens)";
        assert_eq!(TooLong::of(plain.as_bytes()).unwrap().window, Some(8192));
    }

    #[test]
    fn other_refusals_are_not_taken_for_one_of_the_length() {
        for other in [
            "the model is overloaded",
            "max_tokens: 64000 > 32000, which is the maximum",
            "max_tokens is too large: 9000. This model supports at most 4096 completion tokens",
            "Range of max_tokens should be [1, 8192]",
            "The maximum tokens you requested exceeds the model limit of 4096",
            "This request would exceed your rate limit of 50,000 input tokens per minute",
            "Tool argument validation failed: input length exceeds 1000 characters",
            "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64",
            "Unknown parameter: 'context_length'",
            "Too many tokens, please wait before trying again.",
            "missing field `inputs`",
            "Invalid 'tools': array too long. Expected an array with maximum length 128",
            "",
        ] {
            let body = serde_json::json!({"error": {"message": other}}).to_string();
            for body in [other, &body] {
                assert_eq!(TooLong::of(body.as_bytes()), None, "{body}");
            }
        }
        // The words of a person that a service quotes do not count.
        assert_eq!(
            TooLong::of(br#"{"message":"bad","body":"context length"}"#),
            None
        );
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
        let of_choice = br#"{"choices":[{"error":{"message":"prompt is too long"}}]}"#;
        assert!(TooLong::in_place_of_answer(of_choice).is_some());
    }
}
