//! The files that a node has made, by the patterns of its `outputs`: path, size and SHA-256 of each.
//!
//! Unaware of which node it is. What a program left may be hostile: no link is followed, nothing but regular files
//! is opened, and how many names are looked at is bounded.

use crate::error::reason;
use crate::flow::manifest::{FilePattern, PathPart};
use crate::text::digest::sha256_of;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A node with more files than these shall pack them.
const MOST_FILES: usize = 10_000;

/// The most names that are examined.
const MOST_NAMES: usize = 200_000;

/// Directories below one another.
const DEEPEST: usize = 64;

/// The directory of the records of runs, which are never outputs.
const RECORDS: &str = ".delta";

/// A file that a node has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MadeFile {
    /// Below the task's directory.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// Finds the files below a directory that any of the patterns fits, sorted by path. None if `is_stopped`, which is
/// asked between parts of a file, says so.
///
/// # Errors
/// There are too many, one cannot be read, or a required one is missing.
pub(crate) fn find_made_files(
    dir: &Path,
    patterns: &[FilePattern],
    is_stopped: &dyn Fn() -> bool,
) -> Result<Option<Vec<MadeFile>>, String> {
    if patterns.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let top = openat(CWD, dir, DIRECTORY, Mode::empty()).map_err(wrong_at("."))?;
    let mut search = FileSearch {
        found: BTreeMap::new(),
        names_left: MOST_NAMES,
        is_stopped,
    };
    for pattern in patterns {
        search.descend(&top, "", &pattern.parts, DEEPEST)?;
    }
    if is_stopped() {
        return Ok(None);
    }
    let made: Vec<MadeFile> = search.found.into_values().collect();
    let is_missing =
        |it: &&FilePattern| it.required && !made.iter().any(|made| it.fits(&made.path));
    match patterns.iter().find(is_missing) {
        Some(pattern) => Err(format!("outputs: no file fits {:?}", pattern.text)),
        None => Ok(Some(made)),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

fn wrong_at(path: &str) -> impl Fn(Errno) -> String {
    move |e| format!("outputs: cannot read {path:?}: {}", reason(&e.into()))
}

struct FileSearch<'s> {
    found: BTreeMap<String, MadeFile>,
    /// The number of names that may still be examined.
    names_left: usize,
    is_stopped: &'s dyn Fn() -> bool,
}

impl FileSearch<'_> {
    /// Looks below a directory for what the parts fit.
    fn descend(
        &mut self,
        dir: &OwnedFd,
        at: &str,
        parts: &[PathPart],
        depth: usize,
    ) -> Result<(), String> {
        let [part, rest @ ..] = parts else {
            return Ok(());
        };
        if *part == PathPart::AnyDirectories {
            self.descend(dir, at, rest, depth)?;
        }
        let is_any = *part == PathPart::AnyDirectories;
        for entry in Dir::read_from(dir).map_err(wrong_at(at))? {
            let found = entry.map_err(wrong_at(at))?;
            // A journal names files in UTF-8.
            let Ok(name) = found.file_name().to_str() else {
                continue;
            };
            if [".", "..", RECORDS].contains(&name) || !part.fits(name) {
                continue;
            }
            if (self.is_stopped)() {
                return Ok(());
            }
            let left = self.names_left.checked_sub(1);
            self.names_left = left.ok_or_else(|| {
                format!("outputs: there are more than {MOST_NAMES} names to look at")
            })?;
            let path = match at {
                "" => name.to_owned(),
                at => format!("{at}/{name}"),
            };
            if rest.is_empty() && !is_any {
                self.take(dir, name, path)?;
            } else if depth > 0
                && let Ok(below) = openat(dir, name, DIRECTORY, Mode::empty())
            {
                let parts = if is_any { parts } else { rest };
                self.descend(&below, &path, parts, depth - 1)?;
            }
        }
        Ok(())
    }

    /// Adds a regular file; ignores anything else of that name.
    fn take(&mut self, dir: &OwnedFd, name: &str, path: String) -> Result<(), String> {
        if self.found.contains_key(&path) || (self.is_stopped)() {
            return Ok(());
        }
        let mut file = match openat(dir, name, FILE, Mode::empty()) {
            Ok(file) => File::from(file),
            // A link, a socket, a pipe, or gone.
            Err(Errno::LOOP | Errno::NXIO | Errno::NOENT) => return Ok(()),
            Err(e) => return Err(wrong_at(&path)(e)),
        };
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Ok(());
        }
        if self.found.len() == MOST_FILES {
            return Err(format!("outputs: there are more than {MOST_FILES} files"));
        }
        let read = sha256_of(&mut file, &mut io::sink(), self.is_stopped)
            .map_err(|e| format!("outputs: cannot read {path:?}: {}", reason(&e)))?;
        if let Some((size, sha256)) = read {
            let made = MadeFile {
                path: path.clone(),
                size,
                sha256,
            };
            self.found.insert(path, made);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn found(dir: &Path, pattern: &str) -> Vec<String> {
        let patterns = [FilePattern::parse(pattern).unwrap()];
        let found = find_made_files(dir, &patterns, &|| false).unwrap().unwrap();
        found.into_iter().map(|made| made.path).collect()
    }

    #[test]
    fn links_are_not_followed_and_hidden_directories_are_passed_over() {
        let dir = std::env::temp_dir().join(format!("delta-made-{}", std::process::id()));
        for below in ["a/b", ".h", ".delta/x"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        for file in [
            "1.txt",
            "a/2.txt",
            "a/b/3.txt",
            ".h/4.txt",
            ".delta/x/5.txt",
        ] {
            fs::write(dir.join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("/etc", dir.join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("p.txt")).unwrap();
        assert_eq!(found(&dir, "*.txt"), ["1.txt"]);
        assert_eq!(found(&dir, "**/*.txt"), ["1.txt", "a/2.txt", "a/b/3.txt"]);
        assert_eq!(found(&dir, "a/**"), ["a/2.txt", "a/b/3.txt"]);
        assert_eq!(found(&dir, ".h/*"), [".h/4.txt"]);
        assert_eq!(found(&dir, "etc/*"), [] as [&str; 0]);
        assert_eq!(found(&dir, ".delta/**"), [] as [&str; 0]);
        let stopped = find_made_files(&dir, &[FilePattern::parse("*").unwrap()], &|| true);
        assert_eq!(stopped, Ok(None));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_so_many_names_are_looked_at() {
        let dir = std::env::temp_dir().join(format!("delta-names-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/c"), "").unwrap();
        let top = openat(CWD, &dir, DIRECTORY, Mode::empty()).unwrap();
        let pattern = FilePattern::parse("**/c").unwrap();
        // Of each directory its names are looked at for a file here, and for a directory that may lead to one.
        for (names_left, is_enough) in [(4, true), (3, false)] {
            let mut search = FileSearch {
                found: BTreeMap::new(),
                names_left,
                is_stopped: &|| false,
            };
            let done = search.descend(&top, "", &pattern.parts, DEEPEST);
            assert_eq!(done.is_ok(), is_enough, "{names_left}: {done:?}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
