//! Outputs that are known: what a command with these inputs printed before, in this workspace.
//!
//! Unaware of runs. An entry is a file named by the SHA-256 of all that the output may depend on.

use super::made_files::MadeFile;
use crate::error::{At, Result};
use crate::flow::graph::Payload;
use crate::flow::manifest::problem::sha256;
use crate::flow::manifest::{FilePattern, PayloadForm};
use crate::record::workspace::Workspace;
use crate::text::digest::sha256_of;
use crate::text::json;
use crate::unix::files;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Everything that an output may depend on.
pub(crate) struct CacheKey<'k> {
    /// The command as it is run.
    pub argv: &'k [String],
    pub input: &'k str,
    /// And what context.
    pub context: &'k str,
    /// How its input is given, and how its output is read.
    pub forms: [&'k str; 2],
    /// For the input and the output.
    pub schemas: Vec<String>,
    /// Files that it reads or executes.
    pub files: Vec<PathBuf>,
    /// The files that it makes.
    pub outputs: &'k [FilePattern],
}

impl CacheKey<'_> {
    /// The entry's name.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn name(&self) -> Result<String> {
        let mut text = String::new();
        let mut part = |kind: &str, bytes: &[u8]| {
            text.push_str(&format!("{kind} {}\n", sha256(bytes)));
        };
        for word in self.argv {
            part("word", word.as_bytes());
        }
        part("input", self.input.as_bytes());
        part("context", self.context.as_bytes());
        let [input, output] = self.forms;
        if input != PayloadForm::default().name() {
            part("input form", input.as_bytes());
        }
        part("form", output.as_bytes());
        for schema in &self.schemas {
            part("schema", schema.as_bytes());
        }
        for path in &self.files {
            part("path", path.as_os_str().as_encoded_bytes());
            part("file", &files::read_regular(path).at("read", path)?);
        }
        for pattern in self.outputs {
            let kind = if pattern.required {
                "required"
            } else {
                "outputs"
            };
            part(kind, pattern.text.as_bytes());
        }
        Ok(sha256(text.as_bytes()))
    }
}

fn entry_path(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.control.join(DIR).join(name)
}

/// Beside the runs; its name can be none of theirs.
const DIR: &str = "cache";

/// The output of an entry, if there is one.
pub(crate) fn read_entry(workspace: &Workspace, name: &str) -> Option<Payload> {
    let text = fs::read_to_string(entry_path(workspace, name)).ok()?;
    crate::flow::record::attempt::one_value(text).ok()
}

/// Keeps an output. Any number of runs may do so at once.
pub(crate) fn write_entry(workspace: &Workspace, name: &str, output: &str) -> Result<()> {
    files::replace_below(
        &workspace.control,
        &Path::new(DIR).join(name),
        output.as_bytes(),
    )
}

/// An output with the files that belong to it: the entry of a node with `outputs`.
#[derive(Deserialize)]
struct EntryWithFiles {
    output: Box<RawValue>,
    files: Vec<MadeFile>,
    /// Permissions, file by file.
    modes: Vec<u32>,
}

/// The places between which files that belong to an output are copied.
pub(crate) struct CachedFiles<'c> {
    pub workspace: &'c Workspace,
    /// The step's directory.
    pub dir: &'c Path,
    pub is_stopped: &'c dyn Fn() -> bool,
}

impl CachedFiles<'_> {
    /// The output and the files of an entry, if it has nothing but files that the patterns fit, and all of them are in
    /// the step's directory as they were recorded, or could be put there.
    pub(crate) fn read_entry(
        &self,
        name: &str,
        patterns: &[FilePattern],
    ) -> Option<(Payload, Vec<MadeFile>)> {
        let text = fs::read_to_string(entry_path(self.workspace, name)).ok()?;
        let entry: EntryWithFiles = serde_json::from_str(&text).ok()?;
        for (file, mode) in entry.files.iter().zip(&entry.modes) {
            let (path, kept) = (Path::new(&file.path), copy_path(file)?);
            let is_known = patterns.iter().any(|pattern| pattern.fits(&file.path));
            let has_mode = |it: &File| {
                let own = it.metadata()?.mode() & 0o777;
                if own == mode & 0o777 {
                    return Ok(());
                }
                it.set_permissions(Permissions::from_mode(mode & 0o777))
            };
            let there = files::open_below(self.dir, path);
            let is_there = |it: File| {
                self.copy(&it, &mut io::sink(), file)
                    .and_then(|()| has_mode(&it))
            };
            if is_known && there.is_ok_and(|it| is_there(it).is_ok()) {
                continue;
            }
            let kept = files::open_below(&self.workspace.control, &kept).ok()?;
            let parent = path.parent().filter(|_| is_known)?;
            files::make_usual_dirs_below(self.dir, parent).ok()?;
            let put = files::write_below(self.dir, path, |mut to| {
                self.copy(&kept, &mut to, file)?;
                to.set_permissions(Permissions::from_mode(mode & 0o777))
            });
            put.ok()?;
        }
        Some((entry.output.get().into(), entry.files))
    }

    /// Keeps an output with its files, unless one has changed meanwhile.
    pub(crate) fn write_entry(&self, name: &str, output: &str, made: &[MadeFile]) -> Result<()> {
        let mut modes = Vec::with_capacity(made.len());
        for file in made {
            let path = Path::new(&file.path);
            let from = files::open_below(self.dir, path).at("read", path)?;
            modes.push(from.metadata().at("read", path)?.mode());
            if let Some(kept) = copy_path(file) {
                let copy = |mut to: &File| self.copy(&from, &mut to, file);
                files::write_below(&self.workspace.control, &kept, copy)?;
            }
        }
        let mut entry = Vec::new();
        json::Object::begin(&mut entry)
            .raw("output", output.as_bytes())
            .put("files", made)
            .put("modes", &modes)
            .end();
        write_entry(self.workspace, name, &String::from_utf8_lossy(&entry))
    }

    /// Copies a file if it is the recorded one.
    fn copy(&self, mut from: &File, to: &mut impl io::Write, file: &MadeFile) -> io::Result<()> {
        match sha256_of(&mut from, to, self.is_stopped)? {
            Some((_, sha256)) if sha256 == file.sha256 => Ok(()),
            _ => Err(io::Error::other("it has changed")),
        }
    }
}

/// Where the content of a file is kept, below the directory of records; none if the digest is none.
fn copy_path(file: &MadeFile) -> Option<PathBuf> {
    let is_digest = file.sha256.bytes().all(|it| it.is_ascii_hexdigit());
    is_digest.then(|| Path::new(DIR).join("files").join(&file.sha256))
}
