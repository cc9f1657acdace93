//! Which run is meant, and in which state it is.

use crate::cli::result::open_question;
use crate::config::agent::Agent;
use crate::engine::question::{self, Question};
use crate::error::{At, Error, Result};
use crate::record::journal::Journal;
use crate::record::metadata::{self, Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Unreadable};
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::unix::procfs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A run as it lies there.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its directory.
    pub run: RunDir,
    /// Its summary, corrected by its journal. RUNNING only if somebody works on it now.
    pub metadata: Metadata,
    /// The question that it waits for.
    pub question: Option<Question>,
    /// Whether the question has been answered in the meantime.
    pub is_answered: bool,
    /// Whether it is a flow's and no agent's.
    pub is_flow: bool,
}

/// Looks at a run without owning it.
pub(crate) fn look(run: &RunDir) -> Result<Found> {
    let (run, id) = (run.clone(), &run.id);
    let mut metadata = metadata::read(&run.path).unwrap_or_default();
    if metadata.run_id != id.as_str() {
        // Lost, or of another run that this one is a copy of.
        id.as_str().clone_into(&mut metadata.run_id);
        metadata.workspace_id = match run.workspace() {
            Some(root) => Workspace::at(root)?.id(),
            None => String::new(),
        };
        metadata.agent_name = name_in_journal(&run).unwrap_or_default();
    }
    // It says so until the end of a run has been told: whoever should have told it has died.
    let untold = metadata.status == Status::Running;
    let live = is_owned(&run, &metadata);
    let path = run.journal();
    let bytes = match crate::unix::files::read_regular(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::failure(format!(
                "run {id} has no journal any more: {} is missing",
                path.display()
            )));
        }
        Err(e) => return Err(e).at("read", &path),
    };
    let lenient = Reading {
        lenient: true,
        window: None,
    };
    let mut is_flow = false;
    let (question, is_answered) = match state::read(&bytes, lenient) {
        Ok(state) => {
            if !bytes.is_empty() {
                metadata.correct(&state);
            }
            if bytes.is_empty() || untold {
                metadata.status = Status::Interrupted;
            }
            is_flow = state.is_flow;
            let question = open_question(&state);
            let answered = match &question {
                Some(question) => question::left_answer(&run, &question.request_id)?.is_some(),
                None => false,
            };
            (question, answered)
        }
        Err(Unreadable::Rewritten(form)) => return Err(form.error(&path)),
        Err(Unreadable::Damaged(_)) => (None, false),
    };
    if live {
        metadata.status = Status::Running;
    }
    Ok(Found {
        run,
        metadata,
        question,
        is_answered,
        is_flow,
    })
}

/// How long the lock of a process that is gone may last.
const AFTERLIFE: Duration = Duration::from_secs(2);

/// Whether somebody works on a run now. An engine that is killed while it starts a child leaves the
/// lock with the child, until that has become the program that it is to run.
fn is_owned(run: &RunDir, metadata: &Metadata) -> bool {
    let began = Instant::now();
    loop {
        if !Journal::is_owned(&run.journal()) {
            return false;
        }
        let owner = i32::try_from(metadata.pid).unwrap_or(0);
        let elsewhere = metadata.hostname != procfs::hostname();
        if owner == 0 || elsewhere || procfs::is_alive(owner) || began.elapsed() > AFTERLIFE {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The agent's name as the journal's first start tells it.
fn name_in_journal(run: &RunDir) -> Option<String> {
    let line = crate::unix::files::read_line(&run.journal())?;
    let line = crate::record::event::Line::parse(&line).ok()?;
    let config: serde_json::Value = serde_json::from_str(line.config?.get()).ok()?;
    config.get("name")?.as_str().map(str::to_owned)
}

impl Found {
    /// Whether the run is one of this agent's.
    pub(crate) fn is_of(&self, agent: &Agent) -> bool {
        let metadata = &self.metadata;
        metadata.agent_name == agent.name || metadata.agent_home == agent.home.to_string_lossy()
    }

    /// Whether the run can be taken up where it was left.
    pub(crate) fn is_resumable(&self) -> bool {
        matches!(
            self.metadata.status,
            Status::Interrupted | Status::WaitingForInput
        )
    }

    /// Writes the summary anew if it is lost or disagrees with the journal.
    pub(crate) fn mend_metadata(&self) -> Result<()> {
        if metadata::read(&self.run.path).as_ref() == Some(&self.metadata) {
            return Ok(());
        }
        match Journal::open(&self.run.journal())? {
            Some(_ours) => self.metadata.write(&self.run.path),
            None => Ok(()),
        }
    }

    /// The error for a run that somebody works on.
    pub(crate) fn busy(&self) -> Error {
        let id = &self.metadata.run_id;
        let pid = self.metadata.pid;
        Error::new(
            crate::error::Exit::TempFail,
            format!("run {id} is already running, pid {pid}"),
        )
    }
}

/// The run that a person names: an id, a beginning of one that only one has, or LATEST.
pub(crate) fn named(workspace: &Workspace, name: &str) -> Result<RunId> {
    let runs = workspace.runs()?;
    if let Some(exact) = runs.iter().find(|id| id.as_str() == name) {
        return Ok(exact.clone());
    }
    if name == "LATEST"
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
                "no run '{name}' here; there are {}",
                list(&all)
            )))
        }
        several => Err(Error::failure(format!(
            "'{name}' is the beginning of several runs: {}",
            list(several)
        ))),
    }
}

