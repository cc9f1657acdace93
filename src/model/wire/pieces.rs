//! What the events of a stream come to when their texts are joined, for whoever looks for something in it.

use super::sse::Events;
use crate::text::json::without_lone_surrogates;
use serde_json::Value;
use std::collections::HashMap;

/// The texts of all events under one name, joined in each way in which a reader may: all of them, those of one
/// type of event, and those of one place in the answer.
pub(crate) fn joined_texts(stream: &[u8]) -> impl Iterator<Item = String> {
    let (mut events, mut texts) = (Events::default(), HashMap::new());
    events.push(stream, &mut |_, data| {
        let paired = without_lone_surrogates(data);
        let Ok(event) = serde_json::from_slice(paired.as_deref().unwrap_or(data)) else {
            return;
        };
        let kind = match &event {
            Value::Object(members) => members.get("type").and_then(Value::as_str),
            _ => None,
        };
        add(&event, "", kind.unwrap_or_default(), "", &mut texts);
    });
    texts.into_values()
}

type Texts = HashMap<(String, String), String>;

fn add(value: &Value, name: &str, kind: &str, place: &str, texts: &mut Texts) {
    match value {
        Value::String(text) => {
            for way in [
                "all".to_owned(),
                format!("of {kind}"),
                format!("at {place}"),
            ] {
                let joined = texts.entry((way, name.to_owned())).or_default();
                joined.push_str(text);
            }
        }
        Value::Array(list) => {
            for inner in list {
                add(inner, name, kind, place, texts);
            }
        }
        Value::Object(members) => {
            let mut place = place.to_owned();
            for (key, value) in members.iter().filter(|(key, _)| key.ends_with("index")) {
                place.push_str(&format!("{key} {value} "));
            }
            for (key, inner) in members {
                add(inner, key, kind, &place, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
