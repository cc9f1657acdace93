//! A server at a URL, over streamable HTTP: a POST for each message, answered by a message or by a stream
//! of events whose last one is the answer.
//!
//! A request is never sent twice: a call may have had an effect.

use super::headers::Headers;
use super::protocol::{LEGACY, Outgoing, Revision, RpcOutcome, effect_of};
use super::reading::{read_messages, shown_head, unreadable};
use super::stdio::warn_of_nan;
use crate::config::environment::{find_proxy, url_objection};
use crate::error::{Error, Result, may_fail, reason};
use crate::model::http::{LONGEST_STREAM, failure_reason, new_agent};
use crate::model::wire::sse::Events;
use crate::unix::signals::Signals;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// The longest wait for the answer to a notification, which says nothing.
const NOTIFIED: Duration = Duration::from_secs(10);

/// A server over HTTP.
pub(super) struct HttpServer {
    agent: Agent,
    url: String,
    pub(super) headers: Headers,
    /// Of a legacy connection.
    session: Option<String>,
    /// Of the last answer; 0 before the first one.
    pub(super) status: u16,
    /// Headers of the next call beside those of every request.
    of_call: Vec<(String, String)>,
    signals: Arc<Signals>,
    has_warned_of_nan: bool,
}

impl HttpServer {
    pub(super) fn new(url: &str, headers: Headers, signals: &Arc<Signals>) -> Result<Self> {
        // Unlike a model's, its URL may have a query.
        if let Some(why) = url_objection(url.split('?').next().unwrap_or_default()) {
            return Err(Error::config(format!("{url}: {why}")));
        }
        let proxy = find_proxy(url)?;
        Ok(Self {
            agent: new_agent(url, proxy.as_ref(), signals),
            url: url.to_owned(),
            headers,
            session: None,
            status: 0,
            of_call: Vec::new(),
            signals: Arc::clone(signals),
            has_warned_of_nan: false,
        })
    }

    pub(super) fn set_headers(&mut self, headers: &[(String, String)]) {
        self.of_call = headers.to_vec();
    }

    /// Sends a request and reads until its answer.
    pub(super) fn exchange(
        &mut self,
        id: u64,
        message: &Outgoing,
        revision: Revision,
        patience: Option<Duration>,
    ) -> Result<RpcOutcome> {
        let mut received = self.post(message, revision, patience);
        if let Ok(response) = &received
            && matches!(response.status().as_u16(), 307 | 308)
            && let Some(url) = location(response).and_then(|to| resolved(&self.url, &to))
        {
            self.url = url;
            received = self.post(message, revision, patience);
        }
        if matches!(&received, Ok(response) if response.status() == 401) && self.headers.renew()? {
            received = self.post(message, revision, patience);
        }
        let received = received.and_then(|response| self.read(response, id, message, revision));
        received.or_else(|error| match &error {
            ureq::Error::Timeout(_) => Ok(RpcOutcome::Silence),
            ureq::Error::Io(e) if e.kind() != ErrorKind::ConnectionRefused => {
                let lost = self.lost(&error).message + effect_of(&message.method);
                Ok(RpcOutcome::Lost(Error::failure(lost)))
            }
            _ => Err(self.lost(&error)),
        })
    }

    fn read(
        &mut self,
        mut response: Response<Body>,
        id: u64,
        message: &Outgoing,
        revision: Revision,
    ) -> std::result::Result<RpcOutcome, ureq::Error> {
        // A refusal may name a session, too, which ends with it.
        if message.method == "initialize" {
            self.session = header(&response, "mcp-session-id");
        }
        let status = response.status().as_u16();
        self.status = status;
        if let Some(to) = location(&response).filter(|_| (300..400).contains(&status)) {
            return Ok(RpcOutcome::Status(status, format!("it redirects to {to}")));
        }
        let is_stream = header(&response, "content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut body = response.body_mut().as_reader().take(LONGEST_STREAM as u64);
        if status < 300 && is_stream {
            return self.read_stream(body, id, message, revision);
        }
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)?;
        self.headers.secrets.redact(&mut bytes);
        let mut reading = read_messages(&bytes);
        warn_of_nan(&reading, &mut self.has_warned_of_nan);
        Ok(match reading.answer_to(id, &bytes) {
            Some(answer) => RpcOutcome::Answer(answer),
            None if status < 300 && !bytes.trim_ascii().is_empty() => {
                RpcOutcome::Answer(unreadable(&bytes))
            }
            None => RpcOutcome::Status(status, shown_head(&bytes)),
        })
    }

