//! A server at a URL, over streamable HTTP: a POST for each message, answered by a message or by a stream
//! of events whose last one is the answer.
//!
//! A request is never sent twice: a call may have had an effect.

use super::headers::read_headers;
use super::protocol::{LEGACY, Outgoing, Reply, Revision, effect_of};
use super::reading::{Reader, shown_head, unreadable};
use super::servers::{Given, Launch, Secrets, Transport};
use crate::config::environment::{find_proxy, url_objection};
use crate::error::{Error, Result, ignore};
use crate::model::http::{LONGEST_STREAM, failure_reason, new_agent};
use crate::model::wire::sse::Events;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::io::{ErrorKind, Read};
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder};

/// The longest wait for the answer to a notification, which says nothing.
const NOTIFIED: Duration = Duration::from_secs(10);

/// The longest wait for the end of a legacy connection.
const ENDED: Duration = Duration::from_secs(2);

/// A server over HTTP.
pub(super) struct HttpServer<'s> {
    launch: Launch<'s>,
    agent: Agent,
    url: String,
    /// Names and values.
    headers: Vec<(String, String)>,
    reader: Reader,
    /// The session of a legacy connection.
    session: Option<String>,
    /// The status of the last answer; 0 before the first one.
    status: u16,
    /// A server that refuses what programs have printed is asked with new values once.
    may_renew: bool,
}

type Received = std::result::Result<Response<Body>, ureq::Error>;

impl<'s> HttpServer<'s> {
    pub(super) fn new(url: &str, launch: &Launch<'s>) -> Result<Self> {
        // Unlike a model's, its URL may have a query.
        if let Some(why) = url_objection(url.split('?').next().unwrap_or("")) {
            return Err(Error::config(format!("{url}: {why}")));
        }
        let mut reader = Reader::of(&launch.server);
        let headers = read_headers(launch, &mut reader.secrets)?;
        let is_command = |(_, given): &(String, Given)| matches!(given, Given::Command(_));
        Ok(Self {
            agent: new_agent(url, find_proxy(url)?.as_ref(), launch.signals),
            url: url.to_owned(),
            headers,
            reader,
            session: None,
            status: 0,
            may_renew: launch.server.headers.iter().any(is_command),
            launch: launch.clone(),
        })
    }

    /// Reads a response as far as the answer in it.
    fn read(
        &mut self,
        mut response: Response<Body>,
        id: u64,
        message: &Outgoing,
        revision: Revision,
    ) -> std::result::Result<Reply, ureq::Error> {
        // A refusal may name a session, too, which ends with it.
        if message.method == "initialize" {
            self.session = header(&response, "mcp-session-id");
        }
        let status = response.status().as_u16();
        self.status = status;
        if let Some(to) = header(&response, "location")
            && (300..400).contains(&status)
        {
            return Ok(Reply::Status(status, format!("it redirects to {to}")));
        }
        let kind = header(&response, "content-type");
        let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut body = response.body_mut().as_reader().take(LONGEST_STREAM as u64);
        if status < 300 && is_stream {
            return self.read_stream(body, id, message, revision);
        }
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)?;
        Ok(self
            .reader
            .read(&mut bytes)
            .answer_to(id, &bytes)
            .unwrap_or_else(|| {
                if status < 300 && !bytes.trim_ascii().is_empty() {
                    unreadable(&bytes)
                } else {
                    Reply::Status(status, shown_head(&bytes))
                }
            }))
    }

    /// Reads events until the answer. A stream that ends before it has lost the call.
    fn read_stream(
        &mut self,
        mut body: impl Read,
        id: u64,
        message: &Outgoing,
        revision: Revision,
    ) -> std::result::Result<Reply, ureq::Error> {
        let mut events = Events::default();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = body.read(&mut buffer)?;
            let mut lines = Vec::new();
            let piece = if read > 0 { &buffer[..read] } else { b"\n\n" };
            events.push(piece, &mut |_, data| lines.push(data.to_vec()));
            for mut line in lines {
                let mut reading = self.reader.read(&mut line);
                for text in reading.refusals() {
                    let refusal = Outgoing {
                        text,
                        ..Outgoing::default()
                    };
                    ignore(self.notify(&refusal, revision));
                }
                if let Some(answer) = reading.answer_to(id, &line) {
                    return Ok(answer);
                }
            }
            if read == 0 {
                let effect = effect_of(&message.method);
                return Ok(Reply::Lost(Error::failure(format!(
                    "the server's stream ended before its answer{effect}"
                ))));
            }
        }
    }

    fn post(&self, message: &Outgoing, revision: Revision, patience: Option<Duration>) -> Received {
        let post = self.agent.post(&self.url).content_type("application/json");
        let mut builder = self.with_headers(post);
        match revision {
            Revision::Modern => {
                builder = builder
                    .header("MCP-Protocol-Version", revision.name())
                    .header("Mcp-Method", &message.method);
                let subject = message.subject.iter().map(|name| ("Mcp-Name", name));
                let own = message.headers.iter().map(|(name, value)| (&**name, value));
                for (name, value) in subject.chain(own) {
                    builder = builder.header(name, header_value(value));
                }
            }
            Revision::Legacy(version) => {
                if LEGACY[..2].contains(&version) && message.method != "initialize" {
                    builder = builder.header("MCP-Protocol-Version", version);
                }
                if let Some(session) = &self.session {
                    builder = builder.header("Mcp-Session-Id", session);
                }
            }
        }
        builder
            .config()
            .timeout_global(patience)
            .build()
            .send(&message.text)
    }

    fn with_headers<B>(&self, builder: RequestBuilder<B>) -> RequestBuilder<B> {
        let add = |builder: RequestBuilder<B>, (name, value): &(String, String)| {
            builder.header(name, value)
        };
        self.headers.iter().fold(builder, add)
    }

    fn lost(&self, error: &ureq::Error) -> Error {
        match self.launch.signals.stop() {
            Some(stop) => stop.into(),
            None => Error::failure(format!("{}: {}", self.url, failure_reason(error))),
        }
    }
}

