//! Kernel services other than files: signals, waiting, processes, the host.
//!
//! Unaware of runs and tools. Signals only set flags and write a byte into a pipe; everything
//! that waits polls that pipe too, so that no wait can miss one.

use crate::error::may_fail;
use crate::text::timestamp::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FsWord;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A request from outside to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT, exit code 130.
    Interrupt,
    /// SIGTERM, or the death of the engine that started this one; exit code 143.
    Terminate,
    /// SIGHUP, exit code 129.
    Hangup,
    /// A deadline is near; exit code 75.
    Deadline,
}

impl Stop {
    /// The signal's name, as it stands in `stop_reason`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
            Self::Deadline => "deadline",
        }
    }

    fn from_number(number: usize) -> Option<Self> {
        match i32::try_from(number).ok()? {
            libc_signals::SIGINT => Some(Self::Interrupt),
            libc_signals::SIGTERM => Some(Self::Terminate),
            libc_signals::SIGHUP => Some(Self::Hangup),
            _ => None,
        }
    }
}

impl From<Stop> for crate::error::Exit {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Interrupt => Self::Interrupt,
            Stop::Terminate => Self::Terminate,
            Stop::Hangup => Self::Hangup,
            Stop::Deadline => Self::TempFail,
        }
    }
}

use signal_hook::consts as libc_signals;

/// From so long before a deadline on nothing begins, and what runs is ended.
const BEFORE_DEADLINE: Duration = Duration::from_secs(30);

/// The process's signals. Install once; share by reference or `Arc`.
#[derive(Debug)]
pub(crate) struct Signals {
    woken: UnixStream,
    wake: UnixStream,
    /// Set by SIGTSTP, if that is caught.
    suspend: Arc<AtomicBool>,
    stop: Arc<AtomicUsize>,
    /// The first request to end that was seen: later ones change nothing.
    first: OnceLock<(Stop, Instant)>,
    /// Becomes readable when the engine that started this one is gone.
    parent: Option<OwnedFd>,
    /// True once that engine is known to be gone.
    orphaned: AtomicBool,
    /// When all is to have ended.
    deadline: OnceLock<Timestamp>,
}

