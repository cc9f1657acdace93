//! Checks that the wrapper programs of tools exist.

use crate::config::agent::Agent;
use crate::config::environment::Environment;
use crate::config::tool::definition::Piece;
use crate::error::{Error, Result};
use crate::record::workspace::Workspace;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Checks that the wrappers' programs exist: without its sandbox, no tool
/// may run. Without a `workspace`, which may not exist yet, programs in it are not checked.
pub(crate) fn check_wrappers(
    agent: &Agent,
    environment: &Environment,
    workspace: Option<&Workspace>,
) -> Result<()> {
    let of_tools = agent
        .tools
        .iter()
        .filter_map(|tool| Some((tool.wrapper.as_ref()?, Some(tool))));
    let wrappers = std::iter::once((&agent.wrapper, None)).chain(of_tools);
    let mut missing = Vec::new();
    for (wrapper, tool) in wrappers {
        let Some(program) = wrapper.first() else {
            continue;
        };
        if workspace.is_none() && program.0.contains(&Piece::Cwd) {
            continue;
        }
        let place = |piece: &Piece| match piece {
            Piece::Text(text) => PathBuf::from(text).into_os_string(),
            Piece::Home => agent.visible_home.clone().into_os_string(),
            Piece::Cwd => workspace.map_or_else(OsString::new, |w| w.root.clone().into()),
            Piece::Param(_) => OsString::new(),
        };
        let name: OsString = program.0.iter().map(place).collect();
        let path = environment.search_path();
        let Err(why) = find_program(&name, &path, workspace.map(|w| w.root.as_path())) else {
            continue;
        };
        let whose = tool.map_or_else(String::new, |tool| format!("tool \"{}\": ", tool.name));
        missing.push(format!(
            "{whose}wrapper: {} {why}; install it, or remove it: no tool runs without its wrapper",
            Path::new(&name).display()
        ));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::config(missing.join("\n")))
}

/// Looks for a program as the system would.
fn find_program(
    name: &OsStr,
    path: &str,
    root: Option<&Path>,
) -> std::result::Result<(), &'static str> {
    let can_be_run = |path: &Path| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    if name.as_encoded_bytes().contains(&b'/') {
        let path = match (Path::new(name), root) {
            (path, _) if path.is_absolute() => path.to_owned(),
            (path, Some(root)) => root.join(path),
            (_, None) => return Ok(()),
        };
        if !path.exists() {
            return Err("does not exist");
        }
        return can_be_run(&path).then_some(()).ok_or("cannot be executed");
    }
    let mut dirs = std::env::split_paths(path);
    let is_found = dirs.any(|dir| can_be_run(&dir.join(name)));
    is_found
        .then_some(())
        .ok_or("is not installed: it is not found in PATH")
}
