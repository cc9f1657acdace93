//! The runs that the tools of a run have started: found by what their metadata say of their parent.
//!
//! Unaware of what happened in them. A sub-agent whose workspace lies outside that of its parent is
//! found if the command that started it names the place.

use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::metadata;
use crate::rundir::RunDir;
use std::fs;
use std::path::{Path, PathBuf};

/// How many directories deep a sub-agent's workspace is looked for.
const DEPTH: usize = 5;

/// As many directories are looked at: a workspace may hold a file system's worth of them.
const MOST: usize = 20_000;

/// Runs that have a parent.
#[derive(Debug)]
pub struct Children {
    list: Vec<Child>,
    /// When they were looked for: later ones are not among them.
    pub looked_at: Timestamp,
}

#[derive(Debug)]
struct Child {
    run: RunDir,
    parent: String,
    created_at: Timestamp,
}

impl Children {
    /// Those in a workspace and in the directories below it.
    #[must_use]
    pub fn below(workspace: &Path) -> Self {
        let looked_at = Timestamp::now();
        let mut list = Vec::new();
        let mut pending = vec![(workspace.to_owned(), 0)];
        let mut left = MOST;
        while let Some((dir, depth)) = pending.pop() {
            children_in(&dir.join(".delta"), &mut list);
            if depth == DEPTH {
                continue;
            }
            for dir in directories(&dir) {
                if left == 0 {
                    break;
                }
                left -= 1;
                pending.push((dir, depth + 1));
            }
        }
        list.sort_by_key(|child| child.created_at);
        Self { list, looked_at }
    }

    /// Adds those in a workspace that is somewhere else.
    pub fn add(&mut self, workspace: &Path) {
        let Ok(workspace) = workspace.canonicalize() else {
            return;
        };
        let mut found = Vec::new();
        children_in(&workspace.join(".delta"), &mut found);
        found.retain(|new| !self.list.iter().any(|old| old.run.path == new.run.path));
        self.list.append(&mut found);
        self.list.sort_by_key(|child| child.created_at);
    }

    /// The runs that a run's tools started in a span of time, in order.
    #[must_use]
    pub fn of(&self, parent: &RunDir, from: Timestamp, to: Timestamp) -> Vec<RunDir> {
        self.list
            .iter()
            .filter(|child| {
                child.parent == parent.id.as_str()
                    && child.run.path != parent.path
                    && (from..=to).contains(&child.created_at)
            })
            .map(|child| child.run.clone())
            .collect()
    }
}

/// The workspaces that a command names which starts runs, as far as words can tell: those of `delta run`
/// and `delta continue` behind any wrapper, and in a script for a shell. Relative paths begin in `dir`.
#[must_use]
pub fn named_in(command: &str, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let words = shlex::split(command).unwrap_or_default();
    for (at, word) in words.iter().enumerate() {
        let is_delta = Path::new(word)
            .file_name()
            .is_some_and(|name| name == "delta");
        let verb = words.get(at + 1).map(String::as_str);
        if is_delta && matches!(verb, Some("run" | "continue")) {
            found.extend(named_by_options(&words[at + 2..], dir));
        } else if word.contains(char::is_whitespace) && word.len() < command.len() {
            found.extend(named_in(word, dir));
        }
    }
    found
}

/// Without `-w`, a sub-agent works below its own directory.
fn named_by_options(words: &[String], dir: &Path) -> Vec<PathBuf> {
    const LONG_WITH_VALUE: [&str; 5] = [
        "--agent",
        "--message",
        "--run-id",
        "--max-iterations",
        "--format",
    ];
    let (mut workspace, mut agent) = (None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        } else if let Some(value) = word.strip_prefix("--work-dir=") {
            workspace = Some(value);
        } else if word == "--work-dir" {
            workspace = words.next();
        } else if let Some(value) = word.strip_prefix("--agent=") {
            agent = Some(value);
        } else if word == "--agent" {
            agent = words.next();
        } else if LONG_WITH_VALUE.contains(&word) {
            words.next();
        } else if let Some(flags) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))
            && let Some(at) = flags.find(['w', 'a', 'm'])
        {
            let value = match &flags[at + 1..] {
                "" => words.next(),
                rest => Some(rest),
            };
            match &flags[at..=at] {
                "w" => workspace = value,
                "a" => agent = value,
                _ => {}
            }
        }
    }
    match workspace {
        Some(workspace) => vec![dir.join(workspace)],
        None => {
            let home = dir.join(agent.unwrap_or("."));
            let numbered = crate::workspace::numbered(&home).unwrap_or_default();
            let below = |name| home.join("workspaces").join(name);
            numbered.into_iter().map(below).collect()
        }
    }
}

/// The directories in a directory: no links, and none whose name begins with a dot.
fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

fn children_in(control: &Path, list: &mut Vec<Child>) {
    for path in directories(control) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Ok(id) = RunId::parse(&name) else {
            continue;
        };
        let Some(metadata) = metadata::read(&path) else {
            continue;
        };
        let created_at = Timestamp::parse(&metadata.created_at);
        if let (Some(parent), Some(created_at)) = (metadata.parent_run_id, created_at) {
            let run = RunDir { id, path };
            list.push(Child {
                run,
                parent,
                created_at,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found_in_the_words_of_a_command() {
        let named = |command: &str| named_in(command, Path::new("/ws"));
        let there = |path: &str| vec![PathBuf::from(path)];
        for (command, workspace) in [
            ("delta run -w sub -m go", "/ws/sub"),
            (
                "/usr/bin/delta run -qa ../x -w/over/there -m -w",
                "/over/there",
            ),
            (
                "bwrap --bind / / -- delta continue --work-dir=../b",
                "/ws/../b",
            ),
            ("delta run --message '-w no' --work-dir 'a b'", "/ws/a b"),
            ("sh -c 'cd . && delta run -q -w /x -m \"$1\"' -- go", "/x"),
        ] {
            assert_eq!(named(command), there(workspace), "{command}");
        }
        for command in [
            "delta log -w x",
            "echo delta run",
            "delta run -m 'unbalanced",
        ] {
            assert!(named(command).is_empty(), "{command}");
        }
    }
}
