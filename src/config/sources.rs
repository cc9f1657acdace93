//! The files that an agent is made of.
//!
//! Unaware of what is in them.

use super::agent::Problem;
use super::document::error_in;
use std::path::{Path, PathBuf};

/// The files that make an agent.
#[derive(Debug, Default)]
pub(crate) struct AgentSources {
    /// The agent's directory, with symbolic links resolved.
    pub home: PathBuf,
    /// The directory as the person wrote it.
    pub dir: PathBuf,
    /// The name of the main file in it.
    pub main_file: String,
    /// The system prompt's path below it.
    pub prompt: String,
    /// The tools that the model is offered.
    pub tools: Vec<ToolSource>,
}

/// The place of a tool's definition.
#[derive(Debug)]
pub(crate) struct ToolSource {
    pub name: String,
    /// The file, absolute.
    pub file: PathBuf,
    /// The file's name in messages.
    pub shown: String,
    /// Which item of its `tools:`, from 0.
    pub index: usize,
}

impl AgentSources {
    /// The directory of an agent whose files have not been read.
    pub(super) fn open(dir: &Path, problems: &mut Vec<Problem>) -> Option<Self> {
        let found = match dir.canonicalize() {
            Ok(home) if !home.is_dir() => Err("no agent here: it is not a directory".to_owned()),
            Ok(home) if home.to_str().is_none() => Err("the agent's path is not UTF-8".to_owned()),
            Ok(home) => Ok(home),
            Err(e) => Err(format!("no agent here: {}", crate::error::reason(&e))),
        };
        let shown = dir.display().to_string();
        let home = found.map_err(|why| problems.push(error_in(&shown, why)));
        Some(Self {
            home: home.ok()?,
            dir: dir.to_owned(),
            ..Self::default()
        })
    }

    /// A file of the agent, as the person would name it.
    pub(crate) fn shown_path(&self, name: &str) -> String {
        if self.dir == Path::new(".") {
            name.to_owned()
        } else {
            self.dir.join(name).display().to_string()
        }
    }
}
