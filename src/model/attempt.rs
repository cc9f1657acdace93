//! One attempt to reach the model: its outcome, and the server's own words.

use crate::model::too_long::TooLong;
use crate::text::json;
use crate::unix::signals::Stop;
use std::borrow::Cow;
use std::time::Duration;

/// The largest response that is read whole, and the largest event of a stream. The engine holds a message several times: one
/// of 3 MiB takes at most 64 MB of memory beyond its size, one of this size some hundred.
pub(super) const LARGEST_MESSAGE: usize = 16 << 20;

/// The most values of one message. Each takes up to 200 bytes once it is parsed.
pub(super) const MOST_VALUES: usize = 1 << 17;

/// Checks that a message is not too large to be read.
///
/// # Errors
/// It is.
pub(super) fn check_size(message: &str) -> Result<(), String> {
    if message.len() <= LARGEST_MESSAGE && json::count_values(message) <= MOST_VALUES {
        return Ok(());
    }
    let size = LARGEST_MESSAGE >> 20;
    Err(format!(
        "the answer has more than {size} MiB or {MOST_VALUES} values"
    ))
}

/// A response as text.
///
/// # Errors
/// It is too large for an answer with bytes that are not UTF-8, each of which becomes three.
pub(super) fn readable(body: &[u8]) -> Result<Cow<'_, str>, String> {
    if body.len() > LARGEST_MESSAGE && std::str::from_utf8(body).is_err() {
        return Err("a large answer that is not UTF-8".to_owned());
    }
    Ok(json::readable(body))
}

/// The outcome of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Something came back that may be an answer.
    Body {
        body: Vec<u8>,
        /// The server's status, if there was one.
        http_status: Option<u16>,
    },
    Failed(Failure),
    /// The service does not know the answer that it had begun.
    Lost,
    /// A signal asks the engine to end.
    Stopped {
        stop: Stop,
        /// The request was sent, and may have been answered and counted.
        may_count: bool,
    },
}

/// The reason why there is no answer.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    /// In the server's own words.
    pub why: String,
    pub kind: FailureKind,
    /// The wait that the server asked for; for a quota, until there is more to spend.
    pub after: Option<Duration>,
    /// The time was over.
    pub timed_out: bool,
    /// The request was sent, and may have been answered and counted.
    pub may_count: bool,
    /// The conversation is longer than the model takes.
    pub too_long: Option<TooLong>,
    /// A change of the request with which it may be taken.
    pub remedy: Option<Remedy>,
    /// The server's status, if there was one.
    pub http_status: Option<u16>,
    /// The response in place of an answer.
    pub body: Option<Vec<u8>>,
}

/// The meaning of a failure for other attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// One may succeed.
    #[default]
    Passing,
    /// The server says that asking again is of no use now.
    NotNow,
    /// All would fail, too.
    Refusal,
    /// The account has nothing more to spend.
    Quota,
}

impl FailureKind {
    pub(super) fn is_passing(self) -> bool {
        matches!(self, Self::Passing | Self::NotNow)
    }
}

impl Failure {
    pub(super) fn refusal(why: String) -> Self {
        Self {
            why,
            kind: FailureKind::Refusal,
            ..Self::default()
        }
    }
}

impl Attempt {
    /// The response.
    pub(super) fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Body { body, .. } => Some(body),
            Self::Failed(failure) => failure.body.as_deref(),
            Self::Lost | Self::Stopped { .. } => None,
        }
    }

    /// True if it may have cost something.
    pub(super) fn may_count(&self) -> bool {
        match self {
            Self::Body { .. } | Self::Lost => true,
            Self::Failed(Failure { may_count, .. }) | Self::Stopped { may_count, .. } => *may_count,
        }
    }
}

/// A way out of a refusal: the same request, a little different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    WithoutReasoning,
    WithoutInclude,
    WithoutStreamOptions,
    WithoutStream,
    /// A limit that the service names.
    MaxTokens(u64),
}
