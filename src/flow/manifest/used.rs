//! The files below a flow's directory that its commands and agents name.
//!
//! Unaware of what is in them.

use super::agent::AgentBody;
use super::command::files_of;
use super::memory::{Memory, StoreName};
use super::{FlowAgent, FlowTool, NodeSettings};
use std::path::{Path, PathBuf};

/// Their paths, whether there are such files or not.
pub(super) fn used_paths(
    home: &Path,
    nodes: &[Option<NodeSettings>],
    agents: &[Option<FlowAgent>],
    tools: &[FlowTool],
    memory: &Memory,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let of_nodes = nodes
        .iter()
        .flatten()
        .filter_map(|node| node.command.as_ref());
    let of_memory = [&memory.embedder, &memory.tokenizer].into_iter().flatten();
    let of_memory = of_memory.map(|program| &program.command);
    for command in of_nodes.chain(of_memory) {
        paths.extend(command.files(home));
    }
    let later = nodes.iter().flatten();
    let later = later.filter_map(|node| node.later.as_ref());
    paths.extend(later.flat_map(|rule| files_of(&rule.check, home)));
    for agent in agents.iter().flatten() {
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
    for name in crate::unix::files::names(dir).unwrap_or_default() {
        let path = dir.join(&name);
        let left_by_runs = top && name == "workspaces" || name == ".delta" || name == ".git";
        match std::fs::symlink_metadata(&path) {
            Ok(about) if about.is_dir() && !left_by_runs => agent_files(&path, false, paths),
            Ok(about) if !about.is_dir() => paths.push(path),
            _ => {}
        }
    }
}
