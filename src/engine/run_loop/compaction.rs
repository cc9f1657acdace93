//! Compaction: a conversation that grows too long for the model is shortened in requests, and nowhere else.
//!
//! Architecture invariant: but for a `guess`, a compaction is on disk before the request that it is for. What fails on the way leaves
//! the conversation as it is, and the request is sent.

pub(crate) mod plan;
mod summary;
mod breakdown;
pub(super) mod guess;
pub(super) mod sizes;

use super::Engine;
use super::conversation::Rejected;
use super::outcome::{Ending, Step};
use crate::error::Result;
use crate::model::response::{Answer, WINDOW_IS_FULL};
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::{
    CompactionEvent, CompactionKind, CompactionReason, NoteEvent, RecordedUsage, Terms, Tokens,
    compaction_line,
};
use crate::record::messages::shortened;
use crate::record::state::{MessageRules, OldPart, Run, Turn};
use crate::record::stop_reason::StopReason;
use crate::text::json;
use crate::unix::terminal::Tone;
use plan::{Aim, CompactionPlan};

/// The request to send after an attempt to shorten the conversation.
enum Shortened {
    Shorter(Neutral),
    /// The conversation cannot be shortened.
    Same(Neutral),
    /// Another model is asked from now on, or in another form. This has not been compared with its window.
    Other(Neutral),
}

/// The request to send: this one, or one with a shorter conversation if the estimate of this one is too large.
pub(super) fn before_request(engine: &mut Engine<'_>, mut request: Neutral) -> Step<Neutral> {
    engine.sizes.begin_iteration();
    while engine.sizes.is_on() && engine.wire.pauses() == 0 {
        let bytes = engine.measure(&request)?;
        let estimate = engine.sizes.tokens(bytes);
        look_for_window(engine, estimate);
        let Some(reason) = engine.sizes.reason(estimate) else {
            break;
        };
        request = match shorten(engine, request, reason)? {
            Shortened::Shorter(request) | Shortened::Same(request) => return Ok(request),
            Shortened::Other(request) => request,
        };
        engine.sizes.is_asked = reason == CompactionReason::Asked;
    }
    Ok(request)
}

/// The request to be sent in place of one that the service has refused as too long.
///
/// # Errors
/// The end of the run, if the conversation cannot be shortened.
pub(super) fn after_refusal(
    engine: &mut Engine<'_>,
    rejected: &Rejected,
    was_full: bool,
) -> Step<Neutral> {
    learn_window(engine, rejected)?;
    let mut request = engine.build_request()?;
    if engine.sizes.add_refusal(was_full) {
        engine.go_on()?;
        request = match shorten(engine, request, CompactionReason::Refused)? {
            Shortened::Shorter(request) => return Ok(request),
            Shortened::Other(request) => return before_request(engine, request),
            Shortened::Same(request) => request,
        };
    }
    let journal = engine.log.whole_journal()?;
    let run = engine.read_run(&journal)?;
    breakdown::print(engine, request, &run)?;
    let why = &rejected.why;
    let text = match engine.sizes.shares() {
        Some(_) => format!("{why}; the conversation cannot be shortened further"),
        None => format!(
            "{why}; `delta continue --compact` shortens the conversation, and compact: {{}} in agent.yaml does so in time"
        ),
    };
    Err(Ending::new(StopReason::ContextFull, text).into())
}

/// The request to be made again in place of one whose answer was cut off because the window was full. None if the
/// answer counts.
pub(super) fn after_cut_off(engine: &mut Engine<'_>, answer: &Answer) -> Step<Option<Neutral>> {
    let is_cut = answer
        .finish_reason
        .as_ref()
        .is_some_and(|it| it.name() == "length");
    let says_so = answer.finish_detail.as_deref() == Some(WINDOW_IS_FULL);
    if !is_cut || !engine.sizes.is_cut_off(answer.usage, says_so) {
        return Ok(None);
    }
    let request = engine.build_request()?;
    let window = engine.sizes.window;
    let (request, window) = match shorten(engine, request, CompactionReason::Refused)? {
        Shortened::Shorter(request) => (request, window),
        Shortened::Other(request) => (before_request(engine, request)?, None),
        Shortened::Same(_) => return Ok(None),
    };
    let note =
        "the answer was cut off because the model's window was full: it is asked for once more";
    let note = NoteEvent {
        window,
        ..NoteEvent::new(Level::Warn, note)
    };
    note_unused(engine, note, answer.usage, &answer.terms)?;
    Ok(Some(request))
}

