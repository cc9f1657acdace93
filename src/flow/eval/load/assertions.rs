//! The assertions of a case.

use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::definition::Piece;
use crate::error::reason;
use crate::flow::eval::assertion::{Assertion, AssertionKind};
use crate::flow::manifest::command::read_command;
use crate::flow::manifest::read_mappings;
use crate::flow::schema::JsonSchema;
use crate::text::suggestion::nearest;
use crate::unix::files;
use serde_json::{Map, Value, json};
use std::path::{Component, Path};
use std::time::Duration;

const KEYS: [&str; 8] = [
    "type",
    "path",
    "value",
    "message",
    "weight",
    "threshold",
    "timeout_ms",
    "verdict",
];

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

/// How long a program that grades may take, in milliseconds, if its assertion does not say.
const GRADING_TIME: u64 = 600_000;

/// Reads `assert`; none if there is no such key.
pub(super) fn read_assertions(
    home: &Path,
    node: &Section,
    out: &mut Diagnostics,
) -> Option<Vec<Assertion>> {
    node.map.get("assert").filter(|value| !value.is_null())?;
    let mut all = Vec::new();
    for (map, at) in read_mappings(node, "assert", out) {
        let section = Section::new(map, at).within("assert");
        all.extend(read_assertion(home, &section, out));
    }
    let weights: f64 = all.iter().map(|it: &Assertion| it.weight).sum();
    if !all.is_empty() && weights <= 0.0 {
        let message = "assert: the weights sum to 0, so that there is no score";
        out.error(node.path_to("assert"), message);
    }
    Some(all)
}

fn read_assertion(home: &Path, node: &Section, out: &mut Diagnostics) -> Option<Assertion> {
    node.warn_of_unknown_keys(&KEYS, out);
    let Some(kind) = node.map.get("type") else {
        let message = format!("assert: has no type; it is one of {}", TYPES.join(", "));
        out.error(node.path_to("type"), message);
        return None;
    };
    let kind = kind.as_str().unwrap_or_default();
    let check = read_check(home, kind, node, out);
    let path = match kind == "file" {
        true => None,
        false => read_pointer(node, out),
    };
    let weight = node.read_amount("weight", out).unwrap_or(1.0);
    Some(Assertion {
        check: check?,
        path,
        message: node.read_text("message", out).map(str::to_owned),
        weight,
        source: node.map.clone(),
    })
}

fn read_pointer(node: &Section, out: &mut Diagnostics) -> Option<String> {
    let path = node.read_text("path", out)?;
    if !path.is_empty() && !path.starts_with('/') {
        let message =
            format!("assert: path: {path:?} is not a JSON pointer; it begins with /, as in /name");
        out.error(node.path_to("path"), message);
    }
    Some(path.to_owned())
}

fn read_check(
    home: &Path,
    kind: &str,
    node: &Section,
    out: &mut Diagnostics,
) -> Option<AssertionKind> {
    Some(match kind {
        "equals" => AssertionKind::Equals(value(node, out)?.clone()),
        "contains" => AssertionKind::Contains(value(node, out)?.clone()),
        "regex" => {
            let pattern = text(node, out)?;
            AssertionKind::Regex(compile(&json!({"pattern": pattern}), node, out)?)
        }
        "is-json" => match node.map.get("value") {
            None | Some(Value::Null) => AssertionKind::IsJson(None),
            Some(schema) => AssertionKind::IsJson(Some(compile(schema, node, out)?)),
        },
        "schema" => AssertionKind::Schema(read_schema(home, node, out)?),
        "latency" => AssertionKind::Latency(limit(node, out)?),
        "cost" => AssertionKind::Cost(limit(node, out)?),
        "tokens" => AssertionKind::Tokens(limit(node, out)?),
        "status" => match value(node, out)? {
            Value::String(name) if !["success", "failure", "partial"].contains(&name.as_str()) => {
                let message = format!(
                    "assert: value: {name:?} is not a status; it is success, failure, partial or an exit code"
                );
                out.error(node.path_to("value"), message);
                return None;
            }
            wanted => AssertionKind::Status(wanted.clone()),
        },
        "exit_node" => AssertionKind::ExitNode(text(node, out)?.to_owned()),
        "file" => read_file(node, out)?,
        "exec" => read_exec(node, out)?,
        other => {
            let near = nearest(other, TYPES);
            let hint = near.map_or_else(
                || format!("it is one of {}", TYPES.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            let message = format!("assert: there is no type {other:?}; {hint}");
            out.error(node.path_to("type"), message);
            return None;
        }
    })
}

fn value<'n>(node: &Section<'n>, out: &mut Diagnostics) -> Option<&'n Value> {
    let value = node.map.get("value");
    if value.is_none() {
        out.error(node.path_to("value"), "assert: has no value");
    }
    value
}

