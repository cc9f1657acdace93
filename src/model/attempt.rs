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
    /// Another attempt may succeed.
    Again {
        /// Why it did not work.
        why: String,
        /// The wait that the server asked for.
        after: Option<Duration>,
        /// The time was over.
        timed_out: bool,
        /// The server says that asking again is of no use now.
        is_last: bool,
        /// The request was sent, and may have been answered and counted.
        may_count: bool,
        /// The server's status, if there was one.
        http_status: Option<u16>,
    },
    /// Another attempt would fail, too.
    Refused {
        /// Why, in the server's own words.
        why: String,
        /// The conversation is longer than the model takes.
        too_long: Option<TooLong>,
        /// How the request could be changed so that it is taken.
        remedy: Option<Remedy>,
        /// The server's status, if there was one.
        http_status: Option<u16>,
    },
    /// The account has nothing more to spend.
    Quota {
        /// Why, in the server's own words.
        why: String,
        /// When the server says that it has again.
        after: Option<Duration>,
        http_status: u16,
    },
    /// The service does not know the answer that it had begun.
    Lost,
    /// A signal asks the engine to end.
    Stopped {
        stop: Stop,
        /// The request was sent, and may have been answered and counted.
        may_count: bool,
    },
}

/// A way out of a refusal: the same request, a little different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    WithoutReasoning,
    WithoutInclude,
    WithoutStreamOptions,
    WithoutStream,
    /// With the limit that the service names.
    MaxTokens(u64),
}
