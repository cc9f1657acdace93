//! Parameters as an agent's author declares them, before it is known how the command uses them.
//!
//! Unaware of templates.

use crate::config::keys::Kind::{Count, Flag, Own, Text, Words};
use crate::config::keys::{Key, key, names};
use crate::config::section::Section;
use crate::config::tool::argv_template::is_reserved;
use crate::config::tool::definition::{Inject, Parameter, ParameterType, text_of};
use crate::text::options::table::words;
use crate::text::suggestion::nearest;
use serde_json::{Map, Value};

/// One item of a tool's `parameters:`.
#[derive(Debug)]
pub(crate) struct DeclaredParameter<'n> {
    /// The parameter, with the way its value reaches the command as declared, or as an argument.
    pub parameter: Parameter,
    /// `inject_as` was given.
    pub injected: bool,
    /// Among the values that follow the command, from 0.
    pub position: Option<usize>,
    /// The modifier that only a template can have, if it was given here.
    pub raw: Option<bool>,
    pub section: Section<'n>,
}

/// The keys of a parameter.
#[rustfmt::skip]
pub(crate) static PARAMETER: &[Key] = &[
    key("name", Text, "The parameter's name, as in ${name}.").required(),
    key("type", Words(&words(&ParameterType::ALL), Some("string")), "The type that the model sees. Values are not converted."),
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

/// Reads a tool's `parameters:`, leaving out those that cannot be used.
pub(crate) fn read<'n>(tool: &Section<'n>) -> Vec<DeclaredParameter<'n>> {
    let mut all: Vec<DeclaredParameter> = Vec::new();
    for (_, section) in tool.read_sections("parameters") {
        let Some(declared) = read_one(section) else {
            continue;
        };
        let name = &declared.parameter.name;
        if all.iter().any(|other| other.parameter.name == *name) {
            let message = format!("parameter '{name}' is declared twice; remove one");
            declared.section.error("name", message);
        } else {
            all.push(declared);
        }
    }
    all
}

/// True if a parameter can have this name; reports it if not.
pub(crate) fn check_name(section: &Section, key: &str, name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let message = if is_reserved(name) {
        format!("no parameter can be named {name}, which is the engine's; rename it")
    } else if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
        format!(
            "invalid parameter name '{name}': 1 to 64 letters, digits, '_', '-' and '.' make a name"
        )
    } else {
        return true;
    };
    section.error(key, message);
    false
}

fn read_one(section: Section<'_>) -> Option<DeclaredParameter<'_>> {
    if !section.has("name") {
        return section.refuse("", "parameters: this one has no name; give it one");
    }
    let name = section.read_text("name")?;
    if !check_name(&section, "name", name) {
        return None;
    }
    let section = section.of(&format!("parameter '{name}'"));
    let inject = inject(name, &section);
    let default = section.map.get("default");
    let required = section.read_flag("required");
    let mut parameter = Parameter {
        kind: section
            .read_choice("type", &ParameterType::ALL)
            .unwrap_or(ParameterType::String),
        description: section.read_text("description").map(str::to_owned),
        choices: choices(name, &section),
        required: required.unwrap_or(default.is_none()),
        default: default.filter(|value| !value.is_null()).cloned(),
        extra: extra(name, &section),
        ..Parameter::new(name, Inject::Argument)
    };
    if let Some(value) = &parameter.default
        && !parameter.admits(&text_of(value))
    {
        let message = format!("default {value} of parameter '{name}' is not in its enum");
        section.error("default", message);
    }
    let injected = inject.is_some();
    parameter.inject = inject.unwrap_or(Inject::Argument);
    Some(DeclaredParameter {
        parameter,
        injected,
        position: section.read_count("position").map(|it| it as usize),
        raw: section.read_flag("raw"),
        section,
    })
}

fn inject(name: &str, section: &Section) -> Option<Inject> {
    let way = section.read_choice("inject_as", &WAYS);
    let option = section.read_text("option_name");
    match (way, option) {
        (Some(1), Some(option)) if option.is_empty() || option.contains('\0') => {
            let message = format!("option_name of parameter '{name}' cannot be an argument");
            section.refuse("option_name", message)
        }
        (Some(1), Some(option)) => Some(Inject::Option(option.to_owned())),
        (Some(1), None) => {
            if !section.has("option_name") {
                let message = format!(
                    "parameter '{name}' is injected as an option and needs option_name:, such as --{name}"
                );
                section.error("inject_as", message);
            }
            None
        }
        (_, Some(_)) => {
            let message = format!("option_name of parameter '{name}' needs inject_as: option");
            section.refuse("option_name", message)
        }
        (Some(0), None) => Some(Inject::Argument),
        (Some(_), None) => Some(Inject::Stdin),
        (None, None) => None,
    }
}

fn choices(name: &str, section: &Section) -> Vec<Value> {
    let choices = section.read_list("enum").cloned().unwrap_or_default();
    if choices.is_empty() && section.map.get("enum").is_some_and(Value::is_array) {
        let message = format!("enum of parameter '{name}' is empty: nothing could be given");
        section.error("enum", message);
    }
    choices
}

/// The keys that go into the schema as they are.
fn extra(name: &str, section: &Section) -> Map<String, Value> {
    let mut extra = section.map.clone();
    let known = names(PARAMETER);
    extra.retain(|key, _| !known.contains(&key.as_str()));
    for key in extra.keys() {
        if let Some(meant) = nearest(key, known.iter().copied()) {
            let message = format!(
                "parameter '{name}': '{key}' is passed to the model as it is; did you mean '{meant}'?"
            );
            section.warn(key, message);
        }
    }
    extra
}
