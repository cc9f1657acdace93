//! The checks of a final answer, in order, each recorded before anything follows from it.
//!
//! What has been checked is read from the journal each time, so that no check is repeated for the same
//! answer and no repair is counted twice, however often the engine was killed.

use super::outcome::{Ending, Step, halt_on};
use super::written_call::called_in;
use super::{Engine, from_journal};
use crate::engine::acceptance::{self, Check, CheckVerdict, Checked};
use crate::error::Result;
use crate::record::engine_log::Level;
use crate::record::event::{AcceptanceEvent, RawJson, decoded};
use crate::record::state::{CALL_AS_TEXT, Run, Turn};
use crate::record::stop_reason::StopReason;
use crate::text::amounts::{counted, format_duration};
use crate::text::answers::after_thoughts;
use crate::text::json;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

/// The way out of calls written as text.
const LOOK: &str = "look whether its chat template supports tools";

/// An answer that nothing has refused yet.
struct FinalAnswer {
    /// The number of its THOUGHT.
    seq: u64,
    /// The model's words, with thoughts.
    content: String,
    /// The value that its schema has accepted, if that is not the whole content: JSON.
    value: Option<String>,
    /// True if a call written as text has been sent back since a person spoke.
    was_told: bool,
    /// The checks that have accepted it.
    accepted_by: Vec<String>,
    /// Number of answers that have been refused since a person spoke.
    repair: u64,
}

/// The refusal of an answer.
struct LastRefusal<'r> {
    what: &'r str,
    exit_code: i64,
    execution_ref: Option<&'r str>,
    answer: &'r str,
}

impl FinalAnswer {
    fn of(run: &Run<'_>) -> Option<Self> {
        let Some(Turn::Thought(thought)) = run.turns.last().filter(|_| run.has_final_answer())
        else {
            return None;
        };
        Some(Self {
            seq: thought.seq,
            content: decoded(thought.content).into_owned(),
            value: thought.value.map(str::to_owned),
            was_told: run.has_written_call(),
            accepted_by: thought
                .accepted_by
                .iter()
                .map(ToString::to_string)
                .collect(),
            repair: run.refusals(),
        })
    }

    fn text(&self) -> &str {
        after_thoughts(&self.content)
    }

    fn result(&self, engine: &Engine<'_>) -> String {
        let value = self.value.as_deref();
        acceptance::result_of(&engine.ctx.agent.acceptance, self.text(), value)
    }
}

/// True if a final answer must be checked before it counts.
fn has_checks(engine: &Engine<'_>) -> bool {
    !engine.options.is_chat && engine.ctx.agent.acceptance.has_checks()
}

/// The end of a run whose last answer was refused, if it may not be sent back again.
pub(super) fn refused_for_good(engine: &Engine<'_>, run: &Run<'_>) -> Option<Ending> {
    let Some(Turn::Refusal(refusal)) = run.turns.last().filter(|_| has_checks(engine)) else {
        return None;
    };
    if refusal.what == CALL_AS_TEXT {
        return None;
    }
    let answer = run.last_thought().map_or("", |thought| thought.content);
    let answer = decoded(answer);
    let last = LastRefusal {
        what: &refusal.what,
        exit_code: refusal.exit_code.unwrap_or(1),
        execution_ref: refusal.execution_ref.as_deref(),
        answer: after_thoughts(&answer),
    };
    after_refusal(engine, &last, run.refusals().saturating_sub(1))
}

/// Puts the final answer to the checks: the result that counts. None: it was refused, and the model may answer
/// again.
pub(super) fn judge(engine: &mut Engine<'_>, text: String) -> Step<Option<String>> {
    let called = written_call(engine, &text);
    if let Some(name) = called.as_ref().filter(|_| engine.options.is_chat) {
        let note = format!("the answer is {}; {LOOK}", described(name));
        engine.log.record_note(Level::Warn, &note)?;
        return Ok(Some(text));
    }
    if called.is_none() && !has_checks(engine) {
        return Ok(Some(text));
    }
    engine.log.update_metadata()?;
    engine.log.make_durable()?;
    let Some(mut answer) = from_journal(engine, FinalAnswer::of)? else {
        // Another program has changed the journal.
        engine.go_on()?;
        return Ok(None);
    };
    if let Some(name) = called.as_ref().filter(|_| answer.was_told) {
        let written = described(name);
        let why = format!("the answer is again {written}, and the model was told; {LOOK}");
        return Err(Ending::new(StopReason::CallAsText, why).into());
    }
    if let Some(name) = called {
        return refuse_written_call(engine, &answer, &name);
    }
    let mut result = answer.result(engine);
    let mut accepted_by = answer.accepted_by.clone();
    for check in acceptance::checks(engine.ctx) {
        if let Some(at) = accepted_by.iter().position(|what| *what == check.what) {
            accepted_by.swap_remove(at);
            continue;
        }
        engine.may_run()?;
        let checked = run_check(engine, &check, &mut answer, &result)?;
        match checked.verdict {
            CheckVerdict::Accepted => result = answer.result(engine),
            CheckVerdict::Refused(_) => {
                let last = LastRefusal {
                    what: &check.what,
                    exit_code: checked.exit_code.into(),
                    execution_ref: checked.reference.as_deref(),
                    answer: answer.text(),
                };
                halt_on(after_refusal(engine, &last, answer.repair))?;
                return Ok(None);
            }
            CheckVerdict::Unable(why) => {
                return Err(Ending::new(StopReason::AcceptUnable, why).into());
            }
            CheckVerdict::NotNow(why) => {
                return Err(Ending::new(StopReason::AcceptLater, why).into());
            }
            CheckVerdict::Interrupted => {
                let stop = engine.ctx.signals.stop();
                let text = "ended while the answer was checked";
                let broken = || Ending::new(StopReason::AcceptUnable, text);
                return Err(stop.map_or_else(broken, Ending::stopped).into());
            }
        }
    }
    let changed = engine
        .must_end()
        .filter(|_| engine.log.journal.was_changed());
    halt_on(changed)?;
    Ok(Some(result))
}

