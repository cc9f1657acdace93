//! An agent as it was at a revision, exported into the person's cache.
//!
//! Architecture invariant: what a tree names is untrusted. Nothing is written outside of the export, or through a link.

use super::naming::{AgentDir, digest_tree};
use super::repository::{Git, parts};
use crate::config::person;
use crate::error::{At, Error, Exit, Result, ignore};
use crate::text::digest::sha256;
use crate::text::disguise::printable_line;
use crate::text::ids::hex;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::{trees, writers};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The most bytes of a revision.
const LARGEST: u64 = 1 << 31;

/// The most bytes of what git says of an object before its content.
const HEAD: u64 = 200;

/// The longest time that an export may take.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The file of keys, which is always that of today.
const ENV: &str = ".env";

const LINK: &str = "120000";
const SUBMODULE: &str = "160000";

/// The path and the revision of `PATH@REV`: the longest path that is there, or else what is before the last `@`.
pub(crate) fn split_revision(word: &str) -> Option<(&str, &str)> {
    let parts = |(at, _)| (&word[..at], &word[at + 1..]);
    let is_whole = |(path, revision): &(&str, &str)| !path.is_empty() && !revision.is_empty();
    let mut whole = word.rmatch_indices('@').map(parts).filter(is_whole);
    let last = whole.clone().next();
    whole.find(|(path, _)| Path::new(path).exists()).or(last)
}

/// Exports the repository around an agent as it was, unless it is in the cache already. An agent that was a Markdown file
/// is that file.
///
/// # Errors
/// There is no such repository, revision or agent then, or what is there cannot be exported: 78.
pub(crate) fn export(signals: &Signals, agent: &Path, revision: &str) -> Result<AgentDir> {
    let refused = |why: &str| {
        let message = format!("{}@{revision}: {why}", agent.display());
        Error::config(printable_line(&message))
    };
    let near = agent.ancestors().find(|dir| dir.is_dir()).unwrap_or(agent);
    let real = near.canonicalize().at("find", near)?;
    let git = Git {
        signals,
        dir: &real,
    };
    let line = |words: &[&str], missing: &str| -> Result<PathBuf> {
        let bytes = git.ask_for_bytes(words)?.map_err(|said| match &*said {
            "" => refused(missing),
            said => refused(&format!("{missing} (git: {said})")),
        })?;
        Ok(OsStr::from_bytes(bytes.trim_ascii_end()).into())
    };
    let outside = "it is in no git repository";
    let top = line(&["rev-parse", "--show-toplevel"], outside)?;
    let today = real.join(agent.strip_prefix(near).unwrap_or(Path::new("")));
    let below = today.strip_prefix(&top).map_err(|_| refused(outside))?;
    let commit = format!("{revision}^{{commit}}");
    let words = "rev-parse --verify --quiet --end-of-options".split(' ');
    let words: Vec<&str> = words.chain([&*commit]).collect();
    let id = line(&words, "there is no such revision")?;
    let export = Export {
        git: Git { signals, dir: &top },
        below,
        cache: cache_dir()?,
        id: id.to_string_lossy().into_owned(),
        own: sha256(today.as_os_str().as_bytes())[..12].to_owned(),
    };
    let found = export.find_or_make().map_err(|error| match error.exit {
        Exit::Config | Exit::Failure if !error.is_passing && !error.disk_full => {
            refused(&error.message)
        }
        _ => error,
    })?;
    let dir = found.join(below);
    Ok(AgentDir { dir, today })
}

/// Removes an export.
fn discard(dir: &Path) -> Result<()> {
    if dir.exists() {
        set_modes(dir, 0o700)?;
    }
    trees::remove_all(dir)
}

/// Removes what exports have left behind that were killed.
fn discard_leftovers(cache: &Path) -> Result<()> {
    for name in files::names(cache)?.iter().filter(|it| it.starts_with('.')) {
        let dir = cache.join(name);
        let age = dir.symlink_metadata().and_then(|it| it.modified());
        if age.is_ok_and(|it| it.elapsed().is_ok_and(|age| age > LONGEST)) {
            ignore(discard(&dir));
        }
    }
    Ok(())
}

