//! Files of a workspace put back to what they are in a state: which change for that, and what is in the way.
//!
//! Architecture invariant: nothing is overwritten or removed that is in no state, and nothing at all if anything is in the way.
//! Without force, nothing either that no iteration of the run has left: a state that is taken to keep it does not make it so.

use super::changes::DIFF;
use super::store::Store;
use crate::error::{Error, Result, ignore};
use crate::unix::files::{is_dir_below, open_below};
use crate::unix::replaced::{place, remove_below};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The states that decide what changes, by their commits.
pub(crate) struct States<'s> {
    /// What differs between these two is put back.
    pub from: &'s str,
    pub to: &'s str,
    /// The last one that is recorded.
    pub last: &'s str,
    pub now: &'s str,
    /// What the run has begun with, and what its iterations have left.
    pub own: &'s [&'s str],
    /// When that to return to was taken; none: the record does not say.
    pub since: Option<SystemTime>,
}

/// The reasons that force overrides.
const CHANGED: &str = "it has changed since";
const OLDER: &str = "it is older than the state";

/// The reason why nothing has the content of what is there.
const UNKNOWN: &str = "it is in no state, and would be lost";

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Files that change; false: they are removed.
    pub changes: BTreeMap<PathBuf, bool>,
    /// The same with those that have changed since the last state was recorded.
    pub files: BTreeMap<PathBuf, bool>,
    pub in_the_way: BTreeMap<PathBuf, &'static str>,
    since: Option<SystemTime>,
}

/// What differs after a file was written: its inode, size and time of modification; none: there is no file, behind a link
/// neither.
type Stamps = BTreeMap<PathBuf, Option<[i64; 4]>>;

fn stamp_of(root: &Path, path: &Path) -> Option<[i64; 4]> {
    let about = open_below(root, path).ok()?.metadata().ok()?;
    let (inode, size) = (about.ino().cast_signed(), about.size().cast_signed());
    Some([inode, size, about.mtime(), about.mtime_nsec()])
}

/// What a state has of each path: mode, type and name of the content.
type Tree = BTreeMap<PathBuf, String>;

impl Plan {
    /// `force`: what has changed since is overwritten, too, if it is in a state.
    pub(crate) fn make(
        store: &Store,
        root: &Path,
        states: &States<'_>,
        force: bool,
    ) -> Result<Self> {
        let (from, to) = (tree_of(store, states.from)?, tree_of(store, states.to)?);
        let (last, now) = (tree_of(store, states.last)?, tree_of(store, states.now)?);
        let mut plan = Self {
            since: states.since,
            ..Self::default()
        };
        let mut doubtful = Vec::new();
        let content = |entry: &String| entry.split(' ').next_back().map(str::to_owned);
        let contents: HashSet<_> = to.values().map(content).collect();
        let both = from.keys().chain(to.keys());
        for path in both.filter(|path| from.get(*path) != to.get(*path)) {
            let (there, wanted) = (now.get(path), to.get(path));
            // What no state has now is there all the same.
            let is_so = wanted.is_some() || root.join(path).symlink_metadata().is_err();
            if there != wanted || last.get(path) != wanted && is_so {
                plan.files.insert(path.clone(), wanted.is_some());
            }
            if there == wanted {
                continue;
            }
            plan.changes.insert(path.clone(), wanted.is_some());
            if force {
                continue;
            }
            let is_only = there.is_some_and(|it| !contents.contains(&content(it)));
            if there != from.get(path) {
                plan.in_the_way.insert(path.clone(), CHANGED);
            } else if wanted.is_none() && is_only && is_older(&root.join(path), plan.since) {
                plan.in_the_way.insert(path.clone(), OLDER);
            } else {
                doubtful.extend(there.map(|_| path));
            }
        }
        for commit in states.own {
            if doubtful.is_empty() {
                break;
            }
            let tree = tree_of(store, commit)?;
            doubtful.retain(|path| tree.get(*path) != now.get(*path));
        }
        let edited = doubtful.into_iter().cloned();
        plan.in_the_way.extend(edited.map(|path| (path, CHANGED)));
        let obstacles = plan.obstacles(root, &now);
        plan.in_the_way.extend(obstacles);
        for (path, is_there) in &plan.changes {
            if let Some(why) = refusal(root, path, *is_there) {
                plan.in_the_way.entry(path.clone()).or_insert(why);
            }
        }
        Ok(plan)
    }

    /// The files that change and are there, or are not, afterwards.
    fn changed(&self, is_there: bool) -> impl Iterator<Item = &PathBuf> {
        let changes = self.changes.iter();
        changes.filter_map(move |(path, there)| (*there == is_there).then_some(path))
    }

    /// True if force overwrites some of what is in the way.
    pub(crate) fn yields_to_force(&self) -> bool {
        let mut reasons = self.in_the_way.values();
        reasons.any(|why| [CHANGED, OLDER].contains(why))
    }

    /// What has the places of files, or of the directories that they are in, and does not go.
    fn obstacles(&self, root: &Path, now: &Tree) -> Vec<(PathBuf, &'static str)> {
        let mut found = Vec::new();
        for place in self.changed(true) {
            for path in in_place_of(root, place) {
                let is_known = now.contains_key(&path);
                let goes = self.changes.get(&path) == Some(&false) || path == *place && is_known;
                let why = if is_known {
                    "it is in the place of another file"
                } else {
                    UNKNOWN
                };
                found.extend((!goes).then_some((path, why)));
            }
        }
        found
    }

    /// What the files that change are now.
    pub(crate) fn stamps(&self, root: &Path) -> Stamps {
        let paths = self.changes.keys();
        paths
            .map(|path| (path.clone(), stamp_of(root, path)))
            .collect()
    }

