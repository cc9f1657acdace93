//! Calls of tools, as editors show them.

use crate::config::tool::definition::KINDS;
use crate::record::event::Line;
use crate::unix::files;
use crate::view::asked::KnownTools;
use serde_json::{Value, json};
use std::collections::HashMap;
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
    /// What it changes, as content.
    pub diff: Option<Value>,
}

/// What the agent says of its tools.
#[derive(Debug, Default)]
pub(super) struct Tools {
    known: KnownTools,
    /// The kind and the parameter with the path.
    shown: HashMap<String, (Option<String>, Option<String>)>,
}

impl Tools {
    /// Those of the start that a line records.
    pub(super) fn of_start(line: &Line<'_>) -> Self {
        let config = line
            .config
            .and_then(|it| serde_json::from_str(it.get()).ok());
        let config: Value = config.unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let tools = config["tools"].as_array().into_iter().flatten();
        let shown = tools.filter_map(|tool| {
            let shown = (text(&tool["kind"]), text(&tool["path"]));
            Some((text(&tool["name"])?, shown))
        });
        Self {
            known: KnownTools::of_start(line),
            shown: shown.collect(),
        }
    }

    pub(super) fn kind(&self, tool: &str) -> &str {
        let kind = self.shown.get(tool).and_then(|(kind, _)| kind.as_deref());
        kind.filter(|it| KINDS.contains(it)).unwrap_or("other")
    }

    /// The file that a call is about.
    pub(super) fn path(&self, call: &ShownCall, cwd: &Path) -> Option<PathBuf> {
        let (_, parameter) = self.shown.get(&call.tool)?;
        let path = call.arguments.get(parameter.as_ref()?)?.as_str()?;
        let plain = cwd.join(path);
        let parts = plain.components().filter(|part| *part != Component::CurDir);
        Some(parts.collect())
    }

    /// What a call asks for.
    pub(super) fn title(&self, line: &Line<'_>) -> String {
        self.known.shown(line)
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
                let old = match files::read_below(cwd, below, DIFF_BYTES) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    old => Some(String::from_utf8(old.ok()?).ok()?),
                };
                (old, new)
            }
            _ => return None,
        };
        Some(json!({"type": "diff", "path": path, "oldText": old, "newText": new}))
    }
}
