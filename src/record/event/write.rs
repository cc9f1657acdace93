//! How an event becomes a line: the members that all lines have, then its own.

use super::{Event, EventKind, RawJson};
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

impl Event<'_> {
    /// Appends the event as a line, with its newline.
    pub(crate) fn write(&self, out: &mut Vec<u8>, seq: u64, at: Timestamp, iteration: u64) {
        write_line(out, (seq, at), &self.kind(), iteration, |line| {
            line.members(self);
        });
    }

    fn kind(&self) -> EventKind<'static> {
        match self {
            Self::EngineStart { .. } => EventKind::EngineStart,
            Self::UserMessage { .. } | Self::InboxMessage(_) => EventKind::UserMessage,
            Self::Thought(_) => EventKind::Thought,
            Self::ActionRequest { .. } => EventKind::ActionRequest,
            Self::ActionCheck { .. } => EventKind::ActionCheck,
            Self::ActionDeferred(_) => EventKind::ActionDeferred,
            Self::DeferredLook(_) => EventKind::DeferredLook,
            Self::ActionResult { .. } => EventKind::ActionResult,
            Self::Acceptance { .. } => EventKind::Acceptance,
            Self::HumanInputRequest { .. } => EventKind::HumanInputRequest,
            Self::HumanInputReceived { .. } => EventKind::HumanInputReceived,
            Self::Compaction(_) => EventKind::Compaction,
            Self::AttachmentsLeftOut { .. } => EventKind::AttachmentsLeftOut,
            Self::SystemMessage { .. } => EventKind::SystemMessage,
            Self::ModelChanged { .. } => EventKind::ModelChanged,
            Self::HookAudit { .. } => EventKind::HookAudit,
            Self::Error { .. } => EventKind::Error,
            Self::EngineEnd { .. } => EventKind::EngineEnd,
        }
    }
}

/// Appends a line of any type, with the fields that all lines have and those that are put into it.
pub(crate) fn write_line(
    out: &mut Vec<u8>,
    (seq, at): (u64, Timestamp),
    kind: &EventKind<'_>,
    iteration: u64,
    fields: impl FnOnce(&mut Object<'_>),
) {
    let mut line = Object::begin(out);
    line.put("seq", &seq)
        .put("timestamp", &at.to_string())
        .put("type", kind.name())
        .put("iteration", &iteration);
    fields(&mut line);
    line.end();
    out.push(b'\n');
}

/// A value that is JSON already. Bytes that are not are kept as a text, so that nothing is lost.
pub(super) fn raw<S: Serializer>(json: &[u8], to: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_slice::<&RawValue>(json) {
        Ok(value) => value.serialize(to),
        Err(_) => String::from_utf8_lossy(json).serialize(to),
    }
}

/// Members whose values are JSON already.
pub(super) fn raw_members<S: Serializer>(
    members: &[(&'static str, &[u8])],
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(members.len()))?;
    for (name, json) in members {
        map.serialize_entry(name, &RawJson(json))?;
    }
    map.end()
}

pub(super) fn texts<S: Serializer>(members: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(members.iter().map(|(name, text)| (name, text)))
}
