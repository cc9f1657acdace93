//! The model's values in a tool's placeholders: one argv, and perhaps bytes for stdin.
//!
//! Every value is one argv element or part of one, byte for byte. Values are never parsed or expanded.
//! Unaware of how the argv is executed.

use crate::config::tool::definition::{
    Inject, InputForm, Parameter, ParameterType, Piece, Tool, Word, is_script, text_of,
};
use crate::text::json::{minified, parser_message, parser_words};
use crate::text::suggestion::nearest;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// The values of the engine's variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseDirs<'p> {
    /// The agent's directory, absolute.
    pub home: &'p str,
    /// The workspace, absolute.
    pub cwd: &'p str,
}

/// A command that can be executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BoundCall {
    /// Not empty, without NUL bytes; the tool's wrapper goes before it.
    pub argv: Vec<String>,
    /// None is an empty standard input, `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// The arguments as the model gave them, without defaults.
    pub arguments: Value,
}

/// Puts the model's arguments, a JSON object in text or nothing at all, into a tool's command.
///
/// # Errors
/// Every fault of the arguments, for the model to read.
pub(crate) fn bind_arguments(
    tool: &Tool,
    arguments: &str,
    places: &BaseDirs,
) -> Result<BoundCall, String> {
    let mut entries = parse(arguments).map_err(|cause| {
        let quote = cut(arguments, 500);
        format!(
            "tool '{}' was not run: its arguments are not a JSON object ({}); they were: {quote}",
            tool.name,
            cut(&cause, 200)
        )
    })?;
    if let InputForm::Schema(_) = tool.input {
        return Ok(entries.into_call(tool, &Map::new(), places));
    }
    let mut problems = unknown(tool, &entries);
    let values: Vec<Option<String>> = tool
        .parameters
        .iter()
        .map(|parameter| value(parameter, &entries, &mut problems))
        .collect();
    if !problems.is_empty() {
        let list = problems.join("\n- ");
        return Err(format!("tool '{}' was not run:\n- {list}", tool.name));
    }
    if tool.input == InputForm::Json {
        let is_absent = |p: &&Parameter| entries.get(&p.name).is_none_or(|v| v.get() == "null");
        let absent = tool.parameters.iter().filter(is_absent);
        let defaults: Map<String, Value> = absent
            .filter_map(|p| Some((p.name.clone(), p.default.clone()?)))
            .collect();
        entries.0.retain(|(name, _)| !defaults.contains_key(name));
        return Ok(entries.into_call(tool, &defaults, places));
    }
    let argv = argv(tool, &values, places);
    let stdin = tool
        .parameters
        .iter()
        .position(|p| p.inject == Inject::Stdin)
        .and_then(|index| values.into_iter().nth(index).flatten());
    Ok(BoundCall {
        argv,
        stdin: stdin.map(String::into_bytes),
        arguments: entries.into_value(),
    })
}

/// Words, such as a wrapper's, that hold no parameters.
pub(crate) fn fill_words(words: &[Word], places: &BaseDirs) -> Vec<String> {
    words
        .iter()
        .filter_map(|word| filled(word, &[], places))
        .collect()
}

/// The top level of a JSON object; the values as they were written.
///
/// If a name occurs twice, the last value counts.
struct Entries<'j>(Vec<(String, &'j RawValue)>);

impl<'de: 'j, 'j> Deserialize<'de> for Entries<'j> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(Vec::new()))
    }
}

impl<'de: 'j, 'j> Visitor<'de> for Entries<'j> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some(entry) => entry.1 = value,
                None => self.0.push((name, value)),
            }
        }
        Ok(self)
    }
}

impl Entries<'_> {
    /// A call whose stdin is these entries.
    fn into_call(self, tool: &Tool, defaults: &Map<String, Value>, places: &BaseDirs) -> BoundCall {
        BoundCall {
            argv: argv(tool, &[], places),
            stdin: Some(self.object(defaults).into_bytes()),
            arguments: self.into_value(),
        }
    }

    /// One JSON object, each value as it was written but for white space; after them the defaults.
    fn object(&self, defaults: &Map<String, Value>) -> String {
        let given = self
            .0
            .iter()
            .map(|(name, value)| (name, minified(value.get())));
        let defaults = defaults
            .iter()
            .map(|(name, value)| (name, value.to_string()));
        let entries: Vec<String> = given
            .chain(defaults)
            .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
            .collect();
        format!("{{{}}}", entries.join(","))
    }

    /// The entries; a value with half of a character in it is a string.
    fn into_value(self) -> Value {
        let entries = self.0.into_iter();
        Value::Object(entries.map(|(name, value)| (name, lossy(value))).collect())
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        let entry = self.0.iter().find(|(known, _)| known == name);
        entry.map(|(_, value)| *value)
    }
}