/// The run that a person names, by the path of its directory if there is a slash in it.
pub(crate) fn at_or_named(work_dir: &Path, name: &str) -> Result<RunDir> {
    if name.contains('/') {
        return crate::record::recording::at_path(Path::new(name));
    }
    let workspace = self::workspace(work_dir)?;
    let id = named(&workspace, name)?;
    Ok(RunDir::of(&workspace, &id))
}

/// The run that is named, as [`at_or_named`] has it, or else the newest; instead of one that a
/// flow of the workspace has started, the flow.
pub(crate) fn named_or_newest(work_dir: &Path, name: Option<&str>) -> Result<RunDir> {
    if let Some(name) = name {
        return at_or_named(work_dir, name);
    }
    let workspace = self::workspace(work_dir)?;
    let Some(newest) = workspace.newest()? else {
        return Err(no_runs(&workspace.root));
    };
    let around = with_those_around(&workspace, Some(newest.clone()));
    let is_flow =
        |id: &RunId| metadata::read(&workspace.run_path(id)).is_some_and(|it| it.flow.is_some());
    let flow = around.into_iter().rfind(is_flow);
    Ok(RunDir::of(&workspace, &flow.unwrap_or(newest)))
}

/// A run, and those of its workspace that it is a part of, from the inside out.
pub(crate) fn with_those_around(workspace: &Workspace, run: Option<RunId>) -> Vec<RunId> {
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

/// The error for a workspace without runs.
pub(crate) fn no_runs(root: &Path) -> Error {
    Error::failure(format!(
        "there is no run in {}; `delta run` starts one",
        root.display()
    ))
}

/// A run's summary, correct as of now, without reading a journal that the summary is newer than.
/// Where the journal cannot be read, what the metadata say, and why.
pub(crate) fn summary(run: &RunDir) -> (Metadata, Option<Error>) {
    let id = &run.id;
    let recorded = metadata::read(&run.path).filter(|metadata| metadata.run_id == id.as_str());
    if let Some(metadata) = &recorded {
        let untold = metadata.status == Status::Running;
        let live = is_owned(run, metadata);
        if live || (!untold && is_newer(&run.path.join("metadata.json"), &run.journal())) {
            let mut metadata = metadata.clone();
            if live {
                metadata.status = Status::Running;
            }
            return (metadata, None);
        }
    }
    match look(run) {
        Ok(found) => (found.metadata, None),
        Err(error) => {
            let mut metadata = recorded.unwrap_or_default();
            id.as_str().clone_into(&mut metadata.run_id);
            if metadata.status == Status::Running {
                metadata.status = Status::Interrupted;
            }
            (metadata, Some(error))
        }
    }
}

/// Whether a file was written after another one, or at the same time.
fn is_newer(file: &Path, other: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    matches!((modified(file), modified(other)), (Some(file), Some(other)) if file >= other)
}

/// The workspace at a path, which must be there and in today's layout.
pub(crate) fn workspace(path: &Path) -> Result<Workspace> {
    let workspace = Workspace::at(path)?;
    if !workspace.root.is_dir() {
        let path = path.display();
        return Err(Error::failure(format!("there is no workspace {path}")));
    }
    workspace.check_layout()?;
    Ok(workspace)
}
