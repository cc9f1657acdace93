//! The person's own settings: `~/.config/delta/env`, which counts after the process's environment and is
//! trusted as much, unless it lies in the workspace.
//!
//! Unaware of what the variables mean. `XDG_CONFIG_HOME`, `XDG_CACHE_HOME` and `XDG_STATE_HOME` move the directories, as the
//! XDG Base Directory Specification has it: a relative value is ignored.

use super::dotenv;
use crate::error::{At, Error, Result};
use crate::unix::file_or_pipe;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A value and the place that it comes from, in words.
pub(crate) type Placed = (String, String);

/// The directory of the person's settings; none without a home.
pub(crate) fn config_dir() -> Option<PathBuf> {
    base_dir("XDG_CONFIG_HOME", ".config")
}

/// The directory of what can be made again.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    base_dir("XDG_CACHE_HOME", ".cache")
}

/// The directory in which agents are unpacked that are no directories of the person's.
pub(crate) fn unpacked_agents() -> Option<PathBuf> {
    Some(cache_dir()?.join("agents"))
}

/// The directory of the files of an agent that is one Markdown file, and the empty one beside it, which is `AGENT_HOME`.
pub(crate) const ONE_FILE: [&str; 2] = ["agent", "home"];

/// The content of an agent that is one file, by the name of the place where its directory is, in whichever cache: its
/// digest and the agent's name.
pub(crate) fn content_of(home: &Path) -> Option<&str> {
    let place = home
        .to_str()?
        .strip_suffix(ONE_FILE[0])?
        .strip_suffix('/')?;
    let name = place.rsplit('/').next()?;
    (name.find('-') == Some(64)).then_some(name)
}

/// The value of `AGENT_HOME`: the agent's directory, or an empty one if it is one file.
pub(crate) fn visible_home(home: &Path) -> PathBuf {
    match content_of(home) {
        Some(_) => home.with_file_name(ONE_FILE[1]),
        None => home.to_owned(),
    }
}

/// The directory of what is kept from one start to the next.
pub(crate) fn state_dir() -> Option<PathBuf> {
    base_dir("XDG_STATE_HOME", ".local/state")
}

fn base_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)));
    Some(base?.join("delta"))
}

fn absolute(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// The file, whether it is there or not.
pub(crate) fn env_file() -> Option<PathBuf> {
    Some(config_dir()?.join("env"))
}

/// The copy beside the file of what it held before `delta setup` replaced it.
pub(crate) const OLD_FILE: &str = "env.old";

/// The largest such file.
const LARGEST: u64 = 1 << 20;

/// All files with a key in them: the settings and their copies, and each while it is written. With other variables, another
/// directory counts.
pub(crate) fn env_files() -> impl Iterator<Item = PathBuf> {
    let usual = absolute("HOME").map(|home| home.join(".config/delta"));
    let dirs = config_dir().into_iter().chain(usual);
    dirs.flat_map(|dir| {
        let listed = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let names = listed.filter_map(|entry| entry.file_name().into_string().ok());
        let copies: Vec<String> = names
            .filter(|name| name.trim_start_matches('.').starts_with(OLD_FILE))
            .collect();
        let usual = ["env", ".env.tmp", OLD_FILE, ".env.old.tmp"].map(str::to_owned);
        usual
            .into_iter()
            .chain(copies)
            .map(move |name| dir.join(name))
    })
}

/// A path, in which the home directory takes the place of a `~` at the front.
pub(crate) fn at_home(path: &Path) -> PathBuf {
    let below = path.strip_prefix("~").ok().zip(absolute("HOME"));
    below.map_or_else(|| path.to_owned(), |(rest, home)| home.join(rest))
}

/// True if the person's settings lie in a directory, or would: what can write there can set them.
pub(crate) fn lies_in(dir: &Path) -> bool {
    config_dir().is_some_and(|own| is_within(&own, dir))
}

/// True if a directory that need not be there lies in another one, or would.
pub(crate) fn is_within(own: &Path, dir: &Path) -> bool {
    let real = dir.canonicalize();
    let outer = real.as_deref().unwrap_or(dir);
    // What is not there yet lies where the nearest directory above it does.
    let there = own.ancestors().find_map(|path| path.canonicalize().ok());
    own.starts_with(outer) || there.is_some_and(|there| there.starts_with(outer))
}

/// The variables of the file, each once; the last of a name counts. The file is read once.
///
/// # Errors
/// Another user can read or has written the file, or a line of it is invalid.
pub(crate) fn variables() -> Result<&'static [(String, String)]> {
    static READ: OnceLock<std::result::Result<Vec<(String, String)>, String>> = OnceLock::new();
    let read = READ.get_or_init(|| read_file().map_err(|error| error.message));
    match read {
        Ok(variables) => Ok(variables),
        Err(message) => Err(Error::config(message.clone())),
    }
}

