//! Opening a run in one place: its directory and first events are created, or another process's run is taken over.
//! Either way its journal gets the start of this process's engine.
//!
//! Unaware of what the engine does.

use super::inspect::RunSnapshot;
use super::launcher::{launcher_variables, traceparent};
use super::ownership::claim_run;
use super::preflight::{parent_call, parent_run};
use crate::VERSION;
use crate::engine::question::{self, is_left};
use crate::engine::run_context::RunContext;
use crate::engine::run_loop::unreadable;
use crate::error::{At, Result};
use crate::record::engine_log::Level;
use crate::record::event::{NoteEvent, RawJson, StartEvent};
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::{self, Tail};
use crate::record::recording::{self, Beginning};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::process;
use crate::unix::procfs;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use std::path::Path;

/// A run that this process owns. Its journal ends with the start of this process.
pub(crate) struct OpenRun {
    pub run: RunDir,
    pub journal: Journal,
    pub metadata: Metadata,
    /// The journal's content.
    pub record: Vec<u8>,
    /// True if the record was made here and is no copy of a directory whose processes may live.
    pub is_ours: bool,
}

/// A start of an engine, for an agent, a flow or an evaluation, in this process.
pub(crate) struct RunStart<'s> {
    pub workspace: &'s Workspace,
    pub signals: &'s Signals,
    pub screen: Screen,
    /// The program that remarks come from.
    pub program: &'s str,
    /// The name and the directory of the agent or the flow.
    pub name: String,
    pub home: &'s Path,
    /// A text in place of the run's message in the record; none: that message.
    pub task: Option<String>,
    /// The configuration, for the record: JSON.
    pub config: Vec<u8>,
    /// Pass over damage, and over a lock that another host may hold.
    pub force: bool,
    /// Describes in the run's summary what is special about this start.
    pub describe: Box<dyn Fn(&mut Metadata) + 's>,
}

/// The beginning of a run that another one recorded.
pub(crate) struct Inherited<'i> {
    pub beginning: &'i Beginning<'i>,
    /// The state after its last event.
    pub state: &'i state::Run<'i>,
    /// The directory of the other run.
    pub run: &'i Path,
}

