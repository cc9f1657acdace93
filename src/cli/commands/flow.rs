//! `delta flow`: executes `delta-flow`, a separate program.
//!
//! Unaware of what that program does, so that this one stays small.

use crate::error::{Error, Exit, Result, reason};
use crate::unix::siblings::find_sibling;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "delta-flow";

/// Runs the command. Returns only if the program cannot be run.
pub(crate) fn execute_flow(arguments: &[OsString]) -> Result<Exit> {
    let program = find_sibling(PROGRAM).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        let message = format!(
            "flow: {PROGRAM} is neither beside this program nor in PATH; install it, or build delta \
             with its feature \"flow\""
        );
        return Err(Error::new(Exit::NotFound, message));
    }
    let message = format!("flow: {}: {}", program.display(), reason(&error));
    Err(Error::new(Exit::NotExecutable, message))
}
