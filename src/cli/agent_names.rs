//! Agents by name: where `@NAME` is looked up, and the agents that the program carries; and those that are one file.
//!
//! Either is unpacked below the person's cache directory, into a directory that is named by its content, and compared
//! with what it should be each time before it is used.

use super::agent_file::{AgentFile, is_agent_file};
use super::message::GivenAgent;
use super::templates::{self, Template};
use crate::config::person::{self, ONE_FILE};
use crate::error::{At, Error, Result, ignore};
use crate::record::workspace::Workspace;
use crate::runs::overrides::{around, recorded_agent};
use crate::text::digest::sha256;
use crate::text::ids::hex;
use crate::text::suggestion::nearest;
use crate::unix::files;
use crate::unix::new_files::NewFile;
use crate::unix::terminal::warn;
use crate::unix::writers;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An agent that a command line names, found.
#[derive(Debug)]
pub(crate) struct FoundAgent {
    pub home: PathBuf,
    /// Origin of the name, and the place where it was found.
    pub source: String,
    /// True if it works in the current directory unless another one is given.
    pub works_here: bool,
}

const AGENT: &str = "DELTA_AGENT";
pub(crate) const AGENTS: &str = "DELTA_AGENTS";

/// The agent that is used if none is named.
const USUAL: &str = "@coder";

/// Finds the agent that a command line names or leaves open.
pub(crate) fn find_agent(given: &GivenAgent) -> Result<FoundAgent> {
    match given {
        GivenAgent::Word(word) => find_word(word),
        GivenAgent::Here => Ok(FoundAgent {
            home: ".".into(),
            source: "the current directory".to_owned(),
            works_here: false,
        }),
        GivenAgent::Usual => {
            let usual = person::variable(AGENT)?;
            let (word, place) =
                usual.unwrap_or_else(|| (USUAL.to_owned(), "the default".to_owned()));
            if !word.starts_with('@') && !word.starts_with('/') {
                return Err(Error::config(format!(
                    "{place} is '{word}': it must be @NAME or an absolute path, so that it means the same everywhere"
                )));
            }
            let found = find_word(Path::new(&word))?;
            Ok(FoundAgent {
                source: format!("{place}: {}", found.source),
                works_here: true,
                ..found
            })
        }
    }
}

/// The agent of a word behind `-a`: `@NAME`, a directory, or a Markdown file.
pub(crate) fn find_word(word: &Path) -> Result<FoundAgent> {
    let name = word.to_str().and_then(|word| word.strip_prefix('@'));
    let Some(name) = name else {
        let is_file = is_agent_file(word);
        return Ok(FoundAgent {
            home: if is_file {
                place_file(word)?
            } else {
                word.to_owned()
            },
            source: word.display().to_string(),
            works_here: is_file,
        });
    };
    let (home, source) = find_name(name)?;
    Ok(FoundAgent {
        home,
        source,
        works_here: true,
    })
}

/// The directory of a run's agent: the one that is given, the built-in one that the run had, or the recorded one.
pub(crate) fn agent_of_run(
    given: Option<&Path>,
    recorded: (&str, &str),
    workspace: &Workspace,
) -> Result<PathBuf> {
    match (given, built_in_of(Path::new(recorded.1))) {
        (Some(word), _) => find_word(word).map(|found| found.home),
        // Of another version of this program, perhaps, whose files nothing proves.
        (None, Some(template)) => unpack(template),
        (None, None) => recorded_agent(recorded.0, recorded.1, workspace),
    }
}

/// True if a record does not say which agent its run has, because tools may have made the one that it names.
pub(crate) fn is_nested(home: &Path, root: &Path) -> bool {
    let is_inside = |workspace: Workspace| around(home, &workspace).is_some();
    built_in_of(home).is_none() && Workspace::at(root).is_ok_and(is_inside)
}

/// The built-in agent that an agent's directory is a copy of.
pub(crate) fn built_in_of(home: &Path) -> Option<&'static Template> {
    let name = home.file_name().filter(|_| is_unpacked(home))?;
    built_in(name.to_str()?)
}

/// True for the directory of an agent in the cache.
fn is_unpacked(home: &Path) -> bool {
    person::unpacked_agents().is_some_and(|dir| home.starts_with(dir))
}

fn built_in(name: &str) -> Option<&'static Template> {
    let mut all = templates::BUILT_IN.into_iter();
    all.find(|template| template.name == name)
}

