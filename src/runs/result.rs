//! The state of a run at the end of a command, to be printed.

use super::inspect::{RunSnapshot, open_question};
use super::own_search::OpenMark;
use super::suspended::{asks, awaited_run, is_suspended};
use super::waiting::due_below;
use crate::engine::account::engine_time;
use crate::engine::due::not_registered;
use crate::engine::question::Question;
use crate::engine::run_loop::{EndedRun, Ending};
use crate::error::{At, Exit, Result, ignore};
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::read_journal;
use crate::record::run_dir::RunDir;
use crate::record::spending::Amount;
use crate::record::state::{self, Reading};
use crate::record::stop_reason::StopReason;
use crate::text::amounts::{format_duration, grouped};
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::Screen;
use std::time::Duration;

/// A run at the end of a command.
pub(crate) struct RunResult {
    pub ending: Ending,
    pub metadata: Metadata,
    pub run: RunDir,
    /// The question that is open.
    pub question: Option<Question>,
    /// The run of a sub-agent, or of one of a sub-agent, that it waits for.
    pub awaited: Option<Box<RunSnapshot>>,
    ended: Option<EndedRun>,
    /// On one of the agent's own workspaces.
    open_mark: Option<OpenMark>,
}

impl RunResult {
    /// The result of an engine that is over.
    pub(crate) fn of_engine(mut ended: EndedRun) -> Result<Self> {
        note_wait(&mut ended);
        let question = match ended.ending.status {
            Status::WaitingForInput => question_in(&ended.run)?,
            _ => None,
        };
        Ok(Self {
            awaited: awaited(&ended.run, &ended.metadata),
            ending: ended.ending.clone(),
            metadata: ended.metadata.clone(),
            run: ended.run.clone(),
            question,
            ended: Some(ended),
            open_mark: None,
        })
    }

    /// True if the result was printed already.
    pub(crate) fn is_shown(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.is_shown)
    }

    /// A line on the run's use of time and tokens in all its starts, if an engine has just worked on it.
    pub(crate) fn summary(&self) -> Option<String> {
        let (spent, has_price) = self.ended.as_ref()?.spent?;
        let cost = has_price.then_some(spent);
        let share = self.ended.as_ref().and_then(|ended| ended.window_share);
        let window = share.map(|share| format!(", window {:.0} %", share * 100.0));
        Some(used(&self.run, &self.metadata, cost) + &window.unwrap_or_default())
    }

    /// The files that tools have reported as changed in this start; empty if there are none.
    pub(crate) fn changed(&self) -> &str {
        self.ended.as_ref().map_or("", |ended| &ended.changed)
    }

    /// The result that a run had when it ended.
    pub(crate) fn recorded(found: RunSnapshot) -> Self {
        let awaited = awaited(&found.run, &found.metadata);
        let mut ending = recorded_ending(&found.metadata);
        if let Some(wait) = &found.wait {
            ending = Ending::new(StopReason::Deferred, &*wait.text);
        }
        if ending.status == Status::Interrupted && awaited.as_deref().is_some_and(asks) {
            ending.exit = Exit::Waiting;
        }
        Self {
            awaited,
            ending,
            metadata: found.metadata,
            run: found.run,
            question: found.question,
            ended: None,
            open_mark: None,
        }
    }

    /// Adds the mark on the agent's own workspace that it is in.
    pub(crate) fn in_own_workspace(mut self, mark: Option<OpenMark>) -> Self {
        self.open_mark = mark;
        self
    }

    /// Writes the end into the summary. Until the result has been printed the run counts as
    /// unfinished, so that the same command prints it again rather than beginning anew.
    pub(crate) fn seal(self) {
        if let Some(ended) = self.ended {
            ended.seal();
        }
        if let Some(mark) = self.open_mark
            && matches!(self.ending.status, Status::Completed | Status::Failed)
        {
            // A mark that stays is harmless.
            ignore(mark.clear());
        }
    }
}

/// The time until another start looks for an answer that is made in the background.
const BACKGROUND_LOOK: Duration = Duration::from_secs(60);

fn put(ended: &EndedRun, due_at: Timestamp) {
    if let Some(registration) = &ended.registration
        && let Err(why) = registration.put(due_at)
    {
        Screen::new(false, false).warn(&not_registered(&why));
    }
}

/// Registers a run for the time of the runs that it waits for. One that has ended leaves the registry.
fn note_wait(ended: &mut EndedRun) {
    if is_suspended(ended.metadata.stop_reason.as_deref()) {
        let due_at = due_below(&ended.run);
        ended.metadata.due_at = due_at.map(|due_at| due_at.to_string());
        if let Some(due_at) = due_at {
            put(ended, due_at);
        }
    }
    let is_made = ended.ending.stop_reason == StopReason::Background.name();
    if is_made {
        let due_at = Timestamp::now().plus(BACKGROUND_LOOK);
        ended.metadata.due_at = Some(due_at.to_string());
        put(ended, due_at);
    }
    let ending = &ended.ending;
    let waits = is_made
        || ending.stop_reason == StopReason::Deferred.name()
        || is_suspended(Some(&ending.stop_reason));
    if let Some(registration) = &ended.registration
        && !(waits && ended.metadata.due_at.is_some())
    {
        ignore(registration.note_end(ending.status, ending.exit));
    }
}

/// A line on a run's use in all its starts: time, tokens, and the cost if there is one.
pub(crate) fn used(run: &RunDir, metadata: &Metadata, spent: Option<Amount>) -> String {
    let journal = read_journal(&run.journal()).unwrap_or_default();
    let time = format_duration(engine_time(&journal, &run.id));
    let cost = spent.map(|spent| format!(", cost {:.6}", spent.cost()));
    let tokens = match metadata.usage.total_tokens {
        0 => String::new(),
        tokens => format!(", {} tokens", grouped(tokens)),
    };
    format!("{time}{tokens}{}", cost.unwrap_or_default())
}

fn awaited(run: &RunDir, metadata: &Metadata) -> Option<Box<RunSnapshot>> {
    let waits = is_suspended(metadata.stop_reason.as_deref());
    let awaited = waits.then(|| awaited_run(run)).flatten();
    awaited.map(Box::new)
}

fn question_in(run: &RunDir) -> Result<Option<Question>> {
    let path = run.journal();
    let bytes = read_journal(&path).at("read", &path)?;
    Ok(state::read(&bytes, Reading::all(true))
        .ok()
        .and_then(|state| open_question(&state)))
}

fn recorded_ending(metadata: &Metadata) -> Ending {
    let exit = match metadata.status {
        Status::Completed => Exit::Success,
        Status::WaitingForInput => Exit::Waiting,
        Status::Failed => Exit::Failure,
        Status::Interrupted | Status::Running => Exit::TempFail,
    };
    let text = match metadata.status {
        Status::Completed => metadata.result.clone(),
        _ => metadata.error.clone(),
    };
    Ending {
        status: metadata.status,
        stop_reason: metadata.stop_reason.clone().unwrap_or_default(),
        exit,
        text: text.unwrap_or_default(),
    }
}
