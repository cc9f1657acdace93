//! Files in a directory that other programs execute or obey by themselves: git's hooks and configuration, what direnv,
//! make and editors run, and whatever else has a path with a component that begins with a dot.
//!
//! Unaware of who changed them. The search is bounded: it must not take long in a directory of any size.

use crate::text::digest::sha256;
use crate::text::order;
use crate::text::shorten::MOST_LISTED;
use crate::unix::files;
use crate::unix::git_dir::{decisive_paths, is_git_dir};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Files without a dot that count wherever they are; with a dot at the end, whatever follows.
const NAMES: [&str; 8] = [
    "GNUmakefile",
    "Makefile",
    "bunfig.toml",
    "lefthook.",
    "makefile",
    "mise.toml",
    "rust-toolchain",
    "rust-toolchain.",
];

/// Directories that hold what was installed or made. They are searched last, as far as there is time.
const INSTALLED: [&str; 4] = ["__pycache__", "node_modules", "target", "venv"];

/// The most directories that are searched, the nearest first.
const MOST_DIRECTORIES: usize = 5_000;

/// The most entries that are looked at; as many again in directories that begin with a dot.
const MOST_ENTRIES: usize = 50_000;

/// The most entries of one directory that begins with a dot.
const MOST_IN_ONE: usize = 10_000;

/// No file is hashed of a directory that begins with a dot and has more than these.
const HASHED_FILES: usize = 64;

/// The bytes of a file that are hashed, and of all. Beyond them, the times count.
const HASHED: usize = 1 << 20;
const HASHED_OF_ALL: u64 = 32 << 20;

/// The files that were found, by their path from the directory, each with its times, mode and size and, unless that is too
/// large, a digest of its content.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct ExecutedFiles {
    /// False if there was too much to search.
    #[serde(rename = "complete")]
    pub is_complete: bool,
    #[serde(rename = "files")]
    pub prints: BTreeMap<String, String>,
}

/// The changes between two searches.
pub(crate) struct Changes {
    pub paths: Vec<String>,
    /// False if one of the searches was cut short.
    pub are_complete: bool,
}

impl ExecutedFiles {
    /// Finds them below a directory. Links are not followed.
    pub(crate) fn find(root: &Path) -> Self {
        Self::search(root, HASHED_OF_ALL)
    }

    fn search(root: &Path, to_hash: u64) -> Self {
        let mut search = Search {
            root,
            found: Self {
                is_complete: true,
                ..Self::default()
            },
            entries: MOST_ENTRIES,
            to_hash,
            dotted: Vec::new(),
            installed: Vec::new(),
        };
        search.directories();
        search.entries = MOST_ENTRIES;
        for top in std::mem::take(&mut search.dotted) {
            search.all_below(top);
        }
        let is_complete = search.found.is_complete;
        for top in std::mem::take(&mut search.installed) {
            search.all_below(top);
        }
        Self {
            is_complete,
            ..search.found
        }
    }

    /// The paths that have changed since, appeared or gone, in the words of a message. What a search that was cut short may
    /// have missed counts if it is younger than `since`, in nanoseconds.
    pub(crate) fn changes(&self, root: &Path, since: i128) -> Changes {
        let now = Self::search(root, 0);
        let mut changed: BTreeMap<&str, &str> = BTreeMap::new();
        let is_dir = |path: &&String| path.ends_with('/');
        let files = (self.prints.iter()).filter(|(path, _)| is_below(path) && !is_dir(path));
        for (path, print) in files {
            let file = root.join(path);
            let unlisted = || fingerprint(&file, &mut 0);
            let found = now.prints.get(path).cloned().or_else(unlisted);
            let is_new = changed_since(print) > since - 1_000_000_000;
            if !found.is_some_and(|found| is_same(&file, print, &found, is_new)) {
                changed.insert(path, now.prints.get(path).unwrap_or(print));
            }
        }
        // Older engines remember a whole directory of a tool's own under its path with a slash, which says nothing of its files.
        let dirs: Vec<&String> = self.prints.keys().filter(is_dir).collect();
        for (path, print) in &now.prints {
            let is_new = !self.prints.contains_key(path);
            let was_listed = self.is_complete && !dirs.iter().any(|dir| path.starts_with(&***dir));
            if is_new && (was_listed || changed_since(print) > since) {
                changed.insert(path, print);
            }
        }
        let mut changed: Vec<_> = changed.into_iter().collect();
        if changed.len() > MOST_LISTED {
            // A large directory of a tool's own, such as a cache, comes last.
            order::sort_by_key(&mut changed, |(path, _)| is_in_tool_dir(path));
        }
        let word = |(path, print): (&str, &str)| {
            let is_link = print.split(' ').nth(1) == Some("link");
            format!("{path}{}", if is_link { " (link)" } else { "" })
        };
        Changes {
            paths: changed.into_iter().map(word).collect(),
            are_complete: self.is_complete && now.is_complete,
        }
    }
}

