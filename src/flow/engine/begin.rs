//! The first half of a step: everything up to its program, or all of it if it has none.

use super::agents::first_message;
use super::answered::RecordedAnswer;
use super::programs::{ActiveProgram, BeginningStep, WaitingProgram, run_variables, text_of};
use super::{FlowEngine, Need, RunPlace, StepResult, SuspendedStep};
use crate::engine::later::{self, LookInput};
use crate::engine::outbox;
use crate::error::Result;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::{Failure, FailureCode, StepRef};
use crate::flow::manifest::{AgentBody, Denied, Flow, WaitTime};
use crate::flow::record::cache::cache_key;
use crate::flow::record::{
    AttemptEnd, NodeStart, ProgramInput, attempt, check_schema, denied_tools, not_started,
};
use crate::record::run_dir::FLOW_RUN;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{Command, Variable};
use std::borrow::Cow;
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Begins a step, if it is still wanted. One without a program has ended when this returns.
    pub(super) fn begin_step(&mut self, step: StepRef) -> Result<()> {
        let (flow, node, key) = (self.place.flow, step.node, step.key);
        let Some(router) = self.roots.router(key) else {
            return Ok(());
        };
        let failed_early = router
            .failed_early(key.step)
            .or(self.queue.input_fault(&self.place, &step));
        let counts = self.attempts.of(key);
        let is_deferred = self.attempts.deferred.contains_key(&key);
        let pauses = self.options.pause_before.contains(&node) && !is_deferred;
        if pauses && !counts.pause_acknowledged {
            self.pause(step);
            return Ok(());
        }
        let beginning = BeginningStep {
            input: router.input(key.step).unwrap_or_else(|| "null".into()),
            step,
            attempt: counts.last.saturating_add(u32::from(!is_deferred)),
        };
        if is_deferred {
            return self.look_again(&beginning);
        }
        if let Some(failure) = failed_early {
            return self.fail_unstarted(&beginning, failure, None);
        }
        let step = &beginning.step;
        if let Some(answered) = &self.options.answered {
            match answered.answer(&self.place, step) {
                RecordedAnswer::Done => {}
                RecordedAnswer::Unknown => {
                    self.pause(beginning.step);
                    return Ok(());
                }
                RecordedAnswer::Ended(result) => {
                    return self.end_unstarted(&beginning, result, AttemptEnd::default());
                }
            }
        }
        let denied = flow.denial(node);
        let context = match self.may_begin(&beginning, denied.as_ref()) {
            Ok(context) => context,
            Err(failure) => return self.fail_unstarted(&beginning, failure, denied.as_ref()),
        };
        if flow.nodes[node].runs() {
            return self.begin_program(&beginning, &context);
        }
        let wait = flow.nodes[node].wait;
        if let Some(wait) = wait.filter(|_| self.options.answered.is_none()) {
            return self.wait_for_time(beginning, wait);
        }
        self.add_plain_start(&beginning, None);
        self.pass_on(step)
    }

    /// The context of a step, unless something forbids that it begins.
    fn may_begin(
        &self,
        beginning: &BeginningStep,
        denied: Option<&Denied>,
    ) -> StepResult<AssembledContext> {
        if let Some(denied) = denied {
            return Err(Failure::new(FailureCode::PolicyDenied, denied.message()));
        }
        let context = self
            .assemble_context(beginning)
            .map_err(|why| Failure::new(FailureCode::Context, why))?;
        let schema = self.place.flow.schema_in(beginning.step.node);
        match check_schema(schema, &beginning.input, FailureCode::SchemaIn) {
            Some(failure) => Err(failure),
            None => Ok(context),
        }
    }

    fn pause(&mut self, step: StepRef) {
        self.suspend(step, SuspendedStep::new(Need::Paused, String::new()));
    }

    /// The end of a step that runs nothing.
    fn pass_on(&mut self, step: &StepRef) -> Result<()> {
        let output = self
            .roots
            .router(step.key)
            .and_then(|it| it.identity(step.key.step));
        let ended = AttemptEnd {
            identity: true,
            ..AttemptEnd::default()
        };
        self.judge_step(step, Ok(output.unwrap_or_else(|| "null".into())), ended)
    }

    /// Ends a step that waits, if its time has come. The journal has the time, so that no start lets it begin anew.
    fn wait_for_time(&mut self, beginning: BeginningStep, wait: WaitTime) -> Result<()> {
        let now = Timestamp::now();
        let counts = self.attempts.counts.entry(beginning.step.key).or_default();
        let is_new = counts.due_at.is_none();
        let due_at = *counts.due_at.get_or_insert_with(|| wait.end(now));
        if is_new {
            counts.last = beginning.attempt;
            self.add_plain_start(&beginning, Some(due_at));
        }
        if now < due_at {
            let why = SuspendedStep::until(due_at, format!("waits until {due_at}"));
            self.suspend(beginning.step, why);
            return Ok(());
        }
        self.pass_on(&beginning.step)
    }

    /// Records the beginning of a step that runs nothing.
    fn add_plain_start(&mut self, beginning: &BeginningStep, due_at: Option<Timestamp>) {
        let start = NodeStart {
            attempt: beginning.attempt,
            due_at,
            ..NodeStart::default()
        };
        self.events.add_node_start(&beginning.step, start);
    }

    fn end_unstarted(
        &mut self,
        beginning: &BeginningStep,
        result: StepResult,
        ended: AttemptEnd,
    ) -> Result<()> {
        self.add_plain_start(beginning, None);
        self.judge_step(&beginning.step, result, ended)
    }

    fn fail_unstarted(
        &mut self,
        beginning: &BeginningStep,
        failure: Failure,
        denied: Option<&Denied>,
    ) -> Result<()> {
        let step = &beginning.step;
        self.add_plain_start(beginning, None);
        if let Some(denied) = denied {
            self.events.add_denial(step, denied, None);
        }
        self.finish_step(step, Err(failure), AttemptEnd::default())
    }

    /// Prepares an attempt: its files are there and its beginning is in the journal when this returns.
    fn begin_program(
        &mut self,
        beginning: &BeginningStep,
        context: &AssembledContext,
    ) -> Result<()> {
        let step = &beginning.step;
        let flow = self.place.flow;
        let settings = &flow.nodes[step.node];
        let mut given = ProgramInput {
            argv: self.options.launch.clone(),
            dir: self.place.task_dir(step)?,
            input: &beginning.input,
            context: Some(&context.text),
            stdin: None,
        };
        if let Some(inner) = &settings.flow {
            let own_run;
            (given.argv, own_run) = self.begin_nested(beginning, inner, &given.dir)?;
            return self.prepare_attempt(beginning, given, own_run);
        }
        let agent = flow.agent(step.node).map(|agent| &agent.body);
        let ((Some(command), _) | (None, Some(AgentBody::Command(command)))) =
            (&settings.command, agent)
        else {
            let text = first_message(flow, beginning, &context.prompt);
            given
                .argv
                .extend(self.message_command("run", step, &given.dir)?);
            given.stdin = Some(text.as_bytes());
            self.prepare_attempt(beginning, given, None)?;
            for denied in denied_tools(flow, step.node) {
                self.events.add_denial(step, &denied, None);
            }
            return Ok(());
        };
        let own = command.argv(&flow.home, &given.dir);
        if settings.cache {
            let (node, context) = (step.node, &context.essence);
            let key = match cache_key(flow, node, command, given.input, context, &given.dir) {
                Ok(key) => key,
                Err(error) => {
                    let failure = Failure::operation(error.message);
                    return self.end_unstarted(beginning, Err(failure), AttemptEnd::default());
                }
            };
            let patterns = &settings.outputs;
            let known = self.cached_files(&given.dir, |files| files.read_entry(&key, patterns));
            if let Some((output, made)) = known {
                let ended = AttemptEnd {
                    cached: true,
                    made,
                    ..AttemptEnd::default()
                };
                return self.end_unstarted(beginning, Ok(output), ended);
            }
            self.attempts.cache_keys.insert(step.key, key);
        }
        given.argv.extend(own);
        let text = text_of(&beginning.input, settings.input);
        given.stdin = text.as_deref().map(str::as_bytes);
        self.prepare_attempt(beginning, given, None)
    }

    /// Starts what has been prepared, once the journal says so on disk.
    pub(super) fn launch_prepared(&mut self) -> Result<()> {
        if self.programs.stop.is_some() {
            self.programs.prepared.clear();
        }
        while self.programs.active.len() < self.options.jobs.max(1)
            && let Some(waiting) = self.programs.prepared.pop_front()
        {
            if !waiting.is_recorded {
                self.events.journal.sync()?;
                if self.events.journal.was_changed() {
                    self.programs.prepared.clear();
                    break;
                }
                for other in &mut self.programs.prepared {
                    other.is_recorded = true;
                }
            }
            self.spawn_prepared(waiting)?;
        }
        self.events.journal.flush()
    }

    fn spawn_prepared(&mut self, waiting: WaitingProgram) -> Result<()> {
        let (flow, programs) = (self.place.flow, &mut self.programs);
        let mut env = environment(&self.place, &waiting);
        let WaitingProgram {
            mut active,
            prepared,
            ..
        } = waiting;
        let node = active.step.node;
        if programs.credentials.must_ask(flow, node) {
            // What it says goes to the terminal.
            self.table.erase();
        }
        env.extend(later_variables(flow, &active)?);
        match programs.credentials.variables(flow, node, programs.signals) {
            Ok(hidden) => env.extend(hidden),
            Err(why) => {
                self.suspend(active.step, SuspendedStep::new(Need::Time, why));
                return Ok(());
            }
        }
        active.since = Instant::now();
        let command = Command {
            argv: &prepared.argv,
            dir: &prepared.dir,
            env: &env,
            call_id: &active.call_id,
            stdin: prepared.record.stdin,
            stdout: prepared.record.stdout,
            stderr: prepared.record.stderr,
            timeout: flow.nodes[node].timeout,
        };
        let error = match programs.children.spawn(command) {
            Ok(token) => {
                programs.active.insert(token, active);
                return Ok(());
            }
            Err(error) => error,
        };
        let failure = not_started(&prepared.argv[0], &error);
        attempt::record_end(
            &active.io,
            error.code(),
            Duration::ZERO,
            None,
            &mut programs.linked,
        )?;
        let ended = AttemptEnd {
            io: Some(active.io),
            ..AttemptEnd::default()
        };
        self.judge_step(&active.step, Err(failure), ended)
    }
}

