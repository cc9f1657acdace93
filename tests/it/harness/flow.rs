//! Flows that are written in a line or two, and what `delta-flow check` says of them.

use super::delta::Delta;
use super::world::World;
use serde_json::{Value, json};
use std::path::Path;

/// What `check --format json` says about a directory.
#[track_caller]
pub fn errors_of(world: &World, dir: impl AsRef<Path>) -> Vec<Value> {
    let outcome = Delta::flow(world.home())
        .args(["check"])
        .arg(dir.as_ref())
        .json()
        .end();
    let object = outcome.object();
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["schema_version", "errors"]);
    let errors = object["errors"].as_array().unwrap().clone();
    for error in &errors {
        let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["code", "ids", "file", "message"]);
    }
    outcome.exits(if errors.is_empty() { 0 } else { 78 });
    errors
}

/// A node of a flow that is written on one line.
pub fn node(id: &str, role: &str, more: &str) -> String {
    format!("- {{id: {id}, kind: deterministic, role: {role}, context: none{more}}}\n")
}

pub fn start() -> String {
    node("s", "start", ", default_start: true")
}

pub fn exit() -> String {
    node("x", "exit", "")
}

/// Edges as `a>b` or `a>b:label`.
fn edges(list: &str) -> String {
    let mut yaml = "edges:\n".to_owned();
    for edge in list.split_whitespace() {
        let (from, rest) = edge.split_once('>').unwrap();
        let (to, label) = rest.split_once(':').unwrap_or((rest, ""));
        let label = match label {
            "" => String::new(),
            label => format!(", label: {label}"),
        };
        yaml += &format!("- {{from: {from}, to: {to}{label}}}\n");
    }
    yaml
}

pub fn flow(nodes: &[String], list: &str) -> String {
    format!("nodes:\n{}{}", nodes.concat(), edges(list))
}

/// The errors of a flow that is a workflow.yaml alone.
#[track_caller]
pub fn errors_in(workflow: &str) -> Vec<Value> {
    let world = World::new();
    world.write("f/workflow.yaml", workflow);
    errors_of(&world, "f")
}

/// The flow has exactly this error, with its code, ids and words of its message.
#[track_caller]
pub fn has_only(workflow: &str, code: &str, ids: &[&str], message: &str) {
    has(&errors_in(workflow), 1, code, ids, "workflow.yaml", message);
}

/// There are so many errors, and among them one with this code, ids, file and words of its message.
#[track_caller]
pub fn has(errors: &[Value], count: usize, code: &str, ids: &[&str], file: &str, message: &str) {
    let found = errors
        .iter()
        .find(|error| error["code"] == code && error["ids"] == json!(ids));
    let found = found.unwrap_or_else(|| panic!("no {code} {ids:?} in {errors:#?}"));
    assert_eq!(found["file"], file);
    let said = found["message"].as_str().unwrap();
    assert!(said.contains(message), "{said:?} lacks {message:?}");
    assert_eq!(errors.len(), count, "{errors:#?}");
}

/// A flow with one node between start and exit.
pub fn around(middle: &str) -> String {
    flow(&[start(), middle.to_owned(), exit()], "s>a a>x")
}
