//! Workspaces, and the control plane inside each: which runs there are and which is the newest.
//!
//! Unaware of what is in a run.

use crate::error::{At, Error, Result};
use crate::record::metadata;
use crate::record::reader::read_event;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::locks::wait_for_lock;
use crate::unix::origin::{Origin, check_origin, make_stamped_dir};
use crate::unix::signals::Signals;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The layout that this engine writes.
pub(crate) const LAYOUT: &str = "1.2\n";

/// The same with events that engines of the layout before misread.
const LATER_LAYOUT: &str = "1.3\n";

/// The layouts before it.
const OLD_LAYOUTS: [&str; 2] = ["1.0", "1.1"];

/// True for the number of a layout that this engine reads and writes.
fn is_known_layout(version: &str) -> bool {
    [LAYOUT, LATER_LAYOUT]
        .iter()
        .any(|known| known.trim_end() == version)
}

/// The most bytes of a layout's number.
const LONGEST_NUMBER: u64 = 16;

/// The number of a layout in a file's first line, empty if that is; only digits and dots, so that no text of another
/// file is ever shown in its place. A link is not followed.
fn read_layout(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    files::open_unlinked(path)?
        .take(LONGEST_NUMBER + 1)
        .read_to_end(&mut text)?;
    let is_whole = text.len() as u64 <= LONGEST_NUMBER || text.contains(&b'\n');
    let number = text
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    if is_whole && number.iter().all(is_part) {
        Ok(String::from_utf8_lossy(number).into_owned())
    } else {
        Err(io::Error::other("it does not name a layout"))
    }
}

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

/// Held by the flow's run that works in a workspace itself, and not in directories below it.
#[derive(Debug)]
pub(crate) struct RootHold {
    _file: File,
}

/// The file that names the run of the last [`RootHold`].
const HOLDER: &str = "ROOT";

impl DecisionLock {
    pub(super) fn wait(
        file: File,
        path: &Path,
        signals: &Signals,
        until: Option<Instant>,
    ) -> Result<Self> {
        wait_for_lock(|| file.try_lock(), path, signals, until).map_err(|(error, _)| error)?;
        Ok(Self { files: vec![file] })
    }

    /// Both, let go of together.
    pub(crate) fn and(mut self, other: Option<Self>) -> Self {
        self.files
            .extend(other.into_iter().flat_map(|other| other.files));
        self
    }
}

/// The words of a command that a person may run in a workspace, which they name unless it is the current directory.
pub(crate) fn command_in(root: &Path, command: &[&str]) -> Vec<String> {
    let mut words: Vec<String> = command.iter().copied().map(str::to_owned).collect();
    if !is_here(root) {
        words.extend(["-w".to_owned(), root.to_string_lossy().into_owned()]);
    }
    words
}

/// ` in DIR`, for a person; empty if it is the current directory.
pub(crate) fn place_of(root: &Path) -> String {
    if is_here(root) {
        String::new()
    } else {
        format!(" in {}", root.display())
    }
}

fn is_here(root: &Path) -> bool {
    std::env::current_dir().is_ok_and(|here| here == root)
}

