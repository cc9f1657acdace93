//! The shells of sessions: what each kind keeps, and the environment that it gets.
//!
//! Unaware of files, processes and locks.

use crate::sessions::secrets::ApiKeys;
use crate::unix::process::Variable;
use serde::{Deserialize, Serialize};
use std::env;
use std::path::Path;

/// The way in which an interpreter is run, and what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ShellKind {
    /// bash 4.4 or newer, under any name.
    Bash,
    /// Any other shell that reads POSIX scripts.
    Posix,
    /// Not a shell: it gets the text on its standard input.
    Other,
}

/// Programs that are run as POSIX shells, or as bash if they turn out to be one.
const SHELLS: [&str; 8] = ["bash", "sh", "dash", "ash", "yash", "ksh", "ksh93", "mksh"];

/// Identifies the session to its commands, and their processes to `end`.
pub(crate) const SESSION_ID: &str = "DELTA_SESSION_ID";

/// Variables that belong to one call of `delta-sessions` and not to the session.
pub(crate) const FOREIGN: [&str; 10] = [
    SESSION_ID,
    crate::unix::procfs::CALL_ID,
    "DELTA_AGENT_HOME",
    "DELTA_CWD",
    "DELTA_DEADLINE",
    "DELTA_DEPTH",
    "DELTA_ENGINE_PID",
    "DELTA_HOOK_IO_PATH",
    "DELTA_RUN_DIR",
    "DELTA_RUN_ID",
];

/// A shell that any Unix has, for interpreters that are not shells.
pub(crate) const SH: &str = "/bin/sh";

/// The last lines of `env.sh`.
pub(crate) const BASH_TRAILER: &str = "# end of bash state";
pub(crate) const POSIX_TRAILER: &str = "# end of sh state";

/// Ends the last line of a state that lacks the changes of the command's exit trap.
pub(crate) const UNFINISHED: &str = " before the EXIT trap";

/// All files that a shell may write its state into.
pub(crate) const ANY_STATE: [&str; 5] = [
    "env.sh",
    "work_dir.txt",
    "functions.sh",
    "options.sh",
    "aliases.txt",
];

impl ShellKind {
    pub(crate) fn state_files(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &["env.sh", "work_dir.txt", "functions.sh"],
            Self::Posix => &["env.sh", "work_dir.txt", "options.sh", "aliases.txt"],
            Self::Other => &["env.sh", "work_dir.txt"],
        }
    }

    /// For people: what persists from one command to the next.
    pub(crate) fn kept_state(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &[
                "files",
                "working directory",
                "exported variables",
                "shell variables and arrays",
                "functions",
                "aliases",
                "shell options",
                "umask",
            ],
            Self::Posix => &[
                "files",
                "working directory",
                "exported variables",
                "shell variables",
                "aliases",
                "shell options",
                "umask",
            ],
            Self::Other => &["files"],
        }
    }
}

/// Judges a program by its name.
pub(crate) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&name_of(program))
}

pub(crate) fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The state of a session as a command begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandSetup<'s> {
    /// The session's directory.
    pub(crate) dir: &'s str,
    /// The saved state is damaged, and not used.
    pub(crate) afresh: bool,
    /// `trap` is a function or an alias.
    pub(crate) hide_trap: bool,
    /// The output of `alias` in a POSIX shell.
    pub(crate) aliases: &'s [u8],
}

/// The environment of a session's first process: that of this process without keys.
pub(crate) fn first_environment(session: &str) -> Vec<Variable> {
    let names = ApiKeys::from_environment().variable_names();
    let mut changes: Vec<Variable> = names.into_iter().map(|name| (name, None)).collect();
    changes.push((SESSION_ID.to_owned(), Some(session.to_owned())));
    changes
}

/// The environment of a command: of this process only what identifies the call. The rest comes from the
/// session's files; if they are damaged, it is that of a first process.
pub(crate) fn exec_environment(
    kind: ShellKind,
    session: &str,
    work_dir: &Path,
    setup: CommandSetup<'_>,
) -> Vec<Variable> {
    let mut changes = if setup.afresh {
        first_environment(session)
    } else {
        let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let own = names.filter(|name| !FOREIGN.contains(&name.as_str()));
        own.map(|name| (name, None)).collect()
    };
    let mut set = |name: &str, value: &str| changes.push((name.to_owned(), Some(value.to_owned())));
    set(SESSION_ID, session);
    if let Some(work_dir) = work_dir.to_str() {
        // A shell believes PWD if it is right, and so keeps the way through symbolic links.
        set("PWD", work_dir);
    }
    if kind == ShellKind::Bash {
        // bash expands BASH_ENV, but not what it expands to.
        set("BASH_ENV", "${DELTA_SESSION_BOOT}");
        set("DELTA_SESSION_BOOT", &format!("{}/boot.sh", setup.dir));
        if !setup.afresh {
            // Without them bash reads the list of users. boot.sh unsets them.
            set("HOME", "/");
            set("SHELL", SH);
        }
    }
    changes
}
