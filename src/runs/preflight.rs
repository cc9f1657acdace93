//! Checks before anything is created: signals, nesting, the agent, its environment.

use super::wrapper_check;
use crate::config::agent::{Agent, Problem, Severity};
use crate::config::environment::{Environment, MODEL, SETUP};
use crate::config::llm::misfits;
use crate::config::prices::{add_own_prices, has_own_price};
use crate::config::pricing::GivenBudget;
use crate::config::{load, person};
use crate::engine::account::SpendingRules;
use crate::engine::run_context;
use crate::error::{Error, Exit, Result, is_passing};
use crate::record::journal::Journal;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs::CALL_ID;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Installs the signal handlers. A run that is another run's tool ends when that run's engine does.
pub(crate) fn install_signals() -> Result<Arc<Signals>> {
    let mut signals = Signals::install().map_err(|e| {
        let message = format!("cannot catch signals: {}", crate::error::reason(&e));
        Error {
            is_passing: is_passing(&e),
            ..Error::failure(message)
        }
    })?;
    let parent = std::env::var(run_context::ENGINE_PID).ok();
    if let Some(pid) = parent.and_then(|pid| pid.parse().ok())
        && !signals.end_with(pid)
        && let Some(run) = std::env::var_os("DELTA_RUN_DIR")
        && !Journal::is_locked(&Path::new(&run).join("journal.jsonl"))
    {
        // Its number may mean nothing here, in another pid namespace; the free lock of its run does.
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
    let inherited = std::env::var(name)
        .ok()
        .filter(|text| !text.is_empty())
        .map(|text| {
            let parsed = Timestamp::parse_with_offset(&text);
            parsed.ok_or_else(|| Error::config(format!("{name}: '{text}' is not a time; unset it")))
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
        let error = Error::config(lines.join("\n"));
        if problems.iter().any(|problem| problem.is_passing) {
            Error {
                exit: Exit::Failure,
                is_passing: true,
                ..error
            }
        } else {
            error
        }
    })
}

/// Reads the environment of a workspace, prints its warnings, and fails if it lacks what the agent needs.
pub(crate) fn read_environment(
    agent: &mut Agent,
    workspace: Option<&Workspace>,
    screen: Screen,
) -> Result<Environment> {
    let environment = read_variables(agent, workspace, screen)?;
    add_prices(agent, &environment, screen)?;
    check_reach(agent, &environment, workspace, screen)?;
    Ok(environment)
}

/// Warnings that this process has printed: a chat reads the files again for each message.
static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Reads the environment of a workspace, which chooses the agent's API, and prints its warnings, each once.
pub(crate) fn read_variables(
    agent: &mut Agent,
    workspace: Option<&Workspace>,
    screen: Screen,
) -> Result<Environment> {
    let root = workspace.map(|workspace| workspace.root.as_path());
    let (mut environment, warnings) = Environment::of_agent(agent, root)?;
    choose_api(agent, &environment, screen)?;
    run_context::reserve_server_variables(&agent.home, &mut environment)?;
    for warning in warnings {
        warn_once(&warning, screen);
    }
    Ok(environment)
}

/// Prints a warning unless this process has printed it before.
fn warn_once(warning: &str, screen: Screen) {
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(warning.to_owned()) {
        screen.warn(&format!("warning: {warning}"));
    }
}

/// Adds the person's prices of the models that an agent asks, and prints a warning if they do not count.
pub(crate) fn add_prices(
    agent: &mut Agent,
    environment: &Environment,
    screen: Screen,
) -> Result<()> {
    if let Some(unused) = add_own_prices(&mut agent.prices, &agent.llm, environment)? {
        warn_once(&unused, screen);
    }
    Ok(())
}

/// Fails if a budget limits the cost and the model has no price. One of the person's may be found once the endpoint is known.
pub(crate) fn check_budget(agent: &Agent, given: Option<GivenBudget>) -> Result<()> {
    match SpendingRules::of(agent, given) {
        Err(_) if has_own_price(agent.llm.model.as_deref()) => Ok(()),
        rules => rules.map(drop),
    }
}

/// Chooses the API of an agent's model. Prints which parameters do not fit it, if the agent was loaded for another.
///
/// # Errors
/// A variable names no API, or delta cannot honour a parameter with the API.
pub(crate) fn choose_api(
    agent: &mut Agent,
    environment: &Environment,
    screen: Screen,
) -> Result<()> {
    let before = agent.llm.api;
    environment.choose_api(&mut agent.llm)?;
    if agent.llm.api == before {
        return Ok(());
    }
    let (errors, warnings): (Vec<_>, Vec<_>) = misfits(&agent.llm)
        .into_iter()
        .partition(|(is_error, ..)| *is_error);
    for (_, _, warning) in warnings.iter().filter(|_| !screen.quiet) {
        screen.warn(&format!("warning: {warning}"));
    }
    match errors.into_iter().next() {
        Some((_, _, error)) => Err(Error::config(error)),
        None => Ok(()),
    }
}

/// Fails if the model or a wrapper cannot be had.
pub(crate) fn check_reach(
    agent: &Agent,
    environment: &Environment,
    workspace: Option<&Workspace>,
    screen: Screen,
) -> Result<()> {
    if agent.llm.command.is_none() {
        let llm = &agent.llm;
        let endpoint = environment.endpoint(llm.api, llm.base_url.as_deref(), &llm.headers);
        if llm.model.is_none() {
            // A server that the workspace may not name is reported first.
            environment.base_url(llm.api, llm.base_url.as_deref())?;
            return Err(no_model(agent, endpoint.is_err()));
        }
        // The file may be part of a clone, and the owner of the key may see what is asked with it.
        if endpoint?.is_workspaces_key {
            screen.warn(
                "warning: the key comes from the workspace's .env, because nothing else gives one; put your own into the \
                 environment, or delete that line",
            );
        }
    }
    wrapper_check::check_wrappers(agent, environment, workspace)
}

/// Gives an agent that names no model that of the environment.
pub(crate) fn choose_model(agent: &mut Agent) -> Result<()> {
    if !agent.llm.has_model()
        && let Some((name, _)) = person::variable(MODEL)?
    {
        agent.llm.model = Some(name);
        agent.llm.is_from_environment = true;
        agent.llm.leave_out_fallback();
    }
    Ok(())
}

/// The error for an agent without a model. A first run lacks a key as well.
fn no_model(agent: &Agent, lacks_key: bool) -> Error {
    if lacks_key {
        return Error::config(format!("No model and no key are configured. Run: {SETUP}"));
    }
    let name = &agent.name;
    Error::config(format!(
        "No model is configured, and agent {name} names none: give -M NAME, or set {MODEL}. Or run: {SETUP}"
    ))
}
