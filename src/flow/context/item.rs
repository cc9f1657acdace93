//! A memory item, as a line of a store.
//!
//! Unaware of files.

use crate::flow::graph::Payload;
use crate::flow::manifest::StoreName;
use crate::flow::record::attempt::one_value;
use crate::text::json::{self, Object};
use crate::text::timestamp::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An item of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryItem {
    /// Unique in its store.
    pub id: String,
    /// Time of its making.
    pub timestamp: Timestamp,
    pub tags: Vec<String>,
    pub content: Payload,
    /// The task that it came from, if it came from one.
    pub task_id: Option<String>,
    /// The node.
    pub node_id: Option<String>,
}

/// An item and its store.
pub(crate) type Kept = (StoreName, MemoryItem);

/// A line as it is read. Unknown fields are ignored.
#[derive(Deserialize)]
struct ItemLine<'l> {
    id: String,
    timestamp: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(borrow)]
    content: &'l RawValue,
    task_id: Option<String>,
    node_id: Option<String>,
}

impl MemoryItem {
    /// Reads a line of a store.
    ///
    /// # Errors
    /// The fault of the line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(json::without_mark(line))
            .map_err(|_| "it is not UTF-8".to_owned())?;
        if text.trim_start().starts_with('[') {
            return Err("it is not an item, but a list".to_owned());
        }
        let line: ItemLine<'_> = serde_json::from_str(text)
            .map_err(|error| format!("it is not an item: {}", json::parser_message(&error)))?;
        let timestamp = Timestamp::parse(&line.timestamp)
            .ok_or_else(|| format!("it is not an item: {:?} is not a time", line.timestamp))?;
        Ok(Self {
            id: line.id,
            timestamp,
            tags: line.tags,
            content: one_value(line.content.get().to_owned())?,
            task_id: line.task_id,
            node_id: line.node_id,
        })
    }

    /// The id and the time, which differ from run to run.
    pub(crate) fn put_origin(&self, object: &mut Object<'_>) {
        object
            .put("id", &self.id)
            .put("timestamp", &self.timestamp.to_string());
    }

    /// The members that depend neither on the run nor on the time.
    pub(crate) fn put_rest(&self, object: &mut Object<'_>) {
        object
            .put("tags", &self.tags)
            .raw("content", self.content.as_bytes())
            .put("task_id", &self.task_id)
            .put("node_id", &self.node_id);
    }

    /// The content as a text: a string's own, or else the JSON.
    pub(crate) fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// The lines of items.
pub(crate) fn item_lines(items: &[MemoryItem]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        let mut object = Object::begin(&mut out);
        item.put_origin(&mut object);
        item.put_rest(&mut object);
        object.end();
        out.push(b'\n');
    }
    out
}

/// A JSON text as what a person would write: a string without its quotes.
pub(crate) fn text_of(json: &str) -> String {
    let is_string = json.starts_with('"');
    let text = is_string.then(|| serde_json::from_str(json).ok()).flatten();
    text.unwrap_or_else(|| json.to_owned())
}
