//! The files in a git directory that decide which programs git runs, of submodules and worktrees, too.
//!
//! Unaware of who may write to them.

use crate::unix::files;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, fstat, openat, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names that decide it. `commondir` makes git read the others elsewhere.
const DECISIVE: [&str; 4] = ["commondir", "config", "config.worktree", "hooks"];

/// A directory that does not decide by itself: attributes in the work tree say as much. Nothing makes it later.
const INFO: &str = "info";

/// The depth to which repositories within others are searched for.
const NESTED: usize = 8;

/// The depth to which submodules are searched for: their names may have slashes, and they have submodules of their own.
const DEPTH: usize = 12;

/// A file that did not exist, in a directory that did.
#[derive(Debug)]
pub(crate) struct AbsentFile {
    dir: PathBuf,
    name: OsString,
    /// Device and inode of the directory, in whose place there may be another one now.
    identity: (u64, u64),
}

/// The paths in a directory, its submodules and worktrees, where it is a repository or a work tree of one.
#[derive(Debug, Default)]
pub(crate) struct GitPaths {
    /// Git directories, which must stay where they are.
    pub dirs: Vec<PathBuf>,
    /// Paths that must stay as they are: decisive ones, and the files by which work trees find their git directories.
    pub present: Vec<PathBuf>,
    /// Files that must not come into being.
    pub absent: Vec<AbsentFile>,
    /// Whatever was looked at already, without links.
    seen: BTreeSet<PathBuf>,
}

impl GitPaths {
    pub(crate) fn find(dir: &Path) -> Self {
        let mut found = Self::default();
        if is_git_dir(dir) {
            found.add_git_dir(dir, NESTED);
        }
        found.add_work_tree(dir, NESTED);
        found
    }

    /// Adds what the `.git` of a work tree is or leads to, and those of its submodules.
    fn add_work_tree(&mut self, dir: &Path, depth: usize) {
        let git = dir.join(".git");
        let Ok(meta) = git.symlink_metadata() else {
            return;
        };
        if meta.is_file() && self.is_new(&git) {
            self.present.push(git.clone());
            if let Some(target) = path_in(&git, "gitdir:", dir) {
                self.add_git_dir(&target, depth);
            }
        } else if !meta.is_file() {
            self.add_git_dir(&git, depth);
        }
        let modules = dir.join(".gitmodules");
        if depth > 0 && self.is_new(&modules) {
            for path in values_of(&modules, "path") {
                self.add_work_tree(&dir.join(path), depth - 1);
            }
        }
    }

    fn is_new(&mut self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|real| self.seen.insert(real))
    }

    fn add_git_dir(&mut self, git: &Path, depth: usize) {
        if git.symlink_metadata().is_err() {
            self.absent.extend(AbsentFile::above(git));
        }
        if depth == 0 || !self.is_new(git) {
            return;
        }
        self.dirs.push(git.to_owned());
        let (present, absent) = decisive_paths(git);
        let infos: BTreeSet<PathBuf> = present
            .iter()
            .filter_map(|path| Some(path.parent()?.join(INFO)))
            .filter(|info| info.is_dir())
            .collect();
        for config in present.iter().filter(|path| path.ends_with("config")) {
            let dir = config.parent().unwrap_or(git);
            for tree in values_of(config, "worktree") {
                self.add_work_tree(&dir.join(tree), depth - 1);
            }
        }
        for tree in subdirectories(&git.join("worktrees"), &mut Vec::new()) {
            if let Some(file) = path_in(&tree.join("gitdir"), "", &tree)
                && file.is_file()
            {
                self.present.push(file);
            }
        }
        self.present.extend(present);
        self.present.extend(infos);
        self.absent.extend(absent);
        if let Some(common) = path_in(&git.join("commondir"), "", git) {
            self.add_git_dir(&common, depth - 1);
        }
    }
}

/// The path that a small file of git's holds after a word.
fn path_in(file: &Path, word: &str, base: &Path) -> Option<PathBuf> {
    let bytes = read_small(file)?;
    let path = bytes.strip_prefix(word.as_bytes())?.trim_ascii();
    (!path.is_empty()).then(|| base.join(OsStr::from_bytes(path)))
}

/// The values of a key in a file of git's settings, in whatever section it is.
fn values_of(file: &Path, key: &str) -> Vec<PathBuf> {
    let bytes = read_small(file).unwrap_or_default();
    let value = |line: &[u8]| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b'=')?)?;
        let is_key = name.trim_ascii().eq_ignore_ascii_case(key.as_bytes());
        let plain = value[1..]
            .trim_ascii()
            .iter()
            .filter(|byte| !br#""\"#.contains(byte));
        is_key.then(|| PathBuf::from(OsString::from_vec(plain.copied().collect())))
    };
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(value)
        .collect()
}

