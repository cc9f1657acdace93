//! A terminal with a person at it.

use super::system::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

/// Both ends of a pseudo-terminal, so that neither sees the other hang up.
pub struct Terminal {
    person: File,
    program: File,
    seen: Vec<u8>,
}

impl Terminal {
    pub fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).expect("a terminal");
        grantpt(&person).expect("grantpt");
        unlockpt(&person).expect("unlockpt");
        let name = ptsname(&person, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = rustix::fs::open(name, flags, Mode::empty()).expect("its other end");
        Self {
            person: person.into(),
            program: program.into(),
            seen: Vec::new(),
        }
    }

    pub fn user(&self) -> File {
        self.program.try_clone().expect("a second handle")
    }

    /// How many lines and columns it has.
    pub fn resize(&self, lines: u16, columns: u16) {
        let size = rustix::termios::Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&self.person, size).expect("a size");
    }

    /// Waits for more to be written, and returns it as it is.
    #[cfg(feature = "flow")]
    #[track_caller]
    pub fn more(&mut self) -> String {
        let timeout = Timespec::try_from(PATIENCE / 2).expect("a timeout");
        let mut set = [PollFd::new(&self.person, PollFlags::IN)];
        let ready = poll(&mut set, Some(&timeout)).expect("poll");
        assert!(ready > 0, "nothing more was written to the screen");
        let mut some = [0; 1024];
        let read = self.person.read(&mut some).expect("the screen");
        self.seen.extend(&some[..read]);
        self.rest()
    }

    /// What has been written and not been looked at, up to the last whole character.
    pub fn rest(&mut self) -> String {
        let mut set = [PollFd::new(&self.person, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        while poll(&mut set, Some(&now)).expect("poll") > 0 {
            let mut some = [0; 1024];
            let read = (&self.person).read(&mut some).expect("the screen");
            self.seen.extend(&some[..read]);
        }
        let whole = match std::str::from_utf8(&self.seen) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.seen.split_off(whole);
        let text = std::mem::replace(&mut self.seen, rest);
        String::from_utf8(text).expect("text")
    }

    /// Whether it shows what is typed.
    pub fn has_echo(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.program).expect("its modes");
        modes
            .local_modes
            .contains(rustix::termios::LocalModes::ECHO)
    }

    pub fn types(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).expect("it types");
    }

    /// Waits until these words stand on the screen behind what was seen before; returns everything up
    /// to their end.
    #[track_caller]
    pub fn shows(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE / 2;
        loop {
            let text = String::from_utf8_lossy(&self.seen).into_owned();
            if let Some(at) = text.find(words) {
                let end = at + words.len();
                self.seen = text[end..].into();
                return text[..end].replace("\r\n", "\n");
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).expect("a timeout");
            let mut set = [PollFd::new(&self.person, PollFlags::IN)];
            let ready = poll(&mut set, Some(&timeout)).expect("poll");
            assert!(ready > 0, "the screen never showed {words:?}:\n{text}");
            let mut some = [0; 1024];
            let read = self.person.read(&mut some).expect("the screen");
            self.seen.extend(&some[..read]);
        }
    }
}
