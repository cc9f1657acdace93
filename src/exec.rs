//! Child processes: starting, waiting for any of several, ending whole trees.
//!
//! Unaware of tools and models. There are no threads and no pipes: what a child prints goes
//! straight into files. Each child leads a process group of its own.
//!
//! Architecture invariant: whoever waits here is woken by the end of any child, by a signal to the
//! engine and by the nearest deadline, whichever comes first.

use crate::sys::{self, CALL_ID, Signals, Stop};
use rustix::event::{PollFlags, Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a tree has between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);

/// How long after SIGKILL a process that will not die (in an uninterruptible system call) is waited for.
const GIVE_UP: Duration = Duration::from_millis(500);

/// How often a tree that is being ended is looked at: members that are not our children end silently.
const TICK: Duration = Duration::from_millis(10);

/// A variable for a child: set, or taken out of what it inherits.
pub type Variable = (String, Option<String>);

/// What is started, and how.
pub struct Command<'a> {
    /// The program and its arguments. A relative program with a slash is found from `dir`.
    pub argv: &'a [String],
    /// The child's working directory.
    pub dir: &'a Path,
    /// Changes to the inherited environment, later ones winning.
    pub env: &'a [Variable],
    /// Put into the environment as `DELTA_CALL_ID`.
    pub call_id: &'a str,
    /// `None`: `/dev/null`.
    pub stdin: Option<File>,
    /// Where the child writes.
    pub stdout: File,
    /// Where the child writes its messages.
    pub stderr: File,
    /// How long it may take.
    pub timeout: Option<Duration>,
}

/// Why a child could not be started.
#[derive(Debug)]
pub enum SpawnError {
    /// There is no such program, or its interpreter is missing: 127 for a shell.
    NotFound,
    /// It is there and cannot be executed: 126 for a shell.
    NotExecutable(io::Error),
    /// The arguments and environment are longer than the system takes (E2BIG).
    TooLong,
    /// The system has no room for another process.
    Other(io::Error),
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself; 128+n for a signal.
    Exited(i32),
    /// Its time was over.
    TimedOut,
    /// The engine was asked to end; with the child's exit code.
    Interrupted(i32),
}

/// What is known of a child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// How it ended.
    pub how: Ended,
    /// From its start to its end.
    pub duration: Duration,
    /// What it and those of its processes that it waited for used, if the kernel was asked.
    pub used: Option<Used>,
}

/// What a child used, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Of the processor, in its own name and in the kernel's.
    pub cpu: Duration,
    /// The most memory that one of its processes had resident, in bytes.
    pub memory: u64,
}

/// A child among [`Children`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

/// Why [`Children::wait`] returned.
#[derive(Debug)]
pub enum Woken {
    /// A child has ended, and with it, if it was made to, its whole tree.
    Ended(Token, Outcome),
    /// A signal asks the engine to end; told once for every call while no child has ended.
    Stopped(Stop),
    /// The caller's own deadline has come.
    Deadline,
}

enum Phase {
    Running,
    /// SIGTERM has been sent; SIGKILL follows at `kill_at`.
    Ending {
        why: Why,
        kill_at: Instant,
    },
}

#[derive(Clone, Copy)]
enum Why {
    TimedOut,
    Interrupted,
}

struct Running {
    token: Token,
    child: Child,
    group: Option<Pid>,
    call_id: String,
    started: Instant,
    deadline: Option<Instant>,
    phase: Phase,
    status: Option<ExitStatus>,
    used: Option<Used>,
    /// Whether the kernel is asked what it used, which costs a call more.
    is_measured: bool,
    /// Becomes readable when the child ends. While it is there, the child need not be asked.
    pidfd: Option<OwnedFd>,
}

/// Any number of children, waited for together.
pub struct Children<'s> {
    signals: &'s Signals,
    running: Vec<Running>,
    next: u64,
    /// How long children have between SIGTERM and SIGKILL when their time is over.
    grace: Duration,
    /// Whether a signal to the engine is told.
    heed_signals: bool,
    /// Tells which of many children have ended, so that not each must be asked.
    ended: Option<OwnedFd>,
}

impl<'s> Children<'s> {
    /// None yet.
    #[must_use]
    pub fn new(signals: &'s Signals) -> Self {
        Self {
            signals,
            running: Vec::new(),
            next: 0,
            grace: GRACE,
            heed_signals: true,
            ended: None,
        }
    }

