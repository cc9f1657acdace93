//! The moments at which hooks run, and what each may change.
//!
//! Hooks change attention, never memory: nothing that is in the journal is rewritten.

use super::{Ending, Engine};
use crate::config::agent::{Hook, HookEvent};
use crate::config::api::Api;
use crate::config::tool::bind::{BoundCall, bind_arguments};
use crate::config::tool::definition::Tool;
use crate::engine::hooks::{self, Execution, Input};
use crate::engine::observation::read_ends_below;
use crate::engine::outbox::Store;
use crate::engine::question;
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done};
use crate::error::{At, Result};
use crate::model::response::{Answer, parse};
use crate::model::usage::read_usage;
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::{HookAuditEvent, HookStatus};
use crate::record::stop_reason::StopReason;
use crate::text::json;
use crate::text::shell::shell_quoted;
use crate::unix::files;
use serde_json::{Value, json};
use std::path::Path;

/// A call that its guards let through, with arguments that need not be the model's, and the words of those that want a
/// person to be asked; or the reason why it may not run.
type GuardVerdict = std::result::Result<(BoundCall, Vec<String>), String>;

/// The input of the hooks of one event, each seeing what the one before it left.
#[derive(Default)]
struct HookInput {
    payload: Vec<u8>,
    variables: Vec<(&'static str, String)>,
}

/// The number of the next hook, and the end that one of them wants.
pub(super) struct Hooks {
    next_number: u64,
    stop_wanted: Option<String>,
    /// The question that hooks are run for.
    pub(super) request_id: Option<String>,
}

impl Hooks {
    pub(super) fn new(ctx: &RunContext<'_>) -> Result<Self> {
        Ok(Self {
            next_number: hooks::next_number(&ctx.run.io("hooks"))?,
            stop_wanted: None,
            request_id: None,
        })
    }

