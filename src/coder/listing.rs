//! The content of a directory, and the paths that are like one that does not exist. Both look at a bounded number
//! of entries.

use crate::text::order;
use crate::text::suggestion::nearest;
use std::collections::VecDeque;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

/// Directories that are not looked into.
const PASSED_OVER: [&str; 5] = [".git", ".delta", "node_modules", "target", "__pycache__"];

/// Directories that are not listed.
const NOT_LISTED: [&str; 2] = [".git", ".delta"];

/// The most entries of a listing.
const LISTED_ENTRIES: usize = 400;

/// The most entries that are looked at for a path like another.
const SEARCHED_ENTRIES: usize = 20_000;

/// Similar paths in a message about a missing one.
const SUGGESTIONS: usize = 5;

/// Two levels of a directory: a line for each entry, indented.
pub(super) fn list_directory(path: &Path, shown: &str) -> io::Result<String> {
    let mut lines = Vec::new();
    for entry in sorted(path)? {
        let (name, is_dir) = named(&entry);
        lines.push(name);
        if !is_dir || entry.file_type()?.is_symlink() {
            continue;
        }
        match sorted(&entry.path()) {
            Ok(inside) => lines.extend(inside.iter().map(|entry| format!("  {}", named(entry).0))),
            Err(e) => lines.push(format!("  ({})", crate::error::reason(&e))),
        }
    }
    let more = lines.len().saturating_sub(LISTED_ENTRIES);
    lines.truncate(LISTED_ENTRIES);
    if more > 0 {
        lines.push(format!("[… {more} more entries; list them in bash …]"));
    }
    lines.insert(
        0,
        format!("directory {shown}, two levels, without .git and .delta"),
    );
    Ok(lines.join("\n") + "\n")
}

fn sorted(path: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<DirEntry>>>()?;
    entries.retain(|entry| NOT_LISTED.iter().all(|name| entry.file_name() != *name));
    order::sort_by_key(&mut entries, DirEntry::file_name);
    Ok(entries)
}

/// An entry as it is shown, and whether it is a directory.
fn named(entry: &DirEntry) -> (String, bool) {
    let name = crate::text::disguise::printable(&entry.file_name().to_string_lossy());
    let is_dir = entry.path().is_dir();
    let slash = if is_dir { "/" } else { "" };
    match fs::read_link(entry.path()) {
        Ok(target) => (format!("{name}{slash} -> {}", target.display()), is_dir),
        Err(_) => (format!("{name}{slash}"), is_dir),
    }
}

/// Files that a path may have meant: those of the same name, else those whose name is like it, from the
/// nearest directory above it that is there.
pub(super) fn nearest_paths(path: &str) -> Vec<String> {
    let path = Path::new(path);
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let is_above = |dir: &&Path| dir.is_dir() && path.is_absolute();
    let above = path.ancestors().skip(1).find(is_above);
    let seen = files_below(above.unwrap_or(Path::new("")));
    let named = |wanted: &str| -> Vec<String> {
        let like = seen.iter().filter(|found| found.ends_with(wanted));
        like.take(SUGGESTIONS)
            .map(|path| path.display().to_string())
            .collect()
    };
    let same = named(name);
    if !same.is_empty() {
        return same;
    }
    let names = seen.iter().filter_map(|found| found.file_name()?.to_str());
    nearest(name, names).map_or_else(Vec::new, named)
}

/// Files below a directory, the nearest first.
fn files_below(start: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([start.to_owned()]);
    let mut seen = 0;
    while let Some(dir) = waiting.pop_front() {
        let place = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &dir
        };
        let Ok(entries) = fs::read_dir(place) else {
            continue;
        };
        for entry in entries.flatten() {
            seen += 1;
            if seen > SEARCHED_ENTRIES {
                return found;
            }
            let path = dir.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    if !PASSED_OVER.iter().any(|name| entry.file_name() == *name) {
                        waiting.push_back(path);
                    }
                }
                _ => found.push(path),
            }
        }
    }
    found
}
