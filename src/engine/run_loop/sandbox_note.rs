//! Notes on what the sandbox of a tool cannot restrict, for the person: the tool's output goes to the model.
//!
//! Unaware of sandboxes. Without one, a tool could have written the file: no line of it looks like another message.

use super::Engine;
use crate::record::run_dir::{NOTE, NOTE_BYTES, OPEN_HERE};
use crate::text::disguise::printable_line;
use crate::text::shorten::{WIDEST, cut_to_columns};
use crate::unix::files;

/// The length of the file.
pub(super) fn note_length(engine: &Engine<'_>) -> u64 {
    let meta = engine.ctx.run.path.join(NOTE).symlink_metadata();
    meta.map_or(0, |meta| meta.len())
}

/// Prints what has been added to the file since it had this length. Returns its length.
pub(super) fn print_notes(engine: &Engine<'_>, before: u64) -> u64 {
    let length = note_length(engine);
    if length <= before {
        return before;
    }
    let added = files::open_unlinked(&engine.ctx.run.path.join(NOTE))
        .and_then(|file| files::read_part(&file, before, NOTE_BYTES));
    let added = String::from_utf8_lossy(&added.unwrap_or_default()).into_owned();
    for open in added
        .lines()
        .filter_map(|line| line.strip_prefix(OPEN_HERE))
    {
        let open = cut_to_columns(&printable_line(open), WIDEST);
        engine
            .log
            .warn(&format!("the sandbox does not restrict here: {open}"));
    }
    length
}
