//! Child processes: starting, waiting for any of several, ending whole trees.
//!
//! Unaware of tools and models. There are no threads and no pipes: what a child prints goes
//! straight into files. Each child leads a session of its own, or, if its use is measured, a process group.
//!
//! Architecture invariant: a caller that waits here is woken by the end of any child, by a signal to the
//! engine and by the nearest deadline, whichever comes first.
//!
//! Architecture invariant: an end that a request to end may have caused is never reported as the child's own.
//! A tree of processes is signalled from its top down (see
//! [`procfs::find_processes`](crate::unix::procfs::find_processes)): when an engine sees the end of a child that
//! this killed, its own signal has come before. The engine looks for it after each look at the children, and reports it
//! first; then it ends all that were running, those that have ended since included.

mod child;
mod outcome;

pub(crate) use outcome::{Ended, Outcome, SpawnError, Used, interpreter_fault};

use crate::unix::procfs::CALL_ID;
use crate::unix::programs;
use crate::unix::session_leader::SessionLeader;
use crate::unix::signals::{self, Signals, Stop};
use child::{Phase, Running, Started, Why, members};
use rustix::event::{PollFlags, Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The time of a tree between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The wait after SIGKILL for a process that will not die (in an uninterruptible system call).
const GIVE_UP: Duration = Duration::from_millis(500);

/// The interval at which a tree that is being ended is looked at: members that are not our children end silently.
const TICK: Duration = Duration::from_millis(10);

/// A variable for a child: set, or taken out of what it inherits.
pub(crate) type Variable = (String, Option<String>);

/// A program to start, and the way to start it.
pub(crate) struct Command<'a> {
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
    /// The file for the child's output.
    pub stdout: File,
    /// The file for the child's messages.
    pub stderr: File,
    /// Its time limit.
    pub timeout: Option<Duration>,
}

/// Our standard output and our standard error, for a child.
pub(crate) fn own_output() -> io::Result<[File; 2]> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let stderr = io::stderr().as_fd().try_clone_to_owned()?;
    Ok([stdout, stderr].map(File::from))
}

/// A child among [`Children`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(u64);

/// The reason why [`Children::wait`] returned.
#[derive(Debug)]
pub(crate) enum Woken {
    /// A child has ended, and with it, if it was made to, its whole tree.
    Ended(Token, Outcome),
    /// A signal asks the engine to end; reported until all children are being ended.
    Stopped(Stop),
    /// A person wants the process to be suspended, where that is caught.
    Suspended,
    /// The caller's own deadline has come.
    Deadline,
}

/// Any number of children, waited for together.
pub(crate) struct Children<'s> {
    signals: &'s Signals,
    running: Vec<Running>,
    /// Children that have ended and have not been reported yet.
    over: VecDeque<(Token, Outcome)>,
    next: u64,
    /// The time of children between SIGTERM and SIGKILL when their own is over.
    grace: Duration,
    /// True if a signal to the engine is reported.
    heed_signals: bool,
    /// Reports which of many children have ended, so that not each must be asked.
    ended: Option<OwnedFd>,
}

impl<'s> Children<'s> {
    /// None yet.
    pub(crate) fn new(signals: &'s Signals) -> Self {
        Self {
            signals,
            running: Vec::new(),
            over: VecDeque::new(),
            next: 0,
            grace: GRACE,
            heed_signals: true,
            ended: None,
        }
    }

    /// None yet, and hundreds to come: each end costs the same, however many others are running, and
    /// the use of each is reported. They stay in this session. Without pidfds (before Linux 5.3) this is [`Self::new`].
    pub(crate) fn with_pidfds(signals: &'s Signals) -> Self {
        Self {
            ended: epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
            ..Self::new(signals)
        }
    }

    /// The number of children.
    pub(crate) fn len(&self) -> usize {
        self.running.len() + self.over.len()
    }

    /// True if there are no children.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The time of children between SIGTERM and SIGKILL when their own is over.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Whether a signal to the engine is reported.
    pub(crate) fn heed_signals(&mut self, is_heeded: bool) {
        self.heed_signals = is_heeded;
    }

