//! The store of states: `.delta/files.git`, a bare repository with a branch for each run.
//!
//! Unaware of what a state is.
//!
//! Architecture invariant: git works in it only while a lock on it is held, after every file that decides what git executes
//! or reads elsewhere has been made sure of. One that came with a workspace is never used, nor one that holds a link.

use super::git::Git;
use crate::error::{At, Error, Result, ignore};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::{RunId, hex};
use crate::unix::files;
use crate::unix::locks::{held_error, try_lock_for};
use crate::unix::origin::{ForeignReason, Origin, check_origin, make_stamped_dir};
use crate::unix::trees::{is_plain, remove_all};
use rustix::io::{FdFlags, fcntl_setfd};
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The name of the store in the control plane.
pub(crate) const STORE: &str = "files.git";

/// The name of the directory beside it with files that are being put back.
pub(crate) const TAKEN_OUT: &str = ".undo";

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

/// Locks that a killed git has left, which keep others from changing branches. They are removed by who uses the store alone.
const LEFT: [&str; 2] = ["packed-refs.lock", "packed-refs.new"];

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
    /// git with this index.
    pub git: Git,
    _lock: File,
    /// It goes when it is dropped.
    is_scratch: bool,
}

impl Drop for RunStore {
    fn drop(&mut self) {
        if self.is_scratch {
            ignore(remove_all(&self.path));
        }
    }
}

impl Store {
    /// Opens the store that there is; none if there is none.
    ///
    /// # Errors
    /// It is not to be used, or git is not installed.
    pub(crate) fn open(workspace: &Workspace, how: Use) -> Result<Option<Self>> {
        let path = workspace.control.join(STORE);
        match origin_of(&path, true)? {
            Origin::Own => Self::lock(workspace, how).map(Some),
            Origin::Missing => Ok(None),
            Origin::Foreign(reason) => Err(Error::failure(format!(
                "{} {reason}; it is not used: move it away, and the next run makes a new one",
                path.display()
            ))),
        }
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
        let left = LEFT.iter().filter(|_| how == Use::Alone);
        make_sure(&path, &FILES, REMOVED.iter().chain(left))?;
        Ok(Self {
            path,
            git,
            _lock: lock,
        })
    }

    /// The branch of a run, as git names it.
    pub(crate) fn branch(run: &RunId) -> String {
        format!("refs/heads/{}", run_name(run.as_str()))
    }

    /// The directory in which states of a run are taken, free of what a killed process has left.
    pub(super) fn run(&self, run: &RunId) -> Result<RunStore> {
        let branch = Self::branch(run);
        let below = Path::new("runs").join(run_name(run.as_str()));
        let path = files::make_dirs_below(&self.path, &below)?;
        let lock = locked(&path.join(LOCK), Use::Alone)?;
        remove_all(&self.path.join(format!("{branch}.lock")))?;
        let head = format!("ref: {branch}\n");
        let own = [("HEAD", &*head), ("commondir", "../..\n")];
        let left = ["index.lock", "HEAD.lock", "config.worktree", "shallow"];
        make_sure(&path, &own, &left)?;
        Ok(RunStore {
            git: self.git.with_index(&path),
            path,
            branch,
            _lock: lock,
            is_scratch: false,
        })
    }

    /// An index for the files of a directory, for one command.
    pub(super) fn scratch(&self, dir: &Path) -> Result<RunStore> {
        let mut made = self.run(&RunId::parse(&hex(12)).map_err(Error::failure)?)?;
        made.is_scratch = true;
        dir.clone_into(&mut made.git.root);
        Ok(made)
    }

    /// Changes what differs between two states in a directory, whatever is there; what is in neither stays.
    pub(crate) fn bring(&self, dir: &Path, from: Option<&str>, to: &str) -> Result<()> {
        let git = &self.scratch(dir)?.git;
        git.line(&["read-tree", from.unwrap_or("--empty")])?;
        git.line(&["read-tree", "--reset", "-u", to]).map(drop)
    }

    /// Copies a state, and those before it, into the store of another workspace.
    pub(crate) fn copy_to(&self, workspace: &Workspace, commit: &str) -> Result<()> {
        let (mut other, _) = Self::make(workspace, true)?;
        other.git.syncs = true;
        let words = ["pack-objects", "-q", "--revs", "--stdout"];
        let commits = files::in_memory(commit.as_bytes()).at("read", &self.path)?;
        let mut packing = self.git.command(&words);
        let packing = packing.stdin(commits).stdout(Stdio::piped()).spawn();
        let mut packing = packing.at("read", &self.path)?;
        let pack = packing.stdout.take().map_or(Stdio::null(), Stdio::from);
        // It fails, too, if the pack is not whole.
        let copied = other.git.run_from(&["unpack-objects", "-q"], pack);
        packing.wait().at("read", &self.path)?;
        copied.map(drop)
    }

    /// Removes the states of these runs and of those that are gone, and what no branch leads to then. The store is used alone.
    pub(crate) fn sweep(&self, workspace: &Workspace, removed: &[RunId]) -> Result<()> {
        let there = files::names(&workspace.control)?;
        let there: BTreeSet<String> = there.iter().map(|name| run_name(name)).collect();
        let known = files::names(&self.path.join("runs"))?.into_iter();
        let mut gone: BTreeSet<String> = known.filter(|name| !there.contains(name)).collect();
        gone.extend(removed.iter().map(|run| run_name(run.as_str())));
        let mut deleted = String::new();
        for name in &gone {
            for path in ["refs/damaged/", "refs/heads/"].map(|dir| format!("{dir}{name}")) {
                remove_all(&self.path.join(&path))?;
                remove_all(&self.path.join(path + ".lock"))?;
            }
            deleted += &format!("delete refs/heads/{name}\n");
        }
        let git = &self.git;
        git.run(&["update-ref", "--stdin"], deleted.as_bytes())?;
        git.line(&["prune", "--expire=now"])?;
        // Last: by these it is known which are left.
        let mut dirs = gone.iter().map(|name| self.path.join("runs").join(name));
        dirs.try_for_each(|dir| remove_all(&dir))
    }
}

/// True if the store beside a run has states of it.
pub(crate) fn has_states(run: &RunDir) -> bool {
    let runs = run.path.with_file_name(STORE).join("runs");
    runs.join(run_name(run.id.as_str())).exists()
}

/// The name of a run in the store.
fn run_name(run: &str) -> String {
    let digits = run.bytes().map(|byte| format!("{byte:02x}"));
    digits.collect::<Vec<_>>().concat()
}

/// The origin of a store. A foreign one is never used, nor one with anything in it that could lead git elsewhere, or keep
/// it waiting.
fn origin_of(path: &Path, is_thorough: bool) -> Result<Origin> {
    let origin = check_origin(path)?;
    let is_odd = origin == Origin::Own && is_thorough && !is_plain(path).at("read", path)?;
    Ok(if is_odd {
        Origin::Foreign(ForeignReason::OddContent)
    } else {
        origin
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
fn make_sure<'n>(
    dir: &Path,
    contents: &[(&str, &str)],
    removed: impl IntoIterator<Item = &'n &'n str>,
) -> Result<()> {
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
