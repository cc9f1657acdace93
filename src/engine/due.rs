//! The registry of runs that wait for a time: a file for each, below the person's state directory.
//!
//! Architecture invariant: what this directory says decides which programs run. It is the person's own, `delta sandbox`
//! keeps it read-only, and a file that another user could have written counts for nothing.

use crate::config::person;
use crate::error::{Error, Exit, Result, ignore, reason};
use crate::record::metadata::Status;
use crate::text::digest::sha256;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Time at which the entry was written, RFC 3339.
    pub registered_at: String,
    /// Words of the command line that resumes it.
    pub options: Vec<String>,
    /// The number of starts since it was registered that have left it as it was.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tries: u32,
    /// A person must continue it first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl DueEntry {
    /// The entry after a start that ended with this code, or by a signal, and has registered nothing: the next look is in
    /// a minute, then after twice as long, up to an hour. What only a person can change holds it.
    pub(crate) fn after(&self, code: Option<u8>) -> Self {
        const FIRST: Duration = Duration::from_secs(60);
        const LAST: Duration = Duration::from_secs(3600);
        let held = [Exit::Undecided, Exit::Config, Exit::Waiting, Exit::Usage];
        let now = Timestamp::now();
        let next = now.plus(LAST.min(FIRST * (1 << self.tries.min(6))));
        let known = Timestamp::parse(&self.due_at);
        Self {
            due_at: known.map_or(next, |at| at.max(next)).to_string(),
            registered_at: now.to_string(),
            tries: self.tries.saturating_add(1),
            held: held.iter().any(|exit| Some(exit.code()) == code),
            ..self.clone()
        }
    }

    /// Writes the entry in the place of another one.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = crate::text::json::text(self);
        files::replace_durably(path, format!("{text}\n").as_bytes())
    }

    fn file_names(&self) -> [String; 2] {
        let id = &self.run_id;
        let digest = sha256(self.workspace.as_os_str().as_encoded_bytes());
        [id.clone(), format!("{id}.{}", &digest[..16])]
    }
}

/// A run that is to be in the registry while it waits.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub run_id: String,
    pub workspace: PathBuf,
    pub agent: PathBuf,
    pub is_flow: bool,
    pub options: Vec<String>,
    /// The reason why it cannot be registered.
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
        let written = self.entry(due_at).write(&self.path(&dir));
        written.map_err(|error| error.message)
    }

    fn entry(&self, due_at: Timestamp) -> DueEntry {
        DueEntry {
            run_id: self.run_id.clone(),
            workspace: self.workspace.clone(),
            agent: self.agent.clone(),
            is_flow: self.is_flow,
            due_at: due_at.to_string(),
            registered_at: Timestamp::now().to_string(),
            options: self.options.clone(),
            tries: 0,
            held: false,
        }
    }

    /// The file of the run's entry, and the entry, if there is one.
    fn known(&self) -> Option<(PathBuf, DueEntry)> {
        let path = self.path(&existing_dir()?);
        let entry = read(&path).ok()?;
        let is_it = (&entry.workspace, &entry.agent) == (&self.workspace, &self.agent);
        is_it.then_some((path, entry))
    }

    /// Notes that a person continues the run: from now on it may be started again, if this start does not end it.
    pub(crate) fn note_start(&self) {
        if let Some((path, entry)) = self.known().filter(|(_, entry)| entry.held) {
            ignore(entry.after(None).write(&path));
        }
    }

    /// Notes the end of a start that waits for no time. A run that has ended leaves the registry.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn note_end(&self, status: Status, exit: Exit) -> Result<()> {
        if matches!(status, Status::Completed | Status::Failed) {
            return self.remove();
        }
        let Some((path, entry)) = self.known() else {
            return Ok(());
        };
        let again = DueEntry {
            options: self.options.clone(),
            ..entry.after(Some(exit.code()))
        };
        again.write(&path)
    }

    /// Registers the run again after a start that was too early for it. The options stay those of the start that left
    /// it waiting.
    ///
    /// # Errors
    /// Why that cannot be done, for people.
    pub(crate) fn put_again(&self, due_at: Timestamp) -> std::result::Result<(), String> {
        let known = self.known();
        let options = known.map_or_else(|| self.options.clone(), |(_, it)| it.options);
        let again = Self {
            options,
            ..self.clone()
        };
        again.put(due_at)
    }

    /// Takes the run out of the registry.
    pub(crate) fn remove(&self) -> Result<()> {
        let Some(dir) = existing_dir() else {
            return Ok(());
        };
        let path = self.path(&dir);
        match path.symlink_metadata() {
            Ok(_) => files::remove(&path),
            Err(_) => Ok(()),
        }
    }

    /// Named like the run, unless a run of this name in another workspace had the name when this one was registered first.
    fn path(&self, dir: &Path) -> PathBuf {
        let names = self.entry(Timestamp::from_millis(0)).file_names();
        let [short, longer] = names.map(|name| dir.join(name));
        let is_other = || read(&short).is_ok_and(|it| it.workspace != self.workspace);
        if longer.symlink_metadata().is_ok() || is_other() {
            return longer;
        }
        short
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

/// The same; none before the first run was registered.
fn existing_dir() -> Option<PathBuf> {
    dir().filter(|dir| dir.symlink_metadata().is_ok())
}

/// The paths of all entries.
///
/// # Errors
/// Another user could have written them.
pub(crate) fn paths() -> Result<Vec<PathBuf>> {
    let Some(dir) = existing_dir() else {
        return Ok(Vec::new());
    };
    check_private(&dir)?;
    let names = files::names(&dir)?
        .into_iter()
        .filter(|name| !name.starts_with('.'));
    Ok(names.map(|name| dir.join(name)).collect())
}

/// An entry.
///
/// # Errors
/// The file cannot be read, is not this user's alone, is no entry, or is named like another one.
pub(crate) fn read(path: &Path) -> io::Result<DueEntry> {
    let entry = read_from(files::open_unlinked(path)?)?;
    if entry.file_names().iter().any(|name| path.ends_with(name)) {
        return Ok(entry);
    }
    Err(io::Error::other("it is named like another run"))
}

/// The entry in an open file.
pub(crate) fn read_from(file: File) -> io::Result<DueEntry> {
    let meta = file.metadata()?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    if !is_own || meta.nlink() > 1 || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("another user can have written it"));
    }
    let bytes = files::read_limited(file, LARGEST)?;
    let entry: DueEntry = serde_json::from_slice(&bytes)
        .map_err(|e| io::Error::other(format!("it is damaged: {e}")))?;
    let is_whole = entry.workspace.is_absolute() && entry.agent.is_absolute();
    if !is_whole {
        return Err(io::Error::other("its paths are not absolute"));
    }
    Ok(entry)
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
