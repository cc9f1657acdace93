//! Outputs that are known: what a command with these inputs printed before, in this workspace.
//!
//! Unaware of runs. An entry is a file named by the SHA-256 of all that the output may depend on.

use crate::error::{At, Result};
use crate::flow::graph::Payload;
use crate::flow::manifest::PayloadForm;
use crate::flow::manifest::problem::sha256;
use crate::record::workspace::Workspace;
use crate::unix::files;
use std::fs;
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
    /// Files that it reads.
    pub files: Vec<PathBuf>,
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
