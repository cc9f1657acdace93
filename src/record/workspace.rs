//! Workspaces, and the control plane inside each: which runs there are and which is the newest.
//!
//! Unaware of what is in a run.

use crate::error::{At, Error, Result};
use crate::record::metadata;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::procfs::Signals;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The layout that this engine writes.
pub(crate) const LAYOUT: &str = "1.2\n";

/// A directory that an agent works in.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The directory, absolute. UTF-8.
    pub root: PathBuf,
    /// The control plane, `.delta` in it.
    pub control: PathBuf,
}

/// Held while it is decided which run to start or resume.
#[derive(Debug)]
pub(crate) struct DecisionLock {
    files: Vec<File>,
}

impl DecisionLock {
    /// Both, let go of together.
    pub(crate) fn and(mut self, other: Option<Self>) -> Self {
        self.files
            .extend(other.into_iter().flat_map(|other| other.files));
        self
    }
}

impl Workspace {
    /// The workspace at a path that may not be there yet.
    ///
    /// # Errors
    /// It is there and is no directory, or its path is not UTF-8.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let root = match path.canonicalize() {
            Ok(root) if root.is_dir() => root,
            Ok(_) => {
                let path = path.display();
                return Err(Error::config(format!(
                    "work directory {path} is not a directory"
                )));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => files::absolute(path)?,
            Err(e) => {
                return Err(Error::new(
                    crate::error::Exit::Config,
                    Error::io("open work directory", path, &e).message,
                ));
            }
        };
        if root.to_str().is_none() {
            let path = path.display();
            return Err(Error::config(format!(
                "the path of work directory {path} is not UTF-8"
            )));
        }
        let control = root.join(".delta");
        Ok(Self { root, control })
    }

    /// Refuses a workspace that could not be written to, before anything is created.
    pub(crate) fn check_writable(&self) -> Result<()> {
        use rustix::fs::{Access, access};
        let mut there = self.root.as_path();
        while !there.exists() {
            match there.parent() {
                Some(parent) => there = parent,
                None => break,
            }
        }
        if !there.is_dir() {
            let message = format!(
                "work directory {}: {} is not a directory",
                self.root.display(),
                there.display()
            );
            return Err(Error::config(message));
        }
        access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
            let cause = io::Error::from(errno);
            let message = Error::io("write to work directory", there, &cause).message;
            Error::config(message)
        })
    }

    /// Refuses a workspace in an older layout.
    pub(crate) fn check_layout(&self) -> Result<()> {
        let old = ["runs", "schema_version.txt"];
        if old.iter().any(|name| self.control.join(name).exists()) {
            let root = self.root.display();
            return Err(Error::failure(format!(
                "workspace {root} was written by an older engine; `delta migrate -w {root}` brings it into today's layout"
            )));
        }
        match files::read_line(&self.control.join("VERSION")) {
            Some(version) if version != LAYOUT.trim_end() => {
                let root = self.root.display();
                Err(Error::failure(format!(
                    "workspace {root} is in layout {version}, which this engine does not know; it knows {}",
                    LAYOUT.trim_end()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Makes the workspace and its control plane, unless they are there.
    pub(crate) fn create(&self) -> Result<()> {
        DirBuilder::new()
            .recursive(true)
            .create(&self.root)
            .at("create", &self.root)?;
        match DirBuilder::new().mode(0o700).create(&self.control) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if self.control.join("VERSION").exists() {
                    return Ok(());
                }
            }
            Err(e) => return Err(e).at("create", &self.control),
        }
        files::replace_shared(&self.control.join(".gitignore"), b"*\n")?;
        files::replace_shared(&self.control.join("VERSION"), LAYOUT.as_bytes())
    }

    /// Waits for the lock under which runs are chosen and created.
    ///
    /// # Errors
    /// A signal came while another process held it.
    pub(crate) fn lock(&self, signals: &Signals) -> Result<DecisionLock> {
        let path = self.control.join("lock");
        wait_for_lock(files::append(&path)?, &path, signals)
    }

    /// The runs there are, sorted by name.
    pub(crate) fn runs(&self) -> Result<Vec<RunId>> {
        let names = files::names(&self.control)?;
        let is_run = |id: &RunId| {
            let dir = self.run_path(id);
            dir.join("journal.jsonl").exists() || dir.join("metadata.json").exists()
        };
        Ok(names
            .iter()
            .filter_map(|name| RunId::parse(name).ok())
            .filter(is_run)
            .collect())
    }

    /// A run's directory, whether it is there or not.
    pub(crate) fn run_path(&self, id: &RunId) -> PathBuf {
        self.control.join(id.as_str())
    }

    /// The run that was created last.
    pub(crate) fn newest(&self) -> Result<Option<RunId>> {
        let named =
            files::read_line(&self.control.join("LATEST")).and_then(|id| RunId::parse(&id).ok());
        if let Some(id) = named
            && self.run_path(&id).is_dir()
        {
            return Ok(Some(id));
        }
        let mut runs = self.runs()?;
        runs.sort_by_key(|id| self.created_at(id));
        Ok(runs.pop())
    }

    /// Where a run is built before anybody can see it. The decision lock is held.
    pub(crate) fn unborn(&self) -> PathBuf {
        self.control.join(".new")
    }

    /// Removes what is left of a run whose builder died. Nothing had happened in it.
    pub(crate) fn clear_unborn(&self) -> Result<()> {
        let unborn = self.unborn();
        match fs::remove_dir_all(&unborn) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at("remove", &unborn),
            _ => Ok(()),
        }
    }

    /// Writes down which run is the newest, if LATEST does not say so. The decision lock is held.
    pub(crate) fn mend_latest(&self, newest: &RunId) -> Result<()> {
        let path = self.control.join("LATEST");
        if files::read_line(&path).as_deref() == Some(newest.as_str()) {
            return Ok(());
        }
        files::replace(&path, format!("{newest}\n").as_bytes())
    }

    /// When a run was created: as its metadata or its journal says, or else as its name does.
    pub(crate) fn created_at(&self, id: &RunId) -> (Option<Timestamp>, RunId) {
        let dir = self.run_path(id);
        let from_metadata = metadata::read(&dir).and_then(|m| Timestamp::parse(&m.created_at));
        let time = from_metadata.or_else(|| {
            let line = files::read_line(&dir.join("journal.jsonl"))?;
            Timestamp::parse(&crate::record::event::Line::parse(&line).ok()?.timestamp?)
        });
        (time, id.clone())
    }

    /// The workspace's name, as it stands in metadata.
    pub(crate) fn id(&self) -> String {
        let name = self.root.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

fn wait_for_lock(file: File, path: &Path, signals: &Signals) -> Result<DecisionLock> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(DecisionLock { files: vec![file] }),
            Err(fs::TryLockError::WouldBlock) => {
                if let Err(stop) = signals.sleep(Duration::from_millis(2)) {
                    let message = format!("{} while waiting for {}", stop.name(), path.display());
                    return Err(Error::new(stop.into(), message));
                }
            }
            Err(fs::TryLockError::Error(cause)) => return Err(cause).at("lock", path),
        }
    }
}

/// Waits for the lock on all workspaces of an agent; none if there are no workspaces and none can be
/// made.
pub(crate) fn lock_all(agent_home: &Path, signals: &Signals) -> Result<Option<DecisionLock>> {
    let parent = agent_home.join("workspaces");
    if DirBuilder::new().recursive(true).create(&parent).is_err() {
        return Ok(None);
    }
    let dir = File::open(&parent).at("open", &parent)?;
    wait_for_lock(dir, &parent, signals).map(Some)
}

/// An agent's workspaces, in the order of their numbers.
pub(crate) fn numbered(agent_home: &Path) -> Result<Vec<String>> {
    let names = files::names(&agent_home.join("workspaces"))?;
    let mut found: Vec<(u64, String)> = names
        .into_iter()
        .filter_map(|name| Some((number(&name)?, name)))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

/// Where the next workspace of an agent would be, if nobody else makes one first.
pub(crate) fn next(agent_home: &Path) -> Result<PathBuf> {
    let last = numbered(agent_home)?
        .last()
        .and_then(|name| number(name))
        .unwrap_or(0);
    let name = format!("W{:03}", last + 1);
    Ok(agent_home.join("workspaces").join(name))
}

/// Makes the next free workspace of an agent; no two processes get the same.
pub(crate) fn claim_next(agent_home: &Path) -> Result<PathBuf> {
    let parent = agent_home.join("workspaces");
    DirBuilder::new()
        .recursive(true)
        .create(&parent)
        .at("create", &parent)?;
    let last = numbered(agent_home)?
        .last()
        .and_then(|name| number(name))
        .unwrap_or(0);
    for n in last + 1.. {
        let path = parent.join(format!("W{n:03}"));
        match DirBuilder::new().create(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).at("create", &path),
        }
    }
    unreachable!("more workspaces than numbers")
}

fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('W')?;
    (digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// The workspace that was used last, if it is still there.
pub(crate) fn last_used(agent_home: &Path) -> Option<String> {
    let parent = agent_home.join("workspaces");
    let name = files::read_line(&parent.join("LAST_USED"))?;
    (number(&name).is_some() && parent.join(&name).is_dir()).then_some(name)
}

/// Remembers one of an agent's own workspaces as the one used last.
pub(crate) fn remember(agent_home: &Path, workspace: &Workspace) -> Result<()> {
    let parent = agent_home.join("workspaces");
    files::replace_shared(
        &parent.join("LAST_USED"),
        format!("{}\n", workspace.id()).as_bytes(),
    )
}
