//! What a response or a failure means: an answer, another attempt, or none.

use super::proxied::{ProxyFailure, failure_reason};
use super::{Http, ResponseHead};
use crate::config::api::Api;
use crate::model::attempt::{Attempt, Remedy};
use crate::model::reasons::{error_codes, their_words};
use crate::model::too_long::TooLong;
use crate::text::json::LONGEST_EXCERPT;
use crate::unix::doors::Upstream;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How codes of an error 429 begin that waiting does not end: the account has no more to spend.
const QUOTA_CODES: [&str; 2] = ["insufficient_quota", "billing_"];

impl Http {
    /// The outcome of an error that came with status 200, or in a stream.
    pub(super) fn judge_error(&self, head: &ResponseHead, body: &[u8]) -> Attempt {
        match TooLong::of(body).filter(|_| head.status != 429) {
            Some(too_long) => self.too_long(head.status, &their_words(body), too_long),
            None => self.judge_status(head, body),
        }
    }

    fn too_long(&self, status: u16, said: &str, too_long: TooLong) -> Attempt {
        Attempt::Refused {
            why: self.status_line(status, said),
            too_long: Some(too_long),
            remedy: None,
            http_status: Some(status),
        }
    }

    /// The outcome that a response's status means.
    pub(super) fn judge_status(&self, head: &ResponseHead, body: &[u8]) -> Attempt {
        let status = head.status;
        if head.is_success() {
            return Attempt::Body {
                body: Vec::new(),
                http_status: Some(status),
            };
        }
        let said = their_words(body);
        let codes = error_codes(body);
        let has_code = |known: &[&str]| {
            let mut known = known.iter();
            known.any(|known| codes.iter().any(|code| code.starts_with(known)))
        };
        let too_long = match status {
            413 => Some(TooLong::read(body)),
            // Some local servers take it for a fault of their own.
            400 | 422 | 500 => TooLong::of(body),
            _ => TooLong::by_code(body),
        };
        let is_passing = matches!(status, 408 | 409 | 425 | 429 | 499 | 500..=599);
        match (status, too_long) {
            (429, _) if has_code(&QUOTA_CODES) => return self.quota(head, &said),
            (402, _) => return self.quota(head, &said),
            (_, Some(too_long)) => return self.too_long(status, &said, too_long),
            _ => {}
        }
        if let (403 | 407, Some(proxy)) = (status, self.plain_proxy()) {
            let whose = match status {
                407 => format!("that is {proxy}, which wants a login"),
                _ => format!("asked through {proxy}, which may be what refuses"),
            };
            return self.refused(status, format!("{said}; {whose}").trim_start_matches("; "));
        }
        match status {
            300..=399 => {
                let to = head.location.as_deref().unwrap_or("elsewhere");
                let to = &*self.redacted_url(to);
                let base_url = &self.endpoint.base_url;
                let has_other_scheme = to.starts_with("https:") && base_url.starts_with("http:");
                let way_out = match has_other_scheme {
                    true => "begin the base URL with https://",
                    false => "correct the base URL",
                };
                let why = format!("redirects to {to}, which is not followed with a key; {way_out}");
                self.refused(status, &why)
            }
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
                let way_out = "choose another model with -M NAME (delta models lists them), or correct the base URL";
                self.refused(status, &format!("{said}; {way_out}"))
            }
            400 | 422 => {
                let remedy =
                    Remedy::of(self.endpoint.api, &body[..body.len().min(LONGEST_EXCERPT)]);
                let explained = with_way_out(&said, self.endpoint.api);
                let guess = TooLong {
                    is_guess: true,
                    ..TooLong::default()
                };
                let is_known = remedy.is_some() || explained.is_some();
                Attempt::Refused {
                    why: self.status_line(status, &explained.unwrap_or(said)),
                    too_long: (!is_known).then_some(guess),
                    remedy,
                    http_status: Some(status),
                }
            }
            _ => self.refused(status, &said),
        }
    }

    /// The proxy that reads requests, and answers some itself.
    fn plain_proxy(&self) -> Option<&Upstream> {
        let proxy = self.endpoint.proxy.as_deref()?;
        (self.url.starts_with("http:") && !proxy.scheme.is_socks()).then_some(proxy)
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

    fn quota(&self, head: &ResponseHead, said: &str) -> Attempt {
        Attempt::Quota {
            why: self.status_line(head.status, said),
            after: head.after,
            http_status: head.status,
        }
    }

    fn redacted_url(&self, url: &str) -> String {
        let mut url = url.as_bytes().to_vec();
        self.redact(&mut url);
        String::from_utf8_lossy(&url).into_owned()
    }

    fn refused(&self, status: u16, said: &str) -> Attempt {
        Attempt::Refused {
            why: self.status_line(status, said),
            too_long: None,
            remedy: None,
            http_status: Some(status),
        }
    }

    /// An answer that is too large to be one.
    pub(super) fn too_large(&self, head: &ResponseHead, limit: &str) -> Attempt {
        let why = format!("an answer of more than {limit}");
        let attempt = self.again(head.status, &why, None);
        if head.is_success() {
            Self::counting(attempt)
        } else {
            attempt
        }
    }

    /// A stream with an event that is not of the API.
    pub(super) fn unreadable(&self, head: &ResponseHead, mut why: String) -> Attempt {
        for secret in &self.endpoint.secrets {
            secret.redact_text(&mut why);
        }
        let why = format!("an event of the stream cannot be read: {why}");
        Self::counting(self.again(head.status, &why, None))
    }

    /// A stream that ended before its answer did.
    pub(super) fn cut_off(&self, error: Option<ureq::Error>) -> Attempt {
        if let Some(stop) = self.link.signals.stop() {
            return Attempt::Stopped {
                stop,
                may_count: true,
            };
        }
        let url = self.endpoint.shown();
        let timed_out = matches!(error, Some(ureq::Error::Timeout(_)));
        let how = match error {
            Some(ureq::Error::Timeout(_)) => {
                "was not at its end in time, or fell silent".to_owned()
            }
            Some(ureq::Error::Io(e)) => format!("broke off: {}", crate::error::reason(&e)),
            Some(other) => format!("broke off: {other}"),
            None => "ended before the answer did".to_owned(),
        };
        Attempt::Again {
            why: format!("{url}: the stream {how}"),
            after: None,
            timed_out,
            is_last: false,
            may_count: true,
            http_status: Some(200),
        }
    }

    /// An outcome that may have cost something: the server had begun to answer.
    pub(super) fn counting(mut attempt: Attempt) -> Attempt {
        if let Attempt::Again { may_count, .. } = &mut attempt {
            *may_count = true;
        }
        attempt
    }

    fn status_line(&self, status: u16, said: &str) -> String {
        let url = self.endpoint.shown();
        match said {
            "" => format!("{url} says {status}"),
            said => format!("{url} says {status}: {said}"),
        }
    }

    pub(super) fn failed(&self, error: &ureq::Error, timed_out: bool) -> Attempt {
        let url = self.endpoint.shown();
        let why = match error {
            ureq::Error::Timeout(_) => format!("{url} gave no answer in time"),
            other => format!("{url}: {}", failure_reason(other)),
        };
        if let ureq::Error::Other(cause) = error
            && cause
                .downcast_ref()
                .is_some_and(|it: &ProxyFailure| it.is_final)
        {
            return Attempt::Refused {
                why,
                too_long: None,
                remedy: None,
                http_status: None,
            };
        }
        Attempt::Again {
            why,
            after: None,
            timed_out,
            is_last: false,
            may_count: self.link.sent.load(Ordering::Relaxed),
            http_status: None,
        }
    }
}

/// A server's words, with the way out that they allow, if there is one.
fn with_way_out(said: &str, api: Api) -> Option<String> {
    let lower = said.to_lowercase();
    let mut others = Api::ALL.into_iter().filter(|(_, other)| *other != api);
    let other = others.find(|(_, other)| lower.contains(&format!("v1{}", other.path())));
    if let Some((name, _)) = other {
        return Some(format!("{said}; set llm.api: {name}, or DELTA_API={name}"));
    }
    let mut words = lower.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let parameter = words.find(|word| matches!(*word, "temperature" | "top_p" | "top_k"));
    parameter.map(|name| format!("{said}; leave it out with --set llm.{name}="))
}
