//! The runs that are there, as sessions.

use super::rpc::{NOT_FOUND, Rejection};
use crate::cli::agent_names::find_agent;
use crate::cli::message::GivenAgent;
use crate::record::own_workspaces::{numbered, workspaces_dir};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::inspect::{inspect_run, read_summary};
use crate::runs::origin::{may_obey, may_obey_run, require_own, require_own_run};
use crate::runs::overrides::load_with_overrides;
use crate::runs::preflight::read_environment;
use crate::text::ids::RunId;
use crate::text::order::sort_by;
use crate::text::shorten::{first_line, in_short};
use crate::unix::terminal::Screen;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Sessions in one answer.
const PAGE: usize = 100;

/// The longest title, in columns.
const TITLE_WIDTH: usize = 80;

/// The workspace that a client names.
pub(super) fn workspace_of(params: &Map<String, Value>) -> Result<Workspace, Rejection> {
    let cwd = params
        .get("cwd")
        .and_then(Value::as_str)
        .map(Path::new)
        .filter(|cwd| cwd.is_absolute())
        .ok_or_else(|| Rejection::invalid("cwd: expected an absolute path"))?;
    if !cwd.is_dir() {
        let message = format!("cwd: there is no directory {}", cwd.display());
        return Err(Rejection::invalid(message));
    }
    Ok(Workspace::at(cwd)?)
}

/// Fails if no run of the agent can begin in a workspace.
pub(super) fn check_new(agent: &GivenAgent, workspace: &Workspace) -> crate::error::Result<()> {
    let screen = Screen::new(true, false);
    workspace.check_layout()?;
    workspace.check_writable()?;
    require_own(workspace, false)?;
    let home = find_agent(agent)?.home;
    let (mut agent, _) = load_with_overrides(&home, Map::new(), &[], screen)?;
    read_environment(&mut agent, Some(workspace), screen).map(|_| ())
}

/// The run of a session, which may have none yet.
pub(super) fn find(session: &str, workspace: &Workspace) -> Result<RunId, Rejection> {
    let root = workspace.root.display();
    let unknown = || {
        Rejection::new(
            NOT_FOUND,
            format!("there is no session {session} in {root}"),
        )
    };
    let id = RunId::parse(session).map_err(|_| unknown())?;
    let run = RunDir::of(workspace, &id);
    if !run.path.is_dir() {
        return Ok(id);
    }
    workspace.check_layout()?;
    require_own_run(&run, false)?;
    let found = inspect_run(&run)?;
    if found.is_flow {
        let message = format!("run {id} is a flow's: it takes no prompts");
        return Err(Rejection::invalid(message));
    }
    if Path::new(&found.metadata.work_dir) == workspace.root {
        Ok(id)
    } else {
        Err(Rejection::invalid(format!(
            "cwd: run {id} works in {}",
            found.metadata.work_dir
        )))
    }
}

/// A page of the sessions in a workspace; without one, in those of the agent and where this process works.
pub(super) fn list(agent: &GivenAgent, params: &Map<String, Value>) -> Result<Value, Rejection> {
    let workspaces = match params.get("cwd") {
        None | Some(Value::Null) => usual_workspaces(agent)?,
        Some(_) => vec![workspace_of(params)?],
    };
    let cursor = params.get("cursor").filter(|cursor| !cursor.is_null());
    let start = cursor
        .map_or(Some(0), |it| it.as_str()?.parse::<usize>().ok())
        .ok_or_else(|| Rejection::invalid("cursor: it is not one of this list"))?;
    let mut all = Vec::new();
    for workspace in &workspaces {
        if !may_obey(workspace, false)? {
            continue;
        }
        for id in workspace.runs()? {
            let run = RunDir::of(workspace, &id);
            let (found, _) = read_summary(&run);
            let is_part = found.parent_run_id.is_some() || found.flow.is_some();
            if !is_part
                && may_obey_run(&run, false)?
                && Path::new(&found.work_dir) == workspace.root
            {
                let task = found.task_words();
                let title = in_short(first_line(task.trim()), TITLE_WIDTH);
                all.push((
                    found.updated_at.clone(),
                    json!({
                        "sessionId": id.as_str(),
                        "cwd": workspace.root,
                        "title": title,
                        "updatedAt": found.updated_at,
                    }),
                ));
            }
        }
    }
    sort_by(&mut all, |a, b| b.0.cmp(&a.0));
    let end = start.saturating_add(PAGE).min(all.len());
    let page: Vec<Value> = all
        .get(start..end)
        .unwrap_or_default()
        .iter()
        .map(|it| it.1.clone())
        .collect();
    let mut answer = json!({"sessions": page});
    if end < all.len() {
        answer["nextCursor"] = end.to_string().into();
    }
    Ok(answer)
}

fn usual_workspaces(agent: &GivenAgent) -> crate::error::Result<Vec<Workspace>> {
    let home = find_agent(agent)?.home;
    let places: Vec<PathBuf> = numbered(&home)?
        .into_iter()
        .map(|name| workspaces_dir(&home).join(name))
        .chain([PathBuf::from(".")])
        .collect();
    let mut found = Vec::new();
    for place in places {
        let workspace = Workspace::at(&place)?;
        if workspace.control.is_dir()
            && !found.iter().any(|it: &Workspace| it.root == workspace.root)
        {
            found.push(workspace);
        }
    }
    Ok(found)
}
