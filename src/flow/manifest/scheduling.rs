//! `scheduling:` of `workflow.yaml`: limits of what runs at once, and the program through which it runs.
//!
//! Unaware of the command line, which overrides it, and of running.

use super::NodeSettings;
use super::command::{files_of, fill_home, parse_word};
use super::fields::fields;
use super::items::key_path;
use super::problem::{Code, Manifest};
use super::providers::Provider;
use crate::config::section::Section;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::{Path, PathBuf};

fields! {
    /// Defaults for what the command line can say, and what only files can.
    #[derive(Default)]
    struct Scheduling {
        /// The number of programs at once.
        jobs: Option<usize>,
        /// The number of root tasks at once.
        queue: Option<usize>,
    }
    beside {
        /// Words that are put before every program.
        launch: Option<Vec<String>>,
        /// Files below the flow's directory that `launch` names.
        files: Vec<PathBuf>,
        /// A node or a provider, and how much of it may run at once.
        limits: Vec<(String, usize)>,
        /// The place of the limits.
        at: Vec<Step>,
    }
    by hand { "launch", "limits" }
}

/// Reads the mapping.
pub(super) fn read_scheduling(node: &Section, home: &Path) -> Scheduling {
    let read = Scheduling::read_keys(node);
    let words = read_launch(node);
    let parsed: Vec<_> = words
        .iter()
        .flatten()
        .map(|word| parse_word(word))
        .collect();
    let fill = |words: Vec<String>| words.iter().map(|word| fill_home(word, home)).collect();
    Scheduling {
        launch: words.map(fill),
        files: files_of(&parsed, home),
        limits: read_limits(node),
        at: node.path_to("limits"),
        ..read
    }
}

/// Reads `scheduler.yaml`, where these keys were at the top. None if there is no such file, or if the workflow
/// has keys of its own.
pub(super) fn read_scheduler_file(
    manifest: &mut Manifest,
    home: &Path,
    has_own: bool,
) -> Option<Scheduling> {
    if !manifest.exists() {
        return None;
    }
    let root = std::mem::take(&mut manifest.root);
    let message = if has_own {
        "deprecated, and not read: workflow.yaml has scheduling:; remove this file"
    } else {
        "deprecated; move its keys below scheduling: in workflow.yaml"
    };
    manifest.visit("", &[], &Section::new(&root, Vec::new()), |node| {
        node.warn("", message);
        (!has_own).then(|| read_scheduling(node, home))
    })
}

/// A command as one text, which is split as by a shell, or as its words.
fn read_launch(node: &Section) -> Option<Vec<String>> {
    let words = match node.value("launch")? {
        Value::String(text) => shlex::split(text),
        Value::Array(_) => Some(node.get::<Option<_>>("launch")?),
        _ => return node.refuse_value("launch", "a command"),
    };
    match words.filter(|words| words.first().is_some_and(|program| !program.is_empty())) {
        None => {
            let name = node.name("launch");
            node.refuse("launch", format!("{name}: has no program"))
        }
        words => words,
    }
}

fn read_limits(node: &Section) -> Vec<(String, usize)> {
    let mut limits = Vec::new();
    if node.value("limits").is_some()
        && let Some(section) = node.read_section("limits")
    {
        for name in section.map.keys() {
            let limit = section.limit(name);
            limits.extend(limit.map(|limit| (name.clone(), limit)));
        }
    }
    limits
}

/// Gives the limits to nodes and providers that have none of their own.
pub(super) fn apply_limits(
    file: &mut Manifest,
    scheduling: &Scheduling,
    nodes: &mut [NodeSettings],
    providers: &mut [Provider],
) {
    for (name, limit) in &scheduling.limits {
        let node = nodes.iter_mut().find(|node| node.id == *name);
        let provider = providers.iter_mut().find(|it| it.id == *name);
        let fault = match (node, provider) {
            (Some(node), None) => {
                node.limit.get_or_insert(*limit);
                continue;
            }
            (None, Some(provider)) => {
                provider.limit.get_or_insert(*limit);
                continue;
            }
            (Some(_), Some(_)) => {
                "is a node and a provider; write limit: where the one that is meant is defined"
                    .to_owned()
            }
            (None, None) => {
                let ids = nodes.iter().map(|node| &*node.id);
                let known = ids.chain(providers.iter().map(|it| &*it.id));
                match nearest(name, known.take(1000)) {
                    Some(near) => {
                        format!("is neither a node nor a provider; did you mean \"{near}\"?")
                    }
                    None => "is neither a node nor a provider".to_owned(),
                }
            }
        };
        let at = key_path(&scheduling.at, name);
        let message = format!("scheduling: limits: \"{name}\" {fault}");
        file.push(Some(Code::ManifestInvalid), &[name], &at, message);
    }
}
