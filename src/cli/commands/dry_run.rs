//! `delta run --dry-run`: what a run would send first.

use crate::cli::args::{Common, RunArgs};
use crate::config::agent::Agent;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::{self, Workspace};
use crate::runs::inspect::inspect_run;
use crate::runs::overrides::load_with_overrides;
use crate::runs::{preflight, preview};
use crate::text::ids::RunId;
use crate::unix::terminal::Screen;
use serde_json::Map;

/// Everything up to the first request, which is printed. Nothing is created, run or sent.
pub(crate) fn run(wanted: &RunArgs) -> Result<Exit> {
    let common = &wanted.common;
    preflight::check_depth()?;
    let signals = preflight::install_signals()?;
    let screen = Screen::new(common.quiet, common.verbose);
    let message = preflight::read_message(common.message.as_deref(), &signals)?;
    let (agent, _) = load_with_overrides(&wanted.agent, Map::new(), &wanted.set, screen)?;
    let workspace = place(&agent, common, message.is_some())?;
    workspace.check_layout()?;
    if let Err(error) = preflight::read_environment(&agent, Some(&workspace), screen) {
        screen.warn(&format!("warning: {error}"));
    }
    let there = match &common.run_id {
        Some(name) => RunId::parse(name)
            .ok()
            .filter(|id| workspace.run_path(id).is_dir()),
        None => workspace.newest()?,
    };
    let found = there
        .map(|id| inspect_run(&RunDir::of(&workspace, &id)))
        .transpose()?;
    if let Some(found) = found
        && (message.is_none() || found.metadata.initial_message == message)
        && (common.run_id.is_some() || found.is_of(&agent))
    {
        let id = &found.run.id;
        match found.metadata.status {
            Status::Running => return Err(found.busy()),
            Status::Interrupted | Status::WaitingForInput => {
                if !screen.quiet {
                    screen.warn(&format!("run {id} would be resumed"));
                }
                let before = found.metadata.set.clone();
                let (agent, _) = load_with_overrides(&agent.home, before, &wanted.set, screen)?;
                return preview::print_next(&agent, &workspace, found, (signals, screen));
            }
            Status::Completed | Status::Failed if common.run_id.is_some() => {
                return Err(Error::failure(format!(
                    "run {id} is {}: nothing would be sent",
                    found.metadata.status.name()
                )));
            }
            Status::Completed | Status::Failed => {}
        }
    }
    let message = message.ok_or_else(|| {
        let root = workspace.root.display();
        Error::usage(format!(
            "nothing to resume in {root}; say what to do with -m MESSAGE"
        ))
    })?;
    preview::print_first(&agent, &workspace, &message, (signals, screen))
}

/// Where a run would work. Nobody is asked, no lock is taken, and the next workspace is not made.
fn place(agent: &Agent, common: &Common, has_message: bool) -> Result<Workspace> {
    if let Some(dir) = &common.work_dir {
        return Workspace::at(dir);
    }
    let parent = agent.home.join("workspaces");
    if let Some(id) = &common.run_id {
        for name in workspace::numbered(&agent.home)? {
            if parent.join(&name).join(".delta").join(id).is_dir() {
                return Workspace::at(&parent.join(name));
            }
        }
    }
    match workspace::last_used(&agent.home) {
        Some(name) if !has_message => Workspace::at(&parent.join(name)),
        _ => Workspace::at(&workspace::next(&agent.home)?),
    }
}
