//! An agent's own workspaces: `workspaces/W001` and so on in its directory, which of them was used last, and
//! which may hold unfinished runs.

use crate::error::{At, Result, ignore};
use crate::record::workspace::{DecisionLock, Workspace};
use crate::unix::files;
use crate::unix::signals::Signals;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The directory of an agent's own workspaces.
pub(crate) fn workspaces_dir(agent_home: &Path) -> PathBuf {
    agent_home.join("workspaces")
}

/// The file that marks a workspace whose newest run is unfinished.
///
/// A stale one is harmless, and a missing one only lets a run be begun anew.
pub(crate) fn open_marker(agent_home: &Path, workspace: &str) -> PathBuf {
    open_dir(agent_home).join(workspace)
}

fn open_dir(agent_home: &Path) -> PathBuf {
    workspaces_dir(agent_home).join("open")
}

/// Marks a workspace as one that may hold an unfinished run.
pub(crate) fn mark_open(marker: &Path) -> Result<()> {
    if let Some(dir) = marker.parent() {
        files::make_dirs(dir)?;
    }
    files::append(marker).map(drop)
}

/// Removes a workspace's mark.
pub(crate) fn unmark_open(marker: &Path) {
    ignore(fs::remove_file(marker));
}

/// The workspaces that may hold unfinished runs, by name.
pub(crate) fn open_workspaces(agent_home: &Path) -> Result<Vec<String>> {
    let mut names = files::names(&open_dir(agent_home))?;
    names.retain(|name| number(name).is_some());
    Ok(names)
}

/// Waits for the lock on all workspaces of an agent; none if there are no workspaces and none can be
/// made.
pub(crate) fn lock_all(
    agent_home: &Path,
    signals: &Signals,
    until: Option<Instant>,
) -> Result<Option<DecisionLock>> {
    let parent = workspaces_dir(agent_home);
    if DirBuilder::new().recursive(true).create(&parent).is_err() {
        return Ok(None);
    }
    let dir = File::open(&parent).at("open", &parent)?;
    DecisionLock::wait(dir, &parent, signals, until).map(Some)
}

/// An agent's workspaces, in the order of their numbers.
pub(crate) fn numbered(agent_home: &Path) -> Result<Vec<String>> {
    let mut found: Vec<(u64, String)> = files::names(&workspaces_dir(agent_home))?
        .into_iter()
        .filter_map(|name| Some((number(&name)?, name)))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

/// The highest number, or 0. Those that leave little room above them do not count.
fn last_number(agent_home: &Path) -> Result<u64> {
    Ok(numbered(agent_home)?
        .iter()
        .rev()
        .filter_map(|name| number(name))
        .find(|it| *it < 1 << 60)
        .unwrap_or(0))
}

/// The next workspace of an agent, unless another process makes one first.
pub(crate) fn next(agent_home: &Path) -> Result<PathBuf> {
    let last = last_number(agent_home)?;
    let name = format!("W{:03}", last + 1);
    Ok(workspaces_dir(agent_home).join(name))
}

/// Makes the next free workspace of an agent; no two processes get the same.
pub(crate) fn claim_next(agent_home: &Path) -> Result<PathBuf> {
    let parent = workspaces_dir(agent_home);
    DirBuilder::new()
        .recursive(true)
        .create(&parent)
        .at("create", &parent)?;
    let last = last_number(agent_home)?;
    for n in last + 1.. {
        let path = parent.join(format!("W{n:03}"));
        match DirBuilder::new().create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).at("create", &path),
        }
    }
    unreachable!("no number is left for a workspace")
}

fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('W')?;
    (digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// The workspace that was used last, if it is still there.
pub(crate) fn last_used(agent_home: &Path) -> Option<String> {
    let parent = workspaces_dir(agent_home);
    let name = files::read_line(&parent.join("LAST_USED"))?;
    (number(&name).is_some() && parent.join(&name).is_dir()).then_some(name)
}

/// Remembers one of an agent's own workspaces as the one used last.
pub(crate) fn remember(agent_home: &Path, workspace: &Workspace) -> Result<()> {
    let parent = workspaces_dir(agent_home);
    files::replace_shared(
        &parent.join("LAST_USED"),
        format!("{}\n", workspace.id()).as_bytes(),
    )
}
