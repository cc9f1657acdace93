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

use super::attempt::{Attempt, Failure, LARGEST_MESSAGE};
use super::wire::{Broken, Heard, Listener, Stream, is_in_joined_texts, stream_error_status};
use crate::VERSION;
use crate::config::agent::Llm;
use crate::config::api::with_path;
use crate::config::environment::{Endpoint, Secret};
use crate::model::rate::SharedRate;
use crate::record::request_body::Body;
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
    /// The waits that it asked other processes for.
    rate: Option<SharedRate>,
}

/// The buffers of a connection, which are cleared for each: the longest head of a response, 64 KiB, fits into the first.
const INPUT_BUFFER: usize = 68 << 10;
const OUTPUT_BUFFER: usize = 32 << 10;

/// A request to a server.
#[derive(Clone, Copy)]
pub(super) enum HttpRequest<'e> {
    /// An answer to these bytes, perhaps as it is made.
    Ask {
        request: &'e Body<'e>,
        streams: bool,
    },
    /// The state of the answer with this id.
    Look(&'e str),
    /// The models that the endpoint has.
    List,
}

/// The outcome of an attempt.
pub(super) struct Received {
    pub attempt: Attempt,
    /// A stream as it came.
    pub stream: Option<Vec<u8>>,
}

impl From<Attempt> for Received {
    fn from(attempt: Attempt) -> Self {
        Self {
            attempt,
            stream: None,
        }
    }
}

/// An agent of the library for one server of tools, whose waits end when a signal comes.
pub(crate) fn new_agent(url: &str, proxy: Option<&Upstream>, signals: &Arc<Signals>) -> Agent {
    agent_over(
        &new_link(signals),
        url,
        proxy,
        "application/json, text/event-stream",
    )
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
        .input_buffer_size(INPUT_BUFFER)
        .output_buffer_size(OUTPUT_BUFFER)
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
    let watched = connector.chain(SendWatch(Arc::clone(link)));
    let lookup = Lookup {
        link: Arc::clone(link),
        way,
    };
    Agent::with_parts(config, watched, lookup)
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
            let error = match self.send(exchange, left, listener) {
                Ok(received) => return received,
                Err(error) => error,
            };
            if let Some(stop) = self.link.signals.stop() {
                let may_count = self.link.sent.load(Ordering::Relaxed);
                return Attempt::Stopped { stop, may_count }.into();
            }
            let is_kept = opened > 0 && opened == self.link.opened.load(Ordering::Relaxed);
            let is_silent = !self.link.heard.load(Ordering::Relaxed);
            let timed_out = matches!(error, ureq::Error::Timeout(_));
            if !is_kept || !is_silent || timed_out || reopened {
                return Attempt::Failed(self.unanswered(&error)).into();
            }
            // The server had closed the connection meanwhile: no attempt was made at all.
            reopened = true;
        }
    }

    /// The secrets that no answer may hold.
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
        let (whole, silence) = if streams {
            (self.total_timeout, self.timeout.as_millis() as u64)
        } else {
            (self.timeout, 0)
        };
        self.link.silence.store(silence, Ordering::Relaxed);
        // The library takes no time at all for no limit.
        let time = left
            .map_or(whole, |left| left.min(whole))
            .max(Duration::from_millis(1));
        let get = |url: String| self.prepared(self.agent.get(url), time, streams).call();
        let response = match exchange {
            HttpRequest::Ask { request, .. } => {
                let post = self.agent.post(&self.url).content_type("application/json");
                let post = self.prepared(post, time, streams);
                if request.has_blobs() {
                    post.header("content-length", request.len())
                        .send(SendBody::from_reader(&mut request.reader()))?
                } else {
                    post.send(request.text)?
                }
            }
            HttpRequest::Look(id) => get(with_path(&self.url, |_| format!("/{id}")))?,
            HttpRequest::List => get(self.endpoint.api.list_url(&self.endpoint.base_url))?,
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
            let failure = Failure {
                body: Some(body),
                ..self.no_answer(&head, "an answer of more than 16 MiB".to_owned())
            };
            return Ok(Attempt::Failed(failure).into());
        }
        let is_ask = matches!(exchange, HttpRequest::Ask { .. });
        if is_ask && head.is_success() && is_stream(&body) {
            return Ok(self.receive_stream(&head, body.as_slice(), listener));
        }
        self.redact(&mut body);
        Ok(self.judged(&head, body).into())
    }

    /// The attempt with this response.
    fn judged(&self, head: &ResponseHead, body: Vec<u8>) -> Attempt {
        match self.judge_body(head, &body) {
            None => Attempt::Body {
                body,
                http_status: Some(head.status),
            },
            Some(failure) => Attempt::Failed(Failure {
                body: Some(body),
                ..failure
            }),
        }
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
        builder
            .config()
            .timeout_global(Some(whole))
            .timeout_connect(connect)
            .build()
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
                            attempt: Attempt::Failed(
                                self.no_answer(head, "an answer of more than 64 MiB".to_owned()),
                            ),
                            stream: Some(kept),
                        };
                    }
                }
                Err(error) => break Err(ureq::Error::from(error)),
            }
        };
        let mut hear = |heard: Heard<'_>| hearing.hear(heard, listener);
        let attempt = match stream.finish(end.is_ok(), &mut hear) {
            Ok(mut response) => {
                hearing.end(listener);
                self.redact(&mut response);
                self.judged(head, response)
            }
            Err(Broken::Error(mut error)) => {
                self.redact(&mut error);
                let status = stream_error_status(self.endpoint.api, &error);
                Attempt::Failed(self.judge_error(status, head, &error))
            }
            Err(Broken::Unreadable(why)) => Attempt::Failed(self.no_answer(
                head,
                format!("an event of the stream cannot be read: {why}"),
            )),
            Err(Broken::Early) if end.is_ok() && is_plain(&raw) => {
                let mut body = raw.clone();
                self.redact(&mut body);
                self.judged(head, body)
            }
            Err(Broken::Early) => self.cut_off(end.err()),
        };
        Received {
            stream: Some(self.kept_stream(raw, attempt.body())),
            attempt,
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
        let lines = response
            .into_iter()
            .flat_map(|it| it.split(|byte| *byte == b'\n'));
        let mut event: Vec<u8> = lines
            .flat_map(|line| [b"data: ", line, b"\n"].concat())
            .collect();
        if holds_secret(&[&event, &b"\n"[..]].concat()) {
            event.clear();
        }
        let note = b": events with pieces of the key are left out\n\n";
        [note, &event[..], b"\n"].concat()
    }

    /// Takes the secrets out. True if there was one.
    fn redact(&self, bytes: &mut Vec<u8>) -> bool {
        self.endpoint
            .secrets
            .iter()
            .filter(|secret| secret.redact(bytes))
            .count()
            > 0
    }
}

/// True for a body that is a stream, whatever its head says.
fn is_stream(body: &[u8]) -> bool {
    first_line(body).is_some_and(|line| begins_with(line, &["data:", "event:"]))
}

/// True for a body that is no stream, whatever its head says.
fn is_plain(body: &[u8]) -> bool {
    let fields = ["data", "event", "id", "retry"];
    let is_plain = |line| !begins_with(line, &fields);
    body.len() <= LARGEST_MESSAGE && first_line(body).is_some_and(is_plain)
}

/// The first line of a stream that is neither blank nor a comment.
fn first_line(body: &[u8]) -> Option<&[u8]> {
    body.strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(body)
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .find(|line| !line.is_empty() && !line.starts_with(b":"))
}

fn begins_with(line: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| line.starts_with(word.as_bytes()))
}
