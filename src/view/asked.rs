//! The calls that a journal records, as what was asked for.

use crate::config::tool::shown::{call_line, without_wrapper};
use crate::record::event::Line;
use crate::text::shell::unquoted;
use crate::text::shorten::in_short;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// As much of a command is shown.
pub(crate) const COMMAND_WIDTH: usize = 300;

/// What the configuration of a start says about how tools are called.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct KnownTools {
    tools: Vec<KnownTool>,
    wrapper: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct KnownTool {
    name: String,
    effect: Option<String>,
    /// In place of the agent's.
    wrapper: Option<Vec<String>>,
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
    pub(crate) fn of_start(line: &Line<'_>) -> Self {
        let config = line.config.map(|config| serde_json::from_str(config.get()));
        config.and_then(Result::ok).unwrap_or_default()
    }

    fn named(&self, name: &str) -> Option<&KnownTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// True if a tool says that it has no effect.
    pub(crate) fn is_harmless(&self, name: &str) -> bool {
        self.named(name)
            .is_some_and(|tool| tool.effect.as_deref() == Some("none"))
    }

    /// What a call that a line records asks for; of a call without a command, the tool and its arguments.
    pub(crate) fn shown(&self, line: &Line<'_>) -> String {
        let name = line.tool_name.as_deref().unwrap_or_default();
        let Some(command) = line.resolved_command.as_deref() else {
            let arguments = line.tool_args.map_or("", RawValue::get);
            return in_short(&format!("{name} {arguments}"), COMMAND_WIDTH);
        };
        let Some(argv) = unquoted(command) else {
            return in_short(command, COMMAND_WIDTH);
        };
        let tool = self.named(name);
        let wrapper = tool.and_then(|tool| tool.wrapper.as_ref());
        let argv = without_wrapper(&argv, wrapper.unwrap_or(&self.wrapper));
        let stdin = tool.and_then(|tool| tool.stdin(line));
        call_line(argv, stdin.as_deref(), COMMAND_WIDTH)
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
