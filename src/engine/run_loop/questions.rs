//! Questions to a person: asked once, answered at the terminal or through files, recorded both ways.

use super::Engine;
use super::changed_files::preview_change;
use super::on_question::announce;
use super::open_call::OpenCall;
use super::outcome::{Ending, Step};
use super::points::before_question;
use super::results::{past_guard, record_refusal, record_result};
use crate::config::tool::bind::BoundCall;
use crate::engine::confirmation::{PlannedCall, asked_by_model, is_always};
use crate::engine::question::{self, HumanAnswer, Question};
use crate::engine::tool_call::Done;
use crate::error::{Result, reason};
use crate::record::engine_log::Level;
use crate::record::event::{ActionStatus, InputType, QuestionEvent, ReplyEvent};
use crate::text::answers::after_thoughts;
use crate::text::ids::hex;
use crate::unix::typed::Reply;
use serde_json::Value;
use std::time::Instant;

/// Asks a person for the first time.
pub(super) fn ask_first(engine: &mut Engine<'_>, call: &OpenCall) -> Step<()> {
    let tool = question::ask_human_tool();
    let bound = match call.bind(engine.ctx, &tool) {
        Ok(bound) => bound,
        Err(text) => return record_refusal(engine, call, &text),
    };
    let bound = past_guard(engine, call, None, bound)?;
    engine.go_on()?;
    let Some((BoundCall { arguments, .. }, _)) = bound else {
        return Ok(());
    };
    let text = |name: &str| {
        arguments
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let sensitive = match arguments.get("sensitive") {
        Some(Value::Bool(sensitive)) => *sensitive,
        Some(Value::String(word)) => word == "true",
        _ => false,
    };
    let input_type = text("input_type").map(InputType::of).unwrap_or_default();
    let prompt = text("prompt").unwrap_or_default();
    let prompt = after_thoughts(&prompt).to_owned();
    let question = Question {
        request_id: hex(16),
        prompt: match input_type {
            InputType::Confirmation => asked_by_model(&prompt),
            _ => prompt,
        },
        input_type,
        sensitive,
        fingerprint: None,
        announced: 0,
    };
    withdraw_question(engine)?;
    record_question(engine, call, &question)?;
    ask(engine, call, &question, None)
}

pub(super) fn record_question(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    question: &Question,
) -> Result<()> {
    engine.log.add_durably(&QuestionEvent {
        action_id: &call.id,
        request_id: &question.request_id,
        prompt: &question.prompt,
        input_type: &question.input_type,
        sensitive: question.sensitive,
        fingerprint: question.fingerprint.as_deref(),
    })
}

pub(super) fn record_reply(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    question: &Question,
    answer: &str,
) {
    let is_confirmation = question.fingerprint.is_some();
    let always = is_confirmation && is_always(answer);
    if let Some(fingerprint) = question.fingerprint.clone().filter(|_| always) {
        engine.always.insert(fingerprint);
    }
    engine.log.add(&ReplyEvent {
        action_id: &call.id,
        request_id: &question.request_id,
        response: if always { "yes" } else { answer },
        fingerprint: question.fingerprint.as_deref(),
        always,
    });
}

/// Gets the answer to a question that is in the journal, or waits for it.
pub(super) fn ask(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    question: &Question,
    recorded: Option<String>,
) -> Step<()> {
    let handed = engine
        .start
        .answer
        .as_mut()
        .filter(|answer| answer.request_id == question.request_id)
        .map(|answer| std::mem::take(&mut answer.handed));
    let (answer, is_new) = match recorded {
        Some(answer) => (answer, false),
        None => (find_answer(engine, question, None)?, true),
    };
    if is_new {
        record_reply(engine, call, question, &answer);
    }
    record_result(
        engine,
        call,
        Done {
            status: ActionStatus::Success,
            exit_code: Some(0),
            observation: answer,
            handed: handed.unwrap_or_default(),
            duration: std::time::Duration::ZERO,
            is_interrupted: false,
        },
        None,
        false,
    )?;
    engine.log.make_durable()?;
    Ok(question::clear(&engine.ctx.run)?)
}

/// Takes a question back: it can no longer be answered, and answers to it are kept unread.
pub(super) fn withdraw_question(engine: &mut Engine<'_>) -> Result<()> {
    if let Some(answer) = engine.start.answer.take() {
        let name = question::keep_unread(&engine.ctx.run, &answer.text)?;
        note_unread(engine, &name)?;
    }
    put_answer_aside(engine)?;
    question::clear(&engine.ctx.run)
}

/// Keeps an answer that lies there and answers nothing that is asked.
pub(super) fn put_answer_aside(engine: &mut Engine<'_>) -> Result<()> {
    match question::put_answer_aside(&engine.ctx.run)? {
        Some(name) => note_unread(engine, &name),
        None => Ok(()),
    }
}

fn note_unread(engine: &mut Engine<'_>, name: &str) -> Result<()> {
    let note = question::unread_note(&engine.ctx.run, name);
    engine.log.record_note(Level::Warn, &note)
}

/// The answer to a question that is in the journal, which is about a call, perhaps. Stops as long as there is no answer.
pub(super) fn find_answer(
    engine: &mut Engine<'_>,
    question: &Question,
    call: Option<&PlannedCall<'_>>,
) -> Step<String> {
    let is_meant = |answer: &mut HumanAnswer| answer.request_id == question.request_id;
    if let Some(answer) = engine.start.answer.take_if(is_meant) {
        put_answer_aside(engine)?;
        return Ok(answer.text);
    }
    if let Some(answer) = question::left_answer(&engine.ctx.run, &question.request_id)? {
        return Ok(answer);
    }
    before_question(engine)?;
    if let Some(call) = call {
        preview_change(engine, call.tool, call.bound);
    }
    if engine.options.interactive {
        let asked_at = Instant::now();
        let reply = question::ask_here(&engine.ctx.signals, question);
        engine.limits.add_wait(asked_at.elapsed());
        match reply {
            Ok(Reply::Answer(answer)) => return Ok(answer),
            Ok(Reply::Stopped(stop)) => return Err(Ending::stopped(stop).into()),
            Ok(Reply::NobodyThere) => {}
            Err(e) => engine.log.record_note(
                Level::Warn,
                &format!("cannot ask at the terminal: {}", reason(&e)),
            )?,
        }
    }
    if !question::is_left(&engine.ctx.run, &question.request_id) {
        put_answer_aside(engine)?;
        announce(engine, question)?;
        question::leave_question(&engine.ctx.run, question)?;
    }
    Err(Ending::waiting(&question.prompt).into())
}
