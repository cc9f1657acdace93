//! Events of a response of Responses. The last one holds the whole.

use super::{Broken, Heard, Listener};
use crate::model::attempt::check_size;
use crate::text::json::{self, Fields};
use crate::text::order;
use serde_json::value::RawValue;

/// The received part of a response.
#[derive(Default)]
pub(super) struct Items {
    /// Items that are done, by their places.
    done: Vec<(u64, Box<RawValue>)>,
    response: Option<Box<RawValue>>,
}

/// A member that is an object, if it is there.
fn object(member: Option<&RawValue>) -> Result<Option<&RawValue>, Broken> {
    if member.is_none_or(|raw| raw.get().starts_with('{')) {
        return Ok(member);
    }
    Err(Broken::Unreadable("expected an object".to_owned()))
}

impl Items {
    /// Adds an event.
    pub(super) fn add(
        &mut self,
        name: &[u8],
        data: &str,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        let event: Fields<'_> = serde_json::from_str(data)?;
        let kind: Option<String> = event.read("type")?;
        match &*kind.unwrap_or_else(|| String::from_utf8_lossy(name).into_owned()) {
            "response.output_text.delta" | "response.refusal.delta" => {
                listener(Heard::Text(&event.read::<String>("delta")?));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                listener(Heard::Reasoning(&event.read::<String>("delta")?));
            }
            "response.output_item.added" => {
                let item = json::small(object(event.raw("item"))?);
                if item["type"] == "function_call" {
                    listener(Heard::Call(item["name"].as_str().unwrap_or("")));
                }
            }
            "response.output_item.done" => {
                let item = object(event.raw("item"))?;
                let place = event.read("output_index")?;
                self.done.extend(item.map(|item| (place, item.to_owned())));
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.response = object(event.raw("response"))?.map(ToOwned::to_owned);
            }
            "error" => {
                let error = event.raw("error").map_or(data, RawValue::get);
                let body = format!("{{\"error\":{error}}}");
                return Err(Broken::Error(json::unmarked(body.into_bytes())));
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
        let response = self.response?;
        let members: Fields<'_> = serde_json::from_str(response.get()).ok()?;
        let is_empty = members
            .raw("output")
            .map_or("[]", RawValue::get)
            .trim_matches(['[', ']', ' ', '\n'])
            .is_empty();
        if !is_empty || self.done.is_empty() || check_size(response.get()).is_err() {
            return Some(response.get().as_bytes().to_vec());
        }
        order::sort_by_key(&mut self.done, |(place, _)| *place);
        let mut out = members.only(|key| key != "output");
        out.pop();
        out.extend_from_slice(if out.len() > 1 {
            b",\"output\":"
        } else {
            b"\"output\":"
        });
        let items: Vec<&RawValue> = self.done.iter().map(|(_, item)| &**item).collect();
        json::push(&mut out, &items);
        out.push(b'}');
        Some(out)
    }
}
