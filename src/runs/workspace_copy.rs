//! A fresh directory for a run to work in, filled with a copy of other files if wanted.

use crate::error::{At, Error, Result, ignore};
use crate::record::workspace::Workspace;
use crate::text::ids::hex;
use crate::unix::files;
use crate::unix::terminal::{Screen, Tone};
use crate::unix::trees::{self, LeftOut};
use std::path::{Path, PathBuf};

/// The place where a run is repeated.
#[derive(Debug)]
pub(crate) struct ReplayDir {
    /// The directory.
    pub workspace: Workspace,
    is_temporary: bool,
}

impl ReplayDir {
    /// Makes `to`, or a temporary directory, with a copy of the files in `from`.
    pub(crate) fn make(to: Option<&Path>, from: Option<&Path>, screen: Screen) -> Result<Self> {
        if let Some(from) = from
            && !from.is_dir()
        {
            return Err(Error::usage(format!(
                "--from {} is not a directory",
                from.display()
            )));
        }
        let dir = match to {
            Some(to) => to.to_owned(),
            None => temporary()?,
        };
        if let Some(from) = from {
            copy_files(from, &dir, screen)?.keep();
        } else {
            refuse_unless_empty(&dir)?;
            files::make_dirs(&dir)?;
        }
        let workspace = Workspace::at(&dir)?;
        let shown = workspace.root.display();
        screen.progress(&[(Tone::Dim, &format!("replaying in {shown}"))]);
        Ok(Self {
            workspace,
            is_temporary: to.is_none(),
        })
    }

    /// Removes it if it was only made for this, and keeps it for inspection if something went wrong.
    pub(crate) fn leave(&self, all_is_well: bool, screen: Screen) {
        let root = &self.workspace.root;
        if self.is_temporary && all_is_well {
            ignore(std::fs::remove_dir_all(root));
        } else if self.is_temporary {
            screen.warn(&format!("the repeated run is kept in {}", root.display()));
        }
    }
}

/// A new directory that only its owner can look into.
fn temporary() -> Result<PathBuf> {
    let name = format!("delta-replay-{}", hex(8));
    let dir = std::env::temp_dir().join(name);
    files::make_dir(&dir)?;
    Ok(dir)
}

/// Fails if a target directory is not empty.
pub(crate) fn refuse_unless_empty(dir: &Path) -> Result<()> {
    let entries = std::fs::read_dir(dir).if_there().at("read", dir);
    match entries
        .map_err(Error::into_usage)?
        .into_iter()
        .flatten()
        .next()
    {
        None => Ok(()),
        Some(_) => Err(Error::usage(format!(
            "--to {}: it is not empty; name a new or empty directory",
            dir.display()
        ))),
    }
}

/// A directory that is being filled: what is in it is removed again unless it is kept.
#[derive(Debug)]
pub(crate) struct Unfinished {
    dir: PathBuf,
    /// The first of the directories that had to be made; none: it was there, and empty.
    made: Option<PathBuf>,
    is_kept: bool,
}

impl Unfinished {
    /// Before anything is made in the directory.
    ///
    /// # Errors
    /// It is not empty.
    fn begin(dir: &Path) -> Result<Self> {
        refuse_unless_empty(dir)?;
        let dir = files::absolute(dir)?;
        let above = dir.ancestors();
        let made = above.take_while(|it| it.symlink_metadata().is_err()).last();
        Ok(Self {
            made: made.map(Path::to_owned),
            dir,
            is_kept: false,
        })
    }

    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let made = match &self.made {
            _ if self.is_kept => return,
            Some(made) => vec![made.clone()],
            None => std::fs::read_dir(&self.dir)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .collect(),
        };
        for path in made {
            ignore(trees::remove_all(&path));
        }
    }
}

/// Copies the files of a workspace, without its control plane, to a new or empty directory.
pub(crate) fn copy_files(from: &Path, to: &Path, screen: Screen) -> Result<Unfinished> {
    let unfinished = Unfinished::begin(to)?;
    let source = from.canonicalize().at("copy", from)?;
    let target = files::absolute(to)?;
    let mut above = target.as_path();
    while !above.exists() {
        above = above.parent().unwrap_or(Path::new("/"));
    }
    if above.canonicalize().at("open", above)?.starts_with(&source) {
        let (from, to) = (from.display(), to.display());
        return Err(Error::usage(format!(
            "--to {to} is inside {from}, which would be copied into itself"
        )));
    }
    for LeftOut { path, why } in trees::copy_tree(&source, &target, &[".delta"])? {
        screen.warn(&format!(
            "warning: {} is {why} and has not been copied",
            path.display()
        ));
    }
    Ok(unfinished)
}
