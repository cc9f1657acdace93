//! Questions to a person: asked once, answered at the terminal or through files, recorded both ways.

use super::calls::OpenCall;
use super::{Ending, Engine};
use crate::config::tool::bind::BoundCall;
use crate::engine::question::{self, Question, Reply};
use crate::engine::tool_call::Done;
use crate::error::{Result, reason};
use crate::record::event::{ActionStatus, Event};
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
        let Some(BoundCall { arguments, .. }) = bound else {
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
        let question = Question {
            request_id: hex(16),
            prompt: text("prompt").unwrap_or_default(),
            input_type: text("input_type").unwrap_or_else(|| "text".to_owned()),
            sensitive,
        };
        self.put_answer_aside()?;
        question::clear(&self.ctx.run)?;
        self.journal.add(
            self.iteration,
            &Event::HumanInputRequest {
                action_id: &call.id,
                request_id: &question.request_id,
                prompt: &question.prompt,
                input_type: &question.input_type,
                sensitive: question.sensitive,
            },
        );
        self.make_durable()?;
        self.ask(call, &question, None)
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
            self.journal.add(
                self.iteration,
                &Event::HumanInputReceived {
                    request_id: &question.request_id,
                    response: &answer,
                },
            );
        }
        self.record_result(
            call,
            Done {
                status: ActionStatus::Success,
                exit_code: Some(0),
                observation: answer,
                duration: std::time::Duration::ZERO,
            },
            None,
        )?;
        self.make_durable()?;
        question::clear(&self.ctx.run)?;
        Ok(None)
    }

    /// Keeps an answer that lies there and answers nothing that is asked.
    fn put_answer_aside(&mut self) -> Result<()> {
        let Some(name) = question::put_answer_aside(&self.ctx.run)? else {
            return Ok(());
        };
        let path = self.ctx.run.interaction().join(name);
        let note = format!("an unread answer is now in {}", path.display());
        self.record_note("WARN", &note)
    }

    fn find_answer(&mut self, question: &Question) -> Result<std::result::Result<String, Ending>> {
        if let Some(answer) = self.options.answer.take() {
            self.put_answer_aside()?;
            return Ok(Ok(answer));
        }
        if let Some(answer) = question::left_answer(&self.ctx.run, &question.request_id)? {
            return Ok(Ok(answer));
        }
        if self.options.interactive {
            let asked_at = Instant::now();
            let reply = question::ask_here(&self.ctx.signals, question);
            self.add_wait(asked_at.elapsed());
            match reply {
                Ok(Reply::Answer(answer)) => return Ok(Ok(answer)),
                Ok(Reply::Stopped(stop)) => return Ok(Err(Ending::stopped(stop))),
                Ok(Reply::NobodyThere) => {}
                Err(e) => self.record_note(
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
