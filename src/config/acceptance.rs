//! The checks that a final answer must pass before it counts: a JSON Schema, and commands that must agree with it.
//!
//! Unaware of how an answer is checked.

use crate::config::section::{Section, describe_value};
use crate::config::tool::argv_template::parse_fixed_word;
use crate::config::tool::definition::TimedCommand;
use crate::error::reason;
use crate::text::json::{self, parser_words};
use crate::text::schema::JsonSchema;
use crate::unix::files;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;

/// The number of times that a refused answer is sent back, unless the agent says otherwise.
pub(super) const REPAIRS: u64 = 2;

/// The checks of a final answer; none of them: every answer counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acceptance {
    pub schema: Option<OutputSchema>,
    /// In the order in which they are asked.
    pub commands: Vec<TimedCommand>,
    /// The number of times that a refused answer is sent back.
    pub repairs: u64,
}

/// The schema of the answer, as it was when the agent was loaded.
#[derive(Clone, Debug)]
pub(crate) struct OutputSchema {
    /// The file as the agent names it.
    pub name: String,
    pub schema: JsonSchema,
}

impl Acceptance {
    pub(crate) fn has_checks(&self) -> bool {
        self.schema.is_some() || !self.commands.is_empty()
    }

    pub(super) fn read(section: &Section, schema: Option<OutputSchema>) -> Self {
        Self {
            schema,
            commands: read_commands(section),
            repairs: section.read_count("repairs").unwrap_or(REPAIRS),
        }
    }

    /// The commands in the form in which they are written.
    pub(crate) fn commands_json(&self) -> Value {
        let commands = self.commands.iter();
        commands.map(|accept| accept.record("command")).collect()
    }
}

/// The commands under `accept:`.
fn read_commands(section: &Section) -> Vec<TimedCommand> {
    const EXPECTED: &str = "a list such as [{command: [make, test]}]";
    let mut commands = Vec::new();
    let list = section.read("accept", EXPECTED, Value::as_array);
    for (index, item) in list.into_iter().flatten().enumerate() {
        let at = section.path_to_item("accept", index);
        let Some(map) = item.as_object() else {
            let (name, found) = (section.name("accept"), describe_value(item));
            let message = format!("{name}: expected {EXPECTED}, found {found} in it");
            section.error_at(at, message);
            continue;
        };
        let entry = section.inner(map, at.clone()).within("accept");
        // A misspelt check would be none.
        entry.refuse_unknown_keys(&["command", "timeout_ms"]);
        let timeout_ms = entry.read_count("timeout_ms");
        let words = entry.read_texts("command");
        let is_missing = words.as_ref().is_none_or(Vec::is_empty);
        if is_missing && map.get("command").is_none_or(Value::is_array) {
            section.error_at(at, "accept: needs a command, as in {command: [make, test]}");
        }
        commands.push(TimedCommand {
            command: words.into_iter().flatten().map(parse_fixed_word).collect(),
            timeout_ms,
        });
    }
    commands
}

/// The schema in a file.
///
/// # Errors
/// The reason why it is no schema, with the place in it.
pub(super) fn read_schema(path: &Path, name: &str) -> Result<JsonSchema, String> {
    let text = files::read_text(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{name} does not exist; create it"),
        _ => format!("{name}: {}", reason(&error)),
    })?;
    let document = json::after_mark(&text);
    if document.len() <= json::LARGEST_SCHEMA
        && let Err(error) = json::check(document)
    {
        let (line, column) = (error.line(), error.column());
        let why = parser_words(&error);
        return Err(format!("{name}:{line}:{column}: not valid JSON: {why}"));
    }
    JsonSchema::parse(document.as_bytes()).map_err(|why| format!("{name}: {why}"))
}