impl Transport for HttpServer<'_> {
    fn exchange(
        &mut self,
        id: u64,
        message: &Outgoing,
        revision: Revision,
        patience: Option<Duration>,
    ) -> Result<Reply> {
        let mut received = self.post(message, revision, patience);
        if let Ok(response) = &received
            && matches!(response.status().as_u16(), 307 | 308)
            && let Some(url) = header(response, "location").and_then(|to| resolved(&self.url, &to))
        {
            self.url = url;
            received = self.post(message, revision, patience);
        }
        if matches!(&received, Ok(response) if response.status() == 401)
            && std::mem::take(&mut self.may_renew)
        {
            self.headers = read_headers(&self.launch, &mut self.reader.secrets)?;
            received = self.post(message, revision, patience);
        }
        let read = received.and_then(|response| self.read(response, id, message, revision));
        let was_sent = |error: &ureq::Error| match error {
            ureq::Error::Io(e) => e.kind() != ErrorKind::ConnectionRefused,
            ureq::Error::Protocol(_) | ureq::Error::Decompress(..) => true,
            _ => false,
        };
        read.or_else(|error| match &error {
            ureq::Error::Timeout(_) => Ok(Reply::Silence),
            error if was_sent(error) => {
                let lost = self.lost(error).message + effect_of(&message.method);
                Ok(Reply::Lost(Error::failure(lost)))
            }
            _ => Err(self.lost(&error)),
        })
    }

    fn notify(&mut self, message: &Outgoing, revision: Revision) -> Result<()> {
        match self.post(message, revision, Some(NOTIFIED)) {
            Ok(_) | Err(ureq::Error::Timeout(_)) => Ok(()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn status(&self) -> Option<u16> {
        Some(self.status)
    }

    fn secrets(&self) -> &Secrets {
        &self.reader.secrets
    }

    fn end(self: Box<Self>) {
        if let Some(session) = &self.session {
            let delete = self
                .agent
                .delete(&self.url)
                .header("Mcp-Session-Id", session);
            let config = self
                .with_headers(delete)
                .config()
                .timeout_global(Some(ENDED));
            ignore(config.build().call());
        }
    }
}

/// The URL that a redirect leads to; `None` if it leads to another origin.
fn resolved(base: &str, to: &str) -> Option<String> {
    let (origin, rest) = split_origin(base)?;
    let path = rest.split(['?', '#']).next()?;
    let target = to.split('#').next()?;
    let scheme = origin.split_once("//")?.0;
    let whole = if target.starts_with("//") {
        format!("{scheme}{target}")
    } else {
        target.to_owned()
    };
    if whole.split(['/', '?']).next()?.contains(':') {
        let (other, rest) = split_origin(&whole)?;
        let is_same = normal_origin(other) == normal_origin(origin);
        return is_same.then(|| format!("{origin}{rest}"));
    }
    if target.starts_with('/') {
        return Some(format!("{origin}{target}"));
    }
    if target.starts_with('?') {
        return Some(format!("{origin}{path}{target}"));
    }
    let parent = path.rfind('/').map_or("/", |end| &path[..=end]);
    Some(format!("{origin}{parent}{target}"))
}

/// The scheme and the authority of a URL, and the rest of it.
fn split_origin(url: &str) -> Option<(&str, &str)> {
    let at = url.find("://")? + 3;
    let length = url[at..].find(['/', '?', '#']);
    Some(url.split_at(length.map_or(url.len(), |length| at + length)))
}

/// An origin in lower case, without the usual port.
fn normal_origin(origin: &str) -> String {
    let lower = origin.to_ascii_lowercase();
    let port = if lower.starts_with("https:") {
        ":443"
    } else {
        ":80"
    };
    lower.strip_suffix(port).unwrap_or(&lower).to_owned()
}

fn header(response: &Response<Body>, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
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
            ("HTTP://H:8/x", Some("http://h:8/x")),
            ("/x?to=http://y", Some("http://h:8/x?to=http://y")),
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
        for (base, to) in [
            ("http://h/mcp", "http://h:80/x"),
            ("https://h:443/mcp", "//H/x"),
        ] {
            assert!(resolved(base, to).is_some(), "{base} {to}");
        }
        assert_eq!(resolved("http://h:443/mcp", "http://h/x"), None);
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
