//! `end` and `cleanup`: end sessions and what still runs in them.

use crate::error::{Result, ignore};
use crate::sessions::lock::{SessionLock, WhenBusy};
use crate::sessions::session::{Session, SessionStatus};
use crate::sessions::shell;
use crate::sessions::store::SessionStore;
use crate::unix::files;
use crate::unix::procfs;
use crate::unix::signals::Signals;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

/// Terminates what runs in a session. Background processes get SIGHUP, as when a terminal is closed.
pub(crate) fn end_session(session: &Session, signals: &Signals) -> Result<()> {
    let mut lock = SessionLock::acquire(session, signals, WhenBusy::EndIt)?;
    lock.end_leftovers()?;
    session.finish_commit()?;
    hang_up(session);
    let mut metadata = session.read_metadata()?;
    if metadata.status == SessionStatus::Active {
        metadata.status = SessionStatus::Terminated;
        session.commit(&metadata)?;
    }
    Ok(())
}

/// Ends and removes all sessions but foreign ones. Returns their ids.
pub(crate) fn remove_sessions(store: &SessionStore, signals: &Signals) -> Result<Vec<String>> {
    store.refuse_foreign()?;
    let mut removed = Vec::new();
    for session in store.list_sessions()? {
        if store.is_foreign(&session)? {
            // One with nothing in it is of a start that was cut short before its stamp.
            if fs::remove_dir(session.dir()).is_ok() {
                removed.push(session.id.as_str().to_owned());
            }
            continue;
        }
        // A session whose start was cut short has no lock, and nothing runs in it.
        let lock = if session.path("lock").exists() {
            let mut lock = SessionLock::acquire(&session, signals, WhenBusy::EndIt)?;
            lock.end_leftovers()?;
            Some(lock)
        } else {
            None
        };
        hang_up(&session);
        session.remove_dir()?;
        drop(lock);
        removed.push(session.id.as_str().to_owned());
    }
    Ok(removed)
}

/// Sends SIGHUP to all processes that were started in a session.
fn hang_up(session: &Session) {
    let wanted = format!("{}={}", shell::SESSION_ID, session.id);
    let own = std::process::id();
    let mut looks = procfs::EXEC_LOOKS;
    for name in files::names(Path::new("/proc")).into_iter().flatten() {
        let Some(pid) = name.parse::<u32>().ok().filter(|pid| *pid != own) else {
            continue;
        };
        let environ = procfs::environment(Path::new(&format!("/proc/{pid}")), &mut looks);
        if environ
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
            && let Some(pid) = Pid::from_raw(pid.cast_signed())
        {
            ignore(kill_process(pid, Signal::HUP));
        }
    }
}
