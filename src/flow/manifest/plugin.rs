//! `plugins.yaml`: programs that are given the events of each run.
//!
//! Unaware of how they get them, and of runs.

use super::command::{NodeCommand, read_needed_command};
use super::glob::Glob;
use super::items::{begin_item, read_items, read_texts};
use super::problem::Manifest;
use crate::config::section::Section;

/// An observer of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub id: String,
    pub command: NodeCommand,
    /// Patterns for the types of events; none: all events.
    pub events: Vec<Glob>,
}

/// Reads the file.
pub(super) fn read_plugins(manifest: &mut Manifest) -> Vec<Plugin> {
    let mut all: Vec<Plugin> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    for (map, at) in read_items(manifest, "plugins") {
        let node = Section::new(&map, at.clone());
        let known = ids.iter().map(String::as_str);
        let Some((id, mut out)) = begin_item(manifest, "plugin", &node, known) else {
            continue;
        };
        node.warn_of_unknown_keys(
            &["id", "description", "command", "exec", "shell", "events"],
            &mut out,
        );
        node.read_text("description", &mut out);
        let command = read_needed_command(&map, &at, "", &mut out);
        let mut events = Vec::new();
        for text in read_texts(&node, "events", &mut out).unwrap_or_default() {
            match Glob::parse(&text) {
                Ok(glob) => events.push(glob),
                Err(why) => {
                    let message = format!("events: the pattern {text:?} {why}");
                    out.error(node.path_to("events"), message);
                }
            }
        }
        manifest.report(std::slice::from_ref(&id), out);
        ids.push(id.clone());
        all.extend(command.map(|command| Plugin {
            id,
            command,
            events,
        }));
    }
    all
}
