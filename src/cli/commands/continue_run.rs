//! `delta continue`: goes on with a run, by the state that it is in.

use crate::cli::args::Common;
use crate::cli::result;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::find::{find_named, no_runs};
use crate::runs::inspect::inspect_run;
use crate::runs::launch::Launch;
use crate::runs::preflight;
use crate::runs::result::RunResult;
use crate::unix::terminal::Screen;
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(force: bool, common: &Common) -> Result<Exit> {
    result::print_outcome(try_run(force, common), common)
}

fn try_run(force: bool, common: &Common) -> Result<RunResult> {
    preflight::check_depth()?;
    let signals = preflight::install_signals()?;
    let screen = Screen::new(common.quiet, common.verbose);
    let message = preflight::read_message(common.message.as_deref(), &signals)?;
    let dir = common.work_dir.as_deref().unwrap_or(Path::new("."));
    let workspace = Workspace::at(dir)?;
    workspace.check_layout()?;
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
    let status = found.metadata.status;
    if status == Status::Running {
        return Err(found.busy());
    }
    if found.is_flow {
        return Err(Error::usage(format!(
            "run {id} is a flow's: `delta flow run`, as it was started, goes on with it"
        )));
    }
    if matches!(status, Status::Completed | Status::Failed) && message.is_none() {
        return Err(Error::usage(format!(
            "run {id} is {}: to go on with it, say something: -m MESSAGE",
            status.name()
        )));
    }
    if found.metadata.agent_home.is_empty() {
        return Err(Error::failure(format!(
            "run {id} does not tell its agent any more: its journal is empty and its metadata is lost; \
             `delta run -m` starts a new run"
        )));
    }
    let agent = preflight::load_agent(
        Path::new(&found.metadata.agent_home),
        &found.metadata.set,
        screen,
    )?;
    let environment = preflight::read_environment(&agent, Some(&workspace), screen)?;
    let launch = Launch {
        agent: &agent,
        workspace: &workspace,
        environment: &environment,
        signals: Arc::clone(&signals),
        screen,
        set: &found.metadata.set.clone(),
        interactive: common.interactive,
        max_iterations: common.max_iterations,
        force,
    };
    if found.question.is_some() && status != Status::Completed && status != Status::Failed {
        let nobody_answers = message.is_none() && !found.is_answered && !common.interactive;
        if nobody_answers && status == Status::WaitingForInput {
            drop(lock);
            return Ok(RunResult::recorded(found));
        }
        return launch.resume(found, None, message, lock);
    }
    launch.resume(found, message.as_deref(), None, lock)
}
