//! The first difference between two requests, in words for a person.
//!
//! Pure; unaware of runs. Requests are the same only if all their bytes are: nothing is normalised
//! to find out, only to say where.

use crate::text::disguise::{disguises, printable};
use crate::text::json::{self, parser_message};
use serde_json::Value;

/// How much of a text is shown before the place where it differs, and from there on.
const BEFORE: usize = 40;
const AFTER: usize = 120;

/// The first difference between two requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestDifference {
    /// Where: `messages[4] (tool)`, or another key of the request.
    pub place: String,
    /// The text of the first one around the difference, on one line.
    pub left: String,
    /// The text of the second one.
    pub right: String,
}

/// The first difference, if any.
pub(crate) fn first(left: &[u8], right: &[u8]) -> Option<RequestDifference> {
    if left == right {
        return None;
    }
    let parsed = (
        serde_json::from_slice::<Value>(left),
        serde_json::from_slice::<Value>(right),
    );
    let found = match &parsed {
        (Ok(left), Ok(right)) => in_values(left, right),
        _ => None,
    };
    Some(found.unwrap_or_else(|| {
        let (left, right) = (
            String::from_utf8_lossy(left),
            String::from_utf8_lossy(right),
        );
        let at = shared(&left, &right);
        difference_around(format!("byte {at}"), &left, &right)
    }))
}

/// How many answers of the model a request holds: its place among the requests of its run.
///
/// # Errors
/// The reason why the request cannot be read.
pub(crate) fn answers_in(request: &[u8]) -> Result<usize, String> {
    let request: Value = serde_json::from_slice(request)
        .map_err(|e| format!("the request is not JSON: {}", parser_message(&e)))?;
    let (key, messages) = conversation(&request).ok_or("the request has no list of messages")?;
    let is_answer = |at: usize| is_of_model(&messages[at]);
    // What one answer said may be several items; a message is one of its own.
    let begins =
        |at: &usize| is_answer(*at) && (key == "messages" || *at == 0 || !is_answer(*at - 1));
    Ok((0..messages.len()).filter(begins).count())
}

/// How many blocks of an answer that is not whole a request ends with: the service has paused, and goes on.
pub(crate) fn unended_blocks(request: &[u8]) -> usize {
    let request: Value = json::read_or_default(request);
    let last = conversation(&request)
        .and_then(|(_, messages)| messages.last())
        .filter(|message| role(message) == "assistant");
    blocks(last).map_or(0, Vec::len)
}

/// The conversation in a request, in the form of any API, and its key.
fn conversation(request: &Value) -> Option<(&'static str, &Vec<Value>)> {
    let mut keys = ["messages", "input"].into_iter();
    keys.find_map(|key| Some((key, request.get(key)?.as_array()?)))
}

fn is_of_model(message: &Value) -> bool {
    let kind = message.get("type").and_then(Value::as_str).unwrap_or("");
    match message.get("role").and_then(Value::as_str) {
        Some(role) => role == "assistant",
        None => !kind.is_empty() && kind != "function_call_output",
    }
}

fn in_values(left: &Value, right: &Value) -> Option<RequestDifference> {
    let key = conversation(left).map_or("messages", |(key, _)| key);
    let (left, right) = (left.as_object()?, right.as_object()?);
    let keys = left.keys().chain(right.keys()).filter(|it| *it != key);
    for key in keys {
        let (a, b) = (left.get(key), right.get(key));
        if a != b {
            return Some(difference_around(key.clone(), &written(a), &written(b)));
        }
    }
    let (a, b) = (left.get(key)?.as_array()?, right.get(key)?.as_array()?);
    let at = (0..a.len().max(b.len())).find(|at| a.get(*at) != b.get(*at))?;
    Some(in_messages(key, at, a.get(at), b.get(at)))
}

fn in_messages(
    key: &str,
    at: usize,
    left: Option<&Value>,
    right: Option<&Value>,
) -> RequestDifference {
    let who = left.or(right).map_or("", role);
    let mut place = format!("{key}[{at}] ({who})");
    let (mut left, mut right) = (left, right);
    if let (Some(a), Some(b)) = (blocks(left), blocks(right))
        && left.map(role) == right.map(role)
        && let Some(block) = (0..a.len().max(b.len())).find(|at| a.get(*at) != b.get(*at))
    {
        (left, right) = (a.get(block), b.get(block));
        place += &format!(", block {block}");
    }
    if let (Some(left), Some(right)) = (left, right)
        && role(left) == role(right)
        && let (Some(a), Some(b)) = (text(left), text(right))
        && a != b
    {
        return difference_around(place, a, b);
    }
    difference_around(place, &written(left), &written(right))
}

