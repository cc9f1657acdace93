//! git, asked about the repository around an agent.
//!
//! Architecture invariant: git is asked for names, ids and bytes only. Nothing of the repository is executed, not even
//! a git in it, and nothing fetched; no filter, attribute, replacement or variable changes the bytes.

use super::question::Question;
use crate::error::{At, Error, Result};
use crate::unix::files;
use crate::unix::git_program::{git_outside, hold_pipe};
use crate::unix::process::Variable;
use crate::unix::signals::Signals;
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of a list of names.
const LARGEST_LIST: u64 = 64 << 20;

/// The most pipes that are held open.
const MOST_HELD: usize = 200;

/// Before every question.
const SAFE: [&str; 5] = [
    "--no-replace-objects",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.excludesFile=/dev/null",
];

/// The name of the files that say what git ignores.
const IGNORE: &str = ".gitignore";

/// Git, in a directory.
pub(super) struct Git<'g> {
    pub signals: &'g Signals,
    pub dir: &'g Path,
}

impl Git<'_> {
    /// The answer of git, of at most `limit` bytes, as a file at its beginning; if it fails, the first line of its reason.
    ///
    /// # Errors
    /// There is no git, or a signal, its size or the time has ended it.
    pub(super) fn ask(
        &self,
        words: &[&str],
        stdin: &[u8],
        limit: u64,
    ) -> Result<std::result::Result<File, String>> {
        let missing = || Error::config("git: it is not installed outside of the repository");
        let git = git_outside(top_of(self.dir).unwrap_or(self.dir));
        let program = git.and_then(|it| it.into_os_string().into_string().ok());
        let words = SAFE.iter().chain(words).map(|it| (*it).to_owned());
        let argv = [program.ok_or_else(missing)?].into_iter().chain(words);
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let of_git = inherited.filter(|name| name.starts_with("GIT_"));
        let mut env: Vec<Variable> = of_git.map(|name| (name, None)).collect();
        let own = [("GIT_NO_LAZY_FETCH", "1"), ("LC_ALL", "C")];
        env.extend(own.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))));
        let question = Question {
            signals: self.signals,
            name: "git",
            argv: &argv.collect::<Vec<String>>(),
            dir: self.dir,
            env: &env,
            stdin,
            limit,
        };
        let reply = question.ask()?;
        Ok(if reply.succeeded {
            Ok(reply.answer)
        } else {
            Err(reply.said)
        })
    }

    pub(super) fn ask_for_bytes(
        &self,
        words: &[&str],
    ) -> Result<std::result::Result<Vec<u8>, String>> {
        match self.ask(words, b"", LARGEST_LIST)? {
            Ok(answer) => files::read_limited(answer, LARGEST_LIST)
                .at("read", self.dir)
                .map(Ok),
            Err(why) => Ok(Err(why)),
        }
    }

    /// What git ignores of these paths and below them, without what only this user's own settings ignore. Nothing where
    /// there is no repository, or where the directory is ignored itself.
    ///
    /// # Errors
    /// The reason why git does not say it: 78; a signal.
    pub(super) fn ignored_paths(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        const LIST: &str =
            "ls-files -z --others --ignored --exclude-standard --directory --full-name --";
        let Some(top) = top_of(self.dir) else {
            return Ok(Vec::new());
        };
        let below = |path: &PathBuf| Some(path.strip_prefix(top).ok()?.to_str()?.to_owned());
        let specs: Vec<String> = paths
            .iter()
            .filter_map(below)
            .map(|path| format!(":(top,literal){path}"))
            .collect();
        let words: Vec<&str> = LIST
            .split(' ')
            .chain(specs.iter().map(String::as_str))
            .collect();
        let held = hold_pipes(top, paths)?;
        let listed = self.ask_for_bytes(&words)?.map_err(Error::config)?;
        drop(held);
        let ignored = parts(&listed).map(|name| top.join(OsStr::from_bytes(name)));
        let mut ignored: Vec<PathBuf> = ignored.map(|path| path.components().collect()).collect();
        ignored.retain(|it| !self.dir.starts_with(it));
        Ok(ignored)
    }
}

/// The top of the work tree around a directory.
pub(super) fn top_of(dir: &Path) -> Option<&Path> {
    dir.ancestors().find(|dir| dir.join(".git").exists())
}

/// The parts of an answer that end with a zero byte.
pub(super) fn parts(answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    answer
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
}

/// Opens the pipes in whose places git looks for what it ignores.
fn hold_pipes(top: &Path, paths: &[PathBuf]) -> Result<Vec<OwnedFd>> {
    let above = paths.iter().flat_map(|path| path.ancestors().skip(1));
    let above = above.filter(|dir| dir.starts_with(top));
    let mut held: Vec<OwnedFd> = above
        .filter_map(|dir| hold_pipe(&dir.join(IGNORE)))
        .chain(hold_pipe(&top.join(".git/info/exclude")))
        .collect();
    let mut pending = paths.to_vec();
    while let Some(dir) = pending.pop() {
        held.extend(hold_pipe(&dir.join(IGNORE)));
        if held.len() > MOST_HELD {
            let what = format!("more than {MOST_HELD} of the files {IGNORE} are pipes");
            return Err(Error::config(format!("{}: {what}", dir.display())));
        }
        let is_dir = |entry: &fs::DirEntry| {
            entry.file_name() != ".git" && entry.file_type().is_ok_and(|it| it.is_dir())
        };
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        pending.extend(entries.filter(is_dir).map(|entry| entry.path()));
    }
    Ok(held)
}
