//! Commands that begin something which ends without them: recorded with a handle, and looked at when it is time.
//!
//! Unaware of routing. A look that a kill has cut short is made again, because only its end is recorded.

use super::programs::{ActiveProgram, BeginningStep, StepLook, text_of};
use super::{FlowEngine, StepResult, SuspendedStep};
use crate::engine::later::{self, ChosenTimes, ENDED_BADLY, NOT_YET};
use crate::error::Result;
use crate::flow::context::store::LARGEST_STORE;
use crate::flow::graph::{Failure, FailureCode, StepRef};
use crate::flow::manifest::fill;
use crate::flow::record::attempt::{self, LOOK, PrintedOutput};
use crate::flow::record::lineage::DeferredStep;
use crate::flow::record::{AttemptEnd, ProgramInput};
use crate::record::state::Deferred;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{self, Ended, Outcome};
use std::path::Path;
use std::time::Duration;

/// The shortest wait between two looks.
const SHORTEST: Duration = Duration::from_secs(1);

impl FlowEngine<'_> {
    /// True for a program that says that what it has begun ends later.
    pub(super) fn is_deferral(&self, active: &ActiveProgram, how: Ended) -> bool {
        let may_defer = self.place.flow.nodes[active.step.node].later.is_some();
        may_defer && active.failure.is_none() && how == Ended::Exited(NOT_YET)
    }

    /// Records that what a program has begun ends later. Without a handle the program has failed.
    pub(super) fn defer_step(&mut self, active: ActiveProgram, ended: AttemptEnd) -> Result<()> {
        let (step, io) = (&active.step, &active.io);
        self.add_tool_calls(step, io, &[])?;
        let handle = match later::handle_in(&[], io) {
            Ok(handle) => handle,
            Err(why) => {
                let failure = Failure::operation(format!("exit code 75: {why}"));
                return self.judge_step(step, Err(failure), ended);
            }
        };
        let Some(rule) = &self.place.flow.nodes[step.node].later else {
            return Ok(());
        };
        let times = later::first_times(rule, self.chosen_times(&active));
        let reference = attempt::reference(&self.place.run.path, io).into_owned();
        self.place.workspace.raise_layout()?;
        let at = self.events.add_deferral(step, &handle, times, &reference);
        self.events.journal.sync()?;
        if self.options.is_ours {
            // It goes on without the processes of the node.
            process::end_leftovers(&active.call_id);
        }
        let deferred = DeferredStep {
            state: Deferred::new(handle, times, at),
            call_id: active.call_id,
            reference,
        };
        let why = wait_of(&deferred);
        self.attempts.deferred.insert(active.step.key, deferred);
        self.suspend(active.step, why);
        Ok(())
    }

    /// Looks at what a step has begun, if it is time; else the step waits on.
    pub(super) fn look_again(&mut self, beginning: &BeginningStep) -> Result<()> {
        let (place, step) = (&self.place, &beginning.step);
        let Some(deferred) = self.attempts.deferred.get(&step.key) else {
            return Ok(());
        };
        let (settings, now) = (&place.flow.nodes[step.node], Timestamp::now());
        let handle = deferred.state.handle.clone();
        let Some(rule) = &settings.later else {
            let text =
                format!("what became of {handle} is not known: the node has no later: any more");
            return self.end_wait(step, Err(Failure::operation(text)), AttemptEnd::default());
        };
        if !deferred.state.is_due(now) {
            self.suspend(step.clone(), wait_of(deferred));
            return Ok(());
        }
        let is_last = now >= deferred.state.expires_at;
        let dir = place.task_dir(step)?;
        let argv = fill(&rule.check, &place.flow.home, &dir);
        let context = Path::new(&deferred.reference).join("context.json");
        let context = files::read_text_below(&place.run.path, &context, LARGEST_STORE).ok();
        let text = text_of(&beginning.input, settings.input);
        let given = ProgramInput {
            argv: [self.options.launch.clone(), argv].concat(),
            dir,
            input: &beginning.input,
            context: context.as_deref(),
            stdin: text.as_deref().map(str::as_bytes),
        };
        let name = format!("{}{LOOK}", place.node_id(step));
        let call_id = deferred.call_id.clone();
        let prepared = self.prepare_records(beginning, &name, given)?;
        self.await_launch(
            beginning,
            prepared,
            call_id,
            Some(StepLook { handle, is_last }),
        );
        Ok(())
    }

    /// The program of a look has ended.
    pub(super) fn end_look(
        &mut self,
        active: ActiveProgram,
        look: &StepLook,
        outcome: &Outcome,
        mut ended: AttemptEnd,
    ) -> Result<()> {
        let (step, io) = (&active.step, &active.io);
        self.add_tool_calls(step, io, &[])?;
        if self.options.is_ours {
            process::end_leftovers(&active.call_id);
        }
        let settings = &self.place.flow.nodes[step.node];
        let code = match outcome.how {
            Ended::Exited(code) if active.failure.is_none() => Some(code),
            _ => None,
        };
        let result = match code {
            Some(0) => PrintedOutput::read(io)?.payload(settings.output, attempt::TEXT_HINT),
            Some(ENDED_BADLY) => match active.find_failure(outcome, settings.timeout)? {
                Some(failure) => Err(failure),
                None => return Ok(()),
            },
            _ if look.is_last => {
                let now = Timestamp::now();
                let since = self
                    .attempts
                    .deferred
                    .get(&step.key)
                    .map_or(now, |it| it.state.since);
                let text = format!("nothing known after {} s", now.since(since).as_secs());
                Err(Failure::new(FailureCode::Timeout, text))
            }
            _ => return self.not_yet(active, code),
        };
        ended.look_ref = Some(attempt::reference(&self.place.run.path, io).into_owned());
        self.end_wait(step, result, ended)
    }

    /// Ends the wait of a step. A retry begins it anew.
    fn end_wait(&mut self, step: &StepRef, result: StepResult, ended: AttemptEnd) -> Result<()> {
        self.attempts.deferred.remove(&step.key);
        self.judge_step(step, result, ended)
    }

    /// Records a look that has not found an end.
    fn not_yet(&mut self, active: ActiveProgram, code: Option<i32>) -> Result<()> {
        let key = active.step.key;
        let is_known = code == Some(NOT_YET);
        let has_failed = |it: &DeferredStep| it.state.has_failed_look;
        if !is_known && !self.attempts.deferred.get(&key).is_some_and(has_failed) {
            let how = match code {
                Some(code) => format!("exit code {code}"),
                None => "it did not exit by itself".to_owned(),
            };
            let why = format!("its check could not say whether it has ended: {how}");
            self.warn_of(&active.step, &why);
        }
        let chosen = if is_known {
            self.chosen_times(&active)
        } else {
            ChosenTimes::default()
        };
        let Some(deferred) = self.attempts.deferred.get_mut(&key) else {
            return Ok(());
        };
        let (due_at, expires_at) = later::next_times(&deferred.state, chosen);
        // A record whose waits have no length must not be looked at without an end.
        let times = (due_at.max(Timestamp::now().plus(SHORTEST)), expires_at);
        let reference = attempt::reference(&self.place.run.path, &active.io);
        let at = self.events.add_look(&active.step, code, times, &reference);
        self.events.journal.sync()?;
        deferred.state.note_look(code.map(i64::from), times, at);
        let why = wait_of(deferred);
        self.suspend(active.step, why);
        Ok(())
    }

    /// The times that a program has chosen; with a warning, none.
    fn chosen_times(&mut self, active: &ActiveProgram) -> ChosenTimes {
        later::times_in(&active.io).unwrap_or_else(|why| {
            self.warn_of(&active.step, &why);
            ChosenTimes::default()
        })
    }

    fn warn_of(&mut self, step: &StepRef, why: &str) {
        let node = self.place.node_id(step);
        self.warn(&format!("{node} of {}: {why}", step.task));
    }
}

fn wait_of(deferred: &DeferredStep) -> SuspendedStep {
    let due_at = deferred.state.due_at;
    let handle = in_short(&deferred.state.handle, 60);
    SuspendedStep::until(due_at, format!("waits for {handle}; next look at {due_at}"))
}