/// True for the directory of an agent that has a name, or is one file.
pub(crate) fn has_name(home: &Path) -> bool {
    let dirs = person::search_dirs(AGENTS, "agents").unwrap_or_default();
    let parent = home.parent().and_then(|dir| dir.canonicalize().ok());
    let is_in =
        |(dir, _): &(PathBuf, String)| parent.is_some() && dir.canonicalize().ok() == parent;
    is_unpacked(home) || dirs.iter().any(is_in)
}

/// The names that are found, each with the directory in which, the nearest first.
pub(crate) fn list_names() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (dir, place) in person::search_dirs(AGENTS, "agents").into_iter().flatten() {
        for name in files::names(&dir).into_iter().flatten() {
            let path = dir.join(&name);
            let stem = name.strip_suffix(".md").filter(|_| path.is_file());
            let known = stem.or(path.is_dir().then_some(&name));
            if let Some(known) = known.filter(|it| person::is_name(it))
                && objection(&dir, &path).is_none()
            {
                all.push((known.to_owned(), place.clone()));
            }
        }
    }
    let built_in = templates::BUILT_IN.into_iter();
    all.extend(built_in.map(|it| (it.name.to_owned(), it.description.to_owned())));
    let mut seen = BTreeSet::new();
    all.retain(|(name, _)| seen.insert(name.clone()));
    all
}

fn find_name(name: &str) -> Result<(PathBuf, String)> {
    if !person::is_name(name) {
        return Err(Error::usage(format!(
            "'@{}' names no agent: a name has letters, digits and ._-; a directory is given with -a, and behind \
             -- everything is the task",
            name.escape_debug()
        )));
    }
    for (dir, place) in person::search_dirs(AGENTS, "agents")? {
        let (home, file) = (dir.join(name), dir.join(format!("{name}.md")));
        let is_file = !home.is_dir() && is_agent_file(&file) && file.exists();
        let path = if is_file { file } else { home };
        if !is_file && !path.is_dir() {
            continue;
        }
        if let Some(why) = objection(&dir, &path) {
            warn(&format!("warning: {} is ignored: {why}", path.display()));
            continue;
        }
        let home = if is_file { place_file(&path)? } else { path };
        return Ok((home, format!("@{name} in {place}")));
    }
    if let Some(template) = built_in(name) {
        return Ok((unpack(template)?, format!("@{name}, built in")));
    }
    let there = format!(".claude/agents/{name}.md");
    if Path::new(&there).is_file() {
        return Err(Error::usage(format!(
            "no agent is named @{name}; to use the one of this directory, whoever wrote it: `delta run -a {there} …`"
        )));
    }
    let known = list_names();
    let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean @{near}?"),
        None => format!("known names: @{}", known.join(", @")),
    };
    Err(Error::usage(format!("no agent is named @{name}; {hint}")))
}

/// The reason why a named agent does not count: others can write where it is, or where a link to its file leads.
fn objection(dir: &Path, path: &Path) -> Option<String> {
    let trusted = writers::trusted_users([]);
    let real = path.canonicalize().ok().filter(|real| real.is_file());
    let place = real.as_deref().and_then(Path::parent);
    writers::objection_below(dir, path, &trusted)
        .or_else(|| writers::objection_below(place?, place?, &trusted))
}

/// The directory of an agent that is one file.
fn place_file(path: &Path) -> Result<PathBuf> {
    let file = AgentFile::read(path)?;
    let files = in_dir(ONE_FILE[0], file.files);
    let place = put_files(&file.name, &file.place, &ONE_FILE, &files)?;
    Ok(place.join(ONE_FILE[0]))
}

fn in_dir(dir: &str, files: Vec<NewFile>) -> Vec<NewFile> {
    let below = |file: NewFile| NewFile {
        path: format!("{dir}/{}", file.path),
        ..file
    };
    files.into_iter().map(below).collect()
}

/// The directory of a built-in agent, with exactly the program's files in it.
fn unpack(template: &Template) -> Result<PathBuf> {
    let name = template.name;
    let files = in_dir(name, template.files(name));
    let place = put_files(&format!("@{name}"), &content_name(&files), &[name], &files)?;
    Ok(place.join(name))
}

