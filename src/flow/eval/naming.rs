//! The names of trials: digests of all that a trial depends on, so that what has changed is another trial.
//!
//! Unaware of whether a trial has been made.

use super::assertion::AssertionKind;
use super::repository::top_of;
use super::suite::{Case, Suite, Target};
use crate::config::tool::definition::Piece;
use crate::error::{At, Result};
use crate::flow::manifest::Flow;
use crate::flow::manifest::command::NodeCommand;
use crate::text::digest::{PartsDigest, sha256};
use crate::text::json;
use crate::text::order;
use crate::unix::files;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::mem::take;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Digits of a digest in a trial's name.
const DIGITS: usize = 16;

/// The largest file in which names of others are looked for.
const LARGEST_TEXT: u64 = 16 << 20;

/// Characters of a case's id in a trial's name.
const OF_CASE: usize = 30;

fn digest_of(parts: &[&str]) -> String {
    let mut digest = PartsDigest::default();
    for part in parts {
        digest.add(part.as_bytes());
    }
    digest.sum()
}

/// The digest of a directory, without its records and what `without` names.
pub(crate) fn digest_tree(dir: &Path, without: &[PathBuf]) -> Result<String> {
    let tree = Tree {
        root: dir,
        without,
        is_agent: false,
    };
    let mut found = Found::default();
    tree.add(dir, &mut found)?;
    Ok(found.digest.sum())
}

/// The digest of an agent: the paths, kinds and contents of its files, but for keys, caches, `own` files of the evaluation
/// and what is ignored; and those of what it uses beside its directory: `named` paths, and what links lead to in the
/// repository around it; without one, files in the directory around it. `ignored` returns what is ignored of paths.
///
/// # Errors
/// Something cannot be read; those of `ignored`.
pub(crate) fn digest_agent(
    agent: &AgentDir,
    own: &[PathBuf],
    named: Vec<PathBuf>,
    ignored: &mut dyn FnMut(&[PathBuf]) -> Result<Vec<PathBuf>>,
) -> Result<String> {
    let dir = agent.dir.canonicalize().at("find", &agent.dir)?;
    let there = |path: &PathBuf| Some(dir.join(path.strip_prefix(&agent.today).ok()?));
    let own: Vec<PathBuf> = own.iter().filter_map(there).collect();
    let repository = top_of(&dir);
    let top = repository.or_else(|| dir.parent()).unwrap_or(&dir);
    let is_beside = |link: &PathBuf| {
        let is_content = link.is_file() || repository.is_some() && link.is_dir();
        let is_of_git = link.iter().any(|name| name == ".git");
        is_content && link.starts_with(top) && !is_of_git && !dir.starts_with(link)
    };
    let mut found = Found::default();
    let mut roots = Vec::new();
    let mut round = vec![dir.clone()];
    let mut named = Some(named);
    while !round.is_empty() {
        let mut without = ignored(&round)?;
        without.extend(own.iter().cloned());
        for root in &round {
            add_root(root, &dir, top, &without, &mut found)?;
        }
        roots.append(&mut round);
        round = take(&mut found.links);
        round.retain(is_beside);
        let named = named.take().into_iter().flatten();
        round.extend(named.filter(|path| path.is_file() || is_beside(path)));
        round.retain(|link| !roots.iter().any(|root| link.starts_with(root)));
        order::sort(&mut round);
        round.dedup();
    }
    Ok(found.digest.sum())
}

/// Adds the agent's directory, or what it uses beside it.
fn add_root(
    root: &Path,
    dir: &Path,
    top: &Path,
    without: &[PathBuf],
    found: &mut Found,
) -> Result<()> {
    if root != dir {
        if without.iter().any(|it| root.starts_with(it)) {
            return Ok(());
        }
        let below = root.strip_prefix(top).ok().map(Path::as_os_str);
        let name = below.or_else(|| root.file_name()).unwrap_or_default();
        found.digest.add(b"beside");
        found.digest.add(name.as_bytes());
    }
    let tree = Tree {
        root,
        without,
        is_agent: true,
    };
    if root.is_dir() {
        tree.add(root, found)
    } else {
        found.add_file(root)
    }
}

/// What the files of an agent name beside its directory by `${AGENT_HOME}/..`, as far as it is there.
pub(crate) fn named_beside(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in files::names(dir).unwrap_or_default() {
        if Path::new(&name).extension() != Some(OsStr::new("yaml")) {
            continue;
        }
        let text = files::read_text_limited(&dir.join(name), LARGEST_TEXT).unwrap_or_default();
        for rest in text.split("AGENT_HOME").skip(1) {
            let rest = rest.strip_prefix('}').unwrap_or(rest);
            let is_end = |c: char| c.is_whitespace() || "\"'`;|&<>(){}[]*?$,".contains(c);
            let path = rest.split(is_end).next().unwrap_or_default();
            if let Some(path) = path.strip_prefix('/')
                && path.split('/').any(|part| part == "..")
            {
                found.extend(dir.join(path).canonicalize());
            }
        }
    }
    let home = dir.canonicalize();
    found.retain(|path| !home.as_ref().is_ok_and(|home| home.starts_with(path)));
    found
}

/// An agent's directory.
#[derive(Clone, Debug)]
pub(crate) struct AgentDir {
    pub dir: PathBuf,
    /// Another one if that is a copy of what was once there.
    pub today: PathBuf,
}

/// A directory that is digested.
struct Tree<'t> {
    root: &'t Path,
    without: &'t [PathBuf],
    /// Directories count only as parts of paths, and what is not an agent's own does not.
    is_agent: bool,
}

/// What is found in directories.
#[derive(Default)]
struct Found {
    digest: PartsDigest,
    /// What links lead to.
    links: Vec<PathBuf>,
}

