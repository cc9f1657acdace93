//! `delta continue`: resumes a run according to its state.

use crate::cli::args::ContinueArgs;
use crate::cli::result;
use crate::engine::account::SpendingRules;
use crate::error::{Error, Exit, Result};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::decide::{Decision, Naming, Refusal, Wanted, decide};
use crate::runs::find::{find_named, no_runs};
use crate::runs::inspect::{RunSnapshot, inspect_run};
use crate::runs::launch::Launch;
use crate::runs::origin::require_own;
use crate::runs::overrides::{agent_dir, load_recorded};
use crate::runs::preflight::{
    check_depth, heed_deadline, install_signals, read_environment, read_message,
};
use crate::runs::result::RunResult;
use crate::unix::terminal::Screen;
use std::path::Path;

pub(crate) fn continue_run(wanted: &ContinueArgs) -> Result<Exit> {
    result::print_outcome(try_run(wanted), &wanted.common)
}

fn try_run(wanted: &ContinueArgs) -> Result<RunResult> {
    let common = &wanted.common;
    check_depth()?;
    let signals = install_signals()?;
    heed_deadline(&signals, common.deadline)?;
    let screen = Screen::new(common.quiet, common.verbose);
    let message = read_message(common.message.as_deref(), &signals)?;
    let workspace = Workspace::at(common.work_dir.as_deref().unwrap_or(Path::new(".")))?;
    workspace.check_layout()?;
    require_own(&workspace, wanted.adopt)?;
    if !workspace.control.is_dir() {
        return Err(no_runs(&workspace.root));
    }
    let lock = workspace.lock(&signals)?;
    let id = match &common.run_id {
        Some(name) => find_named(&workspace, name)?,
        None => {
            let newest = workspace
                .newest()?
                .ok_or_else(|| no_runs(&workspace.root))?;
            workspace.mend_latest(&newest)?;
            newest
        }
    };
    let found = inspect_run(&RunDir::of(&workspace, &id))?;
    let asked = Wanted {
        naming: Naming::Continue,
        has_text: message.is_some(),
        new: false,
        retry_failed: false,
        interactive: common.interactive,
    };
    match decide(asked, Some(found.standing(true))) {
        Decision::Busy => return Err(found.busy()),
        Decision::Retell => return Ok(RunResult::recorded(found)),
        Decision::Refuse(refusal) => return Err(refused(refusal, &found)),
        Decision::Begin | Decision::BeginInPlace | Decision::Resume => {}
    }
    let recorded = (id.as_str(), found.metadata.agent_home.as_str());
    let home = agent_dir(wanted.agent.as_deref(), recorded, &workspace)?;
    let recorded = (id.as_str(), &found.metadata.set);
    let (agent, set) = load_recorded(&home, recorded, &wanted.set, screen)?;
    let environment = read_environment(&agent, Some(&workspace), screen)?;
    let launch = Launch {
        agent: &agent,
        workspace: &workspace,
        environment: &environment,
        signals,
        screen,
        set: &set,
        interactive: common.interactive,
        max_iterations: common.max_iterations,
        force: wanted.force,
        spending: Some(SpendingRules::of(&agent, common.budget)?),
    };
    if found.question.is_some() && !found.has_ended() {
        return launch.resume(found, None, message, lock);
    }
    launch.resume(found, message.as_deref(), None, lock)
}

fn refused(refusal: Refusal, found: &RunSnapshot) -> Error {
    let id = &found.run.id;
    Error::usage(match refusal {
        Refusal::OfFlow => {
            format!("run {id} is a flow's: resume it with the `delta flow run` that started it")
        }
        _ => {
            let status = found.metadata.status.name();
            format!("run {id} is {status}: continue it with a message: -m MESSAGE")
        }
    })
}
