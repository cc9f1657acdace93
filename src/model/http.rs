//! Chat completions over HTTP, with connections that stay open and waits that signals can end.
//!
//! Unaware of retries. The library speaks HTTP and TLS; only the socket underneath is ours, because
//! a blocking read would keep SIGINT waiting, and because only the socket knows whether a kept
//! connection had gone stale.

mod socket;
mod resolver;

pub(crate) use resolver::{RESOLVE_COMMAND, resolve_host};

use super::attempt::{Attempt, error_codes, their_words};
use crate::VERSION;
use crate::config::environment::{Endpoint, is_loopback};
use crate::model::response::Answer;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs::Signals;
use resolver::Lookup;
use socket::{SendWatch, Socket, Wire};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};

/// An answer larger than this is none.
const LARGEST_ANSWER: u64 = 64 << 20;

/// Codes of an error 429 that waiting does not end: the account has no more to spend.
const QUOTA_CODES: [&str; 2] = ["insufficient_quota", "billing_hard_limit_reached"];

/// Codes of an error 400 for a conversation that is longer than the model takes; the second is llama.cpp's.
const TOO_LONG_CODES: [&str; 2] = ["context_length_exceeded", "exceed_context_size_error"];

/// A server that speaks chat completions.
pub(crate) struct Http {
    agent: Agent,
    url: String,
    endpoint: Endpoint,
    /// The limit of one attempt.
    timeout: Duration,
    wire: Arc<Wire>,
}

/// The parts of a response's head that decide what follows.
struct ResponseHead {
    status: u16,
    /// The wait that the server asks for.
    after: Option<Duration>,
    /// The server's own word on whether another attempt is of use.
    should_retry: Option<bool>,
    location: Option<String>,
}

impl ResponseHead {
    fn read<B>(response: &ureq::http::Response<B>) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.trim().to_owned())
        };
        let in_ms = header("retry-after-ms").and_then(|text| text.parse::<f64>().ok());
        Self {
            status: response.status().as_u16(),
            after: in_ms
                .and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
                .or_else(|| retry_after(&header("retry-after")?, Timestamp::now())),
            should_retry: header("x-should-retry").and_then(|word| word.parse().ok()),
            location: header("location"),
        }
    }
}

