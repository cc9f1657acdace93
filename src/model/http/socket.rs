//! The socket: every wait ends when a signal comes, and a connection that has gone stale is seen.

use crate::unix::signals::Signals;
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

/// State shared by the sockets and their owner.
pub(super) struct Link {
    pub(super) signals: Arc<Signals>,
    /// Connections opened so far.
    pub(super) opened: AtomicUsize,
    /// Something has come back since the request was begun.
    pub(super) heard: AtomicBool,
    /// True once a part of a request has left: a connection that was refused, a name that was not
    /// found and a failed handshake have sent none.
    pub(super) sent: AtomicBool,
    /// The longest silence while something is waited for, in milliseconds; 0: any.
    pub(super) silence: AtomicU64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

/// Opens TCP connections.
#[derive(Debug)]
pub(super) struct Socket(pub(super) Arc<Link>);

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
                        link: Arc::clone(&self.0),
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

impl Link {
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
pub(super) struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
    link: Arc<Link>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// The end of the wait that begins now.
    fn deadline(&self, timeout: &NextTimeout) -> Option<Instant> {
        let silence = self.link.silence.load(Ordering::Relaxed);
        let silence = (silence > 0).then(|| Duration::from_millis(silence));
        let whole = timeout.not_zero().map(|time| *time);
        silence
            .into_iter()
            .chain(whole)
            .min()
            .map(|time| Instant::now() + time)
    }
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
        let until = self.deadline(&timeout);
        let output = &self.buffers.output()[..amount];
        let mut sent = 0;
        while sent < output.len() {
            match (&self.stream).write(&output[sent..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self
                    .link
                    .wait(&self.stream, PollFlags::OUT, until)
                    .map_err(|e| with_reason(e, &timeout))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let until = self.deadline(&timeout);
        loop {
            match (&self.stream).read(self.buffers.input_append_buf()) {
                Ok(n) => {
                    if n > 0 {
                        self.link.heard.store(true, Ordering::Relaxed);
                    }
                    self.buffers.input_appended(n);
                    return Ok(n > 0);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self
                    .link
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

/// Notes that a request is sent, above the encryption.
#[derive(Debug)]
pub(super) struct SendWatch(pub(super) Arc<Link>);

impl<In: Transport> Connector<In> for SendWatch {
    type Out = Watched<In>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let link = Arc::clone(&self.0);
        Ok(chained.map(|inner| Watched { inner, link }))
    }
}

/// A connection whose requests are noted.
#[derive(Debug)]
pub(super) struct Watched<In> {
    inner: In,
    link: Arc<Link>,
}

impl<In: Transport> Transport for Watched<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.inner.transmit_output(amount, timeout)?;
        self.link.sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
