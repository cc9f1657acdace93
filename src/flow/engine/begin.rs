//! The first half of a step: everything up to its program, or all of it if it has none.

use super::finish::AttemptEnd;
use super::{ActiveProgram, FlowEngine, KeptRun, Need, RunPlace, WaitingProgram};
use crate::engine::run_context::{DEADLINE, ENGINE_PID, LEDGERS};
use crate::error::{At, Result};
use crate::flow::context::select::{AssembledContext, NoContext};
use crate::flow::graph::{Failure, FailureCode, Payload, StepRef};
use crate::flow::manifest::{AgentBody, Denied, PayloadForm, fill};
use crate::flow::record::{
    self, NodeStart, OwnRun, ProgramInput, attempt, cache, check_schema, not_started,
};
use crate::text::ids::hex;
use crate::unix::process::{Command, Variable};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A step while it begins.
pub(super) struct BeginningStep {
    pub step: StepRef,
    pub input: Payload,
    pub attempt: u32,
}

impl FlowEngine<'_> {
    /// Begins a step, if it is still wanted. One without a program has ended when this returns.
    pub(super) fn begin(&mut self, step: StepRef) -> Result<()> {
        let Some(router) = self.router(step.key) else {
            return Ok(());
        };
        let failed_early = router
            .failed_early(step.key.step)
            .or(self.input_fault(&step));
        let input = router.input(step.key.step);
        let attempts = self.attempts.get(&step.key).copied().unwrap_or_default();
        if self.options.pause_before.contains(&step.node) && !attempts.pause_acknowledged {
            self.suspend(step, Need::Look, "");
            return Ok(());
        }
        let beginning = BeginningStep {
            step,
            input: input.unwrap_or_else(|| "null".into()),
            attempt: attempts.last + 1,
        };
        let (flow, node) = (self.place.flow, beginning.step.node);
        if let Some(failure) = failed_early {
            return self.fail_unstarted(&beginning, failure, None);
        }
        let Some(beginning) = self.begin_unanswered(beginning)? else {
            return Ok(());
        };
        if let Some(denied) = flow.denial(node) {
            let failure = Failure::new(FailureCode::PolicyDenied, denied.message());
            return self.fail_unstarted(&beginning, failure, Some(&denied));
        }
        let assembled = match self.assemble(&beginning) {
            Err(NoContext::Ask(ask)) => return self.ask_helper(&beginning, ask),
            Err(NoContext::Fault(why)) => Err(Failure::new(FailureCode::Context, why)),
            Ok(context) => Ok(context),
        };
        let misfit = check_schema(
            flow.schema_in(node),
            &beginning.input,
            FailureCode::SchemaIn,
        );
        match (assembled, misfit) {
            (Err(failure), _) | (Ok(_), Some(failure)) => {
                self.fail_unstarted(&beginning, failure, None)
            }
            (Ok(context), None) if flow.nodes[node].runs() => {
                self.begin_program(&beginning, &context)
            }
            (Ok(_), None) => {
                let step = &beginning.step;
                let router = self.router(step.key);
                let output = router.and_then(|it| it.identity(step.key.step));
                let ended = AttemptEnd {
                    identity: true,
                    ..AttemptEnd::default()
                };
                self.add_plain_start(&beginning);
                self.judge(step, Ok(output.unwrap_or_else(|| "null".into())), ended)
            }
        }
    }

    /// Why a root fails at its start: what it was given is no input.
    fn input_fault(&self, step: &StepRef) -> Option<Failure> {
        let fault = self.faults.get(&step.key.root)?;
        let is_start = step.is_root && step.node == self.place.plan.start;
        is_start.then(|| Failure::new(FailureCode::SchemaIn, fault.as_str()))
    }

    /// Records the beginning of a step that runs nothing.
    pub(super) fn add_plain_start(&mut self, beginning: &BeginningStep) {
        let start = NodeStart {
            attempt: beginning.attempt,
            ..NodeStart::default()
        };
        self.events.add_node_start(&beginning.step, start);
    }

    fn fail_unstarted(
        &mut self,
        beginning: &BeginningStep,
        failure: Failure,
        denied: Option<&Denied>,
    ) -> Result<()> {
        self.add_plain_start(beginning);
        if let Some(denied) = denied {
            self.events.add_denial(&beginning.step, denied, None);
        }
        self.finish(&beginning.step, Err(failure), AttemptEnd::default())
    }

    /// Prepares an attempt: its files are there and its beginning is in the journal when this returns.
    fn begin_program(
        &mut self,
        beginning: &BeginningStep,
        context: &AssembledContext,
    ) -> Result<()> {
        let flow = self.place.flow;
        let step = &beginning.step;
        let settings = &flow.nodes[step.node];
        let dir = task_dir(&self.place, step)?;
        if let Some(inner) = &settings.flow {
            return self.begin_nested(beginning, (inner, dir), context);
        }
        let agent = settings.agent.map(|agent| &flow.agents[agent].body);
        let ((Some(command), _) | (None, Some(AgentBody::Command(command)))) =
            (&settings.command, agent)
        else {
            return self.begin_agent(beginning, dir, context);
        };
        let own = command.argv(&flow.home, &dir);
        if settings.cache {
            let found = cache_key(&self.place, beginning, &own, &context.essence, &dir);
            let known = match found {
                Ok(key) => match cache::read_entry(self.place.workspace, &key) {
                    Some(output) => Some(Ok(output)),
                    None => {
                        self.cache_keys.insert(step.key, key);
                        None
                    }
                },
                Err(error) => Some(Err(Failure::new(FailureCode::Operation, error.message))),
            };
            if let Some(result) = known {
                let ended = AttemptEnd {
                    cached: result.is_ok(),
                    ..AttemptEnd::default()
                };
                self.add_plain_start(beginning);
                return self.judge(step, result, ended);
            }
        }
        let text = text_of(&beginning.input, settings.input);
        let given = ProgramInput {
            argv: [self.options.launch.clone(), own].concat(),
            dir,
            input: &beginning.input,
            context: Some(&context.text),
            stdin: text.as_deref().map(str::as_bytes),
        };
        self.prepare(beginning, given, None)
    }

    /// Makes the files of an attempt and puts its beginning into the journal, with the run of an earlier step that it goes
    /// on with.
    pub(super) fn prepare(
        &mut self,
        beginning: &BeginningStep,
        given: ProgramInput<'_>,
        own_run: Option<&OwnRun>,
    ) -> Result<()> {
        let step = &beginning.step;
        let node = self.node_id(step);
        let place = (&*step.task, node);
        let prepared =
            attempt::prepare_attempt(&self.place.run.path, place, given, &mut self.linked)?;
        let call_id = format!("{}{}", self.place.call_prefix, hex(12));
        let start = NodeStart {
            attempt: beginning.attempt,
            call_id: Some(&call_id),
            execution_ref: Some(&prepared.reference),
            command: Some(&prepared.record.command),
            own_run,
        };
        self.events.add_node_start(step, start);
        self.own_runs.remove(&step.key);
        if let Some(run) = own_run.cloned() {
            let is_open = false;
            self.own_runs.insert(step.key, KeptRun { run, is_open });
        }
        self.attempts.entry(step.key).or_default().last = beginning.attempt;
        self.note_records(step.key, [prepared.reference.clone()].into_iter());
        self.prepared.push_back(WaitingProgram {
            active: ActiveProgram {
                step: step.clone(),
                io: prepared.io.clone(),
                since: Instant::now(),
                failure: None,
                cancelled: false,
                asks: None,
            },
            prepared,
            call_id,
            attempt: beginning.attempt,
            is_recorded: false,
        });
        Ok(())
    }

    /// Starts what has been prepared, once the journal says so on disk.
    pub(super) fn launch(&mut self) -> Result<()> {
        if self.stop.is_some() {
            self.prepared.clear();
        }
        while self.active.len() < self.options.jobs.max(1)
            && let Some(waiting) = self.prepared.pop_front()
        {
            if !waiting.is_recorded {
                self.events.journal.sync()?;
                if self.events.journal.was_changed() {
                    self.prepared.clear();
                    break;
                }
                for other in &mut self.prepared {
                    other.is_recorded = true;
                }
            }
            self.spawn(waiting)?;
        }
        self.events.journal.flush()
    }

    fn spawn(&mut self, waiting: WaitingProgram) -> Result<()> {
        let flow = self.place.flow;
        let mut env = environment(&self.place, &waiting);
        let WaitingProgram {
            mut active,
            prepared,
            call_id,
            ..
        } = waiting;
        let node = active.step.node;
        if self.credentials.must_ask(flow, node) {
            // What it says goes to the terminal.
            self.table.erase();
        }
        let hidden = match active.asks {
            Some(_) => Ok(self.credentials.hidden()),
            None => self.credentials.variables(flow, node, self.signals),
        };
        match hidden {
            Ok(hidden) => env.extend(hidden),
            Err(why) => {
                self.suspend(active.step, Need::Time, &why);
                return Ok(());
            }
        }
        active.since = Instant::now();
        let command = Command {
            argv: &prepared.argv,
            dir: &prepared.dir,
            env: &env,
            call_id: &call_id,
            stdin: prepared.record.stdin,
            stdout: prepared.record.stdout,
            stderr: prepared.record.stderr,
            timeout: match &active.asks {
                Some(ask) => self.time_for(ask),
                None => flow.nodes[node].timeout,
            },
        };
        let error = match self.children.spawn(command) {
            Ok(token) => {
                self.active.insert(token, active);
                return Ok(());
            }
            Err(error) => error,
        };
        let failure = not_started(&prepared.argv[0], &error);
        let figures = (Duration::ZERO, None);
        attempt::record_end(&active.io, error.code(), figures, &mut self.linked)?;
        if active.asks.is_some() {
            return self.fail_helper(active, &failure.message);
        }
        let ended = AttemptEnd {
            io: Some(active.io),
            ..AttemptEnd::default()
        };
        self.judge(&active.step, Err(failure), ended)
    }
}

