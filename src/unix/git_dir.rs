//! The files in a git directory that decide which programs git runs, of submodules and worktrees, too.
//!
//! Unaware of who may write to them.

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, fstat, openat, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names that decide it. `commondir` makes git read the others elsewhere.
const DECISIVE: [&str; 4] = ["commondir", "config", "config.worktree", "hooks"];

/// How deep submodules are searched for: their names may have slashes, and they have submodules of their own.
const DEPTH: usize = 12;

/// A file that did not exist, in a directory that did.
#[derive(Debug)]
pub(crate) struct AbsentFile {
    dir: PathBuf,
    name: &'static str,
    /// Device and inode of the directory, in whose place there may be another one now.
    identity: (u64, u64),
}

/// Paths that decide which programs git runs, and those that would but do not exist. A directory that cannot be
/// listed is such a path: its owner can change its mode.
pub(crate) fn decisive_paths(git: &Path) -> (Vec<PathBuf>, Vec<AbsentFile>) {
    let (mut dirs, mut present) = (vec![git.to_owned()], Vec::new());
    collect_submodules(&git.join("modules"), DEPTH, (&mut dirs, &mut present));
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
    fn new(dir: &Path, name: &'static str) -> Option<Self> {
        let meta = dir.symlink_metadata().ok().filter(fs::Metadata::is_dir)?;
        Some(Self {
            dir: dir.to_owned(),
            name,
            identity: (meta.dev(), meta.ino()),
        })
    }

    /// Where it would be.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(self.name)
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
            let aside = format!("{}.untrusted.{number}", self.name);
            match renameat_with(&dir, self.name, &dir, &aside, RenameFlags::NOREPLACE) {
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
    (dirs, unlisted): (&mut Vec<PathBuf>, &mut Vec<PathBuf>),
) {
    if depth == 0 {
        return;
    }
    for dir in subdirectories(dir, unlisted) {
        if is_git_dir(&dir) {
            collect_submodules(&dir.join("modules"), depth - 1, (dirs, unlisted));
            dirs.push(dir);
        } else {
            collect_submodules(&dir, depth - 1, (dirs, unlisted));
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
    let entries = entries.into_iter().flatten().flatten();
    entries.filter(is_dir).map(|entry| entry.path()).collect()
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
