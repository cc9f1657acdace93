//! Verdicts on responses and failures: an answer, another attempt, or none.

use super::proxied::{ProxyFailure, failure_reason};
use super::{Http, ResponseHead};
use crate::config::api::Api;
use crate::model::attempt::{Attempt, Failure, FailureKind, Remedy, readable};
use crate::model::reasons::{error_codes, their_words};
use crate::model::too_long::TooLong;
use crate::model::wire::error_status;
use crate::text::json::LONGEST_EXCERPT;
use crate::unix::doors::Upstream;
use std::sync::atomic::Ordering;

/// Beginnings of the codes of an error 429 that waiting does not end: the account has no more to spend.
const QUOTA_CODES: [&str; 2] = ["insufficient_quota", "billing_"];

impl Http {
    /// The failure that a response is, if it is one; errors come with status 200, too.
    pub(super) fn judge_body(&self, head: &ResponseHead, body: &[u8]) -> Option<Failure> {
        if !head.is_success() {
            return Some(self.judge_status(head, body));
        }
        let status = error_status(self.endpoint.api, readable(body).ok()?.as_bytes())?;
        Some(self.judge_error(status, head, body))
    }

    /// The failure of an answer that the server had begun, which may have cost something.
    pub(super) fn judge_error(&self, status: u16, head: &ResponseHead, body: &[u8]) -> Failure {
        let head = ResponseHead {
            status,
            ..head.clone()
        };
        let mut failure = match TooLong::of(body).filter(|_| status != 429) {
            Some(too_long) => self.too_long(status, body, too_long),
            None => self.judge_status(&head, body),
        };
        failure.may_count = failure.kind.is_passing();
        failure
    }

    fn too_long(&self, status: u16, body: &[u8], too_long: TooLong) -> Failure {
        Failure {
            too_long: Some(too_long),
            ..self.failure(FailureKind::Refusal, status, &their_words(body))
        }
    }

    /// The failure that a response's status means.
    fn judge_status(&self, head: &ResponseHead, body: &[u8]) -> Failure {
        let status = head.status;
        let is_of_quota = |code: &String| QUOTA_CODES.iter().any(|known| code.starts_with(known));
        let is_quota = status == 402 || status == 429 && error_codes(body).iter().any(is_of_quota);
        let too_long = match status {
            413 => Some(TooLong::read(body)),
            // Some local servers take it for a fault of their own.
            400 | 422 | 500 => TooLong::of(body),
            _ => TooLong::by_code(body),
        };
        if let Some(too_long) = too_long.filter(|_| !is_quota) {
            return self.too_long(status, body, too_long);
        }
        let is_passing = matches!(status, 408 | 409 | 425 | 429 | 499 | 500..=599);
        let proxy = self.plain_proxy().filter(|_| matches!(status, 403 | 407));
        let kind = match head.should_retry {
            _ if is_quota => FailureKind::Quota,
            _ if proxy.is_some() || (300..400).contains(&status) => FailureKind::Refusal,
            Some(true) => FailureKind::Passing,
            None if is_passing => FailureKind::Passing,
            Some(false) if is_passing => FailureKind::NotNow,
            _ => FailureKind::Refusal,
        };
        let said = their_words(body);
        if kind != FailureKind::Refusal {
            return Failure {
                after: head.after,
                ..self.failure(kind, status, &said)
            };
        }
        if matches!(status, 400 | 422) {
            return self.judge_refusal(status, said, body);
        }
        let source = self.endpoint.key_source.as_deref();
        let why = match (status, proxy, source) {
            (407, Some(proxy), _) => format!("{said}; that is {proxy}, which wants a login"),
            (_, Some(proxy), _) => {
                format!("{said}; asked through {proxy}, which may be what refuses")
            }
            (300..=399, ..) => self.redirect(head),
            (401 | 403, None, Some(source)) => format!("{said}; the key is from {source}"),
            (404, ..) => format!(
                "{said}; choose another model with -M NAME (delta models lists them), or correct the base URL"
            ),
            _ => said,
        };
        let why = if proxy.is_some() {
            why.trim_start_matches("; ")
        } else {
            &why
        };
        self.failure(kind, status, why)
    }

