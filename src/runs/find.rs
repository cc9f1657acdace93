//! Finds the run that a person names.

use super::inspect::{RunSnapshot, inspect_run, read_recorded};
use crate::error::{Error, Result};
use crate::record::metadata::{self, Metadata, Status};
use crate::record::reader::JournalSource;
use crate::record::recording::at_path;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::order;
use crate::text::shell::shell_quoted;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use std::ffi::OsStr;
use std::path::Path;

/// The name of the newest run.
pub(crate) const NEWEST: &str = "LATEST";

/// The run that a person names: an id, a beginning of one that only one has, or LATEST.
pub(crate) fn find_named(workspace: &Workspace, name: &str) -> Result<RunId> {
    let runs = workspace.runs()?;
    if let Some(exact) = runs.iter().find(|id| id.as_str() == name) {
        return Ok(exact.clone());
    }
    if name == NEWEST
        && let Some(newest) = workspace.newest()?
    {
        return Ok(newest);
    }
    let matching: Vec<&RunId> = runs
        .iter()
        // An empty name is a variable that a script has not set.
        .filter(|id| !name.is_empty() && id.as_str().starts_with(name))
        .collect();
    let list = |ids: &[&RunId]| {
        ids.iter()
            .map(|id| id.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match matching.as_slice() {
        [one] => Ok((*one).clone()),
        [] if runs.is_empty() => Err(no_runs(&workspace.root)),
        [] => {
            let all: Vec<&RunId> = runs.iter().rev().take(20).collect();
            Err(Error::failure(format!(
                "no run '{name}' here; the runs are {}",
                list(&all)
            )))
        }
        several => Err(Error::failure(format!(
            "'{name}' is the beginning of several runs: {}",
            list(several)
        ))),
    }
}

/// The run that a person names, by the path of its directory if there is a slash in it, or by the path of a file LATEST
/// beside it.
pub(crate) fn find_run(work_dir: &Path, name: &str) -> Result<RunDir> {
    if name.contains('/') {
        let path = Path::new(name);
        return match (path.file_name().and_then(OsStr::to_str), path.parent()) {
            (Some(NEWEST), Some(dir)) if path.is_file() => {
                let id = files::read_line(path).unwrap_or_default();
                let id = RunId::parse(&id);
                let wrong = |why| Error::failure(format!("{name} does not name a run: {why}"));
                at_path(&dir.join(id.map_err(wrong)?.as_str()))
            }
            _ => at_path(path),
        };
    }
    let workspace = open_workspace(work_dir)?;
    let id = find_named(&workspace, name)?;
    Ok(RunDir::of(&workspace, &id))
}

/// The run that is named, as [`find_run`] has it, or else the newest; instead of one that a
/// flow of the workspace has started, the flow.
pub(crate) fn find_run_or_newest(work_dir: &Path, name: Option<&str>) -> Result<RunDir> {
    if let Some(name) = name {
        return find_run(work_dir, name);
    }
    let workspace = open_workspace(work_dir)?;
    let Some(newest) = workspace.newest()? else {
        return Err(no_runs(&workspace.root));
    };
    let around = with_parents(&workspace, Some(newest.clone()));
    let is_flow =
        |id: &RunId| metadata::read(&workspace.run_path(id)).is_some_and(|it| it.flow.is_some());
    let flow = around.into_iter().rfind(is_flow);
    Ok(RunDir::of(&workspace, &flow.unwrap_or(newest)))
}

/// The runs that are named, each as [`find_run`] has it, or else the newest.
pub(crate) fn find_runs(work_dir: &Path, names: &[String]) -> Result<Vec<RunDir>> {
    if names.is_empty() {
        return Ok(vec![find_run_or_newest(work_dir, None)?]);
    }
    names.iter().map(|name| find_run(work_dir, name)).collect()
}

/// A run, and those of its workspace that it is a part of, from the inside out.
pub(crate) fn with_parents(workspace: &Workspace, run: Option<RunId>) -> Vec<RunId> {
    let mut line: Vec<RunId> = run.into_iter().collect();
    while let Some(last) = line.last()
        && let Some(metadata) = metadata::read(&workspace.run_path(last))
        && let Some(parent) = metadata.parent_run_id
        && let Ok(parent) = RunId::parse(&parent)
        && workspace.run_path(&parent).is_dir()
        && !line.contains(&parent)
    {
        line.push(parent);
    }
    line
}

/// The flow that started a run, in the run's workspace or in one around that.
pub(crate) fn flow_of(run: &RunDir) -> Option<RunDir> {
    let id = RunId::parse(&metadata::read(&run.path)?.parent_run_id?).ok()?;
    let places = run.workspace()?.ancestors().map(|dir| dir.join(".delta"));
    let mut paths = places.map(|control| control.join(id.as_str()));
    let path = paths.find(|path| metadata::read(path).is_some_and(|it| it.flow.is_some()))?;
    Some(RunDir { id, path })
}

/// The newest run of a workspace that is meant, by its summary and, if that agrees, by its journal.
pub(crate) fn newest_where(
    workspace: &Workspace,
    is_meant: impl Fn(&RunDir, JournalSource<'_>, &Metadata) -> Result<bool>,
) -> Result<Option<RunSnapshot>> {
    let Some(newest) = workspace.newest()? else {
        return Ok(None);
    };
    let found = inspect_run(&RunDir::of(workspace, &newest))?;
    if is_meant(&found.run, found.source(), &found.metadata)? {
        return Ok(Some(found));
    }
    let mut runs = Vec::new();
    for id in workspace.runs()? {
        let run = RunDir::of(workspace, &id);
        if let Some(metadata) = read_recorded(&run)
            && is_meant(&run, (&run.journal()).into(), &metadata)?
        {
            runs.push(((Timestamp::parse(&metadata.created_at), id), run));
        }
    }
    order::sort(&mut runs);
    for (_, run) in runs.into_iter().rev() {
        let found = inspect_run(&run)?;
        if is_meant(&found.run, found.source(), &found.metadata)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The newest run of an agent that is no part of another one.
pub(crate) fn newest_conversation(work_dir: &Path) -> Result<RunDir> {
    let workspace = open_workspace(work_dir)?;
    let newest = newest_where(&workspace, |_, _, it| Ok(it.is_conversation()))?;
    newest.map_or_else(|| Err(no_runs(&workspace.root)), |found| Ok(found.run))
}

/// The newest run that waits for a person's answer and is no part of another one.
pub(crate) fn newest_waiting(workspace: &Workspace) -> Result<Option<RunId>> {
    let waits = |_: &RunDir, _: JournalSource<'_>, metadata: &Metadata| {
        Ok(metadata.is_conversation() && metadata.status == Status::WaitingForInput)
    };
    Ok(newest_where(workspace, waits)?.map(|found| found.run.id))
}

/// The error for a workspace without runs. One above that has some may be meant; it is named, and not used.
pub(crate) fn no_runs(root: &Path) -> Error {
    let shown = root.display();
    let has_runs = |dir: &&Path| {
        let workspace = Workspace::at(dir).and_then(|workspace| workspace.runs());
        workspace.is_ok_and(|runs| !runs.is_empty())
    };
    Error::failure(match root.ancestors().skip(1).find(has_runs) {
        Some(above) => {
            let above = shell_quoted(&["-w".to_owned(), above.to_string_lossy().into_owned()]);
            format!("there is no run in {shown}; the nearest workspace above it with runs: {above}")
        }
        None => format!("there is no run in {shown}; `delta run` starts one, or `delta flow run`"),
    })
}

/// The workspace at a path, which must be there and in today's layout.
pub(crate) fn open_workspace(path: &Path) -> Result<Workspace> {
    let workspace = Workspace::at(path)?;
    if !workspace.root.is_dir() {
        return Err(Error::failure(format!(
            "there is no workspace {}",
            path.display()
        )));
    }
    workspace.check_layout()?;
    Ok(workspace)
}
