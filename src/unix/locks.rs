//! Locks on files (`flock`): waiting for one, and the processes that hold one.
//!
//! Unaware of what the files are for. Any process that can open a file, if only for reading, can keep it locked.

use super::procfs::numbers_in;
use super::signals::{Signals, Stop};
use super::terminal::Screen;
use crate::error::{Error, Exit};
use std::fs::{self, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Engines hold the locks that others wait for only for moments.
const PATIENCE: Duration = Duration::from_secs(60);

/// A wait that lasts longer is reported.
const UNREMARKABLE: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(2);

/// The reason why a lock was not obtained, and the signal that ended the wait for it.
pub(crate) type LockFailure = (Error, Option<Stop>);

/// Waits for a lock on the file at `path`, no longer than `until`.
pub(crate) fn wait_for_lock(
    mut lock: impl FnMut() -> Result<(), TryLockError>,
    path: &Path,
    signals: &Signals,
    until: Option<Instant>,
) -> Result<(), LockFailure> {
    let began = Instant::now();
    let until = until.map_or(began + PATIENCE, |until| until.min(began + PATIENCE));
    let mut is_reported = false;
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(cause)) => return Err((Error::io("lock", path, &cause), None)),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err((held_error(path), None));
            }
            Err(TryLockError::WouldBlock) => {}
        }
        if !is_reported && began.elapsed() >= UNREMARKABLE {
            is_reported = true;
            Screen::default().warn(&format!("waiting: {}", describe_holder(path)));
        }
        signals.sleep(PAUSE).map_err(|stop| {
            let message = format!("{} while waiting for {}", stop.name(), path.display());
            (Error::new(stop.into(), message), Some(stop))
        })?;
    }
}

/// Tries to get a lock for this long, through signals.
pub(crate) fn try_lock_for(
    time: Duration,
    mut lock: impl FnMut() -> Result<(), TryLockError>,
) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < time => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// The error for a file that another process keeps locked.
pub(crate) fn held_error(path: &Path) -> Error {
    let shown = path.to_string_lossy();
    let word = shlex::try_quote(&shown).unwrap_or_default();
    let holder = describe_holder(path);
    let message = format!("{holder}; find it with `fuser {word}`, and try again when it has ended");
    Error {
        is_passing: true,
        ..Error::new(Exit::TempFail, message)
    }
}

/// The words for what keeps a file locked.
pub(crate) fn describe_holder(path: &Path) -> String {
    let pids: Vec<String> = holders(path).iter().map(|it| it[0].to_string()).collect();
    let pids = match pids.as_slice() {
        [] => String::new(),
        pids => format!(" (pid {})", pids.join(", ")),
    };
    format!("another process{pids} holds the lock on {}", path.display())
}

/// The processes that hold a lock on a file, as far as `/proc` shows them to this user: the number of each here, and
/// after it those in the pid namespaces below this one.
pub(crate) fn holders(path: &Path) -> Vec<Vec<i32>> {
    let numbers = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let numbers = line.unwrap_or_default().split_whitespace().skip(1);
        let below = numbers.filter_map(|number| number.parse().ok());
        [pid].into_iter().chain(below).collect()
    };
    let all = numbers_in("/proc").into_iter();
    let holders = all.filter(|pid| is_held_by(*pid, path));
    holders.map(numbers).collect()
}

/// True if a process has a descriptor by which a file is locked, whether it took the lock or inherited it.
pub(crate) fn is_held_by(pid: i32, path: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|it| (it.dev(), it.ino())).ok();
    let Some(wanted) = identity(path) else {
        return false;
    };
    let dir = format!("/proc/{pid}");
    numbers_in(&format!("{dir}/fd")).into_iter().any(|fd| {
        identity(Path::new(&format!("{dir}/fd/{fd}"))) == Some(wanted)
            && fs::read_to_string(format!("{dir}/fdinfo/{fd}")).is_ok_and(|info| {
                let mut lines = info.lines();
                lines.any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
            })
    })
}
