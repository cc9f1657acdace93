//! `delta git`: git with the store of a workspace's states, in which a word may name a run or one of its states.
//!
//! Architecture invariant: git has no work tree: no command that checks files out changes the workspace.

use crate::error::{At, Error, Result};
use crate::file_states::step::{find_state, split_step};
use crate::file_states::store::{Store, Use};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::find::{NEWEST, find_named, open_workspace};
use crate::text::options::parse::ParsedCommand;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Commands that remove what nothing leads to, which may be part of a state that is being taken.
const CLEANERS: [&str; 6] = [
    "gc",
    "maintenance",
    "multi-pack-index",
    "prune",
    "prune-packed",
    "repack",
];

pub(crate) fn run_git(given: &ParsedCommand) -> Result<u8> {
    let workspace = open_workspace(&given.work_dir())?;
    let name = given.operand_text(0).unwrap_or_default();
    if name.starts_with('-') {
        // Which lock is needed would not be known.
        let text = format!("git: '{name}': a command of git comes first, as in `delta git log -p`");
        return Err(Error::usage(text));
    }
    let how = if CLEANERS.contains(&&*name) {
        Use::Alone
    } else {
        Use::Shared
    };
    let Some(store) = Store::open(&workspace, how)? else {
        let root = workspace.root.display();
        return Err(Error::failure(format!(
            "no run has kept its files in {root}; with `files: git` in agent.yaml, a run does"
        )));
    };
    // An old git would only print what it knows.
    store.git.line(&["version"])?;
    let mut git = store.git.command(&["--bare", &name]);
    git.env_remove("GIT_WORK_TREE");
    let mut are_paths = false;
    for word in given.operands.iter().skip(1) {
        are_paths |= word == "--";
        match word
            .to_str()
            .filter(|it| !are_paths && !it.starts_with('-'))
        {
            Some(text) => git.arg(with_commits(&workspace, text)?),
            None => git.arg(word),
        };
    }
    // The lock goes on with it.
    Err(git.exec()).at("start", Path::new("git"))
}

/// A word of git with commits in the places of runs and their states.
fn with_commits(workspace: &Workspace, word: &str) -> Result<String> {
    let mut ends = Vec::new();
    for end in word.split("..") {
        let named = end.trim_start_matches(['^', '.']);
        let before = &end[..end.len() - named.len()];
        ends.push(format!("{before}{}", with_commit(workspace, named)?));
    }
    Ok(ends.join(".."))
}

/// The same of a word that is no range: `RUN@3:src/a.c`, `RUN~2`.
fn with_commit(workspace: &Workspace, word: &str) -> Result<String> {
    let (head, rest) = word.split_at(word.find([':', '^', '~']).unwrap_or(word.len()));
    let (name, iteration) = split_step(head);
    // Alone, a word that only begins like a run's id may mean anything.
    let has_date = name.as_bytes().get(8) == Some(&b'_');
    match find_named(workspace, name) {
        Ok(run) if iteration.is_some() || has_date || [NEWEST, run.as_str()].contains(&name) => {
            let state = find_state(&RunDir::of(workspace, &run), iteration)?;
            Ok(state.commit + rest)
        }
        _ => Ok(word.to_owned()),
    }
}
