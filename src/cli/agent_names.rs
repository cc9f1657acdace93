//! Agents by name: where `@NAME` is looked up, and the agents that the program carries.
//!
//! A built-in agent is unpacked below the person's cache directory, into a directory that is named by its
//! content, and compared with the program's own bytes each time before it is used.

use super::message::GivenAgent;
use super::templates::{self, Template};
use crate::config::person;
use crate::error::{At, Error, Result, may_fail};
use crate::record::workspace::Workspace;
use crate::runs::overrides::{around, recorded_agent};
use crate::text::ids::hex;
use crate::text::order::sort_by;
use crate::text::suggestion::nearest;
use crate::unix::files;
use crate::unix::new_files::NewFile;
use crate::unix::terminal::Screen;
use crate::unix::writers;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An agent that a command line names, found.
#[derive(Debug)]
pub(crate) struct FoundAgent {
    pub home: PathBuf,
    /// Where the name comes from, and where it was found.
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

/// The agent of a word behind `-a`: `@NAME`, or a directory.
pub(crate) fn find_word(word: &Path) -> Result<FoundAgent> {
    let name = word.to_str().and_then(|word| word.strip_prefix('@'));
    let Some(name) = name else {
        return Ok(FoundAgent {
            home: word.to_owned(),
            source: word.display().to_string(),
            works_here: false,
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
        (None, None) => recorded_agent(recorded, workspace),
    }
}

/// True if a record does not say which agent its run has, because tools may have made the one that it names.
pub(crate) fn is_nested(home: &Path, root: &Path) -> bool {
    let is_inside = |workspace: Workspace| around(home, &workspace).is_some();
    built_in_of(home).is_none() && Workspace::at(root).is_ok_and(is_inside)
}

/// The built-in agent that an agent's directory is a copy of.
pub(crate) fn built_in_of(home: &Path) -> Option<&'static Template> {
    let name = home
        .strip_prefix(unpacked_dir()?)
        .ok()?
        .file_name()?
        .to_str()?;
    let all = templates::BUILT_IN.into_iter();
    all.into_iter().find(|template| template.name == name)
}

/// The names that are found, each with the directory in which, the nearest first.
pub(crate) fn list_names() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let dirs = person::search_dirs(AGENTS, "agents").unwrap_or_default();
    for (dir, place) in dirs {
        for name in files::names(&dir).unwrap_or_default() {
            if person::is_name(&name)
                && dir.join(&name).is_dir()
                && objection(&dir, &name).is_none()
            {
                found.push((name, place.clone()));
            }
        }
    }
    let built_in = templates::BUILT_IN.into_iter();
    found.extend(built_in.map(|it| (it.name.to_owned(), it.description.to_owned())));
    let mut names: Vec<String> = Vec::new();
    found.retain(|(name, _)| {
        let is_new = !names.contains(name);
        names.push(name.clone());
        is_new
    });
    found
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
        let home = dir.join(name);
        if !home.is_dir() {
            continue;
        }
        let Some(why) = objection(&dir, name) else {
            return Ok((home, format!("@{name} in {place}")));
        };
        Screen::new(false, false).warn(&format!("warning: {} is ignored: {why}", home.display()));
    }
    let built_in = templates::BUILT_IN.into_iter().find(|it| it.name == name);
    if let Some(template) = built_in {
        return Ok((unpack(template)?, format!("@{name}, built in")));
    }
    let known = list_names();
    let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean @{near}?"),
        None => format!("known names: @{}", known.join(", @")),
    };
    Err(Error::usage(format!("no agent is named @{name}; {hint}")))
}

/// The reason why a named agent does not count: others can write where it is.
fn objection(dir: &Path, name: &str) -> Option<String> {
    writers::objection_below(dir, &dir.join(name), &writers::trusted_users([]))
}

fn unpacked_dir() -> Option<PathBuf> {
    Some(person::cache_dir()?.join("agents"))
}

