//! The first half of a step: everything up to its program, or all of it if it has none.

use super::finish::AttemptEnd;
use super::tell::about;
use super::{Active, FlowEngine, StepKey, Suspension, Waiting};
use crate::config::tool::bind::{Places, fixed_words};
use crate::engine::run_context::ENGINE_PID;
use crate::error::{At, Result};
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::choice::{Failure, FailureCode, Payload};
use crate::flow::graph::router::TaskKind;
use crate::flow::graph::topology::NodeIx;
use crate::flow::manifest::OutputForm;
use crate::flow::manifest::agent::AgentBody;
use crate::flow::manifest::policy::Denied;
use crate::flow::record::attempt::{self, ProgramInput, dir_name, misfit, not_started};
use crate::flow::record::cache;
use crate::flow::record::events::{self, NodeStart};
use crate::text::ids::hex;
use crate::unix::process::{Command, Variable};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a step is, for as long as it begins.
pub(super) struct BeginningStep {
    pub which: StepKey,
    pub task: String,
    pub node: NodeIx,
    pub input: Payload,
    pub is_root: bool,
    pub attempt: u32,
}

impl FlowEngine<'_> {
    /// Begins a step. One without a program has ended when this returns.
    pub(super) fn begin(&mut self, which: StepKey) -> Result<()> {
        let Some(root) = self.roots.get(&which.0) else {
            return Ok(());
        };
        let Some(step) = root.router.get(which.1) else {
            // Nobody wants it any more.
            return Ok(());
        };
        let node = step.node;
        if self.options.pause_before.contains(&node) && !self.passed.contains(&which) {
            self.held.insert(which, Suspension::Paused);
            return Ok(());
        }
        let doomed = root.router.doomed(which.1);
        let input = root.router.input(which.1).unwrap_or_else(|| "null".into());
        let last = self.tries.get(&which).map_or(0, |tries| tries.last);
        let beginning = BeginningStep {
            which,
            task: root.router.id(step.task).to_owned(),
            node,
            input,
            is_root: root.router.view(step.task).kind == TaskKind::Root,
            attempt: last + 1,
        };
        let flow = self.place.flow;
        if doomed.is_none()
            && let Some(denied) = flow.denial(node)
        {
            self.record_start(which, start_of(beginning.attempt));
            self.record_denial(which, &denied, None);
            let failure = Failure::new(FailureCode::PolicyDenied, denied.message());
            return self.finish(which, Err(failure), AttemptEnd::default());
        }
        let assembled = match doomed {
            Some(failure) => Some(Err(failure)),
            None => self.assemble(&beginning)?,
        };
        let Some(assembled) = assembled else {
            return Ok(());
        };
        let misfit = |input: &str| misfit(flow.schema_in(node), input, FailureCode::SchemaIn);
        let fits = |context| misfit(&beginning.input).map_or(Ok(context), Err);
        let context = match assembled.and_then(fits) {
            Ok(context) => context,
            Err(failure) => {
                self.record_start(which, start_of(beginning.attempt));
                return self.finish(which, Err(failure), AttemptEnd::default());
            }
        };
        let settings = &flow.nodes[node];
        if !settings.runs() {
            let root = self.roots.get(&which.0);
            let output = root.and_then(|root| root.router.identity(which.1));
            let output = output.unwrap_or_else(|| "null".into());
            self.record_start(which, start_of(beginning.attempt));
            return self.judge(which, Ok(output), AttemptEnd::identity());
        }
        self.begin_program(beginning, &context)
    }

    pub(super) fn record_start(&mut self, which: StepKey, start: NodeStart<'_>) {
        let graph = &self.place.flow.graph;
        if let Some(step) = self
            .roots
            .get(&which.0)
            .and_then(|root| about(&root.router, which.1))
        {
            events::node_start(&mut self.journal, graph, step, start);
        }
    }

    /// Tells what a policy has denied a step, or a call of its program.
    pub(super) fn record_denial(&mut self, which: StepKey, denied: &Denied, call: Option<&str>) {
        let graph = &self.place.flow.graph;
        let root = self.roots.get(&which.0);
        if let Some(step) = root.and_then(|root| about(&root.router, which.1)) {
            events::policy(&mut self.journal, graph, step, denied, call);
        }
    }

    /// Prepares an attempt: its files are there and its beginning is in the journal when this returns.
    fn begin_program(
        &mut self,
        beginning: BeginningStep,
        context: &AssembledContext,
    ) -> Result<()> {
        let settings = &self.place.flow.nodes[beginning.node];
        let dir = self.task_dir(&beginning)?;
        let command = match (&settings.command, settings.agent) {
            (Some(command), _) => Some(command),
            (None, Some(agent)) => match &self.place.flow.agents[agent].body {
                AgentBody::Command(command) => Some(command),
                AgentBody::Directory(_) | AgentBody::Model { .. } => None,
            },
            (None, None) => None,
        };
        let Some(command) = command else {
            return self.begin_agent(&beginning, dir, context);
        };
        let home = self.place.flow.home.to_string_lossy().into_owned();
        let own = command.argv(&home, &dir.to_string_lossy());
        if settings.cache {
            let key = match self.cache_key(&beginning, &own, &context.essence, &dir) {
                Ok(key) => key,
                Err(error) => {
                    let failure = Failure::new(FailureCode::Operation, error.message);
                    self.record_start(beginning.which, start_of(beginning.attempt));
                    return self.judge(beginning.which, Err(failure), AttemptEnd::default());
                }
            };
            if let Some(output) = cache::read(self.place.workspace, &key) {
                self.record_start(beginning.which, start_of(beginning.attempt));
                return self.judge(beginning.which, Ok(output), AttemptEnd::from_cache());
            }
            self.keys.insert(beginning.which, key);
        }
        let mut argv = self.options.launch.clone();
        argv.extend(own);
        let given = ProgramInput {
            argv,
            dir,
            input: &beginning.input,
            context: Some(&context.text),
            stdin: None,
        };
        let call_id = format!("{}{}", self.place.call_prefix, hex(12));
        self.prepare(&beginning, given, call_id)
    }

    /// Makes the files of an attempt and puts its beginning into the journal.
    pub(super) fn prepare(
        &mut self,
        beginning: &BeginningStep,
        given: ProgramInput<'_>,
        call_id: String,
    ) -> Result<()> {
        let node = &self.place.flow.graph.nodes[beginning.node].id;
        let run = &self.place.run.path;
        let prepared = attempt::prepare(run, (&beginning.task, node), given, &mut self.alike)?;
        let start = NodeStart {
            call_id: Some(&call_id),
            execution_ref: Some(&prepared.reference),
            command: Some(&prepared.command),
            ..start_of(beginning.attempt)
        };
        self.record_start(beginning.which, start);
        self.tries.entry(beginning.which).or_default().last = beginning.attempt;
        let active = Active {
            which: beginning.which,
            io: prepared.io.clone(),
            since: Instant::now(),
            doomed: None,
            cancelled: false,
            asks: None,
        };
        self.prepared.push_back(Waiting {
            active,
            prepared,
            call_id,
            task: beginning.task.clone(),
            node: beginning.node,
            attempt: beginning.attempt,
            is_recorded: false,
        });
        Ok(())
    }

    /// Starts what has been prepared, once the journal says so on disk.
    pub(super) fn launch(&mut self) -> Result<()> {
        if self.prepared.is_empty() {
            return self.journal.flush();
        }
        if self.stop.is_some() {
            self.prepared.clear();
            return self.journal.flush();
        }
        while self.active.len() < self.options.jobs.max(1)
            && let Some(waiting) = self.prepared.pop_front()
        {
            if !waiting.is_recorded {
                self.journal.sync()?;
                for other in &mut self.prepared {
                    other.is_recorded = true;
                }
            }
            self.spawn(waiting)?;
        }
        self.journal.flush()
    }

    fn spawn(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting {
            mut active,
            prepared,
            call_id,
            ..
        } = waiting;
        let node = &self.place.flow.graph.nodes[waiting.node].id;
        let context = active.io.join("context.json");
        let (attempt, depth) = (waiting.attempt.to_string(), self.place.depth + 1);
        let (depth, pid) = (depth.to_string(), std::process::id().to_string());
        let (flow, which) = (self.place.flow, active.which);
        let keys = &mut self.provider_keys;
        if keys.must_ask(flow, waiting.node) {
            // What it says goes to the terminal.
            self.table.erase();
        }
        let hidden = match active.asks {
            Some(_) => Ok(keys.hidden()),
            None => keys.variables(flow, waiting.node, self.signals),
        };
        let hidden = match hidden {
            Ok(hidden) => hidden,
            Err(why) => {
                self.held.insert(which, Suspension::Later(why));
                return Ok(());
            }
        };
        let mut env = variables(&[
            ("FLOW_HOME", &self.place.flow.home.to_string_lossy()),
            ("FLOW_RUN_ID", self.place.run.id.as_str()),
            ("FLOW_TASK_ID", &waiting.task),
            ("FLOW_NODE_ID", node),
            ("FLOW_CONTEXT", &context.to_string_lossy()),
            ("FLOW_ATTEMPT", &attempt),
            ("CWD", &prepared.dir.to_string_lossy()),
            ("DELTA_RUN_ID", self.place.run.id.as_str()),
            ("DELTA_RUN_DIR", &self.place.run.path.to_string_lossy()),
            ("DELTA_DEPTH", &depth),
            (ENGINE_PID, &pid),
        ]);
        env.extend(hidden);
        active.since = Instant::now();
        let command = Command {
            argv: &prepared.argv,
            dir: &prepared.dir,
            env: &env,
            call_id: &call_id,
            stdin: prepared.stdin,
            stdout: prepared.stdout,
            stderr: prepared.stderr,
            timeout: match &active.asks {
                Some(ask) => self.time_for(ask),
                None => self.place.flow.nodes[waiting.node].timeout,
            },
        };
        match self.children.spawn(command) {
            Ok(token) => {
                self.active.insert(token, active);
                Ok(())
            }
            Err(error) => {
                let (code, failure) = not_started(&prepared.argv[0], &error);
                attempt::record(&active.io, code, (Duration::ZERO, None), &mut self.alike)?;
                if active.asks.is_some() {
                    return self.cannot_tell(active, &failure.message);
                }
                let ended = AttemptEnd {
                    io: Some(active.io),
                    ..AttemptEnd::default()
                };
                self.judge(active.which, Err(failure), ended)
            }
        }
    }

    /// Where a task works: a root in the workspace, the others in directories of their own below it.
    pub(super) fn task_dir(&self, beginning: &BeginningStep) -> Result<PathBuf> {
        let root = &self.place.workspace.root;
        if beginning.is_root {
            return Ok(root.clone());
        }
        let dir = root.join("tasks").join(dir_name(&beginning.task));
        std::fs::create_dir_all(&dir).at("create", &dir)?;
        Ok(dir)
    }

    /// The name of a step's output among those that are known.
    ///
    /// # Errors
    /// One of its `cache_files` cannot be read.
    fn cache_key(
        &self,
        beginning: &BeginningStep,
        argv: &[String],
        context: &str,
        dir: &Path,
    ) -> Result<String> {
        let flow = self.place.flow;
        let node = beginning.node;
        let schemas = [flow.schema_in(node), flow.schema_out(node)];
        let schemas = schemas.into_iter().flatten();
        let home = flow.home.to_string_lossy().into_owned();
        let cwd = dir.to_string_lossy().into_owned();
        let places = Places {
            home: &home,
            cwd: &cwd,
        };
        let files = fixed_words(&flow.nodes[node].cache_files, &places);
        let key = cache::CacheKey {
            argv,
            input: &beginning.input,
            context,
            form: match flow.nodes[node].output {
                OutputForm::Json => "json",
                OutputForm::Text => "text",
            },
            schemas: schemas.map(|it| it.schema.source.to_string()).collect(),
            files: files
                .into_iter()
                .map(|file| Path::new(&home).join(file))
                .collect(),
        };
        key.name()
    }
}

pub(super) fn start_of(attempt: u32) -> NodeStart<'static> {
    NodeStart {
        attempt,
        call_id: None,
        execution_ref: None,
        command: None,
    }
}

fn variables(own: &[(&str, &str)]) -> Vec<Variable> {
    let own = own.iter();
    own.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())))
        .collect()
}
