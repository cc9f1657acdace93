//! `context.yaml`: what the model sees.

use super::document::{Document, error_in};
use super::{Context, Problem, Severity, Source, word};
use crate::node::{Complaints, Node};
use crate::tool::{Piece, Word};
use crate::yaml::Step;
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;

/// A generator's time limit, unless it says otherwise.
const GENERATOR_TIMEOUT_MS: u64 = 30_000;

/// What to put into a context.yaml that does not exist yet.
#[must_use]
pub fn default_text(prompt: &str) -> String {
    format!(
        "sources:\n  - type: file\n    id: system_prompt\n    path: '${{AGENT_HOME}}/{prompt}'\n  \
         - type: file\n    id: workspace_guide\n    path: '${{CWD}}/DELTA.md'\n    on_missing: skip\n  \
         - type: journal\n    id: conversation\n"
    )
}

/// Reads `context.yaml`.
pub fn load(
    home: &Path,
    shown: String,
    prompt: &str,
    problems: &mut Vec<Problem>,
) -> Option<Context> {
    let path = home.join("context.yaml");
    if !path.exists() {
        let message = format!(
            "it is not there, and there is no default for what the model sees; \
             to begin with, create it with this text:\n\n{}",
            default_text(prompt)
        );
        problems.push(error_in(&shown, message));
        return None;
    }
    let document = Document::read(&path, shown, problems)?;
    let node = Node::new(&document.root, vec![]);
    let mut out = Complaints::about("");
    node.unknown_keys(&["sources", "system_messages"], &mut out);
    let modes = [("merged", false), ("separate", true)];
    let separate = node
        .choice("system_messages", &modes, &mut out)
        .unwrap_or(false);
    let listed = node.list("sources", &mut out);
    if listed.is_none() && !out.fatal() {
        out.error(vec![], "sources: missing; it lists what the model sees");
    }
    let mut sources = Vec::new();
    for (index, item) in listed.into_iter().flatten().enumerate() {
        let at = vec![Step::Key("sources".to_owned()), Step::Item(index)];
        match item.as_object() {
            Some(map) => sources.extend(source(map, at, home, &mut out)),
            None => out.error(
                at,
                format!(
                    "sources: expected a mapping, found {}",
                    crate::node::found(item)
                ),
            ),
        }
    }
    let journals = sources
        .iter()
        .filter(|s| matches!(s, Source::Journal { .. }))
        .count();
    if journals > 1 {
        out.error(node.at("sources"), "sources: more than one journal");
    }
    let fatal = out.fatal();
    document.report(&[], out.into_list(), problems);
    if !fatal && journals == 0 {
        problems.push(document.problem(
            Severity::Warning,
            &node.at("sources"),
            "sources: no journal among them; the model will not see its task",
        ));
    }
    (!fatal).then_some(Context { sources, separate })
}

fn source(
    map: &Map<String, Value>,
    at: Vec<Step>,
    home: &Path,
    out: &mut Complaints,
) -> Option<Source> {
    let node = Node::new(map, at.clone());
    let kinds = [("file", 0), ("computed_file", 1), ("journal", 2)];
    let kind = node.choice("type", &kinds, out);
    if !map.contains_key("type") {
        out.error(
            at,
            "source: type is missing; it is one of file, computed_file, journal",
        );
    }
    let id = node.text("id", out).map(str::to_owned);
    let missing = [("error", false), ("skip", true)];
    match kind? {
        0 => {
            node.unknown_keys(&["type", "id", "path", "on_missing"], out);
            let path = required_path(&node, "path", out)?;
            let optional = node.choice("on_missing", &missing, out).unwrap_or(false);
            if !optional {
                must_exist(&path, home, &node, out);
            }
            Some(Source::File {
                id: id.unwrap_or_else(|| file_name(&path)),
                path,
                optional,
            })
        }
        1 => {
            let keys = [
                "type",
                "id",
                "generator",
                "output_path",
                "on_missing",
                "refresh",
            ];
            node.unknown_keys(&keys, out);
            let output = required_path(&node, "output_path", out);
            let optional = node.choice("on_missing", &missing, out).unwrap_or(false);
            let once = node.choice("refresh", &[("every", false), ("once", true)], out);
            if !map.contains_key("generator") {
                out.error(node.at("generator"), "computed_file: generator is missing");
            }
            let generator = Node::new(node.mapping("generator", out)?, node.at("generator"));
            generator.unknown_keys(&["command", "timeout_ms"], out);
            let command = command(&generator, out)?;
            let timeout = at_least_one(&generator, "timeout_ms", GENERATOR_TIMEOUT_MS, out);
            let output = output?;
            Some(Source::Computed {
                id: id.unwrap_or_else(|| file_name(&output)),
                command,
                timeout: Duration::from_millis(timeout),
                output,
                optional,
                once: once.unwrap_or(false),
            })
        }
        _ => {
            node.unknown_keys(&["type", "id", "max_iterations"], out);
            let max = node.count("max_iterations", out);
            if max == Some(0) {
                out.error(
                    node.at("max_iterations"),
                    "max_iterations: expected at least 1",
                );
            }
            Some(Source::Journal {
                max_iterations: max.map(|max| max as usize),
            })
        }
    }
}

/// A program's argv with the engine's variables in it.
pub(super) fn command(node: &Node<'_>, out: &mut Complaints) -> Option<Vec<Word>> {
    let words = node.texts("command", out);
    match words {
        Some(words) if !words.is_empty() => Some(words.into_iter().map(word).collect()),
        Some(_) => {
            out.error(node.at("command"), "command: it is empty");
            None
        }
        None => {
            if !node.map.contains_key("command") {
                out.error(
                    node.at("command"),
                    "command: missing; it is a list: the program and its arguments",
                );
            }
            None
        }
    }
}

/// A number that is not 0.
pub(super) fn at_least_one(node: &Node<'_>, key: &str, default: u64, out: &mut Complaints) -> u64 {
    let count = node.count(key, out);
    if count == Some(0) {
        out.error(node.at(key), format!("{key}: expected at least 1, found 0"));
    }
    count.unwrap_or(default)
}

fn required_path(node: &Node<'_>, key: &str, out: &mut Complaints) -> Option<Word> {
    if !node.map.contains_key(key) {
        out.error(node.at(key), format!("source: {key} is missing"));
    }
    let text = node.text(key, out)?;
    if text.is_empty() {
        out.error(node.at(key), format!("{key}: it is empty"));
        return None;
    }
    Some(word(text))
}

/// A file below the agent's directory can be looked for before there is a workspace.
fn must_exist(path: &Word, home: &Path, node: &Node<'_>, out: &mut Complaints) {
    if let [Piece::Home, Piece::Text(rest)] = path.0.as_slice()
        && !home.join(rest.trim_start_matches('/')).exists()
    {
        let shown = rest.trim_start_matches('/');
        out.error(
            node.at("path"),
            format!("source: {shown} is not there; create it, or say on_missing: skip"),
        );
    }
}

fn file_name(path: &Word) -> String {
    let text = path.written(|_| "");
    text.rsplit('/').next().unwrap_or(&text).to_owned()
}
