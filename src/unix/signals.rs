//! Signals: those that end this process or wake it, and sending them to others.
//!
//! Unaware of runs and tools. A signal only sets a flag and writes a byte into a pipe; everything that waits
//! polls that pipe too, so that no wait can miss one.

use super::procfs::ignored_signals;
use super::session_leader::reap_adopted;
use crate::error::{Error, Exit, ignore};
use crate::text::names::named_enum;
use crate::text::timestamp::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use signal_hook::consts as libc_signals;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

named_enum! {
    /// A request from outside to end.
    pub enum Stop {
        /// SIGINT, exit code 130.
        Interrupt = "SIGINT",
        /// SIGTERM, or the death of the engine that started this one; exit code 143.
        Terminate = "SIGTERM",
        /// SIGHUP, exit code 129.
        Hangup = "SIGHUP",
        /// A deadline is near; exit code 75.
        Deadline = "deadline",
    }
}

impl Stop {
    fn from_number(number: usize) -> Option<Self> {
        match i32::try_from(number).ok()? {
            libc_signals::SIGINT => Some(Self::Interrupt),
            libc_signals::SIGTERM => Some(Self::Terminate),
            libc_signals::SIGHUP => Some(Self::Hangup),
            _ => None,
        }
    }
}

impl From<Stop> for Exit {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Interrupt => Self::Interrupt,
            Stop::Terminate => Self::Terminate,
            Stop::Hangup => Self::Hangup,
            Stop::Deadline => Self::TempFail,
        }
    }
}

impl From<Stop> for Error {
    /// A signal came before there was a result.
    fn from(stop: Stop) -> Self {
        Self::new(stop.into(), format!("ended by {}", stop.name()))
    }
}

/// The number of the last signal that asked to end, from when signals are caught.
static ASKED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// The signal that asks this process to end, where no [`Signals`] are at hand; none if signals are not caught.
pub(crate) fn asked_to_end() -> Option<Stop> {
    Stop::from_number(ASKED.get()?.load(Ordering::Relaxed))
}

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
    /// Set by SIGINT: while it is set, one exits at once.
    interrupted: Arc<AtomicBool>,
    /// True once programs are being ended after a SIGINT: the second one only kills them.
    is_held: AtomicBool,
    /// The first request to end that was seen: later ones change nothing.
    first: Mutex<Option<(Stop, Instant)>>,
    /// Becomes readable when the engine that started this one is gone.
    parent: Option<OwnedFd>,
    /// True once that engine is known to be gone.
    orphaned: AtomicBool,
    /// The time at which all is to have ended.
    deadline: OnceLock<Timestamp>,
    ticker: Mutex<Option<Ticker>>,
}

/// Something to be done again and again while this process waits.
pub(crate) struct Ticker {
    every: Duration,
    next: Instant,
    act: Box<dyn FnMut() + Send>,
}

impl Ticker {
    /// Acts each time that this long has passed, from now on.
    pub(crate) fn new(every: Duration, act: impl FnMut() + Send + 'static) -> Self {
        Self {
            every,
            next: Instant::now() + every,
            act: Box::new(act),
        }
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticker")
    }
}

