//! `delta undo`: files put back to what they were before an iteration of a run.

use crate::error::{Error, Exit, Result};
use crate::record::run_dir::RunDir;
use crate::runs::find::find_run;
use crate::runs::preflight::install_signals;
use crate::runs::undo::{Target, UndoRequest, newest_with_changes, undo};
use crate::text::disguise::printable_line;
use crate::text::options::parse::ParsedCommand;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone, print};
use std::path::PathBuf;

pub(crate) fn undo_iteration(given: &ParsedCommand) -> Result<Exit> {
    let signals = install_signals()?;
    let dir = given.work_dir();
    let run = match given.operand_text(0) {
        Some(name) => find_run(&dir, &name)?,
        None => newest_with_changes(&dir)?,
    };
    let to = given.text("--to");
    let wanted = UndoRequest {
        to: target("--to", to.as_deref())?,
        force: given.has("--force"),
        is_preview: given.has("--dry-run"),
    };
    put_back(&run, &wanted, &signals, "--to")
}

/// The state that a person names.
pub(crate) fn target(option: &str, text: Option<&str>) -> Result<Target> {
    let Some(text) = text else {
        return Ok(Target::Before);
    };
    let not = || {
        Error::usage(format!(
            "{option} '{text}': not the number of an iteration, nor of a state, as s4 is"
        ))
    };
    Target::parse(text).ok_or_else(not)
}

/// Puts files back and lists them. `option`: by which a state is named.
pub(crate) fn put_back(
    run: &RunDir,
    wanted: &UndoRequest,
    signals: &Signals,
    option: &str,
) -> Result<Exit> {
    let undone = undo(run, wanted, signals)?;
    let line = |(path, is_there): (&PathBuf, &bool)| {
        let what = if *is_there { "put back" } else { "removed" };
        format!("{what} {}\n", printable_line(&path.to_string_lossy()))
    };
    print(undone.files.iter().map(line).collect::<String>())?;
    let (id, state) = (&run.id, &undone.state);
    let what = match (undone.files.is_empty(), wanted.is_preview) {
        (true, _) => format!("the files are as they were {state} already"),
        (false, true) => {
            format!("these files would be as they were {state}; nothing has been changed")
        }
        (false, false) => format!("these files are as they were {state}"),
    };
    let earlier = undone.earlier.filter(|_| undone.files.is_empty());
    let further = earlier.map_or_else(String::new, |n| format!("; {option} {n} goes further back"));
    let back = undone.before.filter(|_| !wanted.is_preview);
    let back = back.map_or_else(String::new, |n| format!("; {option} s{n} takes that back"));
    let mut faults = Vec::new();
    if let Some(why) = &undone.unrecorded {
        faults.push(format!(
            "that files were put back could not be recorded; repeat the command: {}",
            why.message
        ));
    }
    if !undone.failed.is_empty() {
        let each = undone.failed.values();
        let lines = each.map(|why| format!("\n  {}", printable_line(why)));
        let named = lines.collect::<Vec<_>>().concat();
        faults.push(format!(
            "not all files could be put back{back}; these were not:{named}"
        ));
    }
    if !faults.is_empty() {
        return Err(Error::failure(format!("run {id}: {}", faults.join("\n"))));
    }
    if !undone.left_out.is_empty() && !undone.files.is_empty() {
        let left_out = printable_line(&undone.left_out);
        let text = format!("run {id}: in no state, and left as they are: {left_out}");
        Screen::default().progress(&[(Tone::Dim, &text)]);
    }
    let text = format!("run {id}: {what}{further}{back}");
    Screen::default().progress(&[(Tone::Dim, &text)]);
    Ok(Exit::Success)
}
