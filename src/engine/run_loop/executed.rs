//! Changes to files that other programs execute: remembered before the first tool of a run, compared at the
//! end of each start of the engine.

use super::Engine;
use crate::error::Result;
use crate::record::engine_log::Level;
use crate::text::json;
use crate::text::shorten::list_names;
use crate::unix::executed_files::{ExecutedFiles, changed_at};
use crate::unix::files;
use std::path::PathBuf;

/// The largest state that is read: the search has a limit of its own.
const LARGEST: u64 = 64 << 20;

fn executed_json(engine: &Engine<'_>) -> PathBuf {
    engine.ctx.run.path.join("executed.json")
}

/// Remembers the state before the first tool of the run. A later start of the engine finds it there.
pub(super) fn remember_executed_files(engine: &mut Engine<'_>) -> Result<()> {
    if std::mem::replace(&mut engine.executed_known, true) {
        return Ok(());
    }
    let path = executed_json(engine);
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let found = ExecutedFiles::find(&engine.ctx.workspace.root);
    files::replace(&path, format!("{}\n", json::text(&found)).as_bytes())
}

/// Names what has changed since then.
pub(super) fn report_executed_files(engine: &mut Engine<'_>) -> Result<()> {
    let path = executed_json(engine);
    let Ok(meta) = path.symlink_metadata() else {
        return Ok(());
    };
    let text = files::read_regular_limited(&path, LARGEST).unwrap_or_default();
    let Ok(before) = serde_json::from_slice::<ExecutedFiles>(&text) else {
        let text = format!(
            "{} is damaged: what changed that other programs execute is not known",
            path.display()
        );
        return engine.log.record_note(Level::Warn, &text);
    };
    let changes = before.changes(&engine.ctx.workspace.root, changed_at(&meta));
    if changes.paths.is_empty() && changes.are_complete {
        return Ok(());
    }
    let mut named = list_names(changes.paths.into_iter());
    if named.is_empty() {
        named.push_str("nothing was found");
    }
    if !changes.are_complete {
        named.push_str("; the search was cut short: there are too many files");
    }
    let text = format!("changed what other programs execute: {named}");
    engine.log.record_note(Level::Warn, &text)
}
