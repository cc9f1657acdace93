//! `cli_profiles.yaml`: how lines that a person types become inputs of the flow.
//!
//! Unaware of terminals.

use super::command::{NodeCommand, read_needed_command};
use super::items::{begin_item, read_items, read_mappings};
use super::problem::Manifest;
use crate::config::section::{Diagnostics, Section};
use crate::text::names::named_enum;
use crate::text::yaml::Step;
use serde_json::{Map, Value};

named_enum! {
    /// What a line is.
    #[derive(Default)]
    pub(crate) enum LineMode {
        /// A string.
        #[default]
        Raw = "raw",
        /// A JSON value.
        Json = "json",
    }
}

/// A profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CliProfile {
    pub id: String,
    pub mode: LineMode,
    /// Where tasks begin; none: at the flow's default.
    pub start: Option<String>,
    pub commands: Vec<ProfileCommand>,
}

/// A command of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileCommand {
    /// Without the slash.
    pub name: String,
    pub command: NodeCommand,
}

/// The commands that every profile has.
pub(crate) const COMMANDS: [&str; 6] = ["attach", "edit", "profile", "history", "show", "quit"];

/// Reads the file. `starts` are the nodes at which tasks can begin.
pub(super) fn read_profiles(manifest: &mut Manifest, starts: &[&str]) -> Vec<CliProfile> {
    let mut all: Vec<CliProfile> = Vec::new();
    for (map, at) in read_items(manifest, "profiles") {
        let node = Section::new(&map, at);
        let known = all.iter().map(|other| &*other.id);
        let Some((id, mut out)) = begin_item(manifest, "profile", &node, known) else {
            continue;
        };
        node.warn_of_unknown_keys(
            &["id", "description", "mode", "start", "commands"],
            &mut out,
        );
        node.read_text("description", &mut out);
        let mode = node.read_choice("mode", &LineMode::ALL, &mut out);
        let start = node.read_text("start", &mut out).map(str::to_owned);
        if let Some(start) = start.as_ref().filter(|start| !starts.contains(&&***start)) {
            let message = format!(
                "start: {start} is not a start node; the start nodes are {}",
                starts.join(", ")
            );
            out.error(node.path_to("start"), message);
        }
        let mut commands: Vec<ProfileCommand> = Vec::new();
        for (map, at) in read_mappings(&node, "commands", &mut out) {
            if let Some(command) = read_profile_command(map, at, &commands, &mut out) {
                commands.push(command);
            }
        }
        manifest.report(std::slice::from_ref(&id), out);
        all.push(CliProfile {
            id,
            mode: mode.unwrap_or_default(),
            start,
            commands,
        });
    }
    all
}

fn read_profile_command(
    map: &Map<String, Value>,
    at: Vec<Step>,
    before: &[ProfileCommand],
    out: &mut Diagnostics,
) -> Option<ProfileCommand> {
    let node = Section::new(map, at.clone());
    node.warn_of_unknown_keys(&["name", "description", "command", "exec", "shell"], out);
    node.read_text("description", out);
    let name = node.read_text("name", out).unwrap_or_default().to_owned();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(is_word) {
        let message = format!("name: {name:?}: letters, digits, '_' and '-' make a name");
        out.error(node.path_to("name"), message);
        return None;
    }
    if COMMANDS.contains(&&*name) || before.iter().any(|other| other.name == name) {
        let message = format!("name: there is a command /{name} already");
        out.error(node.path_to("name"), message);
        return None;
    }
    let command = read_needed_command(map, &at, &format!("/{name} "), out);
    Some(ProfileCommand {
        name,
        command: command?,
    })
}
