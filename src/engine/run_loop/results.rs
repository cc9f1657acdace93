//! What a call gets: a refusal, what its program printed, or what it got in a recorded run.

use super::Engine;
use super::hook_points::{GuardVerdict, after_tool, before_tool, on_error};
use super::open_call::OpenCall;
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::Tool;
use crate::engine::tool_call::Done;
use crate::error::Result;
use crate::record::attachments::blobs;
use crate::record::event::{ActionStatus, DENIED, Event};
use crate::record::recording::RecordedResult;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

/// The call as the guard lets it through, with the guard's questions to a person. None if it has been refused,
/// or if the run must end: then it has not been started, and the next start of the engine starts it.
pub(super) fn past_guard(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    tool: Option<&Tool>,
    bound: BoundCall,
) -> Result<Option<(BoundCall, Vec<String>)>> {
    let verdict = before_tool(engine, &call.name, tool, bound)?;
    if engine.ctx.signals.stop().is_some() {
        return Ok(None);
    }
    match verdict {
        GuardVerdict::Go(bound, questions) => Ok(Some((bound, questions))),
        GuardVerdict::Denied(why) => {
            record_refusal(engine, call, &format!("{DENIED}{why}"))?;
            Ok(None)
        }
    }
}

/// Records a call that cannot be run, and why.
pub(super) fn record_refusal(engine: &mut Engine<'_>, call: &OpenCall, text: &str) -> Result<()> {
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
) -> Result<()> {
    let by_hook = after_tool(engine, &call.name, &mut done, reference)?;
    engine
        .log
        .print_outcome(done.exit_code == Some(0), outcome, &done.observation);
    record_result(engine, call, done, Some(reference), by_hook)
}

/// Gives a call the result that it had in the recorded run. Nothing is executed.
pub(super) fn replay_result(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    outcome: RecordedResult,
) -> Result<()> {
    if let Some(playback) = engine.talk.model.playback() {
        let from = &playback.recording().run.path;
        blobs::copy(from, &engine.ctx.run.path, outcome.attachments.iter())?;
    }
    let done = Done {
        status: outcome.status,
        exit_code: outcome.exit_code,
        observation: outcome.observation,
        attachments: outcome.attachments,
        attachment_lines: Vec::new(),
        duration: std::time::Duration::from_millis(outcome.duration_ms),
        is_interrupted: false,
    };
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
) -> Result<()> {
    let calls = engine.limits.same_calls.as_mut();
    if let Some(note) =
        calls.and_then(|calls| calls.add_result(&call.id, &done.observation, &done.attachments))
    {
        done.observation.push_str(&note);
    }
    let playback = engine.talk.model.playback();
    let output_ref = playback.and_then(|playback| playback.output_ref(&call.id));
    if !done.attachments.is_empty() {
        engine.ctx.workspace.raise_layout()?;
    }
    engine.log.add(&Event::ActionResult {
        action_id: &call.id,
        tool_name: &call.name,
        status: done.status,
        exit_code: done.exit_code,
        observation_content: &done.observation,
        duration_ms: done.duration.as_millis() as u64,
        execution_ref,
        by_hook,
        output_ref: output_ref.as_deref(),
        attachments: &done.attachments,
    });
    engine.log.journal.flush()?;
    if done.status == ActionStatus::Error {
        on_error(engine, &done.observation)?;
    }
    Ok(())
}
