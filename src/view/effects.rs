//! The actions of a run that have an effect, each with its state.
//!
//! Unaware of where the events come from and of how the list is printed. An action has an effect unless its tool
//! says `effect: none`.

use crate::record::event::recorded::ActionResult;
use crate::record::event::{CheckFinding, DENIED, Line, Recorded, RecordedCall};
use crate::record::history::History;
use crate::text::names::named_enum;
use serde::Serialize;

/// An action with an effect.
#[derive(Debug, Serialize)]
pub(crate) struct EffectRow {
    pub iteration: u64,
    /// Time when it was begun, or refused.
    pub timestamp: String,
    pub action_id: String,
    pub tool_name: String,
    pub state: EffectState,
    /// The exit code, if one is known.
    pub exit_code: Option<i64>,
    /// The command as it was begun; empty if it never was.
    pub command: String,
    /// What of it was asked for.
    #[serde(skip)]
    pub asked: String,
    pub call_id: Option<String>,
    /// A person has let it run for the rest of the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// The directory of what was recorded of it, from the run's directory.
    pub execution_ref: Option<String>,
}

named_enum! {
    /// What is known of an action.
    pub(crate) enum EffectState {
        /// It has ended, and its exit code is known.
        Done = "done",
        /// A guard or a person refused it.
        Denied = "denied",
        /// The engine died meanwhile; whether it happened is unknown.
        Unknown = "unknown",
        /// The engine died meanwhile, and the tool's check said that it had happened.
        Checked = "checked",
        Running = "running",
        /// It has begun something that ends without it.
        Deferred = "deferred",
        /// The engine died or was ended meanwhile; the next start decides about it.
        Open = "open",
        /// A person has been asked whether it may run.
        Waiting = "waiting",
    }
}

/// The list, as far as the events have been read.
#[derive(Debug, Default)]
pub(crate) struct EffectList {
    rows: Vec<EffectRow>,
    /// The first row of the newest answer of the model.
    newest: usize,
    /// Calls of that answer: id and tool.
    calls: Vec<(String, String)>,
    history: History,
}

impl EffectList {
    /// Takes note of an event.
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        self.history.add(line);
        match &line.event {
            Recorded::Thought(thought) => {
                self.newest = self.rows.len();
                let calls = thought.calls().into_iter();
                self.calls = calls
                    .map(|call: RecordedCall<'_>| (call.id.into(), call.function.name.into()))
                    .collect();
            }
            Recorded::ActionRequest(request) => {
                let asked = self.history.asked(request);
                let was_asked = self.row(line).is_some();
                let same = |row: &&EffectRow| {
                    row.always && row.tool_name == *request.tool_name && row.asked == asked
                };
                let always = !was_asked && self.rows.iter().any(|row| same(&row));
                if let Some(row) = self.put(line, &request.tool_name, EffectState::Open) {
                    row.call_id = request.call_id.owned().or(row.call_id.take());
                    row.always |= always;
                    if let Some(command) = request.resolved_command.owned() {
                        (row.asked, row.command) = (asked, command);
                    }
                }
            }
            Recorded::ActionCheck(check) if &*check.status == CheckFinding::Happened.name() => {
                if let Some(row) = self.put(line, &check.tool_name, EffectState::Checked) {
                    row.exit_code = check.exit_code;
                }
            }
            Recorded::ActionDeferred(_) => {
                self.put(line, "", EffectState::Deferred);
            }
            Recorded::ActionResult(result) => self.result(line, result),
            Recorded::HumanInputRequest(question) => {
                self.put(line, &question.tool_name, EffectState::Waiting);
            }
            Recorded::HumanInputReceived(answer) if answer.always == Some(true) => {
                if let Some(row) = self.row(line) {
                    row.always = true;
                }
            }
            _ => {}
        }
    }

    /// The rows in order. `live` says that a process works on the run.
    pub(crate) fn into_rows(mut self, live: bool) -> Vec<EffectRow> {
        for row in &mut self.rows[self.newest..] {
            if live && row.state == EffectState::Open {
                row.state = EffectState::Running;
            }
        }
        self.rows
    }

    fn result(&mut self, line: &Line<'_>, result: &ActionResult<'_>) {
        let state = match self.row(line).map(|row| row.state) {
            Some(EffectState::Checked) => return,
            None | Some(EffectState::Waiting) => {
                let said = result.observation_content.text();
                if self.row(line).is_none() && !said.starts_with(DENIED) {
                    return;
                }
                EffectState::Denied
            }
            Some(_) if result.exit_code.is_some() => EffectState::Done,
            Some(_) => EffectState::Unknown,
        };
        if let Some(row) = self.put(line, &result.tool_name, state) {
            row.exit_code = result.exit_code;
        }
    }

    fn row(&mut self, line: &Line<'_>) -> Option<&mut EffectRow> {
        self.rows[self.newest..]
            .iter_mut()
            .find(|row| line.action_id.get() == Some(&row.action_id))
    }

    /// Sets the state of the action that an event is about. Returns its row, if it has one.
    fn put(&mut self, line: &Line<'_>, tool: &str, state: EffectState) -> Option<&mut EffectRow> {
        if self.row(line).is_none() {
            let action_id = line.action_id.to_string();
            let called = self.calls.iter().find(|(id, _)| *id == action_id);
            let tool = match called {
                Some((_, name)) if tool.is_empty() => name,
                _ => tool,
            };
            // The question that the model asks is no action.
            if self.history.is_harmless(tool) || tool == "ask_human" {
                return None;
            }
            self.rows.push(EffectRow {
                iteration: line.iteration.unwrap_or(0),
                timestamp: line.timestamp.to_string(),
                action_id,
                tool_name: tool.to_owned(),
                state,
                exit_code: None,
                command: String::new(),
                asked: String::new(),
                call_id: None,
                always: false,
                execution_ref: None,
            });
        }
        let row = self.row(line)?;
        row.state = state;
        row.exit_code = None;
        row.execution_ref = line.execution_ref.owned().or(row.execution_ref.take());
        Some(row)
    }
}
