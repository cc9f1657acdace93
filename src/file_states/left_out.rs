//! What no state has: the records, other repositories, what may hold keys, what cannot be read as a file.
//!
//! Architecture invariant: nothing in the workspace keeps git waiting, and git reads no repository there.

use crate::config::person;
use crate::error::{At, Error, Result};
use crate::text::shorten::list_names;
use crate::unix::git_program::hold_pipe;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, access, statx};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The largest file that a state has, in bytes.
const LARGEST: u64 = 10 << 20;

/// The largest `.gitignore` that is read, in bytes. git reads it whole.
const LARGEST_GITIGNORE: u64 = 1 << 20;

/// The most files that git fails to read.
const MOST_UNREAD: usize = 10;

/// The most paths that git is told not to look at, and the most pipes that are held open.
const MOST: usize = 500;

/// Names at the top at which git never looks.
const OWN: [&str; 3] = [".delta", ".git", ".tmp"];

/// What a state leaves out. Paths are relative to the workspace, which is the current directory.
#[derive(Default)]
pub(super) struct LeftOut {
    /// Paths at which git does not look. Of those with a reason a person is told.
    excluded: BTreeMap<PathBuf, Option<&'static str>>,
    named: BTreeMap<PathBuf, &'static str>,
    /// Pipes that git would wait to open.
    held: Vec<OwnedFd>,
    /// git does not look for new files, for which it would read `.gitignore`.
    pub(super) has_no_new: bool,
    unread: usize,
}

impl LeftOut {
    /// Looks through the workspace. `hidden`: what tools cannot see.
    ///
    /// # Errors
    /// There is too much of it.
    pub(super) fn find<'h>(root: &Path, hidden: impl Iterator<Item = &'h str>) -> Result<Self> {
        let mut found = Self::default();
        for name in OWN {
            found.excluded.insert(name.into(), None);
        }
        for path in hidden.map(|path| person::at_home(Path::new(path))) {
            // As the sandbox finds it. What is not there yet may be made later.
            let real = path.canonicalize().unwrap_or_else(|_| root.join(path));
            if let Ok(below) = real.strip_prefix(root) {
                found
                    .excluded
                    .insert(below.to_owned(), Some("hidden from tools"));
            }
        }
        let mut pending = vec![PathBuf::new()];
        while let Some(dir) = pending.pop() {
            found.look(&dir, &mut pending);
            let many = found.excluded.len() - OWN.len();
            if many.max(found.held.len()) > MOST {
                let what = "repositories, mounts, hidden paths and pipes";
                return Err(Error::failure(format!(
                    "the workspace has more than {MOST} {what}"
                )));
            }
        }
        Ok(found)
    }

    fn look(&mut self, dir: &Path, pending: &mut Vec<PathBuf>) {
        let is_top = dir == Path::new("");
        let shown = if is_top { Path::new(".") } else { dir };
        let before = pending.len();
        for entry in fs::read_dir(shown).into_iter().flatten().flatten() {
            let (name, kind) = (entry.file_name(), entry.file_type());
            let Ok(kind) = kind else { continue };
            let mut is_closed = None;
            if name == ".git" && !is_top {
                is_closed = Some("a repository");
            } else if name == ".gitignore" && kind.is_fifo() {
                self.held.extend(hold_pipe(&dir.join(name)));
            } else if name == ".gitignore" && is_too_large(&entry) {
                if is_top {
                    self.has_no_new = true;
                    let why = "larger than 1 MiB, and with it new files";
                    self.named.insert(name.into(), why);
                } else {
                    is_closed = Some("its .gitignore is larger than 1 MiB");
                }
            } else if kind.is_dir() {
                let path = dir.join(&name);
                let other = || is_mounted(&path).then_some("another file system");
                if self.excluded.contains_key(&path) {
                    continue;
                }
                match objection_to(&name).or_else(other) {
                    None if name != ".delta" => pending.push(path),
                    why => drop(self.excluded.insert(path, why)),
                }
            }
            if is_closed.is_some() {
                pending.truncate(before);
                self.excluded.insert(dir.to_owned(), is_closed);
                return;
            }
        }
    }

    /// The words for git that keep it from these paths.
    pub(super) fn pathspecs(&self) -> impl Iterator<Item = OsString> {
        let word = |path: &PathBuf| [b":(exclude,literal)", path.as_os_str().as_bytes()].concat();
        let excluded = self.excluded.keys().map(word).map(OsString::from_vec);
        [OsString::from(".")].into_iter().chain(excluded)
    }

    /// Patterns of git for paths of which an earlier state may have something, each before a NUL byte.
    pub(super) fn once_recorded(&self) -> Vec<u8> {
        let named = self.excluded.iter().filter(|(_, why)| why.is_some());
        let patterns =
            named.map(|(path, _)| [b":(literal)", path.as_os_str().as_bytes(), b"\0"].concat());
        patterns.collect::<Vec<_>>().concat()
    }

    /// True if a state can have what is at a path that git has found. Otherwise that is remembered.
    pub(super) fn takes(&mut self, path: &Path) -> bool {
        let why = path
            .iter()
            .find_map(objection_to)
            .or_else(|| objection_at(path));
        if let Some(why) = why {
            self.named.insert(path.to_owned(), why);
        }
        why.is_none()
    }

    /// Leaves out a file because git has failed to read it.
    ///
    /// # Errors
    /// The reason, if it is not the first: then it is not the file.
    pub(super) fn leave_unread(&mut self, path: &Path, why: Error) -> Result<()> {
        self.unread += 1;
        self.named.insert(path.to_owned(), "git cannot read it");
        if self.unread > MOST_UNREAD {
            return Err(why);
        }
        Ok(())
    }

    /// What was left out, for a person.
    pub(super) fn in_words(&self) -> String {
        let excluded = self
            .excluded
            .iter()
            .filter_map(|(path, why)| Some((path, (*why)?)));
        let named = self.named.iter().map(|(path, why)| (path, *why));
        let all: Vec<_> = excluded.chain(named).collect();
        let word = |(path, why): (&PathBuf, &str)| format!("{} ({why})", path.display());
        list_names(all.into_iter().map(word))
    }
}

/// The reason why no state has a file or directory of this name.
fn objection_to(name: &OsStr) -> Option<&'static str> {
    if name.as_bytes().starts_with(b".env") {
        return Some("may hold keys");
    }
    name.eq_ignore_ascii_case(".git")
        .then_some("git refuses the name")
}

fn is_too_large(gitignore: &DirEntry) -> bool {
    let about = gitignore.metadata();
    about.is_ok_and(|it| it.is_file() && it.len() > LARGEST_GITIGNORE)
}

/// The reason why no state has what is at this path.
fn objection_at(path: &Path) -> Option<&'static str> {
    let about = match path.symlink_metadata().if_there() {
        Ok(about) => about?,
        Err(_) => return Some("cannot be read"),
    };
    if about.is_symlink() {
        let name = path.file_name().unwrap_or_default();
        let is_refused = name.eq_ignore_ascii_case(".gitmodules");
        return is_refused.then_some("git refuses the name");
    }
    if !about.is_file() {
        return Some("not a file");
    }
    if is_mounted(path) {
        return Some("another file system");
    }
    if about.len() > LARGEST {
        return Some("larger than 10 MiB");
    }
    access(path, Access::READ_OK)
        .is_err()
        .then_some("cannot be read")
}

/// True if something is mounted at a path.
fn is_mounted(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    found.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
