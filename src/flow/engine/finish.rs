//! The second half of a step: what its program came to, whether that will do, and where it leads.

use super::agents::is_conversation;
use super::begin::task_path;
use super::ready::wait_after;
use super::{ActiveProgram, FlowEngine, RunPlace};
use crate::error::{Result, may_fail};
use crate::flow::context::recall::find_lacking;
use crate::flow::graph::{
    Failure, FailureCode, Payload, Route, StepOutcome, StepRef, choose_route,
};
use crate::flow::record::attempt::PrintedOutput;
use crate::flow::record::made_files::{MadeFile, find_made_files};
use crate::flow::record::{
    EventWriter, NodeEnd, Output, attempt, cache, check_schema, denial_name, dir_name, events,
    tool_calls,
};
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome, Used};
use crate::unix::terminal::time;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The end of an attempt, beside its result.
#[derive(Clone, Debug, Default)]
pub(super) struct AttemptEnd {
    pub duration: Duration,
    pub used: Option<Used>,
    /// The directory of records; none of a step that ran nothing.
    pub io: Option<PathBuf>,
    pub cached: bool,
    /// The output is what the step was given.
    pub identity: bool,
    /// The files that it made.
    pub made: Vec<MadeFile>,
    /// The output is of something that came to it only in part.
    pub partial: bool,
}

impl FlowEngine<'_> {
    /// A program has ended.
    pub(super) fn end_program(&mut self, active: ActiveProgram, outcome: &Outcome) -> Result<()> {
        let code = outcome.how.code();
        let figures = (outcome.duration, outcome.used);
        attempt::record_end(&active.io, code, figures, &mut self.linked)?;
        if active.cancelled || self.router(active.step.key).is_none() {
            return Ok(());
        }
        if matches!(outcome.how, Ended::Interrupted(_)) && active.failure.is_none() {
            // The engine was asked to end. The next start begins the step again.
            return Ok(());
        }
        if active.asks.is_some() {
            return self.end_helper(active, outcome);
        }
        let mut ended = AttemptEnd {
            duration: outcome.duration,
            used: outcome.used,
            io: Some(active.io.clone()),
            ..AttemptEnd::default()
        };
        if is_conversation(self.place.flow, active.step.node) {
            return self.end_agent(active, outcome, ended);
        }
        if self.place.flow.nodes[active.step.node].flow.is_some() {
            return self.end_nested(active, outcome, ended);
        }
        let misuse = add_tool_calls(
            &mut self.events,
            &self.place,
            &active.step,
            (&active.io, &[]),
        )?;
        let settings = &self.place.flow.nodes[active.step.node];
        let failure = match active.failure {
            Some(failure) => Some(failure),
            None if attempt::is_partial(outcome, settings.partial_exit) => {
                ended.partial = true;
                None
            }
            None => attempt::find_failure(&active.io, outcome, settings.timeout)?,
        };
        let result = match failure {
            Some(failure) => Err(with_misuse(failure, misuse)),
            None => PrintedOutput::read(&active.io)?.payload(settings.output, attempt::TEXT_HINT),
        };
        self.judge(&active.step, result, ended)
    }

    /// Judges what a step came to: whether its output will do, whether it is tried again.
    pub(super) fn judge(
        &mut self,
        step: &StepRef,
        result: std::result::Result<Payload, Failure>,
        mut ended: AttemptEnd,
    ) -> Result<()> {
        let flow = self.place.flow;
        if self.router(step.key).is_none() {
            return Ok(());
        }
        let settings = &flow.nodes[step.node];
        let mut result = result;
        if result.is_ok() && ended.io.is_some() {
            let dir = task_path(&self.place, step);
            // Its files are part of what a node does, and of the time that it has.
            let left = settings
                .timeout
                .map(|all| all.saturating_sub(ended.duration));
            let due = left.map(|left| Instant::now() + left);
            let is_late = || due.is_some_and(|due| Instant::now() >= due);
            let is_stopped = || self.signals.stop().is_some() || is_late();
            match find_made_files(&dir, &settings.outputs, &is_stopped) {
                Ok(Some(made)) => ended.made = made,
                // The engine was asked to end. The next start begins the step again.
                Ok(None) if self.signals.stop().is_some() => return Ok(()),
                Ok(None) => result = Err(too_late(settings.timeout)),
                Err(why) => result = Err(Failure::new(FailureCode::Operation, why)),
            }
        }
        let fault = |output: &Payload| {
            let misfit = check_schema(flow.schema_out(step.node), output, FailureCode::SchemaOut);
            misfit.or_else(|| find_lacking(&settings.remember, output))
        };
        let result = result.and_then(|output| match fault(&output) {
            Some(failure) => Err(failure),
            None => choose_route(&flow.graph, step.node, &output).map(|route| (output, route)),
        });
        if let Err(failure) = &result {
            let attempts = self.attempts.entry(step.key).or_default();
            if attempts.failed < settings.retries && ended.io.is_some() {
                attempts.failed += 1;
                let wait = wait_after(attempts.failed);
                let due = Timestamp::now().plus(wait);
                self.events.add_retry(step, failure, (due, ended.used));
                let how = format!("{}, again in {} s", failure.code.name(), wait.as_secs());
                self.report_step(step, Err(&failure.message), &how);
                self.ready.delay(step.clone(), Instant::now() + wait);
                return Ok(());
            }
        }
        self.finish(step, result, ended)
    }

    /// Records the end of a step and routes it.
    pub(super) fn finish(
        &mut self,
        step: &StepRef,
        result: std::result::Result<(Payload, Route), Failure>,
        ended: AttemptEnd,
    ) -> Result<()> {
        if self.router(step.key).is_none() {
            return Ok(());
        }
        let goes = result.is_ok() && !ended.partial && self.would_remove_records(step);
        let kept = match &result {
            Ok((output, _)) => Ok(self.keep_output(step, output, &ended, goes)?),
            Err(failure) => Err(failure.clone()),
        };
        self.attempts.remove(&step.key);
        let cache_key = self.cache_keys.remove(&step.key);
        let cache_key = cache_key.filter(|_| !ended.partial);
        self.table.count_end(result.is_ok());
        match &result {
            Ok((output, _)) => {
                if let Some(key) = cache_key {
                    // Without room for it the run goes on.
                    may_fail(cache::write_entry(self.place.workspace, &key, output));
                }
                let how = match (ended.cached, &ended.io) {
                    (true, _) => "ok, cached".to_owned(),
                    _ if ended.partial => format!("partial, {}", time(ended.duration)),
                    (false, Some(_)) => format!("ok, {}", time(ended.duration)),
                    (false, None) => "ok".to_owned(),
                };
                self.report_step(step, Ok(()), &how);
            }
            Err(failure) => {
                self.report_step(step, Err(&failure.message), failure.code.name());
            }
        }
        let end = NodeEnd {
            outcome: kept,
            duration: ended.duration,
            used: ended.used,
            cached: ended.cached,
            made: ended.made,
            partial: ended.partial,
            context_bytes: ended.io.as_deref().map(context_bytes),
            records_removed: goes,
        };
        let time = self.events.add_node_end(step, &end);
        match goes {
            true => self.spend_records(step),
            false => self.spent.forget(step.key),
        }
        let (outcome, note) = match result {
            Ok((output, route)) => {
                let note = self.recall.note(self.place.flow, step, &output, time);
                let outcome = match ended.partial {
                    true => StepOutcome::Partial(output, route),
                    false => StepOutcome::Success(output, route),
                };
                (outcome, note)
            }
            Err(failure) => (StepOutcome::Failure(failure), None),
        };
        if let Some(router) = self.roots.get_mut(&step.key.root) {
            router.end_step(step.key.step, outcome, note);
        }
        self.drain(step.key.root, None)
    }

    /// Writes an output where people look for it; `goes` says that the step's records do not stay. Returns where the
    /// journal has it.
    fn keep_output(
        &mut self,
        step: &StepRef,
        output: &Payload,
        ended: &AttemptEnd,
        goes: bool,
    ) -> Result<Output> {
        if ended.identity {
            return Ok(Output::Identity);
        }
        let run = &self.place.run.path;
        if goes && output.len() <= events::INLINE {
            return Ok(Output::Text(output.clone()));
        }
        if let Some(io) = ended.io.as_ref().filter(|_| !goes) {
            let name = io.join("output.json");
            let kept = events::keep_text(run, &attempt::reference(run, &name), output)?;
            if matches!(kept, Output::Text(_)) {
                self.linked.write(&name, output)?;
            }
            return Ok(kept);
        }
        let dir = format!("io/nodes/{}", dir_name(&step.task));
        files::make_dirs_below(run, Path::new(&dir))?;
        let name = format!("{dir}/{}.output.json", self.node_id(step));
        events::keep_text(run, &name, output)
    }

    /// Prints a line of progress about a step: how it ended, and, if that is bad, why.
    pub(super) fn report_step(
        &mut self,
        step: &StepRef,
        good: std::result::Result<(), &str>,
        how: &str,
    ) {
        if !self.options.screen.quiet {
            let node = self.node_id(step);
            self.table.print_step((&step.task, node), how, good);
        }
    }
}

