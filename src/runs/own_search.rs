//! Search of the agent's own workspaces for the run that a command without a workspace began before.

use super::find::newest_where;
use super::inspect::{is_run_of, read_recorded};
use super::origin::{may_obey, may_obey_run};
use super::task::Task;
use crate::config::agent::Agent;
use crate::error::Result;
use crate::record::metadata::Status;
use crate::record::own_workspaces::{
    mark_open, open_marker, open_workspaces, unmark_open, workspaces_dir,
};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::order::sort_by;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::Screen;
use std::path::PathBuf;

/// The mark on one of an agent's own workspaces that says that a run in it has not ended.
#[derive(Debug)]
pub(crate) struct OpenMark {
    path: PathBuf,
    workspace: Workspace,
}

impl OpenMark {
    /// Marks a workspace.
    pub(crate) fn set(agent: &Agent, workspace: &Workspace) -> Result<Self> {
        let mark = Self {
            path: open_marker(&agent.home, &workspace.id()),
            workspace: workspace.clone(),
        };
        mark_open(&mark.path)?;
        Ok(mark)
    }

    /// Takes the mark away, unless another run there has not ended. The decision lock is held, or the only
    /// run there has just ended.
    pub(crate) fn clear(&self) -> Result<()> {
        let has_ended = |id| {
            let recorded = read_recorded(&RunDir::of(&self.workspace, &id));
            recorded.is_some_and(|run| matches!(run.status, Status::Completed | Status::Failed))
        };
        if self.workspace.runs()?.into_iter().all(has_ended) {
            unmark_open(&self.path);
        }
        Ok(())
    }
}

/// The agent's own workspaces in which a run of this task can be resumed, the newest first.
/// Skips live runs and foreign ones.
pub(crate) fn find_resumable(
    agent: &Agent,
    task: &Task,
    adopt: bool,
    screen: Screen,
) -> Result<Vec<Workspace>> {
    let mut found = Vec::new();
    for name in open_workspaces(&agent.home)? {
        let root = workspaces_dir(&agent.home).join(&name);
        if !root.is_dir() {
            unmark_open(&open_marker(&agent.home, &name));
            continue;
        }
        let workspace = Workspace::at(&root)?;
        if workspace.check_layout().is_err() || !may_obey(&workspace, adopt)? {
            continue;
        }
        let newest = newest_where(&workspace, |_, _, metadata| {
            Ok(is_run_of(metadata, agent, Some(task)))
        })
        .unwrap_or_else(|error| {
            screen.warn(&format!("warning: skipping {name}: {error}"));
            None
        });
        let Some(newest) = newest else {
            continue;
        };
        if !may_obey_run(&newest.run, adopt)? {
            continue;
        }
        match newest.metadata.status {
            Status::Interrupted | Status::WaitingForInput => {
                found.push((
                    Timestamp::parse(&newest.metadata.created_at),
                    name,
                    workspace,
                ));
            }
            Status::Running => {}
            Status::Completed | Status::Failed => {
                // Another command ended it. A process that is about to begin a run holds the lock.
                if let Some(_lock) = workspace.try_lock()? {
                    let path = open_marker(&agent.home, &name);
                    OpenMark { path, workspace }.clear()?;
                }
            }
        }
    }
    sort_by(&mut found, |a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
    Ok(found
        .into_iter()
        .map(|(_, _, workspace)| workspace)
        .collect())
}
