//! An unfinished run, or an unread answer, in the workspace of a new run.
//!
//! Unaware of what becomes of it.

use super::find::with_parents;
use super::inspect::read_summary;
use super::origin::may_obey_run;
use super::waiting::resume_words;
use crate::error::Result;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::{Workspace, command_in};
use crate::text::shell::shell_quoted;
use crate::text::shorten::in_short;
use std::path::Path;

/// The columns of a remark after `delta: `.
const LINE: usize = 73;

/// Remarks on the workspace of a new run: its newest run has not ended, or has an answer that was not read.
pub(crate) fn left_behind(workspace: &Workspace) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    // Not a part of a run, but the run.
    let Some(id) = with_parents(workspace, workspace.newest()?).pop() else {
        return Ok(notes);
    };
    let run = RunDir::of(workspace, &id);
    if !may_obey_run(&run, false)? {
        return Ok(notes);
    }
    let response = run.interaction().join("response.txt");
    if response.exists() {
        let path = response.display();
        notes.push(format!("the answer in {path} has not been read"));
    }
    let (metadata, _) = read_summary(&run);
    let has_ended = matches!(metadata.status, Status::Completed | Status::Failed);
    if has_ended || metadata.parent_run_id.is_some() {
        return Ok(notes);
    }
    let status = metadata.status.name();
    let mut note = format!("starting a new run; run {id} is {status}: ");
    let room = LINE.saturating_sub(note.len());
    note.push_str(&in_short(&metadata.task_words(), room));
    notes.push(note);
    if metadata.status == Status::Interrupted && metadata.flow.is_none() {
        let mut resume = command_in(&workspace.root, &["delta", "continue"]);
        resume.extend(["--run-id".to_owned(), id.to_string()]);
        let home = Path::new(&metadata.agent_home);
        resume.extend(resume_words(&metadata.set, home, workspace));
        notes.push(format!("to resume it: {}", shell_quoted(&resume)));
    }
    Ok(notes)
}
