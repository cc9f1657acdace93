//! Advice on commands whose program does not exist.

use crate::config::tool::definition::{Piece, Word};
use crate::unix::programs::find_program;
use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::Path;

/// Programs whose first operand is the program that really runs.
pub(super) const INTERPRETERS: [&str; 14] = [
    "sh", "bash", "dash", "ash", "ksh", "zsh", "python", "python3", "node", "perl", "ruby", "php",
    "lua", "Rscript",
];

/// The thing that a command lacks, as far as can be known before there is a workspace.
pub(super) fn missing(command: &[Word], home: &Path, path: &OsStr) -> Option<String> {
    let program = command.first()?;
    if let Some(file) = in_home(program) {
        return lacks(home, file, Access::EXEC_OK);
    }
    let program = program.as_fixed()?;
    if program.is_empty() || program.contains('/') && !program.starts_with('/') {
        // Found from the workspace.
        return None;
    }
    if find_program(program, path).is_none() {
        return Some(if program.starts_with('/') {
            format!("{program} does not exist or cannot be executed")
        } else {
            format!("there is no program '{program}' in PATH; install it, or name another")
        });
    }
    let file = in_home(command.get(1)?)?;
    INTERPRETERS
        .contains(&program)
        .then(|| lacks(home, file, Access::READ_OK))?
}

/// The path below the agent's directory.
pub(super) fn in_home(word: &Word) -> Option<&str> {
    match word.0.as_slice() {
        [Piece::Home, Piece::Text(rest)] => rest.strip_prefix('/'),
        _ => None,
    }
}

fn lacks(home: &Path, file: &str, need: Access) -> Option<String> {
    let path = home.join(file);
    if !path.exists() {
        return Some(format!("{file} does not exist; create it"));
    }
    let may = path.is_file() && access(&path, need).is_ok();
    (!may).then(|| match need {
        Access::EXEC_OK => format!("{file} cannot be executed; chmod +x {file}"),
        _ => format!("{file} cannot be read"),
    })
}
