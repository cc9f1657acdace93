//! The names of trials: digests of all that a trial depends on, so that what has changed is another trial.
//!
//! Unaware of whether a trial has been made.

use super::assertion::{Assertion, AssertionKind};
use super::suite::{Case, Setting, Suite, Target};
use crate::config::tool::definition::Piece;
use crate::error::{At, Result};
use crate::flow::manifest::Flow;
use crate::flow::manifest::command::NodeCommand;
use crate::text::digest::{PartsDigest, sha256};
use crate::text::json;
use crate::unix::files;
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Digits of a digest in a trial's name.
const DIGITS: usize = 16;

/// Characters of a case's id in a trial's name.
const OF_CASE: usize = 30;

/// A trial that a suite plans.
#[derive(Clone, Debug)]
pub(crate) struct PlannedTrial {
    /// Indices in the suite.
    pub case: usize,
    pub setting: usize,
    /// From 1, within the case and the setting.
    pub number: u32,
    /// Unique in the suite; the name of its run, and of its workspace's directory.
    pub name: String,
}

/// Digests of trees, each made once.
#[derive(Debug, Default)]
pub(crate) struct TreeDigests(HashMap<PathBuf, String>);

impl TreeDigests {
    /// The digest of a directory, without its records and what `without` names.
    pub(crate) fn of(&mut self, dir: &Path, without: &[PathBuf]) -> Result<&str> {
        if !self.0.contains_key(dir) {
            let mut digest = PartsDigest::default();
            add_tree(dir, dir, without, &mut digest)?;
            self.0.insert(dir.to_owned(), digest.sum());
        }
        Ok(&self.0[dir])
    }
}

/// Adds the names, kinds and contents of what is in a directory, in the order of the names.
fn add_tree(root: &Path, dir: &Path, without: &[PathBuf], digest: &mut PartsDigest) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).at("read", dir)? {
        names.push(entry.at("read", dir)?.file_name());
    }
    names.sort();
    for name in names {
        let path = dir.join(&name);
        if dir == root && name == ".delta" || without.contains(&path) {
            continue;
        }
        let about = path.symlink_metadata().at("read", &path)?;
        digest.add(name.as_bytes());
        if about.is_dir() {
            digest.add(b"dir");
            add_tree(root, &path, without, digest)?;
            digest.add(b"end");
        } else if about.is_symlink() {
            let target = fs::read_link(&path).at("read", &path)?;
            digest.add(b"link");
            digest.add(target.as_os_str().as_bytes());
        } else if about.is_file() {
            let bytes = files::read_regular(&path).at("read", &path)?;
            digest.add(match about.permissions().mode() & 0o111 {
                0 => b"file".as_slice(),
                _ => b"program".as_slice(),
            });
            digest.add(&bytes);
        }
    }
    Ok(())
}

/// The digest of what a suite tries: of the flow's files, the agent's, or the command and the files that
/// it names. `agent` is the directory of an agent; `without` has what belongs to the evaluation.
pub(crate) fn digest_target(
    suite: &Suite,
    home: &Path,
    flow: Option<&Flow>,
    agent: Option<&Path>,
    without: &[PathBuf],
) -> Result<String> {
    let mut digest = PartsDigest::default();
    match &suite.target {
        Target::Flow => {
            for file in flow.iter().flat_map(|flow| &flow.files) {
                digest.add(file.path.as_bytes());
                digest.add(file.sha256.as_bytes());
            }
        }
        Target::Agent { .. } => {
            if let Some(agent) = agent {
                let mut without = without.to_vec();
                without.extend([agent.join("workspaces"), agent.join(".git")]);
                add_tree(agent, agent, &without, &mut digest)?;
            }
        }
        Target::Command(command) => {
            digest.add(command.template.as_bytes());
            for file in named_files(command, home) {
                add_file(&file, &mut digest);
            }
        }
    }
    Ok(digest.sum())
}

/// The files that a command names: below the directory of the suite, and by absolute paths.
pub(crate) fn named_files(command: &NodeCommand, home: &Path) -> Vec<PathBuf> {
    let mut files = command.files(home);
    for word in &command.words {
        if let [Piece::Text(path)] = word.0.as_slice()
            && path.starts_with('/')
            && Path::new(path).is_file()
        {
            files.push(path.into());
        }
    }
    files
}

/// Adds a file that may be missing.
fn add_file(path: &Path, digest: &mut PartsDigest) {
    digest.add(path.as_os_str().as_bytes());
    if let Ok(bytes) = files::read_regular(path) {
        digest.add(&bytes);
    }
}

/// The digest of what a case gives its trials.
pub(crate) fn digest_case(case: &Case, template: &str) -> String {
    let mut digest = PartsDigest::default();
    digest.add(json::text(&case.input).as_bytes());
    digest.add(case.start.as_deref().unwrap_or_default().as_bytes());
    digest.add(template.as_bytes());
    digest.sum()
}

/// The digest of all that judges a case: its assertions, what is expected, and the programs that grade.
pub(crate) fn digest_grading(suite: &Suite, case: &Case, home: &Path) -> String {
    let mut digest = PartsDigest::default();
    digest.add(json::text(&case.expected).as_bytes());
    digest.add(format!("{:?}", suite.wrapper).as_bytes());
    for assertion in &case.assertions {
        digest.add(json::text(&assertion.source).as_bytes());
        add_grader(assertion, home, &mut digest);
    }
    digest.sum()
}

fn add_grader(assertion: &Assertion, home: &Path, digest: &mut PartsDigest) {
    match &assertion.check {
        AssertionKind::Exec { command, .. } => {
            for file in named_files(command, home) {
                add_file(&file, digest);
            }
        }
        // It may be in a file of its own.
        AssertionKind::Schema(schema) => digest.add(json::text(&schema.source).as_bytes()),
        _ => {}
    }
}

/// The name of a trial. `target` and `case_digest` are digests.
pub(crate) fn name_trial(
    target: &str,
    (case, case_digest): (&Case, &str),
    setting: &Setting,
    number: u32,
) -> String {
    let parts = [
        "1",
        target,
        &case.id,
        case_digest,
        &setting.name,
        &json::text(&setting.set),
        &number.to_string(),
    ];
    let mut digest = PartsDigest::default();
    for part in parts {
        digest.add(part.as_bytes());
    }
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begin = case.id.chars().take(OF_CASE);
    let begin: String = begin.map(|c| if is_good(c) { c } else { '_' }).collect();
    format!("{begin}.{number}-{}", &digest.sum()[..DIGITS])
}

/// The seed of a trial: another one for each trial of a case, and the same under each setting.
pub(crate) fn seed_of(suite: &str, case: &str, number: u32) -> u32 {
    let sum = sha256(json::text(&(suite, case, number)).as_bytes());
    u32::from_str_radix(&sum[..8], 16).map_or(number, |seed| seed >> 1)
}
