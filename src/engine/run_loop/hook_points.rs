//! The moments at which hooks run, and what each may change.
//!
//! Hooks change attention, never memory: nothing that is in the journal is rewritten.

use super::Ending;
use super::run_log::RunLog;
use crate::config::agent::{Hook, HookEvent};
use crate::config::api::Api;
use crate::config::tool::bind::{BoundCall, bind_arguments, shell_quoted};
use crate::config::tool::definition::Tool;
use crate::engine::hooks::{self, Execution, Input};
use crate::engine::observation::read_ends;
use crate::engine::question;
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done};
use crate::error::Result;
use crate::model::ask::Model;
use crate::model::wire::Neutral;
use crate::record::event::Event;
use crate::record::stop_reason::StopReason;
use crate::text::json::{self, Object};
use serde_json::Value;

/// The most bytes of a tool's stream that stand in a hook's payload.
const LONGEST_STREAM: u64 = 32 << 10;

/// A guard's verdict on a call.
pub(super) enum GuardVerdict {
    /// The call may run, with these arguments, which need not be the model's; if guards want a person to be
    /// asked, with their words, after a yes.
    Go(BoundCall, Vec<String>),
    /// The call may not run, and why.
    Denied(String),
}

/// The input of the hooks of one event, each seeing what the one before it left.
struct HookInput<'a> {
    payload: Vec<u8>,
    variables: Vec<(&'a str, String)>,
}

