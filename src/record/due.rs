//! The registry of runs that wait for a time: a file for each, below the person's state directory.
//!
//! Architecture invariant: what this directory says decides which programs run. It is the person's own, `delta sandbox`
//! keeps it read-only, and a file that another user could have written counts for nothing.

use crate::config::person;
use crate::error::{Error, Result, reason};
use crate::text::digest::sha256;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest entry that is read.
const LARGEST: u64 = 1 << 20;

/// A run that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DueEntry {
    pub run_id: String,
    /// Absolute.
    pub workspace: PathBuf,
    /// The directory of the agent or the flow, absolute.
    pub agent: PathBuf,
    pub is_flow: bool,
    /// RFC 3339.
    pub due_at: String,
    /// When the entry was written, RFC 3339.
    pub registered_at: String,
    /// Words of the command line that resumes it.
    pub options: Vec<String>,
}

/// A run that is to be in the registry while it waits.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub run_id: String,
    pub workspace: PathBuf,
    pub agent: PathBuf,
    pub is_flow: bool,
    pub options: Vec<String>,
    /// Why it cannot be registered.
    pub obstacle: Option<String>,
}

impl Registration {
    /// Registers the run, or does so anew.
    ///
    /// # Errors
    /// Why that cannot be done, for people.
    pub(crate) fn put(&self, due_at: Timestamp) -> std::result::Result<(), String> {
        if let Some(obstacle) = &self.obstacle {
            return Err(obstacle.clone());
        }
        let dir = dir().ok_or("there is no home: set HOME or XDG_STATE_HOME")?;
        if person::is_within(&dir, &self.workspace) {
            let dir = dir.display();
            return Err(format!(
                "{dir} is inside the workspace, where tools can write"
            ));
        }
        files::make_dirs(&dir).map_err(|error| error.message)?;
        check_private(&dir).map_err(|error| error.message)?;
        let entry = DueEntry {
            run_id: self.run_id.clone(),
            workspace: self.workspace.clone(),
            agent: self.agent.clone(),
            is_flow: self.is_flow,
            due_at: due_at.to_string(),
            registered_at: Timestamp::now().to_string(),
            options: self.options.clone(),
        };
        let text = serde_json::to_string(&entry).map_err(|e| e.to_string())?;
        let path = dir.join(self.file_name(&dir));
        let written = files::replace_durably(&path, format!("{text}\n").as_bytes());
        written.map_err(|error| error.message)
    }

    /// Registers the run again after a start that was too early for it. The options stay those of the start that left
    /// it waiting.
    ///
    /// # Errors
    /// Why that cannot be done, for people.
    pub(crate) fn put_again(&self, due_at: Timestamp) -> std::result::Result<(), String> {
        let known = dir().and_then(|dir| read(&dir.join(self.file_name(&dir))).ok());
        let known = known.filter(|it| (&it.workspace, &it.agent) == (&self.workspace, &self.agent));
        let options = known.map_or_else(|| self.options.clone(), |it| it.options);
        let again = Self {
            options,
            ..self.clone()
        };
        again.put(due_at)
    }

    /// Takes the run out of the registry.
    pub(crate) fn remove(&self) -> Result<()> {
        let Some(dir) = dir() else {
            return Ok(());
        };
        let path = dir.join(self.file_name(&dir));
        match path.symlink_metadata() {
            Ok(_) => files::remove(&path),
            Err(_) => Ok(()),
        }
    }

    /// The run's name, unless a run of this name in another workspace had it when this one was registered first.
    fn file_name(&self, dir: &Path) -> String {
        let id = &self.run_id;
        let digest = sha256(self.workspace.as_os_str().as_encoded_bytes());
        let longer = format!("{id}.{}", &digest[..16]);
        let is_other = || read(&dir.join(id)).is_ok_and(|it| it.workspace != self.workspace);
        match dir.join(&longer).symlink_metadata().is_ok() || is_other() {
            false => id.clone(),
            true => longer,
        }
    }
}

/// The warning of a run that waits and is not in the registry.
pub(crate) fn not_registered(why: &str) -> String {
    format!("not registered, so `delta due` does not start it again: {why}")
}

/// The registry; none without a home.
pub(crate) fn dir() -> Option<PathBuf> {
    Some(person::state_dir()?.join("due"))
}

/// The paths of all entries.
///
/// # Errors
/// Another user could have written them.
pub(crate) fn paths() -> Result<Vec<PathBuf>> {
    let Some(dir) = dir().filter(|dir| dir.symlink_metadata().is_ok()) else {
        return Ok(Vec::new());
    };
    check_private(&dir)?;
    let names = files::names(&dir)?.into_iter();
    let names = names.filter(|name| !name.starts_with('.'));
    Ok(names.map(|name| dir.join(name)).collect())
}

/// An entry.
///
/// # Errors
/// The file cannot be read, is not this user's alone, or is no entry.
pub(crate) fn read(path: &Path) -> io::Result<DueEntry> {
    read_from(files::open_unlinked(path)?)
}

/// The same from an open file.
pub(crate) fn read_from(file: File) -> io::Result<DueEntry> {
    let meta = file.metadata()?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    if !is_own || meta.nlink() > 1 || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("another user can have written it"));
    }
    let bytes = files::read_limited(file, LARGEST)?;
    let entry: DueEntry = serde_json::from_slice(&bytes)?;
    let is_whole = entry.workspace.is_absolute() && entry.agent.is_absolute();
    match is_whole {
        true => Ok(entry),
        false => Err(io::Error::other("its paths are not absolute")),
    }
}

fn check_private(dir: &Path) -> Result<()> {
    let shown = dir.display();
    let meta = dir
        .symlink_metadata()
        .map_err(|e| Error::failure(format!("cannot read {shown}: {}", reason(&e))))?;
    let is_own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    if is_own && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::config(format!(
        "others can write to {shown}, which decides what runs: make it a directory that is yours alone"
    )))
}
