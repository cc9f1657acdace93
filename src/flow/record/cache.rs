//! Outputs that are known: what a command with these inputs printed before, in this workspace.
//!
//! Unaware of runs. An entry is a file named by the SHA-256 of all that the output may depend on.

use super::attempt::one_value;
use super::made_files::MadeFile;
use crate::error::{At, Result};
use crate::flow::graph::{NodeIx, Payload};
use crate::flow::manifest::command::NodeCommand;
use crate::flow::manifest::{FilePattern, Flow, PayloadForm, fill, sha256};
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

/// The name of a step's output: everything that it may depend on. The command is run in `dir`.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn cache_key(
    flow: &Flow,
    node: NodeIx,
    command: &NodeCommand,
    input: &str,
    context: &str,
    dir: &Path,
) -> Result<String> {
    let settings = &flow.nodes[node];
    let mut text = String::new();
    let mut add = |kind: &str, bytes: &[u8]| {
        text.push_str(&format!("{kind} {}\n", sha256(bytes)));
    };
    for word in command.argv(&flow.home, dir) {
        add("word", word.as_bytes());
    }
    add("input", input.as_bytes());
    add("context", context.as_bytes());
    if settings.input != PayloadForm::default() {
        add("input form", settings.input.name().as_bytes());
    }
    add("form", settings.output.name().as_bytes());
    let schemas = [flow.schema_in(node), flow.schema_out(node)];
    for schema in schemas.into_iter().flatten() {
        add("schema", schema.schema.source.to_string().as_bytes());
    }
    let listed = fill(&settings.cache_files, &flow.home, dir).into_iter();
    let named = listed.map(|file| flow.home.join(file));
    let programs = command.programs(&flow.home, dir).into_iter();
    let is_input = |path: &PathBuf| {
        let below = path.strip_prefix(dir).ok().and_then(Path::to_str);
        !below.is_some_and(|it| settings.outputs.iter().any(|pattern| pattern.fits(it)))
    };
    for path in named.chain(programs.filter(is_input)) {
        add("path", path.as_os_str().as_encoded_bytes());
        add("file", &files::read_regular(&path).at("read", &path)?);
    }
    for pattern in &settings.outputs {
        let kind = if pattern.required {
            "required"
        } else {
            "outputs"
        };
        add(kind, pattern.text.as_bytes());
    }
    Ok(sha256(text.as_bytes()))
}

/// Beside the runs; its name can be none of theirs.
const DIR: &str = "cache";

/// The entry of a node with `outputs`; that of another one is its output alone.
#[derive(Deserialize)]
struct EntryWithFiles {
    output: Box<RawValue>,
    files: Vec<MadeFile>,
    /// Permissions, file by file.
    modes: Vec<u32>,
}

/// The place of entries, and that of the files that belong to them.
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
        let path = self.workspace.control.join(DIR).join(name);
        let text = fs::read_to_string(path).ok()?;
        if patterns.is_empty() {
            return Some((one_value(text).ok()?, Vec::new()));
        }
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

    /// Keeps an output with its files, unless one has changed meanwhile. Any number of runs may do so at once.
    pub(crate) fn write_entry(
        &self,
        name: &str,
        output: &str,
        patterns: &[FilePattern],
        made: &[MadeFile],
    ) -> Result<()> {
        let (control, path) = (&self.workspace.control, Path::new(DIR).join(name));
        if patterns.is_empty() {
            return files::replace_below(control, &path, output.as_bytes());
        }
        let mut modes = Vec::with_capacity(made.len());
        for file in made {
            let below = Path::new(&file.path);
            let from = files::open_below(self.dir, below).at("read", below)?;
            modes.push(from.metadata().at("read", below)?.mode());
            if let Some(kept) = copy_path(file) {
                let copy = |mut to: &File| self.copy(&from, &mut to, file);
                files::write_below(control, &kept, copy)?;
            }
        }
        let entry = json::object(|entry| {
            entry
                .raw("output", output.as_bytes())
                .put("files", made)
                .put("modes", &modes);
        });
        files::replace_below(control, &path, &entry)
    }

    /// Copies a file if it is the recorded one.
    fn copy(&self, mut from: &File, to: &mut impl io::Write, file: &MadeFile) -> io::Result<()> {
        match sha256_of(&mut from, to, self.is_stopped)? {
            Some((_, sha256)) if sha256 == file.sha256 => Ok(()),
            _ => Err(io::Error::other("it has changed")),
        }
    }
}

/// The place of a file's content, below the directory of records. None: the digest is malformed.
fn copy_path(file: &MadeFile) -> Option<PathBuf> {
    let is_digest = file.sha256.bytes().all(|it| it.is_ascii_hexdigit());
    is_digest.then(|| Path::new(DIR).join("files").join(&file.sha256))
}
