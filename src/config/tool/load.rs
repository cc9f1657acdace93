//! From a tool in YAML to a [`Tool`], and back to YAML in its expanded form.
//!
//! All errors are reported, not just the first. Unaware of files, and of the model's values.

pub(crate) use crate::config::section::Diagnostic;

use crate::config::keys::{Key, KeyValue, names};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::command;
use crate::config::tool::definition::{
    Confirm, Inject, InputForm, Parameter, TOOL, Tool, one_line,
};
use crate::config::tool::effect;
use crate::config::tool::later::{read_later, render_later};
use crate::config::tool::parameters;
use serde_json::{Map, Value, json};

/// Reads one item of a `tools:` list. The paths of diagnostics begin at that item.
///
/// # Errors
/// All that is wrong with it, and among that what is merely doubtful.
pub(crate) fn load(section: &Value) -> Result<(Tool, Vec<Diagnostic>), Vec<Diagnostic>> {
    let name = section.get("name").and_then(Value::as_str);
    let subject = name.map_or_else(|| "tool".to_owned(), |name| format!("tool \"{name}\""));
    let mut out = Diagnostics::about(subject);
    let tool = if let Some(map) = section.as_object() {
        read(&Section::new(map, Vec::new()), &mut out)
    } else {
        let found = describe_value(section);
        out.error(Vec::new(), format!("expected a mapping, found {found}"));
        None
    };
    match tool {
        Some(tool) if !out.has_errors() => Ok((tool, out.into_list())),
        _ => Err(out.into_list()),
    }
}

/// Tools in their expanded form, which [`load`] reads back as tools that do the same.
pub(crate) fn render(tools: &[Tool]) -> Value {
    json!({"tools": tools.iter().map(render_tool).collect::<Vec<_>>()})
}

fn read(section: &Section, out: &mut Diagnostics) -> Option<Tool> {
    section.warn_of_unknown_keys(&names(TOOL), out);
    let name = name(section, out);
    let declared = parameters::read(section, out);
    let input = input(section, out);
    let usage = match input {
        InputForm::Parameters => command::read(section, &declared, out),
        InputForm::Json | InputForm::Schema(_) => command::read_fixed(section, &declared, out),
    };
    let mut tool = Tool::default();
    tool.read_keys(section, out);
    let has_effect = effect::read_effect(section, out);
    let on_resume = effect::read_on_resume(section, has_effect, out);
    let later = read_later(section, out);
    let usage = usage?;
    let is_nested = section.read_flag("subagent", out).unwrap_or(false);
    let subagent = is_nested.then(|| effect::read_subagent(section, &usage, out));
    Some(Tool {
        name: name?,
        template: usage.template,
        command: usage.command,
        appended: usage.appended,
        parameters: usage.parameters,
        input,
        on_resume,
        has_effect,
        subagent: subagent.flatten(),
        later,
        ..tool
    })
}

fn name(section: &Section, out: &mut Diagnostics) -> Option<String> {
    let Some(_) = section.map.get("name") else {
        out.error(section.path_to("name"), "has no name; give it one");
        return None;
    };
    let name = section.read_text("name", out)?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
        let message = "invalid name: 1 to 64 letters, digits, '_' and '-' make a name";
        out.error(section.path_to("name"), message);
        return None;
    }
    Some(name.to_owned())
}

/// How the arguments reach the command: `input:` and `input_schema:`.
fn input(section: &Section, out: &mut Diagnostics) -> InputForm {
    let json = section.read_choice("input", &[("json", ())], out);
    let Some(schema) = section.read_mapping("input_schema", out) else {
        return json.map_or(InputForm::Parameters, |()| InputForm::Json);
    };
    let at = section.path_to("input_schema");
    if json.is_none() && !section.map.contains_key("input") {
        out.error(at, "input_schema: needs input: json");
    } else if section.map.contains_key("parameters") {
        let message = "input_schema: takes the place of parameters:; keep one";
        out.error(at, message);
    } else if schema.get("type") != Some(&"object".into()) {
        let message = "input_schema: its type must be object, because arguments are one";
        out.error(at, message);
    }
    InputForm::Schema(schema.clone())
}

