//! The page's input for one event: its line, and the records beside the journal that the line names.
//!
//! Unaware of how they are shown.

use crate::record::event::Line;
use crate::record::run_dir::RunDir;
use crate::unix::files;
use crate::view::asked::KnownTools;
use std::path::{Path, PathBuf};

/// An event, and the run that it is of.
pub(super) struct SourceEvent<'e> {
    pub(super) run: &'e RunDir,
    pub(super) line: &'e Line<'e>,
    /// Those of the last start.
    pub(super) tools: &'e KnownTools,
    /// The line's bytes in the journal.
    pub(super) text: &'e str,
}

/// A directory of records that the journal names, if it lies where records do and no link leads to it.
pub(super) fn record_dir(run: &RunDir, reference: Option<&str>) -> Option<PathBuf> {
    let reference = Path::new(reference?);
    let is_there = reference.starts_with("io") && files::is_dir_below(&run.path, reference);
    is_there.then(|| run.path.join(reference))
}

/// The size of a file in such a directory.
pub(super) fn size_in(dir: &Path, name: &str) -> Option<u64> {
    let file = files::open_below(dir, Path::new(name)).ok()?;
    Some(file.metadata().ok()?.len())
}
