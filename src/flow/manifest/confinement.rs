//! Whether the sandbox of a tool can read the program that it runs.
//!
//! Unaware of what else the program needs, and of the workspace.

use super::command::fill_paths;
use super::items::key_path;
use super::problem::Manifest;
use super::tool::ToolDraft;
use crate::config::section::Diagnostics;
use crate::unix::files::{find_program, open_readable, read_part};
use crate::unix::landlock::is_system_path;
use std::path::{Path, PathBuf};

/// Warns of tools with permissions whose program, or one that it leads to, their sandbox cannot read.
pub(super) fn warn_of_unreadable(file: &mut Manifest, tools: &[ToolDraft], home: &Path) {
    for draft in tools {
        let Some(permissions) = &draft.permissions else {
            continue;
        };
        let roots = [&permissions.read[..], permissions.root.as_slice()].concat();
        let roots = fill_paths(&roots, home, Path::new(".")).map(PathBuf::from);
        let roots = roots.chain([home.to_owned()]);
        let roots: Vec<PathBuf> = roots.filter_map(|root| root.canonicalize().ok()).collect();
        let is_granted = |path: &Path| roots.iter().any(|root| path.starts_with(root));
        let program = fill_paths(&draft.tool.command, home, Path::new(".")).take(1);
        let mut programs = programs_of(program.collect()).into_iter();
        if let Some(path) = programs.find(|path| !is_system_path(path) && !is_granted(path)) {
            let mut out = Diagnostics::about(format!("tool \"{}\"", draft.tool.name));
            let message = format!(
                "permissions: its sandbox cannot read {}, unless the workspace holds it; add it to read",
                path.display()
            );
            out.warn(key_path(&draft.at, "permissions"), message);
            file.report(std::slice::from_ref(&draft.tool.name), out);
        }
    }
}

/// The real paths of a program and of those that it leads to: by a link, by `#!`, or by the `exec` of a shim.
fn programs_of(mut pending: Vec<String>) -> Vec<PathBuf> {
    const MOST: usize = 16;
    const HEAD: usize = 4096;
    let search = std::env::var_os("PATH").unwrap_or_default();
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
            let words = lines.next().unwrap_or_default().split_whitespace();
            let shims = lines.filter_map(|line| line.trim_start().strip_prefix("exec "));
            let words = words.chain(shims.filter_map(|line| line.split_whitespace().next()));
            pending.extend(words.map(|word| word.replace(['"', '\''], "")));
        }
        found.push(path);
    }
    found
}
