//! `delta migrate`: converts a workspace of an older engine to today's layout.

use crate::error::{Error, Exit, Result};
use crate::record::migrate::{perform, plan};
use crate::record::workspace::Workspace;
use crate::runs::origin::require_own;
use crate::runs::preflight::install_signals;
use crate::unix::terminal::{Screen, Tone};
use std::path::Path;

pub(crate) fn migrate_workspace(dir: &Path, adopt: bool) -> Result<Exit> {
    let signals = install_signals()?;
    let workspace = Workspace::at(dir)?;
    let root = workspace.root.display();
    if !workspace.control.is_dir() {
        return Err(Error::failure(format!(
            "nothing to migrate in {root}: no agent has worked there"
        )));
    }
    if !adopt {
        require_own(&workspace, false)?;
    }
    let screen = Screen::new(false, false);
    let nothing_to_do = || {
        require_own(&workspace, adopt)?;
        screen.progress(&[(Tone::Dim, &format!("{root} has the current layout"))]);
        Ok(Exit::Success)
    };
    match plan(&workspace) {
        Ok(plan) if plan.steps.is_empty() => return nothing_to_do(),
        // No other process is migrating it, so this is its real state. Not even a lock is left there.
        Err(error) if !workspace.control.join("lock").exists() => return Err(error),
        _ => {}
    }
    // Again, because another process may be in the middle of it.
    let _lock = workspace.lock(&signals, None)?;
    let plan = plan(&workspace)?;
    if plan.steps.is_empty() {
        return nothing_to_do();
    }
    // Every reason to refuse the workspace has been found by now.
    require_own(&workspace, adopt)?;
    for step in &plan.steps {
        if let Some(stop) = signals.stop() {
            let message = format!("{}; the same command resumes the migration", stop.name());
            return Err(Error::new(stop.into(), message));
        }
        perform(step)?;
    }
    let runs = match plan.runs.len() {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    screen.progress(&[
        (Tone::Good, "migrated "),
        (Tone::Dim, &format!("{root} with {runs}")),
    ]);
    Ok(Exit::Success)
}
