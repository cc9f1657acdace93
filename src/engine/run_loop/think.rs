//! One thought: ask the model, record its answer, say what follows.

use super::Engine;
use super::calls::run_calls;
use super::conversation::Answered;
use super::hook_points::{after_response, before_request, run_hooks};
use super::open_call::OpenCall;
use super::outcome::{Ending, Halt, Step, halt_on};
use super::points::{Next, after_answer, after_reply, first_request};
use crate::config::agent::HookEvent;
use crate::config::api::Api;
use crate::error::Result;
use crate::model::calls::{calls_json, make_ids_unique};
use crate::model::response::Answer;
use crate::record::engine_log::Level;
use crate::record::event::{FinishReason, NoteEvent, RawJson, ThoughtEvent, Tokens};
use crate::record::stop_reason::StopReason;
use crate::text::amounts::{format_duration, grouped};
use crate::text::answers::after_thoughts;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;
use crate::unix::unread_stdin;
use serde_json::{Map, Value};
use std::time::Instant;

/// The consequence of a thought.
pub(super) enum ThoughtOutcome {
    /// Calls to be run.
    Calls(Vec<OpenCall>),
    /// A final answer, which is still to be judged.
    Answer(String),
}

/// The end of a run whose last answer was cut off. `detail` is the service's own word on why.
pub(super) fn cut_off(reason: &FinishReason<'_>, detail: Option<&str>, api: Api) -> Ending {
    match (reason, detail) {
        (FinishReason::Length, Some(detail)) => Ending::new(
            StopReason::Length,
            format!("the model's answer was cut off (finish_reason: length): {detail}"),
        ),
        (FinishReason::Length, None) => {
            let text = format!(
                "the model's answer was cut off at its limit of tokens (finish_reason: length); \
                 raise {}, or ask for less",
                api.limit_key()
            );
            Ending::new(StopReason::Length, text)
        }
        (_, detail) => {
            let mut text =
                "the model's answer was filtered (finish_reason: content_filter)".to_owned();
            if let Some(detail) = detail {
                text.push_str(&format!(": {detail}"));
            }
            Ending::new(StopReason::ContentFilter, text)
        }
    }
}

/// Asks the model for the next answer and records it.
pub(super) fn think(engine: &mut Engine<'_>) -> Step<ThoughtOutcome> {
    engine.log.iteration += 1;
    let answered = ask_model(engine);
    if matches!(answered, Err(Halt::Ended(_))) {
        // Only an iteration with an answer counts.
        engine.log.iteration -= 1;
    }
    record_answer(engine, answered?)
}

/// Gets the model's next answer, as hooks leave it.
fn ask_model(engine: &mut Engine<'_>) -> Step<Answered> {
    run_hooks(engine, HookEvent::OnIterationStart)?;
    engine.go_on()?;
    let (mut asking, mut request) = first_request(engine)?;
    let mut answered = loop {
        let seen = before_request(engine, request)?;
        engine.go_on()?;
        let reply = engine.ask(&seen, None)?;
        match after_reply(engine, &mut asking, reply)? {
            Next::Ask(other) => request = other,
            Next::Take(answered) => break answered,
        }
    };
    answered.answer = after_response(engine, answered.answer, &answered.invocation)?;
    // A hook that was to look at the answer may have been kept from it.
    halt_on(engine.ctx.signals.stop().map(Ending::stopped))?;
    Ok(answered)
}

/// Records an answer, and says what follows.
fn record_answer(engine: &mut Engine<'_>, answered: Answered) -> Step<ThoughtOutcome> {
    let Answered {
        mut answer,
        began,
        invocation,
        prefix,
        request_bytes,
    } = answered;
    make_ids_unique(&mut answer.calls, |id| engine.transcript.has_id(id));
    unread_stdin::warn();
    add_thought(engine, &answer, &invocation, &prefix, request_bytes);
    after_answer(engine, &answer, request_bytes)?;
    let usage = answer.usage.unwrap_or_default();
    if answer.lacks_finish_reason {
        note_unnamed_end(engine)?;
    }
    engine.log.metadata.usage.add(usage);
    print_thought(engine, &answer, usage, began);
    let cut_off_at = answer.finish_reason.as_ref().filter(|it| it.is_cut_off());
    let cut = cut_off_at.is_some();
    let open: Vec<OpenCall> = answer
        .calls
        .iter()
        .enumerate()
        .map(|(before, call)| OpenCall::new(call, cut, before))
        .collect();
    if let Some(reason) = cut_off_at {
        let ending = cut_off(reason, answer.finish_detail.as_deref(), engine.wire.api());
        if open.is_empty() {
            run_hooks(engine, HookEvent::OnIterationEnd)?;
        } else {
            run_calls(engine, open)?;
        }
        return Err(ending.into());
    }
    if open.is_empty() {
        engine.log.journal.flush()?;
        note_missing_call(engine, &answer)?;
        run_hooks(engine, HookEvent::OnIterationEnd)?;
        // A hook that ends the run has not agreed with the answer.
        halt_on(engine.hooks.stop())?;
        let text = after_thoughts(&answer.text).to_owned();
        return Ok(ThoughtOutcome::Answer(text));
    }
    engine.log.update_metadata()?;
    Ok(ThoughtOutcome::Calls(open))
}

