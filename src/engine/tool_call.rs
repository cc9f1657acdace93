//! One tool call as a process: its directory of records, its execution, what the model is shown.
//!
//! Unaware of the journal. Preparing is apart from running, so that the request can be journalled
//! when nothing but the program itself can fail any more.

use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::{TimedCommand, Tool, Word};
use crate::engine::former_content;
use crate::engine::later::{self, LookInput};
use crate::engine::observation::{Ends, ends_of, observation, read_ends_below};
use crate::engine::outbox::{self, Collected, Store, collect};
use crate::engine::run_context::RunContext;
use crate::error::{At, Result};
use crate::record::event::{ActionStatus, CheckFinding};
use crate::record::execution::{self, ExecutionRecord, Stdin};
use crate::record::run_dir::reference;
use crate::text::ids::RunId;
use crate::text::names::last_part;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, Outcome, SpawnError, Variable};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest single argument that Linux accepts, with its NUL: 32 pages.
const MAX_ARG_STRLEN: usize = 131_072;

/// A call that is ready to run.
pub(crate) struct Prepared {
    argv: Vec<String>,
    dir: PathBuf,
    pub record: ExecutionRecord,
    /// The directory, relative to the run's.
    pub reference: String,
    /// Beside those of the tool.
    variables: [Variable; 3],
    timeout: Option<Duration>,
    /// The message if the system does not take the command.
    too_long: String,
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// The way in which it ended.
    pub status: ActionStatus,
    /// The exit code, if one is known.
    pub exit_code: Option<i32>,
    /// The text for the model.
    pub observation: String,
    /// Attachments from its program's outbox.
    pub handed: Collected,
    /// From start to end.
    pub duration: Duration,
    /// The engine was asked to end, and ended the call.
    pub is_interrupted: bool,
}

impl Done {
    /// A call that was not run.
    pub(crate) fn not_run(observation: String) -> Self {
        Self {
            status: ActionStatus::Error,
            exit_code: None,
            observation,
            handed: Collected::default(),
            duration: Duration::ZERO,
            is_interrupted: false,
        }
    }
}

/// The whole argv of a call: the wrapper and the tool's own.
pub(crate) fn full_argv(ctx: &RunContext<'_>, tool: &Tool, bound: &BoundCall) -> Vec<String> {
    let mut argv = wrapper_argv(ctx, tool);
    argv.extend(bound.argv.iter().cloned());
    argv
}

/// The wrapper before a tool's own argv. A sub-agent has no wrapper: its tools have their own.
pub(crate) fn wrapper_argv(ctx: &RunContext<'_>, tool: &Tool) -> Vec<String> {
    if tool.subagent.is_some() {
        return Vec::new();
    }
    ctx.argv(tool.wrapper.as_ref().unwrap_or(&ctx.agent.wrapper))
}

/// The name of the run of a sub-agent's call: of the tool, and of the part of the call's id that no other
/// call has.
pub(crate) fn subagent_run(tool: &str, call_id: &str) -> Option<RunId> {
    const OF_TOOL: usize = 40;
    const OF_CALL: usize = 20;
    let own = last_part(call_id, '.');
    let tool: String = tool.chars().take(OF_TOOL).collect();
    let own: String = own.chars().take(OF_CALL).collect();
    RunId::parse(&format!("{tool}-{own}")).ok()
}

/// Names the run in the command of a sub-agent's call.
pub(crate) fn name_subagent(tool: &Tool, bound: &mut BoundCall, call_id: &str) {
    if let Some(place) = tool.subagent
        && let Some(run) = subagent_run(&tool.name, call_id)
    {
        bound.argv.insert(place, format!("--run-id={run}"));
    }
}

