//! The program `delta-sessions` of `cargo install`, which makes no links: becomes `delta sessions`, of the `delta` that is
//! beside it, or else of the one in PATH.

use std::env::{args_os, current_exe};
use std::io::{ErrorKind, Write, stderr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let beside = current_exe()
        .map(|own| own.with_file_name("delta"))
        .ok()
        .filter(|path| path.is_file());
    let delta = beside.unwrap_or_else(|| PathBuf::from("delta"));
    let error = Command::new(&delta)
        .arg("sessions")
        .args(args_os().skip(1))
        .exec();
    let is_missing = error.kind() == ErrorKind::NotFound;
    // Nothing can be done about a closed stderr.
    let _closed = writeln!(stderr(), "delta-sessions: {}: {error}", delta.display());
    ExitCode::from(if is_missing { 127 } else { 126 })
}