impl RunStart<'_> {
    /// Creates a run. `first` adds what follows the start in its journal.
    pub(crate) fn begin(
        &self,
        id: &RunId,
        metadata: Metadata,
        inherited: Option<Inherited<'_>>,
        first: impl FnOnce(&mut Journal) -> Result<()>,
    ) -> Result<OpenRun> {
        let metadata = self.started(metadata);
        let state = inherited.as_ref().map(|inherited| inherited.state);
        self.mark_layout(&metadata, state)?;
        let (run, mut journal) = RunDir::create(self.workspace, id, &metadata, |journal| {
            let iteration = inherited.as_ref().map_or(0, |it| it.beginning.iterations);
            if let Some(inherited) = &inherited {
                journal.copy(inherited.beginning.journal, inherited.state.seq);
                let to = self.workspace.staging_dir();
                inherited.beginning.copy_records(inherited.run, &to)?;
            }
            journal.add(iteration, &self.event(&metadata, iteration > 0));
            first(journal)
        })?;
        let mut record = Vec::new();
        journal.read_gained(&mut record)?;
        Ok(OpenRun {
            run,
            journal,
            metadata,
            record,
            is_ours: true,
        })
    }

    /// Takes possession of a run, unless it is live. `first` adds what follows the start and the remarks in its
    /// journal; `remarks` come after those on the state in which the run was found.
    ///
    /// # Errors
    /// It is live, or its journal cannot be read: then nothing has been changed.
    pub(crate) fn resume(
        &self,
        mut found: RunSnapshot,
        remarks: Vec<String>,
        first: impl FnOnce(&mut Journal, &state::Run<'_>) -> Result<()>,
    ) -> Result<OpenRun> {
        let (mut journal, mut record) = take_over(&mut found)?;
        let tail = reader::tail(&record);
        if let Tail::Torn(torn) = tail {
            record.truncate(record.len() - torn as usize);
        }
        let state = state::read(&record, Reading::all(self.force)).map_err(|e| {
            if found.is_flow {
                // `delta continue --force` does not help a flow.
                return recording::unreadable(&e, journal.path());
            }
            unreadable(&e, &journal)
        })?;
        let run = found.run;
        run.check_records()?;
        let taken_over = if self.force {
            None
        } else {
            claim_run(&run, &state, self.signals)?
        };
        journal.mend_tail(&tail)?;
        let is_ours = state.start.work_dir.get() == self.workspace.root.to_str()
            && state.start.run_id.get() == Some(run.id.as_str());
        let mut metadata = found.metadata;
        if !record.is_empty() {
            metadata.correct(&state);
        }
        let mut notes = journal_notes(tail, &state);
        notes.extend(is_ours.then(|| end_leftovers(&state)).flatten());
        notes.extend(taken_over);
        notes.extend(put_stray_answer_aside(&run, &state)?);
        notes.extend(remarks);
        journal.continue_after(state.seq);
        let metadata = self.started(metadata);
        self.mark_layout(&metadata, Some(&state))?;
        let iteration = state.iterations;
        journal.add(iteration, &self.event(&metadata, true));
        for note in &notes {
            journal.add(iteration, &warning(note));
            self.screen.warn_as(self.program, note);
        }
        first(&mut journal, &state)?;
        journal.flush()?;
        metadata.write(&run.path)?;
        journal.read_gained(&mut record)?;
        Ok(OpenRun {
            run,
            journal,
            metadata,
            record,
            is_ours,
        })
    }

    /// Adds the start of another engine to the journal of a run that this process owns.
    pub(super) fn begin_again(&self, open: &mut OpenRun) {
        let event = self.event(&open.metadata, true);
        open.journal.add(open.metadata.iterations, &event);
    }

    fn event<'e>(&'e self, metadata: &'e Metadata, resumed: bool) -> StartEvent<'e> {
        let task = self.task.as_deref().or(metadata.initial_message.as_deref());
        start_event(metadata, task.unwrap_or_default(), &self.config, resumed)
    }

    /// Marks the workspace if the first layout does not have what the run holds, or what the start records.
    fn mark_layout(&self, metadata: &Metadata, state: Option<&state::Run<'_>>) -> Result<()> {
        let is_later = state.is_some_and(|state| state.is_of_later_layout);
        if is_later || !metadata.allow_hosts.is_empty() {
            self.workspace.raise_layout()
        } else {
            Ok(())
        }
    }

    /// Metadata of a run that this process works on from now on.
    fn started(&self, mut metadata: Metadata) -> Metadata {
        let now = Timestamp::now().to_string();
        metadata.status = Status::Running;
        metadata.agent_name.clone_from(&self.name);
        metadata.start_time.clone_from(&now);
        metadata.updated_at = now;
        (metadata.end_time, metadata.error, metadata.result) = (None, None, None);
        (metadata.stop_reason, metadata.exit_code) = (None, None);
        metadata.due_at = None;
        metadata.agent_home = self.home.to_string_lossy().into_owned();
        metadata.work_dir = self.workspace.root.to_string_lossy().into_owned();
        metadata.pid = std::process::id();
        metadata.hostname = procfs::hostname();
        metadata.launcher = launcher_variables();
        VERSION.clone_into(&mut metadata.delta_version);
        (self.describe)(&mut metadata);
        metadata
    }
}

/// Takes the lock of a run's journal. Returns the journal and its content, read again only if it has changed since
/// the run was found.
///
/// # Errors
/// The run is live.
pub(crate) fn take_over(found: &mut RunSnapshot) -> Result<(Journal, Vec<u8>)> {
    let Some(journal) = Journal::open(&found.run.journal())? else {
        return Err(found.busy());
    };
    let record = journal.read_or(found.journal.take())?;
    Ok((journal, record))
}