    /// None yet, and hundreds to come: each end costs the same, however many others are running, and
    /// what each used is told. Without pidfds (before Linux 5.3) this is [`Self::new`].
    #[must_use]
    pub fn many(signals: &'s Signals) -> Self {
        Self {
            ended: epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
            ..Self::new(signals)
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// How long children have between SIGTERM and SIGKILL when their time is over.
    pub fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Starts a child.
    ///
    /// # Errors
    /// Why it could not be started; nothing is left of it.
    pub fn spawn(&mut self, command: Command<'_>) -> Result<Token, SpawnError> {
        let program = match command.argv.first() {
            Some(program) if program.contains('/') => command.dir.join(program),
            Some(program) => program.into(),
            None => return Err(SpawnError::NotFound),
        };
        let mut builder = std::process::Command::new(program);
        builder
            .args(&command.argv[1..])
            .current_dir(command.dir)
            .stdin(command.stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(command.stdout)
            .stderr(command.stderr)
            .process_group(0);
        for (name, value) in command.env {
            match value {
                Some(value) => builder.env(name, value),
                None => builder.env_remove(name),
            };
        }
        builder.env(CALL_ID, command.call_id);
        let started = Instant::now();
        let child = builder.spawn().map_err(spawn_error)?;
        let token = Token(self.next);
        self.next += 1;
        let group = Pid::from_raw(child.id().cast_signed());
        let pidfd = self.ended.as_ref().and_then(|ended| {
            let pidfd = pidfd_open(group?, PidfdFlags::empty()).ok()?;
            let data = epoll::EventData::new_u64(token.0);
            epoll::add(ended, &pidfd, data, epoll::EventFlags::IN).ok()?;
            Some(pidfd)
        });
        self.running.push(Running {
            token,
            group,
            child,
            call_id: command.call_id.to_owned(),
            started,
            deadline: command.timeout.map(|time| started + time),
            phase: Phase::Running,
            status: None,
            used: None,
            is_measured: self.ended.is_some(),
            pidfd,
        });
        Ok(token)
    }

    /// Begins to end a child and all its processes because the engine is asked to end: SIGTERM now,
    /// SIGKILL after `grace`. Its end is told by [`Self::wait`].
    pub fn interrupt(&mut self, token: Token, grace: Duration) {
        if let Some(child) = self.running.iter_mut().find(|child| child.token == token) {
            child.end(Why::Interrupted, grace);
        }
    }

    /// Waits until a child has ended, a signal asks to end, or `until` has come. Children whose time
    /// is over are ended here.
    ///
    /// # Errors
    /// The system's, when waiting fails.
    pub fn wait(&mut self, until: Option<Instant>) -> io::Result<Woken> {
        loop {
            let now = Instant::now();
            if let Some(ended) = self.reap(now)? {
                return Ok(ended);
            }
            let ending = |child: &Running| matches!(child.phase, Phase::Ending { .. });
            if self.heed_signals
                && !self.running.iter().any(ending)
                && let Some(stop) = self.signals.stop()
            {
                return Ok(Woken::Stopped(stop));
            }
            if until.is_some_and(|until| now >= until) {
                return Ok(Woken::Deadline);
            }
            let wake = self
                .running
                .iter()
                .filter_map(|child| child.wake_at(now))
                .chain(until);
            let timeout = wake.min().map(|at| at.saturating_duration_since(now));
            let ended = self.ended.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN));
            self.signals.wait(ended, timeout)?;
        }
    }

    /// Takes out one child that has ended, and moves the others on.
    fn reap(&mut self, now: Instant) -> io::Result<Option<Woken>> {
        self.learn_who_ended();
        for index in 0..self.running.len() {
            if let Some(how) = self.running[index].advance(now, self.grace)? {
                let child = self.running.swap_remove(index);
                let outcome = Outcome {
                    how,
                    duration: child.started.elapsed(),
                    used: child.used,
                };
                return Ok(Some(Woken::Ended(child.token, outcome)));
            }
        }
        Ok(None)
    }

    /// Lets go of the descriptors of children that have ended: from then on these are asked.
    fn learn_who_ended(&mut self) {
        const AT_ONCE: usize = 64;
        let Some(ended) = &self.ended else { return };
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            let mut events = Vec::with_capacity(AT_ONCE);
            let buffer = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(ended, buffer, Some(&now)).is_err() {
                // Ask all of them.
                self.running.iter_mut().for_each(|child| child.pidfd = None);
                return;
            }
            for event in &events {
                let token = Token(event.data.u64());
                if let Some(child) = self.running.iter_mut().find(|it| it.token == token) {
                    child.pidfd = None;
                }
            }
            if events.len() < AT_ONCE {
                return;
            }
        }
    }
}

