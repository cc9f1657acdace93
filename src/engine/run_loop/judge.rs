//! Whether a final answer counts: its checks in order, each recorded before anything follows from it.
//!
//! What has been checked is read from the journal each time, so that no check is repeated for the same
//! answer and no repair is counted twice, however often the engine was killed.

use super::{Ending, Engine, unreadable};
use crate::engine::acceptance::{self, Check, CheckVerdict, Checked};
use crate::error::Result;
use crate::record::event::Event;
use crate::record::recording::RecordedCheck;
use crate::record::state::{self, Reading, Run, Turn};
use crate::record::stop_reason::StopReason;
use crate::text::shorten::in_short;
use crate::unix::terminal::{Tone, counted, time};

/// An answer that nothing has refused yet.
struct FinalAnswer {
    /// The number of its THOUGHT.
    seq: u64,
    text: String,
    /// The checks that have accepted it.
    accepted_by: Vec<String>,
    /// How many answers have been refused since a person spoke.
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
            text: state::decoded(thought.content).into_owned(),
            accepted_by: thought
                .accepted_by
                .iter()
                .map(ToString::to_string)
                .collect(),
            repair: run.refusals(),
        })
    }
}

impl Engine<'_> {
    /// True if a final answer must be checked before it counts.
    pub(super) fn has_checks(&self) -> bool {
        self.options.checks_answers && self.ctx.agent.acceptance.has_checks()
    }

    /// The end of a run whose last answer was refused, if it may not be sent back again.
    pub(super) fn refused_for_good(&self, run: &Run<'_>) -> Option<Ending> {
        let Some(Turn::Refusal(refusal)) = run.turns.last().filter(|_| self.has_checks()) else {
            return None;
        };
        let answer = run.last_thought().map_or("", |thought| thought.content);
        let last = LastRefusal {
            what: &refusal.what,
            exit_code: refusal.exit_code.unwrap_or(1),
            execution_ref: refusal.execution_ref.as_deref(),
            answer: &state::decoded(answer),
        };
        self.after_refusal(&last, run.refusals().saturating_sub(1))
    }

    /// Puts the final answer to the checks. None: it was refused, and the model may answer again.
    pub(super) fn judge(&mut self, text: String) -> Result<Option<Ending>> {
        if !self.has_checks() {
            return Ok(Some(Ending::completed(text)));
        }
        self.log.update_metadata()?;
        self.log.make_durable()?;
        let Some(answer) = self.final_answer()? else {
            // Somebody has changed the journal.
            return Ok(self.must_end());
        };
        if let Some(recorded) = self.recorded_checks() {
            return self.repeat_checks(&answer, &recorded);
        }
        let result = acceptance::result_of(&self.ctx.agent.acceptance, &answer.text);
        let mut accepted_by = answer.accepted_by.clone();
        for check in acceptance::checks(self.ctx) {
            if let Some(at) = accepted_by.iter().position(|what| *what == check.what) {
                accepted_by.swap_remove(at);
                continue;
            }
            if let Some(ending) = self.must_end().or_else(|| self.limits.time_is_over()) {
                self.log.journal.flush()?;
                return Ok(Some(ending));
            }
            let checked = self.run_check(&check, &answer, &result)?;
            match checked.verdict {
                CheckVerdict::Accepted => {}
                CheckVerdict::Refused(_) => {
                    let last = LastRefusal {
                        what: &check.what,
                        exit_code: checked.exit_code.into(),
                        execution_ref: Some(&checked.reference),
                        answer: &answer.text,
                    };
                    return Ok(self.after_refusal(&last, answer.repair));
                }
                CheckVerdict::Unable(why) => {
                    return Ok(Some(Ending::new(StopReason::AcceptUnable, why)));
                }
                CheckVerdict::Later(why) => {
                    return Ok(Some(Ending::new(StopReason::AcceptLater, why)));
                }
                CheckVerdict::Interrupted => {
                    let stop = self.ctx.signals.stop();
                    let text = "ended while the answer was checked";
                    let broken = || Ending::new(StopReason::AcceptUnable, text);
                    return Ok(Some(stop.map_or_else(broken, Ending::stopped)));
                }
            }
        }
        let changed = self.must_end().filter(|_| self.log.journal.was_changed());
        Ok(Some(changed.unwrap_or_else(|| Ending::completed(result))))
    }

    fn final_answer(&mut self) -> Result<Option<FinalAnswer>> {
        let mut journal = Vec::new();
        self.log.journal.read_into(&mut journal)?;
        let reading = Reading {
            lenient: self.options.lenient,
            window: None,
        };
        let answer = state::read(&journal, reading).map(|run| FinalAnswer::of(&run));
        answer.map_err(|e| unreadable(&e, &self.log.journal))
    }

    /// Runs a check and records its verdict.
    fn run_check(
        &mut self,
        check: &Check<'_>,
        answer: &FinalAnswer,
        result: &str,
    ) -> Result<Checked> {
        let shown = in_short(&check.what, 160);
        self.log
            .print_progress(&[(Tone::Dim, "? "), (Tone::Command, &shown)]);
        let checked = acceptance::run_check(self.ctx, check, &answer.text, result)?;
        let content = match &checked.verdict {
            CheckVerdict::Interrupted => return Ok(checked),
            CheckVerdict::Refused(message) => Some(message.clone()),
            CheckVerdict::Accepted | CheckVerdict::Unable(_) | CheckVerdict::Later(_) => None,
        };
        let record = RecordedCheck {
            what: check.what.clone(),
            exit_code: checked.exit_code,
            duration_ms: checked.duration.as_millis() as u64,
            content,
        };
        self.record_check(answer, &record, Some(&checked.reference))?;
        let took = time(checked.duration);
        let outcome = match checked.exit_code {
            0 => format!("ok, {took}"),
            code => format!("exit code {code}, {took}"),
        };
        let said = record.content.unwrap_or_default();
        self.log
            .print_outcome(checked.exit_code == 0, &outcome, &said);
        Ok(checked)
    }

    fn record_check(
        &mut self,
        answer: &FinalAnswer,
        check: &RecordedCheck,
        execution_ref: Option<&str>,
    ) -> Result<()> {
        self.log.add(&Event::Acceptance {
            thought_seq: answer.seq,
            what: &check.what,
            exit_code: check.exit_code,
            duration_ms: check.duration_ms,
            execution_ref,
            repair: answer.repair,
            content: check.content.as_deref(),
        });
        self.log.journal.flush()
    }

    /// The checks of the newest answer in the recorded run, if nothing is executed.
    fn recorded_checks(&mut self) -> Option<Vec<RecordedCheck>> {
        self.model.playback()?.checks()
    }

    /// Gives an answer the verdicts that it had in the recorded run.
    fn repeat_checks(
        &mut self,
        answer: &FinalAnswer,
        recorded: &[RecordedCheck],
    ) -> Result<Option<Ending>> {
        for check in recorded {
            self.record_check(answer, check, None)?;
            if check.content.is_some() {
                let last = LastRefusal {
                    what: &check.what,
                    exit_code: check.exit_code.into(),
                    execution_ref: None,
                    answer: &answer.text,
                };
                return Ok(self.after_refusal(&last, answer.repair));
            }
        }
        let result = acceptance::result_of(&self.ctx.agent.acceptance, &answer.text);
        Ok(Some(Ending::completed(result)))
    }

    /// The end of the run, if an answer that was refused after so many others may not be sent back.
    fn after_refusal(&self, last: &LastRefusal<'_>, refused_before: u64) -> Option<Ending> {
        let repairs = self.ctx.agent.acceptance.repairs;
        (refused_before >= repairs).then(|| not_accepted(repairs, last))
    }
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
