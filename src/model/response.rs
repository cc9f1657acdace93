//! A chat-completions response as it comes from real servers, understood.
//!
//! The format is that of `POST /chat/completions`; deviations that are in use are accepted: content
//! that is null, missing or a list of parts; calls that are null, without ids, or with arguments as
//! an object.

use crate::record::event::{FinishReason, REASONING, Tokens};
use crate::record::messages::is_known_member;
use crate::text::ids::hex;
use crate::text::json::{self, Members, Object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The model's answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The text: a JSON string or null.
    pub content_json: Vec<u8>,
    /// The text, if there is any.
    pub text: String,
    /// The calls, with ids as the server gave them; missing ones are empty.
    pub calls: Vec<NewCall>,
    /// Members in which the server sent reasoning: name and JSON.
    pub reasoning: Vec<(&'static str, Vec<u8>)>,
    /// Why the model stopped.
    pub finish_reason: Option<FinishReason<'static>>,
    /// Which model answered.
    pub model: Option<String>,
    /// The tokens of the request and the answer.
    pub usage: Option<Tokens>,
    /// How many of the request's tokens came from a cache, if the server tells.
    pub cached_tokens: Option<u64>,
    /// More about why the model stopped, for a person.
    pub finish_detail: Option<String>,
    /// The answer as it came, in the form of its API: a JSON array of what must be sent back verbatim.
    pub items: Option<Vec<u8>>,
    /// The digest of the text and the calls that were read from the items.
    pub view: Option<String>,
    /// The service has more to say, and waits to have this back.
    pub is_paused: bool,
}

impl Answer {
    /// One of text, reasoning to be shown, and calls.
    pub(super) fn of_parts(
        text: String,
        reasoning: String,
        calls: Vec<NewCall>,
        model: Option<String>,
    ) -> Self {
        let reasoning =
            (!reasoning.is_empty()).then(|| (REASONING[0], json::text(&reasoning).into_bytes()));
        Self {
            content_json: match text.is_empty() {
                true => b"null".to_vec(),
                false => json::text(&text).into_bytes(),
            },
            text,
            calls,
            reasoning: reasoning.into_iter().collect(),
            model,
            ..Self::default()
        }
    }

    /// The answer as a chat completion: the form that everything above the wire knows.
    pub(crate) fn as_completion(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object
            .put("object", "chat.completion")
            .put("model", &self.model);
        object.objects("choices", [()], |choice, ()| {
            choice.put("index", &0);
            let mut message = Object::begin(choice.nest("message"));
            message
                .put("role", "assistant")
                .raw("content", &self.content_json);
            if !self.calls.is_empty() {
                message.raw("tool_calls", &calls_json(&self.calls));
            }
            for (name, value) in &self.reasoning {
                message.raw(name, value);
            }
            message.end();
            let reason = self.finish_reason.as_ref().map(FinishReason::name);
            choice.put("finish_reason", &reason);
        });
        object.put("usage", &self.usage).end();
        out
    }
}

/// A call that the model asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewCall {
    /// The server's id; empty if it gave none.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// A JSON object in a text; `{}` if the model gave none.
    pub arguments: String,
    /// The raw arguments, if they are no JSON object.
    pub invalid: Option<String>,
    /// Members of the call that are nobody's here, and that some servers insist on having back: names and JSON.
    pub extra: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Response<'r> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'r>>>,
    #[serde(default)]
    model: Option<Value>,
    #[serde(default)]
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'r> {
    #[serde(borrow, default)]
    message: Option<&'r RawValue>,
    #[serde(default)]
    finish_reason: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message<'r> {
    content: Option<Value>,
    #[serde(borrow)]
    tool_calls: Option<Vec<&'r RawValue>>,
    refusal: Option<Value>,
    #[serde(borrow)]
    reasoning_content: Option<&'r RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'r RawValue>,
    #[serde(borrow)]
    reasoning_details: Option<&'r RawValue>,
    #[serde(borrow)]
    thinking: Option<&'r RawValue>,
    #[serde(borrow)]
    thinking_blocks: Option<&'r RawValue>,
}

#[derive(Deserialize)]
struct WireCall {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    function: Option<WireFunction>,
}

