//! Foreign records: runs in a `.delta` that was not made where it is found. They can be read, but are
//! obeyed only after a person has adopted them.

use crate::error::{At, Error, Result};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::unix::origin::{ForeignReason, Origin, adopts_all, check_origin, stamp_dir};
use crate::unix::terminal::Screen;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

/// Refuses foreign records, or adopts them if that is wanted.
pub(crate) fn require_own(workspace: &Workspace, adopt: bool) -> Result<()> {
    let Some(reason) = foreign_reason(workspace)? else {
        return Ok(());
    };
    let control = workspace.control.display();
    if !adopt && !adopts_all() {
        return Err(Error::config(format!(
            "{control} {reason}; a run in it could make this command do anything, so none is obeyed: \
             look at them with `delta log`, and give --adopt if they are yours"
        )));
    }
    stamp_dir(&workspace.control).map_err(|error| Error::config(error.message))?;
    let private = Permissions::from_mode(0o700);
    set_permissions(&workspace.control, private).at("change", &workspace.control)
}

/// The same for one run, which may also lie in no workspace, as a copy does: then nothing can be marked as
/// one's own, and the word counts for this command only.
pub(crate) fn require_own_run(run: &RunDir, adopt: bool) -> Result<()> {
    match run.workspace() {
        Some(root) => require_own(&Workspace::at(root)?, adopt),
        None if adopt || adopts_all() => Ok(()),
        None => Err(Error::config(format!(
            "{} is in no workspace, so nothing proves that it is yours, and its run is not obeyed: give --adopt \
             if it is",
            run.path.display()
        ))),
    }
}

/// True if records may be obeyed, perhaps after they have been adopted.
pub(crate) fn may_obey(workspace: &Workspace, adopt: bool) -> Result<bool> {
    Ok(adopt || adopts_all() || foreign_reason(workspace)?.is_none())
}

/// Warns on stderr that what a command shows is foreign.
pub(crate) fn warn_if_foreign(workspace: &Workspace) -> Result<()> {
    if let Some(reason) = foreign_reason(workspace)? {
        let control = workspace.control.display();
        Screen::new(false, false).warn(&format!(
            "warning: {control} {reason}: anything in it may be forged, and no command obeys it without --adopt"
        ));
    }
    Ok(())
}

/// The same for the workspace of a run.
pub(crate) fn warn_if_foreign_run(run: &RunDir) -> Result<()> {
    match run.workspace() {
        Some(root) => warn_if_foreign(&Workspace::at(root)?),
        None => Ok(()),
    }
}

fn foreign_reason(workspace: &Workspace) -> Result<Option<ForeignReason>> {
    Ok(match check_origin(&workspace.control)? {
        Origin::Foreign(reason) => Some(reason),
        Origin::Own | Origin::Missing => None,
    })
}
