//! Calls that a person must confirm: asked after the guards, about the call as it would run.
//!
//! Architecture invariant: a yes is on disk before its call starts, and counts for the call whose fingerprint it
//! has. While an answer is looked for, nothing that the run has started is alive.

use super::calls::OpenCall;
use super::{Ending, Engine};
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::{Confirm, Tool};
use crate::engine::confirmation::{PlannedCall, is_yes, refusal};
use crate::engine::question::{self, Question};
use crate::engine::tool_call::wrapper_argv;
use crate::error::Result;
use crate::record::call_ids::started_calls;
use crate::record::event::InputType;
use crate::text::ids::hex;
use crate::unix::process;
use crate::unix::procfs::{CALL_ID, calls_around};
use crate::unix::terminal::counted;

impl Engine<'_> {
    /// Asks a person about a call that is about to run, if the tool wants it, a guard with these words, or if a
    /// person has been asked before: then it is for that person to decide, whatever the agent says now. Returns
    /// whether it may run; if not, it has its result. Inside, why nobody has decided yet.
    pub(super) fn consent(
        &mut self,
        call: &OpenCall,
        (tool, bound): (&Tool, &BoundCall),
        of_guards: &[String],
    ) -> Result<std::result::Result<bool, Ending>> {
        if tool.confirm == Confirm::No && of_guards.is_empty() && call.asked.is_none() {
            return Ok(Ok(true));
        }
        if let Some(playback) = self.model.playback()
            && let Some(outcome) = playback.result(&call.id, true)
        {
            // The yes was for the recorded run.
            return self.replay_result(call, outcome).map(|()| Ok(false));
        }
        let wrapper = wrapper_argv(self.ctx, tool);
        let planned = PlannedCall {
            tool,
            wrapper: &wrapper,
            bound,
        };
        let fingerprint = planned.fingerprint();
        let asked = call.asked.as_ref();
        let asked = asked.filter(|(asked, _)| asked.fingerprint.as_ref() == Some(&fingerprint));
        let (question, answer) = match asked {
            Some((question, Some(answer))) => (question.clone(), answer.clone()),
            _ => {
                self.end_background()?;
                if let Some(ending) = self.must_end() {
                    return Ok(Err(ending));
                }
                let question = match asked {
                    Some((question, _)) => question.clone(),
                    None => self.ask_about(call, planned.question(of_guards), fingerprint)?,
                };
                match self.find_answer(&question)? {
                    Ok(answer) => (question, answer),
                    Err(ending) => return Ok(Err(ending)),
                }
            }
        };
        self.keep_answer(call, &question, &answer)?;
        if let Some(ending) = self.must_end() {
            return Ok(Err(ending));
        }
        if is_yes(&answer) {
            return Ok(Ok(true));
        }
        self.record_refusal(call, &refusal(&answer))?;
        Ok(Ok(false))
    }

    /// Records the question about a call. One that was open before is withdrawn: it was about another call.
    fn ask_about(
        &mut self,
        call: &OpenCall,
        prompt: String,
        fingerprint: String,
    ) -> Result<Question> {
        if call.asked.is_some() {
            let text = format!(
                "{}: this is not the call that a person was asked about; asking again",
                call.name
            );
            self.log.record_note("WARN", &text)?;
        }
        self.withdraw_question()?;
        let question = Question {
            request_id: hex(16),
            prompt,
            input_type: InputType::Confirmation,
            sensitive: false,
            fingerprint: Some(fingerprint),
        };
        self.record_question(call, &question)?;
        Ok(question)
    }

    /// Records an answer unless it has been, and takes away the files that brought it.
    fn keep_answer(&mut self, call: &OpenCall, question: &Question, answer: &str) -> Result<()> {
        let id = &question.request_id;
        let asked = call.asked.as_ref();
        let is_recorded =
            asked.is_some_and(|(asked, known)| asked.request_id == *id && known.is_some());
        if !is_recorded {
            self.record_reply(call, question, answer);
            self.log.make_durable()?;
        }
        if question::left_answer(&self.ctx.run, id)?.as_deref() != Some(answer) {
            self.put_answer_aside()?;
        }
        question::clear(&self.ctx.run)
    }

    /// Ends what the run has left running in the background, which could answer in a person's place.
    fn end_background(&mut self) -> Result<()> {
        self.log.journal.flush()?;
        let mut journal = Vec::new();
        self.log.journal.read_into(&mut journal)?;
        let mut ids = started_calls(&journal, self.ctx.run.id.as_str(), !self.options.is_ours);
        // A record that names a call around this engine would have its relatives killed.
        let around = std::env::var(CALL_ID).unwrap_or_default();
        ids.retain(|id| !calls_around(around.as_bytes()).any(|outer| outer == id.as_bytes()));
        let ended = process::end_all_leftovers(&ids);
        if ended > 0 {
            let text = format!(
                "ended {} in the background before asking a person",
                counted(ended, "process")
            );
            self.log.record_note("INFO", &text)?;
        }
        Ok(())
    }
}