/// The string that a payload is, if it is to be given as a text and is one.
pub(super) fn text_of(payload: &Payload, form: PayloadForm) -> Option<String> {
    let is_text = form == PayloadForm::Text;
    is_text
        .then(|| serde_json::from_str(payload).ok())
        .flatten()
}

/// The variables by which a program knows its step and its run.
fn environment(place: &RunPlace<'_>, waiting: &WaitingProgram) -> Vec<Variable> {
    let step = &waiting.active.step;
    let context = waiting.active.io.join("context.json");
    let (home, dir) = (&place.flow.home, &waiting.prepared.dir);
    let variables = [
        ("FLOW_HOME", home.to_string_lossy()),
        ("FLOW_RUN_ID", place.run.id.as_str().into()),
        ("FLOW_TASK_ID", (&*step.task).into()),
        (
            "FLOW_NODE_ID",
            (&*place.flow.graph.nodes[step.node].id).into(),
        ),
        ("FLOW_CONTEXT", context.to_string_lossy()),
        ("FLOW_ATTEMPT", waiting.attempt.to_string().into()),
        ("FLOW_WORKSPACE", place.workspace.root.to_string_lossy()),
        ("CWD", dir.to_string_lossy()),
        ("DELTA_RUN_ID", place.run.id.as_str().into()),
        ("DELTA_RUN_DIR", place.run.path.to_string_lossy()),
        ("DELTA_DEPTH", (place.depth + 1).to_string().into()),
        (ENGINE_PID, std::process::id().to_string().into()),
    ];
    let deadline = place
        .deadline
        .map(|deadline| (DEADLINE, deadline.to_string().into()));
    let ledgers = (LEDGERS, place.ledgers.as_str().into());
    let variables = variables.into_iter().chain([ledgers]).chain(deadline);
    variables
        .map(|(name, value)| (name.to_owned(), Some(value.into_owned())))
        .collect()
}

