//! `delta tell`: a message to a run that is live.

use crate::engine::inbox::{self, LONGEST};
use crate::error::{Error, Exit, Result};
use crate::record::metadata::Status;
use crate::record::reader::read_journal;
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::workspace::{Workspace, command_in};
use crate::runs::find::{find_named, newest_where, no_runs};
use crate::runs::inspect::{RunSnapshot, inspect_run, is_live};
use crate::runs::origin::{require_own, require_own_run};
use crate::text::options::parse::ParsedCommand;
use crate::text::shell::shell_quoted;
use crate::unix::files;
use crate::unix::terminal::warn;

pub(crate) fn tell_run(given: &ParsedCommand) -> Result<Exit> {
    let message = given.operand_texts().join(" ");
    if std::env::var_os("DELTA_RUN_ID").is_some() {
        return Err(Error::failure(
            "tell: a program that a run has started cannot send messages as the user",
        ));
    }
    if message.trim().is_empty() {
        return Err(Error::usage("tell: the message is empty"));
    }
    if message.len() > LONGEST {
        return Err(Error::usage(format!(
            "tell: the message has more than {LONGEST} bytes; put it into a file in the workspace, and name that"
        )));
    }
    let workspace = Workspace::at(&given.work_dir())?;
    workspace.check_layout()?;
    require_own(&workspace, false)?;
    if !workspace.control.is_dir() {
        return Err(no_runs(&workspace.root));
    }
    let run = find_meant(&workspace, given.text("--run-id").as_deref())?;
    require_own_run(&run, false)?;
    let Some(_held) = inbox::hold(&run)? else {
        let text = format!("run {} is just ending; try again", run.id);
        return Err(Error::new(Exit::TempFail, text));
    };
    let found = inspect_run(&run)?;
    if found.is_flow || found.metadata.flow.is_some() {
        let text = format!(
            "run {} is a flow's: tell the run of one of its agents",
            run.id
        );
        return Err(Error::failure(text));
    }
    // A live run whose end is recorded takes no message any more.
    if found.has_ended() || has_recorded_end(&run) {
        return Err(ended(&found, &workspace));
    }
    let put = inbox::put(&run, &inbox::new_name(), &message)?;
    // The engine waits only so long for a process that holds the inbox, and this one may have been stopped. What the
    // run read before its end is no longer there.
    if has_recorded_end(&run) && put.exists() {
        files::remove(&put)?;
        return Err(ended(&found, &workspace));
    }
    if found.metadata.status != Status::Running {
        let id = &run.id;
        warn(&format!(
            "run {id} is not live: it reads this at its next start"
        ));
    }
    Ok(Exit::Success)
}

fn find_meant(workspace: &Workspace, name: Option<&str>) -> Result<RunDir> {
    if let Some(name) = name {
        return Ok(RunDir::of(workspace, &find_named(workspace, name)?));
    }
    if let Some(live) = newest_where(workspace, |run, _, _| Ok(is_live(run)))? {
        return Ok(live.run);
    }
    let newest = workspace
        .newest()?
        .ok_or_else(|| no_runs(&workspace.root))?;
    Ok(RunDir::of(workspace, &newest))
}

/// True if the last event of a run is its end. The process may still be there.
fn has_recorded_end(run: &RunDir) -> bool {
    read_journal(&run.journal()).is_ok_and(|journal| {
        let state = state::read(&journal, Reading::all(true)).ok();
        let end = state.as_ref().and_then(|state| state.end.as_ref());
        end.is_some_and(|end| matches!(&*end.status, "COMPLETED" | "FAILED"))
    })
}

fn ended(found: &RunSnapshot, workspace: &Workspace) -> Error {
    let id = &found.run.id;
    let mut command = command_in(&workspace.root, &["delta", "continue"]);
    command.extend(["--run-id", id.as_str(), "-m"].map(str::to_owned));
    let command = shell_quoted(&command);
    Error::failure(format!(
        "run {id} has ended, and reads nothing any more; to go on with it: {command} MESSAGE"
    ))
}
