//! The actions of a run that have an effect, each with its state.
//!
//! Unaware of where the events come from and of how the list is printed. An action has an effect unless its tool
//! says `effect: none`.

use crate::record::event::{CheckFinding, DENIED, EventKind, Line, RecordedCall};
use crate::record::state::decoded;
use crate::text::names::named_enum;
use crate::view::asked::KnownTools;
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::mem::take;

/// An action with an effect.
#[derive(Debug, Serialize)]
pub(crate) struct EffectRow {
    pub iteration: u64,
    /// When it was begun, or refused.
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
    /// Those of the last start.
    tools: KnownTools,
}

impl EffectList {
    /// Takes note of an event.
    pub(crate) fn add(&mut self, line: &Line<'_>) {
        match line.kind {
            EventKind::EngineStart => {
                self.tools = KnownTools::of_start(line);
            }
            EventKind::Thought => {
                self.newest = self.rows.len();
                let calls = line.calls().into_iter();
                let pair = |call: RecordedCall<'_>| (call.id.into(), call.function.name.into());
                self.calls = calls.map(pair).collect();
            }
            EventKind::ActionRequest => self.put(line, EffectState::Open),
            EventKind::ActionCheck
                if line.status.as_deref() == Some(CheckFinding::Happened.name()) =>
            {
                self.put(line, EffectState::Checked);
            }
            EventKind::ActionDeferred => self.put(line, EffectState::Deferred),
            EventKind::ActionResult => self.result(line),
            EventKind::HumanInputRequest => self.put(line, EffectState::Waiting),
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

    fn result(&mut self, line: &Line<'_>) {
        let is_begun = |row: &EffectRow| row.state != EffectState::Waiting;
        let state = self
            .row(line)
            .filter(|row| is_begun(row))
            .map(|row| row.state);
        let has_code = line.exit_code.is_some();
        match state {
            Some(EffectState::Checked) => {}
            Some(_) if has_code => self.put(line, EffectState::Done),
            Some(_) => self.put(line, EffectState::Unknown),
            None => {
                let said = line.observation_content.map_or("", RawValue::get);
                if self.row(line).is_some() || decoded(said).starts_with(DENIED) {
                    self.put(line, EffectState::Denied);
                }
            }
        }
    }

    fn row(&mut self, line: &Line<'_>) -> Option<&mut EffectRow> {
        let id = line.action_id.as_deref();
        let mut rows = self.rows[self.newest..].iter_mut();
        rows.find(|row| Some(row.action_id.as_str()) == id)
    }

    /// Sets the state of the action that an event is about.
    fn put(&mut self, line: &Line<'_>, state: EffectState) {
        let text = |from: &Option<Cow<'_, str>>| from.as_deref().map(str::to_owned);
        if self.row(line).is_none() {
            let action_id = text(&line.action_id).unwrap_or_default();
            let mut calls = self.calls.iter();
            let called = calls
                .find(|(id, _)| *id == action_id)
                .map(|(_, name)| name.clone());
            let tool_name = text(&line.tool_name).or(called).unwrap_or_default();
            // The question that the model asks is no action.
            if self.tools.is_harmless(&tool_name) || tool_name == "ask_human" {
                return;
            }
            self.rows.push(EffectRow {
                iteration: line.iteration.unwrap_or(0),
                timestamp: text(&line.timestamp).unwrap_or_default(),
                action_id,
                tool_name,
                state,
                exit_code: None,
                command: String::new(),
                asked: String::new(),
                call_id: None,
                execution_ref: None,
            });
        }
        let asked = line
            .resolved_command
            .as_ref()
            .map(|_| self.tools.shown(line));
        if let Some(row) = self.row(line) {
            row.state = state;
            row.asked = asked.unwrap_or(take(&mut row.asked));
            row.exit_code = line.exit_code;
            row.call_id = text(&line.call_id).or(row.call_id.take());
            row.execution_ref = text(&line.execution_ref).or(row.execution_ref.take());
            if let Some(command) = &line.resolved_command {
                row.command = command.to_string();
            }
        }
    }
}