#[derive(Deserialize)]
struct WireFunction {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

/// Reads a response.
///
/// # Errors
/// The reason to ask again: the body is not JSON, has no message, or one with neither text nor
/// calls.
pub(crate) fn parse(body: &[u8]) -> Result<Answer, String> {
    let paired = without_lone_surrogates(body);
    let body = paired.as_deref().unwrap_or(body);
    let response: Response<'_> = serde_json::from_slice(body).map_err(|_| not_chat(body))?;
    let mut choices = response.choices.unwrap_or_default();
    if choices.is_empty() {
        return Err(format!(
            "the answer has no choices: {}",
            super::attempt::their_words(body)
        ));
    }
    let model = response.model.as_ref().and_then(Value::as_str);
    let model = model.map(str::to_owned);
    choices
        .swap_remove(0)
        .into_answer(model, response.usage.as_ref())
        .unwrap_or_else(|_| Err(not_chat(body)))
}

fn not_chat(body: &[u8]) -> String {
    let said = super::attempt::their_words(&body[..body.len().min(200)]);
    format!("the answer is not a chat completion: {said}")
}

/// Members of an object beside the known ones, without those that say nothing.
fn other_members(
    object: &str,
    is_known: impl Fn(&str) -> bool,
) -> serde_json::Result<Vec<(String, String)>> {
    let members: Option<Members> = serde_json::from_str(object)?;
    let members = members.unwrap_or_default().0.into_iter();
    let is_other = |(name, value): &(String, Box<RawValue>)| {
        let says_nothing = matches!(value.get(), "null" | "\"\"" | "[]" | "{}");
        !says_nothing && !is_known(name)
    };
    let text = |json: &str| String::from_utf8_lossy(&one_line(json)).into_owned();
    let others = members.filter(is_other);
    Ok(others
        .map(|(name, value)| (name, text(value.get())))
        .collect())
}

impl Choice<'_> {
    /// The answer that is in a choice, if it has text or calls or was cut off; inside, why it is none.
    ///
    /// # Errors
    /// The message has another form.
    fn into_answer(
        self,
        model: Option<String>,
        usage: Option<&Value>,
    ) -> serde_json::Result<Result<Answer, String>> {
        let raw = self.message.map_or("null", RawValue::get);
        let message: Option<Message<'_>> = serde_json::from_str(raw)?;
        let message = message.unwrap_or_default();
        let finish_reason = self.finish_reason.as_ref().and_then(Value::as_str);
        let finish_reason = finish_reason.map(|it| FinishReason::of(it.to_owned()));
        let refusal = message.refusal.as_ref().and_then(Value::as_str);
        let refusal = refusal.filter(|words| !words.trim().is_empty());
        let finish_reason = match refusal {
            Some(_) => Some(FinishReason::ContentFilter),
            None => finish_reason,
        };
        let text = message.content.as_ref().map(text_of).unwrap_or_default();
        let text = if text.is_empty() {
            refusal.unwrap_or_default().to_owned()
        } else {
            text
        };
        let calls = message.tool_calls.into_iter().flatten();
        let calls: Vec<NewCall> = calls
            .map(WireCall::understand)
            .collect::<serde_json::Result<_>>()?;
        let cut_off = finish_reason.as_ref().is_some_and(FinishReason::is_cut_off);
        if text.trim().is_empty() && calls.is_empty() && !cut_off {
            return Ok(Err("the answer has neither text nor tool calls".to_owned()));
        }
        let others = other_members(raw, is_known_member)?;
        let reasoning = [
            message.reasoning_content,
            message.reasoning,
            message.reasoning_details,
            message.thinking,
            message.thinking_blocks,
        ];
        let has_text = !text.is_empty() || matches!(message.content, Some(Value::String(_)));
        let content_json = if has_text {
            json::text(&text).into_bytes()
        } else {
            b"null".to_vec()
        };
        Ok(Ok(Answer {
            content_json,
            text,
            calls,
            reasoning: REASONING
                .into_iter()
                .zip(reasoning)
                .filter_map(|(name, raw)| Some((name, one_line(raw?.get()))))
                .collect(),
            finish_reason,
            finish_detail: refusal.map(str::to_owned),
            model,
            usage: usage.filter(|usage| usage.is_object()).map(tokens),
            cached_tokens: usage.and_then(|usage| {
                let details = usage.pointer("/prompt_tokens_details/cached_tokens");
                details
                    .or_else(|| usage.get("prompt_cache_hit_tokens"))
                    .and_then(Value::as_u64)
            }),
            items: (!others.is_empty()).then(|| {
                let mut items = Vec::new();
                items.push(b'[');
                let mut members = Object::begin(&mut items);
                for (name, value) in &others {
                    members.raw(name, value.as_bytes());
                }
                members.end();
                items.push(b']');
                items
            }),
            view: None,
            is_paused: false,
        }))
    }
}

