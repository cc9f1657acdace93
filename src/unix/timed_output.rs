//! Writing to stdout without waiting for its reader longer than a given time.
//!
//! Unaware of what is written. stdout is left as it is: its flags are shared with other processes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Bytes that a pipe, a socket or a terminal takes at once when it is ready: `PIPE_BUF`.
pub(crate) const READY_BYTES: usize = 4096;

/// Writes all of it.
///
/// # Errors
/// The system's; `TimedOut` if the reader has not taken it within the time. A part may have been written.
pub(crate) fn write_in_time(mut bytes: &[u8], time: Duration) -> io::Result<()> {
    let (stdout, until) = (rustix::stdio::stdout(), Instant::now() + time);
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(stdout, PollFlags::OUT)];
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        match rustix::io::write(stdout, &bytes[..bytes.len().min(READY_BYTES)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