impl<'a> HookInput<'a> {
    fn new(payload: Vec<u8>, variables: &[(&'a str, &str)]) -> Self {
        let owned = |(name, value): &(&'a str, &str)| (*name, (*value).to_owned());
        Self {
            payload,
            variables: variables.iter().map(owned).collect(),
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        for (known, old) in &mut self.variables {
            if *known == name {
                value.clone_into(old);
            }
        }
    }
}

/// The hooks of one start, and the end that one of them wants.
pub(super) struct Hooks<'a> {
    ctx: &'a RunContext<'a>,
    next_number: u64,
    stop_wanted: Option<String>,
}

impl<'a> Hooks<'a> {
    pub(super) fn new(ctx: &'a RunContext<'a>) -> Result<Self> {
        Ok(Self {
            ctx,
            next_number: hooks::next_number(&ctx.run.io("hooks"))?,
            stop_wanted: None,
        })
    }

    /// The end that a signal, a hook or a changed journal demands.
    pub(super) fn must_end(&self, log: &RunLog<'_>) -> Option<Ending> {
        log.must_end().or_else(|| self.stop())
    }

    /// The end that a hook demands.
    pub(super) fn stop(&self) -> Option<Ending> {
        let message = self.stop_wanted.clone()?;
        Some(Ending::new(StopReason::Hook, message))
    }

    pub(super) fn has(&self, event: HookEvent) -> bool {
        self.ctx.agent.hooks.iter().any(|hook| hook.event == event)
    }

    /// Runs the hooks of one moment in order. `look` sees each execution, may change what the next one
    /// is given, and ends the list by returning false.
    fn run_each(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        event: HookEvent,
        names: &[&str],
        mut given: HookInput<'_>,
        mut look: impl FnMut(&mut RunLog<'_>, &Execution, &mut HookInput<'_>) -> Result<bool>,
    ) -> Result<()> {
        let agent = self.ctx.agent;
        let begins = matches!(
            event,
            HookEvent::PreLlmRequest | HookEvent::PreToolExecution | HookEvent::OnIterationStart
        );
        let mut ended = false;
        for hook in agent.hooks.iter().filter(|hook| hook.event == event) {
            // Nothing begins any more once the engine is to end; the time that is left is for what ends.
            if ended || begins && self.ctx.signals.stop().is_some() {
                let (hook_name, status, io_path_ref) = (event.name(), "SKIPPED", "");
                log.add(&Event::HookAudit {
                    hook_name,
                    status,
                    io_path_ref,
                });
                continue;
            }
            let recorded = model.playback().and_then(|playback| {
                playback.hook(event.name(), event == HookEvent::PostLlmResponse)
            });
            let execution = match recorded {
                Some(None) => continue,
                Some(Some(dir)) => hooks::read_recorded(&dir, event),
                None => self.execute_hook(log, hook, names, &given)?,
            };
            let may_stop = !matches!(event, HookEvent::OnError | HookEvent::OnRunEnd);
            if may_stop && execution.control.stops {
                let message = execution.control.message();
                self.stop_wanted = Some(format!("{} ended the run: {message}", event.name()));
            }
            ended = !look(log, &execution, &mut given)?;
        }
        Ok(())
    }

    /// Runs one hook and records that it ran.
    fn execute_hook(
        &mut self,
        log: &mut RunLog<'_>,
        hook: &Hook,
        names: &[&str],
        given: &HookInput<'_>,
    ) -> Result<Execution> {
        log.journal.flush()?;
        let input = Input {
            names,
            payload: &given.payload,
            variables: &given.variables,
            iteration: log.iteration,
        };
        let number = self.next_number;
        self.next_number += 1;
        let line = log.wait_for(&format!("the hook {}", hook.event.name()));
        let execution = hooks::run_hook(self.ctx, hook, number, &input)?;
        drop(line);
        let status = if execution.failure.is_some() {
            "FAILED"
        } else {
            "SUCCESS"
        };
        log.add(&Event::HookAudit {
            hook_name: hook.event.name(),
            status,
            io_path_ref: &execution.reference,
        });
        log.journal.flush()?;
        Ok(execution)
    }

    /// Runs the hooks of a moment at which nothing can be changed.
    pub(super) fn run_hooks(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        event: HookEvent,
    ) -> Result<()> {
        self.run_with(log, model, event, b"{}", &[])
    }

    fn run_with(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        event: HookEvent,
        payload: &[u8],
        variables: &[(&str, &str)],
    ) -> Result<()> {
        if !self.has(event) {
            return Ok(());
        }
        self.run_each(
            log,
            model,
            event,
            &["payload.json"],
            HookInput::new(payload.to_vec(), variables),
            |log, execution, _| {
                if let Some(failure) = &execution.failure {
                    warn_of(log, event, failure)?;
                }
                Ok(true)
            },
        )
    }

    /// A moment at which hooks may replace the payload. `None` if none did.
    pub(super) fn transform_payload(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        event: HookEvent,
        names: &[&str],
        payload: Vec<u8>,
    ) -> Result<Option<Vec<u8>>> {
        let mut changed = None;
        let given = HookInput::new(payload, &[]);
        self.run_each(log, model, event, names, given, |log, execution, given| {
            if let Some(failure) = &execution.failure {
                warn_of(log, event, failure)?;
            } else if let Some(new) = &execution.payload {
                given.payload.clone_from(new);
                changed = Some(new.clone());
            }
            Ok(true)
        })?;
        Ok(changed)
    }

    /// The request after the hooks have seen it.
    pub(super) fn before_request(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        api: Api,
        request: Neutral,
    ) -> Result<Neutral> {
        const EVENT: HookEvent = HookEvent::PreLlmRequest;
        if !self.has(EVENT) {
            return Ok(request);
        }
        let names = ["proposed_payload.json", "payload.dat"];
        let Some(changed) =
            self.transform_payload(log, model, EVENT, &names, request.bytes.clone())?
        else {
            return Ok(request);
        };
        match Neutral::changed(api, changed) {
            Ok(changed) => Ok(changed),
            Err(why) => {
                warn_of(log, EVENT, &why)?;
                Ok(request)
            }
        }
    }

    /// Asks the guards about a call. A guard that fails lets nothing through. `tool` is one of the agent's;
    /// none stands for `ask_human`, which is no program, and asks a person whatever a guard wants.
    pub(super) fn before_tool(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        name: &str,
        tool: Option<&Tool>,
        bound: BoundCall,
    ) -> Result<GuardVerdict> {
        const EVENT: HookEvent = HookEvent::PreToolExecution;
        if !self.has(EVENT) {
            return Ok(GuardVerdict::Go(bound, Vec::new()));
        }
        let ctx = self.ctx;
        let payload = call_payload(ctx, name, tool, &bound);
        let asking = question::ask_human_tool();
        let mut questions = Vec::new();
        let mut verdict = Ok(bound);
        self.run_each(log, model, EVENT,
            &["payload.json"],
            HookInput::new(payload, &[("TOOL_NAME", name)]),
            |_, execution, given| {
                if let Some(failure) = &execution.failure {
                    verdict = Err(format!("the guard failed ({failure})"));
                    return Ok(false);
                }
                if execution.control.denies {
                    verdict = Err(execution.control.message().to_owned());
                    return Ok(false);
                }
                if execution.control.asks {
                    questions.push(execution.control.question().to_owned());
                }
                let Some(new) = &execution.payload else {
                    return Ok(true);
                };
                let new: Value = serde_json::from_slice(new).unwrap_or_default();
                if let Some(other) = new.get("tool_name").filter(|other| *other != name) {
                    verdict = Err(format!(
                        "the guard failed (it named another tool, {other}; only tool_args can be changed)"
                    ));
                    return Ok(false);
                }
                let arguments = new["tool_args"].to_string();
                match bind_arguments(tool.unwrap_or(&asking), &arguments, &ctx.places()) {
                    Ok(bound) => {
                        given.payload = call_payload(ctx, name, tool, &bound);
                        verdict = Ok(bound);
                        Ok(true)
                    }
                    Err(why) => {
                        verdict = Err(format!(
                            "the guard failed (it changed the arguments: {why})"
                        ));
                        Ok(false)
                    }
                }
            },
        )?;
        Ok(match verdict {
            Ok(bound) => GuardVerdict::Go(bound, questions),
            Err(why) => GuardVerdict::Denied(why),
        })
    }

    /// The observation that a hook puts in the place of the tool's.
    pub(super) fn after_tool(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        name: &str,
        done: &Done,
        reference: &str,
    ) -> Result<Option<String>> {
        const EVENT: HookEvent = HookEvent::PostToolExecution;
        if !self.has(EVENT) {
            return Ok(None);
        }
        let dir = self.ctx.run.path.join(reference);
        let secrets = self.ctx.environment.secrets();
        let [stdout, stderr] = ["stdout", "stderr"].map(|stream| {
            let path = dir.join(format!("{stream}.log"));
            let ends = read_ends(&path, LONGEST_STREAM, &secrets).unwrap_or_default();
            (path, ends.text())
        });
        let observed = |observation: &str| {
            let mut out = Vec::new();
            let mut object = Object::begin(&mut out);
            object
                .put("tool_name", name)
                .put("exit_code", &done.exit_code)
                .put("observation", observation)
                .put("stdout", &stdout.1)
                .put("stderr", &stderr.1)
                .put("stdout_path", &stdout.0)
                .put("stderr_path", &stderr.0);
            object.end();
            out
        };
        let variables = [
            ("TOOL_NAME", name),
            ("TOOL_RESULT", done.observation.as_str()),
        ];
        let mut changed = None;
        let payload = observed(&done.observation);
        self.run_each(
            log,
            model,
            EVENT,
            &["payload.json"],
            HookInput::new(payload, &variables),
            |log, execution, given| {
                if let Some(failure) = &execution.failure {
                    warn_of(log, EVENT, failure)?;
                } else if let Some(new) = &execution.payload {
                    let new: Value = serde_json::from_slice(new).unwrap_or_default();
                    if let Some(observation) = new["observation"].as_str() {
                        given.payload = observed(observation);
                        given.set("TOOL_RESULT", observation);
                        changed = Some(observation.to_owned());
                    }
                }
                Ok(true)
            },
        )?;
        Ok(changed)
    }

    pub(super) fn on_error(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        message: &str,
    ) -> Result<()> {
        if !self.has(HookEvent::OnError) {
            return Ok(());
        }
        let mut payload = Vec::new();
        let mut object = Object::begin(&mut payload);
        object.put("error_message", message);
        object.end();
        self.run_with(
            log,
            model,
            HookEvent::OnError,
            &payload,
            &[("ERROR_MESSAGE", message)],
        )
    }

    pub(super) fn on_run_end(
        &mut self,
        log: &mut RunLog<'_>,
        model: &mut Model<'_>,
        ending: &Ending,
    ) -> Result<()> {
        if !self.has(HookEvent::OnRunEnd) {
            return Ok(());
        }
        let mut payload = Vec::new();
        let mut object = Object::begin(&mut payload);
        object
            .put("status", ending.status.name())
            .put("stop_reason", &ending.stop_reason)
            .put("exit_code", &ending.exit.code())
            .put("text", &ending.text)
            .put("iterations", &log.iteration);
        object.end();
        self.run_with(log, model, HookEvent::OnRunEnd, &payload, &[])
    }
}

pub(super) fn warn_of(log: &mut RunLog<'_>, event: HookEvent, failure: &str) -> Result<()> {
    log.record_note(
        "WARN",
        &format!(
            "hook {} failed: {failure}; continuing without it",
            event.name()
        ),
    )
}

/// A call as its guards see it.
fn call_payload(
    ctx: &RunContext<'_>,
    name: &str,
    tool: Option<&Tool>,
    bound: &BoundCall,
) -> Vec<u8> {
    let command = match tool {
        Some(tool) => shell_quoted(&tool_call::full_argv(ctx, tool, bound)),
        None => name.to_owned(),
    };
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("tool_name", name)
        .raw("tool_args", json::text(&bound.arguments).as_bytes())
        .put("resolved_command", &command);
    object.end();
    out
}