impl Http {
    /// A client for one endpoint. `timeout` is that of one attempt, all included.
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration, signals: &Arc<Signals>) -> Self {
        let wire = Arc::new(Wire {
            signals: Arc::clone(signals),
            opened: AtomicUsize::new(0),
            heard: AtomicBool::new(false),
            sent: AtomicBool::new(false),
        });
        let proxy = if is_loopback(&endpoint.base_url) {
            None
        } else {
            ureq::Proxy::try_from_env()
        };
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(format!("delta/{VERSION}"))
            .accept("application/json")
            .proxy(proxy)
            .build();
        let connector =
            ().chain(ConnectProxyConnector::default())
                .chain(Socket(Arc::clone(&wire)))
                .chain(RustlsConnector::default())
                .chain(SendWatch(Arc::clone(&wire)));
        let agent = Agent::with_parts(config, connector, Lookup(Arc::clone(&wire)));
        Self {
            agent,
            url: format!("{}/chat/completions", endpoint.base_url),
            endpoint,
            timeout,
            wire,
        }
    }

    /// Sends a request once. Returns what came back, too, whatever it is.
    pub(super) fn attempt(
        &mut self,
        request: &[u8],
        left: Option<Duration>,
    ) -> (Attempt, Option<Vec<u8>>) {
        let mut reopened = false;
        loop {
            self.wire.sent.store(false, Ordering::Relaxed);
            let opened = self.wire.opened.load(Ordering::Relaxed);
            self.wire.heard.store(false, Ordering::Relaxed);
            let result = self.send(request, left);
            if let Some(stop) = self.wire.signals.stop()
                && result.is_err()
            {
                let may_count = self.wire.sent.load(Ordering::Relaxed);
                return (Attempt::Stopped { stop, may_count }, None);
            }
            match result {
                Ok(response) => return response,
                Err(error) => {
                    let kept_connection = opened == self.wire.opened.load(Ordering::Relaxed);
                    let silent = !self.wire.heard.load(Ordering::Relaxed);
                    let timed_out = matches!(error, ureq::Error::Timeout(_));
                    if opened > 0 && kept_connection && silent && !timed_out && !reopened {
                        // The server had closed the connection meanwhile: no attempt was made at all.
                        reopened = true;
                        continue;
                    }
                    return (self.failed(&error, timed_out), None);
                }
            }
        }
    }

    /// Takes the key out of a text whose parts each held a piece of it.
    pub(super) fn redact_joined(&self, answer: &mut Answer) {
        if let Some(key) = &self.endpoint.key {
            key.redact(&mut answer.content_json);
            key.redact_text(&mut answer.text);
        }
    }

    fn send(
        &self,
        request: &[u8],
        left: Option<Duration>,
    ) -> Result<(Attempt, Option<Vec<u8>>), ureq::Error> {
        let mut builder = self.agent.post(&self.url).content_type("application/json");
        if let Some(key) = &self.endpoint.key {
            builder = builder.header("Authorization", format!("Bearer {}", key.expose()));
        }
        let timeout = left.map_or(self.timeout, |left| left.min(self.timeout));
        // The library takes no time at all for no limit.
        let timeout = timeout.max(Duration::from_millis(1));
        let response = builder
            .config()
            .timeout_global(Some(timeout))
            .build()
            .send(request)?;
        let head = ResponseHead::read(&response);
        let mut body = Vec::new();
        let mut reader = response.into_body().into_reader().take(LARGEST_ANSWER + 1);
        // The library wraps its own errors; unwrap the one that says that the time is over.
        reader.read_to_end(&mut body).map_err(ureq::Error::from)?;
        if body.len() as u64 > LARGEST_ANSWER {
            body.truncate(1024);
            let why = "an answer of more than 64 MiB";
            let mut attempt = self.again(head.status, why, None);
            if let Attempt::Again { may_count, .. } = &mut attempt {
                *may_count = head.status < 300;
            }
            return Ok((attempt, Some(body)));
        }
        if let Some(key) = &self.endpoint.key {
            key.redact(&mut body);
        }
        Ok((self.judge_status(&head, &body), Some(body)))
    }

    /// The outcome that a response's status means.
    fn judge_status(&self, head: &ResponseHead, body: &[u8]) -> Attempt {
        let status = head.status;
        let said = their_words(body);
        let codes = error_codes(body);
        let has_code = |known: &[&str]| codes.iter().any(|code| known.contains(&code.as_str()));
        let is_passing = matches!(status, 408 | 409 | 425 | 429 | 500..=599);
        match status {
            200..=299 => Attempt::Body {
                body: Vec::new(),
                http_status: Some(status),
            },
            300..=399 => {
                let to = head.location.as_deref().unwrap_or("elsewhere");
                let why = format!(
                    "redirects to {to}, which is not followed with a key; correct the base URL"
                );
                self.refused(status, &why)
            }
            429 if has_code(&QUOTA_CODES) => self.refused(status, &said),
            _ if head.should_retry.unwrap_or(is_passing) => self.again(status, &said, head.after),
            _ if is_passing => Attempt::Again {
                why: self.status_line(status, &said),
                after: head.after,
                timed_out: false,
                is_last: true,
                may_count: false,
                http_status: Some(status),
            },
            401 | 403 if self.endpoint.key_source.is_some() => {
                let source = self.endpoint.key_source.as_deref().unwrap_or_default();
                self.refused(status, &format!("{said}; the key is from {source}"))
            }
            404 => {
                let way_out =
                    "choose another model with --set llm.model=NAME, or correct the base URL";
                self.refused(status, &format!("{said}; {way_out}"))
            }
            400 | 413 if status == 413 || has_code(&TOO_LONG_CODES) => Attempt::Refused {
                why: self.status_line(status, &said),
                is_too_long: true,
                http_status: Some(status),
            },
            _ => self.refused(status, &said),
        }
    }

    fn again(&self, status: u16, said: &str, after: Option<Duration>) -> Attempt {
        Attempt::Again {
            why: self.status_line(status, said),
            after,
            timed_out: false,
            is_last: false,
            may_count: false,
            http_status: Some(status),
        }
    }

    fn refused(&self, status: u16, said: &str) -> Attempt {
        Attempt::Refused {
            why: self.status_line(status, said),
            is_too_long: false,
            http_status: Some(status),
        }
    }

    fn status_line(&self, status: u16, said: &str) -> String {
        let url = &self.endpoint.base_url;
        match said {
            "" => format!("{url} says {status}"),
            said => format!("{url} says {status}: {said}"),
        }
    }

    fn failed(&self, error: &ureq::Error, timed_out: bool) -> Attempt {
        let url = &self.endpoint.base_url;
        let why = match error {
            ureq::Error::Timeout(_) => format!("{url} gave no answer in time"),
            ureq::Error::Io(e) => format!("{url}: {}", crate::error::reason(e)),
            other => format!("{url}: {other}"),
        };
        Attempt::Again {
            why,
            after: None,
            timed_out,
            is_last: false,
            may_count: self.wire.sent.load(Ordering::Relaxed),
            http_status: None,
        }
    }
}

/// `Retry-After`: seconds, or a date as RFC 9110 section 5.6.7 prefers it.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let rest = text.split_once(", ")?.1.strip_suffix(" GMT")?;
    let mut parts = rest.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let at = Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z"))?;
    Some(at.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::parse("2015-10-21T07:27:00Z").unwrap();
        assert_eq!(retry_after("7", now), Some(Duration::from_secs(7)));
        let date = retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now);
        assert_eq!(date, Some(Duration::from_secs(60)));
        assert_eq!(
            retry_after("Wed, 21 Oct 2015 07:26:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon", now), None);
        assert_eq!(retry_after("-1", now), None);
    }
}