impl Running {
    fn end(&mut self, why: Why, grace: Duration) {
        if matches!(self.phase, Phase::Running) {
            let members = sys::processes(None, &self.call_id);
            sys::signal_all(self.group, &members, Signal::TERM);
            self.phase = Phase::Ending {
                why,
                kill_at: Instant::now() + grace,
            };
        }
    }

    /// Looks whether the child has ended; ends it if its time is over.
    fn advance(&mut self, now: Instant, grace: Duration) -> io::Result<Option<Ended>> {
        if self.status.is_none() && self.pidfd.is_none() {
            (self.status, self.used) = if self.is_measured {
                waited(&mut self.child)?
            } else {
                (self.child.try_wait()?, None)
            };
        }
        match &self.phase {
            Phase::Running => {
                if let Some(status) = self.status {
                    return Ok(Some(Ended::Exited(exit_code(status))));
                }
                if self.deadline.is_some_and(|deadline| now >= deadline) {
                    self.end(Why::TimedOut, grace);
                }
                Ok(None)
            }
            Phase::Ending { why, kill_at } => {
                let members = sys::processes(self.group, &self.call_id);
                let given_up = now >= *kill_at + GIVE_UP;
                if (self.status.is_some() && members.is_empty()) || given_up {
                    let code = self.status.map_or(137, exit_code);
                    return Ok(Some(match why {
                        Why::TimedOut => Ended::TimedOut,
                        Why::Interrupted => Ended::Interrupted(code),
                    }));
                }
                if now >= *kill_at {
                    // Once its leader has been waited for, the group's number may be somebody else's.
                    let group = self.group.filter(|_| self.status.is_none());
                    sys::signal_all(group, &members, Signal::KILL);
                }
                Ok(None)
            }
        }
    }

    /// When this child must be looked at again even if nothing wakes us.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.deadline,
            Phase::Ending { .. } => Some(now + TICK),
        }
    }
}

/// Starts one child and waits for it. A signal to the engine ends it, with `grace` before SIGKILL.
///
/// # Errors
/// Why it could not be started.
pub fn run(
    signals: &Signals,
    command: Command<'_>,
    grace: Duration,
) -> Result<Outcome, SpawnError> {
    one(Children::new(signals), command, grace)
}

/// Starts one child and waits for it even if the engine has been asked to end: for what is to be done
/// before the end. When its time is over it has `grace` before SIGKILL.
///
/// # Errors
/// Why it could not be started.
pub fn run_to_the_end(
    signals: &Signals,
    command: Command<'_>,
    grace: Duration,
) -> Result<Outcome, SpawnError> {
    let mut children = Children::new(signals);
    children.heed_signals = false;
    children.grace = grace;
    one(children, command, grace)
}

fn one(
    mut children: Children<'_>,
    command: Command<'_>,
    grace: Duration,
) -> Result<Outcome, SpawnError> {
    let token = children.spawn(command)?;
    loop {
        match children.wait(None).map_err(SpawnError::Other)? {
            Woken::Ended(_, outcome) => return Ok(outcome),
            Woken::Stopped(_) => children.interrupt(token, grace),
            Woken::Deadline => {}
        }
    }
}

/// Ends what is left of a call whose engine died: SIGTERM, then SIGKILL. Returns how many processes
/// there were.
#[must_use]
pub fn end_leftovers(call_id: &str) -> usize {
    end_all_leftovers(&[call_id])
}

/// The same for several calls at once.
#[must_use]
pub fn end_all_leftovers<C: AsRef<str>>(call_ids: &[C]) -> usize {
    let found = sys::processes_of(None, call_ids);
    if found.is_empty() {
        return 0;
    }
    sys::signal_all(None, &found, Signal::TERM);
    let kill_at = Instant::now() + GRACE;
    loop {
        std::thread::sleep(TICK);
        let left = sys::processes_of(None, call_ids);
        let now = Instant::now();
        if left.is_empty() || now >= kill_at + GIVE_UP {
            return found.len();
        }
        if now >= kill_at {
            sys::signal_all(None, &left, Signal::KILL);
        }
    }
}

/// How a child ended, if it has, and what it used.
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

/// How a child ended, if it has.
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

fn spawn_error(error: io::Error) -> SpawnError {
    const ENOEXEC: i32 = 8;
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _) => SpawnError::NotFound,
        (io::ErrorKind::ArgumentListTooLong, _) => SpawnError::TooLong,
        (io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory, _) | (_, Some(ENOEXEC)) => {
            SpawnError::NotExecutable(error)
        }
        _ => SpawnError::Other(error),
    }
}
