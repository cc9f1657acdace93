//! The first half of a step: everything up to its program, or all of it if it has none.

use super::agents::begin_agent;
use super::answered::RecordedAnswer;
use super::deferred::look;
use super::finish::{fail_helper, finish, judge};
use super::nested::begin_nested;
use super::prepare::{BeginningStep, prepare, prepare_helper, text_of};
use super::programs::{ActiveProgram, ProgramRole, WaitingProgram};
use super::remember::{assemble, time_for};
use super::{FlowEngine, Need, RunPlace, SuspendedStep};
use crate::engine::attached;
use crate::engine::later::{self, LookInput};
use crate::engine::run_context::{DEADLINE, ENGINE_PID, LEDGERS};
use crate::error::Result;
use crate::flow::context::select::{AssembledContext, NoContext};
use crate::flow::graph::{Failure, FailureCode, Payload, StepRef};
use crate::flow::manifest::command::NodeCommand;
use crate::flow::manifest::{AgentBody, Denied, Flow, PayloadForm, WaitTime, fill};
use crate::flow::record::cache::CachedFiles;
use crate::flow::record::{
    AttemptEnd, NodeStart, ProgramInput, attempt, cache, check_schema, denied_tools, not_started,
};
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{Command, Variable};
use std::path::Path;
use std::time::{Duration, Instant};

/// Begins a step, if it is still wanted. One without a program has ended when this returns.
pub(super) fn begin(engine: &mut FlowEngine<'_>, step: StepRef) -> Result<()> {
    let (flow, node, ix) = (engine.place.flow, step.node, step.key.step);
    let Some(router) = engine.roots.router(step.key) else {
        return Ok(());
    };
    let failed_early = router
        .failed_early(ix)
        .or(engine.queue.input_fault(&engine.place, &step));
    let input = router.input(ix);
    let counts = engine.attempts.of(step.key);
    let is_deferred = engine.attempts.deferred.contains_key(&step.key);
    let pauses = engine.options.pause_before.contains(&node) && !is_deferred;
    if pauses && !counts.pause_acknowledged {
        let why = SuspendedStep::new(Need::Look, String::new());
        engine.suspend(step, why);
        return Ok(());
    }
    let beginning = BeginningStep {
        step,
        input: input.unwrap_or_else(|| "null".into()),
        attempt: counts.last.saturating_add(u32::from(!is_deferred)),
    };
    if is_deferred {
        return look(engine, &beginning);
    }
    if let Some(failure) = failed_early {
        return fail_unstarted(engine, &beginning, failure, None);
    }
    let step = &beginning.step;
    if let Some(answered) = &engine.options.answered {
        match answered.answer(&engine.place, step) {
            RecordedAnswer::Done => {}
            RecordedAnswer::Unknown => {
                let why = SuspendedStep::new(Need::Look, String::new());
                engine.suspend(step.clone(), why);
                return Ok(());
            }
            RecordedAnswer::Ended(result) => {
                return end_unstarted(engine, &beginning, result, AttemptEnd::default());
            }
        }
    }
    if let Some(denied) = flow.denial(node) {
        let failure = Failure::new(FailureCode::PolicyDenied, denied.message());
        return fail_unstarted(engine, &beginning, failure, Some(&denied));
    }
    let context = match assemble(engine, &beginning) {
        Ok(context) => context,
        Err(NoContext::Ask(ask)) => return prepare_helper(engine, &beginning, ask),
        Err(NoContext::Fault(why)) => {
            let failure = Failure::new(FailureCode::Context, why);
            return fail_unstarted(engine, &beginning, failure, None);
        }
    };
    let schema = flow.schema_in(node);
    if let Some(failure) = check_schema(schema, &beginning.input, FailureCode::SchemaIn) {
        return fail_unstarted(engine, &beginning, failure, None);
    }
    if flow.nodes[node].runs() {
        return begin_program(engine, &beginning, &context);
    }
    let wait = flow.nodes[node].wait;
    if let Some(wait) = wait.filter(|_| engine.options.answered.is_none()) {
        return wait_for_time(engine, &beginning, wait);
    }
    add_plain_start(engine, &beginning);
    pass_on(engine, step)
}

/// The end of a step that runs nothing.
fn pass_on(engine: &mut FlowEngine<'_>, step: &StepRef) -> Result<()> {
    let router = engine.roots.router(step.key);
    let output = router.and_then(|it| it.identity(step.key.step));
    let ended = AttemptEnd {
        identity: true,
        ..AttemptEnd::default()
    };
    let output = output.unwrap_or_else(|| "null".into());
    judge(engine, step, Ok(output), ended)
}