/// Makes the call's directory of records.
pub(crate) fn prepare_call(
    ctx: &RunContext<'_>,
    tool: &Tool,
    bound: &BoundCall,
) -> Result<Prepared> {
    let argv = full_argv(ctx, tool, bound);
    let prepared = prepare(ctx, tool, "", argv, bound.stdin.as_deref(), None)?;
    Ok(Prepared {
        too_long: explain_too_long(bound),
        ..prepared
    })
}

/// Makes the directory of records for a check whether a call has happened. `arguments` are the call's, as JSON.
pub(crate) fn prepare_check(
    ctx: &RunContext<'_>,
    tool: &Tool,
    check: &TimedCommand,
    arguments: &[u8],
) -> Result<Prepared> {
    let mut argv = wrapper_argv(ctx, tool);
    argv.extend(ctx.argv(&check.command));
    let prepared = prepare(ctx, tool, "_check", argv, Some(arguments), None)?;
    Ok(Prepared {
        timeout: timeout(ctx, check.timeout_ms.or(tool.timeout_ms)),
        ..prepared
    })
}

/// Makes the directory of records for a look at a call that ends later. `arguments` are the call's, as JSON.
pub(crate) fn prepare_look(
    ctx: &RunContext<'_>,
    tool: &Tool,
    check: &[Word],
    look: LookInput<'_>,
    arguments: &[u8],
) -> Result<Prepared> {
    let mut argv = wrapper_argv(ctx, tool);
    argv.extend(ctx.argv(check));
    prepare(ctx, tool, "_look", argv, Some(arguments), Some(look))
}

fn prepare(
    ctx: &RunContext<'_>,
    tool: &Tool,
    purpose: &str,
    argv: Vec<String>,
    stdin: Option<&[u8]>,
    look: Option<LookInput<'_>>,
) -> Result<Prepared> {
    let parent = ctx.run.io("tool_executions");
    let name = format!("{}_{}{purpose}", Timestamp::now().basic(), tool.name);
    let name = files::make_unique_dir(&parent, &name)?;
    let dir = parent.join(&name);
    files::make_dir(&dir.join(outbox::DIR))?;
    let given = stdin.map_or(Stdin::Nothing, Stdin::Bytes);
    Ok(Prepared {
        record: execution::begin_record(&dir, &argv, given, None)?,
        argv,
        reference: reference("tool_executions", &name),
        variables: later::variables(tool.later.is_some(), &dir, look),
        timeout: timeout(ctx, tool.timeout_ms),
        too_long: "the command of the check is too long for the system".to_owned(),
        dir,
    })
}

/// Asks a check whether a call has happened. What it prints on stdout is what the model is shown if it has.
pub(crate) fn run_check(
    ctx: &RunContext<'_>,
    tool: &Tool,
    prepared: Prepared,
    call_id: &str,
) -> Result<(CheckFinding, Done)> {
    const ABSENT: i32 = 10;
    let reference = prepared.reference.clone();
    let mut done = execute(ctx, tool, prepared, call_id)?;
    let finding = match done.exit_code {
        Some(0) => CheckFinding::Happened,
        Some(ABSENT) => CheckFinding::Absent,
        Some(later::NOT_YET) if tool.later.is_some() => return Ok((CheckFinding::Happened, done)),
        _ => CheckFinding::Unknown,
    };
    if finding == CheckFinding::Happened {
        done.observation = shown_stdout(ctx, tool, &reference, &done.handed.lines)?;
    }
    Ok((finding, done))
}

/// Looks at a call that ends later. If it has ended, the observation is what the model is shown.
pub(crate) fn run_look(
    ctx: &RunContext<'_>,
    tool: &Tool,
    prepared: Prepared,
    call_id: &str,
) -> Result<Done> {
    let reference = prepared.reference.clone();
    let mut done = execute(ctx, tool, prepared, call_id)?;
    match done.exit_code {
        Some(0) => done.observation = shown_stdout(ctx, tool, &reference, &done.handed.lines)?,
        Some(later::ENDED_BADLY) => {
            done.observation = show_output(ctx, tool, &reference, &done.handed.lines)?;
        }
        _ => {}
    }
    Ok(done)
}

