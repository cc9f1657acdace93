//! Runs and workspaces as completion offers them.
//!
//! Only reads; what cannot be read is not offered.

use crate::record::journal::Journal;
use crate::record::metadata::{self, Status};
use crate::record::own_workspaces;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::options::completion::{Candidate, TypedLine, TypedValue};
use crate::text::shorten::in_short;
use std::path::{Path, PathBuf};

/// Workspaces, with a slash behind each: the agent's own, the last one first; then those where the
/// cursor is.
pub(crate) fn workspace_candidates(value: &TypedValue, line: &TypedLine) -> Vec<Candidate> {
    let agent = Path::new(line.value("--agent").unwrap_or("."));
    let own = own_workspaces::numbered(agent)
        .unwrap_or_default()
        .into_iter()
        .rev()
        .map(|name| {
            let path = agent.join("workspaces").join(name);
            path.strip_prefix(".")
                .map_or(path.clone(), Path::to_path_buf)
        });
    let here = match value.typed.rfind('/') {
        Some(at) => &value.typed[..=at],
        None => "",
    };
    let mut near: Vec<PathBuf> = std::fs::read_dir(if here.is_empty() { "." } else { here })
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join(".delta").is_dir())
        .map(|e| Path::new(here).join(e.file_name()))
        .collect();
    near.sort();
    let mut found: Vec<Candidate> = Vec::new();
    for path in own.chain(near) {
        let about = describe_newest(&path).map(|(status, message)| format!("{status} {message}"));
        let word = path.to_str().map(|path| format!("{path}/"));
        if let Some(word) = word.filter(|word| found.iter().all(|other| other.word != *word)) {
            found.push(Candidate::new(&word, &about.unwrap_or_default()));
        }
    }
    found
}

/// Status and first words of the newest run of a workspace.
fn describe_newest(workspace: &Path) -> Option<(&'static str, String)> {
    let workspace = Workspace::at(workspace).ok()?;
    let id = workspace.newest().ok()??;
    describe_run(&workspace, &id)
}

/// Runs of the line's workspace, the newest first.
pub(crate) fn run_candidates(
    line: &TypedLine,
    with_latest: bool,
    is_wanted: impl Fn(&Path) -> bool,
) -> Vec<Candidate> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let Ok(workspace) = Workspace::at(Path::new(dir)) else {
        return Vec::new();
    };
    let mut runs = workspace.runs().unwrap_or_default();
    runs.retain(|id| is_wanted(&workspace.run_path(id)));
    runs.sort_by_cached_key(|id| std::cmp::Reverse(workspace.created_at(id)));
    let latest =
        (with_latest && !runs.is_empty()).then(|| Candidate::new("LATEST", "the newest run"));
    let choice = |id: &RunId| {
        let words = describe_run(&workspace, id).map(|(status, text)| format!("{status} {text}"));
        Candidate::new(id.as_str(), &words.unwrap_or_default())
    };
    runs.iter().map(choice).chain(latest).collect()
}

fn describe_run(workspace: &Workspace, id: &RunId) -> Option<(&'static str, String)> {
    const WIDTH: usize = 50;
    let metadata = metadata::read(&workspace.run_path(id))?;
    let status = match metadata.status {
        Status::Running if !Journal::is_locked(&workspace.run_path(id).join("journal.jsonl")) => {
            Status::Interrupted
        }
        status => status,
    };
    Some((status.name(), in_short(&metadata.task_words(), WIDTH)))
}
