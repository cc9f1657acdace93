//! The proxy of a command with doors: every connection that the command makes, in one process that waits for all.
//!
//! Unaware of the command. It is at work only while its caller waits for something else.

use super::connection::{Desk, ProxiedConnection, Ready};
use super::door::Door;
use super::inside;
use super::log::ConnectionLog;
use super::upstream::Upstreams;
use crate::unix::terminal::Screen;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The most connections at once; more wait until one of these ends, or asks for nothing and loses its place.
const MOST_CONNECTIONS: usize = 256;

/// The most processes that look up names at once.
const MOST_LOOKUPS: usize = 8;

/// The most connections that are taken before others, and signals, get their turn.
const MOST_ACCEPTED: usize = 64;

/// The bytes that are passed on at once.
const PIECE: usize = 64 << 10;

/// After a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// The doors of a command, and what its connections need.
pub(crate) struct ProxyPlan {
    pub doors: Vec<Door>,
    /// The file in which each connection is recorded.
    pub log: Option<File>,
    pub upstreams: Upstreams,
    /// The command that prints the addresses of the name after it, one a line.
    pub resolver: Vec<String>,
}

pub(crate) struct Proxy {
    listener: TcpListener,
    connections: Vec<ProxiedConnection>,
    desk: Desk,
    /// Nothing is accepted before: descriptors were lacking.
    paused: Option<Instant>,
}

impl Proxy {
    /// The proxy for the inner end that the command's process hands over; none if it does not.
    pub(crate) fn start(plan: ProxyPlan, command: &UnixStream) -> Option<Self> {
        let listener = inside::receive(command)?;
        let desk = Desk {
            doors: plan.doors,
            upstreams: plan.upstreams,
            resolver: plan.resolver,
            now: Instant::now(),
            free_lookups: MOST_LOOKUPS,
            log: ConnectionLog::new(plan.log),
            say: Box::new(say),
            said: HashSet::new(),
            scratch: vec![0; PIECE],
        };
        Some(Self {
            listener,
            connections: Vec::new(),
            desk,
            paused: None,
        })
    }

    /// Serves the command until something else can be read.
    pub(crate) fn serve_until(&mut self, other: BorrowedFd<'_>) {
        loop {
            let (is_woken, is_called, ready) = self.wait(other);
            if is_woken {
                return;
            }
            let now = Instant::now();
            self.desk.now = now;
            let lookups = self.connections.iter().filter(|it| it.is_lookup()).count();
            self.desk.free_lookups = MOST_LOOKUPS.saturating_sub(lookups);
            for (connection, (client, other)) in self.connections.iter_mut().zip(ready) {
                connection.advance(Ready { client, other }, &mut self.desk);
            }
            for mut ended in self.connections.extract_if(.., |it| it.has_ended()) {
                ended.record_end(&mut self.desk);
            }
            self.paused = self.paused.filter(|until| *until > now);
            if is_called {
                self.accept(now);
            }
        }
    }

    /// Waits. Returns whether the other thing and the listener can be read, and what has happened to each connection.
    fn wait(&self, other: BorrowedFd<'_>) -> (bool, bool, Vec<(PollFlags, PollFlags)>) {
        let accepts = self.paused.is_none() && self.has_room(Instant::now());
        let listens = if accepts {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(other, PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), listens),
        ];
        let mut has_other = Vec::with_capacity(self.connections.len());
        for connection in &self.connections {
            let (client, other) = connection.interest();
            fds.push(PollFd::from_borrowed_fd(connection.socket(), client));
            fds.extend(other.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            has_other.push(other.is_some());
        }
        let timeout = self.timeout();
        // A wait that fails is tried again: nothing is ready then.
        let many = poll(&mut fds, timeout.as_ref()).unwrap_or(0);
        let mut events = fds.iter().map(|fd| match many {
            0 => PollFlags::empty(),
            _ => fd.revents(),
        });
        let is_woken = events.next().is_some_and(|it| !it.is_empty());
        let is_called = events.next().is_some_and(|it| it.contains(PollFlags::IN));
        let none = PollFlags::empty();
        let ready = has_other
            .into_iter()
            .map(|has_other| {
                let client = events.next().unwrap_or(none);
                let other = has_other.then(|| events.next()).flatten();
                (client, other.unwrap_or(none))
            })
            .collect();
        (is_woken, is_called, ready)
    }

