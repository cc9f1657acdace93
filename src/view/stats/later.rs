//! The time for which a run waited for calls that end later.

use crate::record::event::{Line, Recorded};
use crate::text::timestamp::Timestamp;

/// The calls that are waited for, from one event to the next.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    open: Vec<String>,
    /// Time when the first of them began to be waited for.
    since: Option<Timestamp>,
}

/// What an event adds, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    /// While an engine waited.
    pub in_start: u64,
    /// From the deferral to the result, whether an engine ran or not.
    pub in_all: u64,
}

impl Waiting {
    /// Takes note of an event, and of the time of the one before it in the same start.
    pub(super) fn add(&mut self, line: &Line<'_>, before: Option<Timestamp>) -> Waited {
        let id = &*line.action_id;
        let at = line.time();
        let gap = || Some(at?.since(before?).as_millis() as u64);
        let place = self.open.iter().position(|open| open == id);
        let mut waited = Waited::default();
        match (&line.event, place) {
            // What a flow's node has begun is not a call.
            _ if line.node_id.is_some() => {}
            (Recorded::ActionDeferred(_), None) => {
                self.open.push(id.to_owned());
                self.since = self.since.or(at);
            }
            (Recorded::DeferredLook(_), Some(_)) => waited.in_start = gap().unwrap_or(0),
            (Recorded::ActionResult(result), Some(place)) => {
                self.open.swap_remove(place);
                let look = result.duration_ms.unwrap_or(0);
                waited.in_start = gap().unwrap_or(0).saturating_sub(look);
            }
            (Recorded::EngineEnd(_), _) if !self.open.is_empty() => {
                waited.in_start = gap().unwrap_or(0);
            }
            _ => {}
        }
        if self.open.is_empty() {
            waited.in_all = self.end(at);
        }
        waited
    }

    /// The time that has been waited until now.
    pub(super) fn end(&mut self, now: Option<Timestamp>) -> u64 {
        let since = self.since.take().zip(now);
        since.map_or(0, |(since, now)| now.since(since).as_millis() as u64)
    }
}