/// Renames a run that failed, so that its name is free, and returns the new name.
pub(crate) fn put_aside(workspace: &Workspace, found: RunSnapshot) -> Result<String> {
    let Some(_ours) = Journal::open(&found.run.journal())? else {
        return Err(found.busy());
    };
    let id = found.run.id.as_str();
    let name = |n: u32| {
        let suffix = format!(".failed.{n}");
        let room = RunId::LONGEST - suffix.len();
        // Ids are ASCII.
        format!("{}{suffix}", &id[..id.len().min(room)])
    };
    let taken = |name: &String| workspace.control.join(name).exists();
    let Some(name) = (1..=u32::MAX).map(name).find(|name| !taken(name)) else {
        unreachable!("no number is left for a failed run");
    };
    let aside = workspace.control.join(&name);
    std::fs::rename(&found.run.path, &aside).at("rename", &found.run.path)?;
    let mut metadata = found.metadata;
    metadata.run_id.clone_from(&name);
    metadata.write(&aside)?;
    Ok(name)
}

/// Metadata of a new run, before its first start. `task` is its message, or a text in its place.
pub(crate) fn first_metadata(id: &RunId, workspace: &Workspace, task: &str) -> Metadata {
    Metadata {
        run_id: id.to_string(),
        workspace_id: workspace.id(),
        created_at: Timestamp::now().to_string(),
        initial_message: Some(task.to_owned()),
        parent_run_id: parent_run(),
        parent_call_id: parent_call(),
        ..Metadata::default()
    }
}

/// The event of the start that metadata describes.
pub(crate) fn start_event<'e>(
    metadata: &'e Metadata,
    task: &'e str,
    config: &'e [u8],
    resumed: bool,
) -> StartEvent<'e> {
    StartEvent {
        run_id: &metadata.run_id,
        agent_home: &metadata.agent_home,
        work_dir: &metadata.work_dir,
        task,
        config: RawJson(config),
        pid: std::process::id(),
        hostname: &metadata.hostname,
        call_id: RunContext::engine_call(),
        delta_version: VERSION,
        resumed,
        message_parts: metadata.message_parts.as_ref(),
        parent_run_id: metadata.parent_run_id.as_deref(),
        parent_call_id: metadata.parent_call_id.as_deref(),
        forked_from: metadata.forked_from.as_ref(),
        set: &metadata.set,
        allow_hosts: &metadata.allow_hosts,
        launcher: &metadata.launcher,
        traceparent: traceparent(),
    }
}

/// The event for a remark.
fn warning(note: &str) -> NoteEvent<'_> {
    NoteEvent::new(Level::Warn, note)
}

/// Remarks on the state in which a journal was found.
fn journal_notes(tail: Tail, state: &state::Run<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Tail::Torn(bytes) = tail {
        notes.push(format!(
            "the journal's last line was torn ({bytes} bytes without an end) and has been cut off"
        ));
    }
    for damage in &state.damaged {
        notes.push(format!(
            "journal line {} is damaged and was skipped: {}",
            damage.line, damage.message
        ));
    }
    notes
}

/// Puts an answer aside that fits no open question, and says so. One that a killed engine has recorded is removed.
fn put_stray_answer_aside(run: &RunDir, state: &state::Run<'_>) -> Result<Option<String>> {
    let thought = state.last_thought();
    let calls = thought.map_or(&[][..], |thought| &thought.calls).iter();
    let mut asked = calls.filter_map(|call| Some((call.question.as_ref()?, call.result.is_none())));
    if let Some((question, is_open)) = asked.find(|(it, _)| is_left(run, &it.request_id)) {
        if is_open {
            return Ok(None);
        }
        let answer = question::left_answer(run, &question.request_id)?;
        if answer.as_deref() == question.response.as_deref() {
            return question::clear(run).map(|()| None);
        }
    }
    let name = question::put_answer_aside(run)?;
    Ok(name.map(|name| question::unread_note(run, &name)))
}

/// Ends what a killed engine has left of the programs that it ran for itself, and says so.
fn end_leftovers(state: &state::Run<'_>) -> Option<String> {
    if state.end.is_some() {
        return None;
    }
    let call = state.start.call_id.get()?;
    // No engine made this process: a record that says so would have its relatives killed.
    if RunContext::call_prefix().starts_with(&format!("{call}.")) {
        return None;
    }
    let left = process::end_leftovers(call);
    let left = match left {
        0 => return None,
        1 => "1 process that was".to_owned(),
        many => format!("{many} processes that were"),
    };
    Some(format!("ended {left} left of the engine that died"))
}
