//! The calls of a streamed completion, put together from pieces that servers number and name in many ways.
//!
//! Pieces that contradict each other break the stream: no call runs with arguments of another.

use super::super::{Broken, Heard, Listener, take};
use super::add_member;
use crate::text::json;
use crate::text::order;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The received calls.
#[derive(Default)]
pub(super) struct StreamedCalls {
    list: Vec<StreamedCall>,
    /// The newest call of each index.
    newest: HashMap<u64, usize>,
    /// The call of each id, of those of later pieces, too.
    ids: HashMap<String, usize>,
}

#[derive(Default)]
struct StreamedCall {
    index: Option<u64>,
    members: Map<String, Value>,
    name: String,
    arguments: String,
    /// The arguments as far as they have come once more.
    repeated: String,
}

impl StreamedCalls {
    /// Adds a piece of a call.
    pub(super) fn add(
        &mut self,
        mut piece: Map<String, Value>,
        listener: &mut Listener<'_>,
    ) -> Result<(), Broken> {
        let index: Option<u64> = take(&mut piece, "index")?;
        let id = match piece.get("id") {
            Some(id) if !id.is_number() => serde_json::from_value(id.clone())?,
            _ => None,
        };
        let id: String = id.unwrap_or_default();
        let mut function: Map<String, Value> = take(&mut piece, "function")?.unwrap_or_default();
        let name: String = take(&mut function, "name")?.unwrap_or_default();
        let arguments = match take(&mut function, "arguments")? {
            Some(whole @ Value::Object(_)) => whole.to_string(),
            Some(text) => serde_json::from_value(text)?,
            None => String::new(),
        };
        let known = self.ids.get(&id).copied();
        let open = match index {
            Some(index) => self.newest.get(&index).copied(),
            None => self.list.len().checked_sub(1),
        };
        let continued = open.filter(|at| self.list[*at].goes_on(&id, &name, &arguments));
        let at = known.or(continued).unwrap_or_else(|| {
            self.list.push(StreamedCall {
                index,
                ..StreamedCall::default()
            });
            self.list.len() - 1
        });
        if let Some(index) = index {
            self.newest.insert(index, at);
        }
        let call = &mut self.list[at];
        if !id.is_empty() {
            self.ids.insert(id, at);
        }
        if call.members.contains_key("id") {
            // The first one counts.
            piece.remove("id");
        }
        if call.name.is_empty() && !name.is_empty() {
            listener(Heard::Call(&name));
            call.name = name;
        } else if !name.is_empty() && name != call.name {
            return Err(Broken::Unreadable(format!(
                "one call has the names {} and {name}",
                call.name
            )));
        }
        call.add_arguments(&arguments)?;
        for (key, value) in piece {
            let says_nothing = value.is_null() || value.as_str() == Some("");
            if !says_nothing {
                add_member(&mut call.members, key, value);
            }
        }
        Ok(())
    }

    pub(super) fn weight(&self) -> usize {
        let of_call = |call: &StreamedCall| {
            let texts = call.name.len() + call.arguments.len() + call.repeated.len();
            500 + json::weight(&call.members) + texts
        };
        self.list.iter().map(of_call).sum()
    }

    /// The calls in the order of their indices; none if there are none.
    ///
    /// # Errors
    /// A piece belongs to no call that has a name.
    pub(super) fn finish(mut self) -> Result<Option<Value>, Broken> {
        self.list
            .retain(|call| !call.name.is_empty() || !call.arguments.is_empty());
        if self.list.iter().any(|call| call.name.is_empty()) {
            return Err(Broken::Unreadable("a call has no name".to_owned()));
        }
        if self.list.iter().any(|call| !call.repeated.is_empty()) {
            return Err(contradiction());
        }
        order::sort_by_key(&mut self.list, |call| call.index);
        let calls: Vec<Value> = self
            .list
            .into_iter()
            .map(|call| {
                let mut members = call.members;
                members.entry("type").or_insert_with(|| "function".into());
                let function = serde_json::json!({"name": call.name, "arguments": call.arguments});
                members.insert("function".to_owned(), function);
                Value::Object(members)
            })
            .collect();
        Ok((!calls.is_empty()).then(|| calls.into()))
    }
}

impl StreamedCall {
    /// True if a piece at the index of this open call belongs to it. Some servers number all calls 0, so a name begins
    /// another one, unless it only repeats this one's.
    fn goes_on(&self, id: &str, name: &str, arguments: &str) -> bool {
        if name.is_empty() || self.name.is_empty() {
            return true;
        }
        let begins = arguments.trim_start().starts_with('{');
        let is_in_the_middle = !arguments.is_empty() && !begins;
        let repeats = id.is_empty() && !(begins && self.is_whole());
        self.name == name && (self.arguments.is_empty() || is_in_the_middle || repeats)
    }

    /// True if the arguments are an object with members.
    fn is_whole(&self) -> bool {
        let text = self.arguments.trim_end();
        text.ends_with('}') && !self.is_empty() && serde_json::from_str::<IgnoredAny>(text).is_ok()
    }

    fn is_empty(&self) -> bool {
        let mut characters = self.arguments.chars().filter(|c| !c.is_whitespace());
        characters.next() == Some('{')
            && characters.next() == Some('}')
            && characters.next().is_none()
    }

    /// Adds a piece of the arguments. An empty object before others is dropped, arguments that come again are the same.
    fn add_arguments(&mut self, piece: &str) -> Result<(), Broken> {
        if self.repeated.is_empty() && piece.trim_start().starts_with('{') {
            if self.is_empty() {
                self.arguments.clear();
            } else if self.is_whole() {
                self.repeated += piece.trim_start();
            }
        } else if !self.repeated.is_empty() {
            self.repeated += piece;
        }
        if self.repeated.is_empty() {
            self.arguments += piece;
            return Ok(());
        }
        let (known, again) = (self.arguments.trim(), self.repeated.trim_end());
        if !known.starts_with(again) {
            return Err(contradiction());
        }
        if known == again {
            self.repeated.clear();
        }
        Ok(())
    }
}

fn contradiction() -> Broken {
    Broken::Unreadable("one call has two different arguments".to_owned())
}

#[cfg(test)]
mod tests;
