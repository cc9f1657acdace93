//! A command in a session of its own, without a controlling terminal, supervised by two processes.
//!
//! The *front* is the process that was started. It stays in its process group and receives the signals meant for the
//! command. The *keeper* is its child, outside that group: when the front is killed, it kills the command's group.
//! Both forward signals, hold no standard streams, and end as the command ended. While it waits, the keeper can serve
//! the command.
//!
//! Unaware of what the command is and how it is restricted. The front and the keeper are not restricted.

use super::left_behind::Terminals;
use super::procfs::ignored_signals;
use crate::error::{Error, Exit, Result, ignore, reason};
use fork::{Fork, fork};
use rustix::process::{self, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Signals to forward, except those that were ignored when this process started.
const FORWARDED: [i32; 9] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT,
];

/// Serves the command until a descriptor can be read.
pub(crate) type Serve = Box<dyn FnMut(BorrowedFd<'_>)>;

/// Calls `execute` in a new session, to replace its process with the command or return an error. The keeper calls
/// `attend` with the id of that process, and from then on what this returns. Their streams are connected; `execute` must
/// pass its own to [`await_keeper`] last. After the command has ended, the keeper ends what the command left at a terminal,
/// and calls `inspect`, if given, with the number of these processes, which may print on stderr and returns whether success
/// is to become failure. For both it keeps stderr open.
///
/// Returns in each of the three processes: the command's exit code, or why it was not executed.
pub(crate) fn run_in_session(
    attend: impl FnOnce(Pid, &UnixStream) -> Option<Serve>,
    execute: impl FnOnce(UnixStream) -> Error,
    inspect: Option<impl FnOnce(usize) -> bool>,
) -> Result<u8> {
    let front = process::getpid();
    let terminals = Terminals::inherited();
    let ignored = ignored_signals();
    let (front_end, mut keeper_end) = UnixStream::pair().map_err(not_started)?;
    if let Some(keeper) = fork_child().map_err(not_started)? {
        let mut signals = catch_signals(ignored).map_err(not_started)?;
        drop((front_end, keeper_end));
        release_stdio(false);
        return await_exit(&Ward::Keeper(keeper), &mut signals, None).map(end_like);
    }
    drop(front_end);
    signal_on_death_of(front, Signal::CONT)?;
    process::setpgid(None, None).map_err(not_started)?;
    let keeper = process::getpid();
    terminals.adopt_orphans();
    let (ours, theirs) = UnixStream::pair().map_err(not_started)?;
    if let Some(command) = fork_child().map_err(not_started)? {
        drop(theirs);
        let mut signals = catch_signals(ignored).map_err(not_started)?;
        let service = attend(command, &ours)
            .map(|serve| Service::new(serve, ignored))
            .transpose()
            .map_err(not_started)?;
        release_stdio(inspect.is_some() || service.is_some());
        await_end(&mut keeper_end);
        drop(ours);
        let status = await_exit(&Ward::Command { command, front }, &mut signals, service)?;
        let left = terminals.end_holders();
        let has_failed = inspect.is_some_and(|inspect| inspect(left));
        return Ok(end_like(status).max(has_failed.into()));
    }
    drop((ours, keeper_end));
    signal_on_death_of(keeper, Signal::KILL)?;
    process::setsid().map_err(not_started)?;
    Err(execute(theirs))
}

/// Waits until the front and the keeper are ready to forward signals.
pub(crate) fn await_keeper(mut keeper: UnixStream) {
    await_end(&mut keeper);
}

/// Waits until the other end is closed.
fn await_end(stream: &mut UnixStream) {
    ignore(io::copy(stream, &mut io::sink()));
}

fn not_started(cause: impl Into<io::Error>) -> Error {
    let cause = reason(&cause.into());
    Error::new(
        Exit::NotSetUp,
        format!("sandbox: cannot start a process: {cause}"),
    )
}

/// The child's id in the parent, `None` in the child.
fn fork_child() -> io::Result<Option<Pid>> {
    match fork()? {
        Fork::Parent(child) => Ok(Pid::from_raw(child)),
        Fork::Child => Ok(None),
    }
}

/// Requests a signal for when the parent dies. Fails if it is already dead.
fn signal_on_death_of(parent: Pid, signal: Signal) -> Result<()> {
    process::set_parent_process_death_signal(Some(signal)).map_err(not_started)?;
    if process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(not_started(rustix::io::Errno::SRCH))
    }
}

