//! Bytes between a client and a server. They stay in the kernel's buffers until the other end takes them, so that a
//! connection needs no memory.
//!
//! Unaware of what the bytes mean, but for where the body of a plain request ends.

use super::body::Body;
use crate::error::ignore;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// Rounds in which one direction is served before others get their turn.
const ROUNDS: u32 = 16;

/// Two connections that are one.
pub(super) struct Relay {
    server: OwnedFd,
    /// The bytes that the server gets first.
    head: Vec<u8>,
    /// None: everything is passed on, in both directions.
    body: Option<Body>,
    up: Direction,
    down: Direction,
}

#[derive(Default)]
struct Direction {
    /// Nothing more comes, or is taken.
    is_over: bool,
    /// The receiver takes no more for now.
    is_blocked: bool,
    bytes: u64,
}

/// The reason why a direction cannot go on.
#[derive(PartialEq)]
enum CutOff {
    /// One of the ends.
    Gone,
    /// The client's body is malformed.
    Garbled,
}

impl Relay {
    pub(super) fn tunnel(server: OwnedFd) -> Self {
        Self {
            server,
            head: Vec::new(),
            body: None,
            up: Direction::default(),
            down: Direction::default(),
        }
    }

    pub(super) fn of_request(server: OwnedFd, head: Vec<u8>, body: Body) -> Self {
        Self {
            head,
            body: Some(body),
            ..Self::tunnel(server)
        }
    }

    /// The events that are waited for at the client and at the server.
    pub(super) fn interest(&self) -> (PollFlags, Option<(BorrowedFd<'_>, PollFlags)>) {
        let flags = |from: &Direction, to: &Direction| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !from.is_over && !from.is_blocked);
            flags.set(PollFlags::OUT, !to.is_over && to.is_blocked);
            flags
        };
        let server = flags(&self.down, &self.up);
        let server = (!server.is_empty()).then(|| (self.server.as_fd(), server));
        (flags(&self.up, &self.down), server)
    }

    /// Passes on what there is. False: the connection is over.
    pub(super) fn pass(&mut self, client: impl AsFd, scratch: &mut [u8]) -> bool {
        let (client, server) = (client.as_fd(), self.server.as_fd());
        let (body, head) = (self.body.as_mut(), &mut self.head);
        let up = self.up.pass(client, server, (head, body), scratch);
        // A server may answer before it has read everything, and end.
        self.up.is_over |= up.is_err();
        let down = self
            .down
            .pass(server, client, (&mut Vec::new(), None), scratch);
        let is_done = self.up.is_over && self.down.is_over && self.body.is_none();
        down.is_ok() && up != Err(CutOff::Garbled) && !is_done
    }

    /// Bytes to the server, and from it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.up.bytes, self.down.bytes)
    }

    /// True once a plain request has its whole answer.
    pub(super) fn is_answered(&self) -> bool {
        self.body.is_some() && self.down.is_over
    }

    /// True for a tunnel in which the server has ended.
    pub(super) fn is_half_open(&self) -> bool {
        self.down.is_over
    }
}

impl Direction {
    /// Passes on first what is in `first`, then what the sender sends, as far as it belongs to the body.
    fn pass(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        (first, mut body): (&mut Vec<u8>, Option<&mut Body>),
        scratch: &mut [u8],
    ) -> Result<(), CutOff> {
        self.is_blocked = false;
        while !self.is_over && !first.is_empty() {
            let sent = self.send(to, first)?;
            first.drain(..sent);
            if self.is_blocked {
                return Ok(());
            }
        }
        for _ in 0..ROUNDS {
            self.is_over |= body.as_ref().is_some_and(|body| body.is_over());
            if self.is_over || self.is_blocked {
                break;
            }
            let there = match recv(from, &mut *scratch, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((there, _)) => there,
                Err(Errno::AGAIN) => break,
                Err(_) => return Err(CutOff::Gone),
            };
            if there == 0 {
                ignore(shutdown(to, Shutdown::Write));
                self.is_over = true;
                break;
            }
            let belongs = body
                .as_ref()
                .map_or(there, |body| body.measure(&scratch[..there]));
            if belongs == 0 {
                return Err(CutOff::Garbled);
            }
            let sent = self.send(to, &scratch[..belongs])?;
            if let Some(body) = &mut body {
                body.advance(&scratch[..sent]);
            }
            // Discards what has been sent, without a copy (tcp(7)).
            let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
            if sent > 0 && recv(from, &mut scratch[..sent], flags).is_err() {
                return Err(CutOff::Gone);
            }
        }
        Ok(())
    }

    /// Sends what the receiver takes, and notes if that is not all.
    fn send(&mut self, to: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, CutOff> {
        let sent = match send(to, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(_) => return Err(CutOff::Gone),
        };
        self.bytes += sent as u64;
        self.is_blocked = sent < bytes.len();
        Ok(sent)
    }
}
