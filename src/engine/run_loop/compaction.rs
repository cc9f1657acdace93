//! Compaction: a conversation that grows too long for the model is shortened in requests, and nowhere else.
//!
//! Architecture invariant: but for a `guess`, a compaction is on disk before the request that it is for. What fails on the way leaves
//! the conversation as it is, and the request is sent.

mod plan;
mod summary;
mod breakdown;
pub(super) mod guess;

use super::conversation::Rejected;
use super::outcome::{Ending, Step, halt_on};
use super::{Engine, unreadable};
use crate::error::Result;
use crate::model::replay::Playback;
use crate::model::response::{Answer, WINDOW_IS_FULL};
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::{
    CompactionEvent, CompactionKind, CompactionReason, Event, Fact, NotedFact, RecordedUsage,
    Terms, Tokens, compaction_line,
};
use crate::record::messages::shortened;
use crate::record::state::{self, MessageRules, Reading, Run, Turn};
use crate::record::stop_reason::StopReason;
use crate::text::json;
use crate::unix::terminal::Tone;
use plan::{Aim, CompactionPlan, OldPart};

/// The request to send after an attempt to shorten the conversation.
enum Shortened {
    Shorter(Neutral),
    /// It cannot be shortened.
    Same(Neutral),
    /// Another model is asked from now on, or in another form. This has not been compared with its window.
    Other(Neutral),
}

