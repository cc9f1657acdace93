//! The calls of one message: each gets exactly one result, also after a crash.

use super::confirmations::consent;
use super::group::{GroupDone, is_parallel, plan, run_all, run_group};
use super::open_call::{Barred, MOST_CALLS, OpenCall, Planned};
use super::outcome::Step;
use super::points::after_calls;
use super::questions::{ask, ask_first, withdraw_question};
use super::results::{record_known, record_refusal};
use super::{Engine, tool_named};
use std::collections::VecDeque;

/// Brings every call to its result, in order. Stops early if the run must end or wait.
pub(super) fn run_calls(engine: &mut Engine<'_>, calls: Vec<OpenCall>) -> Step<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let mut rest = &calls[..];
    while let Some((call, behind)) = rest.split_first() {
        if call.barred != Some(Barred::CutOff) {
            engine.may_run()?;
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
    after_calls(engine, &calls)
}

fn run_call(engine: &mut Engine<'_>, call: &OpenCall) -> Step<()> {
    if let Some(barred) = call.barred {
        let text = match barred {
            Barred::CutOff => "not run: the message with this call was cut off".to_owned(),
            Barred::TooMany => format!(
                "not run: only the first {MOST_CALLS} calls of a message are run; ask for fewer at a time"
            ),
        };
        return record_refusal(engine, call, &text);
    }
    if call.is_set_aside() {
        return Ok(());
    }
    if let Some(known) = engine.known(call).filter(|it| !it.is_repeated) {
        let done = known.result.clone();
        return record_known(engine, call, done);
    }
    if let Some((question, response)) = &call.asked
        && question.fingerprint.is_none()
    {
        return ask(engine, call, question, response.clone());
    }
    let agent = engine.ctx.agent;
    if call.started.is_none() && call.name == "ask_human" && engine.ask_human.is_some() {
        return ask_first(engine, call);
    }
    if call.started.is_none() && tool_named(agent, &call.name).is_none() {
        let all = agent.tools.iter().chain(&engine.ask_human);
        let names: Vec<&str> = all.map(|tool| tool.name.as_str()).collect();
        let said = call
            .invalid
            .as_ref()
            .map_or_else(String::new, |raw| format!(" ({raw})"));
        let others = if names.is_empty() {
            "the agent has no tools".to_owned()
        } else {
            format!("the tools are: {}", names.join(", "))
        };
        let text = format!("there is no tool '{}'{said}; {others}", call.name);
        return record_refusal(engine, call, &text);
    }
    match plan(engine, call)? {
        Some(planned) => run_consented(engine, planned),
        None => Ok(()),
    }
}

/// Runs a call that its guards have passed, once a person agrees who must.
fn run_consented(engine: &mut Engine<'_>, planned: Planned<'_>) -> Step<()> {
    if consent(engine, &planned)? {
        run_all(engine, VecDeque::from([planned]), 1, true)?;
    }
    Ok(())
}
