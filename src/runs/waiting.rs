//! Runs that wait for a time: their place in the registry, and what they wait for below them.
//!
//! Unaware of how a wait ends.

use super::inspect::RunSnapshot;
use super::overrides::{around, guarded, option_words, workspace_around};
use super::suspended::awaited_runs;
use crate::config::person;
use crate::engine::due::{Registration, not_registered};
use crate::engine::run_context::LASTING_LIMITS;
use crate::engine::start_options::StartOptions;
use crate::record::metadata::Metadata;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::Screen;
use serde_json::{Map, Value};
use std::path::Path;

/// The words of a command line that are given again when the run is started because it is due.
pub(crate) fn start_words(options: &StartOptions) -> Vec<String> {
    let (set, open) = (options.set.iter(), options.doors.iter());
    let (budget, limit) = (options.budget.iter(), options.max_iterations.iter());
    set.map(|(key, text)| ("--set", format!("{key}={text}")))
        .chain(budget.map(|budget| ("--budget", budget.text())))
        .chain(open.map(|door| ("--allow-host", door.to_string())))
        .chain(limit.map(|limit| ("--max-iterations", limit.to_string())))
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
}

/// The place of a run in the registry, with the words for another start of it when it is due; none for a run that another one started, and for a trial of an evaluation.
pub(crate) fn registration(
    metadata: &Metadata,
    home: &Path,
    workspace: &Workspace,
    options: Vec<String>,
) -> Option<Registration> {
    let is_trial = std::env::var_os(LASTING_LIMITS).is_some();
    if metadata.parent_run_id.is_some() || is_trial {
        return None;
    }
    Some(Registration {
        run_id: metadata.run_id.clone(),
        workspace: workspace.root.clone(),
        agent: home.to_owned(),
        is_flow: metadata.flow.is_some(),
        options,
        obstacle: obstacle(home, workspace, is_built_in(home)),
    })
}

/// The reason why `delta due` starts no run of an agent in a workspace: tools could choose what that does.
pub(crate) fn obstacle(home: &Path, workspace: &Workspace, is_built_in: bool) -> Option<String> {
    if let Some(dir) = around(home, workspace).filter(|_| !is_built_in) {
        let (home, dir) = (home.display(), dir.display());
        return Some(format!(
            "the agent {home} is inside the workspace {dir}, where tools can change it"
        ));
    }
    let dir = workspace_around(workspace)?;
    let (root, dir) = (workspace.root.display(), dir.display());
    Some(format!(
        "{root} is inside the workspace {dir}, whose tools can change its records"
    ))
}

/// The time when the first of the runs is due that a suspended run waits for. None if it waits for nothing but persons.
pub(crate) fn due_below(suspended: &RunDir) -> Option<Timestamp> {
    let below = awaited_runs(suspended).into_iter();
    let due = below.filter_map(|run| Timestamp::parse(run.metadata.due_at.as_deref()?));
    due.min()
}

/// Registers a run again that was found waiting.
pub(crate) fn register_again(
    found: &RunSnapshot,
    home: &Path,
    workspace: &Workspace,
    options: Vec<String>,
) {
    let metadata = &found.metadata;
    let due_at = metadata.due_at.as_deref().and_then(Timestamp::parse);
    let place = registration(metadata, home, workspace, options);
    if let (Some(place), Some(due_at)) = (place, due_at)
        && let Err(why) = place.put_again(due_at)
    {
        Screen::new(false, false).warn(&not_registered(&why));
    }
}

/// The words that `delta continue` needs for a run beside its name: what its record cannot decide.
pub(crate) fn resume_words(
    set: &Map<String, Value>,
    home: &Path,
    workspace: &Workspace,
) -> Vec<String> {
    let mut words = Vec::new();
    if !is_built_in(home) && around(home, workspace).is_some() {
        words.extend(["-a".to_owned(), home.to_string_lossy().into_owned()]);
    }
    words.extend(guarded(set).flat_map(|(key, value)| option_words(key, value)));
    words
}

/// True for the place where the program's own agents are unpacked, whose files are compared before they are used.
fn is_built_in(home: &Path) -> bool {
    let is_in = |dir| home.starts_with(dir) && person::visible_home(home) == home;
    person::unpacked_agents().is_some_and(is_in)
}
