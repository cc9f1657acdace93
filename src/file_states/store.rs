//! The store of states: `.delta/files.git`, a bare repository with a branch for each run.
//!
//! Unaware of what a state is.
//!
//! Architecture invariant: git works in it only while a lock on it is held, after every file that decides what git executes
//! or reads elsewhere has been made sure of. One that came with a workspace is never used, nor one that holds a link.

use super::git::Git;
use crate::error::{At, Error, Result};
use crate::record::workspace::Workspace;
use crate::text::ids::{RunId, hex};
use crate::unix::files;
use crate::unix::locks::{held_error, try_lock_for};
use crate::unix::origin::{ForeignReason, Origin, check_origin, make_stamped_dir};
use crate::unix::trees::{is_plain, remove_all};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the store in the control plane.
pub(crate) const STORE: &str = "files.git";

/// The name of the lock in the store, and in the directory of a run.
const LOCK: &str = "delta.lock";

/// Files of the store, with their contents.
const FILES: [(&str, &str); 4] = [
    ("config", include_str!("config")),
    ("HEAD", "ref: refs/heads/none\n"),
    (
        "info/attributes",
        "* -text -filter -ident -working-tree-encoding !diff\n",
    ),
    ("info/exclude", ""),
];

/// Names in the store by which git executes programs, or reads elsewhere or otherwise.
const REMOVED: [&str; 8] = [
    "hooks",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "commondir",
    "config.worktree",
    "shallow",
    "info/grafts",
    "info/sparse-checkout",
];

/// The time in which a lock is free again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way the store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// States are added and read.
    Shared,
    /// What no state has is removed.
    Alone,
}

/// The store of a workspace, locked.
#[derive(Debug)]
pub(crate) struct Store {
    pub path: PathBuf,
    pub git: Git,
    _lock: File,
}

/// The directory of a run in the store, with its index, locked.
pub(super) struct RunStore {
    pub path: PathBuf,
    pub branch: String,
    _lock: File,
}

impl Store {
    /// Opens the store that there is; none if there is none.
    ///
    /// # Errors
    /// It is not to be used, or git is not installed.
    pub(crate) fn open(workspace: &Workspace, how: Use) -> Result<Option<Self>> {
        let (origin, store) = Self::find(workspace, how)?;
        if let Origin::Foreign(reason) = origin {
            let path = workspace.control.join(STORE);
            let path = path.display();
            return Err(Error::failure(format!("{path} {reason}; it is not used")));
        }
        Ok(store)
    }

    /// Opens the store if it is this user's own.
    pub(crate) fn find(workspace: &Workspace, how: Use) -> Result<(Origin, Option<Self>)> {
        let origin = origin_of(&workspace.control.join(STORE), true)?;
        let is_own = origin == Origin::Own;
        let store = is_own.then(|| Self::lock(workspace, how)).transpose()?;
        Ok((origin, store))
    }

    /// Opens the store, which is made unless it is there. Returns also where something else was put that had its name.
    /// `is_new_here`: this start has not looked at all of it yet.
    pub(super) fn make(
        workspace: &Workspace,
        is_new_here: bool,
    ) -> Result<(Self, Option<PathBuf>)> {
        let path = workspace.control.join(STORE);
        let mut aside = None;
        if origin_of(&path, is_new_here)? != Origin::Own {
            let only = File::open(&workspace.control).at("lock", &workspace.control)?;
            only.lock().at("lock", &workspace.control)?;
            if let Origin::Foreign(_) = origin_of(&path, is_new_here)? {
                let to = workspace.control.join(format!(".{STORE}.{}", hex(12)));
                fs::rename(&path, &to).at("put aside", &path)?;
                aside = Some(to);
            }
            make_stamped_dir(&path, &[])?;
        }
        Ok((Self::lock(workspace, Use::Shared)?, aside))
    }

    fn lock(workspace: &Workspace, how: Use) -> Result<Self> {
        let path = workspace.control.join(STORE);
        let git = Git::find(&workspace.root, &path)?;
        let lock = locked(&path.join(LOCK), how)?;
        // Where one of them is a link, nothing is removed.
        for dir in ["objects/info", "objects/pack", "refs/heads", "info", "runs"] {
            files::make_dirs_below(&path, Path::new(dir))?;
        }
        make_sure(&path, &FILES, &REMOVED)?;
        Ok(Self {
            path,
            git,
            _lock: lock,
        })
    }

    /// The branch of a run, as git names it.
    pub(crate) fn branch(run: &RunId) -> String {
        format!("refs/heads/{}", run_name(run))
    }