/// A variable of the process's environment, or else of the file, if it is set and not empty.
pub(crate) fn variable(name: &str) -> Result<Option<Placed>> {
    let trimmed = |value: &str| Some(value.trim().to_owned()).filter(|value| !value.is_empty());
    let in_process = std::env::var(name).ok();
    if let Some(value) = in_process.as_deref().and_then(trimmed) {
        return Ok(Some((value, format!("{name} in the environment"))));
    }
    let in_file = variables()?.iter().find(|(known, _)| known == name);
    let value = in_file.and_then(|(_, value)| trimmed(value));
    Ok(value.map(|value| (value, format!("{name} in {}", shown_file()))))
}

/// The directories in which the names of one kind are looked up, in order, and what messages call them: those that a
/// variable lists, and those called `kind` among the person's settings and beside the program.
pub(crate) fn search_dirs(variable: &str, kind: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut dirs = Vec::new();
    if let Some((list, place)) = self::variable(variable)? {
        let absolute = std::env::split_paths(&list).filter(|dir| dir.is_absolute());
        dirs.extend(absolute.map(|dir| {
            let shown = dir.display();
            let place = format!("{shown} ({place})");
            (dir, place)
        }));
    }
    for dir in config_dir().into_iter().chain(installed_dir()) {
        let place = dir.join(kind);
        let shown = place.display().to_string();
        dirs.push((place, shown));
    }
    Ok(dirs)
}

/// `PREFIX/share/delta`, for a program in `PREFIX/bin` or `PREFIX/lib/delta-engine`.
fn installed_dir() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.canonicalize().ok()?;
    let dir = program.parent()?;
    let prefix = match dir.file_name()?.to_str()? {
        "bin" => dir.parent()?,
        "delta-engine" => dir.parent()?.parent()?,
        _ => return None,
    };
    Some(prefix.join("share/delta"))
}

/// True for a name that is a single part of a path, and shows as what it is.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    begins_well && name.len() <= 64 && name.chars().all(allowed)
}

/// The file as messages call it.
pub(crate) fn shown_file() -> String {
    env_file().map_or_else(String::new, |path| path.display().to_string())
}

fn read_file() -> Result<Vec<(String, String)>> {
    let Some(path) = env_file() else {
        return Ok(Vec::new());
    };
    let bytes = match file_or_pipe::open(&path) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(e) => return Err(e).at("read", &path),
        Ok(file) => {
            let meta = file.metadata().at("read", &path)?;
            let shown = path.display();
            if meta.uid() != rustix::process::geteuid().as_raw() {
                return Err(Error::config(format!(
                    "{shown} belongs to another user, who could send your key anywhere: make a file of your own"
                )));
            }
            if meta.mode() & 0o077 != 0 {
                return Err(Error::config(format!(
                    "{shown} may hold a key, and others can read or write it: chmod 600 {shown}"
                )));
            }
            file_or_pipe::read(file, LARGEST).at("read", &path)?
        }
    };
    let shown = path.display();
    let text =
        String::from_utf8(bytes).map_err(|_| Error::config(format!("{shown}: it is not UTF-8")))?;
    let (pairs, bad) = dotenv::parse(&text);
    if let Some(line) = bad.first() {
        return Err(Error::config(format!("{shown}:{}: not NAME=value", line.0)));
    }
    let mut variables: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.contains('\0')) {
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    Ok(variables)
}
