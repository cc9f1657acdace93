//! The assertions of a case.

use crate::config::section::Section;
use crate::config::tool::definition::Piece;
use crate::error::reason;
use crate::flow::eval::assertion::{Assertion, AssertionKind};
use crate::flow::manifest::command::read_command;
use crate::text::schema::JsonSchema;
use crate::text::suggestion::nearest;
use crate::unix::files;
use serde_json::{Map, Value, json};
use std::path::{Component, Path};
use std::time::Duration;

const KEYS: [&str; 11] = [
    "type",
    "not",
    "path",
    "value",
    "value_in",
    "ignore_case",
    "message",
    "weight",
    "threshold",
    "timeout_ms",
    "verdict",
];

/// The types that compare texts: they know `ignore_case` and `value_in`.
const COMPARING: [&str; 3] = ["equals", "contains", "regex"];

const TYPES: [&str; 12] = [
    "equals",
    "contains",
    "regex",
    "is-json",
    "schema",
    "latency",
    "cost",
    "tokens",
    "status",
    "exit_node",
    "file",
    "exec",
];

/// The time limit of a program that grades, in milliseconds, if its assertion does not say.
const GRADING_TIME: u64 = 600_000;

/// Reads `assert`; none if there is no such key.
pub(super) fn read_assertions(home: &Path, node: &Section) -> Option<Vec<Assertion>> {
    node.value("assert")?;
    let mut all: Vec<Assertion> = Vec::new();
    for plain in node.mappings("assert") {
        all.extend(read_assertion(home, &plain.within("assert")));
    }
    let weights: f64 = all.iter().map(|it| it.weight).sum();
    if !all.is_empty() && weights <= 0.0 {
        let message = "assert: the weights sum to 0, so that there is no score";
        node.error("assert", message);
    }
    Some(all)
}

fn read_assertion(home: &Path, node: &Section) -> Option<Assertion> {
    node.warn_of_unknown_keys(&KEYS);
    let Some(given) = node.map.get("type") else {
        let message = format!("assert: has no type; it is one of {}", TYPES.join(", "));
        return node.refuse("type", message);
    };
    let kind = given.as_str().unwrap_or("");
    let check = read_check(home, kind, node);
    let (is_negated, ignore_case): (bool, bool) = (node.get("not"), node.get("ignore_case"));
    for key in ["ignore_case", "value_in"] {
        if node.has(key) && TYPES.contains(&kind) && !COMPARING.contains(&kind) {
            let known = COMPARING.join(", ");
            node.error(key, format!("assert: {key} is for the types {known}"));
        }
    }
    let path = if kind == "file" {
        None
    } else {
        read_pointer(node)
    };
    let weight: Option<f64> = node.get("weight");
    Some(Assertion {
        check: check?,
        is_negated,
        ignore_case,
        path,
        weight: weight.unwrap_or(1.0),
        message: node.get("message"),
        source: node.map.clone(),
    })
}

fn read_pointer(node: &Section) -> Option<String> {
    let path = node.read_text("path")?;
    if !path.is_empty() && !path.starts_with('/') {
        let message =
            format!("assert: path: {path:?} is not a JSON pointer; it begins with /, as in /name");
        node.error("path", message);
    }
    Some(path.to_owned())
}

fn read_check(home: &Path, kind: &str, node: &Section) -> Option<AssertionKind> {
    Some(match kind {
        "equals" => AssertionKind::Equals(values(node)?.to_vec()),
        "contains" => AssertionKind::Contains(values(node)?.to_vec()),
        "regex" => {
            let flags = if node.get("ignore_case") { "(?i)" } else { "" };
            let compiled = values(node)?.iter().map(|pattern| match pattern {
                Value::String(pattern) => {
                    compile(&json!({"pattern": format!("{flags}{pattern}")}), node)
                }
                _ => node.refuse_value("value", "a pattern"),
            });
            AssertionKind::Regex(compiled.collect::<Option<_>>()?)
        }
        "is-json" => AssertionKind::IsJson(match node.value("value") {
            None => None,
            Some(schema) => Some(compile(schema, node)?),
        }),
        "schema" => AssertionKind::Schema(read_schema(home, node)?),
        "latency" => AssertionKind::Latency(limit(node)?),
        "cost" => AssertionKind::Cost(limit(node)?),
        "tokens" => AssertionKind::Tokens(limit(node)?),
        "status" => match value(node)? {
            Value::String(name) if !["success", "failure", "partial"].contains(&name.as_str()) => {
                let message = format!(
                    "assert: value: {name:?} is not a status; it is success, failure, partial or an exit code"
                );
                return node.refuse("value", message);
            }
            wanted => AssertionKind::Status(wanted.clone()),
        },
        "exit_node" => AssertionKind::ExitNode(text(node)?.to_owned()),
        "file" => read_file(node)?,
        "exec" => read_exec(node)?,
        other => {
            let near = nearest(other, TYPES);
            let hint = near.map_or_else(
                || format!("it is one of {}", TYPES.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            let message = format!("assert: there is no type {other:?}; {hint}");
            return node.refuse("type", message);
        }
    })
}

fn value<'n>(node: &Section<'n>) -> Option<&'n Value> {
    let value = node.map.get("value");
    if value.is_none() {
        node.error("value", "assert: has no value");
    }
    value
}

