//! The files of a run's states in another directory than its workspace.

use super::undo::{order, taken};
use crate::error::Result;
use crate::file_states::put_back::return_to;
use crate::file_states::store::{Store, Use};
use crate::record::run_dir::RunDir;
use crate::record::state::{FileStates, Run};
use crate::record::workspace::Workspace;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use std::path::Path;

/// The commit of the files before the request that follows an iteration, and its store; none: they are in no state.
fn recorded(
    run: &RunDir,
    state: &Run<'_>,
    iteration: u64,
    screen: Screen,
) -> Option<(Store, String)> {
    let states = &state.file_states;
    let found = states.before_request_after(iteration)?;
    let workspace = Workspace::at(run.workspace()?).ok()?;
    let store = Store::open(&workspace, Use::Shared).ok()??;
    if let Some(first) = states.first_unkept(found, iteration) {
        let before = found.iteration;
        screen.warn(&format!(
            "no files were kept from iteration {first} on: they are as after iteration {before}"
        ));
    }
    Some((store, found.commit.clone()))
}

/// Fills an empty directory with these files. False: they are in no state.
pub(crate) fn fill(
    run: &RunDir,
    state: &Run<'_>,
    iteration: u64,
    dir: &Path,
    screen: Screen,
) -> Result<bool> {
    match recorded(run, state, iteration, screen) {
        Some((store, commit)) => store.bring(dir, None, &commit).map(|()| true),
        None => Ok(false),
    }
}

/// Where a copy of a workspace is made.
pub(crate) struct CopyPlace<'c> {
    pub workspace: &'c Workspace,
    pub signals: &'c Signals,
    pub screen: Screen,
}

/// Gives a copy of a run's workspace these files, and their states. What states leave out stays as it was copied: what
/// that is, in words, is returned. None: the files are in no state.
pub(crate) fn return_copy(
    run: &RunDir,
    state: &Run<'_>,
    iteration: u64,
    place: &CopyPlace<'_>,
) -> Result<Option<String>> {
    let Some((store, commit)) = recorded(run, state, iteration, place.screen) else {
        return Ok(None);
    };
    let order = order(run, state, run.workspace().unwrap_or(&run.path));
    let now = taken(&order, place.signals)?;
    let from = now.commit.or(order.last).unwrap_or_default();
    return_to(&store, &place.workspace.root, &from, &commit)?;
    place.workspace.create()?;
    store.copy_to(place.workspace, &commit)?;
    Ok(Some(now.left_out))
}

/// Makes the states that a new run shares with another one its own, so that they do not go with the other one.
pub(crate) fn keep(run: &RunDir, workspace: &Workspace, shared: &FileStates) -> Result<()> {
    let Some(last) = shared.all.last() else {
        return Ok(());
    };
    let Some(store) = Store::open(workspace, Use::Shared)? else {
        return Ok(());
    };
    let words = ["update-ref", &Store::branch(&run.id), &last.commit];
    store.git.line(&words).map(drop)
}
