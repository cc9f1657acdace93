//! The calls of tools that a model asks for, in a form that every service takes back.
//!
//! Unaware of which tools there are.

use super::attempt::MOST_VALUES;
use crate::text::ids::hex;
use crate::text::json;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// A call that the model asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewCall {
    /// The server's id; empty if it gave none.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// A JSON object in a text; `{}` if the model gave none.
    pub arguments: String,
    /// The raw arguments, if they are no JSON object.
    pub invalid: Option<String>,
    /// Unknown members of the call, names and JSON: some servers require them back.
    pub extra: Vec<(String, String)>,
}

impl NewCall {
    /// A call as a model asked for it, with its arguments as text.
    pub(super) fn understand(id: String, name: &str, text: String) -> Self {
        // JSON in a text is JSON, too.
        let text = json::readable(text.as_bytes()).into_owned();
        let is_large = json::count_values(&text) > MOST_VALUES;
        let is_object = !is_large && serde_json::from_str::<Map<String, Value>>(&text).is_ok();
        let none = || "{}".to_owned();
        let (arguments, fault) = if is_large {
            (
                none(),
                Some(format!("arguments with more than {MOST_VALUES} values")),
            )
        } else if text.trim().is_empty() {
            (none(), None)
        } else if is_object {
            (text, None)
        } else {
            (none(), Some(text))
        };
        let of_name = || format!("a call of {name:?}, which is not a name of a tool");
        Self {
            // Longer than any service's, it is as good as none.
            id: Some(id)
                .filter(|id| id.len() <= json::LONGEST_EXCERPT)
                .unwrap_or_default(),
            name: usable_name(name).into_owned(),
            arguments,
            invalid: fault.or_else(|| (!is_name(name)).then(of_name)),
            extra: Vec::new(),
        }
    }
}

/// True if servers accept the name for a function.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}

/// The name, or another in place of one that servers would refuse in a history. No tool has that.
pub(super) fn usable_name(name: &str) -> Cow<'_, str> {
    if is_name(name) {
        return name.into();
    }
    let usable = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    format!("unknown_{}", usable.take(50).collect::<String>()).into()
}

/// The calls as they are sent back to the model: a JSON array.
pub(crate) fn calls_json(calls: &[NewCall]) -> Vec<u8> {
    json::list(calls.iter().map(|call| {
        json::object(|object| {
            object.put("id", &call.id).put("type", "function");
            object.object("function", |function| {
                function
                    .put("name", &call.name)
                    .put("arguments", &call.arguments);
            });
            for (name, value) in &call.extra {
                object.raw(name, value.as_bytes());
            }
        })
    }))
}

/// Removes calls that repeat another with its id, name and arguments.
pub(super) fn drop_repeated(calls: &mut Vec<NewCall>) {
    let mut seen = HashSet::new();
    calls.retain(|call| {
        let NewCall {
            id,
            name,
            arguments,
            invalid,
            ..
        } = call.clone();
        id.is_empty() || seen.insert((id, name, arguments, invalid))
    });
}

/// Gives every call an id that no other call has: `taken` knows those of earlier messages.
pub(crate) fn make_ids_unique(calls: &mut [NewCall], taken: impl Fn(&str) -> bool) {
    let mut used: HashSet<String> = HashSet::new();
    let mut copies: HashMap<String, u32> = HashMap::new();
    for call in calls {
        let is_free = |id: &str| !id.is_empty() && !taken(id) && !used.contains(id);
        if !is_free(&call.id) {
            let stem = std::mem::take(&mut call.id);
            call.id = if stem.is_empty() {
                std::iter::repeat_with(|| format!("call_{}", hex(8)))
                    .find(|id| is_free(id))
                    .unwrap_or_default()
            } else {
                // Counting goes on where the copy before stopped, so that many copies cost no more each.
                let count = copies.entry(stem.clone()).or_insert(1);
                loop {
                    *count += 1;
                    let id = format!("{stem}_{count}");
                    if is_free(&id) {
                        break id;
                    }
                }
            };
        }
        used.insert(call.id.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_repeats_another_is_dropped() {
        let call = |id: &str, arguments: &str| NewCall {
            id: id.to_owned(),
            name: "t".to_owned(),
            arguments: arguments.to_owned(),
            ..NewCall::default()
        };
        let (a, b) = (call("a", "{}"), call("b", "{}"));
        let (other, without) = (call("a", "{\"n\":1}"), call("", "{}"));
        let kept = [&a, &other, &b, &without, &without].map(Clone::clone);
        let mut calls = vec![a.clone(), a.clone(), other, b, without.clone(), without, a];
        drop_repeated(&mut calls);
        assert_eq!(calls, kept);
    }

    #[test]
    fn ids_become_unique() {
        let call = |id: &str| NewCall {
            id: id.to_owned(),
            ..NewCall::default()
        };
        let mut calls = [call("a"), call("a"), call(""), call("old")];
        make_ids_unique(&mut calls, |id| id == "old");
        assert_eq!(calls[0].id, "a");
        assert_eq!(calls[1].id, "a_2");
        assert!(calls[2].id.starts_with("call_"));
        assert_eq!(calls[3].id, "old_2");
    }
}
