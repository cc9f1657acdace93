//! The second half of a step: what its program came to, whether that will do, and where it leads.

use super::tell::about;
use super::{Active, FlowEngine, StepKey, Tries};
use crate::error::Result;
use crate::error::may_fail;
use crate::flow::context::recall::lacking;
use crate::flow::graph::choice::{Failure, FailureCode, Payload, Route, choose};
use crate::flow::graph::router;
use crate::flow::record::attempt::{self, MOST_OUTPUT, dir_name, misfit, too_much};
use crate::flow::record::cache;
use crate::flow::record::events::{self, NodeEnd, Output};
use crate::flow::record::tool_calls;
use crate::unix::files;
use crate::unix::process::{self, Outcome, Used};
use crate::unix::terminal::{Tone, in_short, time};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is known of the end of an attempt beside its result.
#[derive(Clone, Debug, Default)]
pub(super) struct AttemptEnd {
    pub duration: Duration,
    pub used: Option<Used>,
    /// Its directory of records; none of a step that ran nothing.
    pub io: Option<PathBuf>,
    pub cached: bool,
    /// The output is what the step was given.
    pub identity: bool,
}

impl AttemptEnd {
    pub(super) fn identity() -> Self {
        Self {
            identity: true,
            ..Self::default()
        }
    }

    /// Nothing is known but where the records are.
    pub(super) fn recorded(io: PathBuf) -> Self {
        Self {
            io: Some(io),
            ..Self::default()
        }
    }

    pub(super) fn from_cache() -> Self {
        Self {
            cached: true,
            ..Self::default()
        }
    }
}

/// What stands for the denial of a call among the records that have been told.
pub(super) fn told_denial(execution_ref: &str) -> String {
    format!("denied {execution_ref}")
}

/// A failure, with the misuse of a tool that its program ended with, if it does not tell of it.
fn because(failure: Failure, misuse: Option<String>) -> Failure {
    match misuse {
        Some(why) if failure.code == FailureCode::Operation && !failure.message.contains(&why) => {
            Failure::new(failure.code, format!("{}: {why}", failure.message))
        }
        _ => failure,
    }
}