    /// The directory in which states of a run are taken, free of what a killed process has left.
    pub(super) fn run(&self, run: &RunId) -> Result<RunStore> {
        let branch = Self::branch(run);
        let path = files::make_dirs_below(&self.path, &Path::new("runs").join(run_name(run)))?;
        let lock = locked(&path.join(LOCK), Use::Alone)?;
        remove_all(&self.path.join(format!("{branch}.lock")))?;
        let head = format!("ref: {branch}\n");
        let own = [("HEAD", &*head), ("commondir", "../..\n")];
        let left = ["index.lock", "HEAD.lock", "config.worktree", "shallow"];
        make_sure(&path, &own, &left)?;
        Ok(RunStore {
            path,
            branch,
            _lock: lock,
        })
    }

    /// Changes what differs between two states in a directory, whatever is there; what is in neither stays.
    pub(crate) fn bring(&self, dir: &Path, from: Option<&str>, to: &str) -> Result<()> {
        let scratch = self.run(&RunId::parse(&hex(12)).map_err(Error::failure)?)?;
        let git = |words: &[&str]| self.git.at(dir).run(&scratch.path, words, b"");
        git(&["read-tree", from.unwrap_or("--empty")])?;
        git(&["read-tree", "--reset", "-u", to])?;
        remove_all(&scratch.path)
    }

    /// Copies a state, and those before it, into the store of another workspace.
    pub(crate) fn copy_to(&self, workspace: &Workspace, commit: &str) -> Result<()> {
        let (mut other, _) = Self::make(workspace, true)?;
        other.git.syncs = true;
        let words = ["pack-objects", "-q", "--revs", "--stdout"];
        let pack = self.git.run(&self.path, &words, commit.as_bytes())?;
        let words = ["unpack-objects", "-q"];
        other.git.run(&other.path, &words, &pack).map(drop)
    }

    /// Removes the states of a run. What no other state has stays until [`Self::sweep`].
    pub(crate) fn forget(&self, run: &RunId) -> Result<()> {
        remove_all(&self.path.join("runs").join(run_name(run)))?;
        let branch = Self::branch(run);
        remove_all(&self.path.join(format!("{branch}.lock")))?;
        self.git
            .run(&self.path, &["update-ref", "-d", &branch], b"")
            .map(drop)
    }

    /// Removes what no branch leads to. The store is used alone.
    pub(crate) fn sweep(&self) -> Result<()> {
        let words = ["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"];
        let (kept, runs) = (self.git.line(&self.path, &words)?, self.path.join("runs"));
        for name in files::names(&runs)? {
            if !kept.lines().any(|run| run == name) {
                remove_all(&runs.join(name))?;
            }
        }
        let words = ["prune", "--expire=now"];
        self.git.run(&self.path, &words, b"").map(drop)
    }
}

fn run_name(run: &RunId) -> String {
    let bytes = run.as_str().bytes();
    let digits: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// The origin of a store. A foreign one is never used, nor one with anything in it that could lead git elsewhere, or keep
/// it waiting.
fn origin_of(path: &Path, is_thorough: bool) -> Result<Origin> {
    let origin = check_origin(path)?;
    let is_odd = origin == Origin::Own && is_thorough && !is_plain(path).at("read", path)?;
    Ok(match is_odd {
        true => Origin::Foreign(ForeignReason::OddContent),
        false => origin,
    })
}

/// A lock that the programs share which this process starts, so that it lasts as long as they do.
pub(crate) fn locked(path: &Path, how: Use) -> Result<File> {
    let file = files::open_or_create(path).at("lock", path)?;
    let lock = || match how {
        Use::Shared => file.try_lock_shared(),
        Use::Alone => file.try_lock(),
    };
    match try_lock_for(PATIENCE, lock) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(held_error(path)),
        Err(TryLockError::Error(cause)) => return Err(cause).at("lock", path),
    }
    fcntl_setfd(&file, FdFlags::empty()).at("lock", path)?;
    Ok(file)
}

/// Gives files below a directory their contents, each in one step, where they differ, and removes others.
fn make_sure(dir: &Path, contents: &[(&str, &str)], removed: &[&str]) -> Result<()> {
    for (name, text) in contents {
        let path = Path::new(name);
        let most = text.len() as u64;
        if files::read_below(dir, path, most).is_ok_and(|found| found == text.as_bytes()) {
            continue;
        }
        if dir.join(path).is_dir() {
            remove_all(&dir.join(path))?;
        }
        files::write_below(dir, path, |mut file| file.write_all(text.as_bytes()))?;
    }
    for name in removed {
        remove_all(&dir.join(name))?;
    }
    Ok(())
}