/// Ends a step that waits, if its time has come. The journal has the time, so that no start lets it begin anew.
fn wait_for_time(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    wait: WaitTime,
) -> Result<()> {
    let (step, now) = (&beginning.step, Timestamp::now());
    let counts = engine.attempts.counts.entry(step.key).or_default();
    let due_at = match counts.due_at {
        Some(due_at) => due_at,
        None => {
            (counts.last, counts.due_at) = (beginning.attempt, Some(wait.end(now)));
            let start = NodeStart {
                attempt: beginning.attempt,
                due_at: counts.due_at,
                ..NodeStart::default()
            };
            engine.events.add_node_start(step, start);
            wait.end(now)
        }
    };
    if now < due_at {
        let why = SuspendedStep::until(due_at, format!("waits until {due_at}"));
        engine.suspend(step.clone(), why);
        return Ok(());
    }
    pass_on(engine, step)
}

/// Records the beginning of a step that runs nothing.
fn add_plain_start(engine: &mut FlowEngine<'_>, beginning: &BeginningStep) {
    let start = NodeStart {
        attempt: beginning.attempt,
        ..NodeStart::default()
    };
    engine.events.add_node_start(&beginning.step, start);
}

fn end_unstarted(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    result: std::result::Result<Payload, Failure>,
    ended: AttemptEnd,
) -> Result<()> {
    add_plain_start(engine, beginning);
    judge(engine, &beginning.step, result, ended)
}

fn fail_unstarted(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    failure: Failure,
    denied: Option<&Denied>,
) -> Result<()> {
    add_plain_start(engine, beginning);
    if let Some(denied) = denied {
        engine.events.add_denial(&beginning.step, denied, None);
    }
    finish(engine, &beginning.step, Err(failure), AttemptEnd::default())
}

/// Prepares an attempt: its files are there and its beginning is in the journal when this returns.
fn begin_program(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    context: &AssembledContext,
) -> Result<()> {
    let (place, attempts, step) = (&engine.place, &mut engine.attempts, &beginning.step);
    let flow = place.flow;
    let settings = &flow.nodes[step.node];
    let dir = place.task_dir(step)?;
    let mut given = ProgramInput {
        argv: Vec::new(),
        dir,
        input: &beginning.input,
        context: Some(&context.text),
        stdin: None,
    };
    if let Some(inner) = &settings.flow {
        let paths = (inner.as_path(), &*given.dir);
        let place = (place, &engine.options);
        let (argv, own_run) = begin_nested(place, attempts, beginning, paths)?;
        given.argv = argv;
        return prepare(engine, beginning, given, own_run);
    }
    let launch = engine.options.launch.clone();
    let agent = settings.agent.map(|agent| &flow.agents[agent].body);
    let ((Some(command), _) | (None, Some(AgentBody::Command(command)))) =
        (&settings.command, agent)
    else {
        let message = begin_agent(place, attempts, beginning, &given.dir, context)?;
        given.argv = [launch, message.argv].concat();
        given.context = Some(&message.context);
        given.stdin = Some(message.text.as_bytes());
        prepare(engine, beginning, given, None)?;
        for denied in denied_tools(flow, step.node) {
            engine.events.add_denial(step, &denied, None);
        }
        return Ok(());
    };
    let own = command.argv(&flow.home, &given.dir);
    if settings.cache {
        let key = match cache_key(place, beginning, command, &context.essence, &given.dir) {
            Ok(key) => key,
            Err(error) => {
                let failure = Failure::new(FailureCode::Operation, error.message);
                return end_unstarted(engine, beginning, Err(failure), AttemptEnd::default());
            }
        };
        let signals = engine.programs.signals;
        let cached = CachedFiles {
            workspace: place.workspace,
            dir: &given.dir,
            is_stopped: &|| signals.stop().is_some(),
        };
        let known = match settings.outputs.as_slice() {
            [] => cache::read_entry(place.workspace, &key).map(|output| (output, Vec::new())),
            patterns => cached.read_entry(&key, patterns),
        };
        if let Some((output, made)) = known {
            let ended = AttemptEnd {
                cached: true,
                made,
                ..AttemptEnd::default()
            };
            return end_unstarted(engine, beginning, Ok(output), ended);
        }
        attempts.cache_keys.insert(step.key, key);
    }
    let text = text_of(&beginning.input, settings.input);
    given.argv = [launch, own].concat();
    given.stdin = text.as_deref().map(str::as_bytes);
    prepare(engine, beginning, given, None)
}

