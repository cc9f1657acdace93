//! Events of a response of Responses. The last one holds the whole.

use super::{Heard, Listener};
use crate::text::json::{Members, Object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What has come of a response.
#[derive(Default)]
pub(super) struct Items {
    /// Items that are done, by their places.
    done: Vec<(u64, Box<RawValue>)>,
    response: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ResponsesEvent<'e> {
    #[serde(borrow, default)]
    r#type: Cow<'e, str>,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(borrow, default)]
    item: Option<&'e RawValue>,
    #[serde(default)]
    output_index: u64,
    #[serde(borrow, default)]
    response: Option<&'e RawValue>,
    #[serde(borrow, default)]
    error: Option<&'e RawValue>,
}

impl Items {
    /// Adds an event. Returns the error that it reports.
    pub(super) fn add(&mut self, data: &[u8], listener: &mut Listener<'_>) -> Option<Vec<u8>> {
        let event: ResponsesEvent<'_> = serde_json::from_slice(data).ok()?;
        let delta = event.delta.as_ref().and_then(Value::as_str);
        match &*event.r#type {
            "response.output_text.delta" | "response.refusal.delta" => {
                listener(Heard::Text(delta.unwrap_or_default()));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                listener(Heard::Reasoning(delta.unwrap_or_default()));
            }
            "response.output_item.added" => {
                let item = event
                    .item
                    .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
                let item = item.unwrap_or_default();
                if item["type"] == "function_call" {
                    listener(Heard::Call(item["name"].as_str().unwrap_or_default()));
                }
            }
            "response.output_item.done" => {
                let item = event.item.map(|item| (event.output_index, item.to_owned()));
                self.done.extend(item);
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.response = event.response.map(ToOwned::to_owned);
            }
            "error" => {
                let mut out = Vec::new();
                let mut object = Object::begin(&mut out);
                object.raw(
                    "error",
                    event.error.map_or(data, |error| error.get().as_bytes()),
                );
                object.end();
                return Some(out);
            }
            _ => {}
        }
        None
    }

    pub(super) fn is_whole(&self) -> bool {
        self.response.is_some()
    }

    /// The response, if it came. Servers that leave its items out have sent them before.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        let response = self.response?;
        let mut members: Members = serde_json::from_str(response.get()).ok()?;
        let has_items = members.get("output").is_some_and(|output| {
            let items: Option<Vec<&RawValue>> = serde_json::from_str(output).unwrap_or_default();
            items.is_some_and(|items| !items.is_empty())
        });
        if has_items || self.done.is_empty() {
            return Some(response.get().as_bytes().to_vec());
        }
        self.done.sort_by_key(|(place, _)| *place);
        members.0.retain(|(key, _)| key != "output");
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        for (key, value) in &members.0 {
            object.raw(key, value.get().as_bytes());
        }
        let items: Vec<&RawValue> = self.done.iter().map(|(_, item)| &**item).collect();
        object.put("output", &items);
        object.end();
        Some(out)
    }
}
