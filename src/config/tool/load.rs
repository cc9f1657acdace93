//! From a tool in YAML to a [`Tool`], and back to YAML in its expanded form.
//!
//! All errors are reported, not just the first. Unaware of files, and of the model's values.

pub(crate) use crate::config::section::Diagnostic;

use crate::config::keys::{Key, KeyValue, names};
use crate::config::section::{Section, describe_value};
use crate::config::tool::command;
use crate::config::tool::definition::{
    Confirm, Inject, InputForm, Parameter, TOOL, Tool, one_line,
};
use crate::config::tool::effect;
use crate::config::tool::later::{read_later, render_later};
use crate::config::tool::parameters;
use crate::text::json::without_nulls;
use serde_json::{Map, Value, json};

/// Reads one item of a `tools:` list. The paths of diagnostics begin at that item.
///
/// # Errors
/// All that is wrong with it, and among that what is merely doubtful.
pub(crate) fn load(given: &Value) -> Result<(Tool, Vec<Diagnostic>), Vec<Diagnostic>> {
    let name = given.get("name").and_then(Value::as_str);
    let subject = name.map_or_else(|| "tool".to_owned(), |name| format!("tool \"{name}\""));
    let nothing = Map::new();
    let map = given.as_object().unwrap_or(&nothing);
    let section = Section::new(map, Vec::new()).about(&subject);
    let tool = if given.is_object() {
        read(&section)
    } else {
        let found = describe_value(given);
        section.refuse("", format!("expected a mapping, found {found}"))
    };
    match tool {
        Some(tool) if !section.has_errors() => Ok((tool, section.take_diagnostics())),
        _ => Err(section.take_diagnostics()),
    }
}

/// Tools in their expanded form, which [`load`] reads back as tools that do the same.
pub(crate) fn render(tools: &[Tool]) -> Value {
    json!({"tools": tools.iter().map(render_tool).collect::<Vec<_>>()})
}

fn read(section: &Section) -> Option<Tool> {
    section.warn_of_unknown_keys(&names(TOOL));
    let name = name(section);
    let declared = parameters::read(section);
    let input = input(section);
    let usage = match input {
        InputForm::Parameters => command::read(section, &declared),
        InputForm::Json | InputForm::Schema(_) => command::read_fixed(section, &declared),
    };
    let mut tool = Tool::default();
    tool.read_keys(section);
    let has_effect = section
        .read_choice("effect", &[("none", false)])
        .unwrap_or(true);
    let on_resume = effect::read_on_resume(section, has_effect);
    let later = read_later(section);
    let usage = usage?;
    let is_nested = section.read_flag("subagent").unwrap_or(false);
    let subagent = is_nested.then(|| effect::read_subagent(section, &usage));
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

fn name(section: &Section) -> Option<String> {
    if !section.has("name") {
        section.error("name", "has no name; give it one");
    }
    let name = section.read_text("name")?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_good) {
        let message = "invalid name: 1 to 64 letters, digits, '_' and '-' make a name";
        return section.refuse("name", message);
    }
    Some(name.to_owned())
}

/// The form of the arguments: `input:` and `input_schema:`.
fn input(section: &Section) -> InputForm {
    let json = section.read_choice("input", &[("json", ())]);
    let Some(schema) = section.read_mapping("input_schema") else {
        return json.map_or(InputForm::Parameters, |()| InputForm::Json);
    };
    let refuse = |why: &str| {
        section.error("input_schema", format!("input_schema: {why}"));
    };
    if json.is_none() && !section.has("input") {
        refuse("needs input: json");
    } else if section.has("parameters") {
        refuse("takes the place of parameters:; keep one");
    } else if schema.get("type") != Some(&"object".into()) {
        refuse("its type must be object, because arguments are one");
    }
    InputForm::Schema(schema.clone())
}

impl KeyValue for Vec<(String, String)> {
    fn read(section: &Section, key: &Key) -> Self {
        let mut env = Self::new();
        for (name, value) in section.read_mapping(key.name).into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => {
                    let found = describe_value(value);
                    let message = format!("env: expected a string for {name}, found {found}");
                    section.error("env", message);
                    continue;
                }
            };
            if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
                let message = format!("env: no variable can be named {name:?} or hold a NUL byte");
                section.error("env", message);
            }
            env.push((name.clone(), text));
        }
        env
    }

    fn record(&self) -> Value {
        if self.is_empty() {
            return Value::Null;
        }
        self.iter().cloned().collect()
    }
}

impl KeyValue for Confirm {
    fn read(section: &Section, key: &Key) -> Self {
        // A single word may be meant as a flag: yes, no, none.
        let is_sentence = |text: &str| text.contains(|c: char| !c.is_ascii_alphabetic());
        match section.map.get(key.name) {
            None | Some(Value::Bool(false)) => Self::No,
            Some(Value::Bool(true)) => Self::Yes,
            Some(Value::String(text)) if !text.trim().is_empty() && is_sentence(text) => {
                Self::Sentence(text.clone())
            }
            Some(_) => {
                section.mismatch("confirm", "true, false or a sentence to ask");
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
    let name = |index: usize| tool.parameters[index].name.as_str();
    let command = tool.command.iter().map(|word| word.written(name));
    // The model gets the same description of the expanded form, also where that would be described by
    // another template.
    let template = one_line(&tool.command, &tool.appended, &tool.parameters);
    let template = Some(&tool.template).filter(|original| **original != template);
    let render = |(index, parameter)| {
        let position = tool.appended.iter().position(|appended| *appended == index);
        render_parameter(parameter, position, &tool.input)
    };
    let parameters: Vec<Value> = tool.parameters.iter().enumerate().map(render).collect();
    let schema = match &tool.input {
        InputForm::Schema(schema) => Some(schema),
        InputForm::Parameters | InputForm::Json => None,
    };
    let mut map = without_nulls(json!({
        "name": tool.name,
        "description": tool.description.as_ref().or(template),
        "command": command.collect::<Vec<_>>(),
        "parameters": Some(parameters).filter(|parameters| !parameters.is_empty()),
        "input": (tool.input != InputForm::Parameters).then_some("json"),
        "input_schema": schema,
    }));
    let keys = tool.record_keys().into_iter();
    map.extend(keys.filter(|(_, value)| *value != Value::Bool(false)));
    map.extend(without_nulls(json!({
        "on_resume": effect::render_on_resume(tool),
        "effect": (!tool.has_effect).then_some("none"),
        "subagent": tool.subagent.map(|_| true),
        "later": tool.later.as_ref().map(render_later),
    })));
    // As in the manual, these come last.
    for key in ["confirm", "pass_api_key"] {
        if let Some(value) = map.shift_remove(key) {
            map.insert(key.to_owned(), value);
        }
    }
    map.into()
}

fn render_parameter(parameter: &Parameter, position: Option<usize>, input: &InputForm) -> Value {
    let is_usual = parameter.required != parameter.default.is_some();
    let way = (*input == InputForm::Parameters).then(|| parameter.inject.name());
    let option = match &parameter.inject {
        Inject::Option(option) => Some(option),
        _ => None,
    };
    let mut map = without_nulls(json!({
        "name": parameter.name,
        "type": parameter.kind.name(),
        "description": parameter.description,
        "enum": parameter.given_choices(),
        "required": Some(parameter.required).filter(|_| !is_usual),
        "default": parameter.default,
        "inject_as": way,
        "option_name": option,
        "position": position,
    }));
    map.extend(parameter.extra.clone());
    map.into()
}

#[cfg(test)]
mod tests;
