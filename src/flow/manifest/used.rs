//! The files below a flow's directory that its commands and agents name.
//!
//! Unaware of what is in them.

use super::agent::{AgentBody, FlowAgent};
use super::command::files_of;
use super::memory::{Memory, StoreName};
use super::node::NodeSettings;
use super::tool::FlowTool;
use crate::unix::files;
use std::path::{Path, PathBuf};

/// Their paths, whether there are such files or not.
pub(super) fn used_paths(
    home: &Path,
    nodes: &[NodeSettings],
    agents: &[FlowAgent],
    tools: &[FlowTool],
    memory: &Memory,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for node in nodes {
        paths.extend(node.command.iter().flat_map(|it| it.files(home)));
        paths.extend(node.later.iter().flat_map(|it| files_of(&it.check, home)));
    }
    for agent in agents {
        match &agent.body {
            AgentBody::Command(command) => paths.extend(command.files(home)),
            AgentBody::Directory(dir) => agent_files(dir, true, &mut paths),
            AgentBody::Model { prompt_file, .. } => {
                paths.extend(prompt_file.iter().map(|file| home.join(file)));
            }
        }
    }
    for tool in tools {
        paths.extend(files_of(&tool.tool.command, home));
    }
    // What a run itself writes does not make the flow another one.
    let stores = StoreName::ALL.map(|(_, which)| memory.store(which).path(home, Path::new("")));
    paths.retain(|path| !stores.iter().flatten().any(|store| store == path));
    paths
}

/// The files of an agent, without what its runs leave there.
fn agent_files(dir: &Path, top: bool, paths: &mut Vec<PathBuf>) {
    for name in files::names(dir).into_iter().flatten() {
        let path = dir.join(&name);
        let left_by_runs = top && name == "workspaces" || name == ".delta" || name == ".git";
        match std::fs::symlink_metadata(&path) {
            Ok(about) if about.is_dir() && !left_by_runs => agent_files(&path, false, paths),
            Ok(about) if !about.is_dir() => paths.push(path),
            _ => {}
        }
    }
}
