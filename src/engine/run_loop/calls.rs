//! The calls of one message: each gets exactly one result, whatever happened before.

use super::hook_points::GuardVerdict;
use super::{Ending, Engine, Ready, tool_named};
use crate::config::agent::HookEvent;
use crate::config::tool::bind::{BoundCall, bind_arguments, shell_quoted};
use crate::config::tool::definition::Tool;
use crate::config::tool::shown::{first_line, telling_words};
use crate::engine::question::Question;
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done};
use crate::error::Result;
use crate::model::calls::NewCall;
use crate::record::event::{ActionStatus, DENIED, Event};
use crate::record::recording::RecordedResult;
use crate::record::state::Call;
use crate::record::stop_reason::Suspension;
use crate::text::json;
use crate::text::shorten::in_short;
use crate::unix::terminal::{Tone, time};

/// The most calls of one message that are run.
const MOST_CALLS: usize = 512;

/// A call without a result.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) name: String,
    arguments: String,
    invalid: Option<String>,
    /// Why it must never run, whatever it is.
    barred: Option<Barred>,
    /// An earlier process started it.
    started: Option<StartedCall>,
    /// A person has been asked, and has perhaps answered.
    pub(super) asked: Option<(Question, Option<String>)>,
}

/// Why a call is not run, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barred {
    /// The message that it is in was cut off.
    CutOff,
    /// The message has more calls than one message may have.
    TooMany,
}

impl Barred {
    /// The bar on a call whose message was `cut_off` or has this many calls before it.
    fn by_message(cut_off: bool, before: usize) -> Option<Self> {
        match (cut_off, before) {
            (true, _) => Some(Self::CutOff),
            (false, MOST_CALLS..) => Some(Self::TooMany),
            (false, _) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct StartedCall {
    pub(super) call_id: Option<String>,
    pub(super) execution_ref: Option<String>,
    /// The arguments that it was started with: a JSON object.
    pub(super) arguments: Option<String>,
    /// An engine has left it to the next start, and nothing of it runs.
    pub(super) is_suspended: bool,
}

impl OpenCall {
    pub(super) fn new(call: &NewCall, cut_off: bool, before: usize) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            invalid: call.invalid.clone(),
            barred: Barred::by_message(cut_off, before),
            started: None,
            asked: None,
        }
    }

    pub(super) fn from_journal(call: &Call<'_>, cut_off: bool, before: usize) -> Self {
        let text =
            |from: &Option<std::borrow::Cow<'_, str>>| from.as_ref().map(ToString::to_string);
        Self {
            id: call.id.to_string(),
            name: call.name.to_string(),
            arguments: call.arguments.to_string(),
            invalid: call.invalid_arguments.clone(),
            barred: Barred::by_message(cut_off, before)
                .filter(|barred| *barred == Barred::CutOff || call.request.is_none()),
            started: call.request.as_ref().map(|request| StartedCall {
                call_id: text(&request.call_id).filter(|id| !id.is_empty()),
                execution_ref: text(&request.execution_ref),
                arguments: request.arguments.map(str::to_owned),
                is_suspended: request.is_suspended,
            }),
            asked: call.question.as_ref().map(|question| {
                let asked = Question::recorded(question);
                (asked, text(&question.response))
            }),
        }
    }
}

impl Engine<'_> {
    /// Brings every call to its result, in order. Stops early if the run must end or wait.
    pub(super) fn run_calls(&mut self, calls: Vec<OpenCall>) -> Result<Option<Ending>> {
        if calls.is_empty() {
            return Ok(None);
        }
        for call in calls {
            if call.barred != Some(Barred::CutOff)
                && let Some(ending) = self.must_end().or_else(|| self.limits.time_is_over())
            {
                self.log.journal.flush()?;
                return Ok(Some(ending));
            }
            if let Some(ending) = self.run_call(&call)? {
                return Ok(Some(ending));
            }
            if call.asked.is_some() {
                // The call may have got its result without an answer.
                self.withdraw_question()?;
            }
        }
        self.run_hooks(HookEvent::OnIterationEnd, b"{}")?;
        Ok(None)
    }

