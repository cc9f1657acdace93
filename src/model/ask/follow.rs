//! An answer that its service has begun and not ended: it is polled until it has.
//!
//! Unaware of what it costs. Its id is on disk before the first look, so that another start can go on.

use super::record::InvocationRecord;
use super::{Asked, Invocation, Model, Patience};
use crate::config::api::Api;
use crate::error::Result;
use crate::model::attempt::{Attempt, Failure, FailureKind, readable};
use crate::model::http::{Http, HttpRequest};
use crate::model::wire::error_status;
use crate::record::invocations::OpenAnswer;
use crate::text::digest::sha256;
use crate::text::json::Fields;
use crate::unix::files;
use crate::unix::signals::{Signals, Stop};
use std::time::{Duration, Instant};

/// The wait before the first look, and the longest that it doubles to.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The outcome of an attempt.
pub(super) enum Followed {
    /// An attempt whose answer has ended, or that has none.
    Ended(Attempt),
    /// An answer that has not ended, for this reason.
    Open(Asked),
}

/// The id of a response, empty if it has none, and whether it has ended. None for what is no response.
fn standing(body: &[u8]) -> Option<(String, bool)> {
    let readable = readable(body).ok()?;
    let head: Fields<'_> = serde_json::from_str(&readable).ok()?;
    let has_ended = !matches!(&*head.word("status")?, "queued" | "in_progress");
    Some((head.word("id").unwrap_or_default(), has_ended))
}

/// True for an id that can be a part of a URL as it is.
fn is_usable(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=256).contains(&id.len()) && id.chars().all(is_plain)
}

impl Model<'_> {
    /// Waits until the answer to an attempt has ended; if nothing was sent, to the one that the record says is open.
    pub(super) fn follow(
        &mut self,
        sent: Option<Attempt>,
        invocation: &Invocation<'_>,
        record: &mut InvocationRecord,
        patience: Patience,
        signals: &Signals,
    ) -> Result<Followed> {
        let (Self::Http(http), Api::Responses) = (self, invocation.wire.api()) else {
            record.open = None;
            return Ok(Followed::Ended(sent.unwrap_or(Attempt::Lost)));
        };
        if let Some(attempt) = sent {
            let begun = match &attempt {
                Attempt::Body { body, .. } => standing(body),
                _ => None,
            };
            let Some((response_id, false)) = begun else {
                return Ok(Followed::Ended(attempt));
            };
            let conversation = sha256(invocation.conversation);
            record.open = Some(OpenAnswer {
                response_id,
                conversation,
            });
            record.write_open(invocation)?;
        }
        let id = record.open.as_ref().map_or("", |open| &open.response_id);
        if !is_usable(id) {
            return Ok(Followed::Ended(Attempt::Lost));
        }
        let attempt = match until_ended(http, id, patience.deadline, signals) {
            Ok(attempt) => attempt,
            Err(asked) => return Ok(Followed::Open(asked)),
        };
        if let Some(body) = attempt.body() {
            files::replace(&invocation.dir.join("response.json"), body)?;
        }
        Ok(Followed::Ended(match attempt {
            Attempt::Failed(failure) if is_unknown(&failure) => Attempt::Lost,
            ended => ended,
        }))
    }
}

/// True for a refusal of a service that does not know the answer.
fn is_unknown(failure: &Failure) -> bool {
    failure.kind == FailureKind::Refusal && matches!(failure.http_status, Some(404 | 410))
}

fn still_made(id: &str) -> String {
    format!("the answer {id} has not ended; the next start looks for it again")
}

/// The end of the looks for an answer: a deadline leaves it open.
fn stopped(stop: Stop, id: &str) -> Asked {
    match stop {
        Stop::Deadline => Asked::Open(still_made(id)),
        stop => Asked::Stopped(stop),
    }
}

/// Looks for an answer until it has ended.
fn until_ended(
    http: &mut Http,
    id: &str,
    deadline: Option<Instant>,
    signals: &Signals,
) -> std::result::Result<Attempt, Asked> {
    let over = Instant::now() + http.total_timeout;
    let until = deadline.map_or(over, |deadline| deadline.min(over));
    let [mut wait, longest] = WAITS;
    let mut asked_for = Duration::ZERO;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        signals
            .sleep(wait.max(asked_for).min(left))
            .map_err(|stop| stopped(stop, id))?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && until < over {
            return Err(Asked::Open(still_made(id)));
        }
        if left.is_zero() {
            let limit = http.total_timeout.as_millis();
            return Err(Asked::Open(format!(
                "the answer {id} has not ended within {limit} ms; the next start looks for it again"
            )));
        }
        let attempt = http
            .attempt(HttpRequest::Look(id), Some(left), &mut |_| {})
            .attempt;
        match &attempt {
            // Not ended, or not the words of the service, but perhaps of something in between.
            Attempt::Body { body, .. }
                if standing(body).is_none_or(|(_, has_ended)| !has_ended) =>
            {
                asked_for = Duration::ZERO;
            }
            Attempt::Stopped { stop, .. } => return Err(stopped(*stop, id)),
            Attempt::Failed(failure) if is_unknown(failure) => return Ok(attempt),
            Attempt::Failed(failure) => {
                let body = failure.body.as_deref();
                match failure.kind {
                    // The look has failed, and not the answer.
                    FailureKind::Refusal
                        if error_status(Api::Responses, body.unwrap_or(b"")).is_none() =>
                    {
                        return Err(Asked::Refused(failure.why.clone(), None));
                    }
                    kind if kind.is_passing() && (body.is_none() || !failure.may_count) => {
                        asked_for = failure.after.unwrap_or_default();
                    }
                    _ => return Ok(attempt),
                }
            }
            _ => return Ok(attempt),
        }
        wait = (2 * wait).min(longest);
    }
}
