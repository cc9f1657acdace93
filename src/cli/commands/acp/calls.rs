//! Calls of tools, as editors show them.

use crate::config::tool::definition::KINDS;
use crate::error::At;
use crate::record::history::History;
use crate::unix::files;
use serde_json::{Value, json};
use std::path::{Component, Path, PathBuf};

/// A longer file is not shown beside what replaces it.
const DIFF_BYTES: u64 = 1 << 20;

/// A call that has not ended.
#[derive(Debug, Default)]
pub(super) struct ShownCall {
    pub tool: String,
    pub arguments: Value,
    /// The client has it.
    pub is_announced: bool,
    /// Changes that it makes, as content.
    pub diff: Option<Value>,
}

/// The tools of an agent, as its last start says.
pub(super) struct Tools<'h>(pub &'h History);

impl Tools<'_> {
    pub(super) fn kind(&self, tool: &str) -> &str {
        self.0
            .tool(tool)
            .and_then(|tool| tool.kind.as_deref())
            .filter(|it| KINDS.contains(it))
            .unwrap_or("other")
    }

    /// The file that a call is about.
    pub(super) fn path(&self, call: &ShownCall, cwd: &Path) -> Option<PathBuf> {
        let parameter = self.0.tool(&call.tool)?.path.as_ref()?;
        let path = call.arguments.get(parameter)?.as_str()?;
        Some(
            cwd.join(path)
                .components()
                .filter(|part| *part != Component::CurDir)
                .collect(),
        )
    }

    /// The change that a call makes to its file. The file as it was is read now, if it is in the workspace and `is_live`.
    pub(super) fn diff(&self, call: &ShownCall, cwd: &Path, is_live: bool) -> Option<Value> {
        let path = self
            .path(call, cwd)
            .filter(|_| self.kind(&call.tool) == "edit")?;
        let text = |name: &str| call.arguments.get(name).and_then(Value::as_str);
        let (old, new) = match (text("old"), text("new"), text("content")) {
            (Some(old), Some(new), _) => (Some(old.to_owned()), new),
            (_, _, Some(new)) if is_live => {
                let below = path.strip_prefix(cwd).ok()?;
                let old = files::read_below(cwd, below, DIFF_BYTES).if_there().ok()?;
                (old.map(String::from_utf8).transpose().ok()?, new)
            }
            _ => return None,
        };
        Some(json!({"type": "diff", "path": path, "oldText": old, "newText": new}))
    }
}
