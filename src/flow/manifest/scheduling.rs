//! `scheduling:` of `workflow.yaml`: how much of a flow may run at once, and through which program.
//!
//! Unaware of the command line, which overrides it, and of running.

use super::command::{files_of, parse_word};
use super::credential::fill_home;
use super::items::{key_path, read_limit};
use super::node::NodeDraft;
use super::problem::{Code, Manifest};
use super::providers::Provider;
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Defaults for what the command line can say, and what only files can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// The number of programs at once.
    pub jobs: Option<usize>,
    /// Words that are put before every program.
    pub launch: Option<Vec<String>>,
    /// The number of root tasks at once.
    pub queue: Option<usize>,
}

/// The same as it was written.
#[derive(Debug, Default)]
pub(super) struct SchedulingDraft {
    pub scheduling: Scheduling,
    /// Files below the flow's directory that `launch` names.
    pub files: Vec<PathBuf>,
    /// A node or a provider, and how much of it may run at once.
    limits: Vec<(String, usize)>,
    /// The place of the limits.
    at: Vec<Step>,
}

/// Reads the mapping.
pub(super) fn read_scheduling(
    node: &Section,
    home: &Path,
    out: &mut Diagnostics,
) -> SchedulingDraft {
    node.warn_of_unknown_keys(&["jobs", "launch", "limits", "queue"], out);
    let words = read_launch(node, out);
    let parsed: Vec<_> = words
        .iter()
        .flatten()
        .map(|word| parse_word(word))
        .collect();
    let fill = |words: Vec<String>| words.iter().map(|word| fill_home(word, home)).collect();
    SchedulingDraft {
        scheduling: Scheduling {
            jobs: read_limit(node, "jobs", out),
            launch: words.map(fill),
            queue: read_limit(node, "queue", out),
        },
        files: files_of(&parsed, home),
        limits: read_limits(node, out),
        at: node.path_to("limits"),
    }
}

/// Reads `scheduler.yaml`, where these keys stood at the top. None if there is no such file, or if the workflow
/// has keys of its own.
pub(super) fn read_scheduler_file(
    manifest: &mut Manifest,
    home: &Path,
    has_own: bool,
) -> Option<SchedulingDraft> {
    if !manifest.exists() {
        return None;
    }
    let root = std::mem::take(&mut manifest.root);
    let mut out = Diagnostics::about("");
    let message = match has_own {
        true => "deprecated, and not read: workflow.yaml has scheduling:; remove this file",
        false => "deprecated; move its keys below scheduling: in workflow.yaml",
    };
    out.warn(Vec::new(), message);
    let node = Section::new(&root, Vec::new());
    let draft = (!has_own).then(|| read_scheduling(&node, home, &mut out));
    manifest.report(&[], out);
    draft
}

/// A command as one text, which is split as by a shell, or as its words.
fn read_launch(node: &Section, out: &mut Diagnostics) -> Option<Vec<String>> {
    let words = match node.map.get("launch")? {
        Value::Null => return None,
        Value::String(text) => shlex::split(text),
        Value::Array(_) => {
            let words = node.read_texts("launch", out)?;
            Some(words.into_iter().map(str::to_owned).collect())
        }
        other => {
            let found = describe_value(other);
            let message = format!("{}: expected a command, found {found}", node.name("launch"));
            out.error(node.path_to("launch"), message);
            return None;
        }
    };
    let words = words.filter(|words| words.first().is_some_and(|program| !program.is_empty()));
    if words.is_none() {
        let message = format!("{}: has no program", node.name("launch"));
        out.error(node.path_to("launch"), message);
    }
    words
}

fn read_limits(node: &Section, out: &mut Diagnostics) -> Vec<(String, usize)> {
    if node.map.get("limits").is_none_or(Value::is_null) {
        return Vec::new();
    }
    let Some(limits) = node.read_section("limits", out) else {
        return Vec::new();
    };
    let names = limits.map.keys();
    let limit = |name: &String| Some((name.clone(), read_limit(&limits, name, out)?));
    names.filter_map(limit).collect()
}

/// Gives the limits to nodes and providers that have none of their own.
pub(super) fn apply_limits(
    file: &mut Manifest,
    draft: &SchedulingDraft,
    nodes: &mut [NodeDraft],
    providers: &mut [Provider],
) {
    for (name, limit) in &draft.limits {
        let node = nodes.iter_mut().find(|node| node.id == *name);
        let provider = providers.iter_mut().find(|it| it.id == *name);
        let fault = match (node, provider) {
            (Some(node), None) => {
                node.settings.limit.get_or_insert(*limit);
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
                let known = nodes.iter().map(|node| &*node.id);
                let known = known.chain(providers.iter().map(|it| &*it.id));
                let known: Vec<&str> = known.take(1000).collect();
                match nearest(name, known.iter().copied()) {
                    Some(near) => {
                        format!("is neither a node nor a provider; did you mean \"{near}\"?")
                    }
                    None => "is neither a node nor a provider".to_owned(),
                }
            }
        };
        let at = key_path(&draft.at, name);
        let message = format!("scheduling: limits: \"{name}\" {fault}");
        file.add(Code::ManifestInvalid, vec![name.clone()], &at, message);
    }
}
