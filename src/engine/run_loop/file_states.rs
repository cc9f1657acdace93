//! The states of the workspace's files: when one is taken, and its place in the record.
//!
//! Unaware of how. A state is taken by a process of its own: the first of a start beside the first request.
//!
//! Architecture invariant: what a tool does to the files is in a state before anything else is asked of a model or a person.
//! A run never fails because a state cannot be taken; no more are taken in this start then.

use super::Engine;
use super::changed_files::ChangedFiles;
use crate::config::agent::FilesKept;
use crate::config::tool::definition::Tool;
use crate::engine::run_context::{LASTING_LIMITS, RunContext};
use crate::error::{Error, Result, reason};
use crate::file_states::snapshot::{Order, Taken, Taking};
use crate::record::engine_log::Level;
use crate::record::event::{FilesReason, NoteEvent};
use crate::record::run_dir::FLOW_RUN;
use crate::record::state::Run;
use crate::text::disguise::printable_line;
use crate::unix::process::{Children, Outcome, Token, Woken};
use std::time::{Duration, Instant};

/// The states of one start.
pub(super) struct FileStates<'a> {
    is_on: bool,
    children: Children<'a>,
    under_way: Option<UnderWay>,
    /// The next state, if something else than a tool may have changed the files.
    due: Option<Place>,
    /// Number and commit of the last state.
    last: (u64, Option<String>),
    /// The tools that may have changed files since then.
    tools: Vec<String>,
    /// What they have changed since a state, that before their first change.
    changed: ChangedFiles,
    since: Option<String>,
    is_first: bool,
    is_lack_known: bool,
}

/// A state that is being taken.
struct UnderWay {
    place: Place,
    taking: Taking,
    token: Token,
}

/// The place of a state in the run.
#[derive(Clone, Copy)]
struct Place {
    why: FilesReason,
    iteration: u64,
}

impl<'a> FileStates<'a> {
    pub(super) fn new(ctx: &'a RunContext<'_>, is_replay: bool) -> Self {
        let is_set = |name| std::env::var_os(name).is_some();
        let is_step = || is_set(FLOW_RUN) || is_set(LASTING_LIMITS);
        Self {
            is_on: ctx.agent.files == FilesKept::Git && !is_replay && !is_step(),
            children: Children::new(&ctx.signals),
            under_way: None,
            due: None,
            last: (0, None),
            tools: Vec::new(),
            changed: ChangedFiles::default(),
            since: None,
            is_first: true,
            is_lack_known: false,
        }
    }

    /// The files that tools have changed; none: the states do not say.
    pub(super) fn changed(&self) -> Option<&ChangedFiles> {
        self.is_on.then_some(&self.changed)
    }

    /// Takes over the states of earlier starts.
    pub(super) fn recall(&mut self, run: &Run<'_>) {
        let known = &run.file_states;
        let (why, iteration) = match (known.all.last(), known.unstated) {
            (None, _) => (FilesReason::Start, run.iterations),
            (Some(_), Some(iteration)) => (FilesReason::Iteration, iteration),
            (Some(_), None) => (FilesReason::Outside, run.iterations),
        };
        self.due = Some(Place { why, iteration });
        self.last = known
            .all
            .last()
            .map_or((0, None), |last| (last.n, Some(last.commit.clone())));
        self.is_lack_known = known.is_lack_known;
    }
}

/// Begins to take the state that is due.
pub(super) fn begin_due_state(engine: &mut Engine<'_>) -> Result<()> {
    match engine.files.due.take() {
        Some(place) => begin(engine, place),
        None => Ok(()),
    }
}

