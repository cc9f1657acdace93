//! Reasons that services, routers and programs give for an error: its words and its codes, wherever a body has them.
//!
//! Pure.

use crate::text::json::{self, Fields, LONGEST_EXCERPT};
use crate::text::shorten::in_short;
use serde_json::Value;

/// Members with the words of an error, the most specific first.
const WORDS: [&str; 4] = ["detail", "message", "details", "error"];

/// The beginning of the words for a page of something that is no API.
const PAGE: &str = "an HTML page";

/// A server's error as JSON, the first of a list; of a large one, the members that say something.
pub(super) fn error_json(body: &[u8]) -> Option<Value> {
    if body.len() <= LONGEST_EXCERPT {
        return match serde_json::from_slice(json::without_mark(body)).ok()? {
            Value::Array(list) => list.into_iter().next(),
            error => Some(error),
        };
    }
    let members: Fields<'_> = serde_json::from_slice(body).ok()?;
    let [error, message, detail] = ["error", "message", "detail"].map(|key| members.small(key));
    Some(serde_json::json!({"error": error, "message": message, "detail": detail}))
}

/// A text that is an object or a list as JSON.
fn nested(text: &str) -> Option<Value> {
    let is_open = text.trim_start().starts_with(['{', '[']);
    serde_json::from_str(text).ok().filter(|_| is_open)
}

/// The words of an error. A router's own come before those of the service that it passes on.
fn words(error: &Value) -> Option<String> {
    match error {
        Value::String(text) => nested(text)
            .and_then(|inner| words(&inner))
            .or_else(|| (!text.trim().is_empty()).then(|| text.clone())),
        Value::Array(list) => words(list.first()?),
        Value::Object(members) => {
            let own = members
                .get("error")
                .filter(|it| !it.is_string())
                .into_iter()
                .chain(WORDS.iter().filter_map(|name| members.get(*name)))
                .find_map(words);
            match (own, words(&error["metadata"]["raw"])) {
                (Some(own), Some(raw)) if own != raw => Some(format!("{own}: {raw}")),
                (own, raw) => raw.or(own),
            }
        }
        _ => None,
    }
}

/// The words of a server or a program about why it said no, however long.
pub(super) fn full_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(LONGEST_EXCERPT)]);
    page(&text)
        .or_else(|| words(&error_json(body)?))
        .unwrap_or_else(|| text.into_owned())
}

/// The words of a server or a program about why it said no, on one line and not too long.
pub(crate) fn their_words(body: &[u8]) -> String {
    in_short(&full_words(body), 500)
}

/// Their words in place of an answer. A page hints at a wrong URL.
pub(super) fn words_in_place_of_answer(body: &[u8]) -> String {
    let said = their_words(body);
    if said.starts_with(PAGE) {
        format!("{said}; is the base URL right? It usually ends in /v1")
    } else {
        in_short(&said, 200)
    }
}

/// Reports a body that is not the answer that it should be.
pub(super) fn not_of(body: &[u8], what: &str) -> String {
    if body.trim_ascii().is_empty() {
        return "the answer is empty".to_owned();
    }
    format!(
        "the answer is not {what}: {}",
        words_in_place_of_answer(body)
    )
}

/// A page by its title.
fn page(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let is_page = lower.trim_start().starts_with('<')
        && (lower.contains("<html") || lower.contains("<!doctype html"));
    let title = || {
        let at = lower.find("<title")?;
        let start = at + lower[at..].find('>')? + 1;
        let end = start + lower[start..].find("</title")?;
        Some(text[start..end].trim()).filter(|title| !title.is_empty())
    };
    is_page.then(|| match title() {
        Some(title) => format!("{PAGE}, {title}"),
        None => PAGE.to_owned(),
    })
}

