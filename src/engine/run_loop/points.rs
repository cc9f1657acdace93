//! The points of the loop, and the features that take part at each, in order.
//!
//! Architecture invariant: the loop names points; a feature is named here, once for each point.

use super::attachments::refused;
use super::compaction::guess::{Trial, Tried, try_shorter};
use super::conversation::{Answered, ModelReply};
/// After a call, or a check whether it has happened. None: the call has no result yet, or has it already.
pub(super) use super::deferred::defer as after_call;
use super::deferred::settle;
use super::executed::{remember_executed_files, report_executed_files};
use super::fallback::{change_model, recall_models, skip_first};
/// Before a person is asked who may take a long time.
pub(super) use super::file_states::{await_state, before_question};
use super::file_states::{before_tools, begin_due_state, take_last_state, take_of_tools};
use super::hook_points::{on_run_end, run_hooks};
use super::open_call::OpenCall;
use super::outcome::Step;
use super::{Ending, Engine, compaction};
use crate::config::agent::HookEvent;
use crate::config::tool::definition::Tool;
use crate::error::{Result, ignore};
use crate::model::response::Answer;
use crate::model::wire::Neutral;
use crate::record::metadata::Status;
use crate::record::state::Run;

/// The step after a reply of the model.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one, on its way to a caller"
)]
pub(super) enum Next {
    Ask(Neutral),
    Take(Answered),
}

/// An answer on its way, and what has been tried for it.
pub(super) struct Asking {
    /// The service has refused this conversation in an earlier start.
    was_full: bool,
    trial: Option<Trial>,
}

/// Takes over what earlier starts decide about this one.
pub(super) fn at_start(engine: &mut Engine<'_>, run: &Run<'_>) {
    engine.limits.recall_calls(run);
    recall_models(engine, run);
    engine.always = run.always.iter().map(ToString::to_string).collect();
    engine.wire.recall(&run.remedies, &run.pauses);
    engine.sizes.recall(run, engine.ctx.agent);
    engine.files.recall(run);
}

/// The first request of an iteration.
pub(super) fn first_request(engine: &mut Engine<'_>) -> Step<(Asking, Neutral)> {
    skip_first(engine)?;
    begin_due_state(engine)?;
    let asking = Asking {
        was_full: engine.sizes.is_full(),
        trial: None,
    };
    Ok((asking, next_request(engine)?))
}

fn next_request(engine: &mut Engine<'_>) -> Step<Neutral> {
    let request = engine.build_request()?;
    compaction::before_request(engine, request)
}

/// The request to make after a reply, if that is not an answer that counts.
pub(super) fn after_reply(
    engine: &mut Engine<'_>,
    asking: &mut Asking,
    reply: ModelReply,
) -> Step<Next> {
    let reply = match try_shorter(engine, &mut asking.trial, reply)? {
        Tried::Reply(reply) => reply,
        Tried::Again(shorter) => return Ok(Next::Ask(shorter)),
    };
    let request = match reply {
        ModelReply::TooLong(rejected) => {
            compaction::after_refusal(engine, &rejected, asking.was_full)?
        }
        ModelReply::AttachmentsRefused(why) => refused::after_refusal(engine, &why)?,
        ModelReply::Answered(answered) => {
            match compaction::after_cut_off(engine, &answered.answer)? {
                Some(shorter) => shorter,
                None => {
                    refused::keep_left_out(engine)?;
                    return Ok(Next::Take(*answered));
                }
            }
        }
        ModelReply::Failed(failed) => {
            change_model(engine, failed)?;
            // Another model has another price, and another window.
            engine.may_ask()?;
            asking.was_full = false;
            next_request(engine)?
        }
    };
    Ok(Next::Ask(request))
}

/// Counts an answer that has been recorded.
pub(super) fn after_answer(
    engine: &mut Engine<'_>,
    answer: &Answer,
    request_bytes: u64,
) -> Result<()> {
    if let Some(calls) = &mut engine.limits.same_calls {
        calls.begin_answer(answer.calls.iter().map(|call| {
            let arguments = call.invalid.as_ref().unwrap_or(&call.arguments);
            (call.id.as_str(), call.name.as_str(), arguments.as_str())
        }));
    }
    engine.limits.count_iteration();
    compaction::note_count(engine, request_bytes, answer.usage.unwrap_or_default())
}

/// Before calls of these tools are recorded as started.
pub(super) fn before_calls<'t>(
    engine: &mut Engine<'_>,
    tools: impl Iterator<Item = &'t Tool>,
) -> Result<()> {
    remember_executed_files(engine)?;
    before_tools(engine, tools)
}

/// After the calls of an answer: those that end later are looked at.
pub(super) fn after_calls(engine: &mut Engine<'_>, calls: &[OpenCall]) -> Step<()> {
    settle(engine, calls)?;
    run_hooks(engine, HookEvent::OnIterationEnd)?;
    Ok(take_of_tools(engine, None)?)
}

/// At the end of a start, before that is recorded.
pub(super) fn at_end(engine: &mut Engine<'_>, ending: &Ending) {
    ignore(take_last_state(engine));
    ignore(report_executed_files(engine));
    if ending.is_error() {
        ignore(engine.record_error(&ending.text));
    }
    if ending.status != Status::WaitingForInput {
        ignore(on_run_end(engine, ending));
    }
}
