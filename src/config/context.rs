//! `context.yaml`: what the model sees.

use super::agent::{Context, Problem, Severity, Source, word};
use super::document::{Document, error_in};
use crate::config::section::{Complaints, Node};
use crate::config::tool::definition::{Piece, Word};
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::Path;
use std::time::Duration;

/// A generator's time limit, unless it says otherwise.
const GENERATOR_TIMEOUT_MS: u64 = 30_000;

/// What to put into a context.yaml that does not exist yet.
pub(crate) fn default_text(prompt: &str) -> String {
    format!(
        "sources:\n  - type: file\n    id: system_prompt\n    path: '${{AGENT_HOME}}/{prompt}'\n  \
         - type: file\n    id: workspace_guide\n    path: '${{CWD}}/DELTA.md'\n    on_missing: skip\n  \
         - type: journal\n    id: conversation\n"
    )
}

/// Reads `context.yaml`.
pub(crate) fn load(
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
    let mut journals = 0;
    for (index, item) in listed.into_iter().flatten().enumerate() {
        let at = vec![Step::Key("sources".to_owned()), Step::Item(index)];
        match item.as_object() {
            Some(map) => {
                journals += usize::from(map.get("type").is_some_and(|kind| kind == "journal"));
                if journals == 2 {
                    let message = "journal: there are two of it among the sources; remove one";
                    out.error(at.clone(), message);
                }
                sources.extend(source(map, at, (home, prompt), &mut out));
            }
            None => out.error(
                at,
                format!(
                    "sources: expected a mapping, found {}",
                    crate::config::section::found(item)
                ),
            ),
        }
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
    (home, prompt): (&Path, &str),
    out: &mut Complaints,
) -> Option<Source> {
    let node = Node::new(map, at.clone()).within("source");
    let kinds = [("file", 0), ("computed_file", 1), ("journal", 2)];
    let kind = node.choice("type", &kinds, out);
    if !map.contains_key("type") {
        let message = "source: type: missing; it is one of file, computed_file, journal";
        out.error(at.clone(), message);
    }
    let name = kind.map_or("source", |kind| kinds[kind].0);
    let node = Node::new(map, at).within(name);
    let id = node.text("id", out).map(str::to_owned);
    let missing = [("error", false), ("skip", true)];
    match kind? {
        0 => {
            node.unknown_keys(&["type", "id", "path", "on_missing"], out);
            let path = required_path(&node, "path", out)?;
            let optional = node.choice("on_missing", &missing, out).unwrap_or(false);
            if !optional {
                must_exist(&path, (home, prompt), &node, out);
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
                let message = "computed_file: generator is missing; it is {command: […]}";
                out.error(node.at("generator"), message);
            }
            let generator = Node::new(node.mapping("generator", out)?, node.at("generator"))
                .within("generator");
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
                let message = "journal: max_iterations: expected at least 1, found 0";
                out.error(node.at("max_iterations"), message);
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
            let message = format!("{}: it is empty; name a program", node.name("command"));
            out.error(node.at("command"), message);
            None
        }
        None => {
            if !node.map.contains_key("command") {
                let message = format!(
                    "{}: missing; it is a list: the program and its arguments",
                    node.name("command")
                );
                out.error(node.at("command"), message);
            }
            None
        }
    }
}

/// A number that is not 0.
pub(super) fn at_least_one(node: &Node<'_>, key: &str, default: u64, out: &mut Complaints) -> u64 {
    let count = node.count(key, out);
    if count == Some(0) {
        let message = format!("{}: expected at least 1, found 0", node.name(key));
        out.error(node.at(key), message);
    }
    count.unwrap_or(default)
}

fn required_path(node: &Node<'_>, key: &str, out: &mut Complaints) -> Option<Word> {
    if !node.map.contains_key(key) {
        let message = format!("{}: missing; name the file", node.name(key));
        out.error(node.at(key), message);
    }
    let text = node.text(key, out)?;
    if text.is_empty() {
        let message = format!("{}: it is empty; name the file", node.name(key));
        out.error(node.at(key), message);
        return None;
    }
    Some(word(text))
}

/// A file below the agent's directory can be looked for before there is a workspace.
///
/// That the system prompt is missing has been told where it is named.
fn must_exist(path: &Word, (home, prompt): (&Path, &str), node: &Node<'_>, out: &mut Complaints) {
    if let [Piece::Home, Piece::Text(rest)] = path.0.as_slice()
        && let shown = rest.trim_start_matches('/')
        && shown != prompt
        && !home.join(shown).exists()
    {
        let message = format!(
            "{}: {shown} is not there; create it, or say on_missing: skip",
            node.name("path")
        );
        out.error(node.at("path"), message);
    }
}

fn file_name(path: &Word) -> String {
    let text = path.written(|_| "");
    text.rsplit('/').next().unwrap_or(&text).to_owned()
}
