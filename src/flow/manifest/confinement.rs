//! Programs of tools that their sandboxes cannot read.
//!
//! Unaware of what else the program needs, and of the workspace.

use super::command::fill_paths;
use super::problem::Manifest;
use super::tool::FlowTool;
use crate::unix::files::{open_readable, read_part};
use crate::unix::landlock::is_system_path;
use crate::unix::programs::{find_program, search_path};
use std::path::{Path, PathBuf};

/// Warns of tools with permissions whose program, or one that it leads to, their sandbox cannot read.
pub(super) fn warn_of_unreadable(file: &mut Manifest, tools: &[FlowTool], home: &Path) {
    for tool in tools {
        let Some(permissions) = &tool.permissions else {
            continue;
        };
        let words = [&permissions.read[..], permissions.root.as_slice()].concat();
        let granted = fill_paths(&words, home, Path::new("."))
            .map(PathBuf::from)
            .chain([home.to_owned()]);
        let roots: Vec<PathBuf> = granted
            .filter_map(|root| root.canonicalize().ok())
            .collect();
        let is_granted = |path: &Path| roots.iter().any(|root| path.starts_with(root));
        let program = fill_paths(&tool.tool.command, home, Path::new(".")).take(1);
        let mut programs = programs_of(program.collect()).into_iter();
        if let Some(path) = programs.find(|path| !is_system_path(path) && !is_granted(path)) {
            let message = format!(
                "permissions: its sandbox cannot read {}, unless the workspace holds it; add it to read",
                path.display()
            );
            file.add_to(tool.place(), "permissions", None, message);
        }
    }
}

/// The real paths of a program and of those that it leads to: by a link, by `#!`, or by the `exec` of a shim.
fn programs_of(mut pending: Vec<String>) -> Vec<PathBuf> {
    const MOST: usize = 16;
    const HEAD: usize = 4096;
    let search = search_path();
    let mut found: Vec<PathBuf> = Vec::new();
    while let Some(program) = pending.pop().filter(|_| found.len() < MOST) {
        let path = find_program(&program, &search).and_then(|path| path.canonicalize().ok());
        let Some(path) = path.filter(|path| !found.contains(path)) else {
            continue;
        };
        let head = open_readable(&path).and_then(|file| read_part(&file, 0, HEAD));
        if let Some(script) = String::from_utf8_lossy(&head.unwrap_or_default()).strip_prefix("#!")
        {
            let mut lines = script.lines();
            let first = lines.next().unwrap_or("").split_whitespace();
            let shims = lines.filter_map(|line| line.trim_start().strip_prefix("exec "));
            let words = first.chain(shims.filter_map(|line| line.split_whitespace().next()));
            pending.extend(words.map(|word| word.replace(['"', '\''], "")));
        }
        found.push(path);
    }
    found
}
