//! One thought: ask the model, record its answer, say what follows.

use super::Engine;
use super::calls::run_calls;
use super::compaction;
use super::compaction::guess::{Tried, try_shorter};
use super::conversation::{Answered, ModelReply};
use super::fallback::{change_model, play_model, skip_first};
use super::hook_points::{after_response, before_request, run_hooks};
use super::open_call::OpenCall;
use super::outcome::{Ending, Halt, Step, halt_on};
use super::refused_attachments;
use crate::config::agent::HookEvent;
use crate::config::api::Api;
use crate::error::Result;
use crate::model::calls::{calls_json, make_ids_unique};
use crate::model::response::Answer;
use crate::record::engine_log::Level;
use crate::record::event::{
    Event, Fact, FinishReason, NotedFact, RawJson, RecordedUsage, ThoughtEvent, Tokens,
};
use crate::record::stop_reason::StopReason;
use crate::text::amounts::format_duration;
use crate::text::answers::after_thoughts;
use crate::text::disguise::indented;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;
use crate::unix::unread_stdin;
use std::time::Instant;

/// What follows from a thought.
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
            let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            let text = "the model's answer was filtered (finish_reason: content_filter)";
            Ending::new(StopReason::ContentFilter, format!("{text}{detail}"))
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
    halt_on(engine.must_end())?;
    let Engine {
        log, limits, talk, ..
    } = engine;
    skip_first(talk, log, limits)?;
    play_model(talk, log)?;
    refused_attachments::replay(engine)?;
    let mut was_full = engine.talk.sizes.is_full();
    let request = engine.talk.build_request(&mut engine.log)?;
    let mut request = compaction::before_request(engine, request)?;
    let mut trial = None;
    let mut answered = loop {
        let seen = before_request(engine, request)?;
        halt_on(engine.must_end())?;
        let Engine {
            log, limits, talk, ..
        } = engine;
        let reply = talk.ask(log, limits, seen, None)?;
        let reply = match try_shorter(engine, &mut trial, reply)? {
            Tried::Reply(reply) => reply,
            Tried::Again(shorter) => {
                request = shorter;
                continue;
            }
        };
        match reply {
            ModelReply::TooLong(rejected) => {
                request = compaction::after_refusal(engine, &rejected, was_full)?;
            }
            ModelReply::AttachmentsRefused(why) => {
                request = refused_attachments::after_refusal(engine, &why)?;
            }
            ModelReply::Answered(answered) => {
                match compaction::after_cut_off(engine, &answered.answer)? {
                    Some(shorter) => request = shorter,
                    None => break *answered,
                }
            }
            ModelReply::Failed(failed) => {
                let Engine {
                    log, limits, talk, ..
                } = engine;
                change_model(talk, log, limits, failed)?;
                halt_on(engine.must_end())?;
                // Another model has another price, and another window.
                halt_on(engine.talk.limit_reached(&mut engine.limits))?;
                was_full = false;
                let other = engine.talk.build_request(&mut engine.log)?;
                request = compaction::before_request(engine, other)?;
            }
        }
    };
    refused_attachments::keep_left_out(engine)?;
    answered.answer = after_response(engine, answered.answer, &answered.invocation)?;
    engine.talk.name_as_recorded(&mut answered.answer);
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
    make_ids_unique(&mut answer.calls, |id| engine.talk.transcript.has_id(id));
    unread_stdin::warn();
    add_thought(engine, &answer, (&invocation, &prefix), request_bytes);
    if let Some(calls) = &mut engine.limits.same_calls {
        calls.begin_answer(answer.calls.iter().map(|call| {
            let arguments = call.invalid.as_ref().unwrap_or(&call.arguments);
            (call.id.as_str(), call.name.as_str(), arguments.as_str())
        }));
    }
    engine.limits.count_iteration();
    let usage = answer.usage.unwrap_or_default();
    compaction::note_count(engine, request_bytes, usage)?;
    if answer.lacks_finish_reason {
        note_unnamed_end(engine)?;
    }
    engine.log.metadata.usage.tokens.add(usage);
    engine.log.metadata.usage.llm_calls += 1;
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
        let ending = cut_off(
            reason,
            answer.finish_detail.as_deref(),
            engine.talk.wire.api(),
        );
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
    (invocation, prefix): (&str, &str),
    request_bytes: u64,
) {
    let calls = (!answer.calls.is_empty()).then(|| calls_json(&answer.calls));
    let wire = engine
        .talk
        .wire
        .record(answer, calls.as_deref().unwrap_or_default(), prefix);
    let invalid: Vec<(String, String)> = answer
        .calls
        .iter()
        .filter_map(|call| Some((call.id.clone(), call.invalid.clone()?)))
        .collect();
    let reasoning: Vec<(&'static str, &[u8])> = answer
        .reasoning
        .iter()
        .map(|(name, json)| (*name, json.as_slice()))
        .collect();
    let content_null = answer.content_json == b"null";
    engine.log.add(&Event::Thought(ThoughtEvent {
        content: if content_null {
            b"\"\""
        } else {
            &answer.content_json
        },
        content_null,
        tool_calls: calls.as_deref().map(RawJson),
        invalid_arguments: &invalid,
        reasoning: &reasoning,
        finish_reason: answer.finish_reason.as_ref(),
        model: answer.model.as_deref(),
        usage: answer.usage.map(|tokens| RecordedUsage {
            tokens,
            terms: &answer.terms,
            request_bytes: Some(request_bytes),
            attachment_tokens: Some(engine.talk.sizes.attachment_tokens).filter(|it| *it > 0),
        }),
        llm_invocation_ref: invocation,
        wire: wire.as_deref().map(RawJson),
    }));
}

/// Notes, once in a run, that a stream ended without a reason.
fn note_unnamed_end(engine: &mut Engine<'_>) -> Result<()> {
    if std::mem::replace(&mut engine.talk.sizes.counts.no_finish_reason, true) {
        return Ok(());
    }
    let note =
        "the server ended its answer with [DONE] and without a finish_reason: it is taken as whole";
    let fact = NotedFact {
        no_finish_reason: Some(true),
        ..NotedFact::default()
    };
    engine
        .log
        .record_fact(Level::Warn, note, Some(Fact::Other(fact)))
}

/// Notes that the service announces a call, and there is none.
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
        tokens => format!(" ({took}, {tokens} tokens)"),
    };
    let is_told = answer.text.trim().is_empty() || engine.talk.streamed.is_shown(&answer.text);
    let text = if is_told && !answer.calls.is_empty() {
        let names: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
        format!("calls {}", names.join(", "))
    } else if answer.calls.is_empty() {
        "answers".to_owned()
    } else if engine.log.screen.verbose {
        indented(&answer.text)
    } else {
        in_short(after_thoughts(&answer.text), 100)
    };
    engine
        .log
        .print_progress(&[(Tone::Said, &text), (Tone::Dim, &figures)]);
}