/// The variables of a program that may begin something which ends later, and of a look at that.
fn later_variables(flow: &Flow, active: &ActiveProgram) -> Result<[Variable; 3]> {
    let may_choose = flow.nodes[active.step.node].later.is_some();
    let look = active.look.as_ref().map(|look| LookInput {
        handle: &look.handle,
        is_last: look.is_last,
    });
    if may_choose {
        files::make_dirs(&active.io.join(outbox::DIR))?;
    }
    Ok(later::variables(may_choose, &active.io, look))
}

/// The variables by which a program knows its step and its run.
fn environment(place: &RunPlace<'_>, waiting: &WaitingProgram) -> Vec<Variable> {
    let step = &waiting.active.step;
    let context = waiting.active.io.join("context.json");
    let own = [
        (FLOW_RUN, place.run.id.as_str().into()),
        ("FLOW_TASK_ID", (&*step.task).into()),
        ("FLOW_NODE_ID", place.node_id(step).into()),
        ("FLOW_CONTEXT", context.to_string_lossy()),
        ("FLOW_ATTEMPT", waiting.attempt.to_string().into()),
        ("FLOW_WORKSPACE", place.workspace.root.to_string_lossy()),
    ];
    let own =
        own.map(|(name, value): (&str, Cow<'_, str>)| (name.to_owned(), Some(value.into_owned())));
    let (home, dir) = (&place.flow.home, &waiting.prepared.dir);
    let RunPlace {
        run,
        depth,
        ledgers,
        deadline,
        ..
    } = place;
    let mut all = run_variables(home, dir, run, *depth, ledgers, *deadline);
    all.extend(own);
    all
}