/// The codes of a server's error, `code` and `type`: its own before those of an error in it.
pub(crate) fn error_codes(body: &[u8]) -> Vec<String> {
    fn collect(error: &Value, found: &mut Vec<String>) {
        match error {
            Value::String(text) => nested(text).iter().for_each(|it| collect(it, found)),
            Value::Array(list) => list.first().into_iter().for_each(|it| collect(it, found)),
            Value::Object(members) => {
                let own =
                    ["code", "type"].map(|name| members.get(name)?.as_str().map(str::to_owned));
                found.extend(own.into_iter().flatten());
                WORDS
                    .iter()
                    .rev()
                    .map(|name| members.get(*name))
                    .chain([error.pointer("/metadata/raw")])
                    .flatten()
                    .for_each(|it| collect(it, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&error_json(body).unwrap_or_default(), &mut found);
    found
}

/// True if a body has one of these as a `code` or `type`, wherever.
pub(super) fn has_code(body: &[u8], codes: &[&str]) -> bool {
    fn is_in(value: &Value, codes: &[&str]) -> bool {
        match value {
            Value::Array(list) => list.iter().any(|it| is_in(it, codes)),
            Value::Object(members) => members.iter().any(|(name, value)| match value {
                Value::String(text) => match name.as_str() {
                    "code" | "type" => codes.contains(&text.as_str()),
                    name if name == "raw" || WORDS.contains(&name) => {
                        nested(text).is_some_and(|inner| is_in(&inner, codes))
                    }
                    _ => false,
                },
                inner => is_in(inner, codes),
            }),
            _ => false,
        }
    }
    let json = if body.len() <= LONGEST_EXCERPT {
        serde_json::from_slice(json::without_mark(body)).ok()
    } else {
        error_json(body)
    };
    json.is_some_and(|json| is_in(&json, codes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_wherever_a_body_has_it() {
        for (body, said) in [
            (
                r#"{"error":{"message":"m","details":"d"},"detail":"x"}"#,
                "m",
            ),
            (
                r#"{"error":{"message":" ","details":["d"]},"message":"x"}"#,
                "d",
            ),
            (r#"{"error":{"code":400},"detail":"d","message":"x"}"#, "d"),
            (r#"{"error":"Bad Request","message":"m"}"#, "m"),
            (r#"{"code":"c","error":"e"}"#, "e"),
            (
                r#"[{"error":{"code":429,"message":"m"}},{"error":{"message":"n"}}]"#,
                "m",
            ),
            (
                r#"{"error":{"message":"P","metadata":{"raw":"r"}}}"#,
                "P: r",
            ),
            (
                r#"{"error":{"message":"P","metadata":{"raw":"{\"error\":{\"message\":\"r\"}}"}}}"#,
                "P: r",
            ),
            (
                r#"{"error":{"message":"P","metadata":{"raw":{"detail":"r"}}}}"#,
                "P: r",
            ),
            (
                r#"{"error":{"metadata":{"raw":"[{\"message\":\"r\"}]"}}}"#,
                "r",
            ),
            (
                r#"{"error":{"message":"{\"error\":{\"message\":\"m\"}}"}}"#,
                "m",
            ),
            (r#"{"error":{"message":"{\"odd\":1}"}}"#, r#"{"odd":1}"#),
            ("\u{feff}{\"message\":\"m\"}", "m"),
            (r#"{"odd":1}"#, r#"{"odd":1}"#),
            ("no\nJSON", "no JSON"),
            (
                "<html><title>\n502 Bad\u{0130} Gateway</TITLE>",
                "an HTML page, 502 Bad\u{0130} Gateway",
            ),
            ("\n<!-- x --><!DOCTYPE html><p>x", "an HTML page"),
            ("<title>x</title>", "<title>x</title>"),
        ] {
            assert_eq!(their_words(body.as_bytes()), said, "{body}");
        }
    }

    #[test]
    fn codes_of_errors_in_errors_are_found_the_outer_ones_first() {
        let body = r#"[{"error":{"code":"a","metadata":{"raw":"{\"error\":{\"type\":\"c\"}}"}},"type":"o"}]"#;
        assert_eq!(error_codes(body.as_bytes()), ["o", "a", "c"]);
        assert_eq!(error_codes(br#"{"error":{"code":400}}"#), [""; 0]);
    }

    #[test]
    fn a_code_is_found_anywhere_but_in_other_texts() {
        for (body, is_found) in [
            (r#"[{"message":"m"},{"error":{"code":"c"}}]"#, true),
            (r#"{"errors":[{"code":400},{"type":"c"}]}"#, true),
            (r#"{"error":{"innererror":{"code":"c"}}}"#, true),
            (
                r#"{"error":{"metadata":{"raw":"{\"errors\":[{\"code\":\"c\"}]}"}}}"#,
                true,
            ),
            (r#"{"error":"[{\"code\":\"c\"}]"}"#, true),
            (r#"{"detail":[{"input":"{\"code\":\"c\"}"}]}"#, false),
            (r#"{"error":{"message":"c","code":"d"}}"#, false),
        ] {
            assert_eq!(has_code(body.as_bytes(), &["c"]), is_found, "{body}");
        }
    }
}
