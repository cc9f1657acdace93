//! Requests over HTTP, with connections that stay open and waits that signals can end.
//!
//! Unaware of retries. The library speaks HTTP and TLS; only the socket underneath is ours, because
//! a blocking read would keep SIGINT waiting, and because only the socket knows whether a kept
//! connection had gone stale.

mod socket;
mod proxied;
mod resolver;
mod head;
mod verdict;
mod window;
mod hearing;
#[cfg(feature = "tls")]
mod tls;

pub(crate) use proxied::failure_reason;
pub(crate) use resolver::{RESOLVE_COMMAND, resolve_host};
pub(crate) use window::served_window;

use super::attempt::{Attempt, LARGEST_MESSAGE, readable};
use super::wire::{
    Broken, Heard, Listener, Stream, error_status, is_in_joined_texts, stream_error_status,
};
use crate::VERSION;
use crate::config::agent::Llm;
use crate::config::api::with_path;
use crate::config::environment::{Endpoint, Secret};
use crate::model::rate::SharedRate;
use crate::record::attachments::body::Body;
use crate::unix::doors::Upstream;
use crate::unix::signals::Signals;
use head::ResponseHead;
use hearing::Hearing;
use proxied::{Proxied, Way};
use resolver::Lookup;
use socket::{Link, SendWatch, Socket};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use ureq::config::Config;
use ureq::unversioned::transport::Connector;
use ureq::{Agent, RequestBuilder, SendBody};

/// The most bytes of a model's stream, or of a message of a server of tools.
pub(crate) const LONGEST_STREAM: usize = 64 << 20;

/// Once an answer is whole, its connection has this long to end it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A server that speaks one of the APIs.
pub(crate) struct Http {
    agent: Agent,
    url: String,
    endpoint: Endpoint,
    /// The limit of one attempt; of the silence in a stream.
    timeout: Duration,
    /// The limit of one attempt whose answer is a stream.
    pub(super) total_timeout: Duration,
    link: Arc<Link>,
    /// What other processes have heard from it.
    rate: Option<SharedRate>,
}

/// What is asked of a server.
#[derive(Clone, Copy)]
pub(super) enum HttpRequest<'e> {
    /// An answer to these bytes, perhaps as it is made.
    Ask {
        request: &'e Body<'e>,
        streams: bool,
    },
    /// How far the answer with this id is.
    Look(&'e str),
    /// The models that the endpoint has.
    List,
}

/// What came of an attempt.
pub(super) struct Received {
    pub attempt: Attempt,
    /// The response; of a stream, the pieces put together.
    pub response: Option<Vec<u8>>,
    /// A stream as it came.
    pub stream: Option<Vec<u8>>,
}

impl Received {
    pub(super) fn nothing(attempt: Attempt) -> Self {
        Self {
            attempt,
            response: None,
            stream: None,
        }
    }
}

/// An agent of the library for one server of tools, whose waits end when a signal comes.
pub(crate) fn new_agent(url: &str, proxy: Option<&Upstream>, signals: &Arc<Signals>) -> Agent {
    let accept = "application/json, text/event-stream";
    agent_over(&new_link(signals), url, proxy, accept)
}

fn new_link(signals: &Arc<Signals>) -> Arc<Link> {
    Arc::new(Link {
        signals: Arc::clone(signals),
        opened: AtomicUsize::new(0),
        heard: AtomicBool::new(false),
        sent: AtomicBool::new(false),
        silence: AtomicU64::new(0),
    })
}

#[cfg_attr(not(feature = "tls"), allow(unused_variables))]
fn agent_over(link: &Arc<Link>, url: &str, proxy: Option<&Upstream>, accept: &str) -> Agent {
    // The library's own proxies know no absolute form and no SOCKS over this socket.
    let config = Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(format!("delta/{VERSION}"))
        .accept(accept);
    #[cfg(feature = "tls")]
    let config = config.tls_config(tls::config(url, proxy));
    let config = config.proxy(None).build();
    let way = proxy.map(Way::new);
    let through = Proxied {
        way: way.clone(),
        link: Arc::clone(link),
    };
    let connector = ().chain(through).chain(Socket(Arc::clone(link)));
    #[cfg(feature = "tls")]
    let connector = connector.chain(ureq::unversioned::transport::RustlsConnector::default());
    let connector = connector.chain(SendWatch(Arc::clone(link)));
    let lookup = Lookup {
        link: Arc::clone(link),
        way,
    };
    Agent::with_parts(config, connector, lookup)
}

