//! All runs below directories, in any workspace.
//!
//! No symbolic link is followed on the way. What cannot be looked at is reported and passed over.

use super::origin::foreign_reason;
use crate::error::{At, Error, Result};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::order::sort_by;
use crate::unix::origin::ForeignReason;
use crate::unix::terminal::Screen;
use std::fs::{self, DirEntry, FileType};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Beginning of the name of a run's directory that is being removed. No run can have such a name.
pub(super) const REMOVED: &str = ".pruned.";

/// Something in a control plane.
#[derive(Debug)]
pub(crate) enum Found {
    Run(FoundRun),
    /// The remains of a run whose removal was interrupted.
    Removed(PathBuf),
}

/// A run, and whether it may be obeyed.
#[derive(Debug)]
pub(crate) struct FoundRun {
    pub run: RunDir,
    /// The workspace, as it can be written after `-w`.
    pub place: String,
    pub foreign: Option<ForeignReason>,
}

/// A directory that is looked at.
struct SearchRoot {
    /// Without symbolic links.
    path: PathBuf,
    /// From where the command was started.
    shown: PathBuf,
}

/// Looks at everything below directories, in no order. A directory inside another one counts once.
///
/// # Errors
/// One of the directories is not there, or `visit` fails.
pub(crate) fn visit_runs(
    dirs: &[PathBuf],
    visit: &mut dyn FnMut(Found) -> Result<()>,
) -> Result<()> {
    let mut pending = outermost(dirs)?;
    while let Some(place) = pending.pop() {
        let entries = match list(&place.path) {
            Ok(entries) => entries,
            Err(error) => {
                warn(&error.message);
                continue;
            }
        };
        for (entry, kind) in entries {
            let name = entry.file_name();
            if name == ".delta" {
                visit_control(&place, kind, visit)?;
            } else if kind.is_dir() && name != ".git" && name.to_str().is_some() {
                pending.push(SearchRoot {
                    path: entry.path(),
                    shown: place.shown.join(&name),
                });
            }
        }
    }
    Ok(())
}

fn outermost(dirs: &[PathBuf]) -> Result<Vec<SearchRoot>> {
    let mut places: Vec<SearchRoot> = Vec::new();
    for dir in dirs {
        let path = match dir.canonicalize() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Error::failure(format!(
                    "there is no directory {}",
                    dir.display()
                )));
            }
            found => found.at("open", dir).map_err(Error::into_usage)?,
        };
        if !path.is_dir() {
            return Err(Error::usage(format!(
                "{} is not a directory",
                dir.display()
            )));
        }
        let shown = dir.clone();
        places.push(SearchRoot { path, shown });
    }
    sort_by(&mut places, |a, b| a.path.cmp(&b.path));
    // Sorted by components: what is inside a directory comes right after it.
    places.dedup_by(|inner, outer| inner.path.starts_with(&outer.path));
    Ok(places)
}

fn list(dir: &Path) -> Result<Vec<(DirEntry, FileType)>> {
    let entries = fs::read_dir(dir).at("read", dir)?;
    let typed = entries.map(|read| {
        let entry = read?;
        entry.file_type().map(|kind| (entry, kind))
    });
    typed.collect::<std::io::Result<_>>().at("read", dir)
}

fn visit_control(
    place: &SearchRoot,
    kind: FileType,
    visit: &mut dyn FnMut(Found) -> Result<()>,
) -> Result<()> {
    let workspace = Workspace {
        control: place.path.join(".delta"),
        root: place.path.clone(),
    };
    if !kind.is_dir() {
        let control = workspace.control.display();
        warn(&format!("{control} is not a directory; skipped"));
        return Ok(());
    }
    let looked_at = workspace.check_layout().and_then(|()| {
        let foreign = foreign_reason(&workspace.control)?;
        Ok((foreign, list(&workspace.control)?))
    });
    let (foreign, entries) = match looked_at {
        Ok(found) => found,
        Err(error) => {
            warn(&error.message);
            return Ok(());
        }
    };
    for (entry, kind) in entries {
        let (path, file_name) = (entry.path(), entry.file_name());
        let name = file_name.to_string_lossy();
        if kind.is_dir() && foreign.is_none() && name.starts_with(REMOVED) {
            visit(Found::Removed(path))?;
            continue;
        }
        let Ok(id) = RunId::parse(&name) else {
            continue;
        };
        if kind.is_symlink() {
            warn(&format!("{} is a symbolic link; skipped", path.display()));
            continue;
        }
        let has = |file: &str| path.join(file).symlink_metadata().is_ok();
        if !kind.is_dir() || !(has("journal.jsonl") || has("metadata.json")) {
            continue;
        }
        let foreign = match foreign {
            None => foreign_reason(&path)?,
            foreign => foreign,
        };
        visit(Found::Run(FoundRun {
            run: RunDir { id, path },
            place: place.shown.to_string_lossy().into_owned(),
            foreign,
        }))?;
    }
    Ok(())
}

fn warn(text: &str) {
    Screen::new(false, false).warn(&format!("warning: {text}"));
}