/// What a server says it has counted for an answer, whatever the answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub tokens: Tokens,
    /// Of the request's tokens, those that came from a cache.
    pub cached: u64,
    /// Of the request's tokens, those that were put into a cache.
    pub cache_written: u64,
}

/// What the usage of a response says; none if it says nothing of tokens.
pub(super) fn counted(usage: &Value) -> Option<Counted> {
    let detail = |name: &str| usage.get("prompt_tokens_details")?.get(name)?.as_u64();
    let number = |name: &str| usage.get(name)?.as_u64();
    let cached = detail("cached_tokens").or_else(|| number("prompt_cache_hit_tokens"));
    let written = detail("cache_write_tokens").or_else(|| number("cache_creation_input_tokens"));
    let counted = Counted {
        tokens: tokens(usage),
        cached: cached.unwrap_or(0),
        cache_written: written.unwrap_or(0),
    };
    (counted.tokens.total_tokens > 0).then_some(counted)
}

/// JSON in which every `\uD800` that is not half of a pair has become U+FFFD; none if it has no such escapes.
/// Some servers cut a text in the middle of a character; the rest of it is worth having.
pub(super) fn without_lone_surrogates(body: &[u8]) -> Option<Vec<u8>> {
    let has_halves = |mark: &[u8]| memchr::memmem::find(body, mark).is_some();
    (has_halves(b"\\ud") || has_halves(b"\\uD")).then(|| with_pairs_only(body))
}

fn with_pairs_only(body: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u16> {
        let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut out = Vec::with_capacity(body.len());
    let mut at = 0;
    while at < body.len() {
        let (len, replacement) = match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => (12, None),
            Some(0xD800..=0xDFFF) => (6, Some(b"\\uFFFD")),
            Some(_) => (6, None),
            None if body[at] == b'\\' => (2, None),
            None => (1, None),
        };
        let end = (at + len).min(body.len());
        match replacement {
            Some(bytes) => out.extend_from_slice(bytes),
            None => out.extend_from_slice(&body[at..end]),
        }
        at = end;
    }
    out
}

/// JSON that came over several lines, without the line breaks.
pub(super) fn one_line(raw: &str) -> Vec<u8> {
    if !raw.contains(['\n', '\r']) {
        return raw.as_bytes().to_vec();
    }
    // Inside strings line breaks are escaped, so that these are only white space between tokens.
    raw.replace(['\n', '\r'], " ").into_bytes()
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()))
            .collect(),
        _ => String::new(),
    }
}

fn tokens(usage: &Value) -> Tokens {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let prompt_tokens = count("prompt_tokens").unwrap_or(0);
    let completion_tokens = count("completion_tokens").unwrap_or(0);
    Tokens {
        prompt_tokens,
        completion_tokens,
        total_tokens: count("total_tokens")
            .unwrap_or(prompt_tokens.saturating_add(completion_tokens)),
    }
}

impl WireCall {
    fn understand(raw: &RawValue) -> serde_json::Result<NewCall> {
        let call: Self = serde_json::from_str(raw.get())?;
        let extra = other_members(raw.get(), |name| {
            ["id", "type", "index", "function"].contains(&name)
        })?;
        Ok(NewCall {
            extra,
            ..call.understood()
        })
    }

    fn understood(self) -> NewCall {
        let function = self.function.unwrap_or(WireFunction {
            name: None,
            arguments: None,
        });
        let text = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        let id = match self.id {
            Some(Value::String(id)) => id,
            Some(Value::Number(id)) => id.to_string(),
            _ => String::new(),
        };
        let name = function.name.unwrap_or_default();
        NewCall::understand(id, &name, text)
    }
}

impl NewCall {
    /// A call as a model asked for it, with its arguments as text.
    pub(super) fn understand(id: String, name: &str, text: String) -> Self {
        let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&text).is_ok();
        let (arguments, invalid) = if text.trim().is_empty() {
            ("{}".to_owned(), None)
        } else if is_object {
            (text, None)
        } else {
            ("{}".to_owned(), Some(text))
        };
        let invalid = if is_name(name) {
            invalid
        } else {
            let said = format!("a call of {name:?}, which is not a name of a tool");
            Some(invalid.unwrap_or(said))
        };
        Self {
            id,
            name: usable_name(name).into_owned(),
            arguments,
            invalid,
            extra: Vec::new(),
        }
    }
}

/// True if servers accept the name for a function.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}

/// The name, or another in place of one that servers would refuse in a history. No tool has that.
pub(super) fn usable_name(name: &str) -> Cow<'_, str> {
    if is_name(name) {
        return name.into();
    }
    let usable = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    format!("unknown_{}", usable.take(50).collect::<String>()).into()
}

