//! `delta continue`: goes on with a run, by the state that it is in.

use super::select::{look, named, no_runs};
use super::start::{self, Stage, ending_of};
use crate::cli::args::Common;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::unix::terminal::Screen;
use std::path::Path;
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(force: bool, common: &Common) -> Result<Exit> {
    start::told(try_run(force, common), common)
}

fn try_run(force: bool, common: &Common) -> Result<Exit> {
    start::check_depth()?;
    let signals = start::signals()?;
    let screen = Screen::new(common.quiet, common.verbose);
    let message = start::message(common, &signals)?;
    let dir = common.work_dir.as_deref().unwrap_or(Path::new("."));
    let workspace = Workspace::at(dir)?;
    workspace.check_layout()?;
    if !workspace.control.is_dir() {
        return Err(no_runs(&workspace.root));
    }
    let lock = workspace.lock(&signals)?;
    let id = match &common.run_id {
        Some(name) => named(&workspace, name)?,
        None => {
            let newest = workspace
                .newest()?
                .ok_or_else(|| no_runs(&workspace.root))?;
            workspace.mend_latest(&newest)?;
            newest
        }
    };
    let found = look(&RunDir::of(&workspace, &id))?;
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
    let agent = start::agent_with(
        Path::new(&found.metadata.agent_home),
        &found.metadata.set,
        screen,
    )?;
    let environment = start::environment(&agent, Some(&workspace), screen)?;
    let stage = Stage {
        agent: &agent,
        workspace: &workspace,
        environment: &environment,
        signals: Arc::clone(&signals),
        common,
        screen,
        set: &found.metadata.set.clone(),
        force,
    };
    if found.question.is_some() && status != Status::Completed && status != Status::Failed {
        let nobody_answers = message.is_none() && !found.is_answered && !common.interactive;
        if nobody_answers && status == Status::WaitingForInput {
            drop(lock);
            let ending = ending_of(&found.metadata);
            return stage.tell(
                &ending,
                &found.metadata,
                &found.run,
                found.question.as_ref(),
            );
        }
        return stage.take_up(found, None, message, lock);
    }
    stage.take_up(found, message.as_deref(), None, lock)
}