impl Found {
    fn add_file(&mut self, path: &Path) -> Result<()> {
        let mode = path.metadata().at("read", path)?.permissions().mode();
        let bytes = files::read_regular(path).at("read", path)?;
        self.digest.add(match mode & 0o111 {
            0 => b"file".as_slice(),
            _ => b"program".as_slice(),
        });
        self.digest.add(&bytes);
        Ok(())
    }
}

impl Tree<'_> {
    fn leaves_out(&self, path: &Path, name: &OsStr) -> bool {
        let is_at_top =
            |names: &[&str]| path.parent() == Some(self.root) && names.iter().any(|it| name == *it);
        let is_not_own =
            || name == "__pycache__" || name == ".git" || is_at_top(&[".env", "workspaces"]);
        is_at_top(&[".delta"])
            || self.is_agent && is_not_own()
            || self.without.iter().any(|it| it == path)
    }

    /// Adds the names, kinds and contents of what is in a directory, in the order of the names.
    fn add(&self, dir: &Path, found: &mut Found) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).at("read", dir)? {
            names.push(entry.at("read", dir)?.file_name());
        }
        order::sort(&mut names);
        for entry in names {
            let path = dir.join(&entry);
            if self.leaves_out(&path, &entry) {
                continue;
            }
            let about = path.symlink_metadata().at("read", &path)?;
            if about.is_dir() && self.is_agent {
                self.add(&path, found)?;
                continue;
            }
            let below = path.strip_prefix(self.root).ok().filter(|_| self.is_agent);
            let name = below.map_or(&*entry, Path::as_os_str);
            found.digest.add(name.as_bytes());
            if about.is_dir() {
                found.digest.add(b"dir");
                self.add(&path, found)?;
                found.digest.add(b"end");
            } else if about.is_symlink() {
                let target = fs::read_link(&path).at("read", &path)?;
                found.digest.add(b"link");
                found.digest.add(target.as_os_str().as_bytes());
                found.links.extend(path.canonicalize());
            } else if about.is_file() {
                found.add_file(&path)?;
            }
        }
        Ok(())
    }
}

/// The digest of what a suite tries: of the flow's files, or the command and the files that it names; of an agent's
/// directory, as earlier versions made it. `without` has what belongs to the evaluation.
pub(crate) fn digest_target(
    suite: &Suite,
    home: &Path,
    flow: Option<&Flow>,
    agent: Option<&Path>,
    mut without: Vec<PathBuf>,
) -> Result<String> {
    if let Some(agent) = agent {
        without.extend([agent.join("workspaces"), agent.join(".git")]);
        return digest_tree(agent, &without);
    }
    let mut digest = PartsDigest::default();
    if let Target::Command(command) = &suite.target {
        digest.add(command.template.as_bytes());
        ReadFiles::default().add(command, home, &mut digest);
    } else {
        for file in flow.iter().flat_map(|flow| &flow.files) {
            digest.add(file.path.as_bytes());
            digest.add(file.sha256.as_bytes());
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

/// Files that commands name, each read once.
#[derive(Default)]
pub(crate) struct ReadFiles(HashMap<PathBuf, Option<Vec<u8>>>);

impl ReadFiles {
    /// Adds the files that a command names, each of which may be missing.
    fn add(&mut self, command: &NodeCommand, home: &Path, digest: &mut PartsDigest) {
        for path in named_files(command, home) {
            digest.add(path.as_os_str().as_bytes());
            let read = || files::read_regular(&path).ok();
            let bytes = self.0.entry(path.clone()).or_insert_with(read);
            if let Some(bytes) = bytes {
                digest.add(bytes);
            }
        }
    }
}

/// The digest of what a case gives its trials.
pub(crate) fn digest_case(case: &Case, template: &str) -> String {
    digest_of(&[
        &json::text(&case.input),
        case.start.as_deref().unwrap_or(""),
        template,
    ])
}

/// The digest of all that judges a case: its assertions, what is expected, and the programs that grade.
pub(crate) fn digest_grading(
    suite: &Suite,
    case: &Case,
    home: &Path,
    graders: &mut ReadFiles,
) -> String {
    let mut digest = PartsDigest::default();
    digest.add(json::text(&case.expected).as_bytes());
    digest.add(format!("{:?}", suite.wrapper).as_bytes());
    for assertion in &case.assertions {
        digest.add(json::text(&assertion.source).as_bytes());
        match &assertion.check {
            AssertionKind::Exec { command, .. } => graders.add(command, home, &mut digest),
            // It may be in a file of its own.
            AssertionKind::Schema(schema) => digest.add(json::text(&schema.source).as_bytes()),
            _ => {}
        }
    }
    digest.sum()
}

/// The name of a trial. `parts` is what tells it from all others of its case and number.
pub(crate) fn name_trial(case: &Case, number: u32, parts: [&str; 5]) -> String {
    let [version, target, digest, setting, set] = parts;
    let sum = digest_of(&[
        version,
        target,
        &case.id,
        digest,
        setting,
        set,
        &number.to_string(),
    ]);
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begin: String = case
        .id
        .chars()
        .take(OF_CASE)
        .map(|c| if is_good(c) { c } else { '_' })
        .collect();
    format!("{begin}.{number}-{}", &sum[..DIGITS])
}

/// The seed of a trial: another one for each trial of a case, and the same under each setting.
pub(crate) fn seed_of(suite: &str, case: &str, number: u32) -> u32 {
    let sum = sha256(json::text(&(suite, case, number)).as_bytes());
    u32::from_str_radix(&sum[..8], 16).map_or(number, |seed| seed >> 1)
}
