//! Files in a directory that other programs execute or obey by themselves: git's hooks and configuration, what direnv,
//! make and editors run, and whatever else has a path with a component that begins with a dot.
//!
//! Unaware of who changed them. The search is bounded: it must not take long in a directory of any size.

use crate::text::digest::sha256;
use crate::unix::files;
use crate::unix::git_dir::{decisive_paths, is_git_dir};
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

/// How many files of a directory that begins with a dot are remembered each.
const EACH: usize = 64;

/// How many changed files of such a directory are named each.
const NAMED: usize = 5;

/// How much of a file is hashed, and of all. Beyond it, the times count.
const HASHED: usize = 1 << 20;
const HASHED_OF_ALL: u64 = 32 << 20;

/// The files that were found, by their path from the directory, each with its times, mode and size and, unless that is too
/// large, a digest of its content. Of a directory with many files there is one entry, by its path and a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExecutedFiles {
    pub prints: BTreeMap<String, String>,
    /// False if there was too much to search.
    pub is_complete: bool,
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
            found: BTreeMap::new(),
            entries: MOST_ENTRIES,
            to_hash,
            dotted: Vec::new(),
            installed: Vec::new(),
            is_complete: true,
        };
        search.directories();
        search.entries = MOST_ENTRIES;
        for top in std::mem::take(&mut search.dotted) {
            search.all_below(&top);
        }
        let is_complete = search.is_complete;
        for top in std::mem::take(&mut search.installed) {
            search.all_below(&top);
        }
        Self {
            prints: search.found,
            is_complete,
        }
    }

    /// The paths that have changed since, appeared or gone, in the words of a message. What a search that was cut short may
    /// have missed counts if it is younger than `since`, in nanoseconds.
    pub(crate) fn changes(&self, root: &Path, since: i128) -> Changes {
        let now = Self::search(root, 0);
        let mut changed: BTreeMap<&str, &str> = BTreeMap::new();
        for (path, print) in &self.prints {
            let is_new = changed_since(print) > since - 1_000_000_000;
            let file = root.join(path);
            let found = now.prints.get(path);
            let is_same = match found {
                Some(found) => is_same(&file, print, found, is_new),
                None if !is_below(path) => true,
                None if path.ends_with('/') => !now.is_complete,
                None => {
                    fingerprint(&file, 0).is_some_and(|now| is_same(&file, print, &now, is_new))
                }
            };
            if !is_same {
                changed.insert(path, found.unwrap_or(print));
            }
        }
        for (path, print) in &now.prints {
            let is_new = !self.prints.contains_key(path);
            if is_new && (self.is_complete || changed_since(print) > since) {
                changed.insert(path, print);
            }
        }
        Changes {
            paths: in_words(&changed),
            are_complete: self.is_complete && now.is_complete,
        }
    }
}

/// True for a path that leads to nothing outside.
fn is_below(path: &str) -> bool {
    let is_normal = |part| matches!(part, Component::Normal(_));
    Path::new(path).components().all(is_normal)
}

/// Names changed files, and of a directory in which many have changed its own path and their number.
fn in_words(changed: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut by_top: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, print) in changed {
        by_top.entry(top_of(path)).or_default().push((path, print));
    }
    let mut words = Vec::new();
    for (top, paths) in by_top {
        let whole = paths.iter().find(|(path, _)| path.ends_with('/'));
        if let Some((_, print)) = whole {
            let many = print.split(' ').nth(2).unwrap_or("?");
            words.push(format!("{top} (among {many} files)"));
        } else if top.ends_with('/') && paths.len() > NAMED {
            words.push(format!("{top} ({} files)", paths.len()));
        } else {
            words.extend(paths.into_iter().map(|(path, print)| {
                let is_link = print.split(' ').nth(1) == Some("link");
                format!("{path}{}", if is_link { " (link)" } else { "" })
            }));
        }
    }
    words
}

