//! What a new run leaves behind in its workspace.
//!
//! Unaware of what becomes of it.

use super::inspect::read_summary;
use super::origin::may_obey_run;
use super::waiting::resume_words;
use crate::error::Result;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::shell::shell_quoted;
use crate::text::shorten::in_short;
use std::path::Path;

/// How many of the newest runs are looked at for what a new run leaves behind.
const LOOKED_BACK: usize = 100;

/// Remarks on what a new run leaves behind in its workspace: runs that have not ended, and unread
/// answers.
pub(crate) fn left_behind(workspace: &Workspace) -> Result<Vec<String>> {
    const SHOWN: usize = 3;
    let (mut notes, mut more) = (Vec::new(), 0);
    for id in workspace.runs()?.into_iter().rev().take(LOOKED_BACK) {
        let run = RunDir::of(workspace, &id);
        if !may_obey_run(&run, false)? {
            continue;
        }
        let response = run.interaction().join("response.txt");
        if response.exists() {
            let path = response.display();
            notes.push(format!("the answer in {path} has not been read"));
        }
        let (metadata, _) = read_summary(&run);
        let has_ended = matches!(metadata.status, Status::Completed | Status::Failed);
        if has_ended || metadata.parent_run_id.is_some() {
            continue;
        }
        if notes.len() >= SHOWN {
            more += 1;
            continue;
        }
        let mut first = in_short(&metadata.task_words(), 60);
        // The input of a flow is JSON, and a text in it has its quotes.
        if !first.starts_with('"') {
            first = format!("'{first}'");
        }
        let status = metadata.status.name();
        let mut note = format!("starting a new run; run {id} ({first}) is {status}");
        if metadata.status == Status::Interrupted && metadata.flow.is_none() {
            let root = workspace.root.to_string_lossy();
            let resume = ["delta", "continue", "-w", &root, "--run-id", id.as_str()];
            let mut resume = resume.map(str::to_owned).to_vec();
            let home = Path::new(&metadata.agent_home);
            resume.extend(resume_words(&metadata.set, home, workspace));
            note.push_str(&format!(": `{}` resumes it", shell_quoted(&resume)));
        }
        notes.push(note);
    }
    if more > 0 {
        let root = shell_quoted(&[workspace.root.to_string_lossy().into_owned()]);
        notes.push(format!(
            "{more} more have not ended: `delta list-runs --resumable -w {root}`"
        ));
    }
    Ok(notes)
}
