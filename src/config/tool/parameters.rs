//! Parameters as an agent's author declares them, before it is known how the command uses them.
//!
//! Unaware of templates.

use crate::config::keys::Kind::{Count, Flag, Own, Text, Words};
use crate::config::keys::{Key, key, names};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::is_reserved;
use crate::config::tool::definition::{Inject, Parameter, ParameterType, text_of};
use crate::text::options::table::words;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};

/// One item of a tool's `parameters:`.
#[derive(Debug)]
pub(crate) struct DeclaredParameter {
    /// With the way its value reaches the command as declared, or as an argument.
    pub parameter: Parameter,
    /// `inject_as` was given.
    pub injected: bool,
    /// Among the values that follow the command, from 0.
    pub position: Option<usize>,
    /// The modifier that only a template can have, if it was given here.
    pub raw: Option<bool>,
    at: Vec<Step>,
    keys: Vec<String>,
}

impl DeclaredParameter {
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.keys.iter().any(|k| k == key)
    }

    /// The path of one of its keys.
    pub(crate) fn path_to(&self, key: &str) -> Vec<Step> {
        let mut at = self.at.clone();
        if self.has_key(key) {
            at.push(Step::Key(key.to_owned()));
        }
        at
    }
}

/// The keys of a parameter.
#[rustfmt::skip]
pub(crate) static PARAMETER: &[Key] = &[
    key("name", Text, "The parameter's name, as in ${name}.").required(),
    key("type", Words(&words(&KINDS), Some("string")), "The type that the model sees. Values are not converted."),
    key("description", Text, "The description that the model sees."),
    key("enum", Own, "The allowed values."),
    key("required", Flag(None), "True if a call without it is refused. Default: true without a default, false with one."),
    key("default", Own, "The value if the model gives none."),
    key("inject_as", Words(&words(&WAYS), Some("argument")),
        "The way the value reaches the command. In exec and shell, the template determines it."),
    key("option_name", Text, "The option before the value, with inject_as: option."),
    key("position", Count(0, None), "The position among the values that follow the command, from 0."),
    key("raw", Flag(None), "True if it has the modifier :raw in a shell template; must agree with the template."),
];

const WAYS: [(&str, u8); 3] = [("argument", 0), ("option", 1), ("stdin", 2)];

const KINDS: [(&str, ParameterType); 4] = [
    ("string", ParameterType::String),
    ("integer", ParameterType::Integer),
    ("number", ParameterType::Number),
    ("boolean", ParameterType::Boolean),
];

/// Reads a tool's `parameters:`, leaving out those that cannot be used.
pub(crate) fn read(tool: &Section, out: &mut Diagnostics) -> Vec<DeclaredParameter> {
    let mut all: Vec<DeclaredParameter> = Vec::new();
    let items = tool
        .read_list("parameters", out)
        .map_or(&[][..], Vec::as_slice);
    for (index, item) in items.iter().enumerate() {
        let mut at = tool.path_to("parameters");
        at.push(Step::Item(index));
        let Some(map) = item.as_object() else {
            out.error(
                at,
                format!(
                    "parameters: expected a mapping, found {}",
                    describe_value(item)
                ),
            );
            continue;
        };
        let Some(declared) = read_one(Section::new(map, at.clone()), at, out) else {
            continue;
        };
        let name = &declared.parameter.name;
        if all.iter().any(|other| other.parameter.name == *name) {
            let message = format!("parameter '{name}' is declared twice; remove one");
            out.error(declared.path_to("name"), message);
        } else {
            all.push(declared);
        }
    }
    all
}

/// True if a parameter can have this name; reports it if not.
pub(crate) fn check_name(name: &str, at: Vec<Step>, out: &mut Diagnostics) -> bool {
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

fn read_one(section: Section, at: Vec<Step>, out: &mut Diagnostics) -> Option<DeclaredParameter> {
    if !section.map.contains_key("name") {
        out.error(at, "parameters: this one has no name; give it one");
        return None;
    }
    let name = section.read_text("name", out)?;
    if !check_name(name, section.path_to("name"), out) {
        return None;
    }
    let section = &section.of(&format!("parameter '{name}'"));
    let inject = inject(name, section, out);
    let default = section.map.get("default");
    let required = section.read_flag("required", out);
    let mut parameter = Parameter {
        kind: section
            .read_choice("type", &KINDS, out)
            .unwrap_or(ParameterType::String),
        description: section.read_text("description", out).map(str::to_owned),
        choices: choices(name, section, out),
        required: required.unwrap_or(default.is_none()),
        default: default.filter(|value| !value.is_null()).cloned(),
        extra: extra(name, section, out),
        ..Parameter::new(name, Inject::Argument)
    };
    if let Some(value) = &parameter.default
        && !parameter.admits(&text_of(value))
    {
        let message = format!("default {value} of parameter '{name}' is not in its enum");
        out.error(section.path_to("default"), message);
    }
    let injected = inject.is_some();
    parameter.inject = inject.unwrap_or(Inject::Argument);
    Some(DeclaredParameter {
        parameter,
        injected,
        position: section
            .read_count("position", out)
            .map(|position| position as usize),
        raw: section.read_flag("raw", out),
        at,
        keys: section.map.keys().cloned().collect(),
    })
}

fn inject(name: &str, section: &Section, out: &mut Diagnostics) -> Option<Inject> {
    let way = section.read_choice("inject_as", &WAYS, out);
    let option = section.read_text("option_name", out);
    match (way, option) {
        (Some(1), Some(option)) if option.is_empty() || option.contains('\0') => {
            let message = format!("option_name of parameter '{name}' cannot be an argument");
            out.error(section.path_to("option_name"), message);
            None
        }
        (Some(1), Some(option)) => Some(Inject::Option(option.to_owned())),
        (Some(1), None) => {
            if !section.map.contains_key("option_name") {
                let message = format!(
                    "parameter '{name}' is injected as an option and needs option_name:, such as --{name}"
                );
                out.error(section.path_to("inject_as"), message);
            }
            None
        }
        (_, Some(_)) => {
            let message = format!("option_name of parameter '{name}' needs inject_as: option");
            out.error(section.path_to("option_name"), message);
            None
        }
        (Some(0), None) => Some(Inject::Argument),
        (Some(_), None) => Some(Inject::Stdin),
        (None, None) => None,
    }
}

fn choices(name: &str, section: &Section, out: &mut Diagnostics) -> Vec<Value> {
    let choices = section.read_list("enum", out).cloned().unwrap_or_default();
    if choices.is_empty() && section.map.get("enum").is_some_and(Value::is_array) {
        let message = format!("enum of parameter '{name}' is empty: nothing could be given");
        out.error(section.path_to("enum"), message);
    }
    choices
}

/// The keys that go into the schema as they are.
fn extra(name: &str, section: &Section, out: &mut Diagnostics) -> Map<String, Value> {
    let mut extra = section.map.clone();
    let known = names(PARAMETER);
    extra.retain(|key, _| !known.contains(&key.as_str()));
    for key in extra.keys() {
        if let Some(meant) = nearest(key, known.iter().copied()) {
            let message = format!(
                "parameter '{name}': '{key}' is passed to the model as it is; did you mean '{meant}'?"
            );
            out.warn(section.path_to(key), message);
        }
    }
    extra
}
