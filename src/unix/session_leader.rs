//! Programs that lead sessions of their own, without a controlling terminal, and what they leave to the first process of a
//! container.
//!
//! Unaware of waiting for several. A child that is forked does nothing but become its program: `fork` is sound without
//! threads, and those of the tests hold nothing that this needs.

use super::procfs::{ProcessStat, numbers_in};
use crate::error::ignore;
use fork::{Fork, fork};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, setsid, waitid, waitpid};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The leaders that this process started and has not let go.
static STARTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn started() -> MutexGuard<'static, BTreeSet<i32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that leads a session, and thereby a process group.
pub(crate) struct SessionLeader(Pid);

impl SessionLeader {
    /// Starts a program. An open of `/dev/tty` fails in it: it cannot be stopped for using a terminal in the background.
    ///
    /// # Errors
    /// The system's, also that of the exec in the child.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let (mut failure, mut report) = io::pipe()?;
        let Fork::Parent(number) = fork()? else {
            let error = setsid().map_or_else(io::Error::from, |_| command.exec());
            let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
            ignore(report.write_all(&errno.to_ne_bytes()));
            signal_hook::low_level::exit(127);
        };
        drop(report);
        let pid = Pid::from_raw(number).ok_or(Errno::SRCH)?;
        let mut errno = [0; 4];
        if failure.read_exact(&mut errno).is_ok() {
            ignore(waitpid(Some(pid), WaitOptions::empty()));
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)));
        }
        started().insert(number);
        Ok(Self(pid))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.0
    }

    /// The way it ended, if it has. Not to be called again after that.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        let ended = waitpid(Some(self.0), WaitOptions::NOHANG)?;
        Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}

impl Drop for SessionLeader {
    fn drop(&mut self) {
        started().remove(&self.0.as_raw_pid());
    }
}

/// Waits for processes that have ended and that others left to this one, if it is the first of a system or container.
pub(crate) fn reap_adopted() {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if !getpid().is_init() || !matches!(waitid(WaitId::All, look), Ok(Some(_))) {
        return;
    }
    let Some(own) = ProcessStat::read("self") else {
        return;
    };
    for number in numbers_in("/proc") {
        let is_child = |stat: &ProcessStat| stat.parent == 1 && stat.has_ended;
        let Some(ended) = ProcessStat::read(number).filter(is_child) else {
            continue;
        };
        // This process starts leaders of sessions and of process groups, and members of its own group.
        let is_own = ended.session == own.session && [number, own.group].contains(&ended.group);
        if !is_own && !started().contains(&number) {
            ignore(waitpid(Pid::from_raw(number), WaitOptions::NOHANG));
        }
    }
}