fn shown_stdout(
    ctx: &RunContext<'_>,
    tool: &Tool,
    reference: &str,
    notes: &[String],
) -> Result<String> {
    let stdout = read_stream(ctx, tool, reference, "stdout.log")?;
    Ok(observation(&stdout, &Ends::default(), notes))
}

/// The ends of a stream in a call's directory, which may be one that the workspace brought.
fn read_stream(ctx: &RunContext<'_>, tool: &Tool, reference: &str, name: &str) -> Result<Ends> {
    let (path, max) = (Path::new(reference).join(name), shown_bytes(ctx, tool));
    read_ends_below(&ctx.run.path, &path, max, &ctx.environment.secrets())
}

/// A limit of time; none: the agent's.
fn timeout(ctx: &RunContext<'_>, ms: Option<u64>) -> Option<Duration> {
    match ms {
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
        None => ctx.agent.tool_timeout,
    }
}

/// Runs a program with a tool's environment to its end.
pub(crate) fn execute(
    ctx: &RunContext<'_>,
    tool: &Tool,
    prepared: Prepared,
    call_id: &str,
) -> Result<Done> {
    let run = |command: Command<'_>| process::run(&ctx.signals, command, ctx.grace());
    let (call, ended) = start(ctx, tool, prepared, call_id, run)?;
    end(ctx, tool, call, ended)
}

/// A call whose program has been started.
pub(crate) struct StartedProgram {
    argv: Vec<String>,
    dir: PathBuf,
    stdout: File,
    stderr: File,
    timeout: Option<Duration>,
    too_long: String,
}

