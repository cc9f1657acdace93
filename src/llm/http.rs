//! Chat completions over HTTP, with connections that stay open and waits that signals can end.
//!
//! Unaware of retries. The library speaks HTTP and TLS; only the socket underneath is ours, because
//! a blocking read would keep SIGINT waiting, and because only the socket knows whether a kept
//! connection had gone stale.

use super::{Attempt, their_words};
use crate::clock::Timestamp;
use crate::environment::{Endpoint, is_loopback};
use crate::event::VERSION;
use crate::exec::{self, Command, Ended};
use crate::sys::Signals;
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, Transport,
};

/// An answer larger than this is none.
const LARGEST_ANSWER: u64 = 64 << 20;

/// A server that speaks chat completions.
pub struct Http {
    agent: Agent,
    url: String,
    endpoint: Endpoint,
    /// Of one attempt.
    timeout: Duration,
    wire: Arc<Wire>,
}

/// What the sockets tell.
struct Wire {
    signals: Arc<Signals>,
    /// Connections opened so far.
    opened: AtomicUsize,
    /// Whether anything has come back since the request was begun.
    heard: AtomicBool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Http {
    /// A client for one endpoint. `timeout` is that of one attempt, all included.
    #[must_use]
    pub fn new(endpoint: Endpoint, timeout: Duration, signals: &Arc<Signals>) -> Self {
        let wire = Arc::new(Wire {
            signals: Arc::clone(signals),
            opened: AtomicUsize::new(0),
            heard: AtomicBool::new(false),
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
                .chain(RustlsConnector::default());
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
            let opened = self.wire.opened.load(Ordering::Relaxed);
            self.wire.heard.store(false, Ordering::Relaxed);
            let result = self.send(request, left);
            if let Some(stop) = self.wire.signals.stop()
                && result.is_err()
            {
                return (Attempt::Stopped(stop), None);
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
        let status = response.status().as_u16();
        let after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok());
        let after = after.and_then(|text| retry_after(text, Timestamp::now()));
        let location = response
            .headers()
            .get("location")
            .and_then(|value| value.to_str().ok());
        let location = location.map(str::to_owned);
        let mut body = Vec::new();
        let mut reader = response.into_body().into_reader().take(LARGEST_ANSWER + 1);
        reader.read_to_end(&mut body).map_err(|e| {
            // The library wraps its own errors; unwrap the one that tells a timeout.
            ureq::Error::from(e)
        })?;
        if body.len() as u64 > LARGEST_ANSWER {
            body.truncate(1024);
            return Ok((
                self.again(status, "an answer of more than 64 MiB", None),
                Some(body),
            ));
        }
        if let Some(key) = &self.endpoint.key {
            key.redact(&mut body);
        }
        let attempt = match status {
            200..=299 => Attempt::Body {
                body: Vec::new(),
                http_status: Some(status),
            },
            408 | 409 | 425 | 429 | 500..=599 => self.again(status, &their_words(&body), after),
            300..=399 => {
                let to = location.unwrap_or_else(|| "elsewhere".to_owned());
                self.refused(
                    status,
                    &format!(
                        "redirects to {to}, which is not followed with a key; correct the base URL"
                    ),
                )
            }
            _ => self.refused(status, &their_words(&body)),
        };
        Ok((attempt, Some(body)))
    }

    fn again(&self, status: u16, said: &str, after: Option<Duration>) -> Attempt {
        Attempt::Again {
            why: self.status_line(status, said),
            after,
            timed_out: false,
            http_status: Some(status),
        }
    }

    fn refused(&self, status: u16, said: &str) -> Attempt {
        Attempt::Refused {
            why: self.status_line(status, said),
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

/// Opens TCP connections.
#[derive(Debug)]
struct Socket(Arc<Wire>);

impl<In: Transport> Connector<In> for Socket {
    type Out = Either<In, Connection>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        if let Some(chained) = chained {
            return Ok(Some(Either::A(chained)));
        }
        let until = details
            .timeout
            .not_zero()
            .map(|time| Instant::now() + *time);
        let mut last = io::Error::from(io::ErrorKind::ConnectionRefused);
        for address in &details.addrs {
            match self.0.connect(*address, until) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    self.0.opened.fetch_add(1, Ordering::Relaxed);
                    let config = details.config;
                    return Ok(Some(Either::B(Connection {
                        stream,
                        buffers: LazyBuffers::new(
                            config.input_buffer_size(),
                            config.output_buffer_size(),
                        ),
                        wire: Arc::clone(&self.0),
                    })));
                }
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    return Err(ureq::Error::Timeout(details.timeout.reason));
                }
                Err(e) if self.0.signals.stop().is_some() => return Err(e.into()),
                Err(e) => last = e,
            }
        }
        Err(last.into())
    }
}

impl Wire {
    fn connect(&self, address: SocketAddr, until: Option<Instant>) -> io::Result<TcpStream> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
                self.wait(&socket, PollFlags::OUT, until)?;
                rustix::net::sockopt::socket_error(&socket)??;
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(TcpStream::from(socket))
    }

    /// Waits for a socket; fails when the time is over or a signal asks to end.
    fn wait(&self, socket: impl AsFd, flags: PollFlags, until: Option<Instant>) -> io::Result<()> {
        loop {
            if self.signals.stop().is_some() {
                return Err(io::Error::other("interrupted"));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.signals.wait(Some((socket.as_fd(), flags)), left)? {
                return Ok(());
            }
        }
    }
}

/// A socket that never blocks without listening for signals too.
struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
    wire: Arc<Wire>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

fn deadline(timeout: &NextTimeout) -> Option<Instant> {
    timeout.not_zero().map(|time| Instant::now() + *time)
}

fn with_reason(error: io::Error, timeout: &NextTimeout) -> ureq::Error {
    if error.kind() == io::ErrorKind::TimedOut {
        ureq::Error::Timeout(timeout.reason)
    } else {
        ureq::Error::Io(error)
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let until = deadline(&timeout);
        let output = &self.buffers.output()[..amount];
        let mut sent = 0;
        while sent < output.len() {
            match (&self.stream).write(&output[sent..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self
                    .wire
                    .wait(&self.stream, PollFlags::OUT, until)
                    .map_err(|e| with_reason(e, &timeout))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let until = deadline(&timeout);
        loop {
            match (&self.stream).read(self.buffers.input_append_buf()) {
                Ok(n) => {
                    if n > 0 {
                        self.wire.heard.store(true, Ordering::Relaxed);
                    }
                    self.buffers.input_appended(n);
                    return Ok(n > 0);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self
                    .wire
                    .wait(&self.stream, PollFlags::IN, until)
                    .map_err(|e| with_reason(e, &timeout))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn is_open(&mut self) -> bool {
        let mut byte = [0];
        // An idle connection has nothing to say: what can be read is its end, or nonsense.
        matches!((&self.stream).read(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Finds addresses. The system's resolver blocks and cannot be interrupted, so that for real names
/// it is asked in a child process.
#[derive(Debug)]
struct Lookup(Arc<Wire>);

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or("").trim_matches(['[', ']']);
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(default);
        let mut found = self.empty();
        let mut addresses: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            // No name server is asked for this name (RFC 6761 section 6.3).
            Err(_) if host.eq_ignore_ascii_case("localhost") => {
                vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()]
            }
            Err(_) => self.look_up(host, timeout)?,
        };
        addresses.truncate(16);
        for address in addresses {
            found.push(SocketAddr::new(address, port));
        }
        if found.is_empty() {
            return Err(ureq::Error::Io(io::Error::other(format!(
                "no address for {host}"
            ))));
        }
        Ok(found)
    }
}

impl Lookup {
    fn look_up(&self, host: &str, timeout: NextTimeout) -> Result<Vec<IpAddr>, ureq::Error> {
        let program = std::env::current_exe()?;
        let argv = [
            program.to_string_lossy().into_owned(),
            RESOLVE_COMMAND.to_owned(),
            host.to_owned(),
        ];
        let (mut reader, writer) = io::pipe()?;
        let null = || File::options().write(true).open("/dev/null");
        let command = Command {
            argv: &argv,
            dir: std::path::Path::new("/"),
            env: &[],
            call_id: &crate::ids::hex(12),
            stdin: None,
            // Its few lines fit into the pipe, so that it never waits for us.
            stdout: File::from(OwnedFd::from(writer)),
            stderr: null()?,
            timeout: timeout.not_zero().map(|time| *time),
        };
        let outcome = exec::run(&self.0.signals, command, Duration::ZERO)
            .map_err(|_| ureq::Error::HostNotFound)?;
        if outcome.how == Ended::TimedOut {
            return Err(ureq::Error::Timeout(timeout.reason));
        }
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

/// The command of `delta` that asks the system's resolver and prints the addresses it finds.
pub const RESOLVE_COMMAND: &str = "resolve-host";

/// The addresses of a host, one a line.
#[must_use]
pub fn resolve_host(host: &str) -> String {
    use std::net::ToSocketAddrs;
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    let lines: Vec<String> = found.map(|address| format!("{}\n", address.ip())).collect();
    lines.concat()
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
