//! Looking up a name. The system's resolver blocks, so a process of its own asks it.

use super::door::Host;
use crate::error::ignore;
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, Read};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

/// More than the addresses of any name that will be tried.
const LIST_BYTES: usize = 16 << 10;

/// A process that prints the addresses of a name, one a line. It ends with this.
pub(super) struct NameLookup {
    child: Child,
    printed: Vec<u8>,
}

impl NameLookup {
    /// Starts the command that prints the addresses of the name after it.
    pub(super) fn start(command: &[String], host: &Host) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).arg(host.to_string());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.stdout(Stdio::piped()).spawn()?;
        let printed = Vec::new();
        Ok(Self { child, printed })
    }

    /// The descriptor that can be read when there is more.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.child.stdout.as_ref().map(AsFd::as_fd)
    }

    /// Reads more. Returns the addresses once all are there.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> Option<Vec<IpAddr>> {
        let output = self.child.stdout.as_mut();
        let read = output.map_or(Ok(0), |output| output.read(scratch));
        if let Ok(many @ 1..) = read
            && self.printed.len() < LIST_BYTES
        {
            self.printed.extend(&scratch[..many]);
            return None;
        }
        let text = String::from_utf8_lossy(&self.printed);
        let found = text.lines().filter_map(|line| line.parse::<IpAddr>().ok());
        Some(found.map(|address| address.to_canonical()).collect())
    }
}

impl Drop for NameLookup {
    fn drop(&mut self) {
        // The supervisor has waited for one that has ended.
        if let Ok(None) = self.child.try_wait() {
            ignore(self.child.kill());
            ignore(self.child.wait());
        }
    }
}
