//! The outcome of asking a model, over all attempts, and how long is waited for one.

use super::attempt::Remedy;
use super::response::Answer;
use super::too_long::TooLong;
use crate::record::spending::Denial;
use crate::text::timestamp::Timestamp;
use crate::unix::signals::Stop;
use std::time::{Duration, Instant};

/// The longest wait that a server may ask for. A longer one ends this start of the engine.
pub(super) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The limits of repeated attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Attempts after the first.
    pub max_retries: u32,
    /// Nothing is waited for beyond this.
    pub deadline: Option<Instant>,
}

impl Patience {
    /// The time until the deadline.
    pub(super) fn left(self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// True if the deadline comes within a wait.
    pub(super) fn ends_within(self, wait: Duration) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() + wait >= deadline)
    }
}

/// The outcome of asking, over all attempts.
#[derive(Debug)]
pub(crate) enum Asked {
    /// An answer.
    Answered(Box<Answer>),
    /// The model cannot be reached now; perhaps at a time that its server named.
    Unavailable(String, Option<Timestamp>),
    /// The account has nothing more to spend; perhaps at a time that the server named.
    Quota(String, Option<Timestamp>),
    /// The model's server said no; perhaps it would not to a request that is a little different.
    Refused(String, Option<Remedy>),
    /// The conversation is longer than the model takes.
    TooLong(String, TooLong),
    /// The service refuses the request because of its attachments, in these words.
    AttachmentsRefused(String),
    /// The service is still making the answer, and the time for this start is over.
    Open(String),
    /// The deadline lies before the next attempt.
    OutOfTime,
    /// A signal asks the engine to end.
    Stopped(Stop),
    /// The attempt must not be made.
    Denied(Denial),
}

impl Asked {
    /// The model cannot be asked for so long.
    pub(super) fn to_wait(why: &str, until: Timestamp) -> Self {
        Self::Unavailable(
            format!("{why}; the server asks to wait until {until}"),
            Some(until),
        )
    }
}
