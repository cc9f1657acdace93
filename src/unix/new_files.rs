//! Writes the files of a new directory: all of them, or none.
//!
//! Unaware of what they are.

use super::files;
use crate::error::{At, Error, Result, ignore};
use crate::text::order;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file to make.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewFile {
    /// Below the directory.
    pub path: String,
    pub text: String,
    pub is_program: bool,
}

/// Refuses a directory that is in use. Hidden files, such as `.git`, do not count. `main` is the file by which
/// `what` is known.
pub(crate) fn check_unused(dir: &Path, main: &str, what: &str) -> Result<()> {
    let entries = fs::read_dir(dir).if_there().at("use", dir);
    let mut names = Vec::new();
    for entry in entries.map_err(Error::into_usage)?.into_iter().flatten() {
        let name = entry.at("read", dir)?.file_name();
        if !name.as_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    order::sort(&mut names);
    let Some(first) = names.first() else {
        return Ok(());
    };
    let shown = dir.display();
    Err(Error::failure(if names.iter().any(|name| name == main) {
        format!("{shown} already contains {what}; choose another directory")
    } else {
        format!(
            "{shown} is not empty: there is {}; choose a new or an empty directory",
            first.to_string_lossy()
        )
    }))
}

/// Writes files into a directory, and returns their names. If that fails, nothing is left of them. An existing hidden file
/// is left as it is.
pub(crate) fn write_new(
    dir: &Path,
    files: impl IntoIterator<Item = NewFile>,
) -> Result<Vec<String>> {
    let is_new = !dir.exists();
    fs::create_dir_all(dir).at("create", dir)?;
    let mut written: Vec<String> = Vec::new();
    for file in files {
        let path = dir.join(&file.path);
        match create(&path, &file) {
            Ok(()) => written.push(file.path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && file.path.starts_with('.') => {}
            Err(e) => {
                remove(dir, &written, &path);
                if is_new {
                    ignore(fs::remove_dir(dir));
                }
                return Err(e).at("create", &path);
            }
        }
    }
    Ok(written)
}

/// Removes files and the directories that held nothing else, up to `dir`.
fn remove(dir: &Path, written: &[String], failed: &Path) {
    let mut parents: Vec<PathBuf> = vec![failed.parent().unwrap_or(dir).to_owned()];
    for file in written {
        let path = dir.join(file);
        ignore(files::remove(&path));
        parents.push(path.parent().unwrap_or(dir).to_owned());
    }
    order::sort(&mut parents);
    for parent in parents.into_iter().rev().filter(|parent| parent != dir) {
        ignore(fs::remove_dir(parent));
    }
}

fn create(path: &Path, file: &NewFile) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = OpenOptions::new();
    options.mode(if file.is_program { 0o777 } else { 0o666 });
    let mut created = options.write(true).create_new(true).open(path)?;
    let written = created.write_all(file.text.as_bytes());
    if written.is_err() {
        ignore(fs::remove_file(path));
    }
    written
}
