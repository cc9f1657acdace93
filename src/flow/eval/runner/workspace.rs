//! A workspace for a trial: a directory of its own, with a copy of the template.

use crate::error::{At, Error, Result};
use crate::unix::files;
use crate::unix::trees::{self, LeftOut};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes a trial's workspace. `is_ours`: the trial was begun before, and what is left of it goes. Anything
/// else that lies there is put aside: nothing proves that it was made for this trial. `place` is `eval/SUITE/TRIAL`;
/// the directories above it may not be links, because files elsewhere would be replaced.
pub(super) fn make(
    root: &Path,
    place: &Path,
    template: Option<&Path>,
    is_ours: bool,
) -> Result<()> {
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
    match template {
        None => files::make_dirs(&making)?,
        Some(template) => copy_template(template, &making)?,
    }
    fs::rename(&making, dir).at("create", dir)
}

fn copy_template(template: &Path, to: &Path) -> Result<()> {
    match trees::copy_tree(template, to, &[".delta"])?.first() {
        None => Ok(()),
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
