//! The differences between two states, in numbers.

use super::git::Git;
use super::store::Store;
use crate::error::Result;
use crate::record::event::{ChangedFile, FileChange, FilesEvent, FilesReason};
use serde::{Deserialize, Serialize};

/// The most files of which lines are counted.
const COUNTED: usize = 20;

/// The words for differences. Of a large file, lines are not counted.
pub(super) const DIFF: [&str; 8] = [
    "--literal-pathspecs",
    "-c",
    "core.bigFileThreshold=1m",
    "diff-tree",
    "-r",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
];

/// Numbers of files that differ, and the first of them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Changes {
    pub changed: u64,
    pub added: u64,
    pub removed: u64,
    pub paths: Vec<ChangedFile>,
}

impl Changes {
    /// The differences of a tree from another tree or a state, without numbers of lines.
    ///
    /// # Errors
    /// The store does not have the state.
    pub(super) fn between(git: &Git, trees: [&str; 2]) -> Result<Self> {
        let mut found = Self::default();
        found.read(&git.run(&[&DIFF[..], &["-z", "--raw"], &trees].concat(), b"")?);
        Ok(found)
    }

    /// Counts the lines that differ.
    pub(super) fn count_lines(&mut self, git: &Git, trees: [&str; 2]) -> Result<()> {
        let printed = of_files(git, &["--numstat"], trees, &self.paths)?;
        self.read(&printed);
        Ok(())
    }

    /// The differences of some files between two other states.
    pub(super) fn of_files(git: &Git, states: [&str; 2], files: &[ChangedFile]) -> Result<Self> {
        let mut found = Self::default();
        if !files.is_empty() {
            found.read(&of_files(git, &["--raw", "--numstat"], states, files)?);
        }
        Ok(found)
    }

    /// The event of a state that differs so from the last one.
    pub(crate) fn event<'e>(&'e self, n: u64, why: FilesReason, commit: &'e str) -> FilesEvent<'e> {
        FilesEvent {
            n,
            why,
            commit,
            changed: self.changed,
            added: self.added,
            removed: self.removed,
            paths: &self.paths,
        }
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.changed + self.added + self.removed == 0
    }

    /// Adds what git prints: first of each file how it differs, then of some how many lines.
    fn read(&mut self, output: &[u8]) {
        let all = texts(output);
        let mut all = all.iter();
        while let Some(text) = all.next() {
            if text.starts_with(':') {
                self.add(text.chars().next_back(), all.next());
                continue;
            }
            let mut fields = text.splitn(3, '\t');
            let lines = [fields.next(), fields.next()].map(|it| it?.parse().ok());
            let path = fields.next().unwrap_or_default();
            if let Some(file) = self.paths.iter_mut().find(|it| it.path == path) {
                [file.added, file.removed] = lines;
            }
        }
    }

    fn add(&mut self, letter: Option<char>, path: Option<&String>) {
        let (count, change) = match letter {
            Some('A') => (&mut self.added, Some(FileChange::New)),
            Some('D') => (&mut self.removed, Some(FileChange::Removed)),
            _ => (&mut self.changed, None),
        };
        *count += 1;
        if let Some(path) = path.filter(|_| self.paths.len() < COUNTED) {
            self.paths.push(ChangedFile {
                path: path.clone(),
                change,
                added: None,
                removed: None,
            });
        }
    }
}

/// What git prints of some files.
fn of_files(git: &Git, what: &[&str], trees: [&str; 2], files: &[ChangedFile]) -> Result<Vec<u8>> {
    let mut words = [&DIFF[..], &["-z"], what, &trees, &["--"]].concat();
    words.extend(files.iter().map(|it| &*it.path));
    git.run(&words, b"")
}

/// Longer differences of a file are left out, in lines.
const LONGEST: u64 = 5000;

/// The differences of files between two states, as a person reads them. The states are commits.
pub(crate) fn diff(store: &Store, states: [&str; 2], files: &[ChangedFile]) -> Result<String> {
    let lines = |file: &ChangedFile| Some(file.added?.saturating_add(file.removed?));
    let shown = files
        .iter()
        .filter(|file| lines(file).is_some_and(|it| it <= LONGEST));
    let paths: Vec<&str> = shown.map(|file| &*file.path).collect();
    if paths.is_empty() {
        return Ok(String::new());
    }
    let words = [&DIFF[..], &["-p", "--no-color"], &states, &["--"], &paths].concat();
    let output = store.git.run(&words, b"")?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Texts that end with a NUL byte each.
fn texts(output: &[u8]) -> Vec<String> {
    let all = output.split(|byte| *byte == 0);
    let mut all: Vec<String> = all
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    all.pop();
    all
}