/// The right values: the one of `value`, or those of `value_in`.
fn values<'n>(node: &Section<'n>) -> Option<&'n [Value]> {
    if !node.has("value_in") {
        return value(node).map(std::slice::from_ref);
    }
    if node.has("value") {
        let message = "assert: has both value and value_in; remove one";
        return node.refuse("value_in", message);
    }
    let list = node.read_list("value_in")?;
    if list.is_empty() {
        return node.refuse("value_in", "assert: value_in: there is none; write one");
    }
    Some(list)
}

fn text<'n>(node: &Section<'n>) -> Option<&'n str> {
    value(node)?;
    node.read_text("value")
}

/// The most that something may be: `value`, or `threshold`, as promptfoo has it.
fn limit(node: &Section) -> Option<f64> {
    if node.has("threshold") && !node.has("value") {
        return node.get("threshold");
    }
    value(node)?;
    node.get("value")
}

fn compile(schema: &Value, node: &Section) -> Option<JsonSchema> {
    let compiled = JsonSchema::parse(crate::text::json::text(schema).as_bytes());
    compiled
        .map_err(|why| node.error("value", format!("assert: value: {why}")))
        .ok()
}

/// A schema of `schemas/` by its name, or inline.
fn read_schema(home: &Path, node: &Section) -> Option<JsonSchema> {
    let name = match value(node)? {
        Value::String(name) => name,
        inline @ (Value::Object(_) | Value::Bool(_)) => return compile(inline, node),
        _ => return node.refuse_value("value", "the name of a schema"),
    };
    let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let path = home.join("schemas").join(format!("{name}.json"));
    let read = if is_name {
        files::read_regular(&path).map_err(|e| reason(&e))
    } else {
        Err("that is not a name".to_owned())
    };
    let schema = read.and_then(|bytes| JsonSchema::parse(&bytes));
    schema
        .map_err(|why| {
            let message = format!("assert: value: schema \"{name}\": {why}");
            node.error("value", message);
        })
        .ok()
}

fn read_file(node: &Section) -> Option<AssertionKind> {
    if !node.has("path") {
        let message = "assert: has no path; it names a file in the workspace";
        return node.refuse("path", message);
    }
    let path = node.read_text("path")?.to_owned();
    let is_below = Path::new(&path)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if path.is_empty() || !is_below {
        let message = format!("assert: path: {path:?} is not a path below the trial's workspace");
        return node.refuse("path", message);
    }
    let text = match node.value("value") {
        None => None,
        Some(_) => Some(node.read_text("value")?.to_owned()),
    };
    Some(AssertionKind::File { path, text })
}

/// A program: a list is its argv, a text is split like `exec:` of a tool.
fn read_exec(node: &Section) -> Option<AssertionKind> {
    let given = value(node)?;
    let form = match given {
        Value::Array(_) => "command",
        Value::String(_) => "exec",
        _ => return node.refuse_value("value", "a command"),
    };
    let map = Map::from_iter([(form.to_owned(), given.clone())]);
    let own = node.inner(&map, node.path_to("value")).about("assert");
    let command = read_command(&own);
    let timeout: Option<u64> = node.get("timeout_ms");
    let command = command?;
    if let Some(Piece::Text(program)) = command.words.first().and_then(|word| word.0.first())
        && program.contains('/')
        && !program.starts_with('/')
    {
        let message = format!(
            "assert: value: {program} would be a file of the trial itself; write ${{FLOW_HOME}}/… for a file \
             beside this one"
        );
        node.error("value", message);
    }
    let verdict = node.read_choice("verdict", &[("json", ())]);
    Some(AssertionKind::Exec {
        command,
        timeout: Duration::from_millis(timeout.unwrap_or(GRADING_TIME).max(1)),
        is_json: verdict.is_some(),
    })
}
