//! Commands that begin something which ends without them: recorded with a handle, and looked at when it is time.
//!
//! Unaware of routing. A look that a kill has cut short is made again, because only its end is recorded.

use super::finish::{add_tool_calls, judge};
use super::prepare::{BeginningStep, await_launch, text_of};
use super::programs::{ActiveProgram, ProgramRole, StepLook};
use super::{FlowEngine, SuspendedStep};
use crate::engine::later::{self, ChosenTimes, ENDED_BADLY, NOT_YET};
use crate::error::Result;
use crate::flow::context::store::LARGEST_STORE;
use crate::flow::graph::{Failure, FailureCode, Payload, StepRef};
use crate::flow::manifest::fill;
use crate::flow::record::attempt::{self, LOOK, PrintedOutput};
use crate::flow::record::lineage::DeferredStep;
use crate::flow::record::{AttemptEnd, ProgramInput, find_failure};
use crate::record::state::Deferred;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{self, Ended, Outcome};
use std::path::Path;
use std::time::Duration;

/// The shortest wait between two looks.
const SHORTEST: Duration = Duration::from_secs(1);

/// True for a program that says that what it has begun ends later.
pub(super) fn is_deferral(engine: &FlowEngine<'_>, active: &ActiveProgram, how: Ended) -> bool {
    let may_defer = engine.place.flow.nodes[active.step.node].later.is_some();
    may_defer && active.failure.is_none() && how == Ended::Exited(NOT_YET)
}

/// Records that what a program has begun ends later. Without a handle the program has failed.
pub(super) fn defer(
    engine: &mut FlowEngine<'_>,
    active: ActiveProgram,
    ended: AttemptEnd,
) -> Result<()> {
    let (flow, step) = (engine.place.flow, &active.step);
    let (events, records) = (&mut engine.events, (&*active.io, &[][..]));
    add_tool_calls(events, &engine.place, step, records)?;
    let rule = flow.nodes[step.node].later.as_ref();
    let (handle, rule) = match (later::handle_in(&[], &active.io), rule) {
        (Ok(handle), Some(rule)) => (handle, rule),
        (Err(why), _) => {
            let failure = Failure::new(FailureCode::Operation, format!("exit code 75: {why}"));
            return judge(engine, step, Err(failure), ended);
        }
        (Ok(_), None) => return Ok(()),
    };
    let chosen = chosen_times(engine, &active);
    let times = later::first_times(rule, chosen);
    let reference = attempt::reference(&engine.place.run.path, &active.io).into_owned();
    engine.place.workspace.raise_layout()?;
    let events = &mut engine.events;
    let at = events.add_deferral(step, &handle, times, &reference);
    events.journal.sync()?;
    if engine.options.is_ours {
        // It goes on without the processes of the node.
        process::end_leftovers(&active.call_id);
    }
    let deferred = DeferredStep {
        state: Deferred::new(handle, times, at),
        call_id: active.call_id,
        reference,
    };
    let why = wait_of(&deferred);
    engine.attempts.deferred.insert(active.step.key, deferred);
    engine.suspend(active.step, why);
    Ok(())
}

fn wait_of(deferred: &DeferredStep) -> SuspendedStep {
    let due_at = deferred.state.due_at;
    let handle = in_short(&deferred.state.handle, 60);
    SuspendedStep::until(due_at, format!("waits for {handle}; next look at {due_at}"))
}

/// Looks at what a step has begun, if it is time; else the step waits on.
pub(super) fn look(engine: &mut FlowEngine<'_>, beginning: &BeginningStep) -> Result<()> {
    let (place, step) = (&engine.place, &beginning.step);
    let flow = place.flow;
    let Some(deferred) = engine.attempts.deferred.get(&step.key) else {
        return Ok(());
    };
    let (settings, now) = (&flow.nodes[step.node], Timestamp::now());
    let handle = deferred.state.handle.clone();
    let Some(rule) = &settings.later else {
        let text = format!("what became of {handle} is not known: the node has no later: any more");
        let failure = Failure::new(FailureCode::Operation, text);
        return end(engine, step, Err(failure), AttemptEnd::default());
    };
    if !deferred.state.is_due(now) {
        let why = wait_of(deferred);
        engine.suspend(step.clone(), why);
        return Ok(());
    }
    let is_last = now >= deferred.state.expires_at;
    let dir = place.task_dir(step)?;
    let argv = fill(&rule.check, &flow.home, &dir);
    let context = Path::new(&deferred.reference).join("context.json");
    let context = files::read_text_below(&place.run.path, &context, LARGEST_STORE).ok();
    let text = text_of(&beginning.input, settings.input);
    let given = ProgramInput {
        argv: [engine.options.launch.clone(), argv].concat(),
        dir,
        input: &beginning.input,
        context: context.as_deref(),
        stdin: text.as_deref().map(str::as_bytes),
    };
    let name = format!("{}{LOOK}", place.node_id(step));
    let call_id = deferred.call_id.clone();
    let (run, linked) = (&place.run.path, &mut engine.programs.linked);
    let prepared = attempt::prepare_attempt(run, (&*step.task, &name), given, linked)?;
    let role = ProgramRole::Look(StepLook { handle, is_last });
    await_launch(engine, beginning, (prepared, call_id), role);
    Ok(())
}