/// Closes the standard streams, so that their other ends see when the command closes them.
fn release_stdio(keeps_stderr: bool) {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        ignore(dup2_stdin(&null));
        ignore(dup2_stdout(&null));
        if !keeps_stderr {
            ignore(dup2_stderr(&null));
        }
    }
}

/// The child that a supervising process waits for and forwards signals to.
enum Ward {
    /// The front's child.
    Keeper(Pid),
    /// The keeper's child, a session leader.
    Command { command: Pid, front: Pid },
}

impl Ward {
    fn pid(&self) -> Pid {
        match self {
            Self::Keeper(pid) | Self::Command { command: pid, .. } => *pid,
        }
    }

    fn forward(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number).filter(|_| number != SIGCHLD) else {
            return;
        };
        match self {
            Self::Keeper(keeper) => {
                ignore(process::kill_process(*keeper, signal));
                if number == SIGTSTP {
                    ignore(emulate_default_handler(SIGTSTP));
                }
            }
            Self::Command { command, .. } => ignore(match number {
                // By convention for one process, not for its group.
                SIGUSR1 | SIGUSR2 => process::kill_process(*command, signal),
                // The kernel ignores SIGTSTP in a group that no shell controls.
                SIGTSTP => process::kill_process_group(*command, Signal::STOP),
                _ => process::kill_process_group(*command, signal),
            }),
        }
    }

    /// Kills the command's group if the front is dead.
    fn kill_orphans(&self) {
        if let Self::Command { command, front } = self
            && process::getppid() != Some(*front)
        {
            ignore(process::kill_process_group(*command, Signal::KILL));
        }
    }
}

/// Starts to catch the signals to forward. Ignored ones stay ignored, also in the command.
fn catch_signals(ignored: u64) -> io::Result<Signals> {
    Signals::new(caught_signals(ignored))
}

fn caught_signals(ignored: u64) -> impl Iterator<Item = i32> {
    let is_heeded = move |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    FORWARDED.into_iter().filter(is_heeded).chain([SIGCHLD])
}

/// The keeper's work while it waits.
struct Service {
    serve: Serve,
    /// Can be read after each signal that is caught.
    woken: UnixStream,
}

impl Service {
    /// Made after the handlers, so that they have noted a signal when this wakes.
    fn new(serve: Serve, ignored: u64) -> io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        for signal in caught_signals(ignored) {
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(Self { serve, woken })
    }
}

/// Forwards signals until the child ends, and serves it meanwhile.
fn await_exit(
    ward: &Ward,
    signals: &mut Signals,
    mut service: Option<Service>,
) -> Result<WaitStatus> {
    loop {
        // Any child: what the command leaves may have become one.
        while let Some((pid, status)) = process::wait(WaitOptions::NOHANG).map_err(not_started)? {
            if pid == ward.pid() {
                return Ok(status);
            }
        }
        ward.kill_orphans();
        let caught = match service {
            Some(_) => signals.pending(),
            None => signals.wait(),
        };
        for signal in caught {
            ward.forward(signal);
        }
        if let Some(Service { serve, woken }) = &mut service {
            serve(woken.as_fd());
            ignore(woken.read(&mut [0; 64]));
        }
    }
}

/// The exit code of a process. If a signal killed it, kills this process by the same signal.
fn end_like(status: WaitStatus) -> u8 {
    let Some(signal) = status.terminating_signal() else {
        return status.exit_status().unwrap_or(0) as u8;
    };
    // One core dump, the command's, is enough.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    ignore(process::setrlimit(Resource::Core, none));
    ignore(emulate_default_handler(signal));
    128 + signal as u8
}
