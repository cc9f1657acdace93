//! The file that a path from a model leads to. A link is followed, and what it leads to is changed.

use super::listing::nearest_paths;
use super::put::put;
use crate::error::{At, Error, reason};
use crate::unix::files;
use rustix::fs::Access;
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The reason why a tool does not do what the model asked for, with the way out.
#[derive(Debug)]
pub(crate) struct ToolRefusal(pub String);

impl From<Error> for ToolRefusal {
    fn from(error: Error) -> Self {
        Self(error.message)
    }
}

/// A file to read or to replace.
#[derive(Debug)]
pub(super) struct TargetFile<'p> {
    /// The path as the model wrote it.
    path: &'p str,
    /// Without links.
    real: PathBuf,
    /// None: there is no such file yet.
    mode: Option<u32>,
}

impl<'p> TargetFile<'p> {
    /// A regular file that is there. `remedy` is for the case that it is not.
    pub(super) fn existing(path: &'p str, remedy: &str) -> Result<Self, ToolRefusal> {
        let target = Self::any(path)?;
        if target.mode.is_none() {
            return Err(missing(path, remedy));
        }
        Ok(target)
    }

    /// A regular file, or a place for one.
    pub(super) fn any(path: &'p str) -> Result<Self, ToolRefusal> {
        if path.is_empty() {
            return Err(ToolRefusal("the path is empty; name a file".to_owned()));
        }
        let real = real_path(Path::new(path)).map_err(|e| refused("find", path, &e))?;
        let found = fs::metadata(&real).if_there();
        let mode = match found.map_err(|e| refused("find", path, &e))? {
            Some(meta) if meta.is_file() => Some(meta.permissions().mode() & 0o7777),
            Some(meta) if meta.is_dir() => {
                return Err(ToolRefusal(format!("{path} is a directory")));
            }
            Some(_) => return Err(ToolRefusal(format!("{path} is not a regular file"))),
            None => None,
        };
        Ok(Self { path, real, mode })
    }

    pub(super) fn is_new(&self) -> bool {
        self.mode.is_none()
    }

    /// The content, unless it is larger than `largest`.
    pub(super) fn read(&self, largest: u64) -> Result<Vec<u8>, ToolRefusal> {
        let path = self.path;
        let file = files::open_readable(&self.real).map_err(|e| refused("read", path, &e))?;
        let len = file.metadata().map_or(0, |meta| meta.len());
        if len > largest {
            return Err(ToolRefusal(format!(
                "{path} has {len} bytes, and this tool takes at most {largest}; use a command in bash"
            )));
        }
        files::read_part(&file, 0, len as usize).map_err(|e| refused("read", path, &e))
    }

    /// Puts other content into the file; makes what directories are missing for a new one.
    pub(super) fn replace(&self, bytes: &[u8]) -> Result<(), ToolRefusal> {
        let refused = |e: &io::Error| refused("write", self.path, e);
        if self.is_new()
            && let Some(parent) = self.real.parent()
        {
            fs::create_dir_all(parent).map_err(|e| refused(&e))?;
        }
        put(&self.real, bytes, self.mode).map_err(|e| refused(&e))
    }
}

/// The path without links, also where the last of them leads to nothing yet.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    loop {
        // The system refuses a chain that is too long, or has no end.
        if let Some(found) = path.canonicalize().if_there()? {
            return Ok(found);
        }
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
}

/// There is no such file: names those that may have been meant.
pub(super) fn missing(path: &str, remedy: &str) -> ToolRefusal {
    let near = nearest_paths(path);
    let mut text = format!("there is no {path}");
    if !near.is_empty() {
        text += &format!("; the nearest paths are {}", near.join(", "));
    }
    if !remedy.is_empty() {
        text += &format!("; {remedy}");
    }
    ToolRefusal(text)
}

/// The system's error, with a likely cause.
pub(super) fn refused(doing: &str, path: &str, error: &io::Error) -> ToolRefusal {
    let hint = if doing == "write" && is_sandboxes(path, error.kind()) {
        where_to_write(path)
    } else {
        String::new()
    };
    ToolRefusal(format!("cannot {doing} {path}: {}{hint}", reason(error)))
}

/// True if the sandbox is what kept a file from being written: it is there, and the file's mode would have allowed it.
fn is_sandboxes(path: &str, kind: ErrorKind) -> bool {
    let is_confined = rustix::thread::no_new_privs().unwrap_or(false);
    let is_allowed = rustix::fs::access(
        Path::new(path)
            .ancestors()
            .find(|it| it.exists())
            .unwrap_or(Path::new(".")),
        Access::WRITE_OK,
    ) != Err(Errno::ACCESS);
    match kind {
        ErrorKind::PermissionDenied => is_confined && is_allowed,
        // Busy is what the sandbox holds fast.
        ErrorKind::ReadOnlyFilesystem | ErrorKind::ResourceBusy => is_confined,
        _ => false,
    }
}

/// The places where a tool may write, for a model that tried elsewhere.
fn where_to_write(path: &str) -> String {
    let path = Path::new(path);
    let outside = std::env::current_dir()
        .ok()
        .filter(|dir| path.is_absolute() && !path.starts_with(dir));
    match (outside, path.file_name()) {
        (Some(dir), Some(name)) => format!(
            "; tools write only below the workspace, {}: give the path from there, such as {}",
            dir.display(),
            name.display()
        ),
        _ => {
            "; tools write only below the workspace, and not to .delta, .git/config and .git/hooks"
                .to_owned()
        }
    }
}

/// The number of the line, from 1, that a place is in.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    memchr::memchr_iter(b'\n', before).count() + 1
}