fn text<'n>(node: &Section<'n>, out: &mut Diagnostics) -> Option<&'n str> {
    value(node, out)?;
    node.read_text("value", out)
}

/// The most that something may be: `value`, or `threshold`, as promptfoo has it.
fn limit(node: &Section, out: &mut Diagnostics) -> Option<f64> {
    match node.map.contains_key("threshold") && !node.map.contains_key("value") {
        true => node.read_amount("threshold", out),
        false => {
            value(node, out)?;
            node.read_amount("value", out)
        }
    }
}

fn compile(schema: &Value, node: &Section, out: &mut Diagnostics) -> Option<JsonSchema> {
    let compiled = JsonSchema::parse(crate::text::json::text(schema).as_bytes());
    compiled
        .map_err(|why| out.error(node.path_to("value"), format!("assert: value: {why}")))
        .ok()
}

/// A schema of `schemas/` by its name, or inline.
fn read_schema(home: &Path, node: &Section, out: &mut Diagnostics) -> Option<JsonSchema> {
    let name = match value(node, out)? {
        Value::String(name) => name,
        Value::Object(_) | Value::Bool(_) => return compile(&node.map["value"], node, out),
        other => {
            let found = describe_value(other);
            let message = format!("assert: value: expected the name of a schema, found {found}");
            out.error(node.path_to("value"), message);
            return None;
        }
    };
    let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let path = home.join("schemas").join(format!("{name}.json"));
    let read = match is_name {
        true => files::read_regular(&path).map_err(|e| reason(&e)),
        false => Err("that is not a name".to_owned()),
    };
    let schema = read.and_then(|bytes| JsonSchema::parse(&bytes));
    schema
        .map_err(|why| {
            let message = format!("assert: value: schema \"{name}\": {why}");
            out.error(node.path_to("value"), message);
        })
        .ok()
}

fn read_file(node: &Section, out: &mut Diagnostics) -> Option<AssertionKind> {
    if !node.map.contains_key("path") {
        out.error(
            node.path_to("path"),
            "assert: has no path; it names a file in the workspace",
        );
        return None;
    }
    let path = node.read_text("path", out)?.to_owned();
    let is_below = Path::new(&path)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if path.is_empty() || !is_below {
        let message = format!("assert: path: {path:?} is not a path below the trial's workspace");
        out.error(node.path_to("path"), message);
        return None;
    }
    let text = match node.map.get("value") {
        None | Some(Value::Null) => None,
        Some(_) => Some(node.read_text("value", out)?.to_owned()),
    };
    Some(AssertionKind::File { path, text })
}

/// A program: a list is its argv, a text is split like `exec:` of a tool.
fn read_exec(node: &Section, out: &mut Diagnostics) -> Option<AssertionKind> {
    let form = match value(node, out)? {
        Value::Array(_) => "command",
        Value::String(_) => "exec",
        other => {
            let found = describe_value(other);
            let message = format!("assert: value: expected a command, found {found}");
            out.error(node.path_to("value"), message);
            return None;
        }
    };
    let map: Map<String, Value> = [(form.to_owned(), node.map["value"].clone())]
        .into_iter()
        .collect();
    let mut own = Diagnostics::about("assert");
    let command = read_command(&map, &node.path_to("value"), &mut own);
    out.absorb(own);
    let timeout = node.read_count("timeout_ms", out).unwrap_or(GRADING_TIME);
    let command = command?;
    if let Some(Piece::Text(program)) = command.words.first().and_then(|word| word.0.first())
        && program.contains('/')
        && !program.starts_with('/')
    {
        let message = format!(
            "assert: value: {program} would be a file of the trial itself; write ${{FLOW_HOME}}/… for a file \
             beside this one"
        );
        out.error(node.path_to("value"), message);
    }
    Some(AssertionKind::Exec {
        command,
        timeout: Duration::from_millis(timeout.max(1)),
        is_json: node
            .read_choice("verdict", &[("json", true)], out)
            .is_some(),
    })
}