/// The program of a look has ended.
pub(super) fn end_look(
    engine: &mut FlowEngine<'_>,
    active: ActiveProgram,
    (look, outcome): (&StepLook, &Outcome),
    mut ended: AttemptEnd,
) -> Result<()> {
    let (flow, step) = (engine.place.flow, &active.step);
    let (events, records) = (&mut engine.events, (&*active.io, &[][..]));
    add_tool_calls(events, &engine.place, step, records)?;
    if engine.options.is_ours {
        process::end_leftovers(&active.call_id);
    }
    let settings = &flow.nodes[step.node];
    let code = match outcome.how {
        Ended::Exited(code) if active.failure.is_none() => Some(code),
        _ => None,
    };
    let since = engine.attempts.deferred.get(&step.key);
    let since = since.map_or_else(Timestamp::now, |it| it.state.since);
    let result = match code {
        Some(0) => PrintedOutput::read(&active.io)?.payload(settings.output, attempt::TEXT_HINT),
        Some(ENDED_BADLY) => match find_failure(&active.io, outcome, settings.timeout)? {
            Some(failure) => Err(failure),
            None => return Ok(()),
        },
        _ if look.is_last => {
            let seconds = Timestamp::now().since(since).as_secs();
            let text = format!("nothing known after {seconds} s");
            Err(Failure::new(FailureCode::Timeout, text))
        }
        _ => return not_yet(engine, active, code),
    };
    let reference = attempt::reference(&engine.place.run.path, &active.io);
    ended.look_ref = Some(reference.into_owned());
    end(engine, step, result, ended)
}

/// Ends the wait of a step. A retry begins it anew.
fn end(
    engine: &mut FlowEngine<'_>,
    step: &StepRef,
    result: std::result::Result<Payload, Failure>,
    ended: AttemptEnd,
) -> Result<()> {
    engine.attempts.deferred.remove(&step.key);
    judge(engine, step, result, ended)
}

/// Records a look that has not found an end.
fn not_yet(engine: &mut FlowEngine<'_>, active: ActiveProgram, code: Option<i32>) -> Result<()> {
    let key = active.step.key;
    let is_known = code == Some(NOT_YET);
    let has_failed = |it: &DeferredStep| it.state.has_failed_look;
    if !is_known && !engine.attempts.deferred.get(&key).is_some_and(has_failed) {
        let how = code.map_or_else(
            || "it did not exit by itself".to_owned(),
            |code| format!("exit code {code}"),
        );
        let node = engine.place.node_id(&active.step);
        let text = format!(
            "{node} of {}: its check could not say whether it has ended: {how}",
            active.step.task
        );
        engine.warn(&text);
    }
    let chosen = match is_known {
        true => chosen_times(engine, &active),
        false => ChosenTimes::default(),
    };
    let Some(deferred) = engine.attempts.deferred.get_mut(&key) else {
        return Ok(());
    };
    let (due_at, expires_at) = later::next_times(&deferred.state, chosen);
    // A record whose waits have no length must not be looked at without an end.
    let times = (due_at.max(Timestamp::now().plus(SHORTEST)), expires_at);
    let reference = attempt::reference(&engine.place.run.path, &active.io);
    let events = &mut engine.events;
    let at = events.add_look(&active.step, code, times, &reference);
    events.journal.sync()?;
    deferred.state.note_look(code.map(i64::from), times, at);
    let why = wait_of(deferred);
    engine.suspend(active.step, why);
    Ok(())
}

/// The times that a program has chosen; with a warning, none.
fn chosen_times(engine: &mut FlowEngine<'_>, active: &ActiveProgram) -> ChosenTimes {
    later::times_in(&active.io).unwrap_or_else(|why| {
        let node = engine.place.node_id(&active.step);
        engine.warn(&format!("{node} of {}: {why}", active.step.task));
        ChosenTimes::default()
    })
}