impl Signals {
    /// Begins to catch SIGINT, SIGTERM, SIGHUP and SIGCHLD. A second SIGINT exits at once with 130.
    /// A SIGHUP that was ignored when the process started (`nohup`) stays ignored.
    ///
    /// # Errors
    /// The system's, if handlers cannot be installed.
    pub(crate) fn install() -> io::Result<Self> {
        use libc_signals::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let stop = Arc::new(AtomicUsize::new(0));
        let interrupted = Arc::new(AtomicBool::new(false));
        // The order matters: the first SIGINT arms what the second one finds armed.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted))?;
        signal_hook::flag::register(SIGINT, interrupted)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(SIGHUP) {
                continue;
            }
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)?;
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, wake.try_clone()?)?;
        // Writing past `ulimit -f` must be an error of that write, not the end of the process.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Self {
            woken,
            wake,
            suspend: Arc::new(AtomicBool::new(false)),
            stop,
            first: OnceLock::new(),
            parent: None,
            orphaned: AtomicBool::new(false),
            deadline: OnceLock::new(),
        })
    }

    /// From now on the end of process `pid` counts as SIGTERM. Without pidfds (before Linux 5.3, or
    /// when `pid` is of another namespace) this does nothing.
    ///
    /// Returns whether such a process exists, as far as this process can see.
    pub(crate) fn end_with(&mut self, pid: i32) -> bool {
        let opened = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let is_gone = matches!(opened, Some(Err(rustix::io::Errno::SRCH)));
        self.parent = opened.and_then(Result::ok);
        !is_gone
    }

    /// Begins to catch SIGTSTP, which a person sends with Ctrl-Z: a waiting caller sees it, tidies up, and
    /// calls [`Self::suspend`]. One that was ignored when the process started stays ignored.
    ///
    /// # Errors
    /// The system's, if the handler cannot be installed.
    pub(crate) fn catch_suspension(&self) -> io::Result<()> {
        use libc_signals::SIGTSTP;
        if is_ignored(SIGTSTP) {
            return Ok(());
        }
        signal_hook::flag::register(SIGTSTP, Arc::clone(&self.suspend))?;
        signal_hook::low_level::pipe::register(SIGTSTP, self.wake.try_clone()?)?;
        Ok(())
    }

    /// True if a SIGTSTP has been caught since this was last asked.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspend.swap(false, Ordering::Relaxed)
    }

    /// Stops the process as SIGTSTP would have, and returns when it continues.
    pub(crate) fn suspend(&self) {
        let stop = signal_hook::low_level::emulate_default_handler;
        may_fail(stop(libc_signals::SIGTSTP));
    }

    /// Sets when all is to have ended, once. From half a minute before it that counts as a signal.
    pub(crate) fn set_deadline(&self, at: Timestamp) {
        may_fail(self.deadline.set(at));
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline.get().copied()
    }

    /// How long things may still begin. The clock is that of people, which goes on while the machine sleeps.
    fn time_to_deadline(&self) -> Option<Duration> {
        let left = self.deadline()?.since(Timestamp::now());
        Some(left.saturating_sub(BEFORE_DEADLINE))
    }

    /// The signal that asked to end, if one has come.
    pub(crate) fn stop(&self) -> Option<Stop> {
        if let Some((first, _)) = self.first.get() {
            return Some(*first);
        }
        let stop = Stop::from_number(self.stop.load(Ordering::Relaxed));
        let is_late = || self.time_to_deadline().is_some_and(|left| left.is_zero());
        let stop = stop.or_else(|| is_late().then_some(Stop::Deadline))?;
        Some(self.first.get_or_init(|| (stop, Instant::now())).0)
    }

    /// Why a wait of this length would not come to its end, if that is known: the deadline comes first. Then
    /// it counts as come.
    pub(crate) fn stop_within(&self, wait: Duration) -> Option<Stop> {
        self.stop().or_else(|| {
            let is_sooner = self.time_to_deadline().is_some_and(|left| left <= wait);
            is_sooner.then(|| {
                self.first
                    .get_or_init(|| (Stop::Deadline, Instant::now()))
                    .0
            })
        })
    }

    /// How much of `budget` is left since a signal asked to end; none if none has.
    pub(crate) fn left_to_end(&self, budget: Duration) -> Option<Duration> {
        self.stop()?;
        let (_, since) = self.first.get()?;
        Some(budget.saturating_sub(since.elapsed()))
    }

    /// Reads what a descriptor has, as soon as it has something. 0 bytes are its end.
    ///
    /// # Errors
    /// The system's; `None` if a signal asks to end.
    pub(crate) fn read(&self, fd: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if self.stop().is_some() {
                return Ok(None);
            }
            if !self.wait(Some((fd.as_fd(), PollFlags::IN)), None)? {
                continue;
            }
            match rustix::io::read(&fd, &mut *buffer) {
                Ok(read) => return Ok(Some(read)),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until `fd` is ready, a signal comes, or the time is over. Tells whether `fd` is ready.
    ///
    /// # Errors
    /// The system's; an interrupted wait is none.
    pub(crate) fn wait(
        &self,
        fd: Option<(BorrowedFd<'_>, PollFlags)>,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let mut polled = Vec::with_capacity(3);
        polled.push(PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN));
        if let Some(parent) = &self.parent
            && !self.orphaned.load(Ordering::Relaxed)
        {
            polled.push(PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::IN));
        }
        let parents = polled.len() - 1;
        if let Some((fd, flags)) = fd {
            polled.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let to_deadline = self.time_to_deadline().filter(|left| !left.is_zero());
        let limit = timeout.into_iter().chain(to_deadline).min();
        let limit = limit.map(|time| Timespec {
            tv_sec: time.as_secs().min(1 << 30).cast_signed(),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        match poll(&mut polled, limit.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        let ready = |at: usize| polled.get(at).is_some_and(|p| !p.revents().is_empty());
        let (signalled, orphaned, fd_ready) =
            (ready(0), parents == 1 && ready(1), ready(parents + 1));
        if signalled {
            let mut bytes = [0; 64];
            while matches!((&self.woken).read(&mut bytes), Ok(n) if n == bytes.len()) {}
        }
        if orphaned {
            self.orphaned.store(true, Ordering::Relaxed);
            let terminate = libc_signals::SIGTERM as usize;
            // Only the first reason to end counts.
            may_fail(self.stop.compare_exchange(
                0,
                terminate,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ));
        }
        Ok(fd_ready)
    }

    /// Waits for some time; returns early, and says why, if a signal asks to end.
    ///
    /// # Errors
    /// The signal that came.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), Stop> {
        let until = Instant::now() + time;
        loop {
            if let Some(stop) = self.stop() {
                return Err(stop);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.wait(None, Some(left)).is_err() {
                return Ok(());
            }
        }
    }
}

/// True if this process ignores a signal from its start; `false` where `/proc` does not show it.
fn is_ignored(signal: i32) -> bool {
    ignored_signals() >> (signal - 1) & 1 == 1
}

/// A bit for each signal that this process ignores, from the lowest for signal 1; none where `/proc` does
/// not tell.
pub(crate) fn ignored_signals() -> u64 {
    let mut status = [0; 4096];
    let read = fs::File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let status = String::from_utf8_lossy(&status[..read.unwrap_or(0)]);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// The variable by which the processes of one tool call are found wherever they have gone. The
/// value of a nested call begins with that of the call around it and a dot.
pub(crate) const CALL_ID: &str = "DELTA_CALL_ID";

/// The living processes of each process group, those that carry its call's id in their environment, and the
/// descendants of both, such as a session behind `delta sandbox`. All processes are looked at once. Without
/// `/proc`, only whether a group still has any, as its leader.
pub(crate) fn find_processes<C: AsRef<str>>(wanted: &[(Option<Pid>, C)]) -> Vec<Vec<Pid>> {
    let Ok(entries) = fs::read_dir("/proc") else {
        let is_there = |group: &Pid| rustix::process::test_kill_process_group(*group).is_ok();
        let leader = |(group, _): &(Option<Pid>, C)| group.filter(is_there).into_iter().collect();
        return wanted.iter().map(leader).collect();
    };
    let mut by_group: HashMap<i32, usize> = HashMap::new();
    let mut by_call: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, (group, call_id)) in wanted.iter().enumerate() {
        if let Some(group) = group {
            by_group.insert(group.as_raw_pid(), at);
        }
        let call_id = call_id.as_ref().as_bytes();
        by_call.entry(call_id).or_default().push(at);
    }
    let own = std::process::id().cast_signed();
    let mut found = vec![Vec::new(); wanted.len()];
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Some((parent, group)) = relations(&entry.path()).filter(|_| number != own) else {
            continue;
        };
        let pid = Pid::from_raw(number);
        if let Some(parent) = Pid::from_raw(parent) {
            children.entry(parent).or_default().extend(pid);
        }
        let in_group = by_group.get(&group).copied();
        if let Some(at) = in_group {
            found[at].extend(pid);
            if wanted.len() == 1 {
                continue;
            }
        }
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut carried: Vec<usize> = environ
            .split(|byte| *byte == 0)
            .filter_map(|variable| {
                variable
                    .strip_prefix(CALL_ID.as_bytes())?
                    .strip_prefix(b"=")
            })
            .flat_map(calls_around)
            .flat_map(|call_id| by_call.get(call_id).into_iter().flatten().copied())
            .filter(|at| Some(*at) != in_group)
            .collect();
        carried.sort_unstable();
        carried.dedup();
        for at in carried {
            found[at].extend(pid);
        }
    }
    for members in &mut found {
        add_descendants(members, &children);
    }
    found
}

fn add_descendants(members: &mut Vec<Pid>, children: &HashMap<Pid, Vec<Pid>>) {
    let mut known: HashSet<Pid> = members.iter().copied().collect();
    let mut at = 0;
    while let Some(member) = members.get(at) {
        let new = children.get(member).into_iter().flatten();
        let new: Vec<Pid> = new.copied().filter(|pid| known.insert(*pid)).collect();
        members.extend(new);
        at += 1;
    }
}

/// The parent and the process group of a process, by its directory in `/proc`. None if it has ended.
fn relations(path: &Path) -> Option<(i32, i32)> {
    let stat = fs::read_to_string(path.join("stat")).ok()?;
    // The command's name, in parentheses, may hold anything; the fields follow the last one.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let alive = fields
        .next()
        .is_some_and(|state| state != "Z" && state != "X");
    let mut number = || {
        fields
            .next()
            .and_then(|field| field.parse().ok())
            .unwrap_or(0)
    };
    let (parent, group) = (number(), number());
    alive.then_some((parent, group))
}

/// A call's id, and those of the calls around it.
fn calls_around(id: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = memchr::memchr_iter(b'.', id);
    dots.chain([id.len()]).map(|end| &id[..end])
}

/// A process that has a file below a directory open for writing, as far as `/proc` shows.
pub(crate) fn writer_below(dir: &Path) -> Option<(i32, PathBuf)> {
    let numbers = |dir: &str| -> Vec<i32> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    };
    let written = |pid: i32, fd: i32| {
        let file = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
        if !file.starts_with(dir) {
            return None;
        }
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        // O_ACCMODE: 0 is O_RDONLY.
        (flags & 3 != 0).then_some((pid, file))
    };
    numbers("/proc").into_iter().find_map(|pid| {
        let descriptors = numbers(&format!("/proc/{pid}/fd"));
        descriptors.into_iter().find_map(|fd| written(pid, fd))
    })
}

/// True if a process of this number has not ended. One that cannot be seen from here,
/// in another pid namespace, counts as ended.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else {
        return false;
    };
    if rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
        return false;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    // The state follows the command's name, which is in parentheses and may hold anything.
    let state = stat.map(|stat| {
        stat.rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .to_owned()
    });
    !state.is_ok_and(|state| state.starts_with(['Z', 'X']))
}

