//! Joins the texts of a stream's events, for a search that a break between two events must not defeat.

use super::sse::Events;
use crate::model::attempt::{LARGEST_MESSAGE, MOST_VALUES};
use crate::text::json::{self, count_values};
use crate::text::shorten::tail;
use serde_json::Value;
use std::collections::HashMap;

/// A longer text is searched at once, and only its end is kept.
const LONGEST_TEXT: usize = 256 << 10;

/// Joined texts, by the way in which they are joined and their name.
struct JoinedTexts<'f> {
    texts: HashMap<(String, String), String>,
    size: usize,
    is_found: &'f mut dyn FnMut(&str) -> bool,
    has_found: bool,
}

/// True if it `is_found` in the texts of all events under one name, joined in each way in which a reader may: all of
/// them, those of one type of event, and those of one place in the answer; or if that would take too much memory.
pub(crate) fn is_in_joined_texts(stream: &[u8], is_found: &mut dyn FnMut(&str) -> bool) -> bool {
    let mut texts = JoinedTexts {
        texts: HashMap::new(),
        size: 0,
        is_found,
        has_found: false,
    };
    Events::default().push(stream, &mut |_, data| {
        texts.has_found |= data.len() > LARGEST_MESSAGE;
        if texts.has_found {
            return;
        }
        let data = json::readable(data);
        if count_values(&data) > MOST_VALUES {
            texts.has_found = true;
            return;
        }
        let event: Value = json::read_or_default(&*data);
        let kind = event["type"].as_str();
        texts.add(&event, "", kind.unwrap_or_default(), "");
    });
    texts.has_found || texts.texts.values().any(|text| (texts.is_found)(text))
}

impl JoinedTexts<'_> {
    fn add(&mut self, value: &Value, name: &str, kind: &str, place: &str) {
        self.has_found |= self.size > LARGEST_MESSAGE;
        match value {
            _ if self.has_found => {}
            Value::String(text) => {
                for way in [
                    "all".to_owned(),
                    format!("of {kind}"),
                    format!("at {place}"),
                ] {
                    self.join((way, name.to_owned()), text);
                }
            }
            Value::Array(list) => {
                for inner in list {
                    self.add(inner, name, kind, place);
                }
            }
            Value::Object(members) => {
                let mut place = place.to_owned();
                for (key, value) in members.iter().filter(|(key, _)| key.ends_with("index")) {
                    place += &format!("{key} {value} ");
                }
                for (key, inner) in members {
                    self.add(inner, key, kind, &place);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn join(&mut self, key: (String, String), text: &str) {
        let key_size = key.0.len() + key.1.len() + 200;
        let joined = self.texts.entry(key).or_insert_with(|| {
            self.size += key_size;
            String::new()
        });
        self.size += text.len();
        joined.push_str(text);
        if joined.len() > LONGEST_TEXT {
            self.has_found |= (self.is_found)(joined);
            let end = joined.len() - tail(joined, LONGEST_TEXT / 4).len();
            self.size -= end;
            joined.drain(..end);
            joined.shrink_to_fit();
        }
    }
}
