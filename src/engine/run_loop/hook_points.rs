//! The moments at which hooks run, and what each may change.
//!
//! Hooks change attention, never memory: nothing that is in the journal is rewritten.

use super::{Ending, Engine};
use crate::config::agent::{Hook, HookEvent};
use crate::config::api::Api;
use crate::config::tool::bind::{BoundCall, bind_arguments};
use crate::config::tool::definition::Tool;
use crate::engine::attached::Store;
use crate::engine::hooks::{self, Execution, Input};
use crate::engine::observation::read_ends_below;
use crate::engine::question;
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done};
use crate::error::{At, Result};
use crate::model::response::{Answer, parse};
use crate::model::usage::read_usage;
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::{Event, HookStatus};
use crate::record::stop_reason::StopReason;
use crate::text::json::{self, Object};
use crate::text::shell::shell_quoted;
use crate::unix::files;
use serde_json::Value;
use std::path::Path;

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

/// Runs the hooks of one moment in order. `look` sees each execution, may change what the next one
/// is given, and ends the list by returning false.
fn run_each(
    engine: &mut Engine<'_>,
    event: HookEvent,
    names: &[&str],
    mut given: HookInput<'_>,
    mut look: impl FnMut(&mut Engine<'_>, &Execution, &mut HookInput<'_>) -> Result<bool>,
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
            engine.log.add(&Event::HookAudit {
                hook_name,
                status,
                io_path_ref,
                request_id: None,
            });
            continue;
        }
        let recorded =
            engine.talk.model.playback().and_then(|playback| {
                playback.hook(event.name(), event == HookEvent::PostLlmResponse)
            });
        let execution = match recorded {
            Some(None) => continue,
            Some(Some(dir)) => hooks::read_recorded(&dir, event, &engine.ctx.environment.secrets()),
            None => execute_hook(engine, hook, names, &given)?,
        };
        let may_stop = !matches!(event, HookEvent::OnError | HookEvent::OnRunEnd);
        if may_stop && execution.control.stops {
            let message = execution.control.message();
            engine.hooks.stop_wanted = Some(format!("{} ended the run: {message}", event.name()));
        }
        ended = !look(engine, &execution, &mut given)?;
    }
    Ok(())
}

/// Runs one hook and records that it ran.
fn execute_hook(
    engine: &mut Engine<'_>,
    hook: &Hook,
    names: &[&str],
    given: &HookInput<'_>,
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
    engine.log.add(&Event::HookAudit {
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
    run_with(engine, event, b"{}", &[])
}

/// The same with a payload.
pub(super) fn run_with(
    engine: &mut Engine<'_>,
    event: HookEvent,
    payload: &[u8],
    variables: &[(&str, &str)],
) -> Result<()> {
    if !has_hook(engine.ctx, event) {
        return Ok(());
    }
    run_each(
        engine,
        event,
        &["payload.json"],
        HookInput::new(payload.to_vec(), variables),
        |engine, execution, _| {
            if let Some(failure) = &execution.failure {
                warn_of(engine, event, failure)?;
            }
            Ok(true)
        },
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
    let given = HookInput::new(payload, &[]);
    run_each(engine, event, names, given, |engine, execution, given| {
        if let Some(failure) = &execution.failure {
            warn_of(engine, event, failure)?;
        } else if let Some(new) = &execution.payload {
            given.payload.clone_from(new);
            changed = Some(new.clone());
        }
        Ok(true)
    })?;
    Ok(changed)
}

/// True if hooks also see requests for summaries.
pub(super) fn see_compactions(ctx: &RunContext<'_>) -> bool {
    ctx.agent.hooks.iter().any(|hook| hook.sees_compactions)
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
    match Neutral::changed(engine.talk.wire.api(), changed) {
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
    let raw = match engine.talk.wire.api() {
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
            engine.talk.model.redact_joined(&mut changed);
            if engine.talk.wire.api() != Api::Chat {
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
        return Ok(GuardVerdict::Go(bound, Vec::new()));
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
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object
            .put("tool_name", name)
            .put("exit_code", &done.exit_code)
            .put("observation", &done.observation)
            .put("attachments", &done.attachments)
            .put("stdout", &stdout.1)
            .put("stderr", &stderr.1)
            .put("stdout_path", &stdout.0)
            .put("stderr_path", &stderr.0);
        object.end();
        out
    };
    let observation = done.observation.clone();
    let variables = [("TOOL_NAME", name), ("TOOL_RESULT", observation.as_str())];
    let mut has_written = false;
    let given = HookInput::new(observed(done), &variables);
    run_each(
        engine,
        EVENT,
        &["payload.json"],
        given,
        |engine, execution, given| {
            if let Some(failure) = &execution.failure {
                warn_of(engine, EVENT, failure)?;
                return Ok(true);
            }
            let new = execution.payload.as_deref().unwrap_or(b"{}");
            let new: Value = serde_json::from_slice(new).unwrap_or_default();
            has_written |= new["observation"].is_string();
            let dir = engine.ctx.run.path.join(&execution.reference);
            let store = Store {
                run: &engine.ctx.run.path,
                syncs: engine.ctx.agent.sync,
                secrets: &secrets,
            };
            done.change(&new, (&dir, store))?;
            given.payload = observed(done);
            given.set("TOOL_RESULT", &done.observation);
            Ok(true)
        },
    )?;
    Ok(has_written)
}

pub(super) fn on_error(engine: &mut Engine<'_>, message: &str) -> Result<()> {
    if !has_hook(engine.ctx, HookEvent::OnError) {
        return Ok(());
    }
    let mut payload = Vec::new();
    let mut object = Object::begin(&mut payload);
    object.put("error_message", message);
    object.end();
    run_with(
        engine,
        HookEvent::OnError,
        &payload,
        &[("ERROR_MESSAGE", message)],
    )
}

pub(super) fn on_run_end(engine: &mut Engine<'_>, ending: &Ending) -> Result<()> {
    if !has_hook(engine.ctx, HookEvent::OnRunEnd) {
        return Ok(());
    }
    let mut payload = Vec::new();
    let mut object = Object::begin(&mut payload);
    object
        .put("status", ending.status.name())
        .put("stop_reason", &ending.stop_reason)
        .put("exit_code", &ending.exit.code())
        .put("text", &ending.text)
        .put("iterations", &engine.log.iteration);
    object.end();
    run_with(engine, HookEvent::OnRunEnd, &payload, &[])
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
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("tool_name", name)
        .raw("tool_args", json::text(&bound.arguments).as_bytes())
        .put("resolved_command", &command);
    object.end();
    out
}
