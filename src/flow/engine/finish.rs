//! The second half of a step: how its program ended, whether its output will do, and where it leads.

use super::agents::ChildRunEnd;
use super::programs::{ActiveProgram, BeginningStep};
use super::queue::wait_after;
use super::{FlowEngine, StepResult};
use crate::error::{Result, ignore};
use crate::flow::context::recall::find_lacking;
use crate::flow::graph::{
    Failure, FailureCode, Payload, Route, StepOutcome, StepRef, choose_route,
};
use crate::flow::record::attempt::PrintedOutput;
use crate::flow::record::cache::CachedFiles;
use crate::flow::record::made_files::{MadeFile, find_made_files};
use crate::flow::record::{
    AttemptEnd, Output, ProgramInput, attempt, check_schema, denial_name, dir_name, events,
    tool_calls,
};
use crate::text::amounts::format_duration;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome};
use std::path::Path;
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// A program has ended.
    pub(super) fn end_program(&mut self, active: ActiveProgram, outcome: &Outcome) -> Result<()> {
        let (flow, node) = (self.place.flow, active.step.node);
        let code = outcome.how.code();
        let linked = &mut self.programs.linked;
        attempt::record_end(&active.io, code, outcome.duration, outcome.used, linked)?;
        if active.cancelled || self.roots.router(active.step.key).is_none() {
            return Ok(());
        }
        if matches!(outcome.how, Ended::Interrupted(_)) && active.failure.is_none() {
            // The engine was asked to end. The next start begins the step again.
            return Ok(());
        }
        let mut ended = AttemptEnd {
            duration: outcome.duration,
            used: outcome.used,
            io: Some(active.io.clone()),
            ..AttemptEnd::default()
        };
        if let Some(look) = active.look.clone() {
            return self.end_look(active, &look, outcome, ended);
        }
        if self.is_deferral(&active, outcome.how) {
            return self.defer_step(active, ended);
        }
        if flow.is_conversation(node) {
            let end = self.end_agent(&active, outcome)?;
            if !matches!(end, ChildRunEnd::Suspended(_)) {
                self.add_tool_calls(&active.step, &active.io, &[])?;
            }
            return self.end_run(active, end, ended);
        }
        if flow.nodes[node].flow.is_some() {
            let (end, is_partial) = self.end_nested(&active, outcome)?;
            ended.partial = is_partial;
            return self.end_run(active, end, ended);
        }
        let misuse = self.add_tool_calls(&active.step, &active.io, &[])?;
        let settings = &flow.nodes[node];
        ended.partial =
            active.failure.is_none() && attempt::is_partial(outcome, settings.partial_exit);
        let failure = if ended.partial {
            None
        } else {
            active.find_failure(outcome, settings.timeout)?
        };
        let result = match failure {
            Some(failure) => Err(with_misuse(failure, misuse)),
            None => PrintedOutput::read(&active.io)?.payload(settings.output, attempt::TEXT_HINT),
        };
        self.judge_step(&active.step, result, ended)
    }

    /// The run of a node's own has stopped.
    fn end_run(
        &mut self,
        active: ActiveProgram,
        end: ChildRunEnd,
        ended: AttemptEnd,
    ) -> Result<()> {
        let step = active.step;
        let failure = match end {
            ChildRunEnd::Suspended(why) => {
                self.suspend(step, why);
                return Ok(());
            }
            ChildRunEnd::Ended(result) => return self.judge_step(&step, result, ended),
            ChildRunEnd::Unfit(failure) => failure,
        };
        let dir = self.place.task_dir(&step)?;
        if !self.may_send_back(&step, &dir) {
            return self.judge_step(&step, Err(failure), ended);
        }
        let context = self.context_of(&active.io)?;
        let message = self.message_command("continue", &step, &dir)?;
        self.report_step(&step, Some(&failure.message), "sent back");
        let input = self
            .roots
            .router(step.key)
            .and_then(|it| it.input(step.key.step));
        let beginning = BeginningStep {
            input: input.unwrap_or_else(|| "null".into()),
            attempt: self.attempts.of(step.key).last,
            step,
        };
        let text = self.sent_back(&beginning.step, &failure);
        let given = ProgramInput {
            argv: [self.options.launch.clone(), message].concat(),
            dir,
            input: &beginning.input,
            context: Some(&context),
            stdin: Some(text.as_bytes()),
        };
        self.prepare_attempt(&beginning, given, None)
    }

    /// Judges the result of a step: whether its output will do, whether it is tried again.
    pub(super) fn judge_step(
        &mut self,
        step: &StepRef,
        result: StepResult,
        mut ended: AttemptEnd,
    ) -> Result<()> {
        let flow = self.place.flow;
        if self.roots.router(step.key).is_none() {
            return Ok(());
        }
        let settings = &flow.nodes[step.node];
        let mut checked = result;
        if checked.is_ok() && ended.io.is_some() {
            // Its files are part of what a node does, and of the time that it has.
            let left = settings
                .timeout
                .map(|all| all.saturating_sub(ended.duration));
            let due = left.map(|left| Instant::now() + left);
            let is_asked = || self.programs.signals.stop().is_some();
            let is_stopped = || is_asked() || due.is_some_and(|due| Instant::now() >= due);
            match find_made_files(&self.place.task_path(step), &settings.outputs, &is_stopped) {
                Ok(Some(made)) => ended.made = made,
                // The engine was asked to end. The next start begins the step again.
                Ok(None) if is_asked() => return Ok(()),
                Ok(None) => checked = Err(too_late(settings.timeout)),
                Err(why) => checked = Err(Failure::operation(why)),
            }
        }
        let routed = checked.and_then(|output| {
            let misfit = check_schema(flow.schema_out(step.node), &output, FailureCode::SchemaOut);
            match misfit.or_else(|| find_lacking(&settings.remember, &output)) {
                Some(failure) => Err(failure),
                None => choose_route(&flow.graph, step.node, &output).map(|route| (output, route)),
            }
        });
        if let Err(failure) = &routed {
            let attempts = self.attempts.counts.entry(step.key).or_default();
            if attempts.failed < settings.retries && ended.io.is_some() {
                attempts.failed += 1;
                let wait = wait_after(attempts.failed);
                let due = Timestamp::now().plus(wait);
                self.events.add_retry(step, failure, due, ended.used);
                let how = format!("{}, again in {} s", failure.code.name(), wait.as_secs());
                self.report_step(step, Some(&failure.message), &how);
                self.queue.delay(step.clone(), Instant::now() + wait);
                return Ok(());
            }
        }
        self.finish_step(step, routed, ended)
    }

    /// Records the end of a step and routes it.
    pub(super) fn finish_step(
        &mut self,
        step: &StepRef,
        result: StepResult<(Payload, Route)>,
        mut ended: AttemptEnd,
    ) -> Result<()> {
        let key = step.key;
        if self.roots.router(key).is_none() {
            return Ok(());
        }
        ended.records_removed = result.is_ok() && !ended.partial && self.programs.spent.has(key);
        self.attempts.counts.remove(&key);
        let cache_key = self.attempts.cache_keys.remove(&key);
        self.table.count_end(result.is_ok());
        let (kept, why, how) = match &result {
            Ok((output, _)) => {
                let kept = self.keep_output(step, output, &ended)?;
                if let Some(name) = cache_key.filter(|_| !ended.partial) {
                    // Without room for it the run goes on.
                    ignore(self.write_cached(step, &name, output, &ended.made));
                }
                let mut how = if ended.partial { "partial" } else { "ok" }.to_owned();
                if ended.cached {
                    how.push_str(", cached");
                } else if ended.io.is_some() {
                    how.push_str(&format!(", {}", format_duration(ended.duration)));
                }
                (Ok(kept), None, how)
            }
            Err(failure) => (
                Err(failure.clone()),
                Some(&*failure.message),
                failure.code.name().to_owned(),
            ),
        };
        self.report_step(step, why, &how);
        let time = self.events.add_node_end(step, &kept, &ended);
        if ended.records_removed {
            self.programs.spent.spend(&self.place, step);
        } else {
            self.programs.spent.forget(key);
        }
        let (outcome, note) = match result {
            Ok((output, route)) => {
                let note = self.context.note(self.place.flow, step, &output, time);
                let outcome = if ended.partial {
                    StepOutcome::Partial(output, route)
                } else {
                    StepOutcome::Success(output, route)
                };
                (outcome, note)
            }
            Err(failure) => (StepOutcome::Failure(failure), None),
        };
        if let Some(router) = self.roots.open.get_mut(&key.root) {
            router.end_step(key.step, outcome, note);
        }
        self.drain_router(key.root, None)
    }

    /// Keeps the output of a step, with the files that it made, for steps with the same key.
    fn write_cached(
        &self,
        step: &StepRef,
        key: &str,
        output: &str,
        made: &[MadeFile],
    ) -> Result<()> {
        let place = &self.place;
        let patterns = &place.flow.nodes[step.node].outputs;
        self.cached_files(&place.task_path(step), |files| {
            files.write_entry(key, output, patterns, made)
        })
    }

    /// Works with the files that nodes made, in a directory of a task.
    pub(super) fn cached_files<T>(
        &self,
        dir: &Path,
        work: impl FnOnce(&CachedFiles<'_>) -> T,
    ) -> T {
        work(&CachedFiles {
            workspace: self.place.workspace,
            dir,
            is_stopped: &|| self.programs.signals.stop().is_some(),
        })
    }

    /// Writes an output where people look for it. Returns the form in which the journal has it.
    fn keep_output(
        &mut self,
        step: &StepRef,
        output: &Payload,
        ended: &AttemptEnd,
    ) -> Result<Output> {
        let run = &self.place.run.path;
        if ended.identity {
            return Ok(Output::Identity);
        }
        if ended.records_removed && output.len() <= events::INLINE {
            return Ok(Output::Text(output.clone()));
        }
        if let Some(io) = ended.io.as_ref().filter(|_| !ended.records_removed) {
            let name = io.join("output.json");
            let kept = events::keep_text(run, &attempt::reference(run, &name), output)?;
            if matches!(kept, Output::Text(_)) {
                self.programs.linked.write(&name, output)?;
            }
            return Ok(kept);
        }
        let dir = format!("io/nodes/{}", dir_name(&step.task));
        files::make_dirs_below(run, Path::new(&dir))?;
        events::keep_text(
            run,
            &format!("{dir}/{}.output.json", self.place.node_id(step)),
            output,
        )
    }

    /// Records which tools an attempt has called, but for the calls that the journal has. Returns what is
    /// wrong with the last call, if it was none that could be run.
    pub(super) fn add_tool_calls(
        &mut self,
        step: &StepRef,
        io: &Path,
        known: &[String],
    ) -> Result<Option<String>> {
        let mut misuse = None;
        for (name, call) in tool_calls::read_calls(io)? {
            let path = io.join(tool_calls::DIR).join(name);
            let reference = attempt::reference(&self.place.run.path, &path);
            if let Some(denied) = &call.denied
                && !known.contains(&denial_name(&reference))
            {
                self.events.add_denial(step, denied, Some(&reference));
            }
            if !known.iter().any(|known| *known == reference) {
                self.events.add_tool_call(step, &reference, &call);
            }
            let is_misuse = call.code.is_some_and(tool_calls::CallCode::is_misuse);
            misuse = call.message.filter(|_| is_misuse);
        }
        Ok(misuse)
    }
}

/// The failure of a node whose files cannot be read in the time that it has.
fn too_late(timeout: Option<Duration>) -> Failure {
    let ms = timeout.map_or(0, |time| time.as_millis());
    let message = format!("outputs: it took longer than {ms} ms, with the reading of its files");
    Failure::new(FailureCode::Timeout, message)
}

/// A failure, with the misuse of a tool that its program ended with, unless its message has that.
fn with_misuse(failure: Failure, misuse: Option<String>) -> Failure {
    match misuse {
        Some(why) if failure.code == FailureCode::Operation && !failure.message.contains(&why) => {
            Failure::new(failure.code, format!("{}: {why}", failure.message))
        }
        _ => failure,
    }
}