/// True for a file below a directory that begins with a dot, but git's, or below one of [`INSTALLED`].
fn is_in_tool_dir(path: &str) -> bool {
    let is_tool_dir = |dir: &str| dir.starts_with('.') && dir != ".git" || INSTALLED.contains(&dir);
    path.rsplit_once('/')
        .is_some_and(|(dirs, _)| dirs.split('/').any(is_tool_dir))
}

/// True for a path that leads to nothing outside.
fn is_below(path: &str) -> bool {
    let is_normal = |part| matches!(part, Component::Normal(_));
    Path::new(path).components().all(is_normal)
}

struct Search<'r> {
    root: &'r Path,
    found: ExecutedFiles,
    /// The number of entries that may still be looked at.
    entries: usize,
    /// The number of bytes that may still be hashed.
    to_hash: u64,
    /// Directories that begin with a dot, and those of [`INSTALLED`], for later.
    dotted: Vec<PathBuf>,
    installed: Vec<PathBuf>,
}

impl Search<'_> {
    /// Searches all directories but those for later.
    fn directories(&mut self) {
        let mut waiting = VecDeque::from([self.root.to_owned()]);
        for _ in 0..MOST_DIRECTORIES {
            let Some(dir) = waiting.pop_front() else {
                return;
            };
            let entries = self.list(&dir);
            if entries.iter().any(|entry| entry.file_name() == "HEAD") && is_git_dir(&dir) {
                self.git_dir(&dir);
                continue;
            }
            for entry in entries {
                let (path, name) = (entry.path(), entry.file_name());
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if begins_with_dot(&name) || has_known_name(&name) {
                        self.add(&path, true);
                    }
                } else if name == ".git" {
                    self.git_dir(&path);
                } else if name == ".delta" || (name == ".tmp" && dir == self.root) {
                    // The record, and the sandbox's TMPDIR.
                } else if begins_with_dot(&name) {
                    self.dotted.push(path);
                } else if INSTALLED.iter().any(|known| name == *known) {
                    self.installed.push(path);
                } else {
                    waiting.push_back(path);
                }
            }
        }
        self.found.is_complete &= waiting.is_empty();
    }

    /// The entries of a directory by their names, as many as may be looked at.
    fn list(&mut self, dir: &Path) -> Vec<fs::DirEntry> {
        let found = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut entries: Vec<_> = found.take(self.entries + 1).collect();
        self.found.is_complete &= entries.len() <= self.entries;
        entries.truncate(self.entries);
        self.entries -= entries.len();
        order::sort_by_key(&mut entries, fs::DirEntry::file_name);
        entries
    }

    /// Adds the files below a directory that have a component with a dot in their path.
    fn all_below(&mut self, top: PathBuf) {
        let others = self.entries.saturating_sub(MOST_IN_ONE);
        self.entries -= others;
        let (mut waiting, mut files) = (VecDeque::from([top]), Vec::new());
        while let Some(dir) = waiting.pop_front() {
            for entry in self.list(&dir) {
                let (path, name) = (entry.path(), entry.file_name());
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let below = path.strip_prefix(self.root).unwrap_or(&path);
                    if below.iter().any(begins_with_dot) {
                        files.push(path);
                    }
                } else if name == ".git" {
                    self.git_dir(&path);
                } else if name != ".delta" {
                    waiting.push_back(path);
                }
            }
        }
        self.entries += others;
        for path in &files {
            self.add(path, files.len() <= HASHED_FILES);
        }
    }

    fn git_dir(&mut self, git: &Path) {
        let (present, _) = decisive_paths(git);
        for path in present {
            if path.ends_with("hooks") && path.is_dir() {
                for hook in self.list(&path) {
                    // git does not execute its examples.
                    if hook.path().extension().is_none_or(|end| end != "sample") {
                        self.add(&hook.path(), true);
                    }
                }
            }
            self.add(&path, true);
        }
    }

    fn add(&mut self, path: &Path, is_hashed: bool) {
        // A file whose name is not UTF-8 is not found again by it, so that its times must do.
        let mut unhashed = 0;
        let to_hash = match path.to_str().filter(|_| is_hashed) {
            Some(_) => &mut self.to_hash,
            None => &mut unhashed,
        };
        if let Some(print) = fingerprint(path, to_hash) {
            self.found.prints.insert(self.name(path), print);
        }
    }

    /// The path from the directory; in quotes and with escapes if it is not UTF-8.
    fn name(&self, path: &Path) -> String {
        let below = path.strip_prefix(self.root).unwrap_or(path);
        let named = below.to_str().map(ToOwned::to_owned);
        named.unwrap_or_else(|| {
            let escaped = below.as_os_str().as_bytes().escape_ascii();
            format!("\"{escaped}\" (not UTF-8)")
        })
    }
}