    /// Until the next stage of a connection has taken too long, or a lookup can begin.
    fn timeout(&self) -> Option<Timespec> {
        let lookups = self.connections.iter().filter(|it| it.is_lookup()).count();
        let is_queued = self.connections.iter().any(ProxiedConnection::is_queued);
        if is_queued && lookups < MOST_LOOKUPS {
            return Some(Timespec::default());
        }
        let deadlines = self
            .connections
            .iter()
            .filter_map(ProxiedConnection::deadline);
        let now = Instant::now();
        let is_full = self.connections.len() >= MOST_CONNECTIONS;
        let places = self
            .connections
            .iter()
            .filter(|_| is_full)
            .filter_map(ProxiedConnection::replaceable)
            .filter(|place| *place > now);
        let next = deadlines.chain(self.paused).chain(places).min()?;
        let left = next.saturating_duration_since(now);
        // Not a moment too early.
        Timespec::try_from(left + Duration::from_millis(1)).ok()
    }

    /// True if another connection can be served, perhaps in place of one that has not asked for anything.
    fn has_room(&self, now: Instant) -> bool {
        self.connections.len() < MOST_CONNECTIONS || self.oldest_silent(now).is_some()
    }

    fn oldest_silent(&self, now: Instant) -> Option<usize> {
        let is_silent = |it: &ProxiedConnection| it.replaceable().is_some_and(|place| place <= now);
        self.connections.iter().position(is_silent)
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..MOST_ACCEPTED {
            if !self.has_room(now) {
                return;
            }
            match self.listener.accept() {
                Ok((socket, _)) => {
                    if self.connections.len() >= MOST_CONNECTIONS
                        && let Some(oldest) = self.oldest_silent(now)
                    {
                        self.connections.remove(oldest);
                    }
                    self.connections.push(ProxiedConnection::new(socket, now));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.paused = Some(now + PAUSE);
                    return;
                }
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for connection in &mut self.connections {
            connection.record_end(&mut self.desk);
        }
    }
}

/// Prints a remark, unless that would block.
fn say(text: &str) {
    let stderr = rustix::stdio::stderr();
    let mut fds = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let is_free = poll(&mut fds, Some(&Timespec::default())).is_ok_and(|many| many > 0);
    if is_free && fds[0].revents().contains(PollFlags::OUT) {
        Screen::new(false, false).warn(&format!("sandbox: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    fn proxy() -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        rustix::net::listen(&listener, 4096).unwrap();
        listener.set_nonblocking(true).unwrap();
        let desk = Desk {
            doors: vec![Door::parse("a.test").unwrap()],
            upstreams: Upstreams::default(),
            resolver: Vec::new(),
            now: Instant::now(),
            free_lookups: 0,
            log: ConnectionLog::default(),
            say: Box::new(|_| ()),
            said: HashSet::new(),
            scratch: vec![0; PIECE],
        };
        Proxy {
            listener,
            connections: Vec::new(),
            desk,
            paused: None,
        }
    }

    fn clients(proxy: &Proxy, many: usize) -> Vec<TcpStream> {
        let place = proxy.listener.local_addr().unwrap();
        let clients = (0..many).map(|_| TcpStream::connect(place).unwrap());
        clients.collect()
    }

    /// Waits until there is something to read or to accept.
    fn wait_for(socket: &impl AsFd) {
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
    }

    #[test]
    fn a_crowd_of_newcomers_leaves_others_their_turn() {
        let mut proxy = proxy();
        let _clients = clients(&proxy, MOST_ACCEPTED + 1);
        wait_for(&proxy.listener);
        proxy.accept(Instant::now());
        assert!((1..=MOST_ACCEPTED).contains(&proxy.connections.len()));
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_that_asks_for_nothing() {
        let mut proxy = proxy();
        let mut clients = clients(&proxy, MOST_CONNECTIONS + 1);
        let now = Instant::now();
        while proxy.connections.len() < MOST_CONNECTIONS {
            wait_for(&proxy.listener);
            proxy.accept(now);
        }
        assert_eq!(proxy.connections.len(), MOST_CONNECTIONS);
        // It waits until the others have had time to ask.
        assert!(proxy.timeout().is_some_and(|it| it.tv_sec == 0));
        let is_closed = |client: &mut TcpStream| {
            client.set_nonblocking(true).unwrap();
            client.read(&mut [0; 8]).is_ok_and(|read| read == 0)
        };
        assert!(!clients.iter_mut().any(is_closed));
        // The oldest of all has asked, and waits for a lookup.
        (clients[0].write_all(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n")).unwrap();
        let asked = &mut proxy.connections[0];
        wait_for(&asked.socket());
        let (client, other) = (PollFlags::IN, PollFlags::empty());
        asked.advance(Ready { client, other }, &mut proxy.desk);
        wait_for(&proxy.listener);
        proxy.accept(now + Duration::from_secs(1));
        assert_eq!(proxy.connections.len(), MOST_CONNECTIONS);
        assert!(proxy.connections[0].is_queued());
        wait_for(&clients[1]);
        let closed: Vec<usize> = (0..clients.len())
            .filter(|index| is_closed(&mut clients[*index]))
            .collect();
        assert_eq!(closed, [1]);
    }
}
