//! Resuming a run that another process worked on.

use super::inspect::RunSnapshot;
use super::launch::{Launch, start_event};
use super::ownership::claim_run;
use super::result::RunResult;
use crate::engine::question::{self, HumanAnswer, is_left};
use crate::engine::run_context::RunContext;
use crate::engine::run_loop::unreadable;
use crate::error::Result;
use crate::record::event::Event;
use crate::record::journal::Journal;
use crate::record::metadata::Metadata;
use crate::record::reader::{self, Tail};
use crate::record::recording;
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::workspace::{DecisionLock, Workspace};
use crate::unix::process;
use crate::unix::signals::Signals;

impl Launch<'_> {
    /// Resumes a run. `message` goes to the model, `answer` answers a question.
    pub(crate) fn resume(
        &self,
        found: RunSnapshot,
        message: Option<&str>,
        answer: Option<HumanAnswer>,
        lock: DecisionLock,
    ) -> Result<RunResult> {
        let Reopened {
            run,
            mut journal,
            metadata,
            iteration,
            has_turns,
            is_ours,
            notes,
        } = reopen(found, self.workspace, self.force, &self.signals)?;
        let metadata = self.started(metadata);
        let config = self.config();
        let task = metadata.initial_message.clone().unwrap_or_default();
        journal.add(iteration, &start_event(&metadata, &task, &config, true));
        for note in &notes {
            journal.add(iteration, &warning(note));
            self.screen.warn(note);
        }
        if !has_turns && !task.is_empty() {
            // The engine died before the first message was in the journal.
            journal.add(iteration, &Event::UserMessage { content: &task });
        }
        if let Some(message) = message {
            journal.add(iteration, &Event::UserMessage { content: message });
        }
        journal.flush()?;
        metadata.write(&run.path)?;
        drop(lock);
        self.run_engine(run, journal, metadata, (answer, is_ours))
    }
}

/// A run that this process owns now. Its journal ends with a whole line, and what a dead engine had left
/// running has been ended.
pub(crate) struct Reopened {
    pub run: RunDir,
    pub journal: Journal,
    pub metadata: Metadata,
    /// The last one.
    pub iteration: u64,
    /// Something has been said in it.
    pub has_turns: bool,
    /// True if the record was made here and is no copy of a directory whose processes may live.
    pub is_ours: bool,
    /// Remarks on the state in which it was found.
    pub notes: Vec<String>,
}

/// Takes possession of a run, unless it is live.
pub(crate) fn reopen(
    found: RunSnapshot,
    workspace: &Workspace,
    force: bool,
    signals: &Signals,
) -> Result<Reopened> {
    let Some(mut journal) = Journal::open(&found.run.journal())? else {
        return Err(found.busy());
    };
    let mut bytes = Vec::new();
    journal.read_into(&mut bytes)?;
    let tail = reader::tail(&bytes);
    if let Tail::Torn(torn) = tail {
        bytes.truncate(bytes.len() - torn as usize);
    }
    let reading = Reading {
        lenient: force,
        window: None,
    };
    // Nothing is changed unless all of it can be read.
    let state = state::read(&bytes, reading).map_err(|e| match found.is_flow {
        // `delta continue --force` does not help a flow.
        true => recording::unreadable(&e, journal.path()),
        false => unreadable(&e, &journal),
    })?;
    found.run.complete()?;
    let taken_over = match force {
        true => None,
        false => claim_run(&found.run, &state, signals)?,
    };
    journal.mend_tail(&tail)?;
    let is_ours = state.work_dir.as_deref() == workspace.root.to_str()
        && state.run_id.as_deref() == Some(found.run.id.as_str());
    let mut metadata = found.metadata;
    if !bytes.is_empty() {
        metadata.correct(&state);
    }
    let leftovers = if is_ours { end_leftovers(&state) } else { None };
    let unread = put_stray_answer_aside(&found.run, &state)?;
    journal.continue_after(state.seq);
    Ok(Reopened {
        run: found.run,
        journal,
        metadata,
        iteration: state.iterations,
        has_turns: !state.turns.is_empty(),
        is_ours,
        notes: journal_notes(tail, &state)
            .into_iter()
            .chain(leftovers)
            .chain(taken_over)
            .chain(unread)
            .collect(),
    })
}

/// The event for a remark.
pub(crate) fn warning(note: &str) -> Event<'_> {
    Event::SystemMessage {
        level: "WARN",
        content: note,
        fact: None,
    }
}

/// Remarks on the state in which a journal was found.
fn journal_notes(tail: Tail, state: &state::Run<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    match tail {
        Tail::Torn(bytes) => notes.push(format!(
            "the journal's last line was torn ({bytes} bytes without an end) and has been cut off"
        )),
        Tail::Whole | Tail::Unended => {}
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
    let call = state.engine_call.as_deref()?;
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
