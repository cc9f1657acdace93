//! Events of a message of Messages.

use super::{Broken, Heard, Listener, append, take};
use crate::text::json::{self, Object};
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
        let mut event: Map<String, Value> = match serde_json::from_str(data) {
            Err(_) if name == b"error" => return Err(Broken::Error(json::unmarked(data.into()))),
            event => event?,
        };
        let name = || String::from_utf8_lossy(name).into_owned();
        let kind = take(&mut event, "type")?.unwrap_or_else(name);
        match kind.as_str() {
            "error" => return Err(Broken::Error(json::unmarked(data.into()))),
            "message_start" => self.message = take(&mut event, "message")?,
            "content_block_start" => {
                let members: Option<Map<String, Value>> = take(&mut event, "content_block")?;
                let members = members.unwrap_or_default();
                if members.get("type").is_some_and(|it| it == "tool_use") {
                    let name = members.get("name").and_then(Value::as_str);
                    listener(Heard::Call(name.unwrap_or_default()));
                }
                let input = String::new();
                let index = take(&mut event, "index")?.unwrap_or(0);
                self.blocks.insert(index, StreamedBlock { members, input });
            }
            "content_block_delta" => {
                let delta: Option<Map<String, Value>> = take(&mut event, "delta")?;
                let index = take(&mut event, "index")?.unwrap_or(0);
                let Some(block) = self.blocks.get_mut(&index) else {
                    let why = format!("a delta of block {index}, which has not begun");
                    return Err(Broken::Unreadable(why));
                };
                block.add(delta.unwrap_or_default(), listener)?;
            }
            "message_delta" => {
                let delta: Option<Map<String, Value>> = take(&mut event, "delta")?;
                let news: Option<Map<String, Value>> = take(&mut event, "usage")?;
                if let Some(message) = &mut self.message {
                    message.extend(delta.unwrap_or_default());
                    let mut usage: Map<String, Value> = take(message, "usage")?.unwrap_or_default();
                    let news = news.unwrap_or_default().into_iter();
                    usage.extend(news.filter(|(_, value)| !value.is_null()));
                    message.insert("usage".to_owned(), usage.into());
                }
            }
            "message_stop" => self.is_whole = self.message.is_some(),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn weight(&self) -> usize {
        let blocks = self.blocks.values();
        let blocks = blocks.map(|block| 200 + json::weight(&block.members) + block.input.len());
        self.message.as_ref().map_or(0, json::weight) + blocks.sum::<usize>()
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
    fn add(
        &mut self,
        mut delta: Map<String, Value>,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        let kind: String = take(&mut delta, "type")?.unwrap_or_default();
        let mut text = |key| take::<String>(&mut delta, key).map(Option::unwrap_or_default);
        match kind.as_str() {
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
                let citation: Value = take(&mut delta, "citation")?.unwrap_or_default();
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
