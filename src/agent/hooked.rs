//! The moments at which hooks run, and what each may change.
//!
//! Hooks change attention, never memory: nothing that is in the journal is rewritten.

use super::{Ending, Engine};
use crate::action::{Done, full_argv};
use crate::bind::{Bound, bind, shell_quoted};
use crate::config::{Hook, HookEvent};
use crate::error::Result;
use crate::event::Event;
use crate::hooks::{self, Execution, Input};
use crate::json::{self, Object};
use crate::tool::Tool;
use serde_json::Value;

/// What a guard says about a call.
pub(super) enum Verdict {
    /// It may run, perhaps with other arguments.
    Go(Option<String>),
    /// It may not, and why.
    Denied(String),
}

impl Engine<'_> {
    pub(super) fn has_hook(&self, event: HookEvent) -> bool {
        self.around
            .agent
            .hooks
            .iter()
            .any(|hook| hook.event == event)
    }

    /// Runs the hooks of one moment in order. `look` sees each execution, may change the payload for
    /// the next one, and ends the list by returning false.
    fn each(
        &mut self,
        event: HookEvent,
        names: &[&str],
        mut payload: Vec<u8>,
        variables: &[(&str, &str)],
        mut look: impl FnMut(&mut Self, &Execution, &mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let agent = self.around.agent;
        let mut ended = false;
        for hook in agent.hooks.iter().filter(|hook| hook.event == event) {
            if ended {
                let (hook_name, status, io_path_ref) = (event.name(), "SKIPPED", "");
                self.journal.add(
                    self.iteration,
                    &Event::HookAudit {
                        hook_name,
                        status,
                        io_path_ref,
                    },
                );
                continue;
            }
            let recorded = self.model.playback().and_then(|playback| {
                playback.hook(event.name(), event == HookEvent::PostLlmResponse)
            });
            let execution = match recorded {
                Some(None) => continue,
                Some(Some(dir)) => hooks::recorded(&dir, event),
                None => self.execute_hook(hook, names, &payload, variables)?,
            };
            let may_stop = !matches!(event, HookEvent::OnError | HookEvent::OnRunEnd);
            if may_stop && execution.control.stops() {
                let message = execution.control.message();
                self.stop_wanted = Some(format!("{} ended the run: {message}", event.name()));
            }
            ended = !look(self, &execution, &mut payload)?;
        }
        Ok(())
    }

    /// Runs one hook and records that it ran.
    fn execute_hook(
        &mut self,
        hook: &Hook,
        names: &[&str],
        payload: &[u8],
        variables: &[(&str, &str)],
    ) -> Result<Execution> {
        self.journal.flush()?;
        let input = Input {
            names,
            payload,
            variables,
            iteration: self.iteration,
        };
        let number = self.next_hook;
        self.next_hook += 1;
        let execution = hooks::run(&self.around, hook, number, &input)?;
        let status = if execution.failure.is_some() {
            "FAILED"
        } else {
            "SUCCESS"
        };
        self.journal.add(
            self.iteration,
            &Event::HookAudit {
                hook_name: hook.event.name(),
                status,
                io_path_ref: &execution.reference,
            },
        );
        self.journal.flush()?;
        Ok(execution)
    }

    fn warn_of(&mut self, event: HookEvent, failure: &str) -> Result<()> {
        self.note(
            "WARN",
            &format!(
                "hook {} failed: {failure}; going on without it",
                event.name()
            ),
        )
    }

    /// A moment that changes nothing.
    pub(super) fn moment(&mut self, event: HookEvent, payload: &[u8]) -> Result<()> {
        self.moment_with(event, payload, &[])
    }

    fn moment_with(
        &mut self,
        event: HookEvent,
        payload: &[u8],
        variables: &[(&str, &str)],
    ) -> Result<()> {
        if !self.has_hook(event) {
            return Ok(());
        }
        self.each(
            event,
            &["payload.json"],
            payload.to_vec(),
            variables,
            |engine, execution, _| {
                if let Some(failure) = &execution.failure {
                    engine.warn_of(event, failure)?;
                }
                Ok(true)
            },
        )
    }

    /// A moment at which hooks may replace the payload. `None` if none did.
    pub(super) fn transform(
        &mut self,
        event: HookEvent,
        names: &[&str],
        payload: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
        let mut changed = None;
        self.each(event, names, payload, &[], |engine, execution, payload| {
            if let Some(failure) = &execution.failure {
                engine.warn_of(event, failure)?;
            } else if let Some(new) = &execution.payload {
                payload.clone_from(new);
                changed = Some(new.clone());
            }
            Ok(true)
        })?;
        Ok(changed)
    }

    /// The request after the hooks have seen it.
    pub(super) fn before_request(&mut self, request: Vec<u8>) -> Result<Vec<u8>> {
        const EVENT: HookEvent = HookEvent::PreLlmRequest;
        if !self.has_hook(EVENT) {
            return Ok(request);
        }
        let names = ["proposed_payload.json", "payload.dat"];
        match self.transform(EVENT, &names, request.clone())? {
            Some(changed) if changed.trim_ascii().first() == Some(&b'{') => Ok(changed),
            Some(_) => {
                self.warn_of(EVENT, "its payload is not a JSON object")?;
                Ok(request)
            }
            None => Ok(request),
        }
    }

    /// Whether a call may run. A guard that fails lets nothing through.
    pub(super) fn before_tool(&mut self, tool: &Tool, bound: &Bound) -> Result<Verdict> {
        const EVENT: HookEvent = HookEvent::PreToolExecution;
        if !self.has_hook(EVENT) {
            return Ok(Verdict::Go(None));
        }
        let name = tool.name.as_str();
        let payload = tool_payload(name, &bound.arguments, &self.command_line(tool, bound));
        let mut verdict = Verdict::Go(None);
        let variables = [("TOOL_NAME", name)];
        self.each(
            EVENT,
            &["payload.json"],
            payload,
            &variables,
            |engine, execution, payload| {
                if let Some(failure) = &execution.failure {
                    verdict = Verdict::Denied(format!("the guard failed ({failure})"));
                    return Ok(false);
                }
                if execution.control.denies() {
                    verdict = Verdict::Denied(execution.control.message().to_owned());
                    return Ok(false);
                }
                let Some(new) = &execution.payload else {
                    return Ok(true);
                };
                let new: Value = serde_json::from_slice(new).unwrap_or_default();
                let Some(arguments @ Value::Object(_)) = new.get("tool_args") else {
                    let why = "the guard failed (final_payload.json has no tool_args)";
                    verdict = Verdict::Denied(why.to_owned());
                    return Ok(false);
                };
                let text = arguments.to_string();
                // The next guard sees the command that these arguments make.
                let command = bind(tool, &text, &engine.places())
                    .map_or_else(|_| String::new(), |bound| engine.command_line(tool, &bound));
                *payload = tool_payload(name, arguments, &command);
                verdict = Verdict::Go(Some(text));
                Ok(true)
            },
        )?;
        Ok(verdict)
    }

    fn command_line(&self, tool: &Tool, bound: &Bound) -> String {
        shell_quoted(&full_argv(&self.around, tool, bound))
    }

    /// What the model is to be shown instead of the observation, if a hook says so.
    pub(super) fn after_tool(
        &mut self,
        name: &str,
        done: &Done,
        reference: &str,
    ) -> Result<Option<String>> {
        const EVENT: HookEvent = HookEvent::PostToolExecution;
        if !self.has_hook(EVENT) {
            return Ok(None);
        }
        let dir = self.around.run.path.join(reference);
        let observed = |observation: &str| {
            let mut out = Vec::new();
            let mut object = Object::begin(&mut out);
            object
                .put("tool_name", name)
                .put("exit_code", &done.exit_code)
                .put("observation", observation)
                .put("stdout_path", &dir.join("stdout.log"))
                .put("stderr_path", &dir.join("stderr.log"));
            object.end();
            out
        };
        let variables = [
            ("TOOL_NAME", name),
            ("TOOL_RESULT", done.observation.as_str()),
        ];
        let mut changed = None;
        let payload = observed(&done.observation);
        self.each(
            EVENT,
            &["payload.json"],
            payload,
            &variables,
            |engine, execution, payload| {
                if let Some(failure) = &execution.failure {
                    engine.warn_of(EVENT, failure)?;
                } else if let Some(new) = &execution.payload {
                    let new: Value = serde_json::from_slice(new).unwrap_or_default();
                    match new.get("observation").and_then(Value::as_str) {
                        Some(observation) => {
                            *payload = observed(observation);
                            changed = Some(observation.to_owned());
                        }
                        None => engine.warn_of(EVENT, "final_payload.json has no observation")?,
                    }
                }
                Ok(true)
            },
        )?;
        Ok(changed)
    }

    pub(super) fn on_error(&mut self, message: &str) -> Result<()> {
        if !self.has_hook(HookEvent::OnError) {
            return Ok(());
        }
        let mut payload = Vec::new();
        let mut object = Object::begin(&mut payload);
        object.put("error_message", message);
        object.end();
        self.moment_with(HookEvent::OnError, &payload, &[("ERROR_MESSAGE", message)])
    }

    pub(super) fn on_run_end(&mut self, ending: &Ending) -> Result<()> {
        if !self.has_hook(HookEvent::OnRunEnd) {
            return Ok(());
        }
        let mut payload = Vec::new();
        let mut object = Object::begin(&mut payload);
        object
            .put("status", ending.status.name())
            .put("stop_reason", &ending.stop_reason)
            .put("exit_code", &ending.exit.code())
            .put("text", &ending.text)
            .put("iterations", &self.iteration);
        object.end();
        self.moment(HookEvent::OnRunEnd, &payload)
    }
}

fn tool_payload(name: &str, arguments: &Value, command: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("tool_name", name)
        .raw("tool_args", json::text(arguments).as_bytes())
        .put("resolved_command", command);
    object.end();
    out
}