/// Takes the state that is due before a tool changes files.
pub(super) fn before_tools<'t>(
    engine: &mut Engine<'_>,
    tools: impl Iterator<Item = &'t Tool>,
) -> Result<()> {
    if !engine.files.is_on {
        return Ok(());
    }
    let changing = tools.filter(|tool| tool.has_effect);
    let names: Vec<String> = changing.map(|tool| tool.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    begin_due_state(engine)?;
    collect(engine, None)?;
    engine.files.tools.extend(names);
    Ok(())
}

/// Takes the state that the tools of an iteration have left, before a person is asked, who may change files meanwhile.
pub(super) fn before_question(engine: &mut Engine<'_>) -> Result<()> {
    take_of_tools(engine, None)?;
    engine.files.due = Some(Place {
        why: FilesReason::Outside,
        iteration: engine.log.iteration,
    });
    Ok(())
}

/// Takes the last state of a start, in the time that is left.
pub(super) fn take_last_state(engine: &mut Engine<'_>) -> Result<()> {
    // A start that sends no request finds those of a dead one.
    let is_left = |place: &mut Place| place.why == FilesReason::Iteration;
    if let Some(place) = engine.files.due.take_if(is_left) {
        begin(engine, place)?;
    }
    take_of_tools(engine, engine.ctx.time_left().map(|left| left / 2))
}

/// Takes the state that the tools of an iteration have left, each wait for at most this long.
pub(super) fn take_of_tools(engine: &mut Engine<'_>, most: Option<Duration>) -> Result<()> {
    collect(engine, most)?;
    if !engine.files.tools.is_empty() {
        let iteration = engine.log.iteration;
        begin(
            engine,
            Place {
                why: FilesReason::Iteration,
                iteration,
            },
        )?;
        collect(engine, most)?;
    }
    Ok(())
}

fn begin(engine: &mut Engine<'_>, place: Place) -> Result<()> {
    if !engine.files.is_on {
        return Ok(());
    }
    let order = order(engine, place);
    let children = &mut engine.files.children;
    let begun = Taking::begin(&order, &RunContext::own_call_id(), |command| {
        children.spawn(command)
    });
    match begun {
        Ok((taking, token)) => {
            engine.files.is_first = false;
            engine.files.under_way = Some(UnderWay {
                place,
                taking,
                token,
            });
            Ok(())
        }
        Err(error) => give_up(engine, &error),
    }
}

fn order(engine: &Engine<'_>, place: Place) -> Order {
    let (ctx, files) = (engine.ctx, &engine.files);
    let mut tools = files.tools.clone();
    tools.dedup();
    let what = match place.why {
        FilesReason::Iteration if !tools.is_empty() => tools.join(", "),
        why => why.name().to_owned(),
    };
    let of_tools = ctx.agent.tools.iter();
    let wrappers = of_tools.filter_map(|tool| tool.wrapper.as_ref());
    let wrappers = wrappers.chain([&ctx.agent.wrapper]);
    Order {
        root: ctx.workspace.root.clone(),
        run_id: ctx.run.id.to_string(),
        last: files.last.1.clone(),
        since: files.since.clone(),
        subject: format!("[{}] {what}", place.iteration),
        wrappers: wrappers.map(|words| ctx.argv(words)).collect(),
        is_first: files.is_first,
        is_unsynced: !ctx.agent.sync,
    }
}

/// Waits for the state that is being taken.
pub(super) fn await_state(engine: &mut Engine<'_>) -> Result<()> {
    collect(engine, None)
}

/// Waits for the state that is being taken, at most this long, and records it.
fn collect(engine: &mut Engine<'_>, most: Option<Duration>) -> Result<()> {
    let Some(UnderWay {
        place,
        taking,
        token,
    }) = engine.files.under_way.take()
    else {
        return Ok(());
    };
    let line = engine.log.wait_for("the state of the files");
    let outcome = wait(&mut engine.files.children, token, most);
    drop(line);
    match outcome.and_then(|outcome| taking.end(&outcome)) {
        Ok(Some(taken)) => record(engine, place, taken),
        Ok(None) => Ok(()),
        Err(error) => give_up(engine, &error),
    }
}

/// The end of the process that takes a state. A request to end ends it, too, unless it has a time of its own.
fn wait(children: &mut Children<'_>, token: Token, most: Option<Duration>) -> Result<Outcome> {
    let mut until = most.map(|most| Instant::now() + most);
    children.heed_signals(most.is_none());
    loop {
        let woken = children.wait(until);
        match woken.map_err(|e| Error::failure(reason(&e)))? {
            Woken::Ended(_, outcome) => return Ok(outcome),
            Woken::Stopped(_) | Woken::Deadline => {
                until = None;
                children.interrupt(token, Duration::ZERO);
            }
            Woken::Suspended => {}
        }
    }
}

fn record(engine: &mut Engine<'_>, place: Place, taken: Taken) -> Result<()> {
    if let Some(aside) = taken.put_aside {
        let text = format!(
            "the store of files came from elsewhere, and was renamed to {}",
            aside.display()
        );
        engine.log.record_note(Level::Warn, &text)?;
    }
    if !taken.left_out.is_empty() && !std::mem::replace(&mut engine.files.is_lack_known, true) {
        let text = format!(
            "not kept with the files of each step: {}",
            printable_line(&taken.left_out)
        );
        engine.log.record(NoteEvent {
            files_left_out: true,
            ..NoteEvent::new(Level::Warn, &text)
        })?;
    }
    engine.files.tools.clear();
    let Some(commit) = taken.commit else {
        return Ok(());
    };
    engine.ctx.workspace.raise_layout()?;
    let n = engine.files.last.0.saturating_add(1);
    let changes = &taken.changes;
    if place.why == FilesReason::Iteration {
        let files = &mut engine.files;
        files.changed.set(&changes.paths, &taken.summed_up);
        files.since = files.since.take().or_else(|| files.last.1.clone());
    }
    let event = changes.event(n, place.why, &commit);
    engine.log.journal.add(place.iteration, &event);
    engine.log.journal.flush()?;
    engine.files.last = (n, Some(commit));
    Ok(())
}

/// Takes no more states in this start, and says why.
fn give_up(engine: &mut Engine<'_>, error: &Error) -> Result<()> {
    engine.files.is_on = false;
    let text = format!(
        "the files of each step are not kept from here on: {}; `files: off` in agent.yaml turns them off",
        printable_line(&error.message)
    );
    engine.log.record_note(Level::Warn, &text)
}
