//! An answer that its service has begun and not ended: it is polled until it has.
//!
//! Unaware of what it costs. Its id is on disk before the first look, so that another start can go on.

use super::record::InvocationRecord;
use super::{Asked, Invocation, Model, Patience};
use crate::config::api::Api;
use crate::error::Result;
use crate::model::attempt::{Attempt, readable};
use crate::model::http::{Http, HttpRequest, Received};
use crate::model::wire::error_status;
use crate::record::invocations::OpenAnswer;
use crate::text::digest::sha256;
use crate::text::json;
use crate::unix::files;
use crate::unix::signals::{Signals, Stop};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::{Duration, Instant};

/// The wait before the first look, and the longest that it doubles to.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// What has come of an attempt.
pub(super) enum Followed {
    /// Its answer has ended, or it has none.
    Ended(Attempt),
    /// Its answer has not ended, for this reason.
    Open(Asked),
}

/// The id of a response, empty if it has none, and whether it has ended. None for what is no response.
fn standing(body: &[u8]) -> Option<(String, bool)> {
    #[derive(Deserialize)]
    struct PolledResponse<'b> {
        #[serde(borrow, default)]
        status: Option<&'b RawValue>,
        #[serde(borrow, default)]
        id: Option<&'b RawValue>,
    }
    let readable = readable(body).ok()?;
    let head: PolledResponse<'_> = serde_json::from_str(&readable).ok()?;
    let [status, id] = [head.status, head.id].map(json::small);
    let has_ended = !matches!(status.as_str()?, "queued" | "in_progress");
    Some((id.as_str().unwrap_or_default().to_owned(), has_ended))
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
        let open = record.open.as_ref();
        let id = open.map_or("", |open| &open.response_id);
        let ended = match is_usable(id) {
            true => until_ended(http, id, patience.deadline, signals),
            false => Ok(Received::nothing(Attempt::Lost)),
        };
        let mut received = match ended {
            Ok(received) => received,
            Err(asked) => return Ok(Followed::Open(asked)),
        };
        if let Some(came_back) = received.response {
            files::replace(&invocation.dir.join("response.json"), &came_back)?;
            if let Attempt::Body { body, .. } = &mut received.attempt {
                *body = came_back;
            }
        }
        Ok(Followed::Ended(received.attempt))
    }
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
) -> std::result::Result<Received, Asked> {
    let over = Instant::now() + http.total_timeout;
    let until = deadline.map_or(over, |deadline| deadline.min(over));
    let [mut wait, longest] = WAITS;
    let mut asked_for = Duration::ZERO;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let slept = signals.sleep(wait.max(asked_for).min(left));
        slept.map_err(|stop| stopped(stop, id))?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && until < over {
            return Err(Asked::Open(still_made(id)));
        }
        if left.is_zero() {
            let limit = http.total_timeout.as_millis();
            let why = format!(
                "the answer {id} has not ended within {limit} ms; the next start looks for it again"
            );
            return Err(Asked::Open(why));
        }
        let mut received = http.attempt(HttpRequest::Look(id), Some(left), &mut |_| {});
        let body = received.response.as_deref().unwrap_or_default();
        match &received.attempt {
            // Not ended, or not the words of the service, but perhaps of something in between.
            Attempt::Body { .. } if standing(body).is_none_or(|(_, has_ended)| !has_ended) => {
                asked_for = Duration::ZERO;
            }
            Attempt::Stopped { stop, .. } => return Err(stopped(*stop, id)),
            Attempt::Refused {
                http_status: Some(404 | 410),
                ..
            } => {
                received.attempt = Attempt::Lost;
                return Ok(received);
            }
            // The look has failed, and not the answer.
            Attempt::Refused { why, .. } if error_status(Api::Responses, body).is_none() => {
                return Err(Asked::Refused(why.clone(), None));
            }
            Attempt::Again {
                after, may_count, ..
            } if received.response.is_none() || !may_count => asked_for = after.unwrap_or_default(),
            _ => return Ok(received),
        }
        wait = (2 * wait).min(longest);
    }
}
