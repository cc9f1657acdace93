//! Events of a message of Messages.

use super::{Heard, Listener, append};
use crate::text::json::Object;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What has come of a message.
#[derive(Default)]
pub(super) struct Blocks {
    message: Option<Map<String, Value>>,
    blocks: BTreeMap<u64, StreamedBlock>,
    /// The event at the end has come.
    pub is_whole: bool,
}

#[derive(Default)]
struct StreamedBlock {
    members: Map<String, Value>,
    /// The input as it comes, in pieces of JSON.
    input: String,
}

#[derive(Deserialize)]
struct MessagesEvent {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    index: u64,
    #[serde(default)]
    message: Option<Map<String, Value>>,
    #[serde(default)]
    content_block: Option<Map<String, Value>>,
    #[serde(default)]
    delta: Option<Map<String, Value>>,
    #[serde(default)]
    usage: Option<Map<String, Value>>,
}

impl Blocks {
    /// Adds an event. Returns the error that it reports.
    pub(super) fn add(
        &mut self,
        name: &[u8],
        data: &[u8],
        listener: &mut Listener<'_>,
    ) -> Option<Vec<u8>> {
        let Ok(event) = serde_json::from_slice::<MessagesEvent>(data) else {
            return (name == b"error").then(|| data.to_vec());
        };
        match event.r#type.as_str() {
            "error" => return Some(data.to_vec()),
            "message_start" => self.message = event.message,
            "content_block_start" => {
                let members = event.content_block.unwrap_or_default();
                if members.get("type").is_some_and(|it| it == "tool_use") {
                    let name = members.get("name").and_then(Value::as_str);
                    listener(Heard::Call(name.unwrap_or_default()));
                }
                let input = String::new();
                self.blocks
                    .insert(event.index, StreamedBlock { members, input });
            }
            "content_block_delta" => {
                let delta = event.delta.unwrap_or_default();
                if let Some(block) = self.blocks.get_mut(&event.index) {
                    block.add(&delta, listener);
                }
            }
            "message_delta" => {
                if let Some(message) = &mut self.message {
                    message.extend(event.delta.unwrap_or_default());
                    let usage = message
                        .entry("usage")
                        .or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(usage) = usage {
                        let news = event.usage.unwrap_or_default().into_iter();
                        usage.extend(news.filter(|(_, value)| !value.is_null()));
                    }
                }
            }
            "message_stop" => self.is_whole = self.message.is_some(),
            _ => {}
        }
        None
    }

    /// The message, if all of it came.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        let message = self.message.filter(|_| self.is_whole)?;
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        for (key, value) in &message {
            if key != "content" {
                object.put(key, value);
            }
        }
        object.objects("content", self.blocks.values(), StreamedBlock::write);
        object.end();
        Some(out)
    }
}

impl StreamedBlock {
    fn add(&mut self, delta: &Map<String, Value>, listener: &mut Listener<'_>) {
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text_delta" => {
                listener(Heard::Text(text("text")));
                append(&mut self.members, "text", text("text"));
            }
            "thinking_delta" => {
                listener(Heard::Reasoning(text("thinking")));
                append(&mut self.members, "thinking", text("thinking"));
            }
            "signature_delta" => {
                let signature = text("signature").into();
                self.members.insert("signature".to_owned(), signature);
            }
            "input_json_delta" => self.input.push_str(text("partial_json")),
            "citations_delta" => {
                let citation = delta.get("citation").cloned().unwrap_or_default();
                match self.members.get_mut("citations") {
                    Some(Value::Array(citations)) => citations.push(citation),
                    _ => {
                        let citations = Value::Array(vec![citation]);
                        self.members.insert("citations".to_owned(), citations);
                    }
                }
            }
            _ => {}
        }
    }

    fn write(object: &mut Object<'_>, block: &Self) {
        let input = block.input.trim();
        for (key, value) in &block.members {
            if key != "input" || input.is_empty() {
                object.put(key, value);
            }
        }
        if input.is_empty() {
            return;
        }
        if serde_json::from_str::<IgnoredAny>(input).is_ok() {
            object.raw("input", input.as_bytes());
        } else {
            // Cut off, or not JSON at all: whoever reads it is to see what it was.
            object.put("input", input);
        }
    }
}
