//! git, as it works on the store.
//!
//! Architecture invariant: no configuration, attribute, hook or variable of the person, the system or the workspace counts.

use crate::error::{At, Error, Result};
use crate::unix::files;
use crate::unix::git_program::git_outside;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tree without files, which has every attribute of the workspace's files: none. git knows it without reading anything.
pub(super) const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// The way out where git cannot keep the files.
const REMEDY: &str = "install git 2.41 or later";

/// Variables of git, beside those that are paths.
const VARIABLES: [(&str, &str); 6] = [
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_GRAFT_FILE", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
];

/// Objects become visible together, after one sync of all of them.
const SYNCED: [(&str, &str); 5] = [
    ("GIT_CONFIG_COUNT", "2"),
    ("GIT_CONFIG_KEY_0", "core.fsync"),
    ("GIT_CONFIG_VALUE_0", "objects,reference"),
    ("GIT_CONFIG_KEY_1", "core.fsyncMethod"),
    ("GIT_CONFIG_VALUE_1", "batch"),
];

/// git for the files of a directory and the store of their states.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    program: PathBuf,
    /// The directory of the files.
    pub(super) root: PathBuf,
    store: PathBuf,
    /// The directory with HEAD and the index: the store, or that of a run in it.
    dir: PathBuf,
    /// What git writes is on the disk when it ends, or not at all.
    pub(super) syncs: bool,
}

impl Git {
    /// Finds git outside of the workspace, whose path is real.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(root: &Path, store: &Path) -> Result<Self> {
        let missing = || Error::failure(format!("git is not installed; {REMEDY}"));
        Ok(Self {
            program: git_outside(root).ok_or_else(missing)?,
            root: root.to_owned(),
            store: store.to_owned(),
            dir: store.to_owned(),
            syncs: false,
        })
    }

    /// git with HEAD and the index in this directory.
    pub(super) fn with_index(&self, dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            ..self.clone()
        }
    }

    /// A command of git in the directory of the files, with all variables of this process but git's.
    pub(crate) fn command(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"GIT_") {
                command.env_remove(name);
            }
        }
        command
            .arg(format!("--attr-source={EMPTY_TREE}"))
            .args(words)
            .current_dir(&self.root)
            .envs(SYNCED.into_iter().filter(|_| self.syncs))
            .envs([
                ("GIT_DIR", &self.dir),
                ("GIT_COMMON_DIR", &self.store),
                ("GIT_WORK_TREE", &self.root),
            ])
            .envs(VARIABLES);
        command
    }

    /// The output of git, which reads `input`.
    ///
    /// # Errors
    /// It fails, with its first line about that, or the signal that ended it.
    pub(crate) fn run(&self, words: &[impl AsRef<OsStr>], input: &[u8]) -> Result<Vec<u8>> {
        let input = files::in_memory(input).at("start", &self.program)?;
        self.run_from(words, input.into())
    }

    /// The same, with input from a file or another program.
    pub(super) fn run_from(&self, words: &[impl AsRef<OsStr>], input: Stdio) -> Result<Vec<u8>> {
        let mut command = self.command(words);
        let done = command.env("LC_ALL", "C").stdin(input).output();
        let done = done.at("start", &self.program)?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("--attr-source") {
            let program = self.program.display();
            return Err(Error::failure(format!("{program} is too old; {REMEDY}")));
        }
        let is_error = |line: &&str| line.starts_with("error: ") || line.starts_with("fatal: ");
        let mut lines = said.lines().filter(is_error);
        let first = lines.next().or(said.lines().next());
        let why = first.map_or_else(|| done.status.to_string(), str::to_owned);
        Err(Error::failure(format!("git: {why}")))
    }

    /// The output of git as one line.
    pub(crate) fn line(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words, b"")?;
        Ok(String::from_utf8_lossy(output.trim_ascii()).into_owned())
    }
}