/// Puts an answer into the journal. It is durable before its first action is.
fn add_thought(
    engine: &mut Engine<'_>,
    answer: &Answer,
    invocation: &str,
    prefix: &str,
    request_bytes: u64,
) {
    let calls = (!answer.calls.is_empty()).then(|| calls_json(&answer.calls));
    let wire = engine
        .wire
        .record(answer, calls.as_deref().unwrap_or_default(), prefix);
    let invalid: Map<String, Value> = answer
        .calls
        .iter()
        .filter_map(|call| Some((call.id.clone(), call.invalid.clone()?.into())))
        .collect();
    let reasoning: Vec<(&'static str, &[u8])> = answer
        .reasoning
        .iter()
        .map(|(name, json)| (*name, json.as_slice()))
        .collect();
    let content_null = answer.content_json == b"null";
    engine.log.add(&ThoughtEvent {
        content: RawJson(if content_null {
            b"\"\""
        } else {
            &answer.content_json
        }),
        content_null,
        tool_calls: calls.as_deref().map(RawJson),
        invalid_arguments: &invalid,
        reasoning_members: &reasoning,
        finish_reason: answer.finish_reason.as_ref(),
        model: answer.model.as_deref(),
        usage: answer
            .usage
            .map(|tokens| engine.sizes.recorded(tokens, &answer.terms, request_bytes)),
        llm_invocation_ref: invocation,
        wire: wire.as_deref().map(RawJson),
    });
}

/// Notes, once in a run, that a stream ended without a reason.
fn note_unnamed_end(engine: &mut Engine<'_>) -> Result<()> {
    if std::mem::replace(&mut engine.sizes.counts.no_finish_reason, true) {
        return Ok(());
    }
    let note =
        "the server ended its answer with [DONE] and without a finish_reason: it is taken as whole";
    engine.log.record(NoteEvent {
        no_finish_reason: true,
        ..NoteEvent::new(Level::Warn, note)
    })
}

/// Notes that the service announces a call and sends no call.
fn note_missing_call(engine: &mut Engine<'_>, answer: &Answer) -> Result<()> {
    let reason = answer.finish_reason.as_ref().map(FinishReason::name);
    if reason != Some("tool_calls") {
        return Ok(());
    }
    let note = "warning: the answer has no call although the model stopped for one (finish_reason: tool_calls); look \
                whether the model server's chat template supports tools";
    engine.log.record_note(Level::Warn, note)
}

fn print_thought(engine: &Engine<'_>, answer: &Answer, usage: Tokens, began: Instant) {
    let took = format_duration(began.elapsed());
    let figures = match usage.total_tokens {
        0 => format!(" ({took})"),
        tokens => format!(" ({took}, {} tokens)", grouped(tokens)),
    };
    let is_told = answer.text.trim().is_empty() || engine.streamed.is_shown(&answer.text);
    if let [only] = answer.calls.as_slice()
        && is_told
        && only.name != "ask_human"
        && !engine.log.screen.verbose
    {
        // The call has a line of its own.
        return;
    }
    let text = if is_told && !answer.calls.is_empty() {
        let names: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
        format!("calls {}", names.join(", "))
    } else if answer.calls.is_empty() {
        "answers".to_owned()
    } else if engine.log.screen.verbose {
        answer.text.clone()
    } else {
        in_short(after_thoughts(&answer.text), 100)
    };
    engine
        .log
        .print_progress(&[(Tone::Said, &text), (Tone::Dim, &figures)]);
}