/// The blocks of a message that is a list of them.
fn blocks(message: Option<&Value>) -> Option<&Vec<Value>> {
    message?.get("content")?.as_array()
}

fn role(message: &Value) -> &str {
    let mut keys = ["role", "type"].into_iter();
    keys.find_map(|key| message.get(key)?.as_str())
        .unwrap_or("")
}

fn text(message: &Value) -> Option<&str> {
    let mut keys = ["content", "text", "output"].into_iter();
    keys.find_map(|key| message.get(key)?.as_str())
}

fn written(value: Option<&Value>) -> String {
    value.map_or_else(|| "(nothing)".to_owned(), Value::to_string)
}

/// How many leading bytes two texts share, up to a character boundary.
fn shared(left: &str, right: &str) -> usize {
    let pairs = left.char_indices().zip(right.chars());
    let mut end = 0;
    for ((at, a), b) in pairs {
        if a != b {
            return at;
        }
        end = at + a.len_utf8();
    }
    end
}

fn difference_around(place: String, left: &str, right: &str) -> RequestDifference {
    let at = shared(left, right);
    let from = left[..at]
        .char_indices()
        .rev()
        .take(BEFORE)
        .last()
        .map_or(at, |(start, _)| start);
    RequestDifference {
        place,
        left: excerpt(left, from),
        right: excerpt(right, from),
    }
}

/// A part of a text on one line, with marks where something is left out.
fn excerpt(text: &str, from: usize) -> String {
    let rest = &text[from..];
    let mut out = String::new();
    if from > 0 {
        out.push('…');
    }
    let mut chars = rest.chars();
    for c in chars.by_ref().take(BEFORE + AFTER) {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if disguises(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    if out.is_empty() {
        out.push_str("(nothing)");
    }
    printable(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: &str) -> Vec<u8> {
        format!("{{\"model\":\"m\",\"messages\":[{messages}]}}").into_bytes()
    }

    #[test]
    fn the_same_bytes_do_not_differ() {
        assert_eq!(first(b"x", b"x"), None);
    }

    #[test]
    fn the_first_message_that_differs_is_named_with_both_texts() {
        let user = r#"{"role":"user","content":"go"}"#;
        let a = request(&format!(r#"{user},{{"role":"tool","content":"one\ntwo"}}"#));
        let b = request(&format!(r#"{user},{{"role":"tool","content":"one\nsix"}}"#));
        let found = first(&a, &b).unwrap();
        assert_eq!(found.place, "messages[1] (tool)");
        assert_eq!(
            (found.left.as_str(), found.right.as_str()),
            ("one\\ntwo", "one\\nsix")
        );
        let found = first(&request(user), &a).unwrap();
        assert_eq!(found.place, "messages[1] (tool)");
        assert_eq!(found.left, "(nothing)");
    }

    #[test]
    fn a_setting_that_differs_is_named_before_any_message() {
        let a = br#"{"model":"m","temperature":0,"messages":[]}"#;
        let b = br#"{"model":"m","messages":[1]}"#;
        let found = first(a, b).unwrap();
        assert_eq!(
            (found.place.as_str(), found.left.as_str()),
            ("temperature", "0")
        );
    }

    #[test]
    fn requests_that_mean_the_same_differ_at_a_byte() {
        assert_eq!(first(b"{\"a\":1}", b"{\"a\": 1}").unwrap().place, "byte 5");
        assert_eq!(first(b"{", b"[").unwrap().place, "byte 0");
    }

    #[test]
    fn long_texts_are_shown_around_the_difference() {
        let long = "é".repeat(500);
        let a = request(&format!(r#"{{"role":"user","content":"{long}a{long}"}}"#));
        let b = request(&format!(r#"{{"role":"user","content":"{long}b{long}"}}"#));
        let found = first(&a, &b).unwrap();
        assert!(found.left.starts_with('…') && found.left.ends_with('…'));
        assert_eq!(found.left.chars().count(), BEFORE + AFTER + 2);
        assert!(found.left.contains('a') && found.right.contains('b'));
    }

    #[test]
    fn answers_are_counted() {
        let some = request(r#"{"role":"user"},{"role":"assistant"},{"role":"assistant"}"#);
        assert_eq!(answers_in(&some), Ok(2));
        assert!(answers_in(b"x").is_err() && answers_in(b"{}").is_err());
    }
}