impl FlowEngine<'_> {
    /// A program has ended.
    pub(super) fn ended(&mut self, active: Active, outcome: &Outcome) -> Result<()> {
        let which = active.which;
        let code = attempt::exit_code(outcome);
        let figures = (outcome.duration, outcome.used);
        attempt::record(&active.io, code, figures, &mut self.alike)?;
        let step = self
            .roots
            .get(&which.0)
            .and_then(|it| it.router.get(which.1));
        let (Some(step), false) = (step, active.cancelled) else {
            return Ok(());
        };
        let node = step.node;
        let interrupted = matches!(outcome.how, process::Ended::Interrupted(_));
        if interrupted && active.doomed.is_none() {
            // The engine was asked to end. Whoever resumes the run begins the step again.
            return Ok(());
        }
        if active.asks.is_some() {
            return self.told_by_program(active, outcome);
        }
        let ended = AttemptEnd {
            duration: outcome.duration,
            used: outcome.used,
            io: Some(active.io.clone()),
            ..AttemptEnd::default()
        };
        let settings = &self.place.flow.nodes[node];
        if self.is_conversation(node) {
            return self.answered(active, outcome, ended);
        }
        let misuse = self.tell_tools(which, &active.io, &[])?;
        let fault = match active.doomed {
            Some(failure) => Some(failure),
            None => attempt::fault(&active.io, outcome, settings.timeout)?,
        };
        let fault = fault.map(|failure| because(failure, misuse));
        let result = match fault {
            Some(failure) => Err(failure),
            None => attempt::output(&active.io, settings.output)?,
        };
        self.judge(which, result, ended)
    }

    /// Judges what a step came to: whether its output will do, whether it is tried again.
    pub(super) fn judge(
        &mut self,
        which: StepKey,
        result: std::result::Result<Payload, Failure>,
        ended: AttemptEnd,
    ) -> Result<()> {
        let flow = self.place.flow;
        let step = self
            .roots
            .get(&which.0)
            .and_then(|it| it.router.get(which.1));
        let Some(node) = step.map(|step| step.node) else {
            return Ok(());
        };
        let schema = flow.schema_out(node);
        let remember = &flow.nodes[node].remember;
        let fault = |output: &Payload| {
            let misfit = misfit(schema, output, FailureCode::SchemaOut);
            misfit.or_else(|| lacking(remember, output))
        };
        let result = result.and_then(|output| match fault(&output) {
            Some(failure) => Err(failure),
            None => choose(&flow.graph, node, &output).map(|choice| (output, choice)),
        });
        if let Err(failure) = &result {
            let tries = self.tries.entry(which).or_default();
            if tries.failed < flow.nodes[node].retries && ended.io.is_some() {
                tries.failed += 1;
                if let Some(step) = self
                    .roots
                    .get(&which.0)
                    .and_then(|it| about(&it.router, which.1))
                {
                    events::attempt_failed(&mut self.journal, &flow.graph, step, failure);
                }
                self.say(
                    which,
                    false,
                    &format!("{}, again", failure.code.name()),
                    &failure.message,
                );
                self.ready.push_front(which);
                return Ok(());
            }
        }
        self.finish(which, result, ended)
    }

    /// Tells which tools an attempt has called, but for the records that have been told. Returns what
    /// is wrong with the last call, if it was none that could be run.
    pub(super) fn tell_tools(
        &mut self,
        which: StepKey,
        io: &Path,
        known: &[String],
    ) -> Result<Option<String>> {
        let mut misuse = None;
        for (name, call) in tool_calls::calls(io)? {
            let path = io.join(tool_calls::DIR).join(name);
            let path = path.strip_prefix(&self.place.run.path).unwrap_or(&path);
            let reference = path.to_string_lossy();
            if let Some(denied) = &call.denied
                && !known.contains(&told_denial(&reference))
            {
                self.record_denial(which, denied, Some(&reference));
            }
            let Some(root) = self.roots.get(&which.0) else {
                break;
            };
            if let Some(step) = about(&root.router, which.1)
                && !known.iter().any(|known| *known == reference)
            {
                let graph = &self.place.flow.graph;
                events::tool(&mut self.journal, graph, step, &reference, &call);
            }
            misuse = call
                .message
                .filter(|_| call.code.is_some_and(tool_calls::CallCode::is_misuse));
        }
        Ok(misuse)
    }

    /// Records the end of a step and routes it.
    pub(super) fn finish(
        &mut self,
        which: StepKey,
        result: std::result::Result<(Payload, Route), Failure>,
        ended: AttemptEnd,
    ) -> Result<()> {
        let kept = match &result {
            Ok((output, _)) => Ok(self.keep(which, output, &ended)?),
            Err(failure) => Err(failure.clone()),
        };
        let end = NodeEnd {
            outcome: kept,
            duration: ended.duration,
            used: ended.used,
            cached: ended.cached,
        };
        let key = self.keys.remove(&which);
        self.tries.remove(&which);
        let took = time(ended.duration);
        self.table.ended(result.is_ok());
        match &result {
            Ok((output, _)) => {
                if let Some(key) = key {
                    // Without room for it the run goes on.
                    may_fail(cache::write(self.place.workspace, &key, output));
                }
                let how = match (ended.cached, &ended.io) {
                    (true, _) => "ok, cached".to_owned(),
                    (false, Some(_)) => format!("ok, {took}"),
                    (false, None) => "ok".to_owned(),
                };
                self.say(which, true, &how, "");
            }
            Err(failure) => self.say(which, false, failure.code.name(), &failure.message),
        }
        let Some(root) = self.roots.get_mut(&which.0) else {
            return Ok(());
        };
        let mut note = None;
        if let Some(step) = about(&root.router, which.1) {
            let flow = self.place.flow;
            let time = events::node_end(&mut self.journal, &flow.graph, step, &end);
            if let Ok((output, _)) = &result {
                note = self.recall.note(flow, (which.0, step), output, time);
            }
        }
        let outcome = match result {
            Ok((output, choice)) => router::StepOutcome::Success(output, choice),
            Err(failure) => router::StepOutcome::Failure(failure),
        };
        root.router.ended_with(which.1, outcome, note);
        self.drain(which.0, None);
        Ok(())
    }

    /// Writes an output where people look for it, and says where the journal has it.
    fn keep(&mut self, which: StepKey, output: &Payload, ended: &AttemptEnd) -> Result<Output> {
        if ended.identity {
            return Ok(Output::Identity);
        }
        let run = &self.place.run.path;
        if let Some(io) = &ended.io {
            let name = io.join("output.json");
            let reference = name.strip_prefix(run).unwrap_or(&name);
            let kept = events::kept(run, &reference.to_string_lossy(), output)?;
            if matches!(kept, Output::Text(_)) {
                self.alike.write(&name, output)?;
            }
            return Ok(kept);
        }
        let Some((task, node)) = self.named(which) else {
            return Ok(Output::Text(output.clone()));
        };
        let dir = format!("io/nodes/{}", dir_name(task));
        let name = format!("{dir}/{node}.output.json");
        files::make_dirs(&run.join(dir))?;
        events::kept(run, &name, output)
    }

    /// Ends programs that print more than may be.
    pub(super) fn look_at_output(&mut self) {
        for (token, active) in &mut self.active {
            let printed = active.io.join("stdout.log").metadata();
            let printed = printed.map_or(0, |meta| meta.len());
            if printed > MOST_OUTPUT && active.doomed.is_none() {
                active.doomed = Some(Failure::new(FailureCode::Operation, too_much(printed)));
                self.children.interrupt(*token, self.options.grace);
            }
        }
    }

    /// A line of progress about a step.
    pub(super) fn say(&mut self, which: StepKey, good: bool, how: &str, why: &str) {
        if self.options.screen.quiet {
            return;
        }
        let Some((task, node)) = self.named(which) else {
            return;
        };
        let (place, node) = (format!("[{task}] "), node.to_owned());
        let tone = if good { Tone::Good } else { Tone::Bad };
        let why = match why {
            "" => String::new(),
            why => format!(": {}", in_short(why, 200)),
        };
        self.table.line(&[
            (Tone::Dim, &place),
            (Tone::Command, &node),
            (Tone::Dim, "  "),
            (tone, how),
            (Tone::Dim, &why),
        ]);
    }

    /// Sets what is known of the attempts at a step.
    pub(super) fn set_tries(&mut self, which: StepKey, tries: Tries) {
        self.tries.insert(which, tries);
    }
}
