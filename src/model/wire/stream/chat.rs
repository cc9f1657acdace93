//! Chunks of a chat completion.

use super::{Heard, Listener, append};
use crate::record::event::REASONING;
use crate::text::json::{self, Object};
use serde_json::{Map, Value};

/// What has come of a completion.
#[derive(Default)]
pub(super) struct Chunks {
    /// The members beside choices and usage, as the first chunk had them.
    members: Map<String, Value>,
    message: Map<String, Value>,
    calls: Vec<StreamedCall>,
    finish_reason: Option<Value>,
    usage: Option<Value>,
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
    /// Adds an event. Returns the error that it reports.
    pub(super) fn add(&mut self, data: &[u8], listener: &mut Listener<'_>) -> Option<Vec<u8>> {
        if data.trim_ascii() == b"[DONE]" {
            self.is_done = true;
            return None;
        }
        let Ok(Value::Object(chunk)) = serde_json::from_slice(data) else {
            return None;
        };
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Some(data.to_vec());
        }
        if !chunk.contains_key("choices") && !chunk.contains_key("usage") {
            // Something else that the server has to say.
            return None;
        }
        for (key, value) in chunk {
            match (key.as_str(), value) {
                ("choices", Value::Array(choices)) => {
                    let first = |choice: &Value| choice["index"].as_u64().unwrap_or(0) == 0;
                    for choice in choices.into_iter().filter(first) {
                        self.choice(choice, listener);
                    }
                }
                ("usage", usage) if usage.is_object() => self.usage = Some(usage),
                ("usage" | "choices", _) => {}
                ("object", _) => {
                    self.members.insert(key, "chat.completion".into());
                }
                (_, value) => {
                    self.members.entry(key).or_insert(value);
                }
            }
        }
        None
    }

    fn choice(&mut self, choice: Value, listener: &mut Listener<'_>) {
        self.has_choice = true;
        let Value::Object(mut choice) = choice else {
            return;
        };
        if let Some(reason) = choice.remove("finish_reason").filter(Value::is_string) {
            self.finish_reason = Some(reason);
        }
        // Some servers send the last one whole.
        let delta = choice.remove("delta").or_else(|| choice.remove("message"));
        let Some(Value::Object(delta)) = delta else {
            return;
        };
        for (key, value) in delta {
            match value {
                Value::Null => {}
                Value::Array(calls) if key == "tool_calls" => {
                    for call in calls {
                        self.call(call, listener);
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
                    append(&mut self.message, &key, &text);
                }
                Value::Array(parts) => self.extend(key, parts),
                value => add_member(&mut self.message, key, value),
            }
        }
    }

    /// Adds parts to a list: those of one index and type are one part.
    fn extend(&mut self, key: String, parts: Vec<Value>) {
        let list = self
            .message
            .entry(key)
            .or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(list) = list else { return };
        for part in parts {
            let same = |other: &&mut Value| {
                part["index"].is_u64()
                    && ["index", "type"].iter().all(|key| other[key] == part[key])
            };
            match (list.iter_mut().rfind(same), part) {
                (Some(Value::Object(whole)), Value::Object(part)) => {
                    for (key, value) in part {
                        match value.as_str() {
                            Some(text) if matches!(key.as_str(), "text" | "summary" | "data") => {
                                append(whole, &key, text);
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
    }

    fn call(&mut self, delta: Value, listener: &mut Listener<'_>) {
        let Value::Object(mut delta) = delta else {
            return;
        };
        let index = delta.remove("index").as_ref().and_then(Value::as_u64);
        let id = delta.get("id").and_then(Value::as_str).unwrap_or_default();
        let at = self.calls.iter().rposition(|call| {
            let known = call.members.get("id").and_then(Value::as_str);
            // Some servers number all of them 0.
            let is_other =
                !id.is_empty() && known.is_some_and(|known| !known.is_empty() && known != id);
            !is_other && (index.is_none() || call.index == index)
        });
        let at = at.unwrap_or_else(|| {
            self.calls.push(StreamedCall {
                index,
                ..StreamedCall::default()
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if let Some(Value::Object(function)) = delta.remove("function") {
            if let Some(name) = function.get("name").and_then(Value::as_str)
                && call.name.is_empty()
                && !name.is_empty()
            {
                name.clone_into(&mut call.name);
                listener(Heard::Call(name));
            }
            match function.get("arguments") {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => call.arguments.push_str(text),
                Some(other) => call.arguments.push_str(&other.to_string()),
            }
        }
        for (key, value) in delta {
            let says_nothing = value.is_null() || value.as_str() == Some("");
            if !says_nothing {
                add_member(&mut call.members, key, value);
            }
        }
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

/// Adds a member that is nobody's here. A text that comes in pieces is joined; some servers send the same one
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
