//! JSON Schemas of an agent's files, for editors.
//!
//! The schema of agent.yaml is made from the rows of its keys; its file has what a row cannot say.

use crate::config::agent::AGENT;
use crate::config::keys::{Key, Kind};
use crate::config::pricing::PRICING;
use crate::config::tool::definition::TOOL;
use crate::config::tool::parameters::PARAMETER;
use crate::text::json;
use serde_json::{Map, Value, json};

/// A schema.
#[derive(Debug)]
pub(crate) struct Schema {
    /// The file that it is of, without `.yaml`.
    pub name: &'static str,
    text: &'static str,
}

/// All of them.
pub(crate) const ALL: [&Schema; 3] = [
    &Schema {
        name: "agent",
        text: include_str!("schemas/agent.json"),
    },
    &Schema {
        name: "context",
        text: include_str!("schemas/context.json"),
    },
    &Schema {
        name: "hooks",
        text: include_str!("schemas/hooks.json"),
    },
];

pub(crate) const SCHEMA_NAMES: [&str; 3] = [ALL[0].name, ALL[1].name, ALL[2].name];

impl Schema {
    pub(crate) fn text(&self) -> String {
        if self.name != ALL[0].name {
            return self.text.to_owned();
        }
        let mut schema: Map<String, Value> = json::read_or_default(self.text);
        add_keys(&mut schema, AGENT);
        for (name, keys) in [
            ("pricing", PRICING),
            ("tool", TOOL),
            ("parameter", PARAMETER),
        ] {
            let part = schema.get_mut("$defs").and_then(|defs| defs.get_mut(name));
            if let Some(Value::Object(part)) = part {
                add_keys(part, keys);
            }
        }
        format!("{:#}\n", Value::Object(schema))
    }
}

/// Completes the schema of a mapping with these keys. Other keys are refused, unless it allows them.
fn add_keys(schema: &mut Map<String, Value>, keys: &[Key]) {
    // Taken and not removed: it keeps its place.
    let mut given = match schema.get_mut("properties").map(Value::take) {
        Some(Value::Object(given)) => given,
        _ => Map::new(),
    };
    let mut properties = Map::new();
    for key in keys {
        let value = key_schema(key, given.shift_remove(key.name));
        properties.insert(key.name.to_owned(), value);
    }
    properties.extend(given);
    let required: Vec<_> = keys
        .iter()
        .filter(|key| key.is_required)
        .map(|key| key.name)
        .collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema.insert("type".to_owned(), "object".into());
    schema.entry("additionalProperties").or_insert(false.into());
    schema.insert("properties".to_owned(), properties.into());
}

/// The schema of a key's value; `given` is what its row cannot say.
fn key_schema(key: &Key, given: Option<Value>) -> Value {
    let described = match key.kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Label => json!({"type": ["string", "number"]}),
        Kind::Count(least, default) => {
            json!({"type": "integer", "minimum": least, "default": default})
        }
        Kind::Amount => json!({"type": "number", "minimum": 0}),
        Kind::Flag(default) => json!({"type": "boolean", "default": default}),
        Kind::FlagOr(word, is_default) => {
            json!({"enum": [true, false, word], "default": is_default.then_some(word)})
        }
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Kind::Words(words, default) => json!({"enum": words, "default": default}),
        Kind::Keys(_) | Kind::Own => json!({}),
    };
    let mut schema = Map::from_iter([("description".to_owned(), key.help.into())]);
    for part in [Some(described), given] {
        if let Some(Value::Object(part)) = part {
            schema.extend(part.into_iter().filter(|(_, value)| !value.is_null()));
        }
    }
    if let Kind::Keys(keys) = key.kind {
        add_keys(&mut schema, keys);
    }
    schema.into()
}
