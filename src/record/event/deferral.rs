//! The events of calls that have begun something which ends without them. Times are RFC 3339.

use super::{Event, EventKind, Line, Text};
use crate::text::shorten::in_short;
use crate::text::timestamp::date_and_time;

events! {
    /// A call has begun something that ends without it.
    ActionDeferred, DeferralEvent {
        action_id: place,
        /// The name of what it has begun.
        handle: text,
        /// Time when it is looked at.
        due_at: text,
        /// Time when it is looked at for the last time.
        expires_at: text,
        /// The directory of the execution that has begun it, from the run's directory.
        execution_ref: place,
    }

    /// A call that ends later has been looked at, and has not ended.
    DeferredLook, LookEvent {
        action_id: place,
        /// 75 if it has not ended; anything else, or none: that is not known.
        exit_code: null_code,
        /// Time when it is looked at again.
        due_at: text,
        expires_at: text,
    }
}

impl ActionDeferred<'_> {
    pub(super) fn note(&self, line: &Line<'_>) -> String {
        let what = format!("ends later ({}); look at", in_short(&self.handle, 60));
        look(line, &what, &self.due_at)
    }
}

impl DeferredLook<'_> {
    pub(super) fn note(&self, line: &Line<'_>) -> String {
        let what = match self.exit_code {
            Some(75) => "has not ended; look again at".to_owned(),
            Some(code) => format!("unknown, exit code {code}; look again at"),
            None => "unknown; look again at".to_owned(),
        };
        look(line, &what, &self.due_at)
    }
}

fn look(line: &Line<'_>, what: &str, due_at: &Text<'_>) -> String {
    let due = date_and_time(due_at.get().unwrap_or("?"));
    let step = line
        .step()
        .map_or_else(String::new, |(task, node)| format!("{task} {node}: "));
    format!("{step}{what} {due}")
}
