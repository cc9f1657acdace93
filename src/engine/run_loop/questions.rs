//! Questions to a person: asked once, answered at the terminal or through files, recorded both ways.

use super::calls::OpenCall;
use super::{Ending, Engine};
use crate::config::tool::bind::BoundCall;
use crate::engine::confirmation::asked_by_model;
use crate::engine::question::{self, HumanAnswer, Question, Reply};
use crate::engine::tool_call::Done;
use crate::error::{Result, reason};
use crate::record::event::{ActionStatus, Event, InputType};
use crate::text::ids::hex;
use serde_json::Value;
use std::time::Instant;

impl Engine<'_> {
    /// Asks a person for the first time.
    pub(super) fn ask_first(&mut self, call: &OpenCall) -> Result<Option<Ending>> {
        let tool = question::ask_human_tool();
        let bound = match self.bind_call(&tool, call) {
            Ok(bound) => bound,
            Err(text) => return self.record_refusal(call, &text).map(|()| None),
        };
        let bound = self.past_guard(call, None, bound)?;
        if let Some(ending) = self.must_end() {
            return Ok(Some(ending));
        }
        let Some((BoundCall { arguments, .. }, _)) = bound else {
            return Ok(None);
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
        let question = Question {
            request_id: hex(16),
            prompt: match input_type {
                InputType::Confirmation => asked_by_model(&prompt),
                _ => prompt,
            },
            input_type,
            sensitive,
            fingerprint: None,
        };
        self.withdraw_question()?;
        self.record_question(call, &question)?;
        self.ask(call, &question, None)
    }

    pub(super) fn record_question(&mut self, call: &OpenCall, question: &Question) -> Result<()> {
        self.log.add(&Event::HumanInputRequest {
            action_id: &call.id,
            request_id: &question.request_id,
            prompt: &question.prompt,
            input_type: &question.input_type,
            sensitive: question.sensitive,
            fingerprint: question.fingerprint.as_deref(),
        });
        self.log.make_durable()
    }

    pub(super) fn record_reply(&mut self, call: &OpenCall, question: &Question, answer: &str) {
        self.log.add(&Event::HumanInputReceived {
            action_id: &call.id,
            request_id: &question.request_id,
            response: answer,
            fingerprint: question.fingerprint.as_deref(),
        });
    }

    /// Gets the answer to a question that is in the journal, or waits for it.
    pub(super) fn ask(
        &mut self,
        call: &OpenCall,
        question: &Question,
        recorded: Option<String>,
    ) -> Result<Option<Ending>> {
        let (answer, is_new) = match recorded {
            Some(answer) => (answer, false),
            None => match self.find_answer(question)? {
                Ok(answer) => (answer, true),
                Err(ending) => return Ok(Some(ending)),
            },
        };
        if is_new {
            self.record_reply(call, question, &answer);
        }
        self.record_result(
            call,
            Done {
                status: ActionStatus::Success,
                exit_code: Some(0),
                observation: answer,
                duration: std::time::Duration::ZERO,
                is_interrupted: false,
            },
            None,
        )?;
        self.log.make_durable()?;
        question::clear(&self.ctx.run)?;
        Ok(None)
    }

    /// Takes a question back: nobody can answer it any more, and answers to it are kept unread.
    pub(super) fn withdraw_question(&mut self) -> Result<()> {
        if let Some(answer) = self.options.answer.take() {
            let name = question::keep_unread(&self.ctx.run, &answer.text)?;
            self.note_unread(&name)?;
        }
        self.put_answer_aside()?;
        question::clear(&self.ctx.run)
    }

    /// Keeps an answer that lies there and answers nothing that is asked.
    pub(super) fn put_answer_aside(&mut self) -> Result<()> {
        match question::put_answer_aside(&self.ctx.run)? {
            Some(name) => self.note_unread(&name),
            None => Ok(()),
        }
    }

    fn note_unread(&mut self, name: &str) -> Result<()> {
        let note = question::unread_note(&self.ctx.run, name);
        self.log.record_note("WARN", &note)
    }

    /// The answer to a question that is in the journal; inside, why there is none yet.
    pub(super) fn find_answer(
        &mut self,
        question: &Question,
    ) -> Result<std::result::Result<String, Ending>> {
        let is_meant = |answer: &mut HumanAnswer| answer.request_id == question.request_id;
        if let Some(answer) = self.options.answer.take_if(is_meant) {
            self.put_answer_aside()?;
            return Ok(Ok(answer.text));
        }
        if let Some(answer) = question::left_answer(&self.ctx.run, &question.request_id)? {
            return Ok(Ok(answer));
        }
        if self.options.interactive {
            let asked_at = Instant::now();
            let reply = question::ask_here(&self.ctx.signals, question);
            self.limits.add_wait(asked_at.elapsed());
            match reply {
                Ok(Reply::Answer(answer)) => return Ok(Ok(answer)),
                Ok(Reply::Stopped(stop)) => return Ok(Err(Ending::stopped(stop))),
                Ok(Reply::NobodyThere) => {}
                Err(e) => self.log.record_note(
                    "WARN",
                    &format!("cannot ask at the terminal: {}", reason(&e)),
                )?,
            }
        }
        if !question::is_left(&self.ctx.run, &question.request_id) {
            self.put_answer_aside()?;
            question::leave_question(&self.ctx.run, question)?;
        }
        Ok(Err(Ending::waiting(&question.prompt)))
    }
}