impl Workspace {
    /// The workspace at a path that may not be there yet.
    ///
    /// # Errors
    /// Fails if the path exists and is no directory, or is not UTF-8.
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
        let path = self.control.join("VERSION");
        let version = read_layout(&path);
        let old = ["runs", "schema_version.txt"];
        let is_old = version
            .as_ref()
            .is_ok_and(|version| OLD_LAYOUTS.contains(&version.as_str()));
        if is_old || old.iter().any(|name| self.control.join(name).exists()) {
            let root = self.root.display();
            return Err(Error::config(format!(
                "workspace {root} was made by an engine before 1.2; start in a new workspace"
            )));
        }
        match version {
            Ok(version) if !version.is_empty() && !is_known_layout(&version) => {
                let root = self.root.display();
                let [first, second] = [LAYOUT, LATER_LAYOUT].map(str::trim_end);
                Err(Error::failure(format!(
                    "workspace {root} is in layout {version}, which this engine does not know; it knows {first} and {second}"
                )))
            }
            // Not what keeps the file from being opened: what else is in the way names that.
            Err(cause) if cause.kind() == io::ErrorKind::Other => Err(cause).at("read", &path),
            _ => Ok(()),
        }
    }

    /// Marks the workspace before an event is recorded that older engines would misread.
    pub(crate) fn raise_layout(&self) -> Result<()> {
        let path = self.control.join("VERSION");
        if read_layout(&path).is_ok_and(|version| version == LATER_LAYOUT.trim_end()) {
            Ok(())
        } else {
            files::replace_shared(&path, LATER_LAYOUT.as_bytes())
        }
    }

    /// Makes the workspace and its control plane, unless they are there.
    pub(crate) fn create(&self) -> Result<()> {
        DirBuilder::new()
            .recursive(true)
            .create(&self.root)
            .at("create", &self.root)
            .map_err(|mut error| {
                if !error.is_passing {
                    error.exit = crate::error::Exit::Config;
                }
                error
            })?;
        const FILES: [(&str, &[u8]); 2] = [(".gitignore", b"*\n"), ("VERSION", LAYOUT.as_bytes())];
        if check_origin(&self.control)? == Origin::Missing {
            make_stamped_dir(&self.control, &FILES)?;
        }
        // Missing from a directory that was adopted or cleaned by hand.
        FILES
            .iter()
            .filter(|(name, _)| !self.control.join(name).exists())
            .into_iter()
            .try_for_each(|(name, bytes)| files::replace_shared(&self.control.join(name), bytes))
    }

    /// Waits for the lock under which runs are chosen and created.
    ///
    /// # Errors
    /// A signal came while another process held it, or it is not free at `until`.
    pub(crate) fn lock(&self, signals: &Signals, until: Option<Instant>) -> Result<DecisionLock> {
        let path = self.control.join("lock");
        DecisionLock::wait(files::append(&path)?, &path, signals, until)
    }

    /// The same lock, unless another process holds it.
    pub(crate) fn try_lock(&self) -> Result<Option<DecisionLock>> {
        let path = self.control.join("lock");
        let file = files::append(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DecisionLock { files: vec![file] })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(cause)) => Err(cause).at("lock", &path),
        }
    }

    /// Takes the workspace for a run that works in it. None if another run has it. The decision lock is held.
    pub(crate) fn hold_root(&self, run: &RunId) -> Result<Option<RootHold>> {
        let path = self.control.join("root.lock");
        let file = files::append(&path)?;
        match file.try_lock() {
            Ok(()) => {
                // Not into the lock itself, which may be a link to another file.
                files::replace_shared(&self.control.join(HOLDER), format!("{run}\n").as_bytes())?;
                Ok(Some(RootHold { _file: file }))
            }
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(cause)) => Err(cause).at("lock", &path),
        }
    }

    /// The run that took the workspace last, as far as it can be read.
    pub(crate) fn root_holder(&self) -> Option<RunId> {
        let name = files::read_line(&self.control.join(HOLDER))?;
        RunId::parse(&name).ok()
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

    /// Place where a run is built before anybody can see it. The decision lock is held.
    pub(crate) fn staging_dir(&self) -> PathBuf {
        self.control.join(".new")
    }

    /// Removes what is left of a run whose builder died. Nothing had happened in it.
    pub(crate) fn clear_unborn(&self) -> Result<()> {
        let staging = self.staging_dir();
        let removed = fs::remove_dir_all(&staging).if_there();
        removed.at("remove", &staging).map(drop)
    }

    /// Names a run that is being made as the newest. The decision lock is held.
    pub(super) fn name_latest(&self, id: &RunId) -> Result<()> {
        let path = self.control.join("LATEST");
        let line = format!("{id}\n");
        if path.symlink_metadata().is_ok() {
            return files::replace(&path, line.as_bytes());
        }
        // Nothing reads half a name: what is no run's is ignored.
        files::write(&path, line.as_bytes())
    }

    /// Writes down which run is the newest, if LATEST does not say so. The decision lock is held.
    pub(crate) fn mend_latest(&self, newest: &RunId) -> Result<()> {
        let path = self.control.join("LATEST");
        if files::read_line(&path).as_deref() == Some(newest.as_str()) {
            return Ok(());
        }
        files::replace(&path, format!("{newest}\n").as_bytes())
    }

    /// Time when a run was created: as its metadata or its journal says, or else as its name does.
    pub(crate) fn created_at(&self, id: &RunId) -> (Option<Timestamp>, RunId) {
        let dir = self.run_path(id);
        let time = metadata::read(&dir)
            .and_then(|m| Timestamp::parse(&m.created_at))
            .or_else(|| {
                let line = files::read_line(&dir.join("journal.jsonl"))?;
                read_event(line.as_bytes(), 0).ok()?.time()
            });
        (time, id.clone())
    }

    /// The workspace's name in metadata.
    pub(crate) fn id(&self) -> String {
        files::name_of(&self.root).into_owned()
    }
}