/// The path up to its first directory that is listed as a whole; all of it if there is none.
fn top_of(path: &str) -> &str {
    let mut at = 0;
    if path.split('/').any(|part| part == ".git") {
        return path;
    }
    for part in path.split_inclusive('/') {
        at += part.len();
        let name = part.trim_end_matches('/');
        if part.ends_with('/') && (name.starts_with('.') || INSTALLED.contains(&name)) {
            break;
        }
    }
    &path[..at]
}

struct Search<'r> {
    root: &'r Path,
    found: BTreeMap<String, String>,
    /// How many more may be looked at.
    entries: usize,
    /// How many more bytes may be hashed.
    to_hash: u64,
    /// Directories that begin with a dot, and those of [`INSTALLED`], for later.
    dotted: Vec<PathBuf>,
    installed: Vec<PathBuf>,
    is_complete: bool,
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
                        self.add(&path);
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
        self.is_complete &= waiting.is_empty();
    }

    /// The entries of a directory by their names, as many as may be looked at.
    fn list(&mut self, dir: &Path) -> Vec<fs::DirEntry> {
        let found = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut entries: Vec<_> = found.take(self.entries + 1).collect();
        self.is_complete &= entries.len() <= self.entries;
        entries.truncate(self.entries);
        self.entries -= entries.len();
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        entries
    }

    /// Adds the files below a directory that have a component with a dot in their path: each if they are few.
    fn all_below(&mut self, top: &Path) {
        let others = self.entries.saturating_sub(MOST_IN_ONE);
        self.entries -= others;
        let (mut waiting, mut files) = (VecDeque::from([top.to_owned()]), Vec::new());
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
        if files.len() <= EACH {
            return files.iter().for_each(|path| self.add(path));
        }
        let prints = files
            .iter()
            .filter_map(|path| Some((path, fingerprint(path, 0)?)));
        let prints: Vec<_> = prints.collect();
        let last = prints.iter().map(|(_, print)| changed_since(print)).max();
        let digest = sha256(format!("{prints:?}").as_bytes());
        let (last, many) = (last.unwrap_or(0), prints.len());
        let print = format!("{last} many {many} {digest}");
        self.found.insert(format!("{}/", self.name(top)), print);
    }

    fn git_dir(&mut self, git: &Path) {
        let (present, _) = decisive_paths(git);
        for path in present {
            if path.ends_with("hooks") && path.is_dir() {
                for hook in self.list(&path) {
                    // git does not execute its examples.
                    if hook.path().extension().is_none_or(|end| end != "sample") {
                        self.add(&hook.path());
                    }
                }
            }
            self.add(&path);
        }
    }

    fn add(&mut self, path: &Path) {
        // A file whose name is not UTF-8 is not found again by it, so that its times must do.
        let to_hash = path.to_str().map_or(0, |_| self.to_hash);
        if let Some(print) = fingerprint(path, to_hash) {
            let hashed = print
                .split(' ')
                .nth(3)
                .and_then(|_| print.split(' ').nth(2)?.parse().ok());
            self.to_hash = self.to_hash.saturating_sub(hashed.unwrap_or(0));
            self.found.insert(self.name(path), print);
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
    let has_content = before.split(' ').count() > 3;
    let is_untouched = changed_since(before) == changed_since(now);
    if !has_content || before.contains(" many ") {
        return before == now;
    }
    is_untouched && !is_new
        || fingerprint(path, HASHED as u64).is_some_and(|now| content(&now) == content(before))
}

/// The time of a file's last change, its mode, its size, and, if it is not too large, a digest of its content; none if there
/// is nothing, or a directory.
fn fingerprint(path: &Path, to_hash: u64) -> Option<String> {
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
    if len <= to_hash.min(HASHED as u64)
        && let Ok(file) = files::open_regular(path)
        && let Ok(bytes) = files::read_part(&file, 0, HASHED)
    {
        print += &format!(" {}", sha256(&bytes));
    }
    Some(print)
}

/// The time in a print.
fn changed_since(print: &str) -> i128 {
    let time = print.split(' ').next();
    time.and_then(|time| time.parse().ok()).unwrap_or(i128::MAX)
}

/// When a file's content or mode changed last, in nanoseconds. No program can set it.
pub(crate) fn changed_at(meta: &Metadata) -> i128 {
    i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec())
}
