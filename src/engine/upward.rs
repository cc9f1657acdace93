//! A file of one name in every directory from the workspace up to the root of its repository, such as
//! AGENTS.md.
//!
//! Unaware of requests. The repository's author may be an attacker: nothing outside of the repository is read,
//! reading never blocks on a pipe, and no more bytes are read than needed.

use crate::error::{is_passing, reason};
use crate::record::invocations::GivenFile;
use crate::unix::{files, writers};
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const AGENTS: &str = "AGENTS.md";
const CLAUDE: &str = "CLAUDE.md";

/// The files that were found.
#[derive(Debug, Default)]
pub(super) struct UpwardFiles {
    /// From the farthest to the nearest, each under a line with its path. Empty if no file was found.
    pub text: String,
    /// Their sizes, the nearest first.
    pub files: Vec<GivenFile>,
    /// Files and parts of files that were left out, and why.
    pub left_out: Vec<String>,
    /// Files that were read in place of others.
    pub replaced: Vec<String>,
}

/// Reads the files of a name, at most `max` bytes of them all. The nearest come first when there is not
/// room for all of them.
pub(super) fn read_upward(workspace: &Path, name: &str, max: u64) -> io::Result<UpwardFiles> {
    let trusted = writers::trusted_users([workspace]);
    let Root { dir: root, beyond } = repository_root(workspace, &trusted);
    let farthest = beyond.as_ref().map_or(&root, |(dir, _)| dir);
    let mut found = UpwardFiles::default();
    let mut parts: Vec<String> = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut room = max;
    for (depth, dir) in workspace.ancestors().enumerate() {
        let file = name_in(dir, name);
        let shown = "../".repeat(depth) + file;
        let path = dir.join(file);
        let above = (dir != workspace).then_some(&*trusted);
        let read = match beyond.as_ref().filter(|_| !dir.starts_with(&root)) {
            Some((_, why)) if path.symlink_metadata().is_ok() => Err(io::Error::other(why.clone())),
            Some(_) => Ok(None),
            None => read_one(&path, &root, above, room, &mut seen),
        };
        match read {
            Ok(Some(read)) => {
                let (bytes, sent) = (read.len, read.len.min(room));
                room -= sent;
                if sent < bytes {
                    let omitted = bytes - sent;
                    let why = format!("{omitted} bytes of {shown}: max_bytes is {max}");
                    found.left_out.push(why);
                }
                if file != name {
                    let missing = "../".repeat(depth) + name;
                    let text = format!("there is no {missing}: {shown} is read in its place");
                    found.replaced.push(text);
                }
                if !read.is_utf8 {
                    let why = format!("characters of {shown}: it is not UTF-8");
                    found.left_out.push(why);
                }
                parts.push(format!("From {shown}:\n\n{}", read.text));
                found.files.push(GivenFile {
                    path: shown.clone(),
                    bytes,
                    sent: (sent < bytes).then_some(sent),
                });
            }
            Ok(None) => {}
            Err(e) if is_passing(&e) => return Err(e),
            Err(e) => found.left_out.push(format!("{shown}: {}", reason(&e))),
        }
        if dir == farthest {
            break;
        }
    }
    for part in parts.iter().rev() {
        if !found.text.is_empty() {
            found.text.push('\n');
        }
        found.text.push_str(part);
        if !part.ends_with('\n') {
            found.text.push('\n');
        }
    }
    Ok(found)
}

/// The name of the file in a directory. Where there is no AGENTS.md, the instructions for another program take its place.
fn name_in<'n>(dir: &Path, name: &'n str) -> &'n str {
    let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
    if name == AGENTS && !has(AGENTS) && has(CLAUDE) {
        CLAUDE
    } else {
        name
    }
}

/// The end of the search.
struct Root {
    /// The directory with the `.git` that the workspace belongs to, else the workspace.
    dir: PathBuf,
    /// A directory above it whose files would count but for a reason.
    beyond: Option<(PathBuf, String)>,
}

/// The end of the search. A `.git` above the workspace must belong to a trusted user: anybody can make one in `/tmp`.
fn repository_root(workspace: &Path, trusted: &[u32]) -> Root {
    let owner = |dir: &Path| dir.join(".git").symlink_metadata().ok().map(|it| it.uid());
    let is_trusted = |dir: &&Path| owner(dir).is_some_and(|uid| trusted.contains(&uid));
    let mut repositories = workspace.ancestors().filter(|dir| owner(dir).is_some());
    let Some(nearest) = repositories.next() else {
        let dir = workspace.to_owned();
        return Root { dir, beyond: None };
    };
    let git = nearest.join(".git");
    let shown = git.display();
    if nearest != workspace && !is_trusted(&nearest) {
        let why = format!("{shown} belongs to another user");
        return Root {
            dir: workspace.to_owned(),
            beyond: Some((nearest.to_owned(), why)),
        };
    }
    let is_empty = fs::read_dir(&git).is_ok_and(|mut entries| entries.next().is_none());
    let why = if is_empty {
        format!("{shown} is empty, and ends the search")
    } else {
        format!("{shown} begins a repository of its own")
    };
    let outer = repositories.filter(is_trusted).last();
    Root {
        dir: nearest.to_owned(),
        beyond: outer.map(|dir| (dir.to_owned(), why)),
    }
}

/// A file as far as there is room for it.
struct Read {
    text: String,
    /// Length of the whole file.
    len: u64,
    is_utf8: bool,
}

/// The text of one file; none if it is not there or was read before. Above the workspace only what the trusted users
/// alone can write counts.
fn read_one(
    path: &Path,
    root: &Path,
    above: Option<&[u32]>,
    room: u64,
    seen: &mut Vec<PathBuf>,
) -> io::Result<Option<Read>> {
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            if path.is_symlink() {
                return Err(io::Error::other("it is a link to nothing"));
            }
            return Ok(None);
        }
        Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(io::Error::other("it is a link to itself"));
        }
        Err(e) => return Err(e),
    };
    if !real.starts_with(root.canonicalize()?) {
        return Err(io::Error::other("it is a link out of the repository"));
    }
    if seen.contains(&real) {
        return Ok(None);
    }
    let dirs = path.parent().into_iter().chain(real.parent());
    if let Some(trusted) = above
        && let Some(why) = writers::objection(dirs.chain([&*real]), trusted)?
    {
        return Err(io::Error::other(why));
    }
    let file = files::open_readable(&real)?;
    if room == 0 {
        return Err(io::Error::other("max_bytes leaves no room for it"));
    }
    let len = file.metadata()?.len();
    let mut bytes = files::read_part(&file, 0, room.min(len) as usize)?;
    seen.push(real);
    if let Err(e) = std::str::from_utf8(&bytes)
        && len > room
        && e.error_len().is_none()
    {
        // In the middle of a character.
        bytes.truncate(e.valid_up_to());
    }
    let is_utf8 = std::str::from_utf8(&bytes).is_ok();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if len > room {
        let omitted = len - bytes.len() as u64;
        text.push_str(&format!("\n[… {omitted} bytes omitted …]\n"));
    }
    Ok(Some(Read { text, len, is_utf8 }))
}
