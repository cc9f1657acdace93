//! Parameters as an agent's author declares them, before it is known how the command uses them.
//!
//! Unaware of templates.

use crate::config::section::{Complaints, Node, found};
use crate::config::tool::argv_template::is_reserved;
use crate::config::tool::definition::{Inject, Kind, Parameter, text_of};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};

/// One item of a tool's `parameters:`.
#[derive(Debug)]
pub(crate) struct Declared {
    /// With the way its value reaches the command as declared, or as an argument.
    pub parameter: Parameter,
    /// Whether `inject_as` was given.
    pub injected: bool,
    /// Among the values that follow the command, from 0.
    pub position: Option<usize>,
    /// What was said about the modifier that only a template can have.
    pub raw: Option<bool>,
    at: Vec<Step>,
    keys: Vec<String>,
}

impl Declared {
    /// The path of one of its keys.
    pub(crate) fn at(&self, key: &str) -> Vec<Step> {
        let mut at = self.at.clone();
        if self.keys.iter().any(|k| k == key) {
            at.push(Step::Key(key.to_owned()));
        }
        at
    }
}

const KEYS: [&str; 10] = [
    "name",
    "type",
    "description",
    "enum",
    "required",
    "default",
    "inject_as",
    "option_name",
    "position",
    "raw",
];

const KINDS: [(&str, Kind); 4] = [
    ("string", Kind::String),
    ("integer", Kind::Integer),
    ("number", Kind::Number),
    ("boolean", Kind::Boolean),
];

/// Reads a tool's `parameters:`, leaving out those that cannot be used.
pub(crate) fn read(tool: &Node, out: &mut Complaints) -> Vec<Declared> {
    let mut all: Vec<Declared> = Vec::new();
    let items = tool.list("parameters", out).map_or(&[][..], Vec::as_slice);
    for (index, item) in items.iter().enumerate() {
        let mut at = tool.at("parameters");
        at.push(Step::Item(index));
        let Some(map) = item.as_object() else {
            out.error(
                at,
                format!("parameters: expected a mapping, found {}", found(item)),
            );
            continue;
        };
        let Some(declared) = read_one(Node::new(map, at.clone()), at, out) else {
            continue;
        };
        let name = &declared.parameter.name;
        if all.iter().any(|other| other.parameter.name == *name) {
            let message = format!("parameter '{name}' is declared twice; remove one");
            out.error(declared.at("name"), message);
        } else {
            all.push(declared);
        }
    }
    all
}

/// Whether a parameter can have this name; complains if not.
pub(crate) fn check_name(name: &str, at: Vec<Step>, out: &mut Complaints) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if is_reserved(name) {
        let message = format!("no parameter can be named {name}, which is the engine's; rename it");
        out.error(at, message);
        false
    } else if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
        let message = format!(
            "invalid parameter name '{name}': 1 to 64 letters, digits, '_', '-' and '.' make a name"
        );
        out.error(at, message);
        false
    } else {
        true
    }
}

fn read_one(node: Node, at: Vec<Step>, out: &mut Complaints) -> Option<Declared> {
    if !node.map.contains_key("name") {
        out.error(at, "parameters: this one has no name; give it one");
        return None;
    }
    let name = node.text("name", out)?;
    if !check_name(name, node.at("name"), out) {
        return None;
    }
    let node = &node.of(&format!("parameter '{name}'"));
    let inject = inject(name, node, out);
    let default = node.map.get("default");
    let required = node.flag("required", out);
    let mut parameter = Parameter {
        kind: node.choice("type", &KINDS, out).unwrap_or(Kind::String),
        description: node.text("description", out).map(str::to_owned),
        choices: choices(name, node, out),
        required: required.unwrap_or(default.is_none()),
        default: default.filter(|value| !value.is_null()).cloned(),
        extra: extra(name, node, out),
        ..Parameter::new(name, Inject::Argument)
    };
    if let Some(value) = &parameter.default
        && !parameter.admits(&text_of(value))
    {
        let message = format!("default {value} of parameter '{name}' is not in its enum");
        out.error(node.at("default"), message);
    }
    let injected = inject.is_some();
    parameter.inject = inject.unwrap_or(Inject::Argument);
    Some(Declared {
        parameter,
        injected,
        position: node
            .count("position", out)
            .map(|position| position as usize),
        raw: node.flag("raw", out),
        at,
        keys: node.map.keys().cloned().collect(),
    })
}

fn inject(name: &str, node: &Node, out: &mut Complaints) -> Option<Inject> {
    let ways = [("argument", 0), ("option", 1), ("stdin", 2)];
    let way = node.choice("inject_as", &ways, out);
    let option = node.text("option_name", out);
    match (way, option) {
        (Some(1), Some(option)) if option.is_empty() || option.contains('\0') => {
            let message = format!("option_name of parameter '{name}' is no argument");
            out.error(node.at("option_name"), message);
            None
        }
        (Some(1), Some(option)) => Some(Inject::Option(option.to_owned())),
        (Some(1), None) => {
            if !node.map.contains_key("option_name") {
                let message = format!(
                    "parameter '{name}' is injected as an option and needs option_name:, such as --{name}"
                );
                out.error(node.at("inject_as"), message);
            }
            None
        }
        (_, Some(_)) => {
            let message = format!("option_name of parameter '{name}' needs inject_as: option");
            out.error(node.at("option_name"), message);
            None
        }
        (Some(0), None) => Some(Inject::Argument),
        (Some(_), None) => Some(Inject::Stdin),
        (None, None) => None,
    }
}

fn choices(name: &str, node: &Node, out: &mut Complaints) -> Vec<Value> {
    let choices = node.list("enum", out).cloned().unwrap_or_default();
    if choices.is_empty() && node.map.get("enum").is_some_and(Value::is_array) {
        let message = format!("enum of parameter '{name}' is empty: nothing could be given");
        out.error(node.at("enum"), message);
    }
    choices
}

/// The keys that go into the schema as they are.
fn extra(name: &str, node: &Node, out: &mut Complaints) -> Map<String, Value> {
    let mut extra = node.map.clone();
    extra.retain(|key, _| !KEYS.contains(&key.as_str()));
    for key in extra.keys() {
        if let Some(meant) = nearest(key, KEYS) {
            let message = format!(
                "parameter '{name}': '{key}' is passed to the model as it is; did you mean '{meant}'?"
            );
            out.warn(node.at(key), message);
        }
    }
    extra
}