impl Http {
    /// A client for one endpoint.
    pub(crate) fn new(endpoint: Endpoint, llm: &Llm, signals: &Arc<Signals>) -> Self {
        let link = new_link(signals);
        let agent = agent_over(
            &link,
            &endpoint.base_url,
            endpoint.proxy.as_deref(),
            "application/json",
        );
        let key = endpoint.key.as_ref().map(Secret::expose);
        let rate = SharedRate::of(&endpoint.base_url, llm.model.as_deref(), key);
        Self {
            rate,
            agent,
            url: endpoint.api.url(&endpoint.base_url),
            endpoint,
            timeout: llm.timeout,
            total_timeout: llm.total_timeout,
            link,
        }
    }

    /// Replaces these in what comes back, too.
    pub(crate) fn redact_also(&mut self, secrets: Vec<Secret>) {
        self.endpoint.secrets.extend(secrets);
    }

    pub(crate) fn rate(&self) -> Option<&SharedRate> {
        self.rate.as_ref()
    }

    /// Sends a request once.
    pub(super) fn attempt(
        &mut self,
        exchange: HttpRequest<'_>,
        left: Option<Duration>,
        listener: &mut Listener<'_>,
    ) -> Received {
        let mut reopened = false;
        loop {
            self.link.sent.store(false, Ordering::Relaxed);
            let opened = self.link.opened.load(Ordering::Relaxed);
            self.link.heard.store(false, Ordering::Relaxed);
            let result = self.send(exchange, left, listener);
            if let Some(stop) = self.link.signals.stop()
                && result.is_err()
            {
                let may_count = self.link.sent.load(Ordering::Relaxed);
                return Received::nothing(Attempt::Stopped { stop, may_count });
            }
            match result {
                Ok(received) => return received,
                Err(error) => {
                    let kept_connection = opened == self.link.opened.load(Ordering::Relaxed);
                    let silent = !self.link.heard.load(Ordering::Relaxed);
                    let timed_out = matches!(error, ureq::Error::Timeout(_));
                    if opened > 0 && kept_connection && silent && !timed_out && !reopened {
                        // The server had closed the connection meanwhile: no attempt was made at all.
                        reopened = true;
                        continue;
                    }
                    return Received::nothing(self.failed(&error, timed_out));
                }
            }
        }
    }

    /// What no answer may hold.
    pub(super) fn secrets(&self) -> &[Secret] {
        &self.endpoint.secrets
    }

    fn send(
        &self,
        exchange: HttpRequest<'_>,
        left: Option<Duration>,
        listener: &mut Listener<'_>,
    ) -> Result<Received, ureq::Error> {
        let streams = matches!(exchange, HttpRequest::Ask { streams: true, .. });
        let (whole, silence) = match streams {
            true => (self.total_timeout, self.timeout.as_millis() as u64),
            false => (self.timeout, 0),
        };
        self.link.silence.store(silence, Ordering::Relaxed);
        let whole = left.map_or(whole, |left| left.min(whole));
        // The library takes no time at all for no limit.
        let whole = whole.max(Duration::from_millis(1));
        let response = match exchange {
            HttpRequest::Ask { request, .. } => {
                let post = self.agent.post(&self.url).content_type("application/json");
                let post = self.prepared(post, whole, streams);
                match request.has_blobs() {
                    true => post
                        .header("content-length", request.len())
                        .send(SendBody::from_reader(&mut request.reader()))?,
                    false => post.send(request.text)?,
                }
            }
            HttpRequest::Look(id) => {
                let get = self.agent.get(with_path(&self.url, |_| format!("/{id}")));
                self.prepared(get, whole, streams).call()?
            }
            HttpRequest::List => {
                let url = self.endpoint.api.list_url(&self.endpoint.base_url);
                self.prepared(self.agent.get(url), whole, streams).call()?
            }
        };
        let head = ResponseHead::read(&response);
        let reader = response.into_body().into_reader();
        if streams && head.is_success() && !head.is_whole {
            return Ok(self.receive_stream(&head, reader, listener));
        }
        let mut body = Vec::new();
        // The library wraps its own errors; unwrap the one that says that the time is over.
        reader
            .take(LARGEST_MESSAGE as u64 + 1)
            .read_to_end(&mut body)
            .map_err(ureq::Error::from)?;
        if body.len() > LARGEST_MESSAGE {
            self.redact(&mut body);
            body.truncate(1024);
            return Ok(Received {
                attempt: self.too_large(&head, "16 MiB"),
                response: Some(body),
                stream: None,
            });
        }
        let is_ask = matches!(exchange, HttpRequest::Ask { .. });
        if is_ask && head.is_success() && is_stream(&body) {
            return Ok(self.receive_stream(&head, body.as_slice(), listener));
        }
        self.redact(&mut body);
        Ok(Received {
            attempt: self.judge_body(head, &body),
            response: Some(body),
            stream: None,
        })
    }

