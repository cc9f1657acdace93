//! A file of one name in every directory from the workspace up to the root of its repository, such as
//! AGENTS.md.
//!
//! Unaware of requests. The repository's author may be an attacker: nothing outside of the repository is read,
//! reading never blocks on a pipe, and no more bytes are read than needed.

use crate::unix::{files, writers};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that were found.
#[derive(Debug, Default)]
pub(super) struct UpwardFiles {
    /// From the farthest to the nearest, each under a line with its path. Empty if no file was found.
    pub text: String,
    /// Files that were left out, and why.
    pub left_out: Vec<String>,
}

/// Reads the files of a name, at most `max` bytes of them all. The nearest come first when there is not
/// room for all of them.
pub(super) fn read_upward(workspace: &Path, name: &str, max: u64) -> io::Result<UpwardFiles> {
    let trusted = writers::trusted_users([workspace]);
    let root = repository_root(workspace, &trusted);
    let mut found = UpwardFiles::default();
    let mut parts: Vec<String> = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut room = max;
    let mut shown = name.to_owned();
    for dir in workspace.ancestors() {
        let is_root = dir == root;
        let above = (dir != workspace).then_some(&*trusted);
        match read_one(&dir.join(name), &root, above, room, &mut seen) {
            Ok(Some((text, len))) => {
                room = room.saturating_sub(len);
                parts.push(format!("From {shown}:\n\n{text}"));
            }
            Ok(None) => {}
            Err(e) if e.kind() == ErrorKind::Other || e.kind() == ErrorKind::PermissionDenied => {
                found.left_out.push(format!("{shown}: {e}"));
            }
            Err(e) => return Err(e),
        }
        if is_root {
            break;
        }
        shown = format!("../{shown}");
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

/// The directory with the `.git` that the workspace belongs to, else the workspace. A `.git` above it must
/// belong to a trusted user: anybody can make one in `/tmp`.
fn repository_root(workspace: &Path, trusted: &[u32]) -> PathBuf {
    let is_trusted = |path: &Path| {
        let meta = path.symlink_metadata();
        meta.is_ok_and(|meta| trusted.contains(&meta.uid()))
    };
    let with_git = workspace
        .ancestors()
        .find(|dir| dir.join(".git").symlink_metadata().is_ok());
    match with_git {
        Some(dir) if dir == workspace || is_trusted(&dir.join(".git")) => dir.to_owned(),
        _ => workspace.to_owned(),
    }
}

/// The text of one file, and how many bytes it counts for; none if it is not there or was read before. Above the
/// workspace only what the trusted users alone can write counts.
fn read_one(
    path: &Path,
    root: &Path,
    above: Option<&[u32]>,
    room: u64,
    seen: &mut Vec<PathBuf>,
) -> io::Result<Option<(String, u64)>> {
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
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
    if len <= room {
        return Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), len)));
    }
    if let Err(e) = std::str::from_utf8(&bytes)
        && e.error_len().is_none()
    {
        // In the middle of a character.
        bytes.truncate(e.valid_up_to());
    }
    let omitted = len - bytes.len() as u64;
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some((
        format!("{text}\n[… {omitted} bytes omitted …]\n"),
        room,
    )))
}