/// Starts what has been prepared, once the journal says so on disk.
pub(super) fn launch(engine: &mut FlowEngine<'_>) -> Result<()> {
    if engine.programs.stop.is_some() {
        engine.programs.prepared.clear();
    }
    while engine.programs.active.len() < engine.options.jobs.max(1)
        && let Some(waiting) = engine.programs.prepared.pop_front()
    {
        if !waiting.is_recorded {
            engine.events.journal.sync()?;
            if engine.events.journal.was_changed() {
                engine.programs.prepared.clear();
                break;
            }
            for other in &mut engine.programs.prepared {
                other.is_recorded = true;
            }
        }
        spawn(engine, waiting)?;
    }
    engine.events.journal.flush()
}

fn spawn(engine: &mut FlowEngine<'_>, waiting: WaitingProgram) -> Result<()> {
    let (flow, programs) = (engine.place.flow, &mut engine.programs);
    let mut env = environment(&engine.place, &waiting);
    let WaitingProgram {
        mut active,
        prepared,
        ..
    } = waiting;
    let node = active.step.node;
    if programs.credentials.must_ask(flow, node) {
        // What it says goes to the terminal.
        engine.table.erase();
    }
    env.extend(later_variables(flow, &active)?);
    let hidden = match active.asks() {
        Some(_) => Ok(programs.credentials.hidden()),
        None => programs.credentials.variables(flow, node, programs.signals),
    };
    match hidden {
        Ok(hidden) => env.extend(hidden),
        Err(why) => {
            let why = SuspendedStep::new(Need::Time, why);
            engine.suspend(active.step, why);
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
        timeout: match active.asks() {
            Some(ask) => time_for(flow, ask),
            None => flow.nodes[node].timeout,
        },
    };
    let error = match programs.children.spawn(command) {
        Ok(token) => {
            programs.active.insert(token, active);
            return Ok(());
        }
        Err(error) => error,
    };
    let failure = not_started(&prepared.argv[0], &error);
    let figures = (Duration::ZERO, None);
    attempt::record_end(&active.io, error.code(), figures, &mut programs.linked)?;
    if active.asks().is_some() {
        return fail_helper(engine, active, &failure.message);
    }
    let ended = AttemptEnd {
        io: Some(active.io),
        ..AttemptEnd::default()
    };
    judge(engine, &active.step, Err(failure), ended)
}

/// The variables of a program that may begin something which ends later, and of a look at that.
fn later_variables(flow: &Flow, active: &ActiveProgram) -> Result<[Variable; 3]> {
    let may_choose = flow.nodes[active.step.node].later.is_some() && active.asks().is_none();
    let look = match &active.role {
        ProgramRole::Look(look) => Some(LookInput {
            handle: &look.handle,
            is_last: look.is_last,
        }),
        ProgramRole::Attempt | ProgramRole::Helper(_) => None,
    };
    if may_choose {
        files::make_dirs(&active.io.join(attached::DIR))?;
    }
    Ok(later::variables(may_choose, &active.io, look))
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

/// The name of a step's output among those that are known.
fn cache_key(
    place: &RunPlace<'_>,
    beginning: &BeginningStep,
    command: &NodeCommand,
    context: &str,
    dir: &Path,
) -> Result<String> {
    let (flow, node) = (place.flow, beginning.step.node);
    let schemas = [flow.schema_in(node), flow.schema_out(node)];
    let settings = &flow.nodes[node];
    let files = fill(&settings.cache_files, &flow.home, dir).into_iter();
    let mut programs = command.programs(&flow.home, dir);
    let is_output = |path: &Path| {
        path.strip_prefix(dir)
            .ok()?
            .to_str()
            .map(|it| settings.outputs.iter().any(|pattern| pattern.fits(it)))
    };
    programs.retain(|path| is_output(path) != Some(true));
    let key = cache::CacheKey {
        argv: &command.argv(&flow.home, dir),
        input: &beginning.input,
        context,
        forms: [settings.input, settings.output].map(PayloadForm::name),
        schemas: schemas
            .into_iter()
            .flatten()
            .map(|it| it.schema.source.to_string())
            .collect(),
        files: files
            .map(|file| flow.home.join(file))
            .chain(programs)
            .collect(),
        outputs: &settings.outputs,
    };
    key.name()
}