    /// A request with the headers that all have, and so much time.
    fn prepared<B>(
        &self,
        mut builder: RequestBuilder<B>,
        whole: Duration,
        streams: bool,
    ) -> RequestBuilder<B> {
        if streams {
            builder = builder.header("accept", "text/event-stream");
            builder = builder.header("accept-encoding", "identity");
        }
        let own = &self.endpoint.headers;
        let is_own = |name: &str| own.iter().any(|(known, _)| known == name);
        let (key_header, scheme) = self.endpoint.api.key_header();
        if let Some(key) = &self.endpoint.key
            && !is_own(key_header)
        {
            builder = builder.header(key_header, format!("{scheme}{}", key.expose()));
        }
        for (name, value) in self.endpoint.api.fixed_headers() {
            if !is_own(name) {
                builder = builder.header(*name, *value);
            }
        }
        for (name, value) in own {
            builder = builder.header(name, value.expose());
        }
        let connect = streams.then(|| self.timeout.min(whole));
        let config = builder.config().timeout_global(Some(whole));
        config.timeout_connect(connect).build()
    }

    /// The attempt's outcome; errors come with status 200, too.
    fn judge_body(&self, mut head: ResponseHead, body: &[u8]) -> Attempt {
        if head.is_success()
            && let Ok(text) = readable(body)
            && let Some(status) = error_status(self.endpoint.api, text.as_bytes())
        {
            head.status = status;
            return Self::counting(self.judge_error(&head, body));
        }
        self.judge_status(&head, body)
    }

    /// Reads an answer as it comes.
    fn receive_stream(
        &self,
        head: &ResponseHead,
        mut reader: impl Read,
        listener: &mut Listener<'_>,
    ) -> Received {
        let mut stream = Stream::new(self.endpoint.api);
        let (mut raw, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
        let mut hearing = Hearing::new(&self.endpoint.secrets);
        let end = loop {
            match reader.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    raw.extend_from_slice(&buffer[..count]);
                    stream.push(&buffer[..count], &mut |heard| hearing.hear(heard, listener));
                    if stream.is_broken() {
                        break Ok(());
                    }
                    if stream.has_ended() {
                        let last = LAST_WORDS.as_millis() as u64;
                        self.link.silence.store(last, Ordering::Relaxed);
                    }
                    if raw.len() > LONGEST_STREAM {
                        let mut kept = self.kept_stream(raw, None);
                        kept.truncate(1024);
                        return Received {
                            attempt: self.too_large(head, "64 MiB"),
                            response: None,
                            stream: Some(kept),
                        };
                    }
                }
                Err(error) => break Err(ureq::Error::from(error)),
            }
        };
        let mut hear = |heard: Heard<'_>| hearing.hear(heard, listener);
        let (attempt, response) = match stream.finish(end.is_ok(), &mut hear) {
            Ok(mut response) => {
                hearing.end(listener);
                self.redact(&mut response);
                (self.judge_body(head.clone(), &response), Some(response))
            }
            Err(Broken::Error(mut error)) => {
                self.redact(&mut error);
                let status = stream_error_status(self.endpoint.api, &error);
                let head = ResponseHead {
                    status,
                    ..head.clone()
                };
                (Self::counting(self.judge_error(&head, &error)), None)
            }
            Err(Broken::Unreadable(why)) => (self.unreadable(head, why), None),
            Err(Broken::Early) => (self.cut_off(end.err()), None),
        };
        let kept = self.kept_stream(raw, response.as_deref());
        Received {
            attempt,
            response,
            stream: Some(kept),
        }
    }

    /// The stream for the record. If its events hold a secret in pieces, one event with the whole response replaces
    /// them.
    fn kept_stream(&self, mut raw: Vec<u8>, response: Option<&[u8]>) -> Vec<u8> {
        self.redact(&mut raw);
        let holds_secret = |stream: &[u8]| {
            !self.endpoint.secrets.is_empty()
                && is_in_joined_texts(stream, &mut |text| self.redact(&mut text.into()))
        };
        if !holds_secret(&raw) {
            return raw;
        }
        let mut event = Vec::new();
        for line in response
            .into_iter()
            .flat_map(|it| it.split(|byte| *byte == b'\n'))
        {
            event.extend_from_slice(&[b"data: ", line, b"\n"].concat());
        }
        if holds_secret(&[&event, &b"\n"[..]].concat()) {
            event.clear();
        }
        [
            b": events with pieces of the key are left out\n\n",
            &event[..],
            b"\n",
        ]
        .concat()
    }

    /// Takes the secrets out. True if there was one.
    fn redact(&self, bytes: &mut Vec<u8>) -> bool {
        let secrets = self.endpoint.secrets.iter();
        secrets.filter(|secret| secret.redact(bytes)).count() > 0
    }
}

/// True for a body that is a stream, whatever its head says.
fn is_stream(body: &[u8]) -> bool {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b":"));
    let first = lines.next().unwrap_or_default();
    first.starts_with(b"data:") || first.starts_with(b"event:")
}