/// Notes what the service has counted for a request.
pub(super) fn note_count(engine: &mut Engine<'_>, bytes: u64, usage: Tokens) -> Result<()> {
    engine.sizes.last_total = usage.total_tokens;
    let noted = engine.sizes.note_count(bytes, usage.prompt_tokens);
    let Some([bytes_before, before, bytes, now]) = noted else {
        return Ok(());
    };
    let note = format!(
        "the server counted {now} tokens for a request of {bytes} bytes, and {before} for the one before, of {bytes_before}: \
         it drops the beginning of what it is sent because its context is set too small (llama.cpp: --ctx-size; Ollama: \
         OLLAMA_CONTEXT_LENGTH), or it counts only what its cache does not have"
    );
    engine.log.record(NoteEvent {
        is_truncated: true,
        ..NoteEvent::new(Level::Warn, &note)
    })
}

/// Notes the window that a refusal has shown.
fn learn_window(engine: &mut Engine<'_>, rejected: &Rejected) -> Result<()> {
    let estimate = engine.sizes.tokens(rejected.request_bytes);
    let window = rejected.window.unwrap_or(estimate / 100 * 95).max(1);
    engine.sizes.window = Some(window);
    let note = format!("the request is longer than the model takes: its window is {window} tokens");
    engine.log.record(NoteEvent {
        window: Some(window),
        ..NoteEvent::new(Level::Info, &note)
    })
}

/// Asks the server for the window, when it is time to.
fn look_for_window(engine: &mut Engine<'_>, estimate: u64) {
    let llm = &engine.asked.llm;
    let Some(model) = llm.model.as_deref() else {
        return;
    };
    let says_nothing = engine.ctx.environment.is_openai(llm);
    let is_on = engine.sizes.shares().is_some() && !says_nothing;
    let is_local = engine.model.is_local();
    if is_on && engine.sizes.must_look(is_local, estimate) {
        let line = engine.log.wait_for("the model's window");
        let window = engine.model.look_up_window(model);
        drop(line);
        let text = match window {
            Some(window) => format!("the server gives the model's window: {window} tokens"),
            None => "the server does not give the model's window".to_owned(),
        };
        engine.ctx.log.line(Level::Info, &text);
        engine.sizes.window = window;
    }
}

fn shorten(engine: &mut Engine<'_>, request: Neutral, reason: CompactionReason) -> Step<Shortened> {
    let journal = engine.log.whole_journal()?;
    let run = engine.read_run(&journal)?;
    let aim = aim_of(engine, &request, reason)?;
    let before = aim.before;
    let sizes = plan::turn_sizes(&run, engine.transcript.form(), aim.rate);
    let is_shorter = match plan::plan(&run, &sizes, &aim) {
        CompactionPlan::Nothing => {
            let text = "nothing before the newest part of the conversation can be shortened";
            engine.ctx.log.line(Level::Info, text);
            if reason == CompactionReason::Asked {
                engine.log.record_note(Level::Warn, text)?;
            }
            false
        }
        CompactionPlan::Clear(part, after) => {
            let event = event(engine, CompactionKind::Clear, reason, part, [before, after]);
            record(engine, event)?;
            true
        }
        CompactionPlan::Summary(part) => {
            match summarize(engine, &request, &run, part, &sizes, &aim, reason)? {
                Some(is_shorter) => is_shorter,
                None => {
                    engine.may_ask()?;
                    let request = engine.build_request()?;
                    return Ok(Shortened::Other(request));
                }
            }
        }
    };
    if !is_shorter {
        engine.sizes.note_compaction(before);
        return Ok(Shortened::Same(request));
    }
    let old = engine.transcript.messages().to_vec();
    engine.catch_up()?;
    let shorter = request.with_conversation(&old, engine.transcript.messages());
    engine.may_ask()?;
    Ok(shorter.map_or(Shortened::Same(request), Shortened::Shorter))
}

/// The size to which the conversation of a request is shortened.
fn aim_of(engine: &mut Engine<'_>, request: &Neutral, reason: CompactionReason) -> Result<Aim> {
    let bytes = engine.measure(request)?;
    let before = engine.sizes.tokens(bytes);
    let mut shares = engine.sizes.shares().unwrap_or_default();
    let window = engine.sizes.window.unwrap_or(before);
    if reason == CompactionReason::Refused && before < window {
        // The service counts more than the estimate.
        shares.keep *= before as f64 / window as f64;
    }
    Ok(Aim {
        shares,
        window,
        before,
        rate: (before - engine.sizes.attachment_tokens) as f64 / request.bytes.len().max(1) as f64,
        shown: engine.transcript.form().shown.clone(),
    })
}