/// The directory of exports, which only this user can write to.
fn cache_dir() -> Result<PathBuf> {
    let missing =
        || Error::config("a revision is exported below ~/.cache/delta: set HOME or XDG_CACHE_HOME");
    let dir = person::cache_dir().ok_or_else(missing)?.join("revisions");
    files::make_dirs(&dir)?;
    match writers::objection_below(&dir, &dir, &writers::trusted_users([])) {
        None => Ok(dir),
        Some(why) => Err(Error::config(why)),
    }
}

/// A file of a tree, with the mode that git gives it.
struct Entry {
    mode: String,
    id: String,
    size: u64,
    path: PathBuf,
}

impl Entry {
    fn is_agent_file(&self) -> bool {
        self.mode.starts_with("100") && self.path.extension().is_some_and(|it| it == "md")
    }
}

/// A repository as it was at a revision.
struct Export<'e> {
    /// At the top of the work tree.
    git: Git<'e>,
    /// The agent, from there.
    below: &'e Path,
    /// The directory of all exports.
    cache: PathBuf,
    /// Of the commit.
    id: String,
    /// The digest of the agent's path, whose keys it has.
    own: String,
}

impl Export<'_> {
    /// The export in the cache. Its name has the digest of its content, so that one that was written to is made again.
    fn find_or_make(&self) -> Result<PathBuf> {
        discard_leftovers(&self.cache)?;
        let prefix = format!("{}-{}-", self.id, self.own);
        let place = |dir: &Path| -> Result<PathBuf> {
            let digest = digest_tree(dir, &[])?;
            Ok(self.cache.join(format!("{prefix}{}", &digest[..16])))
        };
        for name in files::names(&self.cache)? {
            let dir = self.cache.join(&name);
            if !name.starts_with(&prefix) {
                continue;
            }
            if place(&dir)? == dir {
                return Ok(dir);
            }
            discard(&dir)?;
        }
        let to = self.cache.join(format!(".{}", hex(16)));
        let made = self.make(&to).and_then(|()| place(&to));
        let moved = made.and_then(|dir| match fs::rename(&to, &dir) {
            // Another process may have been faster.
            Err(e) if !dir.is_dir() => Err(e).at("create", &dir),
            moved => Ok((moved.is_ok(), dir)),
        });
        if !matches!(moved, Ok((true, _))) {
            ignore(discard(&to));
        }
        moved.map(|(_, dir)| dir)
    }

    fn make(&self, to: &Path) -> Result<()> {
        let entries = self.list()?;
        files::make_dirs(to)?;
        self.write(&entries, to)?;
        let dirs = BTreeSet::from([self.below, Path::new("")]);
        for below in dirs.into_iter().filter(|dir| to.join(dir).is_dir()) {
            let (link, today) = (below.join(ENV), self.git.dir.join(below).join(ENV));
            match files::link_below(to, &link, today.as_os_str()) {
                // A directory of this name has no keys.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => made.at("create", &to.join(link))?,
            }
        }
        // By this the top is known as that of the project.
        files::make_dirs(&to.join(".git"))?;
        let real = to.canonicalize().at("find", to)?;
        for entry in self.own(&entries, LINK) {
            let leads = to.join(&entry.path).canonicalize();
            if !leads.is_ok_and(|path| path.starts_with(&real)) {
                let message = format!(
                    "the link {} leads to nothing in the repository",
                    entry.path.display()
                );
                return Err(Error::config(message));
            }
        }
        set_modes(to, 0o555)
    }

    /// The entries of the agent with a mode.
    fn own<'a>(&self, entries: &'a [Entry], mode: &str) -> impl Iterator<Item = &'a Entry> {
        let is_own = move |it: &&Entry| it.mode == mode && it.path.starts_with(self.below);
        entries.iter().filter(is_own)
    }

    /// The files of a commit.
    fn list(&self) -> Result<Vec<Entry>> {
        let refused =
            |why: &str, path: &Path| Err(Error::config(format!("{}: {why}", path.display())));
        let words = ["ls-tree", "-r", "-l", "-z", "--full-tree", &self.id];
        let listed = self.git.ask_for_bytes(&words)?.map_err(Error::config)?;
        let mut entries = Vec::new();
        for line in parts(&listed) {
            match read_entry(line) {
                Some(entry) => entries.push(entry),
                None => {
                    return refused(
                        "the tree has this odd entry",
                        Path::new(OsStr::from_bytes(line)),
                    );
                }
            }
        }
        let env = [self.below.join(ENV), ENV.into()];
        entries.retain(|entry| !env.contains(&entry.path));
        if size_of(&entries) > LARGEST {
            return refused(
                "its repository has more than 2 GiB, too much to export",
                self.below,
            );
        }
        if let Some(entry) = self.own(&entries, SUBMODULE).next() {
            return refused("a submodule cannot be exported", &entry.path);
        }
        let mut own = entries.iter().filter(|it| it.path.starts_with(self.below));
        match own.next() {
            None => refused("it was not there", self.below),
            Some(entry) if entry.path == self.below && !entry.is_agent_file() => refused(
                "it was a link or a file, and neither a directory nor a Markdown file",
                self.below,
            ),
            Some(_) => Ok(entries),
        }
    }

    /// Writes the files, and then the links.
    fn write(&self, entries: &[Entry], to: &Path) -> Result<()> {
        let (modules, blobs): (Vec<&Entry>, Vec<&Entry>) =
            entries.iter().partition(|entry| entry.mode == SUBMODULE);
        for entry in modules {
            files::make_dirs_below(to, &entry.path)?;
        }
        let ids = blobs
            .iter()
            .fold(String::new(), |ids, entry| ids + &entry.id + "\n");
        let missing = || Error::config("an object of it is missing in the repository");
        let limit = size_of(entries).saturating_add(HEAD * entries.len() as u64);
        let answer = self
            .git
            .ask(&["cat-file", "--batch"], ids.as_bytes(), limit)?;
        let mut answer = BufReader::new(answer.map_err(|_| missing())?);
        let mut links = Vec::new();
        for entry in blobs {
            let path = &entry.path;
            let mut head = String::new();
            answer
                .by_ref()
                .take(HEAD)
                .read_line(&mut head)
                .at("read", path)?;
            if head.trim_end() != format!("{} blob {}", entry.id, entry.size) {
                return Err(missing());
            }
            let mut content = answer.by_ref().take(entry.size);
            if entry.mode == LINK {
                let mut target = Vec::new();
                content.read_to_end(&mut target).at("read", path)?;
                links.push((target, path));
            } else {
                let mode = if entry.mode == "100755" { 0o555 } else { 0o444 };
                let created = files::create_below(to, path, mode).at("create", path);
                io::copy(&mut content, &mut created?).at("write", path)?;
            }
            // A line break ends it.
            answer.read_exact(&mut [0]).at("read", to)?;
        }
        for (target, path) in links {
            files::link_below(to, path, OsStr::from_bytes(&target)).at("create", path)?;
        }
        Ok(())
    }
}

