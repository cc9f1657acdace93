//! Requests that lost what a provider had cached of the one before, and why.

use crate::record::event::{Line, Recorded};
use crate::record::invocations::began;
use serde::Serialize;

/// A cause of a [`Break`] that does not say what has changed.
pub(crate) const RESUMED: &str = "the run was resumed";

/// A request that did not begin like the one before it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Break {
    /// Which request of the run, from 1.
    pub request: usize,
    pub iteration: Option<u64>,
    /// How many leading bytes are those of the request before.
    pub shared_bytes: usize,
    /// How many bytes the request before had.
    pub previous_bytes: usize,
    /// The invocations of the request before and of this one.
    #[serde(skip)]
    pub invocations: [String; 2],
    /// An event between them that may be the reason.
    #[serde(skip)]
    pub cause: Option<&'static str>,
}

/// Takes note of an event that may change the beginning of the next request.
pub(super) fn note_cause(breaks: &mut [Break], line: &Line<'_>) {
    let cause = match &line.event {
        Recorded::EngineStart(_) => Some(RESUMED),
        _ => line.changed_requests(),
    };
    let Some(cause) = cause else {
        return;
    };
    let at = line.time();
    // Clocks may go back: the breaks need not be in the order of their times.
    let is_between = |broken: &&mut Break| {
        let [before, after] = &broken.invocations;
        began(before) < at && at <= began(after)
    };
    if let Some(broken) = breaks.iter_mut().find(is_between)
        && (cause != RESUMED || broken.cause.is_none())
    {
        broken.cause = Some(cause);
    }
}