/// The content of a mutex. There is one thread, so it cannot be half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Signals {
    /// Begins to catch SIGINT, SIGTERM, SIGHUP and SIGCHLD. A second SIGINT exits at once with 130, unless
    /// [`Self::hold_exit`] was called in between.
    /// A SIGHUP that was ignored when the process started (`nohup`) stays ignored.
    ///
    /// # Errors
    /// The system's, if handlers cannot be installed.
    pub(crate) fn install() -> io::Result<Self> {
        use libc_signals::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let stop = Arc::clone(ASKED.get_or_init(Arc::default));
        let interrupted = Arc::new(AtomicBool::new(false));
        // The order matters: the first SIGINT arms what the second one finds armed.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&interrupted))?;
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))?;
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
            interrupted,
            is_held: AtomicBool::new(false),
            first: Mutex::new(None),
            parent: None,
            orphaned: AtomicBool::new(false),
            deadline: OnceLock::new(),
            ticker: Mutex::new(None),
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
        ignore(stop(libc_signals::SIGTSTP));
    }

    /// Sets when all is to have ended, once. From half a minute before it that counts as a signal.
    pub(crate) fn set_deadline(&self, at: Timestamp) {
        ignore(self.deadline.set(at));
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline.get().copied()
    }

    /// The time in which things may still begin. The clock is that of people, which goes on while the machine sleeps.
    fn time_to_deadline(&self) -> Option<Duration> {
        let left = self.deadline()?.since(Timestamp::now());
        Some(left.saturating_sub(BEFORE_DEADLINE))
    }

    /// The signal that asked to end, if one has come.
    pub(crate) fn stop(&self) -> Option<Stop> {
        if let Some((first, _)) = *locked(&self.first) {
            return Some(first);
        }
        let stop = Stop::from_number(self.stop.load(Ordering::Relaxed));
        let is_late = || self.time_to_deadline().is_some_and(|left| left.is_zero());
        let stop = stop.or_else(|| is_late().then_some(Stop::Deadline))?;
        Some(self.see(stop))
    }

    /// Notes the first request to end, and returns it.
    fn see(&self, stop: Stop) -> Stop {
        locked(&self.first).get_or_insert((stop, Instant::now())).0
    }

    /// Keeps the next SIGINT from exiting at once, if this is the first: the caller has programs to end.
    pub(crate) fn hold_exit(&self) {
        let order = Ordering::Relaxed;
        if self.interrupted.load(order) && !self.is_held.swap(true, order) {
            self.interrupted.store(false, order);
        }
    }

    /// True from a SIGINT on that came after [`Self::hold_exit`].
    pub(crate) fn is_interrupted_again(&self) -> bool {
        self.is_held.load(Ordering::Relaxed) && self.interrupted.load(Ordering::Relaxed)
    }

    /// Forgets a SIGINT that has been obeyed: the process goes on with something else, and the next one is
    /// the first again.
    pub(crate) fn forget_interrupt(&self) {
        let mut first = locked(&self.first);
        if matches!(*first, Some((Stop::Interrupt, _))) {
            *first = None;
            let (interrupt, order) = (libc_signals::SIGINT as usize, Ordering::Relaxed);
            // Another signal may have come since.
            ignore(self.stop.compare_exchange(interrupt, 0, order, order));
            self.interrupted.store(false, order);
            self.is_held.store(false, order);
        }
    }

    /// Has something done again and again in the waits that follow; none: nothing any more.
    pub(crate) fn set_ticker(&self, ticker: Option<Ticker>) {
        *locked(&self.ticker) = ticker;
    }

    fn time_to_tick(&self) -> Option<Duration> {
        let ticker = locked(&self.ticker);
        let next = ticker.as_ref()?.next;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn tick(&self) {
        if let Some(ticker) = &mut *locked(&self.ticker)
            && Instant::now() >= ticker.next
        {
            ticker.next += ticker.every;
            (ticker.act)();
        }
    }

    /// The reason why a wait of this length would be cut short, if that is known: the deadline comes first, and then
    /// counts as reached.
    pub(crate) fn stop_within(&self, wait: Duration) -> Option<Stop> {
        self.stop().or_else(|| {
            let is_sooner = self.time_to_deadline().is_some_and(|left| left <= wait);
            is_sooner.then(|| self.see(Stop::Deadline))
        })
    }

    /// The part of `budget` that is left since a signal asked to end; none if none has.
    pub(crate) fn left_to_end(&self, budget: Duration) -> Option<Duration> {
        self.stop()?;
        let (_, since) = (*locked(&self.first))?;
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

    /// Waits until `fd` is ready, a signal comes, or the time is over. Returns whether `fd` is ready.
    ///
    /// # Errors
    /// The system's, but for interrupted waits.
    pub(crate) fn wait(
        &self,
        fd: Option<(BorrowedFd<'_>, PollFlags)>,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        let fds: Vec<_> = fd.into_iter().collect();
        Ok(self.wait_for_any(&fds, timeout)?.contains(&true))
    }

    /// Waits for several descriptors. Returns for each whether it is ready.
    ///
    /// # Errors
    /// The system's, but for interrupted waits.
    pub(crate) fn wait_for_any(
        &self,
        fds: &[(BorrowedFd<'_>, PollFlags)],
        timeout: Option<Duration>,
    ) -> io::Result<Vec<bool>> {
        let mut polled = Vec::with_capacity(2 + fds.len());
        polled.push(PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN));
        if let Some(parent) = &self.parent
            && !self.orphaned.load(Ordering::Relaxed)
        {
            polled.push(PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::IN));
        }
        let parents = polled.len() - 1;
        let add = |&(fd, flags)| PollFd::from_borrowed_fd(fd, flags);
        polled.extend(fds.iter().map(add));
        let to_deadline = self.time_to_deadline().filter(|left| !left.is_zero());
        let limits = timeout.into_iter().chain(to_deadline);
        let limit = limits
            .chain(self.time_to_tick())
            .min()
            .map(|time| Timespec {
                tv_sec: time.as_secs().min(1 << 30).cast_signed(),
                tv_nsec: i64::from(time.subsec_nanos()),
            });
        let polling = poll(&mut polled, limit.as_ref());
        self.tick();
        match polling {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(vec![false; fds.len()]),
            Err(errno) => return Err(errno.into()),
        }
        let ready = |at: usize| polled.get(at).is_some_and(|p| !p.revents().is_empty());
        let (signalled, orphaned) = (ready(0), parents == 1 && ready(1));
        let fds_ready = (0..fds.len()).map(|at| ready(parents + 1 + at)).collect();
        if signalled {
            let mut bytes = [0; 64];
            while matches!((&self.woken).read(&mut bytes), Ok(n) if n == bytes.len()) {}
            reap_adopted();
        }
        if orphaned {
            self.orphaned.store(true, Ordering::Relaxed);
            let terminate = libc_signals::SIGTERM as usize;
            // Only the first reason to end counts.
            ignore(
                self.stop
                    .compare_exchange(0, terminate, Ordering::Relaxed, Ordering::Relaxed),
            );
        }
        Ok(fds_ready)
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

/// Sends a signal to a process group and to single processes, once to each: bash, for example, leaves out its EXIT trap
/// if a second SIGTERM follows at once. Those that are gone are skipped.
pub(crate) fn signal_all(group: Option<Pid>, single: &[Pid], signal: Signal) {
    if let Some(group) = group {
        ignore(rustix::process::kill_process_group(group, signal));
    }
    for pid in outside_of(group, single) {
        ignore(rustix::process::kill_process(pid, signal));
    }
}

fn outside_of(group: Option<Pid>, pids: &[Pid]) -> impl Iterator<Item = Pid> {
    let is_in = move |pid| group.is_some() && rustix::process::getpgid(Some(pid)).ok() == group;
    pids.iter().copied().filter(move |pid| !is_in(*pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn sleeper(group: i32) -> (Child, Pid) {
        let child = Command::new("sleep")
            .arg("1000")
            .process_group(group)
            .spawn();
        let child = child.unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    #[test]
    fn a_process_of_the_group_is_not_signalled_again() {
        let (mut leader, group) = sleeper(0);
        let (mut member, in_it) = sleeper(group.as_raw_nonzero().get());
        let (mut other, elsewhere) = sleeper(0);
        let all = [group, in_it, elsewhere];
        let outside: Vec<Pid> = outside_of(Some(group), &all).collect();
        let of_no_group: Vec<Pid> = outside_of(None, &all).collect();
        // A check that fails leaves no process.
        signal_all(Some(group), &all, Signal::TERM);
        for child in [&mut leader, &mut member, &mut other] {
            let status = child.wait().unwrap();
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(15)
            );
        }
        assert_eq!(outside, [elsewhere]);
        assert_eq!(of_no_group, all);
    }
}