    /// Starts a child.
    ///
    /// # Errors
    /// Why it could not be started; nothing is left of it.
    pub(crate) fn spawn(&mut self, command: Command<'_>) -> Result<Token, SpawnError> {
        let program = match command.argv.first() {
            Some(program) if program.contains('/') => command.dir.join(program),
            Some(program) => program.into(),
            None => return Err(SpawnError::NotFound),
        };
        let mut builder = std::process::Command::new(&program);
        builder
            .args(&command.argv[1..])
            .current_dir(command.dir)
            .stdin(command.stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(command.stdout)
            .stderr(command.stderr);
        set_variables(&mut builder, command.env);
        builder.env(CALL_ID, command.call_id);
        let started = Instant::now();
        let child = if self.ended.is_some() {
            builder.process_group(0).spawn().map(Started::Measured)
        } else {
            SessionLeader::start(&mut builder).map(Started::InSession)
        };
        let child = child.map_err(|error| {
            let given = command.env.iter().rfind(|(name, _)| name == "PATH");
            let path = given
                .and_then(|(_, path)| path.clone().map(OsString::from))
                .unwrap_or_else(programs::search_path);
            SpawnError::of_program(error, &program, &path)
        })?;
        let token = Token(self.next);
        self.next += 1;
        let group = child.pid();
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
            pidfd,
        });
        Ok(token)
    }

    /// Begins to end a child and all its processes because the engine is asked to end: SIGTERM now,
    /// SIGKILL after `grace`. [`Self::wait`] reports its end.
    pub(crate) fn interrupt(&mut self, token: Token, grace: Duration) {
        self.interrupt_all(&[token], grace);
    }

    /// Begins to end many, for which the system's processes are looked through only once.
    pub(crate) fn interrupt_all(&mut self, tokens: &[Token], grace: Duration) {
        let tokens: HashSet<Token> = tokens.iter().copied().collect();
        self.end(Why::Interrupted, grace, |child| {
            tokens.contains(&child.token)
        });
    }

    /// Sends SIGTERM to the children that are meant, if they have not got it yet.
    fn end(&mut self, why: Why, grace: Duration, is_meant: impl Fn(&Running) -> bool) {
        let is_meant =
            |child: &&mut Running| matches!(child.phase, Phase::Running) && is_meant(child);
        let mut meant: Vec<&mut Running> = self.running.iter_mut().filter(is_meant).collect();
        let calls: Vec<_> = meant.iter().map(|child| (None, &*child.call_id)).collect();
        let members = members(&calls);
        for (child, members) in meant.iter_mut().zip(members) {
            signals::signal_all(child.own_group(), &members, Signal::TERM);
            child.phase = Phase::Ending {
                why,
                kill_at: Instant::now() + grace,
                killed_at: None,
            };
        }
    }

    /// Waits until a child has ended, a signal asks to end, or `until` has come. Children whose time
    /// is over are ended here.
    ///
    /// # Errors
    /// The system's, when waiting fails.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> io::Result<Woken> {
        let woken = self.wait_or_read(until, None)?;
        Ok(woken.unwrap_or(Woken::Deadline))
    }

    /// Waits likewise, or until a descriptor of the caller has something to read: none.
    ///
    /// # Errors
    /// The system's, when waiting fails.
    pub(crate) fn wait_or_read(
        &mut self,
        until: Option<Instant>,
        source: Option<BorrowedFd<'_>>,
    ) -> io::Result<Option<Woken>> {
        loop {
            let now = Instant::now();
            if self.over.is_empty() {
                self.learn_who_ended()?;
                let stop = self.unheeded_stop();
                if !self.running.is_empty() {
                    self.signals.hold_exit();
                }
                if let Some(stop) = stop {
                    return Ok(Some(Woken::Stopped(stop)));
                }
                self.reap(now);
            }
            if let Some((token, outcome)) = self.over.pop_front() {
                return Ok(Some(Woken::Ended(token, outcome)));
            }
            if self.signals.is_suspended() {
                return Ok(Some(Woken::Suspended));
            }
            if until.is_some_and(|until| now >= until) {
                return Ok(Some(Woken::Deadline));
            }
            let wake = self
                .running
                .iter()
                .filter_map(|child| child.wake_at(now))
                .chain(until);
            let timeout = wake.min().map(|at| at.saturating_duration_since(now));
            let ended = self.ended.as_ref().map(AsFd::as_fd);
            let polled: Vec<_> = source
                .into_iter()
                .chain(ended)
                .map(|fd| (fd, PollFlags::IN))
                .collect();
            let ready = self.signals.wait_for_any(&polled, timeout)?;
            if source.is_some() && ready.first() == Some(&true) {
                return Ok(None);
            }
        }
    }

    /// The request to end, if one has come and there are children not being ended yet, or no children.
    fn unheeded_stop(&self) -> Option<Stop> {
        let is_running = |child: &Running| matches!(child.phase, Phase::Running);
        let is_open = self.running.is_empty() || self.running.iter().any(is_running);
        let stop = self.heed_signals.then(|| self.signals.stop()).flatten();
        stop.filter(|_| is_open)
    }

    /// Takes out the children that have ended, and moves the others on.
    fn reap(&mut self, now: Instant) {
        if self.signals.is_interrupted_again() {
            self.end(Why::Interrupted, Duration::ZERO, |_| true);
            self.running.iter_mut().for_each(|child| child.hurry(now));
        }
        let is_late = |child: &Running| child.status.is_none() && child.is_late(now);
        if self.running.iter().any(is_late) {
            self.end(Why::TimedOut, self.grace, is_late);
        }
        let due: Vec<_> = self
            .running
            .iter()
            .filter(|child| child.is_due(now))
            .collect();
        let calls: Vec<_> = due
            .iter()
            .map(|child| (child.group, &*child.call_id))
            .collect();
        let mut members = members(&calls).into_iter();
        let mut index = 0;
        while let Some(child) = self.running.get_mut(index) {
            let members = if child.is_due(now) {
                members.next().unwrap_or_default()
            } else {
                Vec::new()
            };
            let Some(how) = child.advance(now, &members) else {
                index += 1;
                continue;
            };
            let child = self.running.remove(index);
            let outcome = Outcome {
                how,
                duration: child.started.elapsed(),
                used: child.used,
            };
            self.over.push_back((child.token, outcome));
        }
    }

    /// Looks which children have ended.
    fn learn_who_ended(&mut self) -> io::Result<()> {
        self.release_descriptors();
        self.running.iter_mut().try_for_each(Running::poll_status)
    }

    /// Lets go of the descriptors of children that have ended: from then on these are asked.
    fn release_descriptors(&mut self) {
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

/// Starts one child and waits for it. A signal to the engine ends it, with `grace` before SIGKILL.
///
/// # Errors
/// Why it could not be started.
pub(crate) fn run(
    signals: &Signals,
    command: Command<'_>,
    grace: Duration,
) -> Result<Outcome, SpawnError> {
    wait_for_child(Children::new(signals), command, grace)
}

/// Starts one child and waits for it even if the engine has been asked to end: for work that must be done
/// before the end. When its time is over it has `grace` before SIGKILL.
///
/// # Errors
/// Why it could not be started.
pub(crate) fn run_to_the_end(
    signals: &Signals,
    command: Command<'_>,
    grace: Duration,
) -> Result<Outcome, SpawnError> {
    let mut children = Children::new(signals);
    children.heed_signals = false;
    children.grace = grace;
    wait_for_child(children, command, grace)
}

fn wait_for_child(
    mut children: Children<'_>,
    command: Command<'_>,
    grace: Duration,
) -> Result<Outcome, SpawnError> {
    let token = children.spawn(command)?;
    loop {
        match children.wait(None).map_err(SpawnError::Other)? {
            Woken::Ended(_, outcome) => return Ok(outcome),
            Woken::Stopped(_) => children.interrupt(token, grace),
            Woken::Suspended | Woken::Deadline => {}
        }
    }
}

/// Runs a program with the terminal and the process group of this one, as an editor needs it, and waits for it.
///
/// # Errors
/// It could not be started.
pub(crate) fn run_in_foreground(argv: &[String]) -> io::Result<std::process::ExitStatus> {
    let (program, words) = argv.split_first().ok_or(io::ErrorKind::NotFound)?;
    std::process::Command::new(program).args(words).status()
}

/// Starts a program that is not waited for, in a session of its own, without a standard input. It goes on when
/// this process has ended.
///
/// # Errors
/// Why it could not be started.
pub(crate) fn start_apart(
    argv: &[String],
    dir: &Path,
    env: &[Variable],
    stdout: File,
    stderr: File,
) -> Result<(), SpawnError> {
    let Some((program, words)) = argv.split_first() else {
        return Err(SpawnError::NotFound);
    };
    let mut builder = std::process::Command::new(program);
    builder
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    set_variables(&mut builder, env);
    let started = SessionLeader::start(&mut builder);
    started.map(drop).map_err(SpawnError::of)
}

fn set_variables(builder: &mut std::process::Command, variables: &[Variable]) {
    for (name, value) in variables {
        match value {
            Some(value) => builder.env(name, value),
            None => builder.env_remove(name),
        };
    }
}

/// Ends what is left of a call whose engine died: SIGTERM, then SIGKILL. Returns how many processes
/// there were.
pub(crate) fn end_leftovers(call_id: &str) -> usize {
    end_all_leftovers(&[call_id])
}

/// Ends what is left of several calls at once.
pub(crate) fn end_all_leftovers<C: AsRef<str>>(call_ids: &[C]) -> usize {
    let found = processes_of_all(call_ids);
    if found.is_empty() {
        return 0;
    }
    signals::signal_all(None, &found, Signal::TERM);
    let kill_at = Instant::now() + GRACE;
    let mut killed_at = None;
    loop {
        std::thread::sleep(TICK);
        let left = processes_of_all(call_ids);
        let now = Instant::now();
        if left.is_empty() || killed_at.is_some_and(|at: Instant| now >= at + GIVE_UP) {
            return found.len();
        }
        if now >= kill_at {
            signals::signal_all(None, &left, Signal::KILL);
            killed_at.get_or_insert(now);
        }
    }
}

/// All processes of several calls, of which none is around another: each once, after the one that started it.
fn processes_of_all<C: AsRef<str>>(call_ids: &[C]) -> Vec<Pid> {
    let calls: Vec<_> = call_ids.iter().map(|id| (None, id.as_ref())).collect();
    let mut all: Vec<Pid> = members(&calls).into_iter().flatten().collect();
    let mut known = HashSet::new();
    all.retain(|pid| known.insert(*pid));
    all
}
