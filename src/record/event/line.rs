//! A line of the journal as it is read, written by this engine or any other program.

use super::{EventKind, Raw, Recorded, Reference, Text};
use crate::text::json::Key;
use crate::text::timestamp::Timestamp;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// A line as it was read.
#[derive(Debug, Default)]
pub(crate) struct Line<'a> {
    /// All of it, without its newline.
    pub text: &'a str,
    pub kind: EventKind<'a>,
    /// True if `record::legacy` has lifted the line from another form.
    pub is_old: bool,
    pub event: Recorded<'a>,
    pub place: Place<'a>,
}

members! {
    /// The place of an event: when it was recorded, and what it is about.
    Place {
        seq: Option<u64>,
        timestamp: Text<'a>,
        iteration: Option<u64>,
        /// The call.
        action_id: Text<'a>,
        /// Of a flow: the task and the node, and the edge that led there if there are several.
        task_id: Text<'a>,
        node_id: Text<'a>,
        edge: Text<'a>,
        /// The directory of what was run.
        execution_ref: Reference<'a>,
        /// Of an old line: its other members.
        payload: Raw<'a>,
    }
}

impl<'a> std::ops::Deref for Line<'a> {
    type Target = Place<'a>;

    fn deref(&self) -> &Place<'a> {
        &self.place
    }
}

impl<'a> Line<'a> {
    /// A line of this type without members.
    pub(crate) fn of_kind(kind: EventKind<'a>) -> Self {
        Self {
            event: Recorded::of(&kind),
            kind,
            ..Self::default()
        }
    }

    /// Reads a line. It is boxed because it is too large to be moved.
    ///
    /// # Errors
    /// The parser's, with the column: not JSON, not an object, or a member of the wrong type.
    pub(crate) fn parse(text: &'a str) -> Result<Box<Self>, serde_json::Error> {
        if let Some(kind) = quick_kind(text.as_bytes()) {
            return Self::parse_as(text, kind);
        }
        let line = Self::parse_as(text, EventKind::default())?;
        match line.kind {
            EventKind::Unknown(_) => Ok(line),
            kind => Self::parse_as(text, kind),
        }
    }

    /// Reads a line of a type that is known.
    pub(crate) fn parse_as(
        text: &'a str,
        kind: EventKind<'a>,
    ) -> Result<Box<Self>, serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_str(text);
        let mut line = parser.deserialize_map(LineVisitor(kind))?;
        line.text = text;
        parser.end().map(|()| line)
    }

    /// Time when it was written, if it says so.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        Timestamp::parse(&self.timestamp)
    }

    /// The task and the node of a flow's event.
    pub(crate) fn step(&self) -> Option<(String, String)> {
        self.task_id.owned().zip(self.node_id.owned())
    }
}

/// Reads the members of a line of this type into place.
struct LineVisitor<'a>(EventKind<'a>);

impl<'de> Visitor<'de> for LineVisitor<'de> {
    type Value = Box<Line<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event (an object)")
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut line = Box::<Line<'de>>::default();
        line.event = Recorded::of(&self.0);
        while let Some(name) = map.next_key::<Key<'de>>()? {
            let read = match &*name {
                "type" if line.kind.name().is_empty() => {
                    map.next_value().map(|kind| line.kind = kind)
                }
                "type" => Err(M::Error::duplicate_field("type")),
                name => line.read_member(name, &mut map),
            };
            read.map_err(|error| in_member(&name, error))?;
        }
        Ok(line)
    }
}

impl<'a> Line<'a> {
    fn read_member<M: MapAccess<'a>>(&mut self, name: &str, from: &mut M) -> Result<(), M::Error> {
        let is_read = self.place.read_member(name, from)? || self.event.read_member(name, from)?;
        if !is_read {
            from.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// An error about a value that does not fit, with the member that it is of.
fn in_member<E: Error>(name: &str, error: E) -> E {
    let text = error.to_string();
    if !text.starts_with("invalid ") {
        return error;
    }
    let is_inside = matches!(name, "usage" | "forked_from") && !text.contains("expected struct");
    let of = if is_inside { "a member of " } else { "" };
    E::custom(format!("{of}{name}: {text}"))
}

/// The type of a line as this engine writes it, without parsing the line; `None` if it is written
/// differently, or is of a type that this engine does not know.
pub(crate) fn quick_kind(line: &[u8]) -> Option<EventKind<'static>> {
    let rest = line.strip_prefix(br#"{"seq":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // `,"timestamp":"` and a timestamp of 24 characters.
    let rest = rest[digits..].strip_prefix(br#","timestamp":""#)?;
    let rest = rest.get(24..)?.strip_prefix(br#"","type":""#)?;
    let end = memchr::memchr(b'"', rest)?;
    EventKind::known(std::str::from_utf8(&rest[..end]).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_known_however_its_name_is_written_and_stands_once() {
        let text =
            r#"{"\u0073eq":7,"typ\u0065":"NODE_END","other":{"seq":1},"output":null,"edge":null}"#;
        let line = Line::parse(text).unwrap();
        assert_eq!((line.seq, line.kind.name()), (Some(7), "NODE_END"));
        let Recorded::NodeEnd(end) = &line.event else {
            panic!("{line:?}");
        };
        assert!(end.output.is_some() && !line.edge.is_some());
        for (text, message) in [
            (r#"{"seq":1,"seq":2}"#, "duplicate field `seq`"),
            (r#"{"type":"A","type":"B"}"#, "duplicate field `type`"),
            (
                "[7]",
                "invalid type: sequence, expected an event (an object)",
            ),
            (r#"{"seq":1} {}"#, "trailing characters"),
            (
                r#"{"action_id":1}"#,
                "action_id: invalid type: integer `1`, expected a string",
            ),
        ] {
            let error = Line::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
