//! Processes that a command has left and that hold a terminal which it was started with: they could read what is typed
//! there next.
//!
//! Unaware of why the command ended.

use super::devices::is_terminal;
use super::procfs::{descendants, numbers_in};
use super::signals::signal_all;
use crate::error::ignore;
use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, wait};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time of the processes after SIGHUP, which a terminal sends that goes away, and after SIGKILL.
const GRACE: Duration = Duration::from_millis(200);
const GIVE_UP: Duration = Duration::from_secs(5);

const TICK: Duration = Duration::from_millis(10);

/// The terminals that this process has open, by their numbers.
pub(crate) struct Terminals(Vec<u64>);

impl Terminals {
    pub(crate) fn inherited() -> Self {
        let open = numbers_in("/proc/self/fd")
            .into_iter()
            .filter_map(|fd| fs::metadata(format!("/proc/self/fd/{fd}")).ok());
        Self(open.filter(is_terminal).map(|meta| meta.rdev()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes this process the parent of what its descendants leave, if there is a terminal to hold.
    pub(crate) fn adopt_orphans(&self) {
        if !self.is_empty() {
            ignore(set_child_subreaper(Some(getpid())));
        }
    }

    /// Ends the descendants of this process that hold one of the terminals. Returns how many there were.
    pub(crate) fn end_holders(&self) -> usize {
        let mut ended = HashSet::new();
        let began = Instant::now();
        while !self.is_empty() && began.elapsed() < GIVE_UP {
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            let mut holders = descendants(getpid());
            holders.retain(|pid| self.are_held_by(*pid));
            if holders.is_empty() {
                break;
            }
            if began.elapsed() >= GRACE {
                signal_all(None, &holders, Signal::KILL);
            }
            let new: Vec<Pid> = (holders.into_iter())
                .filter(|pid| ended.insert(*pid))
                .collect();
            signal_all(None, &new, Signal::HUP);
            signal_all(None, &new, Signal::CONT);
            std::thread::sleep(TICK);
        }
        ended.len()
    }

    /// True as well for a process that keeps its descriptors secret.
    fn are_held_by(&self, pid: Pid) -> bool {
        let tasks = format!("/proc/{}/task", pid.as_raw_pid());
        // Each thread may have descriptors of its own.
        numbers_in(&tasks).into_iter().any(|task| {
            let task = Path::new(&tasks).join(task.to_string());
            match fs::read_dir(task.join("fd")) {
                Ok(entries) => entries.flatten().any(|entry| {
                    let number = entry.file_name();
                    self.is_reached_by(&entry.path(), &task.join("fdinfo").join(number))
                }),
                Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
            }
        })
    }

    /// True for a terminal, and for what keeps descriptors that are in no list: a socket with some on their way, a ring.
    fn is_reached_by(&self, fd: &Path, info: &Path) -> bool {
        let is_ours =
            fs::metadata(fd).is_ok_and(|it| is_terminal(&it) && self.0.contains(&it.rdev()));
        let kind = fd.read_link().unwrap_or_default();
        is_ours
            || kind.as_os_str() == "anon_inode:[io_uring]"
            || kind.to_string_lossy().starts_with("socket:") && {
                let info = fs::read_to_string(info).unwrap_or_default();
                let carried = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
                carried.is_some_and(|many| many.trim() != "0")
            }
    }
}
