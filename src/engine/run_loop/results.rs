//! The result of a call: a refusal, what its program printed, or what is known of it beforehand.

use super::Engine;
use super::changed_files::{before_diff, note_change, print_reason};
use super::hook_points::{after_tool, before_tool, on_error};
use super::open_call::OpenCall;
use super::outcome::Step;
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::Tool;
use crate::engine::tool_call::Done;
use crate::record::event::{ActionResultEvent, ActionStatus, DENIED};
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

/// The call as the guard lets it through, with the guard's questions to a person. None if it has been refused,
/// or if the run must end: then it has not been started, and the next start of the engine starts it.
pub(super) fn past_guard(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    tool: Option<&Tool>,
    bound: BoundCall,
) -> Step<Option<(BoundCall, Vec<String>)>> {
    let verdict = before_tool(engine, &call.name, tool, bound)?;
    if engine.ctx.signals.stop().is_some() {
        return Ok(None);
    }
    match verdict {
        Ok(passed) => Ok(Some(passed)),
        Err(why) => {
            record_refusal(engine, call, &format!("{DENIED}{why}"))?;
            Ok(None)
        }
    }
}

/// Records a call that cannot be run, and why.
pub(super) fn record_refusal(engine: &mut Engine<'_>, call: &OpenCall, text: &str) -> Step<()> {
    engine.log.print_progress(&[
        (Tone::Command, &call.name),
        (Tone::Bad, " refused: "),
        (Tone::Dim, &in_short(text, 100)),
    ]);
    record_result(engine, call, Done::not_run(text.to_owned()), None, false)
}

/// Lets the hook look at what came of a call, then records it.
pub(super) fn record_observation(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    mut done: Done,
    outcome: &str,
    reference: &str,
) -> Step<()> {
    let by_hook = after_tool(engine, &call.name, &mut done, reference)?;
    let is_done = done.status == ActionStatus::Success;
    let shown = if is_done {
        before_diff(engine, call, &done.observation)
    } else {
        &done.observation
    };
    engine
        .log
        .print_outcome(done.exit_code == Some(0), outcome, shown);
    if is_done {
        note_change(engine, call, &done.observation);
    } else {
        print_reason(engine, call, &done.observation);
    }
    record_result(engine, call, done, Some(reference), by_hook)
}

/// Gives a call the result that is known beforehand. Nothing is executed.
pub(super) fn record_known(engine: &mut Engine<'_>, call: &OpenCall, done: Done) -> Step<()> {
    engine.log.print_progress(&[
        (Tone::Dim, "= "),
        (Tone::Command, &call.name),
        (Tone::Dim, ", as recorded"),
    ]);
    record_result(engine, call, done, None, false)
}

pub(super) fn record_result(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    mut done: Done,
    execution_ref: Option<&str>,
    by_hook: bool,
) -> Step<()> {
    let calls = engine.limits.same_calls.as_mut();
    if let Some(note) = calls
        .and_then(|calls| calls.add_result(&call.id, &done.observation, &done.handed.attachments))
    {
        done.observation.push_str(&note);
    }
    let output_ref = engine.known(call).and_then(|it| it.output_ref.clone());
    if !done.handed.attachments.is_empty() {
        engine.ctx.workspace.raise_layout()?;
    }
    engine.log.add(&ActionResultEvent {
        action_id: &call.id,
        tool_name: &call.name,
        status: done.status,
        exit_code: done.exit_code,
        observation_content: &done.observation,
        duration_ms: done.duration.as_millis() as u64,
        execution_ref,
        by_hook,
        output_ref: output_ref.as_deref(),
        attachments: &done.handed.attachments,
    });
    engine.log.journal.flush()?;
    if done.status == ActionStatus::Error {
        on_error(engine, &done.observation)?;
    }
    Ok(())
}
