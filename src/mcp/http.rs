//! A server at a URL, over streamable HTTP: a POST for each message, answered by a message or by a stream
//! of events whose last one is the answer.
//!
//! A request is never sent twice: a call may have had an effect.

use super::protocol::{Incoming, LEGACY, Revision, RpcOutcome, read_message, refusal};
use super::servers::Secrets;
use crate::config::environment::{Secret, find_proxy, url_objection};
use crate::error::{Error, Result, may_fail, reason};
use crate::model::http::{LONGEST_STREAM, failure_reason, new_agent};
use crate::model::wire::sse::Events;
use crate::unix::signals::Signals;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// How much of an answer that is no message is shown, in bytes.
const LAST_WORDS: usize = 500;

/// A server over HTTP.
pub(super) struct HttpServer {
    agent: Agent,
    url: String,
    token: Option<Secret>,
    /// Of a legacy connection.
    session: Option<String>,
    /// Of the last answer; 0 before the first one.
    pub(super) status: u16,
    /// Headers of the next call beside those of every request.
    headers: Vec<(String, String)>,
    secrets: Secrets,
    signals: Arc<Signals>,
}

impl HttpServer {
    /// A server, with the variable of its bearer token and the secrets that are removed from its messages.
    pub(super) fn new(
        url: &str,
        (bearer, secrets): (Option<&str>, Secrets),
        signals: &Arc<Signals>,
    ) -> Result<Self> {
        // Unlike a model's, its URL may have a query.
        if let Some(why) = url_objection(url.split('?').next().unwrap_or_default()) {
            return Err(Error::config(format!("{url}: {why}")));
        }
        let token = bearer.map(|name| {
            let token = std::env::var(name).ok();
            token.and_then(|token| Secret::new(&token)).ok_or_else(|| {
                Error::config(format!("{url} needs the variable {name}, which is not set"))
            })
        });
        let proxy = find_proxy(url)?;
        Ok(Self {
            agent: new_agent(url, proxy.as_ref(), signals),
            url: url.to_owned(),
            token: token.transpose()?,
            session: None,
            status: 0,
            headers: Vec::new(),
            secrets,
            signals: Arc::clone(signals),
        })
    }

    pub(super) fn set_headers(&mut self, headers: &[(String, String)]) {
        self.headers = headers.to_vec();
    }

    /// Sends a request and reads until its answer.
    pub(super) fn exchange(
        &mut self,
        id: u64,
        message: &Value,
        revision: Revision,
        patience: Option<Duration>,
    ) -> Result<RpcOutcome> {
        let mut response = match self.post(message, revision, patience) {
            Ok(response) => response,
            Err(ureq::Error::Timeout(_)) => return Ok(RpcOutcome::Silence),
            Err(error) => return Err(self.lost(&error)),
        };
        // A refusal may name a session, too, which ends with it.
        if message["method"] == "initialize" {
            self.session = header(&response, "mcp-session-id");
        }
        let status = response.status().as_u16();
        self.status = status;
        let is_stream = header(&response, "content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        let body = response.body_mut().as_reader().take(LONGEST_STREAM as u64);
        if status < 300 && is_stream {
            return self.read_stream(body, id, revision);
        }
        let mut bytes = Vec::new();
        let mut body = body;
        body.read_to_end(&mut bytes)
            .map_err(|e| self.lost(&ureq::Error::from(e)))?;
        self.secrets.redact(&mut bytes);
        match read_message(&bytes) {
            Incoming::Answer(answered, answer) if answered == id || answered == 0 => {
                Ok(RpcOutcome::Answer(answer))
            }
            _ => {
                let shown = &bytes[..bytes.len().min(LAST_WORDS)];
                let shown = String::from_utf8_lossy(shown).trim().to_owned();
                Ok(RpcOutcome::Status(status, shown))
            }
        }
    }

    /// Sends what needs no answer.
    pub(super) fn notify(&mut self, message: &Value, revision: Revision) -> Result<()> {
        match self.post(message, revision, None) {
            Ok(_) => Ok(()),
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
            if let Some(token) = &self.token {
                builder = builder.header("Authorization", format!("Bearer {}", token.expose()));
            }
            let timeout = Some(Duration::from_secs(2));
            may_fail(builder.config().timeout_global(timeout).build().call());
        }
    }

    fn post(
        &self,
        message: &Value,
        revision: Revision,
        patience: Option<Duration>,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        let mut builder = self.agent.post(&self.url).content_type("application/json");
        if let Some(token) = &self.token {
            builder = builder.header("Authorization", format!("Bearer {}", token.expose()));
        }
        let method = message["method"].as_str().unwrap_or_default();
        match revision {
            Revision::Modern => {
                builder = builder
                    .header("MCP-Protocol-Version", revision.name())
                    .header("Mcp-Method", method);
                if method.starts_with("tasks/") {
                    let name = message["params"]["taskId"].as_str().unwrap_or_default();
                    builder = builder.header("Mcp-Name", header_value(name));
                }
                if method == "tools/call" {
                    let name = message["params"]["name"].as_str().unwrap_or_default();
                    builder = builder.header("Mcp-Name", header_value(name));
                    for (name, value) in &self.headers {
                        builder = builder.header(name, header_value(value));
                    }
                }
            }
            Revision::Legacy(version) => {
                let has_header = LEGACY[..2].contains(&version) && method != "initialize";
                if has_header {
                    builder = builder.header("MCP-Protocol-Version", version);
                }
                if let Some(session) = &self.session {
                    builder = builder.header("Mcp-Session-Id", session);
                }
            }
        }
        let config = builder.config().timeout_global(patience);
        config.build().send(message.to_string())
    }

    /// Reads events until the answer. A stream that ends before it has lost the call.
    fn read_stream(
        &mut self,
        mut body: impl Read,
        id: u64,
        revision: Revision,
    ) -> Result<RpcOutcome> {
        let mut events = Events::default();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = match body.read(&mut buffer) {
                Ok(0) => {
                    let message = "the server's stream ended before its answer; the call may have had an effect";
                    return Err(Error::failure(message));
                }
                Ok(read) => read,
                Err(e) => match ureq::Error::from(e) {
                    ureq::Error::Timeout(_) => return Ok(RpcOutcome::Silence),
                    error => return Err(self.lost(&error)),
                },
            };
            let mut messages = Vec::new();
            events.push(&buffer[..read], &mut |_, data| {
                let mut data = data.to_vec();
                self.secrets.redact(&mut data);
                messages.push(read_message(&data));
            });
            for message in messages {
                match message {
                    Incoming::Answer(answered, answer) if answered == id || answered == 0 => {
                        return Ok(RpcOutcome::Answer(answer));
                    }
                    Incoming::Request { id, method } => {
                        self.notify(&refusal(id, &method), revision)?;
                    }
                    Incoming::Answer(..) | Incoming::Notification | Incoming::Junk => {}
                }
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
