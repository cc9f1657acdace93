//! The state of a run in its workspace, read without owning the run.

use super::decide::RunState;
use super::task::Task;
use crate::config::agent::Agent;
use crate::config::person::content_of;
use crate::engine::question::{self, Question};
use crate::error::{At, Error, Result};
use crate::record::event::Recorded;
use crate::record::journal::{Journal, JournalCopy};
use crate::record::metadata::{self, Metadata, Status};
use crate::record::reader::{JournalSource, read_event, readable_lines};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Unreadable, Wait};
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::{locks, procfs};
use serde_json::{Map, Value};
use std::path::Path;
use std::time::{Duration, Instant};

/// A run at one moment.
#[derive(Debug)]
pub(crate) struct RunSnapshot {
    pub run: RunDir,
    /// The summary, corrected by the journal. RUNNING only if a process works on the run now.
    pub metadata: Metadata,
    /// The question that it waits for.
    pub question: Option<Question>,
    /// True if the question has been answered in the meantime.
    pub is_answered: bool,
    pub is_flow: bool,
    /// The wait, if it is too early for a look.
    pub wait: Option<Wait>,
    /// The journal that this was read from, if it is kept. None if the run is live.
    pub journal: Option<JournalCopy>,
}

/// Reads a run's state without owning it.
pub(crate) fn inspect_run(run: &RunDir) -> Result<RunSnapshot> {
    let mut journal = None;
    let (mut found, ..) = inspect_journal(run, &mut journal)?;
    found.journal = journal;
    Ok(found)
}

/// The settings that a run was begun with.
pub(crate) struct RecordedSettings<'r> {
    pub id: &'r RunId,
    /// Keys of agent.yaml that it overrides.
    pub set: &'r Map<String, Value>,
    pub journal: JournalSource<'r>,
}

/// A run, its journal, and the state in that. No state: the run is live, or its journal damaged.
pub(crate) type Inspected<'j> = (RunSnapshot, JournalSource<'j>, Option<state::Run<'j>>);

/// Reads a run's state with that of its journal, which is left in `journal` instead.
pub(crate) fn inspect_journal<'j>(
    run: &RunDir,
    journal: &'j mut Option<JournalCopy>,
) -> Result<Inspected<'j>> {
    let (run, id, path) = (run.clone(), &run.id, run.journal());
    let mut metadata = read_metadata(&run)?;
    // The status stays so until an end is recorded: the engine that should have recorded one has died.
    let unreported = metadata.status == Status::Running;
    let live = is_live(&run);
    if live && metadata.initial_message.is_some() {
        return Ok((live_run(run, metadata), (&path).into(), None));
    }
    let copy = JournalCopy::read(&path);
    if matches!(&copy, Err(e) if e.kind() == std::io::ErrorKind::NotFound) {
        return Err(Error::failure(format!(
            "run {id} has no journal: {} is missing",
            path.display()
        )));
    }
    let bytes = &journal.insert(copy.at("read", &path)?).bytes;
    let mut is_flow = false;
    let mut wait = None;
    let (question, is_answered, state) = match state::read(bytes, Reading::all(true)) {
        Ok(state) => {
            if !bytes.is_empty() {
                metadata.correct(&state);
            }
            if bytes.is_empty() || unreported {
                metadata.status = Status::Interrupted;
            }
            is_flow = state.is_flow;
            wait = state.wait(Timestamp::now());
            let question = open_question(&state);
            let answered = match &question {
                Some(question) => question::left_answer(&run, &question.request_id)?.is_some(),
                None => false,
            };
            (question, answered, Some(state))
        }
        Err(Unreadable::Rewritten(form)) => return Err(form.error(&path)),
        Err(Unreadable::Damaged(_)) => (None, false, None),
    };
    if live {
        metadata.status = Status::Running;
    }
    let found = RunSnapshot {
        run,
        metadata,
        question,
        is_answered,
        is_flow,
        wait,
        journal: None,
    };
    let source = JournalSource {
        path,
        read: Some(bytes),
    };
    Ok((found, source, state))
}

