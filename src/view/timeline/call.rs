//! The command of a call in a line of the timeline, with the beginning of its standard input.

use crate::config::tool::shown::{OWN_TOOLS, first_line, is_own_tool};
use crate::record::event::Line;
use crate::text::shell::shell_quoted;
use crate::text::shorten::in_short;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// As much of a command is shown.
pub(super) const COMMAND_WIDTH: usize = 300;

/// What the configuration of a start says about how tools are called.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct KnownTools {
    tools: Vec<KnownTool>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct KnownTool {
    name: String,
    command: Vec<String>,
    parameters: Vec<KnownParameter>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct KnownParameter {
    name: String,
    inject_as: String,
}

impl KnownTools {
    /// The tools of the start that a line records; none if it records them in another form.
    pub(super) fn of_start(line: &Line<'_>) -> Self {
        let config = line.config.map(|config| serde_json::from_str(config.get()));
        config.and_then(Result::ok).unwrap_or_default()
    }

    /// The command of a call that a line records; of a call without one, the tool and its arguments.
    pub(super) fn shown(&self, line: &Line<'_>) -> String {
        let name = line.tool_name.as_deref().unwrap_or_default();
        let Some(command) = line.resolved_command.as_deref() else {
            let arguments = line.tool_args.map_or("", RawValue::get);
            return in_short(&format!("{name} {arguments}"), COMMAND_WIDTH);
        };
        let Some(tool) = self.tools.iter().find(|tool| tool.name == name) else {
            return in_short(command, COMMAND_WIDTH);
        };
        let command = match is_own_tool(&tool.command) {
            true => own_part(command),
            false => Cow::Borrowed(command),
        };
        let command = in_short(&command, COMMAND_WIDTH);
        match tool.stdin(line) {
            Some(stdin) => format!("{command} <<< {}", first_line(&stdin)),
            None => command,
        }
    }
}

impl KnownTool {
    /// The text that the call got on its standard input.
    fn stdin(&self, line: &Line<'_>) -> Option<String> {
        let stdin = self.parameters.iter().find(|it| it.inject_as == "stdin")?;
        let arguments: Value = serde_json::from_str(line.tool_args?.get()).ok()?;
        arguments.get(&stdin.name)?.as_str().map(str::to_owned)
    }
}

/// The command of one of delta's own tools, without the wrapper before it.
fn own_part(command: &str) -> Cow<'_, str> {
    let words = shlex::split(command).unwrap_or_default();
    let at = words
        .windows(OWN_TOOLS.len())
        .position(|pair| pair == OWN_TOOLS);
    match at {
        Some(at) => Cow::Owned(shell_quoted(&words[at + OWN_TOOLS.len()..])),
        None => Cow::Borrowed(command),
    }
}