/// The calls as they are sent back to the model: a JSON array.
pub(crate) fn calls_json(calls: &[NewCall]) -> Vec<u8> {
    let mut out = vec![b'['];
    for call in calls {
        if out.len() > 1 {
            out.push(b',');
        }
        let mut object = Object::begin(&mut out);
        object.put("id", &call.id).put("type", "function");
        let mut function = Object::begin(object.nest("function"));
        function
            .put("name", &call.name)
            .put("arguments", &call.arguments);
        function.end();
        for (name, value) in &call.extra {
            object.raw(name, value.as_bytes());
        }
        object.end();
    }
    out.push(b']');
    out
}

/// Gives every call an id that no other call has: `taken` knows those of earlier messages.
pub(crate) fn make_ids_unique(calls: &mut [NewCall], taken: impl Fn(&str) -> bool) {
    let mut used: HashSet<String> = HashSet::new();
    let mut copies: HashMap<String, u32> = HashMap::new();
    for call in calls {
        let is_free = |id: &str| !id.is_empty() && !taken(id) && !used.contains(id);
        if !is_free(&call.id) {
            let stem = std::mem::take(&mut call.id);
            call.id = if stem.is_empty() {
                std::iter::repeat_with(|| format!("call_{}", hex(8)))
                    .find(|id| is_free(id))
                    .unwrap_or_default()
            } else {
                // Counting goes on where the copy before stopped, so that many copies cost no more each.
                let count = copies.entry(stem.clone()).or_insert(1);
                loop {
                    *count += 1;
                    let id = format!("{stem}_{count}");
                    if is_free(&id) {
                        break id;
                    }
                }
            };
        }
        used.insert(call.id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(message: &str) -> Answer {
        let body =
            format!("{{\"choices\":[{{\"message\":{message},\"finish_reason\":\"stop\"}}]}}");
        parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn every_form_of_content_is_read() {
        assert_eq!(message(r#"{"content":"a"}"#).text, "a");
        assert_eq!(
            message(r#"{"content":[{"type":"text","text":"a"},{"text":"b"}]}"#).text,
            "ab"
        );
        let call = r#""tool_calls":[{"function":{"name":"x","arguments":{"a":1}}}]"#;
        assert_eq!(
            message(&format!("{{\"content\":null,{call}}}")).content_json,
            b"null"
        );
        assert_eq!(
            message(&format!("{{\"content\":\"\",{call}}}")).content_json,
            b"\"\""
        );
        assert_eq!(
            message(&format!("{{{call}}}")).calls[0].arguments,
            "{\"a\":1}"
        );
    }

    #[test]
    fn arguments_that_are_no_object_are_kept_aside() {
        for (given, sent, invalid) in [
            (r#""{\"a\":1}""#, "{\"a\":1}", None),
            (r#""""#, "{}", None),
            ("null", "{}", None),
            (r#""{\"a\":""#, "{}", Some("{\"a\":")),
            (r#""[1]""#, "{}", Some("[1]")),
            ("[1]", "{}", Some("[1]")),
        ] {
            let answer = message(&format!(
                "{{\"tool_calls\":[{{\"id\":\"a\",\"function\":{{\"name\":\"x\",\"arguments\":{given}}}}}]}}"
            ));
            assert_eq!(answer.calls[0].arguments, sent, "{given}");
            assert_eq!(answer.calls[0].invalid.as_deref(), invalid, "{given}");
        }
    }

    #[test]
    fn what_is_no_answer_is_worth_another_try() {
        for body in [
            "",
            "<html>",
            "{}",
            "[]",
            r#"{"choices":[]}"#,
            r#"{"choices":[{"message":{"content":""}}]}"#,
            r#"{"choices":[{"message":{"content":null,"tool_calls":null}}]}"#,
            r#"{"error":{"message":"upstream"}}"#,
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn half_a_character_does_not_lose_the_answer() {
        let answer = message(r#"{"content":"a \ud800 b \ud83e\udd80 \\ud800"}"#);
        assert_eq!(answer.text, "a \u{FFFD} b 🦀 \\ud800");
    }

    #[test]
    fn ids_become_unique() {
        let call = |id: &str| NewCall {
            id: id.to_owned(),
            ..NewCall::default()
        };
        let mut calls = [call("a"), call("a"), call(""), call("old")];
        make_ids_unique(&mut calls, |id| id == "old");
        assert_eq!(calls[0].id, "a");
        assert_eq!(calls[1].id, "a_2");
        assert!(calls[2].id.starts_with("call_"));
        assert_eq!(calls[3].id, "old_2");
    }
}