    fn run_call(&mut self, call: &OpenCall) -> Result<Option<Ending>> {
        if let Some(barred) = call.barred {
            let text = match barred {
                Barred::CutOff => "not run: the message with this call was cut off".to_owned(),
                Barred::TooMany => format!(
                    "not run: only the first {MOST_CALLS} calls of a message are run; ask for fewer at a time"
                ),
            };
            return self.record_refusal(call, &text).map(|()| None);
        }
        let asks_a_person = call.name == "ask_human" && self.ask_human.is_some();
        if let Some(playback) = self.model.playback()
            && let Some(outcome) = playback.result(&call.id, asks_a_person)
        {
            return self.replay_result(call, outcome).map(|()| None);
        }
        if let Some((question, response)) = &call.asked
            && question.fingerprint.is_none()
        {
            return self.ask(call, question, response.clone());
        }
        if let Some(started) = &call.started {
            return self.recover_call(call, started);
        }
        if asks_a_person {
            return self.ask_first(call);
        }
        let agent = self.ctx.agent;
        let Some(tool) = tool_named(agent, &call.name) else {
            let all = agent.tools.iter().chain(&self.ask_human);
            let names: Vec<&str> = all.map(|tool| tool.name.as_str()).collect();
            let said = call
                .invalid
                .as_ref()
                .map_or_else(String::new, |raw| format!(" ({raw})"));
            let text = format!(
                "there is no tool '{}'{said}; the tools are: {}",
                call.name,
                names.join(", ")
            );
            return self.record_refusal(call, &text).map(|()| None);
        };
        match self.bind_call(tool, call) {
            Ok(bound) => self.run_guarded(call, (tool, bound), RunContext::new_call_id()),
            Err(text) => self.record_refusal(call, &text).map(|()| None),
        }
    }

    pub(super) fn bind_call(
        &self,
        tool: &Tool,
        call: &OpenCall,
    ) -> std::result::Result<BoundCall, String> {
        bind_arguments(
            tool,
            call.invalid.as_ref().unwrap_or(&call.arguments),
            &self.places(),
        )
    }

    /// Records a call that cannot be run, and why.
    pub(super) fn record_refusal(&mut self, call: &OpenCall, text: &str) -> Result<()> {
        self.log.print_progress(&[
            (Tone::Command, &call.name),
            (Tone::Bad, " refused: "),
            (Tone::Dim, &in_short(text, 100)),
        ]);
        self.record_result(call, Done::not_run(text.to_owned()), None)
    }

    /// Lets the guard look at a call, and a person if one must confirm it, then runs it.
    pub(super) fn run_guarded(
        &mut self,
        call: &OpenCall,
        (tool, bound): Ready<'_>,
        call_id: String,
    ) -> Result<Option<Ending>> {
        let Some((bound, questions)) = self.past_guard(call, Some(tool), bound)? else {
            return Ok(None);
        };
        match self.consent(call, (tool, &bound), &questions)? {
            Ok(true) => self.execute_call(call, (tool, bound), call_id),
            Ok(false) => Ok(None),
            Err(ending) => Ok(Some(ending)),
        }
    }

    /// The call as the guard lets it through, with the questions that are to be put to a person. None if it has been refused, or if the run must end:
    /// then it has not been started, and the next start of the engine starts it.
    pub(super) fn past_guard(
        &mut self,
        call: &OpenCall,
        tool: Option<&Tool>,
        bound: BoundCall,
    ) -> Result<Option<(BoundCall, Vec<String>)>> {
        let verdict = self.before_tool(&call.name, tool, bound)?;
        if self.ctx.signals.stop().is_some() {
            return Ok(None);
        }
        match verdict {
            GuardVerdict::Go(bound, questions) => Ok(Some((bound, questions))),
            GuardVerdict::Denied(why) => {
                self.record_refusal(call, &format!("{DENIED}{why}"))?;
                Ok(None)
            }
        }
    }

