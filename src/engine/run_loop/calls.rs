//! The calls of one message: each gets exactly one result, also after a crash.

use super::confirmations::consent;
use super::deferred::settle;
use super::executed::remember_executed_files;
use super::group::{
    EndedCall, GroupDone, Planned, is_parallel, plan, print_command, record_run, run_group,
};
use super::hook_points::run_hooks;
use super::open_call::{Barred, MOST_CALLS, OpenCall};
use super::outcome::Step;
use super::questions::{ask, ask_first, withdraw_question};
use super::recovery::suspended_by;
use super::results::{record_refusal, replay_result};
use super::sandbox_note::{note_length, print_note};
use super::{Engine, Ready, tool_named};
use crate::config::agent::HookEvent;
use crate::engine::tool_call;
use crate::record::event::Event;
use crate::record::stop_reason::Suspension;
use crate::text::json;

/// Brings every call to its result, in order. Stops early if the run must end or wait.
pub(super) fn run_calls(engine: &mut Engine<'_>, calls: Vec<OpenCall>) -> Step<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let mut rest = &calls[..];
    while let Some((call, behind)) = rest.split_first() {
        if call.barred != Some(Barred::CutOff)
            && let Some(ending) = engine.must_end().or_else(|| engine.limits.time_is_over())
        {
            engine.log.journal.flush()?;
            return Err(ending.into());
        }
        if is_parallel(engine, call) {
            let GroupDone { taken, asks } = run_group(engine, rest)?;
            rest = &rest[taken..];
            if let Some(planned) = asks {
                run_consented(engine, planned)?;
            }
            continue;
        }
        rest = behind;
        run_call(engine, call)?;
        if call.asked.is_some() {
            // The call may have got its result without an answer.
            withdraw_question(engine)?;
        }
    }
    settle(engine, &calls)?;
    run_hooks(engine, HookEvent::OnIterationEnd)?;
    Ok(())
}

fn run_call(engine: &mut Engine<'_>, call: &OpenCall) -> Step<()> {
    if let Some(barred) = call.barred {
        let text = match barred {
            Barred::CutOff => "not run: the message with this call was cut off".to_owned(),
            Barred::TooMany => format!(
                "not run: only the first {MOST_CALLS} calls of a message are run; ask for fewer at a time"
            ),
        };
        return Ok(record_refusal(engine, call, &text)?);
    }
    if call.deferred.is_some() {
        // It is looked at behind the others.
        return Ok(());
    }
    let asks_a_person = call.name == "ask_human" && engine.ask_human.is_some();
    if let Some(playback) = engine.talk.model.playback()
        && let Some(outcome) = playback.result(&call.id, asks_a_person)
    {
        return Ok(replay_result(engine, call, outcome)?);
    }
    if let Some((question, response)) = &call.asked
        && question.fingerprint.is_none()
    {
        return ask(engine, call, question, response.clone());
    }
    let agent = engine.ctx.agent;
    if call.started.is_none() && asks_a_person {
        return ask_first(engine, call);
    }
    if call.started.is_none() && tool_named(agent, &call.name).is_none() {
        let all = agent.tools.iter().chain(&engine.ask_human);
        let names: Vec<&str> = all.map(|tool| tool.name.as_str()).collect();
        let said = call
            .invalid
            .as_ref()
            .map_or_else(String::new, |raw| format!(" ({raw})"));
        let text = format!(
            "there is no tool '{}'{said}; the tools are: {}",
            call.name,
            names.join(", ")
        );
        return Ok(record_refusal(engine, call, &text)?);
    }
    match plan(engine, call)? {
        Some(planned) => run_consented(engine, planned),
        None => Ok(()),
    }
}

/// Runs a call that its guards have passed, once a person agrees who must.
fn run_consented(engine: &mut Engine<'_>, planned: Planned<'_>) -> Step<()> {
    let Planned {
        call,
        tool,
        bound,
        call_id,
        questions,
    } = planned;
    match consent(engine, call, (tool, &bound), &questions)? {
        true => execute_call(engine, call, (tool, bound), call_id),
        false => Ok(()),
    }
}

fn execute_call(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    (tool, mut bound): Ready<'_>,
    call_id: String,
) -> Step<()> {
    remember_executed_files(engine)?;
    tool_call::name_subagent(tool, &mut bound, &call_id);
    let prepared = tool_call::prepare_call(engine.ctx, tool, &bound)?;
    print_command(engine, &bound, &prepared.record.command);
    engine.log.add(&Event::ActionRequest {
        action_id: &call.id,
        tool_name: &call.name,
        tool_args: json::text(&bound.arguments).as_bytes(),
        resolved_command: &prepared.record.command,
        call_id: &call_id,
        execution_ref: Some(&prepared.reference),
    });
    engine.log.make_durable()?;
    let reference = prepared.reference.clone();
    let command = prepared.record.command.clone();
    let line = engine.log.wait_for(&call.name);
    let note = note_length(engine);
    let done = tool_call::run_tool(engine.ctx, tool, &bound, prepared, &call_id)?;
    drop(line);
    print_note(engine, note);
    if tool.subagent.is_some()
        && let Some(suspension) = done.exit_code.and_then(Suspension::of_code)
    {
        let places = (call_id.as_str(), command.as_str());
        return Err(suspended_by(engine, call, suspension, places, &done).into());
    }
    let planned = Planned {
        call,
        tool,
        bound,
        call_id,
        questions: Vec::new(),
    };
    let places = (reference, command);
    record_run(
        engine,
        EndedCall {
            planned,
            done,
            places,
        },
    )
}
