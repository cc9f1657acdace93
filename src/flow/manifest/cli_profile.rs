//! `cli_profiles.yaml`: inputs of the flow from the lines that a person types.
//!
//! Unaware of terminals.

use super::command::{NodeCommand, read_needed_command};
use super::fields::{FromKey, fields};
use super::items::read_items;
use super::node::NodeSettings;
use super::problem::Manifest;
use crate::config::keys::Key;
use crate::config::section::Section;
use crate::flow::graph::Role;
use crate::text::names::named_enum;

named_enum! {
    /// The form of a line.
    #[derive(Default)]
    pub(crate) enum LineMode {
        /// A string.
        #[default]
        Raw = "raw",
        /// A JSON value.
        Json = "json",
    }
}

fields! {
    /// A profile.
    #[derive(Clone, Default)]
    struct CliProfile {
        mode: LineMode,
        /// The node at which tasks begin; none: the flow's default.
        start: Option<String>,
        commands: Vec<ProfileCommand>,
    }
    beside {
        id: String,
    }
    for people { "description" }
    by hand { "id" }
}

/// A command of a profile.
#[derive(Clone, Debug)]
pub(crate) struct ProfileCommand {
    /// Without the slash.
    pub name: String,
    pub command: NodeCommand,
}

/// The commands that every profile has.
pub(crate) const COMMANDS: [&str; 6] = ["attach", "edit", "profile", "history", "show", "quit"];

/// Reads the file.
pub(super) fn read_profiles(manifest: &mut Manifest, nodes: &[NodeSettings]) -> Vec<CliProfile> {
    let is_start = |node: &&NodeSettings| node.role == Some(Role::Start);
    let starts: Vec<&str> = nodes.iter().filter(is_start).map(|it| &*it.id).collect();
    read_items(manifest, "profiles", "profile", |id, node| {
        let read = CliProfile::read_keys(node);
        if let Some(start) = read.start.as_deref().filter(|it| !starts.contains(it)) {
            let starts = starts.join(", ");
            let message =
                format!("start: {start} is not a start node; the start nodes are {starts}");
            node.error("start", message);
        }
        CliProfile { id, ..read }
    })
}

impl FromKey for Vec<ProfileCommand> {
    fn from_key(node: &Section, key: &Key) -> Self {
        let mut all = Self::new();
        for section in node.mappings(key.name) {
            all.extend(read_profile_command(&section, &all));
        }
        all
    }
}

fn read_profile_command(node: &Section, before: &[ProfileCommand]) -> Option<ProfileCommand> {
    node.warn_of_unknown_keys(&["name", "description", "command", "exec", "shell"]);
    node.read_text("description");
    let name = node.read_text("name").unwrap_or_default();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(is_word) {
        let message = format!("name: {name:?}: letters, digits, '_' and '-' make a name");
        return node.refuse("name", message);
    }
    if COMMANDS.contains(&name) || before.iter().any(|other| other.name == name) {
        let message = format!("name: there is a command /{name} already");
        return node.refuse("name", message);
    }
    Some(ProfileCommand {
        name: name.to_owned(),
        command: read_needed_command(node, &format!("/{name} ")),
    })
}