    fn execute_call(
        &mut self,
        call: &OpenCall,
        (tool, mut bound): Ready<'_>,
        call_id: String,
    ) -> Result<Option<Ending>> {
        self.remember_executed_files()?;
        tool_call::name_subagent(tool, &mut bound, &call_id);
        let prepared = tool_call::prepare_call(self.ctx, tool, &bound)?;
        self.print_command(&bound);
        self.log.add(&Event::ActionRequest {
            action_id: &call.id,
            tool_name: &call.name,
            tool_args_json: json::text(&bound.arguments).as_bytes(),
            resolved_command: &prepared.record.command,
            call_id: &call_id,
            execution_ref: Some(&prepared.reference),
        });
        self.log.make_durable()?;
        let reference = prepared.reference.clone();
        let command = prepared.record.command.clone();
        let line = self.log.wait_for(&call.name);
        let done = tool_call::run_tool(self.ctx, tool, &bound, prepared, &call_id)?;
        drop(line);
        if tool.subagent.is_some()
            && let Some(suspension) = done.exit_code.and_then(Suspension::of_code)
        {
            let places = (call_id.as_str(), command.as_str());
            return Ok(Some(self.suspended_by(call, suspension, places, &done)));
        }
        let outcome = match done.exit_code {
            Some(0) => format!("ok, {}", time(done.duration)),
            Some(code) => format!("exit code {code}, {}", time(done.duration)),
            None => "not run".to_owned(),
        };
        self.record_observation(call, done, &outcome, &reference)?;
        Ok(None)
    }

    /// Prints a command that is about to run, with the head of its stdin, or all of it if more is wanted.
    fn print_command(&self, bound: &BoundCall) {
        // Without the wrapper, which is the same each time.
        let command = in_short(&shell_quoted(telling_words(&bound.argv)), 160);
        let Some(stdin) = &bound.stdin else {
            return self
                .log
                .print_progress(&[(Tone::Dim, "$ "), (Tone::Command, &command)]);
        };
        let text = String::from_utf8_lossy(stdin);
        let shown = first_line(&text);
        let (sign, tone) = (" <<< ", Tone::Command);
        if !self.log.screen.verbose || text.lines().count() < 2 {
            let pieces = [
                (Tone::Dim, "$ "),
                (tone, &command),
                (Tone::Dim, sign),
                (tone, &shown),
            ];
            return self.log.print_progress(&pieces);
        }
        self.log
            .print_progress(&[(Tone::Dim, "$ "), (tone, &command), (Tone::Dim, sign)]);
        for line in text.lines() {
            self.log.print_below(tone, line);
        }
    }

    /// Lets the hook look at what came of a call, then records it.
    pub(super) fn record_observation(
        &mut self,
        call: &OpenCall,
        mut done: Done,
        outcome: &str,
        reference: &str,
    ) -> Result<()> {
        if let Some(observation) = self.after_tool(&call.name, &done, reference)? {
            done.observation = observation;
            for secret in self.ctx.environment.secrets() {
                secret.redact_text(&mut done.observation);
            }
        }
        self.log
            .print_outcome(done.exit_code == Some(0), outcome, &done.observation);
        self.record_result(call, done, Some(reference))
    }

    /// Gives a call the result that it had in the recorded run. Nothing is executed.
    pub(super) fn replay_result(&mut self, call: &OpenCall, outcome: RecordedResult) -> Result<()> {
        let done = Done {
            status: outcome.status,
            exit_code: outcome.exit_code,
            observation: outcome.observation,
            duration: std::time::Duration::from_millis(outcome.duration_ms),
            is_interrupted: false,
        };
        self.log.print_progress(&[
            (Tone::Dim, "= "),
            (Tone::Command, &call.name),
            (Tone::Dim, ", as recorded"),
        ]);
        self.record_result(call, done, None)
    }

    pub(super) fn record_result(
        &mut self,
        call: &OpenCall,
        done: Done,
        execution_ref: Option<&str>,
    ) -> Result<()> {
        self.log.add(&Event::ActionResult {
            action_id: &call.id,
            tool_name: &call.name,
            status: done.status,
            exit_code: done.exit_code,
            observation_content: &done.observation,
            duration_ms: done.duration.as_millis() as u64,
            execution_ref,
        });
        self.log.journal.flush()?;
        if done.status == ActionStatus::Error {
            self.on_error(&done.observation)?;
        }
        Ok(())
    }
}