    /// The refusal of a request, with what can be done about it.
    fn judge_refusal(&self, status: u16, said: String, body: &[u8]) -> Failure {
        let api = self.endpoint.api;
        let remedy = Remedy::of(api, &body[..body.len().min(LONGEST_EXCERPT)]);
        let explained = with_way_out(&said, api);
        let guess = TooLong {
            is_guess: true,
            ..TooLong::default()
        };
        let is_known = remedy.is_some() || explained.is_some();
        Failure {
            too_long: (!is_known).then_some(guess),
            remedy,
            ..self.failure(FailureKind::Refusal, status, &explained.unwrap_or(said))
        }
    }

    fn redirect(&self, head: &ResponseHead) -> String {
        let mut to = head
            .location
            .as_deref()
            .unwrap_or("elsewhere")
            .as_bytes()
            .to_vec();
        self.redact(&mut to);
        let to = String::from_utf8_lossy(&to);
        let is_plain = self.endpoint.base_url.starts_with("http:");
        let way_out = if is_plain && to.starts_with("https:") {
            "begin the base URL with https://"
        } else {
            "correct the base URL"
        };
        format!("redirects to {to}, which is not followed with a key; {way_out}")
    }

    /// The proxy that reads requests, and answers some itself.
    fn plain_proxy(&self) -> Option<&Upstream> {
        let proxy = self.endpoint.proxy.as_deref()?;
        (self.url.starts_with("http:") && !proxy.scheme.is_socks()).then_some(proxy)
    }

    fn failure(&self, kind: FailureKind, status: u16, said: &str) -> Failure {
        let url = self.endpoint.shown();
        let colon = if said.is_empty() { "" } else { ": " };
        Failure {
            why: format!("{url} says {status}{colon}{said}"),
            kind,
            http_status: Some(status),
            ..Failure::default()
        }
    }

    /// The failure of an answer that cannot be one, for this reason.
    pub(super) fn no_answer(&self, head: &ResponseHead, mut why: String) -> Failure {
        for secret in &self.endpoint.secrets {
            secret.redact_text(&mut why);
        }
        Failure {
            may_count: head.is_success(),
            ..self.failure(FailureKind::Passing, head.status, &why)
        }
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
            _ if timed_out => "was not at its end in time, or fell silent".to_owned(),
            Some(error) => format!("broke off: {}", failure_reason(&error)),
            None => "ended before the answer did".to_owned(),
        };
        Attempt::Failed(Failure {
            why: format!("{url}: the stream {how}"),
            timed_out,
            may_count: true,
            http_status: Some(200),
            ..Failure::default()
        })
    }

    /// A request that got no response.
    pub(super) fn unanswered(&self, error: &ureq::Error) -> Failure {
        let url = self.endpoint.shown();
        let timed_out = matches!(error, ureq::Error::Timeout(_));
        let why = if timed_out {
            format!("{url} gave no answer in time")
        } else {
            format!("{url}: {}", failure_reason(error))
        };
        let proxy = match error {
            ureq::Error::Other(cause) => cause.downcast_ref::<ProxyFailure>(),
            _ => None,
        };
        if proxy.is_some_and(|proxy| proxy.is_final) {
            return Failure::refusal(why);
        }
        Failure {
            why,
            timed_out,
            may_count: self.link.sent.load(Ordering::Relaxed),
            ..Failure::default()
        }
    }
}

/// A server's words, with the way out that they allow, if there is one.
fn with_way_out(said: &str, api: Api) -> Option<String> {
    let lower = said.to_lowercase();
    let other = Api::ALL
        .into_iter()
        .filter(|(_, other)| *other != api)
        .find(|(_, other)| lower.contains(&format!("v1{}", other.path())));
    if let Some((name, _)) = other {
        return Some(format!("{said}; set llm.api: {name}, or DELTA_API={name}"));
    }
    lower
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .find(|word| matches!(*word, "temperature" | "top_p" | "top_k"))
        .map(|name| format!("{said}; leave it out with --set llm.{name}="))
}
