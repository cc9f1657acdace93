//! `delta sandbox`: restricts itself, then becomes the command.

use crate::cli::args::SandboxArgs;
use crate::error::{At, Error, Exit, Result, may_fail, reason};
use crate::unix::files;
use crate::unix::landlock::{Grants, restrict};
use crate::unix::terminal::Screen;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The place for temporary files in the first directory that may be written.
const TEMPORARY: &str = ".tmp";

/// What Landlock has no right for, in any kernel that this was made for.
const NEVER_COVERED: &str = "chmod, chown, times and extended attributes of files that are the user's own; \
    UDP and other sockets than TCP; Unix sockets with a path";

/// Runs the command. Returns only if there is nothing to run.
pub(crate) fn run(wanted: &SandboxArgs) -> Result<Exit> {
    let temporary = temporary(wanted)?;
    let grants = Grants {
        rw: &wanted.rw,
        ro: &wanted.ro,
        network: !wanted.no_network,
        strict: wanted.strict,
    };
    let note = Note::new();
    let lacking = restrict(&grants)?;
    note.tell(&lacking);
    let (program, arguments) = wanted
        .command
        .split_first()
        .ok_or_else(|| Error::usage("sandbox needs a command"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(dir) = temporary {
        command.env("TMPDIR", dir);
    }
    let error = command.exec();
    let name = Path::new(program).display();
    let (exit, hint) = match error.kind() {
        ErrorKind::NotFound => (Exit::NotFound, ""),
        ErrorKind::PermissionDenied => (
            Exit::NotExecutable,
            "; a program outside the system's directories needs --ro",
        ),
        _ => (Exit::NotExecutable, ""),
    };
    Err(Error::new(
        exit,
        format!("sandbox: {name}: {}{hint}", reason(&error)),
    ))
}

/// Where TMPDIR is to point: it stays if it can be written, else it is in the first directory that can.
fn temporary(wanted: &SandboxArgs) -> Result<Option<PathBuf>> {
    let Some(first) = wanted.rw.iter().find(|path| path.is_dir()) else {
        return Ok(None);
    };
    let now = std::env::var_os("TMPDIR").and_then(|dir| PathBuf::from(dir).canonicalize().ok());
    let mut writable = wanted.rw.iter().filter_map(|path| path.canonicalize().ok());
    if now.is_some_and(|now| writable.any(|path| now.starts_with(path))) {
        return Ok(None);
    }
    let dir = first.canonicalize().at("resolve", first)?.join(TEMPORARY);
    if !dir.is_dir() {
        // Another tool may be making it at this moment.
        files::make_dirs(&dir)?;
        may_fail(files::replace_shared(&dir.join(".gitignore"), b"*\n"));
    }
    Ok(Some(dir))
}

/// Says what the sandbox leaves open, without getting into everything that a model is shown: in a run it
/// is written into a file of the run's directory by the first tool that comes by, and only what this
/// kernel lacks is on that tool's stderr, too.
struct Note(Option<std::fs::File>);

impl Note {
    /// Opens the file while that is still allowed.
    fn new() -> Self {
        let dir = std::env::var_os("DELTA_RUN_DIR");
        let file = dir.and_then(|dir| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(PathBuf::from(dir).join("sandbox.txt"))
                .ok()
        });
        Self(file)
    }

    fn tell(self, lacking: &[&str]) {
        let screen = Screen::new(false, false);
        let is_told = self.0.is_none() && std::env::var_os("DELTA_RUN_DIR").is_some();
        if !lacking.is_empty() && !is_told {
            let lacking = lacking.join(", ");
            screen.warn(&format!(
                "sandbox: this kernel cannot keep a program from {lacking}"
            ));
        }
        if let Some(mut file) = self.0 {
            let lacking = lacking.iter().map(|what| format!("this kernel: {what}\n"));
            let text = format!(
                "What delta sandbox cannot keep a program from:\n{}any kernel: {NEVER_COVERED}\n",
                lacking.collect::<String>()
            );
            may_fail(file.write_all(text.as_bytes()));
        } else if io::stderr().is_terminal() {
            screen.warn(&format!("sandbox: not covered: {NEVER_COVERED}"));
        }
    }
}