/// Reads a line of `ls-tree -l`: `MODE TYPE ID SIZE<TAB>PATH`. None if its path could lead elsewhere than it says.
fn read_entry(line: &[u8]) -> Option<Entry> {
    let at = line.iter().position(|byte| *byte == b'\t')?;
    let path = Path::new(OsStr::from_bytes(&line[at + 1..]));
    let is_name =
        |part| matches!(part, Component::Normal(name) if !name.eq_ignore_ascii_case(".git"));
    let plain: PathBuf = path.components().filter(|part| is_name(*part)).collect();
    let text = std::str::from_utf8(&line[..at]).ok()?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [mode, _, id, size] = *words else {
        return None;
    };
    (plain.as_os_str() == path.as_os_str()).then(|| Entry {
        mode: mode.to_owned(),
        id: id.to_owned(),
        size: size.parse().unwrap_or(0),
        path: plain,
    })
}

/// The bytes of files.
fn size_of(entries: &[Entry]) -> u64 {
    let sizes = entries.iter().map(|entry| entry.size);
    sizes.fold(0, u64::saturating_add)
}

/// Gives a directory, and those in it, a mode.
fn set_modes(dir: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(mode)).at("change", dir)?;
    for entry in fs::read_dir(dir).at("read", dir)? {
        let entry = entry.at("read", dir)?;
        if entry.file_type().at("read", dir)?.is_dir() {
            set_modes(&entry.path(), mode)?;
        }
    }
    Ok(())
}
