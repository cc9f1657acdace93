//! Foreign records: runs in a `.delta` that was not made where it is found, and single runs that were not made in the
//! `.delta` that they are found in. They can be read, but are obeyed only after a person has adopted them.

use crate::error::{At, Error, Result};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::unix::origin::{ForeignReason, Origin, adopts_all, check_origin, stamp_dir};
use crate::unix::terminal::Screen;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Refuses a foreign control plane, or adopts it with all its runs if that is wanted.
pub(crate) fn require_own(workspace: &Workspace, adopt: bool) -> Result<()> {
    let Some(reason) = foreign_reason(&workspace.control)? else {
        return Ok(());
    };
    let control = workspace.control.display();
    if !adopt && !adopts_all() {
        return Err(Error::config(format!(
            "{control} {reason}; it is not trusted, because its records could make delta run anything: \
             look at them with `delta log`, and give --adopt if they are yours"
        )));
    }
    if reason.is_adoptable() {
        // First: only its owner and root can, and a directory that its owner keeps changing is not adopted.
        let private = Permissions::from_mode(0o700);
        set_permissions(&workspace.control, private).at("change", &workspace.control)?;
        adopt_runs(workspace)?;
    }
    stamp_dir(&workspace.control).map_err(|error| Error::config(error.message))
}

/// Creates a workspace that may be obeyed, also if its control plane has come meanwhile.
pub(crate) fn create_own(workspace: &Workspace, adopt: bool) -> Result<()> {
    require_own(workspace, adopt)?;
    workspace.create()?;
    require_own(workspace, adopt)
}

/// Adopts every run of a workspace. One that is a symbolic link stays foreign.
fn adopt_runs(workspace: &Workspace) -> Result<()> {
    for id in workspace.runs()? {
        let path = workspace.run_path(&id);
        if foreign_reason(&path)?.is_some_and(ForeignReason::is_adoptable) {
            stamp_dir(&path)?;
        }
    }
    Ok(())
}

/// Refuses a run of a foreign control plane, and one that was put into a control plane of one's own; or adopts it. A run
/// may also lie in no workspace, as a copy does: then nothing can be marked as one's own, and the word counts for this
/// command only.
pub(crate) fn require_own_run(run: &RunDir, adopt: bool) -> Result<()> {
    let Some(root) = run.workspace() else {
        return if adopt || adopts_all() {
            Ok(())
        } else {
            Err(Error::config(format!(
                "{} is in no workspace, so nothing proves that it is yours, and its run is not obeyed: give --adopt \
                 if it is",
                run.path.display()
            )))
        };
    };
    require_own(&Workspace::at(root)?, adopt)?;
    let Some(reason) = foreign_reason(&run.path)? else {
        return Ok(());
    };
    if adopt || adopts_all() {
        return stamp_dir(&run.path).map_err(|error| Error::config(error.message));
    }
    let (id, path) = (&run.id, run.path.display());
    Err(Error::config(format!(
        "run {id} is not obeyed, because it could make this command do anything: {path} {reason}; \
         look at it with `delta log {id}`, and give --adopt if it is yours"
    )))
}

/// True if the records of a workspace may be obeyed, perhaps after they have been adopted.
pub(crate) fn may_obey(workspace: &Workspace, adopt: bool) -> Result<bool> {
    Ok(adopt || adopts_all() || foreign_reason(&workspace.control)?.is_none())
}

/// True if one run may be obeyed in a workspace that may be.
pub(crate) fn may_obey_run(run: &RunDir, adopt: bool) -> Result<bool> {
    Ok(adopt || adopts_all() || foreign_reason(&run.path)?.is_none())
}

/// Warns on stderr that what a command shows is foreign. Returns whether it is.
pub(crate) fn warn_if_foreign(workspace: &Workspace) -> Result<bool> {
    let reason = foreign_reason(&workspace.control)?;
    if let Some(reason) = reason {
        let control = workspace.control.display();
        Screen::new(false, false).warn(&format!(
            "warning: {control} {reason}: anything in it may be forged, and no command obeys it without --adopt"
        ));
    }
    Ok(reason.is_some())
}

/// Warns about a run and its workspace.
pub(crate) fn warn_if_foreign_run(run: &RunDir) -> Result<()> {
    let Some(root) = run.workspace() else {
        return Ok(());
    };
    if !warn_if_foreign(&Workspace::at(root)?)?
        && let Some(reason) = foreign_reason(&run.path)?
    {
        let path = run.path.display();
        Screen::new(false, false).warn(&format!(
            "warning: {path} {reason}: anything in it may be forged, and no command obeys it without --adopt"
        ));
    }
    Ok(())
}

/// The reason why the records in a directory are not obeyed. None if they are, or if there is no such directory.
pub(crate) fn foreign_reason(dir: &Path) -> Result<Option<ForeignReason>> {
    Ok(match check_origin(dir)? {
        Origin::Foreign(reason) => Some(reason),
        Origin::Own | Origin::Missing => None,
    })
}