/// Where a task works, made if it is not there.
pub(super) fn task_dir(place: &RunPlace<'_>, step: &StepRef) -> Result<PathBuf> {
    let dir = task_path(place, step);
    if dir != place.workspace.root {
        std::fs::create_dir_all(&dir).at("create", &dir)?;
    }
    Ok(dir)
}

/// A single root works in the workspace; every other task has a directory of its own.
pub(super) fn task_path(place: &RunPlace<'_>, step: &StepRef) -> PathBuf {
    let is_alone = step.is_root && !place.has_many_roots;
    let task = (!is_alone).then_some(&*step.task);
    record::task_path(&place.workspace.root, place.run.id.as_str(), task)
}

/// The name of a step's output among those that are known.
///
/// # Errors
/// One of its `cache_files` cannot be read.
fn cache_key(
    place: &RunPlace<'_>,
    beginning: &BeginningStep,
    argv: &[String],
    context: &str,
    dir: &Path,
) -> Result<String> {
    let (flow, node) = (place.flow, beginning.step.node);
    let schemas = [flow.schema_in(node), flow.schema_out(node)];
    let files = fill(&flow.nodes[node].cache_files, &flow.home, dir);
    let key = cache::CacheKey {
        argv,
        input: &beginning.input,
        context,
        forms: [flow.nodes[node].input, flow.nodes[node].output].map(PayloadForm::name),
        schemas: schemas
            .into_iter()
            .flatten()
            .map(|it| it.schema.source.to_string())
            .collect(),
        files: files.iter().map(|file| flow.home.join(file)).collect(),
    };
    key.name()
}
