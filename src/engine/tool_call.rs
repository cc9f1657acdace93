//! One tool call as a process: its directory of records, its execution, what the model is shown.
//!
//! Unaware of the journal. Preparing is apart from running, so that the request can be journalled
//! when nothing but the program itself can fail any more.

use crate::config::tool::bind::{BoundCall, shell_quoted};
use crate::config::tool::definition::Tool;
use crate::engine::hooks::spawn_failure;
use crate::engine::observation::{Ends, ends_of, observation, read_ends};
use crate::engine::run_context::RunContext;
use crate::error::{At, Result};
use crate::record::event::ActionStatus;
use crate::record::run_dir::reference;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, SpawnError};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The longest single argument that Linux accepts, with its NUL (`MAX_ARG_STRLEN`, 32 pages).
const LONGEST_ARGUMENT: usize = 131_072;

/// A call that is ready to run.
pub(crate) struct Prepared {
    argv: Vec<String>,
    dir: PathBuf,
    stdin: Option<File>,
    stdout: File,
    stderr: File,
    /// The directory, relative to the run's.
    pub reference: String,
    /// The command on one line.
    pub command: String,
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Done {
    /// How it ended.
    pub status: ActionStatus,
    /// The exit code, if one is known.
    pub exit_code: Option<i32>,
    /// The text for the model.
    pub observation: String,
    /// From start to end.
    pub duration: Duration,
}

impl Done {
    /// A call that was not run.
    pub(crate) fn not_run(observation: String) -> Self {
        Self {
            status: ActionStatus::Error,
            exit_code: None,
            observation,
            duration: Duration::ZERO,
        }
    }
}

/// The whole argv of a call: the wrapper and the tool's own.
pub(crate) fn full_argv(ctx: &RunContext<'_>, tool: &Tool, bound: &BoundCall) -> Vec<String> {
    let wrapper = tool.wrapper.as_ref().unwrap_or(&ctx.agent.wrapper);
    let mut argv = ctx.argv(wrapper);
    argv.extend(bound.argv.iter().cloned());
    argv
}

/// Makes the call's directory of records.
pub(crate) fn prepare_call(
    ctx: &RunContext<'_>,
    tool: &Tool,
    bound: &BoundCall,
) -> Result<Prepared> {
    let argv = full_argv(ctx, tool, bound);
    let parent = ctx.run.io("tool_executions");
    let name = format!("{}_{}", Timestamp::now().compact(), tool.name);
    let name = files::make_unique_dir(&parent, &name)?;
    let dir = parent.join(&name);
    let command = shell_quoted(&argv);
    files::write(&dir.join("command.txt"), format!("{command}\n").as_bytes())?;
    let stdin = match &bound.stdin {
        Some(bytes) => {
            let path = dir.join("stdin.txt");
            files::write(&path, bytes)?;
            Some(File::open(&path).at("open", &path)?)
        }
        None => None,
    };
    Ok(Prepared {
        argv,
        stdin,
        stdout: files::create(&dir.join("stdout.log"))?,
        stderr: files::create(&dir.join("stderr.log"))?,
        reference: reference("tool_executions", &name),
        dir,
        command,
    })
}

/// Runs a call to its end.
pub(crate) fn run_tool(
    ctx: &RunContext<'_>,
    tool: &Tool,
    bound: &BoundCall,
    prepared: Prepared,
    call_id: &str,
) -> Result<Done> {
    let timeout = match tool.timeout_ms {
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
        None => ctx.agent.tool_timeout,
    };
    let mut env = ctx.variables(tool.pass_api_key);
    env.extend(
        tool.env
            .iter()
            .map(|(name, value)| (name.clone(), Some(value.clone()))),
    );
    // What the program makes of the files' names does not matter: these are the files.
    let (stdout, mut stderr) = (
        prepared.stdout.try_clone().at("open", &prepared.dir)?,
        prepared.stderr.try_clone().at("open", &prepared.dir)?,
    );
    let command = Command {
        argv: &prepared.argv,
        dir: &ctx.workspace.root,
        env: &env,
        call_id,
        stdin: prepared.stdin,
        stdout: prepared.stdout,
        stderr: prepared.stderr,
        timeout,
    };
    let (how, duration) = match process::run(&ctx.signals, command, ctx.grace()) {
        Ok(outcome) => {
            ctx.log.ended(&format!("tool {}", tool.name), &outcome);
            (outcome.how, outcome.duration)
        }
        Err(error) => {
            let message = match &error {
                SpawnError::TooLong => explain_too_long(bound),
                other => spawn_failure(&prepared.argv[0], other),
            };
            stderr
                .write_all(format!("{message}\n").as_bytes())
                .at("write", &prepared.dir)?;
            let code = match error {
                SpawnError::NotFound => 127,
                SpawnError::NotExecutable(_) => 126,
                SpawnError::TooLong | SpawnError::Other(_) => return Ok(Done::not_run(message)),
            };
            (Ended::Exited(code), Duration::ZERO)
        }
    };
    let exit_code = match how {
        Ended::Exited(code) | Ended::Interrupted(code) => code,
        Ended::TimedOut => 124,
    };
    let record = |name: &str, number: String| {
        files::write(&prepared.dir.join(name), format!("{number}\n").as_bytes())
    };
    record("exit_code.txt", exit_code.to_string())?;
    record("duration_ms.txt", duration.as_millis().to_string())?;
    let max = shown_bytes(ctx, tool);
    let stdout = ends_of(&stdout, max).at("read", &prepared.dir)?;
    let stderr = ends_of(&stderr, max).at("read", &prepared.dir)?;
    let notes = notes_of(how, exit_code, timeout, &stderr);
    let status = if how == Ended::Exited(0) {
        ActionStatus::Success
    } else {
        ActionStatus::Failed
    };
    Ok(Done {
        status,
        exit_code: Some(exit_code),
        observation: observation(&stdout, &stderr, &notes),
        duration,
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
            "[the search came to the file that its own output goes into, below .delta; exclude that \
             directory: --exclude-dir=.delta]"
                .to_owned(),
        );
    }
    notes
}

/// How much of each of a tool's streams the model is shown.
fn shown_bytes(ctx: &RunContext<'_>, tool: &Tool) -> u64 {
    tool.max_output_bytes.unwrap_or(ctx.agent.max_output_bytes)
}

/// The observation of the output in a call's directory.
pub(crate) fn show_output(
    ctx: &RunContext<'_>,
    tool: &Tool,
    dir: &std::path::Path,
    notes: &[String],
) -> Result<String> {
    let max = shown_bytes(ctx, tool);
    let stdout = read_ends(&dir.join("stdout.log"), max)?;
    let stderr = read_ends(&dir.join("stderr.log"), max)?;
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
        LONGEST_ARGUMENT - 1
    )
}
