//! Checks before anything is created: signals, nesting, the agent, its environment.

use super::wrapper_check;
use crate::config::agent::{Agent, Problem, Severity};
use crate::config::environment::Environment;
use crate::config::load;
use crate::engine::run_context;
use crate::error::{Error, Exit, Result};
use crate::record::journal::Journal;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs::{CALL_ID, Signals};
use crate::unix::terminal::Screen;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

/// Installs the signal handlers. A run that is another run's tool ends when that run's engine does.
pub(crate) fn install_signals() -> Result<Arc<Signals>> {
    let mut signals = Signals::install().map_err(|e| {
        Error::failure(format!(
            "cannot catch signals: {}",
            crate::error::reason(&e)
        ))
    })?;
    let parent = std::env::var(run_context::ENGINE_PID).ok();
    if let Some(pid) = parent.and_then(|pid| pid.parse().ok())
        && !signals.end_with(pid)
        && let Some(run) = std::env::var_os("DELTA_RUN_DIR")
        && !Journal::is_owned(&Path::new(&run).join("journal.jsonl"))
    {
        // Its number may mean nothing here, in another pid namespace; that nobody owns its run does.
        return Err(Error::new(
            Exit::Terminate,
            format!(
                "the engine that started this one (pid {pid}) is gone; to start a run of its own from here, \
             unset {}",
                run_context::ENGINE_PID
            ),
        ));
    }
    Ok(Arc::new(signals))
}

/// Takes over the deadline that is given, or the one that the environment has for what another engine
/// started, whichever comes first.
///
/// # Errors
/// It has passed, so that nothing is begun; or the environment's is no time.
pub(crate) fn heed_deadline(signals: &Signals, given: Option<Timestamp>) -> Result<()> {
    let name = run_context::DEADLINE;
    let inherited = std::env::var(name).ok().filter(|text| !text.is_empty());
    let inherited = inherited.map(|text| {
        let parsed = Timestamp::parse_with_offset(&text);
        parsed.ok_or_else(|| Error::config(format!("{name}: '{text}' is no time; unset it")))
    });
    let deadlines = [given, inherited.transpose()?];
    let Some(deadline) = deadlines.into_iter().flatten().min() else {
        return Ok(());
    };
    if deadline <= Timestamp::now() {
        let message = format!("the deadline {deadline} has passed: nothing was begun");
        return Err(Error::new(Exit::Undecided, message));
    }
    signals.set_deadline(deadline);
    Ok(())
}

/// The run whose tool this process is.
pub(crate) fn parent_run() -> Option<String> {
    let id = std::env::var("DELTA_RUN_ID").ok();
    id.filter(|id| RunId::parse(id).is_ok())
}

/// The call of that run that this process belongs to.
pub(crate) fn parent_call() -> Option<String> {
    parent_run().and_then(|_| std::env::var(CALL_ID).ok())
}

/// Refuses to nest too deep.
pub(crate) fn check_depth() -> Result<()> {
    let (depth, max) = run_context::depth();
    if depth > max {
        return Err(Error::failure(format!(
            "this run would be nested {depth} deep, and the limit is {max} (DELTA_MAX_DEPTH); \
             do the work here instead of starting another agent"
        )));
    }
    Ok(())
}

/// Reads an agent with the keys of agent.yaml that a run overrides, prints its warnings, and fails with
/// all its errors.
pub(crate) fn load_agent(dir: &Path, set: &Map<String, Value>, screen: Screen) -> Result<Agent> {
    let (agent, problems) = load::load_with(dir, set);
    for problem in &problems {
        if matches!(problem.severity, Severity::Warning | Severity::Deprecation) && !screen.quiet {
            screen.warn(&problem.to_string());
        }
    }
    agent.ok_or_else(|| {
        let errors = problems.iter().filter(|p| p.severity == Severity::Error);
        let lines: Vec<String> = errors.map(Problem::to_string).collect();
        Error::config(lines.join("\n"))
    })
}

/// Reads the environment of a workspace, prints its warnings, and fails if it lacks what the agent needs.
pub(crate) fn read_environment(
    agent: &Agent,
    workspace: Option<&Workspace>,
    screen: Screen,
) -> Result<Environment> {
    let (environment, warnings) = Environment::read(
        &agent.home,
        workspace.map(|workspace| workspace.root.as_path()),
        agent.workspace_env.as_deref(),
    )?;
    for warning in warnings {
        screen.warn(&format!("warning: {warning}"));
    }
    check_reach(agent, &environment, workspace)?;
    Ok(environment)
}

/// Fails if the model or a wrapper cannot be had.
pub(crate) fn check_reach(
    agent: &Agent,
    environment: &Environment,
    workspace: Option<&Workspace>,
) -> Result<()> {
    if agent.llm.command.is_none() {
        environment.endpoint(agent.llm.base_url.as_deref())?;
    }
    wrapper_check::check_wrappers(agent, environment, workspace)
}

/// A message as it was given, read from stdin if it is `-`.
pub(crate) fn read_message(given: Option<&str>, signals: &Signals) -> Result<Option<String>> {
    if given != Some("-") {
        return Ok(given.map(str::to_owned));
    }
    let bytes = read_stdin("message", signals)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::usage("the message is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    if text.is_empty() {
        return Err(Error::usage("the message given with -m - is empty"));
    }
    Ok(Some(text))
}

/// All of the standard input, which is called `name` in errors. A signal ends the reading.
pub(crate) fn read_stdin(name: &str, signals: &Signals) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = signals.read(std::io::stdin(), &mut buffer).map_err(|e| {
            let reason = crate::error::reason(&e);
            Error::usage(format!("cannot read the {name} from stdin: {reason}"))
        })?;
        match (read, signals.stop()) {
            (Some(0), _) => return Ok(bytes),
            (Some(read), _) => bytes.extend_from_slice(&buffer[..read]),
            (None, Some(stop)) => {
                let message = format!("{} while reading the {name}", stop.name());
                return Err(Error::new(stop.into(), message));
            }
            (None, None) => {}
        }
    }
}
