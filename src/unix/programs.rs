//! Programs, as `PATH` finds them.

use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The path of a program: in a directory of `path`, which is written as the variable is, or as its own absolute path says.
pub(crate) fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    let can_be_run = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return Some(program.into())
            .filter(|path: &PathBuf| path.is_absolute() && can_be_run(path));
    }
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(can_be_run)
}

/// This process's `PATH`; empty if it has none.
pub(crate) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}