/// The directory of a built-in agent, with exactly the program's files in it.
fn unpack(template: &Template) -> Result<PathBuf> {
    let Some(parent) = unpacked_dir() else {
        return Err(Error::config(format!(
            "@{} is unpacked below ~/.cache/delta, and there is no home: set HOME or XDG_CACHE_HOME",
            template.name
        )));
    };
    let files = template.files(template.name);
    files::make_dirs(&parent).map_err(|error| {
        let message = &error.message;
        Error::config(format!(
            "{message}; @{} is unpacked there: set XDG_CACHE_HOME",
            template.name
        ))
    })?;
    check_private(&parent)?;
    let place = parent.join(content_name(&files));
    let home = place.join(template.name);
    if is_intact(&place, template.name, &files) {
        return Ok(home);
    }
    let temporary = parent.join(format!(".{}", hex(16)));
    let made = write_all(&temporary.join(template.name), &files);
    let placed = made.and_then(|()| put_in_place(&temporary, &place).at("create", &place));
    may_fail(fs::remove_dir_all(&temporary));
    placed?;
    // What only this user can change cannot have been exchanged since.
    match is_intact(&place, template.name, &files) {
        true => Ok(home),
        false => Err(Error::config(format!(
            "{} is not what this program has just put there: another program writes to it; set XDG_CACHE_HOME to a \
             directory of your own",
            place.display()
        ))),
    }
}

/// Refuses a directory in which another user could exchange what has been checked.
fn check_private(dir: &Path) -> Result<()> {
    let meta = dir.metadata().at("read", dir)?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw();
    if is_own && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let shown = dir.display();
    let way_out = match is_own {
        true => format!("chmod go-w {shown}"),
        false => "set XDG_CACHE_HOME to a directory of your own".to_owned(),
    };
    Err(Error::config(format!(
        "others can put an agent into {shown}: {way_out}"
    )))
}

/// A name for these files, which changes with them. The files themselves are compared as well, so that no two
/// need to differ in it.
fn content_name(files: &[NewFile]) -> String {
    // FNV-1a, 64 bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let mode = [u8::from(file.is_program)];
        let parts = [
            file.path.as_bytes(),
            b"\0",
            file.text.as_bytes(),
            b"\0",
            &mode,
        ];
        for byte in parts.concat() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// True if a directory holds an agent of exactly these files, private and this user's.
fn is_intact(place: &Path, name: &str, files: &[NewFile]) -> bool {
    let mut expected: Vec<(PathBuf, Option<&NewFile>)> = vec![(name.into(), None)];
    for file in files {
        let path = Path::new(name).join(&file.path);
        if let Some(dir) = path.parent() {
            expected.push((dir.to_owned(), None));
        }
        expected.push((path, Some(file)));
    }
    sort_by(&mut expected, |a, b| a.0.cmp(&b.0));
    expected.dedup_by(|a, b| a.0 == b.0);
    let mut found = Vec::new();
    if !is_private(place, 0o700) || list_below(place, Path::new(""), &mut found).is_err() {
        return false;
    }
    found.sort();
    let paths = expected.iter().map(|(path, _)| path);
    paths.eq(found.iter())
        && expected.iter().all(|(path, file)| {
            let path = place.join(path);
            match file {
                None => is_private(&path, 0o700),
                Some(file) => {
                    let is_same = || {
                        files::read_regular(&path).is_ok_and(|bytes| bytes == file.text.as_bytes())
                    };
                    is_private(&path, mode_of(file)) && is_same()
                }
            }
        })
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

/// Collects all paths below a directory, relative to it; links are not followed.
fn list_below(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            list_below(root, &path, found)?;
        }
        found.push(path);
    }
    Ok(())
}

fn write_all(home: &Path, files: &[NewFile]) -> Result<()> {
    for file in files {
        let path = home.join(&file.path);
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
