//! `defaults:` of `workflow.yaml`: what nodes are that do not say.
//!
//! Unaware of nodes.

use crate::config::section::{Diagnostics, Section};
use serde_json::Value;
use std::time::Duration;

/// `defaults:` of a workflow, for nodes that do not say.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    pub context: Option<String>,
    /// None: not given. None inside: no limit.
    pub timeout: Option<Option<Duration>>,
}

/// Reads `defaults:` of the top of a workflow.
pub(super) fn read_defaults(top: &Section, out: &mut Diagnostics) -> Defaults {
    if top.map.get("defaults").is_none_or(Value::is_null) {
        return Defaults::default();
    }
    let Some(node) = top.read_section("defaults", out) else {
        return Defaults::default();
    };
    node.warn_of_unknown_keys(&["context", "timeout_ms"], out);
    Defaults {
        context: node.read_text("context", out).map(str::to_owned),
        timeout: node.read_count("timeout_ms", out).map(timeout_of),
    }
}

/// A limit in milliseconds; 0 means no limit.
pub(super) fn timeout_of(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}