    /// Changes the files of which nothing is in the way. `new`: a directory with those that do not go. Returns those that
    /// stay as they are all the same, with the reasons.
    /// `stamps`: those of the files that are in a state.
    pub(crate) fn carry_out(
        &self,
        root: &Path,
        new: &Path,
        stamps: &Stamps,
    ) -> BTreeMap<PathBuf, String> {
        let mut failed = BTreeMap::new();
        let mut note = |path: &PathBuf, done: Result<()>| {
            let why = done.err().map(|error| (path.clone(), error.message));
            failed.extend(why);
        };
        let unchanged = |path: &PathBuf| match stamps.get(path) {
            Some(stamp) if *stamp == stamp_of(root, path) => Ok(()),
            _ => {
                let path = path.display();
                Err(Error::failure(format!("{path} has changed just now")))
            }
        };
        for path in self.changed(false) {
            let remove = |()| remove_below(root, path, AtFlags::empty());
            note(path, unchanged(path).and_then(remove));
        }
        for path in self.changed(true) {
            remove_empty_dirs(root, path);
            let put = |()| place(&new.join(path), root, path);
            note(path, unchanged(path).and_then(put));
        }
        for dir in self
            .changed(false)
            .flat_map(|path| path.ancestors().skip(1))
        {
            if dir != Path::new("") && !is_older(&root.join(dir), self.since) {
                ignore(remove_below(root, dir, AtFlags::REMOVEDIR));
            }
        }
        failed
    }
}

/// Gives a copy of a workspace, which is as in one state, the files of another one. A file that only the first one has
/// stays if it is ignored in the other: that does not know it.
pub(crate) fn return_to(store: &Store, dir: &Path, from: &str, to: &str) -> Result<()> {
    let git = &store.scratch(dir)?.git;
    let words = ["-z", "--name-only", "--diff-filter=D", from, to];
    let gone = git.run(&[&DIFF[..], &words].concat(), b"")?;
    git.line(&["read-tree", from])?;
    git.run(&["update-index", "-z", "--force-remove", "--stdin"], &gone)?;
    git.line(&["read-tree", "--reset", "-u", to])?;
    let others = git.run(&["ls-files", "-z", "--others", "--exclude-standard"], b"")?;
    let others: HashSet<&[u8]> = others.split(|byte| *byte == 0).collect();
    let gone = gone.split(|byte| *byte == 0);
    for name in gone.filter(|name| !name.is_empty() && others.contains(name)) {
        let path = Path::new(OsStr::from_bytes(name));
        remove_below(dir, path, AtFlags::empty())?;
        for above in path.ancestors().skip(1).filter(|it| *it != Path::new("")) {
            ignore(remove_below(dir, above, AtFlags::REMOVEDIR));
        }
    }
    Ok(())
}

/// Why this user may not replace a file, or remove it, as far as that can be known before.
fn refusal(root: &Path, path: &Path, is_there: bool) -> Option<&'static str> {
    let about = |path: &Path| root.join(path).symlink_metadata().ok();
    let dir = path
        .ancestors()
        .skip(1)
        .find(|dir| about(dir).is_some_and(|it| it.is_dir()))?;
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    if accessat(CWD, root.join(dir), wanted, AtFlags::EACCESS).is_err() {
        return Some("you may not write to its directory");
    }
    // It would get another owner.
    let user = geteuid();
    let is_foreign = |it: fs::Metadata| it.is_file() && it.uid() != user.as_raw();
    let is_refused = is_there && !user.is_root() && about(path).is_some_and(is_foreign);
    is_refused.then_some("it is another user's")
}

fn tree_of(store: &Store, commit: &str) -> Result<Tree> {
    let words = ["ls-tree", "-r", "-z", "--full-tree", commit];
    let listed = store.git.run(&words, b"")?;
    let entry = |line: &[u8]| {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let about = String::from_utf8_lossy(&line[..tab]).into_owned();
        Some((OsStr::from_bytes(&line[tab + 1..]).into(), about))
    };
    Ok(listed.split(|byte| *byte == 0).filter_map(entry).collect())
}

/// What has the place of a file: the first on the way to it that is no directory, it itself, or all that is in it.
fn in_place_of(root: &Path, path: &Path) -> Vec<PathBuf> {
    let way: Vec<&Path> = path.ancestors().collect();
    for place in way.into_iter().rev() {
        match root.join(place).symlink_metadata() {
            Ok(about) if !about.is_dir() => return vec![place.to_owned()],
            Ok(_) => {}
            Err(_) => return Vec::new(),
        }
    }
    let (mut pending, mut found) = (vec![path.to_owned()], Vec::new());
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(root.join(&dir)) else {
            found.push(dir);
            continue;
        };
        for entry in entries.flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let to = if is_dir { &mut pending } else { &mut found };
            to.push(dir.join(entry.file_name()));
        }
    }
    found
}

/// Removes a directory in which there are only directories.
fn remove_empty_dirs(root: &Path, dir: &Path) {
    if is_dir_below(root, dir) {
        for entry in fs::read_dir(root.join(dir)).into_iter().flatten().flatten() {
            remove_empty_dirs(root, &dir.join(entry.file_name()));
        }
        ignore(remove_below(root, dir, AtFlags::REMOVEDIR));
    }
}

/// True for what was made before a time, or, where the file system does not know, last changed before it.
fn is_older(path: &Path, since: Option<SystemTime>) -> bool {
    let Ok(about) = path.symlink_metadata() else {
        return false;
    };
    let changed = Duration::new(about.ctime() as u64, about.ctime_nsec() as u32);
    let made = about.created().unwrap_or(UNIX_EPOCH + changed);
    since.is_some_and(|since| made < since)
}