    /// Sends what needs no answer, and does not wait for one for long.
    pub(super) fn notify(&mut self, message: &Outgoing, revision: Revision) -> Result<()> {
        match self.post(message, revision, Some(NOTIFIED)) {
            Ok(_) | Err(ureq::Error::Timeout(_)) => Ok(()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// Ends a legacy connection.
    pub(super) fn end(self) {
        if let Some(session) = &self.session {
            let mut builder = self
                .agent
                .delete(&self.url)
                .header("Mcp-Session-Id", session);
            for (name, value) in &self.headers.values {
                builder = builder.header(name, value);
            }
            let timeout = Some(Duration::from_secs(2));
            may_fail(builder.config().timeout_global(timeout).build().call());
        }
    }

    fn post(
        &self,
        message: &Outgoing,
        revision: Revision,
        patience: Option<Duration>,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        let mut builder = self.agent.post(&self.url).content_type("application/json");
        for (name, value) in &self.headers.values {
            builder = builder.header(name, value);
        }
        match revision {
            Revision::Modern => {
                builder = builder
                    .header("MCP-Protocol-Version", revision.name())
                    .header("Mcp-Method", &message.method);
                if let Some(name) = &message.subject {
                    builder = builder.header("Mcp-Name", header_value(name));
                }
                if message.method == "tools/call" {
                    for (name, value) in &self.of_call {
                        builder = builder.header(name, header_value(value));
                    }
                }
            }
            Revision::Legacy(version) => {
                let has_header = LEGACY[..2].contains(&version) && message.method != "initialize";
                if has_header {
                    builder = builder.header("MCP-Protocol-Version", version);
                }
                if let Some(session) = &self.session {
                    builder = builder.header("Mcp-Session-Id", session);
                }
            }
        }
        let config = builder.config().timeout_global(patience);
        config.build().send(&message.text)
    }

    /// Reads events until the answer. A stream that ends before it has lost the call.
    fn read_stream(
        &mut self,
        mut body: impl Read,
        id: u64,
        message: &Outgoing,
        revision: Revision,
    ) -> std::result::Result<RpcOutcome, ureq::Error> {
        let mut events = Events::default();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = body.read(&mut buffer)?;
            let mut lines = Vec::new();
            let piece = if read > 0 { &buffer[..read] } else { b"\n\n" };
            events.push(piece, &mut |_, data| lines.push(data.to_vec()));
            for mut line in lines {
                self.headers.secrets.redact(&mut line);
                let mut reading = read_messages(&line);
                warn_of_nan(&reading, &mut self.has_warned_of_nan);
                for text in reading.refusals() {
                    let refusal = Outgoing {
                        method: String::new(),
                        subject: None,
                        text,
                    };
                    may_fail(self.notify(&refusal, revision));
                }
                if let Some(answer) = reading.answer_to(id, &line) {
                    return Ok(RpcOutcome::Answer(answer));
                }
            }
            if read == 0 {
                let effect = effect_of(&message.method);
                let lost = format!("the server's stream ended before its answer{effect}");
                return Ok(RpcOutcome::Lost(Error::failure(lost)));
            }
        }
    }

    fn lost(&self, error: &ureq::Error) -> Error {
        match self.signals.stop() {
            Some(stop) => stop.into(),
            None => match error {
                ureq::Error::Io(e) => Error::failure(format!("{}: {}", self.url, reason(e))),
                other => Error::failure(format!("{}: {}", self.url, failure_reason(other))),
            },
        }
    }
}

fn location(response: &Response<Body>) -> Option<String> {
    header(response, "location")
}

/// The URL that a redirect leads to; `None` if it leads to another origin.
fn resolved(base: &str, to: &str) -> Option<String> {
    let at = base.find("://")? + 3;
    let authority = base[at..].split(['/', '?', '#']).next()?;
    let origin = &base[..at + authority.len()];
    let path = base[origin.len()..].split(['?', '#']).next()?;
    let target = to.split('#').next()?;
    let scheme = &base[..at - 2];
    if let Some(rest) = target
        .strip_prefix(scheme)
        .unwrap_or(target)
        .strip_prefix("//")
    {
        let rest = rest.strip_prefix(authority)?;
        let is_whole = rest.is_empty() || rest.starts_with(['/', '?']);
        return is_whole.then(|| format!("{origin}{rest}"));
    }
    if target.starts_with('/') {
        return Some(format!("{origin}{target}"));
    }
    if target.starts_with('?') {
        return Some(format!("{origin}{path}{target}"));
    }
    let parent = path.rfind('/').map_or("/", |end| &path[..=end]);
    let has_scheme = target.split(['/', '?']).next()?.contains(':');
    (!has_scheme).then(|| format!("{origin}{parent}{target}"))
}

fn header(response: &Response<Body>, name: &str) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// A value as a header can hold it: what is not printable ASCII, or has blanks at its ends, in base64.
fn header_value(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && value.trim() == value
        && !value.starts_with("=?base64?");
    if is_plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_at_its_origin() {
        const BASE: &str = "http://h:8/a/mcp?k=1";
        for (to, url) in [
            ("/mcp/", Some("http://h:8/mcp/")),
            ("mcp/", Some("http://h:8/a/mcp/")),
            ("?k=2", Some("http://h:8/a/mcp?k=2")),
            ("//h:8/x", Some("http://h:8/x")),
            ("http://h:8", Some("http://h:8")),
            ("http://h:8/x#y", Some("http://h:8/x")),
            ("https://h:8/x", None),
            ("http://h:80/x", None),
            ("http://h:8.evil.example/x", None),
            ("http://h:8@evil.example/x", None),
            ("http://u@h:8/x", None),
            ("//evil.example/x", None),
            ("http:evil.example", None),
            ("javascript:x", None),
        ] {
            assert_eq!(resolved(BASE, to).as_deref(), url, "{to}");
        }
    }

    #[test]
    fn a_value_that_no_header_can_hold_is_encoded() {
        for (value, header) in [
            ("eu-west", "eu-west"),
            ("a b", "a b"),
            (" a", "=?base64?IGE=?="),
            ("é", "=?base64?w6k=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("a\tb", "=?base64?YQli?="),
            (" ", "=?base64?IA==?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            assert_eq!(header_value(value), header);
        }
    }
}
