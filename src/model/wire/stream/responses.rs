//! Events of a response of Responses. The last one holds the whole.

use super::{Broken, Heard, Listener};
use crate::model::attempt::check_size;
use crate::text::json::{self, Members, Object};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The received part of a response.
#[derive(Default)]
pub(super) struct Items {
    /// Items that are done, by their places.
    done: Vec<(u64, Box<RawValue>)>,
    response: Option<Box<RawValue>>,
}

/// An event of any type.
#[derive(Deserialize)]
struct ResponsesEvent<'e> {
    #[serde(borrow, default)]
    r#type: Option<Cow<'e, str>>,
    #[serde(borrow, default)]
    delta: Option<&'e RawValue>,
    #[serde(borrow, default)]
    item: Option<&'e RawValue>,
    #[serde(borrow, default)]
    output_index: Option<&'e RawValue>,
    #[serde(borrow, default)]
    response: Option<&'e RawValue>,
    #[serde(borrow, default)]
    error: Option<&'e RawValue>,
}

/// Reads a member of an event of a known type.
fn read<'e, T: Deserialize<'e> + Default>(member: Option<&'e RawValue>) -> serde_json::Result<T> {
    member.map_or(Ok(T::default()), |raw| serde_json::from_str(raw.get()))
}

/// A member that is an object, if it is there.
fn object(member: Option<&RawValue>) -> Result<Option<&RawValue>, Broken> {
    match member.is_none_or(|raw| raw.get().starts_with('{')) {
        true => Ok(member),
        false => Err(Broken::Unreadable("expected an object".to_owned())),
    }
}

impl Items {
    /// Adds an event.
    pub(super) fn add(
        &mut self,
        name: &[u8],
        data: &str,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        let event: ResponsesEvent<'_> = serde_json::from_str(data)?;
        let kind = event
            .r#type
            .unwrap_or_else(|| String::from_utf8_lossy(name));
        match &*kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                listener(Heard::Text(&read::<String>(event.delta)?));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                listener(Heard::Reasoning(&read::<String>(event.delta)?));
            }
            "response.output_item.added" => {
                let item = json::small(object(event.item)?);
                if item["type"] == "function_call" {
                    listener(Heard::Call(item["name"].as_str().unwrap_or_default()));
                }
            }
            "response.output_item.done" => {
                let item = object(event.item)?;
                let place = read(event.output_index)?;
                self.done.extend(item.map(|item| (place, item.to_owned())));
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.response = object(event.response)?.map(ToOwned::to_owned);
            }
            "error" => {
                let mut out = Vec::new();
                let mut object = Object::begin(&mut out);
                let error = event.error.map_or(data, RawValue::get);
                object.raw("error", error.as_bytes());
                object.end();
                return Err(Broken::Error(json::unmarked(out)));
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn weight(&self) -> usize {
        self.done
            .iter()
            .map(|(_, item)| 100 + item.get().len())
            .sum()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.response.is_some()
    }

    /// The response, if it came. Servers that leave its items out have sent them before.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        #[derive(Deserialize)]
        struct WithOutput<'r> {
            #[serde(borrow, default)]
            output: Option<&'r RawValue>,
        }
        let response = self.response?;
        let whole: WithOutput<'_> = serde_json::from_str(response.get()).ok()?;
        let output = whole.output.map_or("[]", RawValue::get);
        let is_empty = output.trim_matches(['[', ']', ' ', '\n']).is_empty();
        if !is_empty || self.done.is_empty() || check_size(response.get()).is_err() {
            return Some(response.get().as_bytes().to_vec());
        }
        let mut members: Members = serde_json::from_str(response.get()).ok()?;
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