/// Starts a program with a tool's environment, as `run` does it.
pub(crate) fn start<T>(
    ctx: &RunContext<'_>,
    tool: &Tool,
    prepared: Prepared,
    call_id: &str,
    run: impl FnOnce(Command<'_>) -> T,
) -> Result<(StartedProgram, T)> {
    let mut env = ctx.tool_variables(tool);
    env.extend(
        tool.env
            .iter()
            .map(|(name, value)| (name.clone(), Some(value.clone()))),
    );
    // A tool opens no host to itself.
    env.push(ctx.environment.hosts_variable());
    let dir = prepared.dir.to_string_lossy().into_owned();
    env.push((execution::EXECUTION_DIR.to_owned(), Some(dir)));
    env.extend(prepared.variables);
    let attach = prepared
        .dir
        .join(outbox::DIR)
        .to_string_lossy()
        .into_owned();
    env.push((outbox::VARIABLE.to_owned(), Some(attach)));
    // What the program makes of the files' names does not matter: these are the files.
    let record = prepared.record;
    let (stdout, stderr) = (
        record.stdout.try_clone().at("open", &prepared.dir)?,
        record.stderr.try_clone().at("open", &prepared.dir)?,
    );
    let command = Command {
        argv: &prepared.argv,
        dir: &ctx.workspace.root,
        env: &env,
        call_id,
        stdin: record.stdin,
        stdout: record.stdout,
        stderr: record.stderr,
        timeout: prepared.timeout,
    };
    let ran = run(command);
    let call = StartedProgram {
        argv: prepared.argv,
        dir: prepared.dir,
        stdout,
        stderr,
        timeout: prepared.timeout,
        too_long: prepared.too_long,
    };
    Ok((call, ran))
}

/// The result of a call that has ended or could not be started.
pub(crate) fn end(
    ctx: &RunContext<'_>,
    tool: &Tool,
    call: StartedProgram,
    ended: std::result::Result<Outcome, SpawnError>,
) -> Result<Done> {
    let StartedProgram {
        argv,
        dir,
        stdout,
        mut stderr,
        timeout,
        too_long,
    } = call;
    let (how, duration) = match ended {
        Ok(outcome) => {
            ctx.log.ended(&format!("tool {}", tool.name), &outcome);
            (outcome.how, outcome.duration)
        }
        Err(error) => {
            let message = match &error {
                SpawnError::TooLong => too_long,
                other => other.message(argv.first().map_or("", String::as_str)),
            };
            stderr
                .write_all(format!("{message}\n").as_bytes())
                .at("write", &dir)?;
            if matches!(error, SpawnError::TooLong | SpawnError::Other(_)) {
                return Ok(Done::not_run(message));
            }
            (Ended::Exited(error.code()), Duration::ZERO)
        }
    };
    let exit_code = how.code();
    execution::end_record(&dir, exit_code, duration, None)?;
    let max = shown_bytes(ctx, tool);
    let secrets = ctx.environment.secrets();
    let stdout = ends_of(&stdout, max, &secrets).at("read", &dir)?;
    let stderr = ends_of(&stderr, max, &secrets).at("read", &dir)?;
    let store = Store {
        run: &ctx.run.path,
        syncs: ctx.agent.sync,
        secrets: &secrets,
    };
    let restored = former_content::restore(ctx, tool, &argv, &dir);
    let collected = collect(&dir, 0, store)?;
    let mut notes = collected.lines.clone();
    notes.extend(restored);
    notes.extend(notes_of(how, exit_code, timeout, &stderr));
    Ok(Done {
        handed: collected,
        status: ActionStatus::of(how == Ended::Exited(0)),
        exit_code: Some(exit_code),
        observation: observation(&stdout, &stderr, &notes),
        duration,
        is_interrupted: matches!(how, Ended::Interrupted(_)),
    })
}

/// The lines of an observation that the tool did not print.
fn notes_of(how: Ended, exit_code: i32, timeout: Option<Duration>, stderr: &Ends) -> Vec<String> {
    let mut notes = Vec::new();
    if exit_code != 0 {
        notes.push(format!("[exit code: {exit_code}]"));
    }
    match how {
        Ended::TimedOut => {
            let ms = timeout.unwrap_or_default().as_millis();
            notes.push(format!("[timed out after {ms} ms]"));
        }
        Ended::Interrupted(_) => notes.push("[interrupted]".to_owned()),
        Ended::Exited(_) => {}
    }
    if exit_code != 0 && stderr.text().contains("input file is also the output") {
        notes.push(
            "[the search read the file that its own output goes into, below .delta; exclude that \
             directory: --exclude-dir=.delta]"
                .to_owned(),
        );
    }
    notes
}

/// Bytes of each of a tool's streams that the model is shown.
fn shown_bytes(ctx: &RunContext<'_>, tool: &Tool) -> u64 {
    tool.max_output_bytes.unwrap_or(ctx.agent.max_output_bytes)
}

/// The observation of the output in a call's directory, which `reference` names from the run's.
pub(crate) fn show_output(
    ctx: &RunContext<'_>,
    tool: &Tool,
    reference: &str,
    notes: &[String],
) -> Result<String> {
    let stdout = read_stream(ctx, tool, reference, "stdout.log")?;
    let stderr = read_stream(ctx, tool, reference, "stderr.log")?;
    Ok(observation(&stdout, &stderr, notes))
}

/// Names the argument that the system does not take, its limit and the way out.
fn explain_too_long(bound: &BoundCall) -> String {
    let sizes = bound
        .arguments
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let size = match value {
                Value::String(text) => text.len(),
                other => other.to_string().len(),
            };
            (size, name)
        });
    let Some((size, name)) = sizes.max() else {
        return "the command is too long for the system".to_owned();
    };
    format!(
        "the argument '{name}' is too long: it has {size} bytes, and the system takes at most \
         {} bytes in one argument; nothing was run. Give less at once; a tool that reads this \
         parameter from its standard input (stdin: {name}) has no such limit",
        MAX_ARG_STRLEN - 1
    )
}