/// A run on which a process works, by its metadata alone.
fn live_run(run: RunDir, mut metadata: Metadata) -> RunSnapshot {
    metadata.status = Status::Running;
    RunSnapshot {
        run,
        is_flow: metadata.flow.is_some(),
        metadata,
        question: None,
        is_answered: false,
        wait: None,
        journal: None,
    }
}

/// The summary as it was written last.
fn read_metadata(run: &RunDir) -> Result<Metadata> {
    let mut metadata = metadata::read_or_empty(&run.path);
    if metadata.run_id != run.id.as_str() {
        // Lost, or of another run that this one is a copy of.
        metadata.run_id = run.id.to_string();
        metadata.workspace_id = match run.workspace() {
            Some(root) => Workspace::at(root)?.id(),
            None => String::new(),
        };
        metadata.agent_name = name_in_journal(run).unwrap_or_default();
    }
    Ok(metadata)
}

/// Limit of the time for which the lock of a process that is gone may last.
const AFTERLIFE: Duration = Duration::from_secs(2);

/// True if a process works on a run now, and does not merely hold the lock. An engine that is killed while it starts a
/// child leaves the lock with the child, until that has become the program that it is to run.
pub(crate) fn is_live(run: &RunDir) -> bool {
    let (began, path) = (Instant::now(), run.journal());
    while Journal::is_locked(&path) {
        let metadata = metadata::read_or_empty(&run.path);
        let owner = i32::try_from(metadata.pid).unwrap_or(0);
        if owner == 0 || locks::is_held_by(owner, &path) {
            return true;
        }
        let elsewhere = metadata.hostname != procfs::hostname();
        if elsewhere || procfs::is_alive(owner) || began.elapsed() > AFTERLIFE {
            // The owner may be where `/proc` does not show it; what it shows may be the owner in a pid namespace.
            let holders = locks::holders(&path);
            return holders.is_empty() || holders.iter().any(|numbers| numbers.contains(&owner));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The agent's name in the journal's first start.
fn name_in_journal(run: &RunDir) -> Option<String> {
    let line = crate::unix::files::read_line(&run.journal())?;
    match read_event(line.as_bytes(), 0).ok()?.event {
        Recorded::EngineStart(start) => start.config().get("name").read(),
        _ => None,
    }
}

/// True if a summary belongs to a run of this agent that began with this task. An agent that is one file is known by its
/// content alone.
pub(crate) fn is_run_of(metadata: &Metadata, agent: &Agent, task: Option<&Task>) -> bool {
    let recorded = &metadata.agent_home;
    let of_agent = match (content_of(&agent.home), content_of(Path::new(recorded))) {
        (None, None) => {
            metadata.agent_name == agent.name || *recorded == agent.home.to_string_lossy()
        }
        (one, other) => one == other,
    };
    of_agent && task.is_none_or(|task| task.is_beginning_of(metadata))
}

/// The error for a command that names a run and another agent than the run's.
pub(crate) fn of_other_agent(found: &RunSnapshot, agent: &Agent) -> Error {
    let (id, run) = (&found.run.id, &found.metadata);
    Error::failure(format!(
        "run {id} belongs to the agent {} ({}), not to {} ({}); `delta continue` goes on with the run's own",
        run.agent_name,
        run.agent_home,
        agent.name,
        agent.home.display()
    ))
}

impl RunSnapshot {
    /// The facts that a command decides by. A live run's journal has not been read.
    pub(crate) fn state(&self, is_same: bool) -> RunState {
        RunState {
            status: self.metadata.status,
            is_same,
            is_unanswered: self.question.is_some() && !self.is_answered,
            is_early: self.wait.is_some(),
            is_flow: self.is_flow,
        }
    }

    /// The run's journal.
    pub(crate) fn source(&self) -> JournalSource<'_> {
        JournalSource {
            path: self.run.journal(),
            read: self.journal.as_ref().map(|copy| copy.bytes.as_slice()),
        }
    }

    /// The settings that it was begun with, for [`super::overrides::load_recorded`].
    pub(crate) fn recorded(&self) -> RecordedSettings<'_> {
        RecordedSettings {
            id: &self.run.id,
            set: &self.metadata.set,
            journal: self.source(),
        }
    }

    /// The recorded answer to a question of the run.
    pub(crate) fn answer_to(&self, request_id: &str) -> Result<Option<String>> {
        let source = self.source();
        let journal = source.bytes().at("read", &source.path)?;
        Ok(
            readable_lines(&journal).find_map(|(_, line)| match line.event {
                Recorded::HumanInputReceived(answer) => answer
                    .response
                    .owned()
                    .filter(|_| answer.request_id.get() == Some(request_id)),
                _ => None,
            }),
        )
    }

    /// True if the run has a result or has failed.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.metadata.status, Status::Completed | Status::Failed)
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

    /// The error for a run that another process works on, or whose journal it keeps locked.
    pub(crate) fn busy(&self) -> Error {
        let (id, path) = (&self.metadata.run_id, self.run.journal());
        let pid = metadata::read(&self.run.path).map_or(0, |it| it.pid);
        if i32::try_from(pid).is_ok_and(|pid| locks::is_held_by(pid, &path)) {
            let message = format!("run {id} is already running, pid {pid}");
            return Error::new(crate::error::Exit::TempFail, message);
        }
        let held = locks::held_error(&path);
        Error {
            message: format!("run {id}: {}", held.message),
            ..held
        }
    }
}

/// A run's summary, correct as of now, without reading a journal that the summary is newer than.
/// Where the journal cannot be read, what the metadata say, and why.
pub(crate) fn read_summary(run: &RunDir) -> (Metadata, Option<Error>) {
    let id = &run.id;
    // Older engines leave out when the run began.
    let is_whole =
        |metadata: &Metadata| metadata.run_id == id.as_str() && !metadata.created_at.is_empty();
    let mut recorded = metadata::read(&run.path).filter(is_whole);
    if let Some(metadata) = &mut recorded {
        let unreported = metadata.status == Status::Running;
        let live = is_live(run);
        if live || (!unreported && is_newer(&run.path.join("metadata.json"), &run.journal())) {
            let mut metadata = std::mem::take(metadata);
            if live {
                metadata.status = Status::Running;
            }
            return (metadata, None);
        }
    }
    match inspect_run(run) {
        Ok(found) => {
            let mut metadata = found.metadata;
            // Older engines recorded neither this question nor that they waited for its answer.
            if metadata.status == Status::Interrupted
                && found
                    .question
                    .is_some_and(|asked| asked.request_id.is_empty())
            {
                metadata.status = Status::WaitingForInput;
            }
            (metadata, None)
        }
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

/// A run's summary without regard to who works on it: the recorded one, unless the journal is newer.
/// None if the journal cannot be read.
pub(crate) fn read_recorded(run: &RunDir) -> Option<Metadata> {
    let recorded = metadata::read(&run.path).filter(|found| found.run_id == run.id.as_str());
    let is_current = |metadata: &Metadata| {
        metadata.status == Status::Running
            || is_newer(&run.path.join("metadata.json"), &run.journal())
    };
    match recorded.filter(is_current) {
        Some(metadata) => Some(metadata),
        None => inspect_run(run).ok().map(|found| found.metadata),
    }
}

/// True if a file was written after another one, or at the same time.
fn is_newer(file: &Path, other: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    matches!((modified(file), modified(other)), (Some(file), Some(other)) if file >= other)
}

/// The question that a run waits for.
pub(crate) fn open_question(run: &state::Run<'_>) -> Option<Question> {
    let calls = &run.last_thought()?.calls;
    let asked = calls
        .iter()
        .filter(|call| call.result.is_none())
        .find_map(|call| call.question.as_ref())?;
    let is_open = asked.response.is_none();
    is_open.then(|| Question::recorded(asked))
}