/// The request to send: this one, or one with a shorter conversation if the estimate of this one is too large.
pub(super) fn before_request(engine: &mut Engine<'_>, mut request: Neutral) -> Step<Neutral> {
    engine.talk.sizes.begin_iteration();
    if engine.talk.model.playback().is_some() {
        return replay(engine, request);
    }
    while engine.talk.sizes.is_on() && engine.talk.wire.pauses() == 0 {
        let bytes = engine.talk.measure(&request)?;
        let estimate = engine.talk.sizes.tokens(bytes);
        look_for_window(engine, estimate);
        let Some(reason) = engine.talk.sizes.reason(estimate) else {
            break;
        };
        request = match shorten(engine, request, reason)? {
            Shortened::Shorter(request) | Shortened::Same(request) => return Ok(request),
            Shortened::Other(request) => request,
        };
        engine.talk.sizes.is_asked = reason == CompactionReason::Asked;
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
    let mut request = engine.talk.build_request(&mut engine.log)?;
    if engine.talk.sizes.add_refusal(was_full) {
        halt_on(engine.must_end())?;
        request = match shorten(engine, request, CompactionReason::Refused)? {
            Shortened::Shorter(request) => return Ok(request),
            Shortened::Other(request) => return before_request(engine, request),
            Shortened::Same(request) => request,
        };
    }
    let journal = whole_journal(engine)?;
    let run = read(engine, &journal)?;
    breakdown::print(engine, request, &run)?;
    let why = &rejected.why;
    let text = match engine.talk.sizes.shares() {
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
    if !is_cut || engine.talk.model.playback().is_some() {
        return Ok(None);
    }
    if !engine.talk.sizes.is_cut_off(answer.usage, says_so) {
        return Ok(None);
    }
    let request = engine.talk.build_request(&mut engine.log)?;
    let window = engine.talk.sizes.window;
    let (request, window) = match shorten(engine, request, CompactionReason::Refused)? {
        Shortened::Shorter(request) => (request, window),
        Shortened::Other(request) => (before_request(engine, request)?, None),
        Shortened::Same(_) => return Ok(None),
    };
    let note =
        "the answer was cut off because the model's window was full: it is asked for once more";
    let fact = NotedFact {
        window,
        ..NotedFact::default()
    };
    note_unused(engine, note, fact, (answer.usage, &answer.terms))?;
    Ok(Some(request))
}

/// Notes what the service has counted for a request.
pub(super) fn note_count(engine: &mut Engine<'_>, bytes: u64, usage: Tokens) -> Result<()> {
    let noted = engine.talk.sizes.note_count(bytes, usage.prompt_tokens);
    let Some([bytes_before, before, bytes, now]) = noted else {
        return Ok(());
    };
    let note = format!(
        "the server counted {now} tokens for a request of {bytes} bytes, and {before} for the one before, of {bytes_before}: \
         it drops the beginning of what it is sent because its context is set too small (llama.cpp: --ctx-size; Ollama: \
         OLLAMA_CONTEXT_LENGTH), or it counts only what its cache does not have"
    );
    let fact = NotedFact {
        is_truncated: Some(true),
        ..NotedFact::default()
    };
    let fact = Some(Fact::Other(fact));
    engine.log.record_fact(Level::Warn, &note, fact)
}

/// Notes the window that a refusal has shown.
fn learn_window(engine: &mut Engine<'_>, rejected: &Rejected) -> Result<()> {
    let estimate = engine.talk.sizes.tokens(rejected.request_bytes);
    let window = rejected.window.unwrap_or(estimate / 100 * 95).max(1);
    engine.talk.sizes.window = Some(window);
    let note = format!("the request is longer than the model takes: its window is {window} tokens");
    let fact = NotedFact {
        window: Some(window),
        ..NotedFact::default()
    };
    let fact = Some(Fact::Other(fact));
    engine.log.record_fact(Level::Info, &note, fact)
}

/// Asks the server for the window, when it is time to.
fn look_for_window(engine: &mut Engine<'_>, estimate: u64) {
    let llm = &engine.talk.agent.llm;
    let Some(model) = llm.model.as_deref() else {
        return;
    };
    let says_nothing = engine.ctx.environment.is_openai(llm);
    let is_on = engine.talk.sizes.shares().is_some() && !says_nothing;
    let is_local = engine.talk.model.is_local();
    if is_on && engine.talk.sizes.must_look(is_local, estimate) {
        let line = engine.log.wait_for("the model's window");
        let window = engine.talk.model.look_up_window(model);
        drop(line);
        let text = match window {
            Some(window) => format!("the server gives the model's window: {window} tokens"),
            None => "the server does not give the model's window".to_owned(),
        };
        engine.ctx.log.line(Level::Info, &text);
        engine.talk.sizes.window = window;
    }
}

fn whole_journal(engine: &mut Engine<'_>) -> Result<Vec<u8>> {
    engine.log.journal.flush()?;
    let mut journal = Vec::new();
    engine.log.journal.read_new(0, &mut journal)?;
    Ok(journal)
}

fn read<'j>(engine: &Engine<'_>, journal: &'j [u8]) -> Result<Run<'j>> {
    let reading = Reading {
        lenient: engine.options.lenient,
        window: None,
    };
    state::read(journal, reading).map_err(|e| unreadable(&e, &engine.log.journal))
}

/// A request of a replay, with the compactions that the recorded run had here.
fn replay(engine: &mut Engine<'_>, request: Neutral) -> Step<Neutral> {
    let playback = engine.talk.model.playback();
    let recorded = playback.map_or_else(Vec::new, Playback::compactions);
    let mut request = request;
    for compaction in recorded {
        let journal = whole_journal(engine)?;
        let run = read(engine, &journal)?;
        let Some(part) = plan::through_iteration(&run, compaction.through_iteration) else {
            continue;
        };
        let tokens = (compaction.tokens_before, compaction.tokens_after);
        let event = CompactionEvent {
            summary: compaction.summary.as_deref(),
            message_bytes: compaction.message_bytes,
            message_times: &compaction.message_times,
            run_id: &compaction.run_id,
            ..event(engine, (compaction.by, compaction.reason), part, tokens)
        };
        append(engine, event)?;
        let old = engine.talk.transcript.messages().to_vec();
        engine.talk.catch_up(&mut engine.log)?;
        let new = engine.talk.transcript.messages();
        request = request.with_conversation(&old, new).unwrap_or(request);
    }
    Ok(request)
}

fn shorten(engine: &mut Engine<'_>, request: Neutral, reason: CompactionReason) -> Step<Shortened> {
    let journal = whole_journal(engine)?;
    let run = read(engine, &journal)?;
    let aim = aim_of(engine, &request, reason)?;
    let before = aim.before;
    let sizes = plan::turn_sizes(&run, engine.talk.transcript.form(), aim.rate);
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
            let how = (CompactionKind::Clear, reason);
            let event = event(engine, how, part, (before, after));
            record(engine, event)?;
            true
        }
        CompactionPlan::Summary(part) => {
            match summarize(engine, &request, &run, part, &sizes, &aim, reason)? {
                Some(is_shorter) => is_shorter,
                None => {
                    halt_on(engine.must_end())?;
                    halt_on(engine.talk.limit_reached(&mut engine.limits))?;
                    let request = engine.talk.build_request(&mut engine.log)?;
                    return Ok(Shortened::Other(request));
                }
            }
        }
    };
    if !is_shorter {
        engine.talk.sizes.note_compaction(before);
        return Ok(Shortened::Same(request));
    }
    let old = engine.talk.transcript.messages().to_vec();
    engine.talk.catch_up(&mut engine.log)?;
    let shorter = request.with_conversation(&old, engine.talk.transcript.messages());
    halt_on(engine.must_end())?;
    halt_on(engine.talk.limit_reached(&mut engine.limits))?;
    Ok(shorter.map_or(Shortened::Same(request), Shortened::Shorter))
}