/// The size of the context that an attempt was given.
fn context_bytes(io: &Path) -> u64 {
    let meta = io.join("context.json").metadata();
    meta.map_or(0, |meta| meta.len())
}

/// The failure of a node whose files cannot be read in the time that it has.
fn too_late(timeout: Option<Duration>) -> Failure {
    let ms = timeout.unwrap_or_default().as_millis();
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

/// Records which tools an attempt has called, but for the calls that the journal has. Returns what is
/// wrong with the last call, if it was none that could be run.
pub(super) fn add_tool_calls(
    events: &mut EventWriter<'_>,
    place: &RunPlace<'_>,
    step: &StepRef,
    (io, known): (&Path, &[String]),
) -> Result<Option<String>> {
    let mut misuse = None;
    for (name, call) in tool_calls::read_calls(io)? {
        let path = io.join(tool_calls::DIR).join(name);
        let reference = attempt::reference(&place.run.path, &path);
        if let Some(denied) = &call.denied
            && !known.contains(&denial_name(&reference))
        {
            events.add_denial(step, denied, Some(&reference));
        }
        if !known.iter().any(|known| *known == reference) {
            events.add_tool_call(step, &reference, &call);
        }
        let code = call.code;
        misuse = call
            .message
            .filter(|_| code.is_some_and(tool_calls::CallCode::is_misuse));
    }
    Ok(misuse)
}
