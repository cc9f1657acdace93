//! Files in a directory that other programs execute or obey by themselves: git's hooks and configuration,
//! what direnv, make and editors run.
//!
//! Unaware of who changed them. The search is bounded: it must not take long in a directory of any size.

use crate::text::digest::sha256;
use crate::unix::files;
use crate::unix::git_dir::{decisive_paths, is_git_dir};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

/// Files that count wherever they are.
const NAMES: [&str; 18] = [
    ".env",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".lldbinit",
    ".lvimrc",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".pre-commit-config.yaml",
    ".yarnrc.yml",
    "GNUmakefile",
    "Makefile",
    "lefthook.yml",
    "makefile",
    "mise.toml",
    ".git",
];

/// Directories in which every file counts, and in those below them.
const DIRECTORIES: [&str; 10] = [
    ".cargo",
    ".claude",
    ".cursor",
    ".devcontainer",
    ".githooks",
    ".github/workflows",
    ".husky",
    ".idea",
    ".vscode",
    ".zed",
];

/// Directories that are not searched. They hold no sources.
const PASSED_OVER: [&str; 7] = [
    ".delta",
    ".tmp",
    ".venv",
    "__pycache__",
    "node_modules",
    "target",
    "venv",
];

/// The most directories that are searched, the nearest first.
const MOST_DIRECTORIES: usize = 1_000;

/// The most entries that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// How much of a file is hashed. Beyond it, the times count.
const HASHED: usize = 1 << 20;

/// The files that were found, by their path from the directory, each with a digest of its content and mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExecutedFiles {
    pub prints: BTreeMap<String, String>,
    /// False if there was too much to search.
    pub is_complete: bool,
}

impl ExecutedFiles {
    /// Finds them below a directory. Links are not followed.
    pub(crate) fn find(root: &Path) -> Self {
        let mut search = Search {
            root,
            found: BTreeMap::new(),
            entries: 0,
        };
        let mut waiting = VecDeque::from([root.to_owned()]);
        let mut searched = 0;
        while let Some(dir) = waiting.pop_front() {
            searched += 1;
            if searched > MOST_DIRECTORIES || search.entries > MOST_ENTRIES {
                waiting.push_back(dir);
                break;
            }
            search.directory(&dir, &mut waiting);
        }
        Self {
            prints: search.found,
            is_complete: waiting.is_empty() && search.entries <= MOST_ENTRIES,
        }
    }

    /// The paths that have changed since, appeared or gone. What a search that was cut short may have
    /// missed counts if it is younger than `since`, in nanoseconds.
    pub(crate) fn changed(&self, root: &Path, since: i128) -> Vec<String> {
        let now = Self::find(root);
        let mut changed: Vec<String> = Vec::new();
        for (path, print) in &self.prints {
            let is_below = |part| matches!(part, Component::Normal(_));
            let is_same = match now.prints.get(path) {
                Some(now) => now == print,
                None if !Path::new(path).components().all(is_below) => true,
                None => fingerprint(&root.join(path)).as_ref() == Some(print),
            };
            if !is_same {
                changed.push(path.clone());
            }
        }
        for path in now.prints.keys() {
            let is_new = !self.prints.contains_key(path);
            let meta = || root.join(path).symlink_metadata().ok();
            if is_new && (self.is_complete || meta().is_some_and(|meta| changed_at(&meta) > since))
            {
                changed.push(path.clone());
            }
        }
        changed.sort_unstable();
        changed
    }
}

struct Search<'r> {
    root: &'r Path,
    found: BTreeMap<String, String>,
    entries: usize,
}

impl Search<'_> {
    fn directory(&mut self, dir: &Path, waiting: &mut VecDeque<std::path::PathBuf>) {
        let mut entries: Vec<fs::DirEntry> = Vec::new();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                break;
            }
            entries.push(entry);
        }
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        if entries.iter().any(|entry| entry.file_name() == "HEAD") && is_git_dir(dir) {
            return self.git_dir(dir);
        }
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_dir {
                if NAMES.iter().any(|known| name == *known) {
                    self.add(&path);
                }
            } else if name == ".git" {
                self.git_dir(&path);
            } else if DIRECTORIES.iter().any(|known| path.ends_with(known)) {
                self.all_in(&path, 2);
            } else if !PASSED_OVER.iter().any(|known| name == *known) {
                waiting.push_back(path);
            }
        }
    }

    fn git_dir(&mut self, git: &Path) {
        let (present, _) = decisive_paths(git);
        for path in present {
            if path.ends_with("hooks") && path.is_dir() {
                self.all_in(&path, 1);
            }
            self.add(&path);
        }
    }

    /// All files in a directory, down to this depth. git does not execute its examples.
    fn all_in(&mut self, dir: &Path, levels: usize) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return;
            }
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if levels > 1 {
                    self.all_in(&path, levels - 1);
                }
            } else if path.extension().is_none_or(|end| end != "sample") {
                self.add(&path);
            }
        }
    }

    fn add(&mut self, path: &Path) {
        let name = path.strip_prefix(self.root).ok().and_then(Path::to_str);
        if let (Some(name), Some(print)) = (name, fingerprint(path)) {
            self.found.insert(name.to_owned(), print);
        }
    }
}

/// What changes whenever the file does; none if there is nothing, or a directory.
fn fingerprint(path: &Path) -> Option<String> {
    let meta = path.symlink_metadata().ok()?;
    if meta.is_dir() {
        return None;
    }
    if meta.is_symlink() {
        return Some(format!("link {}", fs::read_link(path).ok()?.display()));
    }
    let mut print = format!("{:o} {}", meta.mode(), meta.len());
    let bytes = files::open_regular(path)
        .ok()
        .and_then(|file| files::read_part(&file, 0, HASHED.min(meta.len() as usize)).ok());
    match bytes {
        Some(bytes) if meta.len() <= HASHED as u64 => {
            print.push_str(&format!(" {}", sha256(&bytes)));
        }
        _ => print.push_str(&format!(" {}", changed_at(&meta))),
    }
    Some(print)
}

/// When a file's content or mode changed last, in nanoseconds. No program can set it.
pub(crate) fn changed_at(meta: &Metadata) -> i128 {
    i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec())
}
