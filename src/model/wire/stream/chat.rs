//! Chunks of a chat completion.

mod calls;

use super::{Broken, Heard, Listener, append, take};
use crate::record::event::REASONING;
use crate::text::json;
use calls::StreamedCalls;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// The received part of a completion.
#[derive(Default)]
pub(super) struct Chunks {
    /// The members beside choices and usage, as the first chunk had them.
    members: Map<String, Value>,
    message: Map<String, Value>,
    calls: StreamedCalls,
    finish_reason: Option<String>,
    usage: Option<Map<String, Value>>,
    has_choice: bool,
    /// The mark at the end has come.
    pub is_done: bool,
}

impl Chunks {
    /// Adds an event.
    pub(super) fn add(&mut self, data: &str, listener: &mut Listener<'_>) -> Result<(), Broken> {
        let mut chunk: Map<String, Value> = serde_json::from_str(data)?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Broken::Error(json::unmarked(data.into())));
        }
        if !["choices", "usage", "x_groq"]
            .iter()
            .any(|key| chunk.contains_key(*key))
        {
            // Something else that the server has to say.
            return Ok(());
        }
        let choices: Option<Vec<Map<String, Value>>> = take(&mut chunk, "choices")?;
        for mut choice in choices.into_iter().flatten() {
            if take::<u64>(&mut choice, "index")?.unwrap_or(0) == 0 {
                self.choice(choice, listener)?;
            }
        }
        self.usage = match take(&mut chunk, "usage")? {
            None => usage_of_groq(&mut chunk).or(self.usage.take()),
            usage => usage,
        };
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
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            let body = json::object(|object| {
                object.put("error", error);
            });
            return Err(Broken::Error(json::unmarked(body)));
        }
        self.finish_reason = take(&mut choice, "finish_reason")?.or(self.finish_reason.take());
        self.usage = take(&mut choice, "usage")?.or(self.usage.take());
        let delta: Option<Map<String, Value>> = match take(&mut choice, "delta")? {
            // Some servers send the last one whole.
            None => take(&mut choice, "message")?,
            delta => delta,
        };
        for (key, value) in delta.into_iter().flatten() {
            match value {
                Value::Null => {}
                calls if key == "tool_calls" => {
                    for call in serde_json::from_value::<Vec<_>>(calls)? {
                        self.calls.add(call, listener)?;
                    }
                }
                Value::String(text) if is_text(&key) => {
                    let is_reasoning = REASONING.contains(&key.as_str());
                    if !text.is_empty() {
                        listener(if is_reasoning {
                            Heard::Reasoning(&text)
                        } else {
                            Heard::Text(&text)
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
        let is_fragmented = matches!(key.as_str(), "thinking_blocks" | "reasoning_details");
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
        for (at, part) in parts.into_iter().enumerate() {
            let is_same = |other: &Value, key: &str| {
                let [known, new] = [other, &part].map(|it| &it[key]);
                known == new || key != "index" && (known.is_null() || new.is_null())
            };
            let same = |other: &&mut Value| {
                ["index", "type", "id"]
                    .into_iter()
                    .all(|it| is_same(other, it))
            };
            let known = if part["index"].is_u64() {
                list.iter_mut().rfind(same)
            } else {
                // Fragments of thinking go on until they are signed.
                list.last_mut().filter(|last| {
                    let is_open = matches!(last["signature"].as_str(), None | Some(""));
                    at == 0 && is_fragmented && is_open && same(last) && part.get("data").is_none()
                })
            };
            match (known, part) {
                (Some(Value::Object(whole)), Value::Object(part)) => {
                    for (key, value) in part {
                        match value.as_str() {
                            Some(text) if is_joined(&key) => append(whole, &key, text)?,
                            _ if value.is_null() => {}
                            Some("") if key == "signature" => {}
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

    pub(super) fn weight(&self) -> usize {
        json::weight(&self.members) + json::weight(&self.message) + self.calls.weight()
    }

    /// The completion, if all of it came.
    pub(super) fn finish(mut self, is_clean: bool) -> Result<Vec<u8>, Broken> {
        let is_unnamed = self.finish_reason.is_none();
        if !self.has_choice || !(self.is_done || is_clean && !is_unnamed) {
            return Err(Broken::Early);
        }
        let calls = std::mem::take(&mut self.calls).finish()?;
        if is_unnamed && !is_complete(calls.as_ref(), &self.message) {
            return Err(Broken::Early);
        }
        let usual = if calls.is_some() {
            "tool_calls"
        } else {
            "stop"
        };
        if let Some(calls) = calls {
            self.message.insert("tool_calls".to_owned(), calls);
        }
        self.message
            .entry("role")
            .or_insert_with(|| "assistant".into());
        self.message.entry("content").or_insert(Value::Null);
        Ok(json::object(|object| {
            for (key, value) in &self.members {
                object.put(key, value);
            }
            object.objects("choices", [()], |choice, ()| {
                let reason = self.finish_reason.as_deref().unwrap_or(usual);
                choice.put("index", &0).put("message", &self.message);
                choice.put("finish_reason", reason);
                if is_unnamed {
                    choice.put("no_finish_reason", &true);
                }
            });
            object.put_some("usage", self.usage.as_ref());
        }))
    }
}

/// True for calls that can be read or, if there are none, for a message with a text.
fn is_complete(calls: Option<&Value>, message: &Map<String, Value>) -> bool {
    let Some(calls) = calls.and_then(Value::as_array) else {
        return message.get("content").is_some_and(|text| text != "");
    };
    calls.iter().all(|call| {
        let arguments = json::member_text(&call["function"], "arguments");
        arguments.is_empty() || serde_json::from_str::<IgnoredAny>(arguments).is_ok()
    })
}

/// The usage as Groq's chunks have it.
fn usage_of_groq(chunk: &mut Map<String, Value>) -> Option<Map<String, Value>> {
    match chunk.get_mut("x_groq")?.get_mut("usage")?.take() {
        Value::Object(usage) => Some(usage),
        _ => None,
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

/// True for members of a part whose texts come in pieces.
fn is_joined(key: &str) -> bool {
    matches!(key, "text" | "summary" | "data" | "thinking")
}

fn is_text(key: &str) -> bool {
    matches!(key, "content" | "refusal") || REASONING.contains(&key)
}
