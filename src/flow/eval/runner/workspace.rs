//! A workspace for a trial: a directory of its own, with a copy of the template.

use crate::error::{At, Error, Result};
use crate::unix::files;
use crate::unix::trees::{self, LeftOut, NESTED_TOO_DEEP};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes a trial's workspace. `is_ours`: the trial was begun before, and what is left of it goes. Anything
/// else that lies there is put aside: nothing proves that it was made for this trial. `place` is `eval/SUITE/TRIAL`;
/// the directories above it may not be links, because files elsewhere would be replaced. Returns the directories that are
/// nested too deep to be copied.
pub(super) fn make(
    root: &Path,
    place: &Path,
    template: Option<&Path>,
    is_ours: bool,
) -> Result<Vec<LeftOut>> {
    let dir = &root.join(place);
    let name = files::name_of(dir);
    let made = files::make_dirs_below(root, place.parent().unwrap_or(Path::new("")));
    let parent = &made.map_err(|error| Error::config(error.message))?;
    if dir.symlink_metadata().is_ok() {
        let aside = free_name(parent, &format!("{name}.old"));
        fs::rename(dir, &aside).at("rename", dir)?;
        if is_ours {
            trees::remove_all(&aside)?;
        }
    }
    let making = parent.join(format!(".making-{name}"));
    trees::remove_all(&making)?;
    let left_out = if let Some(template) = template {
        copy_template(template, &making)?
    } else {
        files::make_dirs(&making)?;
        Vec::new()
    };
    fs::rename(&making, dir).at("create", dir)?;
    Ok(left_out)
}

fn copy_template(template: &Path, to: &Path) -> Result<Vec<LeftOut>> {
    let left_out = trees::copy_tree(template, to, &[".delta"])?;
    match left_out.iter().find(|it| it.why != NESTED_TOO_DEEP) {
        None => Ok(left_out),
        Some(LeftOut { path, why }) => Err(Error::config(format!(
            "{} is {why}, and cannot be copied for a trial",
            path.display()
        ))),
    }
}

fn free_name(parent: &Path, name: &str) -> PathBuf {
    let first = parent.join(name);
    let numbered = (2..).map(|number| parent.join(format!("{name}.{number}")));
    let mut all = std::iter::once(first).chain(numbered);
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
    all.find(is_free).unwrap_or_else(|| parent.join(name))
}