fn read_small(file: &Path) -> Option<Vec<u8>> {
    const BYTES: u64 = 1 << 20;
    let mut bytes = Vec::new();
    let file = files::open_regular(file).ok()?;
    file.take(BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Paths that decide which programs git runs, and those that would but do not exist. A directory that cannot be
/// listed is such a path: its owner can change its mode.
pub(crate) fn decisive_paths(git: &Path) -> (Vec<PathBuf>, Vec<AbsentFile>) {
    let (mut dirs, mut present) = (vec![git.to_owned()], Vec::new());
    collect_submodules(&git.join("modules"), DEPTH, &mut dirs, &mut present);
    dirs.extend(subdirectories(&git.join("worktrees"), &mut present));
    let mut absent = Vec::new();
    for dir in dirs {
        for name in DECISIVE {
            let path = dir.join(name);
            match path.symlink_metadata() {
                Err(e) if e.kind() != io::ErrorKind::PermissionDenied => {
                    absent.extend(AbsentFile::new(&dir, name));
                }
                _ => present.push(path),
            }
        }
    }
    (present, absent)
}

/// True for a git directory, such as a bare repository.
pub(crate) fn is_git_dir(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
    has("HEAD") && (has("objects") || has("commondir"))
}

impl AbsentFile {
    fn new(dir: &Path, name: impl Into<OsString>) -> Option<Self> {
        let meta = dir.symlink_metadata().ok().filter(fs::Metadata::is_dir)?;
        Some(Self {
            dir: dir.to_owned(),
            name: name.into(),
            identity: (meta.dev(), meta.ino()),
        })
    }

    /// The first part of a path that does not exist.
    fn above(path: &Path) -> Option<Self> {
        let missing = path
            .ancestors()
            .take_while(|it| it.symlink_metadata().is_err());
        let first = missing.last()?;
        Self::new(first.parent()?, first.file_name()?)
    }

    /// True if it would be below one of these directories, which are canonical.
    pub(crate) fn lies_in(&self, dirs: &[PathBuf]) -> bool {
        let real = self.dir.canonicalize();
        real.is_ok_and(|real| dirs.iter().any(|dir| real.starts_with(dir)))
    }

    /// The path at which it would be.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Renames it so that git does not read it. Returns its new path, or none if it still does not exist.
    pub(crate) fn put_aside(&self) -> io::Result<Option<PathBuf>> {
        if self.path().symlink_metadata().is_err() {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(CWD, &self.dir, flags, Mode::empty())?;
        let found = fstat(&dir)?;
        if (found.st_dev, found.st_ino) != self.identity {
            return Err(io::Error::other("its directory has been replaced"));
        }
        let mut number = 1_u64;
        loop {
            let mut aside = self.name.clone();
            aside.push(format!(".untrusted.{number}"));
            match renameat_with(&dir, &self.name, &dir, &aside, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(Some(self.dir.join(aside))),
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::EXIST) => number += 1,
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn collect_submodules(
    dir: &Path,
    depth: usize,
    dirs: &mut Vec<PathBuf>,
    unlisted: &mut Vec<PathBuf>,
) {
    if depth == 0 {
        return;
    }
    for dir in subdirectories(dir, unlisted) {
        if is_git_dir(&dir) {
            collect_submodules(&dir.join("modules"), depth - 1, dirs, unlisted);
            dirs.push(dir);
        } else {
            collect_submodules(&dir, depth - 1, dirs, unlisted);
        }
    }
}

/// Directories in a directory; links to some are not followed. One that cannot be listed is added to the others.
fn subdirectories(dir: &Path, unlisted: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir);
    let is_barred = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
    if entries.as_ref().is_err_and(is_barred) {
        unlisted.push(dir.to_owned());
    }
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let read = entries.into_iter().flatten().flatten();
    read.filter(is_dir).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::ids;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_directory_that_has_been_replaced_is_left_alone() {
        let root = std::env::temp_dir().join(format!("delta-git-{}", ids::hex(12)));
        let git = root.join(".git");
        fs::create_dir_all(git.join("worktrees/a")).unwrap();
        let other = root.join("other");
        fs::create_dir(&other).unwrap();
        let (_, absent) = decisive_paths(&git);
        assert_eq!(absent.len(), 2 * DECISIVE.len());
        fs::remove_dir_all(&git).unwrap();
        symlink(&other, &git).unwrap();
        for name in DECISIVE {
            fs::write(other.join(name), "mine").unwrap();
        }
        for file in &absent {
            assert!(!matches!(file.put_aside(), Ok(Some(_))), "{file:?}");
        }
        assert_eq!(fs::read_dir(&other).unwrap().count(), DECISIVE.len());
        fs::remove_dir_all(&root).unwrap();
    }
}