/// Replaces a part of the conversation by a summary. False: no summary makes the request shorter. None: another
/// model is asked from now on.
fn summarize(
    engine: &mut Engine<'_>,
    request: &Neutral,
    run: &Run<'_>,
    part: OldPart,
    sizes: &[u64],
    aim: &Aim,
    reason: CompactionReason,
) -> Step<Option<bool>> {
    let Some(written) = summary::write(engine, request, run)? else {
        return Ok(None);
    };
    let rules = MessageRules {
        most_bytes: Some((aim.window as f64 / 4.0 / aim.rate) as u64),
        times: Vec::new(),
    };
    let mut why = "the model wrote no summary";
    if let Some(text) = written.text.as_deref() {
        let id = engine.ctx.run.id.as_str();
        let turns = &run.turns[..part.turns];
        let message = shortened::message(turns, text, &rules, id);
        let newest: u64 = sizes[part.turns..].iter().sum();
        let conversation = json::text(&message).len() as u64 + newest;
        let old = engine.transcript.messages().len() as u64;
        let bytes = (request.bytes.len() as u64).saturating_sub(old) + conversation;
        let attached: u64 = run.turns[part.turns..]
            .iter()
            .flat_map(Turn::attached)
            .map(|it| aim.shown.tokens(it))
            .sum();
        let after = (bytes as f64 * aim.rate).ceil() as u64 + attached;
        if after < aim.before {
            count(engine, written.usage);
            let by = CompactionKind::Summary;
            let event = CompactionEvent {
                summary: Some(text),
                message_bytes: rules.most_bytes,
                llm_invocation_ref: Some(&written.reference),
                usage: recorded(written.usage, &written.terms),
                ..event(engine, by, reason, part, [aim.before, after])
            };
            record(engine, event)?;
            if written.is_cut {
                let note = "the summary was cut off at the end: the model's answer is limited to fewer tokens than it took";
                engine.log.record_note(Level::Warn, note)?;
            }
            return Ok(Some(true));
        }
        why = "the model's summary is longer than what it would replace";
    }
    let note = format!("the conversation was not shortened: {why}; it is sent as it is");
    let note = NoteEvent {
        tokens_before: Some(aim.before),
        ..NoteEvent::new(Level::Warn, &note)
    };
    note_unused(engine, note, written.usage, &written.terms)?;
    Ok(Some(false))
}

/// A compaction of a part of this run, without what a summary has beside it.
fn event<'e>(
    engine: &Engine<'e>,
    by: CompactionKind,
    reason: CompactionReason,
    part: OldPart,
    [tokens_before, tokens_after]: [u64; 2],
) -> CompactionEvent<'e> {
    CompactionEvent {
        by,
        reason,
        through_seq: part.seq,
        through_iteration: part.iteration,
        summary: None,
        message_bytes: None,
        message_times: &[],
        run_id: engine.ctx.run.id.as_str(),
        tokens_before,
        tokens_after,
        llm_invocation_ref: None,
        usage: None,
    }
}

/// Records a compaction, and shows it.
fn record(engine: &mut Engine<'_>, event: CompactionEvent<'_>) -> Result<()> {
    let (before, after) = (event.tokens_before, event.tokens_after);
    let line = compaction_line(before, after, event.through_iteration);
    engine.log.add_durably(&event)?;
    engine.sizes.note_compaction(after);
    engine.log.print_progress(&[(Tone::Dim, &line)]);
    engine.ctx.log.line(Level::Info, &line);
    engine.log.update_metadata()
}

/// Notes an answer that was not used, and what it has cost.
fn note_unused(
    engine: &mut Engine<'_>,
    note: NoteEvent<'_>,
    usage: Option<Tokens>,
    terms: &Terms,
) -> Result<()> {
    count(engine, usage);
    engine.log.record(NoteEvent {
        usage: recorded(usage, terms),
        ..note
    })
}

fn recorded(usage: Option<Tokens>, terms: &Terms) -> Option<RecordedUsage<'_>> {
    usage.map(|tokens| RecordedUsage {
        tokens,
        terms,
        request_bytes: None,
        attachment_tokens: None,
    })
}

/// Counts tokens that no THOUGHT has.
fn count(engine: &mut Engine<'_>, usage: Option<Tokens>) {
    if let Some(usage) = usage {
        engine.log.metadata.usage.add(usage);
    }
}