impl KeyValue for Vec<(String, String)> {
    fn read(section: &Section<'_>, key: &Key, out: &mut Diagnostics) -> Self {
        let mut env = Self::new();
        for (name, value) in section.read_mapping(key.name, out).into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => {
                    let found = describe_value(value);
                    let message = format!("env: expected a string for {name}, found {found}");
                    out.error(section.path_to("env"), message);
                    continue;
                }
            };
            if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
                let message = format!("env: no variable can be named {name:?} or hold a NUL byte");
                out.error(section.path_to("env"), message);
            }
            env.push((name.clone(), text));
        }
        env
    }

    fn record(&self) -> Value {
        let env = self
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()));
        let env = Value::Object(env.collect());
        if self.is_empty() { Value::Null } else { env }
    }
}

impl KeyValue for Confirm {
    fn read(section: &Section<'_>, key: &Key, out: &mut Diagnostics) -> Self {
        // A single word may be meant as a flag: yes, no, none.
        let is_sentence = |text: &str| text.contains(|c: char| !c.is_ascii_alphabetic());
        match section.map.get(key.name) {
            None | Some(Value::Bool(false)) => Self::No,
            Some(Value::Bool(true)) => Self::Yes,
            Some(Value::String(text)) if !text.trim().is_empty() && is_sentence(text) => {
                Self::Sentence(text.clone())
            }
            Some(other) => {
                let found = describe_value(other);
                let message =
                    format!("confirm: expected true, false or a sentence to ask, found {found}");
                out.error(section.path_to("confirm"), message);
                Self::Yes
            }
        }
    }

    fn record(&self) -> Value {
        match self {
            Self::No => Value::Null,
            Self::Yes => true.into(),
            Self::Sentence(words) => words.as_str().into(),
        }
    }
}

fn render_tool(tool: &Tool) -> Value {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put("name", tool.name.as_str().into());
    let name = |index: usize| tool.parameters[index].name.as_str();
    let command = tool.command.iter().map(|word| word.written(name));
    // The model gets the same description of the expanded form, also where that would be described by
    // another template.
    let template = one_line(&tool.command, &tool.appended, &tool.parameters);
    let template = Some(&tool.template).filter(|original| **original != template);
    if let Some(description) = tool.description.as_ref().or(template) {
        put("description", description.as_str().into());
    }
    put("command", command.collect());
    if !tool.parameters.is_empty() {
        let render = |(index, parameter)| {
            let position = tool.appended.iter().position(|appended| *appended == index);
            render_parameter(parameter, position, &tool.input)
        };
        put(
            "parameters",
            tool.parameters.iter().enumerate().map(render).collect(),
        );
    }
    match &tool.input {
        InputForm::Parameters => {}
        InputForm::Json => drop(put("input", "json".into())),
        InputForm::Schema(schema) => {
            put("input", "json".into());
            put("input_schema", schema.clone().into());
        }
    }
    let keys = tool.record_keys().into_iter();
    map.extend(keys.filter(|(_, value)| *value != Value::Bool(false)));
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    if let Some(value) = effect::render_on_resume(tool) {
        put("on_resume", value);
    }
    if !tool.has_effect {
        put("effect", "none".into());
    }
    if tool.subagent.is_some() {
        put("subagent", true.into());
    }
    if let Some(later) = &tool.later {
        put("later", render_later(later));
    }
    // As in the manual, these come last.
    for key in ["confirm", "pass_api_key"] {
        if let Some(value) = map.shift_remove(key) {
            map.insert(key.to_owned(), value);
        }
    }
    map.into()
}

fn render_parameter(parameter: &Parameter, position: Option<usize>, input: &InputForm) -> Value {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put("name", parameter.name.as_str().into());
    put("type", parameter.kind.name().into());
    if let Some(description) = &parameter.description {
        put("description", description.as_str().into());
    }
    if !parameter.choices.is_empty() {
        put("enum", parameter.choices.clone().into());
    }
    if parameter.required == parameter.default.is_some() {
        put("required", parameter.required.into());
    }
    if let Some(default) = &parameter.default {
        put("default", default.clone());
    }
    if *input == InputForm::Parameters {
        put("inject_as", parameter.inject.name().into());
    }
    if let Inject::Option(option) = &parameter.inject {
        put("option_name", option.as_str().into());
    }
    if let Some(position) = position {
        put("position", position.into());
    }
    map.extend(parameter.extra.clone());
    map.into()
}

#[cfg(test)]
mod tests;