/// Sends a signal to a process group and to single processes. Those that are gone are skipped.
pub(crate) fn signal_all(group: Option<Pid>, single: &[Pid], signal: Signal) {
    if let Some(group) = group {
        may_fail(rustix::process::kill_process_group(group, signal));
    }
    for pid in single {
        may_fail(rustix::process::kill_process(*pid, signal));
    }
}

/// This host's name.
pub(crate) fn hostname() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// True if a path is on a file system that other hosts may share, where a lock may be local only.
pub(crate) fn is_network_file_system(path: &Path) -> bool {
    // The magic numbers of statfs(2): NFS, SMB, CIFS, SMB2, 9P, AFS, Ceph, Lustre, GPFS, FUSE.
    const SHARED: [FsWord; 10] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x0102_1997,
        0x5346_414F,
        0x00C3_6400,
        0x0BD0_0BD0,
        0x4750_4653,
        0x6573_5546,
    ];
    rustix::fs::statfs(path).is_ok_and(|fs| SHARED.contains(&fs.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_the_call_it_belongs_to() {
        let id = format!("test{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(CALL_ID, format!("{id}.nested"))
            .spawn()
            .unwrap();
        // The kernel lets the parent go on a moment before the child's environment can be read.
        let found = loop {
            let found = find_processes(&[(None, &id)]).remove(0);
            if !found.is_empty() {
                break found;
            }
        };
        let none = find_processes(&[(None, &id[..id.len() - 1])]).remove(0);
        child.kill().unwrap();
        child.wait().unwrap();
        let pids: Vec<_> = found
            .iter()
            .map(|pid| pid.as_raw_pid().cast_unsigned())
            .collect();
        assert_eq!(pids, [child.id()]);
        assert!(none.is_empty());
    }

    #[test]
    fn the_host_has_a_name() {
        assert!(!hostname().is_empty());
    }
}
