//! The keys `wait` and `later` of a node: it runs nothing and waits for a time, or its command may begin something that
//! ends without it.
//!
//! Unaware of how a run waits.

use super::command::inward_names;
use crate::config::pricing::parse_deadline;
use crate::config::section::{Diagnostics, Section};
use crate::config::tool::definition::{LONGEST_WAIT, LaterRule};
use crate::config::tool::later::read_later;
use crate::text::timestamp::{Timestamp, parse_span};
use crate::text::yaml::Step;
use serde_json::Map;
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

/// Reads `later`, as a tool of an agent has it.
pub(super) fn read_later_rule(
    node: &Section,
    at: &[Step],
    out: &mut Diagnostics,
) -> Option<LaterRule> {
    let mut later = node.map.get("later")?.clone();
    inward_names(&mut later);
    let map = Map::from_iter([("later".to_owned(), later)]);
    read_later(&Section::new(&map, at.to_vec()), out)
}

/// Reads `wait: {for: 2h}` or `{at: TIME}`.
pub(super) fn read_wait(node: &Section, out: &mut Diagnostics) -> Option<WaitTime> {
    if !node.map.contains_key("wait") {
        return None;
    }
    let section = node.read_section("wait", out)?;
    section.refuse_unknown_keys(&["for", "at"], out);
    let has = |key: &str| section.map.contains_key(key);
    let key = match (has("for"), has("at")) {
        (true, false) => "for",
        (false, true) => "at",
        _ => {
            let message = "wait: needs for: a time such as 90m, 2h or 3d, or at: a time such as 2026-01-02T03:04:05Z";
            out.error(node.path_to("wait"), message);
            return None;
        }
    };
    let number = section.map.get(key).filter(|value| value.is_number());
    let number = number.map(ToString::to_string);
    let text = match &number {
        Some(number) => number,
        None => section.read_text(key, out)?,
    };
    let longest = Duration::from_secs(LONGEST_WAIT);
    let read = match key {
        "for" => parse_span(text)
            .filter(|time| *time <= longest)
            .map(WaitTime::For)
            .ok_or_else(|| format!("'{text}' is not a time such as 90m, 2h or 3d")),
        // A time from now would be another one at each start.
        _ if text.starts_with('+') => Err(format!("'{text}' is a time from now; write for:")),
        _ => parse_deadline(text, Timestamp::now()).map(WaitTime::At),
    };
    read.map_err(|why| out.error(section.path_to(key), format!("wait: {key}: {why}")))
        .ok()
}
