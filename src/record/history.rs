//! The state from one event of a run to the next that readers need to show it: the tools of the last start, and which
//! answers of people are not secret.
//!
//! Unaware of how anything is shown. Calls are shown as what was asked for.

use crate::record::event::recorded::{
    ActionRequest, ActionResult, HumanInputReceived, HumanInputRequest,
};
use crate::record::event::{InputType, Line, Recorded};
use crate::text::call_line::{call_line, without_wrapper};
use crate::text::shell::unquoted;
use crate::text::shorten::in_short;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashSet;

/// Columns of a command that are shown.
pub(crate) const COMMAND_WIDTH: usize = 300;

/// Shown instead of a secret answer.
pub(crate) const NOT_SHOWN: &str = "(an answer that is not shown)";

/// The state of a run at an event.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The ones of the last start.
    pub tools: Vec<KnownTool>,
    wrapper: Vec<String>,
    /// Questions whose answers may be shown, by their ids.
    questions: HashSet<String>,
    /// The same by the ids of the calls that asked them.
    calls: HashSet<String>,
}

/// A tool as the configuration of a start has it.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(crate) struct KnownTool {
    pub name: String,
    effect: Option<String>,
    pub kind: Option<String>,
    /// The parameter with the file that a call is about.
    pub path: Option<String>,
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

impl History {
    /// Takes note of the next event.
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        match &line.event {
            Recorded::EngineStart(start) => {
                let config = start.config();
                self.tools = config.get("tools").read_or_default();
                self.wrapper = config.get("wrapper").read_or_default();
            }
            Recorded::HumanInputRequest(question) => self.note_question(question, &line.action_id),
            _ => {}
        }
    }

    fn note_question(&mut self, question: &HumanInputRequest<'_>, call: &str) {
        let is_password = question.input_type == Some(InputType::Password);
        let is_secret = question.sensitive != Some(false) || is_password;
        // Older engines record no ids: the newest question counts.
        for (ids, id) in [
            (&mut self.questions, &*question.request_id),
            (&mut self.calls, call),
        ] {
            if is_secret {
                ids.remove(id);
            } else {
                ids.insert(id.to_owned());
            }
        }
    }

    /// The tool of this name.
    pub(crate) fn tool(&self, name: &str) -> Option<&KnownTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// True if a tool says that it has no effect.
    pub(crate) fn is_harmless(&self, name: &str) -> bool {
        let tool = self.tool(name);
        tool.is_some_and(|tool| tool.effect.as_deref() == Some("none"))
    }

    /// What a call asks for; of a call without a command, the tool and its arguments.
    pub(crate) fn asked(&self, request: &ActionRequest<'_>) -> String {
        let name = &*request.tool_name;
        let Some(command) = request.resolved_command.get() else {
            let arguments = request.tool_args.get().unwrap_or_default();
            return in_short(&format!("{name} {arguments}"), COMMAND_WIDTH);
        };
        let Some(argv) = unquoted(command) else {
            return in_short(command, COMMAND_WIDTH);
        };
        let tool = self.tool(name);
        let wrapper = tool.and_then(|tool| tool.wrapper.as_ref());
        let argv = without_wrapper(&argv, wrapper.unwrap_or(&self.wrapper));
        let stdin = tool.and_then(|tool| tool.stdin(request));
        call_line(argv, stdin.as_deref(), COMMAND_WIDTH)
    }

    /// A person's answer, if it may be shown.
    pub(crate) fn answer<'l>(&self, answer: &'l HumanInputReceived<'_>) -> Option<&'l str> {
        self.questions
            .contains(&*answer.request_id)
            .then_some(&*answer.response)
    }

    /// True if the result of a call may be shown: that of the built-in tool is the answer, unless no person was
    /// asked.
    pub(crate) fn is_shown(&self, line: &Line<'_>, result: &ActionResult<'_>) -> bool {
        let is_answer = &*result.tool_name == "ask_human" && result.is_success();
        !is_answer || self.calls.contains(&*line.action_id)
    }

    /// The text that the model received as the result of a call, unless it is secret.
    pub(crate) fn observation<'l>(
        &self,
        line: &Line<'_>,
        result: &ActionResult<'l>,
    ) -> Cow<'l, str> {
        if self.is_shown(line, result) {
            result.observation_content.text()
        } else {
            NOT_SHOWN.into()
        }
    }
}

impl KnownTool {
    /// The text that the call got on its standard input.
    fn stdin(&self, request: &ActionRequest<'_>) -> Option<String> {
        let stdin = self.parameters.iter().find(|it| it.inject_as == "stdin")?;
        let arguments: Map<String, Value> = request.tool_args.read()?;
        arguments.get(&stdin.name)?.as_str().map(str::to_owned)
    }
}
