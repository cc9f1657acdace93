//! One child process: its state, from its start to the end of its process group.
//!
//! Unaware of other children and of waiting.

use super::{Ended, GIVE_UP, TICK, Token, Used};
use crate::unix::session_leader::SessionLeader;
use crate::unix::{procfs, signals};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Instant;

/// The state of a child.
pub(super) enum Phase {
    Running,
    /// SIGTERM has been sent; SIGKILL follows at `kill_at`.
    Ending {
        why: Why,
        kill_at: Instant,
        /// The time at which SIGKILL was sent first: a busy machine may be late.
        killed_at: Option<Instant>,
    },
}

/// The reason why a child is ended.
#[derive(Clone, Copy)]
pub(super) enum Why {
    TimedOut,
    Interrupted,
}

/// A process that has been started.
pub(super) enum Started {
    /// In a session of its own.
    InSession(SessionLeader),
    /// In a process group of its own; the kernel is asked for its use of resources.
    Measured(Child),
}

impl Started {
    pub(crate) fn pid(&self) -> Option<Pid> {
        match self {
            Self::InSession(leader) => Some(leader.pid()),
            Self::Measured(child) => Pid::from_raw(child.id().cast_signed()),
        }
    }
}

/// A child whose end has not been reported.
pub(super) struct Running {
    pub token: Token,
    pub child: Started,
    pub group: Option<Pid>,
    pub call_id: String,
    pub started: Instant,
    pub deadline: Option<Instant>,
    pub phase: Phase,
    pub status: Option<ExitStatus>,
    pub used: Option<Used>,
    /// Becomes readable when the child ends. While it is there, the child need not be asked.
    pub pidfd: Option<OwnedFd>,
}

/// The processes of each of several children.
pub(super) fn members(children: &[(Option<Pid>, &str)]) -> Vec<Vec<Pid>> {
    match children {
        [] => Vec::new(),
        children => procfs::find_processes(children),
    }
}

impl Running {
    /// Looks whether it has ended.
    pub(crate) fn poll_status(&mut self) -> io::Result<()> {
        if self.status.is_none() && self.pidfd.is_none() {
            (self.status, self.used) = match &mut self.child {
                Started::InSession(leader) => (leader.try_wait()?, None),
                Started::Measured(child) => waited(child)?,
            };
        }
        Ok(())
    }

    /// True if its time is over and it has not been ended yet.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let is_running = matches!(self.phase, Phase::Running);
        is_running && self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Brings SIGKILL forward to now.
    pub(crate) fn hurry(&mut self, now: Instant) {
        if let Phase::Ending { kill_at, .. } = &mut self.phase {
            *kill_at = now.min(*kill_at);
        }
    }

    /// True if its processes must be examined now: the child has ended, or must be ended.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Running => false,
            Phase::Ending { kill_at, .. } => self.status.is_some() || now >= kill_at,
        }
    }

    /// The way it has ended, if it has; kills what is left of it if it must. `members` are its processes, if
    /// it is due.
    pub(crate) fn advance(&mut self, now: Instant, members: &[Pid]) -> Option<Ended> {
        let is_due = self.is_due(now);
        let Phase::Ending {
            why,
            kill_at,
            killed_at,
        } = &mut self.phase
        else {
            return self.status.map(|status| Ended::Exited(exit_code(status)));
        };
        if !is_due {
            return None;
        }
        let given_up = killed_at.is_some_and(|killed_at| now >= killed_at + GIVE_UP);
        if (self.status.is_some() && members.is_empty()) || given_up {
            let code = self.status.map_or(137, exit_code);
            return Some(match why {
                Why::TimedOut => Ended::TimedOut,
                Why::Interrupted => Ended::Interrupted(code),
            });
        }
        if now >= *kill_at {
            killed_at.get_or_insert(now);
            signals::signal_all(self.own_group(), members, Signal::KILL);
        }
        None
    }

    /// The child's process group. Once the leader has been waited for, the number may be another process's.
    pub(crate) fn own_group(&self) -> Option<Pid> {
        self.group.filter(|_| self.status.is_none())
    }

    /// The time at which this child must be looked at again even if nothing wakes us. Its own end does.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.deadline,
            Phase::Ending { .. } if self.is_due(now) => Some(now + TICK),
            Phase::Ending { kill_at, .. } => Some(kill_at),
        }
    }
}

/// The end of a child, if it has come, and what it used.
#[cfg(feature = "flow")]
fn waited(child: &mut Child) -> io::Result<(Option<ExitStatus>, Option<Used>)> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use wait4::Wait4;
    let pid = Pid::from_raw(child.id().cast_signed());
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if let Some(pid) = pid
        && waitid(WaitId::Pid(pid), look)?.is_none()
    {
        return Ok((None, None));
    }
    // It has ended, so that this does not block.
    let ended = child.wait4()?;
    let used = Used {
        cpu: ended.rusage.utime + ended.rusage.stime,
        memory: ended.rusage.maxrss,
    };
    Ok((Some(ended.status), Some(used)))
}

/// The end of a child, if it has come.
#[cfg(not(feature = "flow"))]
fn waited(child: &mut Child) -> io::Result<(Option<ExitStatus>, Option<Used>)> {
    Ok((child.try_wait()?, None))
}

/// The exit code a shell would give: 128+n for signal n.
fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