/// The directory of this name in the cache, with exactly these directories and files in it; `agent` is the one that it is
/// for.
fn put_files(agent: &str, name: &str, dirs: &[&str], files: &[NewFile]) -> Result<PathBuf> {
    let Some(parent) = person::unpacked_agents() else {
        return Err(Error::config(format!(
            "{agent} is unpacked below ~/.cache/delta, and there is no home: set HOME or XDG_CACHE_HOME"
        )));
    };
    files::make_dirs(&parent).map_err(|error| {
        let message = &error.message;
        Error::config(format!(
            "{message}; {agent} is unpacked there: set XDG_CACHE_HOME"
        ))
    })?;
    check_private(&parent)?;
    let place = parent.join(name);
    if is_intact(&place, dirs, files) {
        return Ok(place);
    }
    let temporary = parent.join(format!(".{}", hex(16)));
    let made = write_all(&temporary, dirs, files);
    let placed = made.and_then(|()| put_in_place(&temporary, &place).at("create", &place));
    ignore(fs::remove_dir_all(&temporary));
    placed?;
    // What only this user can change cannot have been exchanged since.
    if is_intact(&place, dirs, files) {
        return Ok(place);
    }
    Err(Error::config(format!(
        "{} is not what this program has just put there: another program writes to it; set XDG_CACHE_HOME to a \
         directory of your own",
        place.display()
    )))
}

/// Refuses a directory in which another user could exchange what has been checked.
fn check_private(dir: &Path) -> Result<()> {
    let meta = dir.metadata().at("read", dir)?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    if is_own && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let shown = dir.display();
    let way_out = if is_own {
        format!("chmod go-w {shown}")
    } else {
        "set XDG_CACHE_HOME to a directory of your own".to_owned()
    };
    Err(Error::config(format!(
        "others can put an agent into {shown}: {way_out}"
    )))
}

/// A name for these files, which changes with them.
fn content_name(files: &[NewFile]) -> String {
    let mut all = Vec::new();
    for file in files {
        let parts = [&*file.path, &*file.text];
        all.extend(parts.map(str::as_bytes).concat());
        all.push(u8::from(file.is_program));
    }
    sha256(&all)[..16].to_owned()
}

/// True if a directory holds exactly these directories and files, private and this user's.
fn is_intact(place: &Path, dirs: &[&str], files: &[NewFile]) -> bool {
    let mut expected = BTreeMap::from([(PathBuf::new(), None)]);
    expected.extend(dirs.iter().map(|dir| (dir.into(), None)));
    for file in files {
        let path = PathBuf::from(&file.path);
        let above = path.ancestors().skip(1);
        expected.extend(above.map(|dir| (dir.to_owned(), None)));
        expected.insert(path, Some(file));
    }
    let mut found = BTreeSet::new();
    let is_as_it_was = |path: &Path, file: Option<&NewFile>| {
        let path = place.join(path);
        let Some(file) = file else {
            return is_private(&path, 0o700);
        };
        is_private(&path, mode_of(file))
            && files::read_regular(&path).is_ok_and(|bytes| bytes == file.text.as_bytes())
    };
    list_below(place, PathBuf::new(), &mut found).is_ok()
        && found.iter().eq(expected.keys())
        && expected
            .iter()
            .all(|(path, file)| is_as_it_was(path, *file))
}

fn mode_of(file: &NewFile) -> u32 {
    if file.is_program { 0o700 } else { 0o600 }
}

/// True if a file or a directory, and no link, is this user's with this mode.
fn is_private(path: &Path, mode: u32) -> bool {
    path.symlink_metadata().is_ok_and(|meta| {
        let is_own = meta.uid() == rustix::process::geteuid().as_raw();
        let has_one_name = meta.is_dir() || meta.nlink() == 1;
        is_own && has_one_name && !meta.is_symlink() && meta.mode() & 0o7777 == mode
    })
}

/// Collects a directory and all paths below it, relative to `root`; links are not followed.
fn list_below(root: &Path, below: PathBuf, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(&below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list_below(root, path, found)?;
        } else {
            found.insert(path);
        }
    }
    found.insert(below);
    Ok(())
}

fn write_all(place: &Path, dirs: &[&str], files: &[NewFile]) -> Result<()> {
    for dir in dirs {
        files::make_dirs(&place.join(dir))?;
    }
    for file in files {
        let path = place.join(&file.path);
        if let Some(dir) = path.parent() {
            files::make_dirs(dir)?;
        }
        files::write(&path, file.text.as_bytes())?;
        // Independent of the umask.
        let mode = Permissions::from_mode(mode_of(file));
        fs::set_permissions(&path, mode).at("change", &path)?;
    }
    Ok(())
}

/// Puts a directory where another one may be, which is then under the first one's name.
fn put_in_place(from: &Path, place: &Path) -> io::Result<()> {
    if renameat_with(CWD, from, CWD, place, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    // There is nothing to exchange it with, or the file system cannot.
    fs::rename(from, place).or_else(|_| {
        fs::remove_dir_all(place)?;
        fs::rename(from, place)
    })
}