fn parse(arguments: &str) -> Result<Entries<'_>, String> {
    if arguments.trim().is_empty() {
        return Ok(Entries(Vec::new()));
    }
    let cause = match serde_json::from_str(arguments) {
        Ok(entries) => return Ok(entries),
        Err(error) => parser_message(&error),
    };
    let cause = match serde_json::from_str::<&RawValue>(arguments) {
        Err(_) => cause,
        Ok(_) => match arguments.trim_start().as_bytes() {
            [b'"', ..] => "they are a string".to_owned(),
            [b'[', ..] => "they are an array".to_owned(),
            [b'{', ..] => cause,
            _ => "they are a single value".to_owned(),
        },
    };
    Err(cause)
}

fn unknown(tool: &Tool, entries: &Entries) -> Vec<String> {
    let known: Vec<&str> = tool.parameters.iter().map(|p| p.name.as_str()).collect();
    let listed = if known.is_empty() {
        "the tool has no parameters".to_owned()
    } else {
        format!("the parameters are '{}'", known.join("', '"))
    };
    let names = entries.0.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| !known.contains(name))
        .map(|name| {
            let meant = nearest(name, known.iter().copied());
            let hint = meant.map_or_else(String::new, |near| format!("did you mean '{near}'? "));
            format!("unknown parameter '{}': {hint}{listed}", cut(name, 64))
        })
        .collect()
}

/// The value of a parameter as the command gets it; none if it is absent.
fn value(parameter: &Parameter, entries: &Entries, problems: &mut Vec<String>) -> Option<String> {
    let name = &parameter.name;
    let kind = entries
        .get(name)
        .map_or("", |value| match value.get().as_bytes() {
            [b'[', ..] => "an array",
            [b'{', ..] => "an object",
            _ => "",
        });
    if parameter.kind == ParameterType::String && !kind.is_empty() {
        problems.push(format!("parameter '{name}' must be a string, not {kind}"));
        return None;
    }
    let given = match entries.get(name).map(written).transpose() {
        Ok(given) => given.flatten(),
        Err(cause) => {
            problems.push(format!(
                "parameter '{name}' is not valid JSON: {}",
                parser_words(&cause)
            ));
            return None;
        }
    };
    match &given {
        Some(text) if !parameter.admits(text) => {
            let values: Vec<String> = parameter.choices.iter().map(Value::to_string).collect();
            let choices = values.join(", ");
            let text = Value::from(cut(text, 200));
            problems.push(format!(
                "parameter '{name}' must be one of {choices}, not {text}"
            ));
        }
        None if parameter.required => {
            let kind = parameter.kind.name();
            problems.push(format!("required parameter '{name}' ({kind}) is missing"));
        }
        _ => {}
    }
    let text = given.or_else(|| parameter.default.as_ref().map(text_of));
    if parameter.inject != Inject::Stdin && text.as_ref().is_some_and(|text| text.contains('\0')) {
        problems.push(format!(
            "parameter '{name}' holds a NUL byte, which no program argument can; leave it out"
        ));
    }
    text
}

/// A value as a command gets it: a string as it is, null as absent, a number with the digits that
/// were written.
fn written(value: &RawValue) -> Result<Option<String>, serde_json::Error> {
    let text = value.get();
    Ok(match text.as_bytes() {
        [b'"', ..] => Some(serde_json::from_str(text)?),
        [b'n', ..] => None,
        _ => Some(minified(text)),
    })
}

fn lossy(value: &RawValue) -> Value {
    let text = value.get();
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn argv(tool: &Tool, values: &[Option<String>], places: &BaseDirs) -> Vec<String> {
    let words = tool.command.iter();
    let mut argv: Vec<String> = words
        .filter_map(|word| filled(word, values, places))
        .collect();
    let keeps_positions = is_script(&tool.command);
    for &index in &tool.appended {
        match (&tool.parameters[index].inject, values[index].clone()) {
            (Inject::Option(option), Some(value)) => argv.extend([option.clone(), value]),
            (_, Some(value)) => argv.push(value),
            (Inject::Argument, None) if keeps_positions => argv.push(String::new()),
            (_, None) => {}
        }
    }
    argv
}

/// A word with its values; none if one of them is absent.
fn filled(word: &Word, values: &[Option<String>], places: &BaseDirs) -> Option<String> {
    let piece = |piece| match piece {
        &Piece::Param(index) => values.get(index)?.as_deref(),
        Piece::Text(text) => Some(text.as_str()),
        Piece::Home => Some(places.home),
        Piece::Cwd => Some(places.cwd),
    };
    word.0.iter().map(piece).collect()
}

/// At most `most` characters of a text, and how long it was if some are missing.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