/// The size to which the conversation of a request is shortened.
fn aim_of(engine: &mut Engine<'_>, request: &Neutral, reason: CompactionReason) -> Result<Aim> {
    let bytes = engine.talk.measure(request)?;
    let before = engine.talk.sizes.tokens(bytes);
    let mut shares = engine.talk.sizes.shares().unwrap_or_default();
    let window = engine.talk.sizes.window.unwrap_or(before);
    if reason == CompactionReason::Refused && before < window {
        // The service counts more than the estimate.
        shares.keep *= before as f64 / window as f64;
    }
    Ok(Aim {
        shares,
        window,
        before,
        rate: (before - engine.talk.sizes.attachment_tokens) as f64
            / request.bytes.len().max(1) as f64,
        shown: engine.talk.transcript.form().shown.clone(),
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
        let old = engine.talk.transcript.messages().len() as u64;
        let bytes = (request.bytes.len() as u64).saturating_sub(old) + conversation;
        let attached = run.turns[part.turns..].iter().flat_map(Turn::attached);
        let attached: u64 = attached.map(|it| aim.shown.tokens(it)).sum();
        let after = (bytes as f64 * aim.rate).ceil() as u64 + attached;
        if after < aim.before {
            count(engine, written.usage);
            let how = (CompactionKind::Summary, reason);
            let event = CompactionEvent {
                summary: Some(text),
                message_bytes: rules.most_bytes,
                llm_invocation_ref: Some(&written.reference),
                usage: recorded(written.usage, &written.terms),
                ..event(engine, how, part, (aim.before, after))
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
    let cost = (written.usage, &written.terms);
    let fact = NotedFact {
        tokens_before: Some(aim.before),
        ..NotedFact::default()
    };
    note_unused(engine, &note, fact, cost)?;
    Ok(Some(false))
}

/// A compaction of a part of this run, without what a summary has beside it.
fn event<'e>(
    engine: &Engine<'e>,
    (by, reason): (CompactionKind, CompactionReason),
    part: OldPart,
    (tokens_before, tokens_after): (u64, u64),
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

/// Puts a compaction into the journal, and makes it durable.
fn append(engine: &mut Engine<'_>, event: CompactionEvent<'_>) -> Result<()> {
    engine.ctx.workspace.raise_layout()?;
    engine.log.add(&Event::Compaction(event));
    engine.log.make_durable()
}

/// Records a compaction, and shows it.
fn record(engine: &mut Engine<'_>, event: CompactionEvent<'_>) -> Result<()> {
    let (before, after) = (event.tokens_before, event.tokens_after);
    let line = compaction_line(before, after, event.through_iteration);
    append(engine, event)?;
    engine.talk.sizes.note_compaction(after);
    engine.log.print_progress(&[(Tone::Dim, &line)]);
    engine.ctx.log.line(Level::Info, &line);
    engine.log.update_metadata()
}

/// Notes an answer that was not used, and what it has cost.
fn note_unused(
    engine: &mut Engine<'_>,
    note: &str,
    fact: NotedFact<'_>,
    (usage, terms): (Option<Tokens>, &Terms),
) -> Result<()> {
    let fact = NotedFact {
        usage: recorded(usage, terms),
        ..fact
    };
    count(engine, usage);
    let fact = Some(Fact::Other(fact));
    engine.log.record_fact(Level::Warn, note, fact)
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
        engine.log.metadata.usage.tokens.add(usage);
        engine.log.metadata.usage.llm_calls += 1;
    }
}