fn begins_with_dot(name: &OsStr) -> bool {
    name.as_bytes().first() == Some(&b'.')
}

fn has_known_name(name: &OsStr) -> bool {
    let is_known = |known: &&str| match known.strip_suffix('.') {
        Some(_) => name.as_bytes().starts_with(known.as_bytes()),
        None => name == *known,
    };
    NAMES.iter().any(is_known)
}

/// True if a file with these prints, of which the second has no digest, is as it was: untouched, or with the same mode and
/// content. The clock of files is coarse: of one that was new when it was remembered, the times say nothing.
fn is_same(path: &Path, before: &str, now: &str, is_new: bool) -> bool {
    let content = |print: &str| print.split_once(' ').map(|(_, content)| content.to_owned());
    if before.split(' ').count() <= 3 {
        return before == now;
    }
    let is_untouched = changed_since(before) == changed_since(now);
    let again = || fingerprint(path, &mut { HASHED as u64 });
    is_untouched && !is_new || again().is_some_and(|now| content(&now) == content(before))
}

/// The time of a file's last change, its mode, its size, and, if it is not too large, a digest of its content; none if there
/// is nothing, or a directory. `to_hash`: the bytes that may be hashed, less those that were.
fn fingerprint(path: &Path, to_hash: &mut u64) -> Option<String> {
    let meta = path.symlink_metadata().ok()?;
    let (changed, mode, len) = (changed_at(&meta), meta.mode(), meta.len());
    if meta.is_dir() {
        return None;
    }
    if meta.is_symlink() {
        let to = fs::read_link(path).ok()?;
        let escaped = to.as_os_str().as_bytes().escape_ascii();
        return Some(format!("{changed} link {len} \"{escaped}\""));
    }
    let mut print = format!("{changed} {mode:o} {len}");
    if len <= (*to_hash).min(HASHED as u64)
        && let Ok(file) = files::open_regular(path)
        && let Ok(bytes) = files::read_part(&file, 0, HASHED)
    {
        print += &format!(" {}", sha256(&bytes));
        *to_hash -= len;
    }
    Some(print)
}

/// The time in a print.
fn changed_since(print: &str) -> i128 {
    let time = print.split(' ').next();
    time.and_then(|time| time.parse().ok()).unwrap_or(i128::MAX)
}

/// The time of a file's last change of content or mode, in nanoseconds. No program can set it.
pub(crate) fn changed_at(meta: &Metadata) -> i128 {
    i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec())
}
