//! The interpreter of a session: where it is, where it runs, where its output goes.

use crate::error::{Error, Result};
use crate::sessions::session::Session;
use crate::text::ids;
use crate::unix::process::{self, Command, GRACE, Outcome};
use crate::unix::procfs::CALL_ID;
use crate::unix::signals::Signals;
use rustix::fs::{Access, access};
use std::env;
use std::path::{Path, PathBuf};

/// Runs an interpreter to its end.
pub(crate) fn run_program(
    signals: &Signals,
    command: Command<'_>,
    program: &str,
) -> Result<Outcome> {
    process::run(signals, command, GRACE).map_err(|error| Error::failure(error.message(program)))
}

/// Standard output and standard error of a session's command, by its number.
pub(crate) fn output_paths(session: &Session, number: u64) -> (PathBuf, PathBuf) {
    let file = |stream: &str| session.path(&format!("output/{number:06}.{stream}"));
    (file("stdout"), file("stderr"))
}

/// Marks the processes of one command; begins with the id of the call around this process.
pub(crate) fn new_call_id(session: &Session, number: u64) -> String {
    let own = format!("{}-{number}-{}", session.id, ids::hex(4));
    match env::var(CALL_ID) {
        Ok(outer) if !outer.is_empty() => format!("{outer}.{own}"),
        _ => own,
    }
}

/// The directory itself or the nearest parent that can be entered.
pub(crate) fn nearest_dir(path: &Path) -> PathBuf {
    let enterable = |dir: &&Path| dir.is_dir() && access(*dir, Access::EXEC_OK).is_ok();
    path.ancestors()
        .find(enterable)
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// The absolute path of a program, found as a shell finds it.
pub(crate) fn find_program(name: &str, here: &Path) -> Option<String> {
    let runs = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let found = if name.contains('/') {
        Some(here.join(name)).filter(runs)
    } else if name.is_empty() {
        None
    } else {
        let path = env::var_os("PATH")?;
        env::split_paths(&path)
            .map(|dir| here.join(dir).join(name))
            .find(runs)
    };
    found?.into_os_string().into_string().ok()
}
