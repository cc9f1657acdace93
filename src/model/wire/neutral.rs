//! The neutral form: a request as the engine builds it, and how it is taken apart.
//!
//! It is that of chat completions; an assistant message may have `wire`, the answer as it came, and a
//! result `is_error`.

use super::parts::MessagePart;
use crate::config::api::Api;
use crate::record::event::Tokens;
use crate::record::messages::message;
use crate::text::json::{self, Members, parser_message};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A request in the neutral form. Its last member is the list of messages.
#[derive(Debug)]
pub(crate) struct Neutral {
    pub bytes: Vec<u8>,
    /// The place of the first message.
    pub messages: usize,
    /// The end of the conversation that later requests will repeat: what follows is of this request alone.
    pub stable: usize,
}

impl Neutral {
    /// A request of another author, such as a hook: any JSON object. For chat completions it is sent
    /// unchanged.
    ///
    /// # Errors
    /// The request is not an object, or has no list of messages.
    pub(crate) fn changed(api: Api, bytes: Vec<u8>) -> Result<Self, String> {
        if api == Api::Chat {
            return Ok(Self {
                bytes,
                messages: 0,
                stable: 0,
            });
        }
        Self::read(&bytes)
    }

    fn read(bytes: &[u8]) -> Result<Self, String> {
        let request: Value = serde_json::from_slice(bytes)
            .map_err(|e| format!("the request is not JSON: {}", parser_message(&e)))?;
        let Value::Object(mut request) = request else {
            return Err("the request is not an object".to_owned());
        };
        let Some(Value::Array(messages)) = request.shift_remove("messages") else {
            return Err("the request has no list of messages".to_owned());
        };
        let mut bytes = json::object(|object| {
            for (name, value) in &request {
                object.put(name, value);
            }
            object.nest("messages").push(b'[');
        });
        bytes.pop();
        let start = bytes.len();
        bytes.extend_from_slice(&json::text(&messages).as_bytes()[1..]);
        let stable = bytes.len() - 1;
        bytes.push(b'}');
        Ok(Self {
            bytes,
            messages: start,
            stable,
        })
    }

    /// The request with `new` in place of the conversation that it has, as messages separated by commas. None if
    /// it has no such conversation.
    pub(crate) fn with_conversation(&self, old: &[u8], new: &[u8]) -> Option<Self> {
        let start = self.stable.checked_sub(old.len())?;
        let is_there = start >= self.messages && self.bytes[start..self.stable] == *old;
        (is_there && !old.is_empty()).then(|| Self {
            bytes: [&self.bytes[..start], new, &self.bytes[self.stable..]].concat(),
            messages: self.messages,
            stable: start + new.len(),
        })
    }

    /// The request with one more message of a user at its end, to be answered in plain text. With `bars_tools`
    /// no tool can be called. The rest keeps its bytes, so that caches serve it.
    ///
    /// # Errors
    /// The request's head is not JSON.
    pub(crate) fn asking(&self, api: Api, words: &str, bars_tools: bool) -> Result<Self, String> {
        let mut head = self.bytes[..self.messages].to_vec();
        let members = self.head()?;
        let is_changed = |(name, value): &(String, Box<RawValue>)| {
            without_format(name, value.get()).as_deref() != Some(value.get())
        };
        if bars_tools || members.0.iter().any(is_changed) {
            head = json::object(|object| {
                for (name, value) in &members.0 {
                    let is_ours = name == "messages" || bars_tools && name == "tool_choice";
                    let kept = without_format(name, value.get()).filter(|_| !is_ours);
                    if let Some(kept) = kept {
                        object.raw(name, kept.as_bytes());
                    }
                }
                if bars_tools {
                    let none: &[u8] = match api {
                        Api::Chat | Api::Responses => br#""none""#,
                        Api::Messages => br#"{"type":"none"}"#,
                    };
                    object.raw("tool_choice", none);
                }
                object.nest("messages").push(b'[');
            });
            head.pop();
        }
        let messages = head.len();
        let end = self.bytes.len() - 2;
        let mut bytes = head;
        bytes.extend_from_slice(&self.bytes[self.messages..end]);
        message(&mut bytes, "user", json::text(words).as_bytes());
        bytes.extend_from_slice(b"]}");
        Ok(Self {
            bytes,
            messages,
            stable: self.stable - self.messages + messages,
        })
    }

