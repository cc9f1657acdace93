//! Calls that a person must confirm: asked after the guards, about the call as it would run.
//!
//! Architecture invariant: a yes is on disk before its call starts, and counts for the call whose fingerprint it
//! has. While an answer is looked for, nothing that the run has started is alive.

use super::Engine;
use super::open_call::{OpenCall, Planned};
use super::outcome::Step;
use super::points::await_state;
use super::questions::{
    find_answer, put_answer_aside, record_question, record_reply, withdraw_question,
};
use super::results::{record_known, record_refusal};
use crate::config::tool::definition::Confirm;
use crate::engine::confirmation::{PlannedCall, is_yes, refusal};
use crate::engine::question::{self, Question};
use crate::engine::tool_call::wrapper_argv;
use crate::error::Result;
use crate::record::call_ids::started_calls;
use crate::record::engine_log::Level;
use crate::record::event::InputType;
use crate::text::amounts::counted;
use crate::text::ids::hex;
use crate::unix::process;
use crate::unix::procfs::{CALL_ID, calls_around};

/// Asks a person about a call that is about to run, if the tool wants it, a guard with these words, or if a
/// person has been asked before: then that person decides, also if the agent now asks for less. Returns
/// whether it may run; if not, it has its result, which is the one known beforehand if there is one. Stops while
/// there is no answer.
pub(super) fn consent(engine: &mut Engine<'_>, planned: &Planned<'_>) -> Step<bool> {
    let Planned {
        call,
        tool,
        bound,
        questions: of_guards,
        ..
    } = planned;
    if tool.confirm == Confirm::No && of_guards.is_empty() && call.asked.is_none() {
        return Ok(true);
    }
    if let Some(known) = engine.known(call) {
        let done = known.result.clone();
        record_known(engine, call, done)?;
        return Ok(false);
    }
    let wrapper = wrapper_argv(engine.ctx, tool);
    let planned = PlannedCall {
        tool,
        wrapper: &wrapper,
        bound,
    };
    let fingerprint = planned.fingerprint();
    if call.asked.is_none() && engine.always.contains(&fingerprint) {
        return Ok(true);
    }
    let asked = call
        .asked
        .as_ref()
        .filter(|(asked, _)| asked.fingerprint.as_ref() == Some(&fingerprint));
    let (question, answer) = match asked {
        Some((question, Some(answer))) => (question.clone(), answer.clone()),
        _ => {
            // That of this run, too, would be ended.
            await_state(engine)?;
            end_background(engine)?;
            engine.go_on()?;
            let question = match asked {
                Some((question, _)) => question.clone(),
                None => ask_about(engine, call, planned.question(of_guards), fingerprint)?,
            };
            let answer = find_answer(engine, &question, Some(&planned))?;
            (question, answer)
        }
    };
    keep_answer(engine, call, &question, &answer)?;
    engine.go_on()?;
    if is_yes(&answer) {
        return Ok(true);
    }
    record_refusal(engine, call, &refusal(&answer))?;
    Ok(false)
}

/// Records the question about a call. One that was open before is withdrawn: it was about another call.
fn ask_about(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    prompt: String,
    fingerprint: String,
) -> Result<Question> {
    if call.asked.is_some() {
        let text = format!(
            "{}: this is not the call that a person was asked about; asking again",
            call.name
        );
        engine.log.record_note(Level::Warn, &text)?;
    }
    withdraw_question(engine)?;
    let question = Question {
        request_id: hex(16),
        prompt,
        input_type: InputType::Confirmation,
        sensitive: false,
        fingerprint: Some(fingerprint),
        announced: 0,
    };
    record_question(engine, call, &question)?;
    Ok(question)
}

/// Records an answer unless it has been, and takes away the files that brought it.
fn keep_answer(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    question: &Question,
    answer: &str,
) -> Result<()> {
    let id = &question.request_id;
    let asked = call.asked.as_ref();
    let is_recorded =
        asked.is_some_and(|(asked, known)| asked.request_id == *id && known.is_some());
    if !is_recorded {
        record_reply(engine, call, question, answer);
        engine.log.make_durable()?;
    }
    if question::left_answer(&engine.ctx.run, id)?.as_deref() != Some(answer) {
        put_answer_aside(engine)?;
    }
    question::clear(&engine.ctx.run)
}

/// Ends what the run has left running in the background, which could answer in a person's place.
fn end_background(engine: &mut Engine<'_>) -> Result<()> {
    let journal = engine.log.whole_journal()?;
    let mut ids = started_calls(&journal, engine.ctx.run.id.as_str(), !engine.start.is_ours);
    // A record that names a call around this engine would have its relatives killed.
    let around = std::env::var(CALL_ID).unwrap_or_default();
    ids.retain(|id| !calls_around(around.as_bytes()).any(|outer| outer == id.as_bytes()));
    let ended = process::end_all_leftovers(&ids);
    if ended > 0 {
        let text = format!(
            "ended {} in the background before asking a person",
            counted(ended, "process")
        );
        engine.log.record_note(Level::Info, &text)?;
    }
    Ok(())
}