    /// The end that a hook demands.
    pub(super) fn stop(&self) -> Option<Ending> {
        let message = self.stop_wanted.clone()?;
        Some(Ending::new(StopReason::Hook, message))
    }
}

pub(super) fn has_hook(ctx: &RunContext<'_>, event: HookEvent) -> bool {
    ctx.agent.hooks.iter().any(|hook| hook.event == event)
}

/// Runs the hooks of one moment in order. `look` sees each execution that has not failed, and each of a guard; it may
/// change what the next one is given, and ends the list by returning false.
fn run_each(
    engine: &mut Engine<'_>,
    event: HookEvent,
    names: &[&str],
    mut given: HookInput,
    mut look: impl FnMut(&mut Engine<'_>, &Execution, &mut HookInput) -> Result<bool>,
) -> Result<()> {
    let agent = engine.ctx.agent;
    let begins = matches!(
        event,
        HookEvent::PreLlmRequest | HookEvent::PreToolExecution | HookEvent::OnIterationStart
    );
    let mut ended = false;
    for hook in agent.hooks.iter().filter(|hook| hook.event == event) {
        // Nothing begins any more once the engine is to end; the time that is left is for what ends.
        if ended || begins && engine.ctx.signals.stop().is_some() {
            let (hook_name, status, io_path_ref) = (event.name(), HookStatus::Skipped, "");
            engine.log.add(&HookAuditEvent {
                hook_name,
                status,
                io_path_ref,
                request_id: None,
            });
            continue;
        }
        let execution = execute_hook(engine, hook, names, &given)?;
        let may_stop = !matches!(event, HookEvent::OnError | HookEvent::OnRunEnd);
        if may_stop && execution.control.stops {
            let message = execution.control.message();
            engine.hooks.stop_wanted = Some(format!("{} ended the run: {message}", event.name()));
        }
        match &execution.failure {
            Some(failure) if event != HookEvent::PreToolExecution => {
                warn_of(engine, event, failure)?;
            }
            _ => ended = !look(engine, &execution, &mut given)?,
        }
    }
    Ok(())
}

/// Runs one hook and records that it ran.
fn execute_hook(
    engine: &mut Engine<'_>,
    hook: &Hook,
    names: &[&str],
    given: &HookInput,
) -> Result<Execution> {
    engine.log.journal.flush()?;
    let input = Input {
        names,
        payload: &given.payload,
        variables: &given.variables,
        iteration: engine.log.iteration,
    };
    let number = engine.hooks.next_number;
    engine.hooks.next_number += 1;
    let line = engine
        .log
        .wait_for(&format!("the hook {}", hook.event.name()));
    let execution = hooks::run_hook(engine.ctx, hook, number, &input)?;
    drop(line);
    let status = if execution.failure.is_some() {
        HookStatus::Failed
    } else {
        HookStatus::Success
    };
    engine.log.add(&HookAuditEvent {
        hook_name: hook.event.name(),
        status,
        io_path_ref: &execution.reference,
        // One that was cut short is run again.
        request_id: engine
            .hooks
            .request_id
            .as_deref()
            .filter(|_| engine.ctx.signals.stop().is_none()),
    });
    engine.log.journal.flush()?;
    Ok(execution)
}

/// Runs the hooks of a moment at which nothing can be changed.
pub(super) fn run_hooks(engine: &mut Engine<'_>, event: HookEvent) -> Result<()> {
    run_with(engine, event, &json!({}), Vec::new())
}

/// Runs them with a payload.
pub(super) fn run_with(
    engine: &mut Engine<'_>,
    event: HookEvent,
    value: &Value,
    variables: Vec<(&'static str, String)>,
) -> Result<()> {
    if !has_hook(engine.ctx, event) {
        return Ok(());
    }
    run_each(
        engine,
        event,
        &["payload.json"],
        HookInput {
            payload: payload(value),
            variables,
        },
        |_, _, _| Ok(true),
    )
}

/// A moment at which hooks may replace the payload. `None` if none did.
fn transform_payload(
    engine: &mut Engine<'_>,
    event: HookEvent,
    names: &[&str],
    payload: Vec<u8>,
) -> Result<Option<Vec<u8>>> {
    let mut changed = None;
    let given = HookInput {
        payload,
        ..HookInput::default()
    };
    run_each(engine, event, names, given, |_, execution, given| {
        if let Some(new) = &execution.payload {
            given.payload.clone_from(new);
            changed = Some(new.clone());
        }
        Ok(true)
    })?;
    Ok(changed)
}

/// The request after the hooks have seen it.
pub(super) fn before_request(engine: &mut Engine<'_>, request: Neutral) -> Result<Neutral> {
    const EVENT: HookEvent = HookEvent::PreLlmRequest;
    if !has_hook(engine.ctx, EVENT) {
        return Ok(request);
    }
    let names = ["proposed_payload.json", "payload.dat"];
    let Some(changed) = transform_payload(engine, EVENT, &names, request.bytes.clone())? else {
        return Ok(request);
    };
    match Neutral::changed(engine.wire.api(), changed) {
        Ok(changed) => Ok(changed),
        Err(why) => {
            warn_of(engine, EVENT, &why)?;
            Ok(request)
        }
    }
}

/// The answer of an invocation as hooks leave it.
pub(super) fn after_response(
    engine: &mut Engine<'_>,
    answer: Answer,
    invocation: &str,
) -> Result<Answer> {
    const EVENT: HookEvent = HookEvent::PostLlmResponse;
    if !has_hook(engine.ctx, EVENT) {
        return Ok(answer);
    }
    let raw = match engine.wire.api() {
        Api::Chat => {
            let dir = engine.ctx.run.path.join(invocation);
            let response = dir.join("response.json");
            files::read_regular(&response).at("read", &response)?
        }
        // Hooks know one form.
        Api::Responses | Api::Messages => answer.as_completion(),
    };
    let Some(payload) = transform_payload(engine, EVENT, &["payload.json"], raw)? else {
        return Ok(answer);
    };
    let usage_of_hook = || read_usage(Api::Chat, &payload).counted.ok();
    match parse(&payload) {
        // The usage stays: the hook changes the text, not what it has cost.
        Ok(mut changed) => {
            engine.model.finish(&mut changed);
            if engine.wire.api() != Api::Chat {
                changed.items = answer.items;
                changed.view = answer.view;
            }
            Ok(Answer {
                usage: answer
                    .usage
                    .or_else(|| usage_of_hook().map(|counted| counted.tokens)),
                cached_tokens: answer.cached_tokens,
                counted: answer.counted,
                terms: answer.terms,
                ..changed
            })
        }
        Err(no_answer) => {
            warn_of(engine, EVENT, &no_answer.why)?;
            Ok(answer)
        }
    }
}

/// Asks the guards about a call. A guard that fails lets nothing through. `tool` is one of the agent's;
/// None is `ask_human`, which is no program, and always asks a person.
pub(super) fn before_tool(
    engine: &mut Engine<'_>,
    name: &str,
    tool: Option<&Tool>,
    bound: BoundCall,
) -> Result<GuardVerdict> {
    const EVENT: HookEvent = HookEvent::PreToolExecution;
    if !has_hook(engine.ctx, EVENT) {
        return Ok(Ok((bound, Vec::new())));
    }
    let ctx = engine.ctx;
    let payload = call_payload(ctx, name, tool, &bound);
    let asking = question::ask_human_tool();
    let mut questions = Vec::new();
    let mut verdict = Ok(bound);
    run_each(
        engine,
        EVENT,
        &["payload.json"],
        HookInput {
            payload,
            variables: vec![("TOOL_NAME", name.to_owned())],
        },
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
            let new: Value = json::read_or_default(new);
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
    Ok(verdict.map(|bound| (bound, questions)))
}

/// Lets hooks change what a call brought. True if one has written the observation.
pub(super) fn after_tool(
    engine: &mut Engine<'_>,
    name: &str,
    done: &mut Done,
    reference: &str,
) -> Result<bool> {
    const EVENT: HookEvent = HookEvent::PostToolExecution;
    if !has_hook(engine.ctx, EVENT) {
        return Ok(false);
    }
    let run = &engine.ctx.run.path;
    let secrets = engine.ctx.environment.secrets();
    let [stdout, stderr] = ["stdout", "stderr"].map(|stream| {
        let path = Path::new(reference).join(format!("{stream}.log"));
        let ends = read_ends_below(run, &path, hooks::LONGEST_RESULT as u64, &secrets);
        (run.join(path), ends.unwrap_or_default().text())
    });
    let observed = |done: &Done| {
        payload(&json!({
            "tool_name": name,
            "exit_code": done.exit_code,
            "observation": done.observation,
            "attachments": done.handed.attachments,
            "stdout": stdout.1,
            "stderr": stderr.1,
            "stdout_path": stdout.0,
            "stderr_path": stderr.0,
        }))
    };
    let variables = |done: &Done| {
        let result = ("TOOL_RESULT", done.observation.clone());
        vec![("TOOL_NAME", name.to_owned()), result]
    };
    let mut has_written = false;
    let given = HookInput {
        payload: observed(done),
        variables: variables(done),
    };
    run_each(
        engine,
        EVENT,
        &["payload.json"],
        given,
        |engine, execution, given| {
            let new = execution.payload.as_deref().unwrap_or(b"{}");
            let new: Value = json::read_or_default(new);
            has_written |= new["observation"].is_string();
            let dir = engine.ctx.run.path.join(&execution.reference);
            let store = Store {
                run: &engine.ctx.run.path,
                syncs: engine.ctx.agent.sync,
                secrets: &secrets,
            };
            done.handed
                .change(&mut done.observation, &new, &dir, store)?;
            given.payload = observed(done);
            given.variables = variables(done);
            Ok(true)
        },
    )?;
    Ok(has_written)
}

pub(super) fn on_error(engine: &mut Engine<'_>, message: &str) -> Result<()> {
    if !has_hook(engine.ctx, HookEvent::OnError) {
        return Ok(());
    }
    let variables = vec![("ERROR_MESSAGE", message.to_owned())];
    let payload = json!({"error_message": message});
    run_with(engine, HookEvent::OnError, &payload, variables)
}

pub(super) fn on_run_end(engine: &mut Engine<'_>, ending: &Ending) -> Result<()> {
    if !has_hook(engine.ctx, HookEvent::OnRunEnd) {
        return Ok(());
    }
    let payload = json!({
        "status": ending.status.name(),
        "stop_reason": ending.stop_reason,
        "exit_code": ending.exit.code(),
        "text": ending.text,
        "iterations": engine.log.iteration,
    });
    run_with(engine, HookEvent::OnRunEnd, &payload, Vec::new())
}

fn payload(value: &Value) -> Vec<u8> {
    json::text(value).into_bytes()
}

fn warn_of(engine: &mut Engine<'_>, event: HookEvent, failure: &str) -> Result<()> {
    engine.log.record_note(
        Level::Warn,
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
    payload(&json!({
        "tool_name": name,
        "tool_args": bound.arguments,
        "resolved_command": command,
    }))
}
