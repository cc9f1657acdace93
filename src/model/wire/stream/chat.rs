//! Chunks of a chat completion.

use super::{Broken, Heard, Listener, append, take};
use crate::record::event::REASONING;
use crate::text::json::{self, Object};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The received part of a completion.
#[derive(Default)]
pub(super) struct Chunks {
    /// The members beside choices and usage, as the first chunk had them.
    members: Map<String, Value>,
    message: Map<String, Value>,
    calls: Vec<StreamedCall>,
    /// The newest call of each index.
    newest: HashMap<u64, usize>,
    finish_reason: Option<String>,
    usage: Option<Map<String, Value>>,
    has_choice: bool,
    /// The mark at the end has come.
    pub is_done: bool,
}

#[derive(Default)]
struct StreamedCall {
    index: Option<u64>,
    members: Map<String, Value>,
    name: String,
    arguments: String,
}

impl Chunks {
    /// Adds an event.
    pub(super) fn add(&mut self, data: &str, listener: &mut Listener<'_>) -> Result<(), Broken> {
        let mut chunk: Map<String, Value> = serde_json::from_str(data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Broken::Error(json::unmarked(data.into())));
        }
        if !chunk.contains_key("choices") && !chunk.contains_key("usage") {
            // Something else that the server has to say.
            return Ok(());
        }
        let choices: Option<Vec<Map<String, Value>>> = take(&mut chunk, "choices")?;
        for mut choice in choices.unwrap_or_default() {
            if take::<u64>(&mut choice, "index")?.unwrap_or(0) == 0 {
                self.choice(choice, listener)?;
            }
        }
        self.usage = take(&mut chunk, "usage")?.or(self.usage.take());
        for (key, value) in chunk {
            match key.as_str() {
                "object" => drop(self.members.insert(key, "chat.completion".into())),
                _ => drop(self.members.entry(key).or_insert(value)),
            }
        }
        Ok(())
    }

    fn choice(
        &mut self,
        mut choice: Map<String, Value>,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        self.has_choice = true;
        self.finish_reason = take(&mut choice, "finish_reason")?.or(self.finish_reason.take());
        let delta: Option<Map<String, Value>> = match take(&mut choice, "delta")? {
            // Some servers send the last one whole.
            None => take(&mut choice, "message")?,
            delta => delta,
        };
        for (key, value) in delta.unwrap_or_default() {
            match value {
                Value::Null => {}
                calls if key == "tool_calls" => {
                    for call in serde_json::from_value::<Vec<_>>(calls)? {
                        self.call(call, listener)?;
                    }
                }
                Value::String(text) if is_text(&key) => {
                    let is_reasoning = REASONING.contains(&key.as_str());
                    if !text.is_empty() {
                        listener(match is_reasoning {
                            true => Heard::Reasoning(&text),
                            false => Heard::Text(&text),
                        });
                    }
                    append(&mut self.message, &key, &text)?;
                }
                Value::Array(parts) => self.extend(key, parts)?,
                value if is_text(&key) || key == "role" => {
                    let text: String = serde_json::from_value(value)?;
                    add_member(&mut self.message, key, text.into());
                }
                value => add_member(&mut self.message, key, value),
            }
        }
        Ok(())
    }

    /// Adds parts to a list: those of one index and type are one part.
    fn extend(&mut self, key: String, parts: Vec<Value>) -> Result<(), Broken> {
        let is_readable = |part: &Value| {
            let text = part.get("text").unwrap_or(&Value::Null);
            part.is_string() || part.is_object() && (text.is_null() || text.is_string())
        };
        if is_text(&key) && !parts.iter().all(is_readable) {
            return Err(Broken::Unreadable(format!("a part of {key} is not a text")));
        }
        let list = self
            .message
            .entry(key)
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::String(text) = list {
            *list = vec![std::mem::take(text)].into();
        }
        let Value::Array(list) = list else {
            return Ok(());
        };
        for part in parts {
            let same =
                |other: &&mut Value| ["index", "type"].iter().all(|key| other[key] == part[key]);
            let known = match part["index"].is_u64() {
                true => list.iter_mut().rfind(same),
                false => None,
            };
            match (known, part) {
                (Some(Value::Object(whole)), Value::Object(part)) => {
                    for (key, value) in part {
                        match value.as_str() {
                            Some(text) if matches!(key.as_str(), "text" | "summary" | "data") => {
                                append(whole, &key, text)?;
                            }
                            _ if value.is_null() => {}
                            _ => {
                                whole.insert(key, value);
                            }
                        }
                    }
                }
                (_, part) => list.push(part),
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        mut delta: Map<String, Value>,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        let index: Option<u64> = take(&mut delta, "index")?;
        let id = match delta.get("id") {
            Some(id) if !id.is_number() => serde_json::from_value(id.clone())?,
            _ => None,
        };
        let id: String = id.unwrap_or_default();
        let is_meant = |call: &StreamedCall| {
            let known = call.members.get("id").and_then(Value::as_str);
            // Some servers number all of them 0.
            let is_other =
                !id.is_empty() && known.is_some_and(|known| !known.is_empty() && known != id);
            !is_other && (index.is_none() || call.index == index)
        };
        let at = match index.map(|index| self.newest.get(&index)) {
            Some(None) => None,
            Some(Some(at)) if is_meant(&self.calls[*at]) => Some(*at),
            _ => self.calls.iter().rposition(is_meant),
        };
        let at = at.unwrap_or_else(|| {
            if let Some(index) = index {
                self.newest.insert(index, self.calls.len());
            }
            self.calls.push(StreamedCall {
                index,
                ..StreamedCall::default()
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if let Some(mut function) = take::<Map<String, Value>>(&mut delta, "function")? {
            let name: String = take(&mut function, "name")?.unwrap_or_default();
            if call.name.is_empty() && !name.is_empty() {
                listener(Heard::Call(&name));
                call.name = name;
            }
            call.arguments += &match take(&mut function, "arguments")? {
                Some(whole @ Value::Object(_)) => whole.to_string(),
                Some(text) => serde_json::from_value(text)?,
                None => String::new(),
            };
        }
        for (key, value) in delta {
            let says_nothing = value.is_null() || value.as_str() == Some("");
            if !says_nothing {
                add_member(&mut call.members, key, value);
            }
        }
        Ok(())
    }

    pub(super) fn weight(&self) -> usize {
        let of_call = |call: &StreamedCall| {
            500 + json::weight(&call.members) + call.name.len() + call.arguments.len()
        };
        let calls: usize = self.calls.iter().map(of_call).sum();
        json::weight(&self.members) + json::weight(&self.message) + calls
    }

    /// The completion, if all of it came.
    pub(super) fn finish(mut self, is_clean: bool) -> Option<Vec<u8>> {
        if !self.has_choice || self.finish_reason.is_none() || !(self.is_done || is_clean) {
            return None;
        }
        if !self.calls.is_empty() {
            self.calls.sort_by_key(|call| call.index);
            let calls = self.calls.into_iter().map(|call| {
                let mut members = call.members;
                members.entry("type").or_insert_with(|| "function".into());
                let function = serde_json::json!({"name": call.name, "arguments": call.arguments});
                members.insert("function".to_owned(), function);
                Value::Object(members)
            });
            let calls = calls.collect();
            self.message.insert("tool_calls".to_owned(), calls);
        }
        self.message
            .entry("role")
            .or_insert_with(|| "assistant".into());
        self.message.entry("content").or_insert(Value::Null);
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        for (key, value) in &self.members {
            object.put(key, value);
        }
        object.objects("choices", [()], |choice, ()| {
            choice
                .put("index", &0)
                .put("message", &self.message)
                .put("finish_reason", &self.finish_reason);
        });
        if let Some(usage) = &self.usage {
            json::push(object.nest("usage"), usage);
        }
        object.end();
        Some(out)
    }
}

/// Adds an unknown member. A text that comes in pieces is joined; some servers send the same one
/// with each chunk. Objects are merged.
fn add_member(members: &mut Map<String, Value>, key: String, value: Value) {
    match (members.get_mut(&key), value) {
        (Some(Value::String(known)), Value::String(text)) if !is_name(&key) => {
            if *known != text {
                known.push_str(&text);
            }
        }
        (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
        (_, value) => {
            members.insert(key, value);
        }
    }
}

/// True for members whose value is never in pieces.
fn is_name(key: &str) -> bool {
    matches!(key, "role" | "name" | "id" | "type")
}

fn is_text(key: &str) -> bool {
    matches!(key, "content" | "refusal") || REASONING.contains(&key)
}
