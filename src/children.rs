//! The runs that the tools of a run have started: found by what their metadata say of their parent.
//!
//! Unaware of what happened in them. Only what lies in the workspace of the run is found; a sub-agent
//! may work elsewhere.

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

    /// The runs that a run's tools started in a span of time, in order.
    pub fn of<'c>(
        &'c self,
        parent: &'c RunId,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = &'c RunDir> {
        self.list
            .iter()
            .filter(move |child| {
                child.parent == parent.as_str() && (from..=to).contains(&child.created_at)
            })
            .map(|child| &child.run)
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