/// The tool that an answer calls as text. A schema decides by itself what an answer is.
fn written_call(engine: &Engine<'_>, text: &str) -> Option<String> {
    let agent = engine.ctx.agent;
    let offered = agent.tools.iter().chain(&engine.ask_human);
    let called = || called_in(text, offered).map(str::to_owned);
    agent.acceptance.schema.is_none().then(called).flatten()
}

fn described(name: &str) -> String {
    format!(
        "a call of the tool {name} written as text, and nothing was run: the model server has not recognized it"
    )
}

/// Sends an answer back that is a call written as text.
fn refuse_written_call(
    engine: &mut Engine<'_>,
    answer: &FinalAnswer,
    name: &str,
) -> Step<Option<String>> {
    let content = format!(
        "This answer was not accepted: it ends with a call of the tool {name} that is written as text, and nothing was \
         run. Call the tool with a tool call. If no call was meant, give the final answer again without one."
    );
    engine
        .log
        .print_outcome(false, &format!("the answer is {}", described(name)), "");
    engine.log.add(&AcceptanceEvent {
        thought_seq: answer.seq,
        what: CALL_AS_TEXT,
        exit_code: 1,
        duration_ms: 0,
        execution_ref: None,
        repair: answer.repair,
        content: Some(&content),
        value: None,
    });
    engine.log.journal.flush()?;
    Ok(None)
}

/// Runs a check and records its verdict.
fn run_check(
    engine: &mut Engine<'_>,
    check: &Check<'_>,
    answer: &mut FinalAnswer,
    result: &str,
) -> Result<Checked> {
    let shown = in_short(&check.what, 160);
    engine
        .log
        .print_progress(&[(Tone::Dim, "? "), (Tone::Command, &shown)]);
    let checked = acceptance::run_check(engine.ctx, check, answer.text(), result)?;
    let content = match &checked.verdict {
        CheckVerdict::Interrupted => return Ok(checked),
        CheckVerdict::Refused(message) => Some(message.as_str()),
        CheckVerdict::Accepted | CheckVerdict::Unable(_) | CheckVerdict::NotNow(_) => None,
    };
    let value = checked
        .value
        .as_deref()
        .filter(|value| *value != json::minified(answer.content.trim()));
    engine.log.add(&AcceptanceEvent {
        thought_seq: answer.seq,
        what: &check.what,
        exit_code: checked.exit_code,
        duration_ms: checked.duration.as_millis() as u64,
        execution_ref: checked.reference.as_deref(),
        repair: answer.repair,
        content,
        value: value.map(|value| RawJson(value.as_bytes())),
    });
    engine.log.journal.flush()?;
    if let Some(value) = value {
        answer.value = Some(value.to_owned());
    }
    let took = format_duration(checked.duration);
    let outcome = match checked.exit_code {
        0 => format!("ok, {took}"),
        code => format!("exit code {code}, {took}"),
    };
    let is_good = checked.exit_code == 0;
    engine
        .log
        .print_outcome(is_good, &outcome, content.unwrap_or_default());
    Ok(checked)
}

/// The end of the run, if an answer that was refused after `refused_before` others may not be sent back.
fn after_refusal(
    engine: &Engine<'_>,
    last: &LastRefusal<'_>,
    refused_before: u64,
) -> Option<Ending> {
    let repairs = engine.ctx.agent.acceptance.repairs;
    (refused_before >= repairs).then(|| not_accepted(repairs, last))
}

/// The end of a run whose last answer may not be sent back again.
fn not_accepted(repairs: u64, last: &LastRefusal<'_>) -> Ending {
    let after = match repairs {
        0 => String::new(),
        repairs => format!(" after {}", counted(repairs as usize, "repair")),
    };
    let LastRefusal {
        what,
        exit_code,
        execution_ref,
        answer,
    } = last;
    let records = execution_ref.map_or_else(String::new, |place| format!(", see {place}"));
    let text = format!(
        "the answer was not accepted{after}: `{what}` ended with exit code {exit_code}{records}; the last \
         answer was:\n{answer}"
    );
    Ending::new(StopReason::NotAccepted, text)
}