    /// Everything before the messages, as members in their order.
    pub(super) fn head(&self) -> Result<Members, String> {
        let mut head = self.bytes[..self.messages].to_vec();
        head.extend_from_slice(b"]}");
        serde_json::from_slice(&head)
            .map_err(|e| format!("the request's head: {}", parser_message(&e)))
    }
}

/// A member of a request without what it says of the answer's form; none if that is all.
fn without_format<'v>(name: &str, value: &'v str) -> Option<Cow<'v, str>> {
    match name {
        "response_format" => None,
        "text" | "output_config" => {
            let mut map: Map<String, Value> = json::read_or_default(value);
            match map.shift_remove("format") {
                None => Some(value.into()),
                Some(_) if map.is_empty() => None,
                Some(_) => Some(json::text(&map).into()),
            }
        }
        _ => Some(value.into()),
    }
}

/// A message of the neutral form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'m> {
    #[serde(borrow)]
    pub role: Cow<'m, str>,
    #[serde(borrow)]
    pub content: Option<&'m RawValue>,
    #[serde(borrow)]
    pub tool_calls: Option<&'m RawValue>,
    #[serde(borrow)]
    pub tool_call_id: Cow<'m, str>,
    pub is_error: bool,
    #[serde(borrow)]
    pub wire: Option<&'m RawValue>,
}

/// A call of a message.
#[derive(Debug, Deserialize)]
pub(super) struct MessageCall<'m> {
    #[serde(borrow, default)]
    pub id: Cow<'m, str>,
    #[serde(borrow)]
    pub function: Function<'m>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Function<'m> {
    #[serde(borrow, default)]
    pub name: Cow<'m, str>,
    #[serde(borrow)]
    pub arguments: &'m RawValue,
}

impl Message<'_> {
    /// The calls; members that are not calls are left out.
    pub(super) fn calls(&self) -> Vec<MessageCall<'_>> {
        let calls = self.tool_calls.map_or("null", RawValue::get);
        let calls: Option<Vec<MessageCall<'_>>> = json::read_or_default(calls);
        calls.unwrap_or_default()
    }

    /// The parts, without texts that are blank. Content that is a list is read part by part.
    pub(super) fn parts(&self) -> Vec<MessagePart<'_>> {
        let content = self.content.map_or("null", RawValue::get);
        let mut parts = if content.starts_with('[') {
            let parts: Vec<Value> = json::read_or_default(content);
            parts.iter().map(MessagePart::read).collect()
        } else {
            vec![MessagePart::Text(Cow::Borrowed(content))]
        };
        parts.retain(|part| !part.is_blank());
        parts
    }

    /// The texts as JSON strings, without those that are blank.
    pub(super) fn texts(&self) -> Vec<Cow<'_, str>> {
        self.parts()
            .into_iter()
            .filter_map(|part| match part {
                MessagePart::Text(text) => Some(text),
                MessagePart::Picture(_) | MessagePart::Document { .. } => None,
            })
            .collect()
    }
}

/// The wire of a message: the answer as it came.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Recorded<'m> {
    #[serde(borrow)]
    pub api: Cow<'m, str>,
    #[serde(borrow)]
    pub model: Option<&'m RawValue>,
    /// The model that was asked in place of the first, if one was.
    #[serde(borrow)]
    pub fallback: Option<Cow<'m, str>>,
    #[serde(borrow)]
    pub items: Vec<&'m RawValue>,
    #[serde(borrow)]
    pub prefix: Cow<'m, str>,
    #[serde(borrow)]
    pub view: Cow<'m, str>,
    /// The service's count for a part of an answer.
    pub usage: Option<Tokens>,
    pub cached_tokens: Option<u64>,
}

impl Recorded<'_> {
    /// The items, with commas between them.
    pub(super) fn joined_items(&self) -> String {
        let items: Vec<&str> = self.items.iter().map(|item| RawValue::get(item)).collect();
        items.join(",")
    }
}
