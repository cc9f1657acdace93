//! The way through a proxy: a tunnel by CONNECT or SOCKS5 for https, requests in absolute form for plain http.
//!
//! Unaware of variables.

use super::socket::Link;
use crate::error::reason;
use crate::unix::doors::{Host, Scheme, Socks5, SocksRefusal, Upstream, tunnel_status};
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use ureq::http::Uri;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, Transport, TransportAdapter,
};

/// The limit of the head of an answer to CONNECT.
const HEAD_LIMIT: usize = 64 << 10;

/// A proxy, and where it is connected to.
#[derive(Clone, Debug)]
pub(super) struct Way {
    proxy: Upstream,
    uri: Uri,
}

impl Way {
    pub(super) fn new(proxy: &Upstream) -> Self {
        let url = match proxy.scheme {
            Scheme::Https => proxy.url(),
            _ => format!("http://{}:{}", proxy.host, proxy.port),
        };
        // A host without addresses in place of one that is no URL: there is no way around the proxy.
        let invalid = |_| Uri::from_static("http://proxy.invalid");
        Self {
            proxy: proxy.clone(),
            uri: url.parse().unwrap_or_else(invalid),
        }
    }

    /// True if the proxy resolves the name of this URL.
    pub(super) fn resolves(&self, uri: &Uri) -> bool {
        *uri != self.uri && self.proxy.scheme != Scheme::Socks5
    }

    fn failure(&self, why: &str, is_final: bool) -> ureq::Error {
        let why = format!("{} {why}", self.proxy);
        ureq::Error::Other(Box::new(ProxyFailure { why, is_final }))
    }

    /// The header of the login, with its end; empty without one.
    fn login_line(&self) -> String {
        match self.proxy.credentials() {
            login if login.is_empty() => login,
            login => format!("Proxy-Authorization: {login}\r\n"),
        }
    }

    /// Asks for a tunnel.
    fn connect(
        &self,
        mut stream: impl Read + Write,
        host: &Host,
        port: u16,
    ) -> Result<(), ureq::Error> {
        let credentials = self.login_line();
        write!(
            stream,
            "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{credentials}\r\n"
        )?;
        stream.flush()?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_LIMIT && stream.read(&mut byte)? > 0
        {
            head.push(byte[0]);
        }
        match tunnel_status(&head) {
            Some(status) if status.starts_with('2') => Ok(()),
            Some(status) => {
                let passes = ["408", "425", "429"].contains(&status) || !status.starts_with('4');
                Err(self.failure(
                    &format!("answers {status} to CONNECT {host}:{port}"),
                    !passes,
                ))
            }
            None => Err(self.failure("does not answer as an HTTP proxy", false)),
        }
    }

    /// Has a SOCKS5 proxy connect.
    fn talk(
        &self,
        mut stream: impl Read + Write,
        host: &Host,
        port: u16,
    ) -> Result<(), ureq::Error> {
        let mut socks = Socks5::new(&self.proxy, host, port);
        let mut read = Vec::new();
        loop {
            let step = socks.advance(&read);
            let step =
                step.map_err(|SocksRefusal { why, is_final }| self.failure(why, is_final))?;
            stream.write_all(&step.send)?;
            stream.flush()?;
            if step.expected == 0 {
                return Ok(());
            }
            read.resize(step.expected, 0);
            stream.read_exact(&mut read)?;
        }
    }
}

/// The reason why a proxy did not connect; for some reasons no other attempt would succeed.
#[derive(Debug)]
pub(super) struct ProxyFailure {
    pub why: String,
    pub is_final: bool,
}

impl fmt::Display for ProxyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ProxyFailure {}

/// The reason of a failure, in words.
pub(crate) fn failure_reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => reason(error),
        ureq::Error::Other(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Connects through the proxy, if there is one.
#[derive(Debug)]
pub(super) struct Proxied {
    pub(super) way: Option<Way>,
    pub(super) link: Arc<Link>,
}

impl Connector for Proxied {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(way) = self.way.as_ref().filter(|way| way.uri != *details.uri) else {
            return Ok(None);
        };
        let named = |error| match error {
            ureq::Error::Timeout(_) | ureq::Error::Other(_) => error,
            other => way.failure(&format!("fails: {}", failure_reason(&other)), false),
        };
        let to_proxy = ConnectionDetails {
            uri: &way.uri,
            addrs: details
                .resolver
                .resolve(&way.uri, details.config, details.timeout)
                .map_err(named)?,
            current_time: Arc::clone(&details.current_time),
            run_connector: Arc::clone(&details.run_connector),
            register_shutdown: Arc::clone(&details.register_shutdown),
            ..*details
        };
        let mut stream = TransportAdapter::new(
            (details.run_connector)(&to_proxy).map_err(named)?,
            Arc::clone(&details.current_time),
        );
        stream.set_timeout(details.timeout);
        let is_tls = details.needs_tls();
        let port = details
            .uri
            .port_u16()
            .unwrap_or(if is_tls { 443 } else { 80 });
        let name = details.uri.host().unwrap_or_default();
        let host = Host::parse(name).unwrap_or_else(|| Host::Name(name.to_owned()));
        let mut origin = None;
        let done = match way.proxy.scheme {
            Scheme::Socks5 => {
                let address = details.addrs.first().ok_or(ureq::Error::HostNotFound)?;
                way.talk(&mut stream, &Host::Address(address.ip()), port)
            }
            Scheme::Socks5h => way.talk(&mut stream, &host, port),
            Scheme::Http | Scheme::Https if is_tls => way.connect(&mut stream, &host, port),
            Scheme::Http | Scheme::Https => {
                let authority = details.uri.authority().map_or("", |it| it.as_str());
                origin = Some((format!("http://{authority}"), way.login_line()));
                Ok(())
            }
        };
        done.map_err(named)?;
        // That was no request.
        self.link.sent.store(false, Ordering::Relaxed);
        self.link.heard.store(false, Ordering::Relaxed);
        Ok(Some(Box::new(ProxiedConnection {
            inner: stream.into_inner(),
            origin,
            begins: true,
        })))
    }
}

/// A connection through a proxy. TLS to the proxy is not TLS to the server.
#[derive(Debug)]
struct ProxiedConnection {
    inner: Box<dyn Transport>,
    /// The beginning of requests to the proxy itself, before their path, and their login.
    origin: Option<(String, String)>,
    /// True if the next bytes begin a request.
    begins: bool,
}

/// The first bytes of a request, in absolute form (RFC 9112, section 3.2.2).
fn in_absolute_form(head: &[u8], origin: &str, login: &str) -> Vec<u8> {
    let method = memchr::memchr(b' ', head).map_or(0, |at| at + 1);
    let line = memchr::memmem::find(head, b"\r\n").map_or(head.len(), |at| at + 2);
    let (method, path, rest) = (&head[..method], &head[method..line], &head[line..]);
    [method, origin.as_bytes(), path, login.as_bytes(), rest].concat()
}

impl Transport for ProxiedConnection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        let (Some((origin, login)), true) = (&self.origin, self.begins) else {
            return self.inner.transmit_output(amount, timeout);
        };
        let head = in_absolute_form(&self.inner.buffers().output()[..amount], origin, login);
        self.begins = false;
        let mut rest = &head[..];
        while !rest.is_empty() {
            let output = self.inner.buffers().output();
            let amount = rest.len().min(output.len());
            output[..amount].copy_from_slice(&rest[..amount]);
            self.inner.transmit_output(amount, timeout)?;
            rest = &rest[amount..];
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.begins = true;
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }
}
