//! What a final answer must pass before it counts: a JSON Schema, and commands that must agree with it.
//!
//! Unaware of how an answer is checked.

use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::parse_fixed_word;
use crate::config::tool::definition::Word;
use crate::error::reason;
use crate::text::json::{self, parser_words};
use crate::text::yaml::Step;
use crate::unix::files;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::Path;

/// How often a refused answer is sent back, unless the agent says otherwise.
pub(super) const REPAIRS: u64 = 2;

/// Bytes of a schema document, at most.
pub(crate) const LARGEST_SCHEMA: usize = 1 << 20;

/// The checks of a final answer; none of them: every answer counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acceptance {
    pub schema: Option<OutputSchema>,
    /// In the order in which they are asked.
    pub commands: Vec<AcceptCommand>,
    /// How often a refused answer is sent back.
    pub repairs: u64,
}

/// The schema of the answer, as it was when the agent was loaded.
#[derive(Clone, Debug)]
pub(crate) struct OutputSchema {
    /// The file as the agent names it.
    pub name: String,
    /// JSON; whether it is a schema is not known yet.
    pub text: String,
    /// Where the agent names it: the file, and the line if it is known.
    pub place: (String, Option<usize>),
}

/// A command that must agree with the answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptCommand {
    pub command: Vec<Word>,
    /// 0 is no limit; none is that of the agent's tools.
    pub timeout_ms: Option<u64>,
}

impl Acceptance {
    pub(crate) fn has_checks(&self) -> bool {
        self.schema.is_some() || !self.commands.is_empty()
    }

    pub(super) fn read(
        section: &Section<'_>,
        schema: Option<OutputSchema>,
        out: &mut Diagnostics,
    ) -> Self {
        Self {
            schema,
            commands: read_commands(section, out),
            repairs: section.read_count("repairs", out).unwrap_or(REPAIRS),
        }
    }

    /// The commands in the form in which they are written.
    pub(crate) fn commands_json(&self) -> Value {
        let commands = self.commands.iter().map(|accept| {
            let words = accept.command.iter().map(|word| word.written(|_| ""));
            let mut entry = json!({"command": words.collect::<Vec<_>>()});
            if let Some(timeout) = accept.timeout_ms {
                entry["timeout_ms"] = timeout.into();
            }
            entry
        });
        commands.collect()
    }
}

/// The commands under `accept:`.
pub(crate) fn read_commands(section: &Section<'_>, out: &mut Diagnostics) -> Vec<AcceptCommand> {
    let name = section.name("accept");
    let expected = format!("{name}: expected a list such as [{{command: [make, test]}}], found");
    let mut commands = Vec::new();
    let list = match section.map.get("accept") {
        None => return commands,
        Some(Value::Array(list)) => list,
        Some(other) => {
            let found = describe_value(other);
            out.error(section.path_to("accept"), format!("{expected} {found}"));
            return commands;
        }
    };
    for (index, item) in list.iter().enumerate() {
        let mut at = section.path_to("accept");
        at.push(Step::Item(index));
        let Some(map) = item.as_object() else {
            let found = describe_value(item);
            out.error(at, format!("{expected} {found} in it"));
            continue;
        };
        let entry = Section::new(map, at.clone()).within("accept");
        // A misspelt check would be none.
        entry.refuse_unknown_keys(&["command", "timeout_ms"], out);
        let timeout_ms = entry.read_count("timeout_ms", out);
        let words = entry.read_texts("command", out);
        let is_missing = words.as_ref().is_none_or(Vec::is_empty);
        if is_missing && map.get("command").is_none_or(Value::is_array) {
            out.error(at, "accept: needs a command, as in {command: [make, test]}");
        }
        commands.push(AcceptCommand {
            command: words.into_iter().flatten().map(parse_fixed_word).collect(),
            timeout_ms,
        });
    }
    commands
}

/// The text of a schema's file.
///
/// # Errors
/// Why it cannot be one, with the place in it.
pub(super) fn read_schema(path: &Path, name: &str) -> Result<String, String> {
    let text = files::read_text(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{name} does not exist; create it"),
        _ => format!("{name}: {}", reason(&error)),
    })?;
    if text.len() > LARGEST_SCHEMA {
        let length = text.len();
        return Err(format!(
            "{name}: {length} bytes are too many; the limit is {LARGEST_SCHEMA}"
        ));
    }
    let text = json::after_mark(&text);
    match json::check(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let why = parser_words(&error);
            Err(format!("{name}:{line}:{column}: not valid JSON: {why}"))
        }
    }
}
