//! Lines from and to other processes, without waiting for any of them.

use crate::text::disguise::printable_json;
use crate::unix::timed_output::READY_BYTES;
use memchr::memchr;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;

/// Longest line of a client or of a run, in bytes.
const LONGEST: usize = 64 << 20;

/// Bytes of lines that are incomplete.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    unread: Vec<u8>,
    /// Bytes of it that are known to hold no newline.
    searched: usize,
    /// The line that is arriving is too long and is skipped.
    is_skipping: bool,
    has_ended: bool,
}

/// A line, or the lack of one.
pub(super) enum Read {
    Line(Vec<u8>),
    /// The beginning of a line.
    TooLong(Vec<u8>),
}

/// Bytes that are kept of a line that is too long.
const KEPT: usize = 64 << 10;

impl LineBuffer {
    /// Reads once. The descriptor is ready, or does not block.
    pub(super) fn fill(&mut self, from: impl AsFd) -> io::Result<()> {
        let mut buffer = [0; 1 << 14];
        match rustix::io::read(from, &mut buffer) {
            Ok(0) => self.has_ended = true,
            Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Nothing more comes.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The next whole line, without its end; at the end of all also one without.
    pub(super) fn next(&mut self) -> Option<Read> {
        loop {
            let Some(at) = memchr(b'\n', &self.unread[self.searched..]) else {
                self.searched = self.unread.len();
                if self.has_ended && !self.unread.is_empty() && !self.is_skipping {
                    self.searched = 0;
                    return Some(Read::Line(std::mem::take(&mut self.unread)));
                }
                if self.unread.len() <= LONGEST {
                    return None;
                }
                let mut head = std::mem::take(&mut self.unread);
                head.truncate(KEPT);
                self.searched = 0;
                let was_skipping = std::mem::replace(&mut self.is_skipping, true);
                return (!was_skipping).then_some(Read::TooLong(head));
            };
            let rest = self.unread.split_off(self.searched + at + 1);
            let mut line = std::mem::replace(&mut self.unread, rest);
            self.searched = 0;
            line.pop();
            if !std::mem::take(&mut self.is_skipping) {
                return Some(Read::Line(line));
            }
        }
    }
}

/// Bytes that the client has not read yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pending: VecDeque<u8>,
}

impl Outbox {
    pub(super) fn add(&mut self, message: &serde_json::Value) {
        let line = printable_json(&message.to_string());
        self.pending.extend(line.into_bytes());
        self.pending.push_back(b'\n');
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Writes as much as stdout takes at once when it is ready.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let (first, _) = self.pending.as_slices();
        let piece = &first[..first.len().min(READY_BYTES)];
        match rustix::io::write(rustix::stdio::stdout(), piece) {
            Ok(written) => drop(self.pending.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                // The client is gone.
                self.pending.clear();
                return Err(errno.into());
            }
        }
        if self.pending.is_empty() {
            self.pending.shrink_to_fit();
        }
        Ok(())
    }
}
