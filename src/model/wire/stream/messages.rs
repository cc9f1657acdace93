//! Events of a message of Messages.

use super::{Broken, Heard, Listener, append, take};
use crate::text::json::{self, Fields, Object};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The received part of a message.
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

impl Blocks {
    /// Adds an event.
    pub(super) fn add(
        &mut self,
        name: &[u8],
        data: &str,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        let error = || Broken::Error(json::unmarked(data.into()));
        let event: Fields<'_> = match serde_json::from_str(data) {
            Err(_) if name == b"error" => return Err(error()),
            event => event?,
        };
        let kind: Option<String> = event.read("type")?;
        match &*kind.unwrap_or_else(|| String::from_utf8_lossy(name).into_owned()) {
            "error" => return Err(error()),
            "message_start" => self.message = event.read("message")?,
            "content_block_start" => {
                let members: Map<String, Value> = event.read("content_block")?;
                if members.get("type").is_some_and(|it| it == "tool_use") {
                    let name = members.get("name").and_then(Value::as_str);
                    listener(Heard::Call(name.unwrap_or("")));
                }
                let input = String::new();
                self.blocks
                    .insert(event.read("index")?, StreamedBlock { members, input });
            }
            "content_block_delta" => {
                let index = event.read("index")?;
                let Some(block) = self.blocks.get_mut(&index) else {
                    let why = format!("a delta of block {index}, which has not begun");
                    return Err(Broken::Unreadable(why));
                };
                block.add(&event.read("delta")?, listener)?;
            }
            "message_delta" => {
                let delta: Map<String, Value> = event.read("delta")?;
                let news: Map<String, Value> = event.read("usage")?;
                if let Some(message) = &mut self.message {
                    message.extend(delta);
                    let mut usage: Map<String, Value> = take(message, "usage")?.unwrap_or_default();
                    usage.extend(news.into_iter().filter(|(_, value)| !value.is_null()));
                    message.insert("usage".to_owned(), usage.into());
                }
            }
            "message_stop" => self.is_whole = self.message.is_some(),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn weight(&self) -> usize {
        let blocks = self
            .blocks
            .values()
            .map(|block| 200 + json::weight(&block.members) + block.input.len());
        self.message.as_ref().map_or(0, json::weight) + blocks.sum::<usize>()
    }

    /// The message, if all of it came.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        let message = self.message.filter(|_| self.is_whole)?;
        Some(json::object(|object| {
            for (key, value) in message.iter().filter(|(key, _)| *key != "content") {
                object.put(key, value);
            }
            object.objects("content", self.blocks.values(), StreamedBlock::write);
        }))
    }
}

impl StreamedBlock {
    fn add(&mut self, delta: &Fields<'_>, listener: &mut Listener<'_>) -> Result<(), Broken> {
        let text = |key: &str| delta.read::<String>(key);
        match &*text("type")? {
            "text_delta" => {
                let text = text("text")?;
                listener(Heard::Text(&text));
                append(&mut self.members, "text", &text)?;
            }
            "thinking_delta" => {
                let thinking = text("thinking")?;
                listener(Heard::Reasoning(&thinking));
                append(&mut self.members, "thinking", &thinking)?;
            }
            "signature_delta" => {
                let signature = text("signature")?.into();
                self.members.insert("signature".to_owned(), signature);
            }
            "input_json_delta" => self.input += &text("partial_json")?,
            "citations_delta" => {
                let citation: Value = delta.read("citation")?;
                let citations = self.members.entry("citations").or_insert(Value::Null);
                match citations {
                    Value::Array(citations) => citations.push(citation),
                    other => *other = vec![citation].into(),
                }
            }
            _ => {}
        }
        Ok(())
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
            // Cut off, or not JSON: keep the text, so that the record shows it.
            object.put("input", input);
        }
    }
}
