//! The keys `wait` and `later` of a node: it runs nothing and waits for a time, or its command may begin something that
//! ends without it.
//!
//! Unaware of how a run waits.

use super::command::{AGENT_DIR, FLOW_DIR, replace_texts};
use super::fields::FromKey;
use crate::config::keys::Key;
use crate::config::pricing::parse_deadline;
use crate::config::section::Section;
use crate::config::tool::definition::{LONGEST_WAIT, LaterRule};
use crate::config::tool::later::read_later;
use crate::text::timestamp::{Timestamp, parse_span};
use serde_json::{Map, Value};
use std::time::Duration;

/// The time for which a node waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitTime {
    /// From the beginning of the node.
    For(Duration),
    At(Timestamp),
}

impl WaitTime {
    /// The end of a wait that begins now.
    pub(crate) fn end(self, now: Timestamp) -> Timestamp {
        match self {
            Self::For(time) => now.plus(time),
            Self::At(time) => time,
        }
    }
}

/// The rule of a tool of an agent.
impl FromKey for Option<LaterRule> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let mut later = node.map.get(key.name)?.clone();
        replace_texts(&mut later, FLOW_DIR, AGENT_DIR);
        let map = Map::from_iter([("later".to_owned(), later)]);
        read_later(&node.inner(&map, node.path_to("")))
    }
}

/// `{for: 2h}` or `{at: TIME}`.
impl FromKey for Option<WaitTime> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let wait = node.read_section(key.name)?;
        wait.refuse_unknown_keys(&["for", "at"]);
        let key = match (wait.has("for"), wait.has("at")) {
            (true, false) => "for",
            (false, true) => "at",
            _ => {
                let message = "wait: needs for: a time such as 90m, 2h or 3d, or at: a time such as 2026-01-02T03:04:05Z";
                return wait.refuse("", message);
            }
        };
        let text = match wait.value(key) {
            Some(Value::Number(number)) => number.to_string(),
            _ => wait.read_text(key)?.to_owned(),
        };
        let longest = Duration::from_secs(LONGEST_WAIT);
        let read = match key {
            "for" => parse_span(&text)
                .filter(|time| *time <= longest)
                .map(WaitTime::For)
                .ok_or_else(|| format!("'{text}' is not a time such as 90m, 2h or 3d")),
            // A time from now would be another one at each start.
            _ if text.starts_with('+') => Err(format!("'{text}' is a time from now; write for:")),
            _ => parse_deadline(&text, Timestamp::now()).map(WaitTime::At),
        };
        read.map_err(|why| wait.error(key, format!("wait: {key}: {why}")))
            .ok()
    }
}
