//! `plugins.yaml`: programs that are given the events of each run.
//!
//! Unaware of how they get them, and of runs.

use super::command::NodeCommand;
use super::fields::fields;
use super::glob::Glob;
use super::items::read_items;
use super::problem::Manifest;

fields! {
    /// An observer of runs.
    struct Plugin {
        command: NodeCommand,
        /// Patterns for the types of events; none: all events.
        events: Vec<Glob>,
    }
    beside {
        id: String,
    }
    for people { "description" }
    by hand { "id", "exec", "shell" }
}

/// Reads the file.
pub(super) fn read_plugins(manifest: &mut Manifest) -> Vec<Plugin> {
    read_items(manifest, "plugins", "plugin", |id, node| {
        let read = Plugin::read_keys(node);
        Plugin { id, ..read }
    })
}
