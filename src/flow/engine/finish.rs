//! The second half of a step: whether its output will do, and where it leads.

use super::programs::ActiveProgram;
use super::ready::wait_after;
use super::roots::drain;
use super::{FlowEngine, RunPlace};
use crate::error::{Result, may_fail};
use crate::flow::context::recall::find_lacking;
use crate::flow::graph::{
    Failure, FailureCode, Payload, Route, StepOutcome, StepRef, choose_route,
};
use crate::flow::record::cache::CachedFiles;
use crate::flow::record::made_files::{MadeFile, find_made_files};
use crate::flow::record::{
    AttemptEnd, EventWriter, NodeStart, Output, attempt, cache, check_schema, denial_name,
    dir_name, events, tool_calls,
};
use crate::text::amounts::format_duration;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use std::path::Path;
use std::time::{Duration, Instant};

/// A program could not answer what a context needs.
pub(super) fn fail_helper(
    engine: &mut FlowEngine<'_>,
    active: ActiveProgram,
    why: &str,
) -> Result<()> {
    let name = active.asks().map_or("", |ask| ask.kind.name());
    let counts = engine.attempts.counts.entry(active.step.key).or_default();
    counts.last = counts.last.saturating_add(1);
    let reference = attempt::reference(&engine.place.run.path, &active.io);
    let start = NodeStart {
        attempt: counts.last,
        execution_ref: Some(&reference),
        ..NodeStart::default()
    };
    engine.events.add_node_start(&active.step, start);
    let failure = Failure::new(FailureCode::Context, format!("{name}: {why}"));
    let ended = AttemptEnd {
        io: Some(active.io.clone()),
        ..AttemptEnd::default()
    };
    judge(engine, &active.step, Err(failure), ended)
}

/// Judges the result of a step: whether its output will do, whether it is tried again.
pub(super) fn judge(
    engine: &mut FlowEngine<'_>,
    step: &StepRef,
    result: std::result::Result<Payload, Failure>,
    mut ended: AttemptEnd,
) -> Result<()> {
    let flow = engine.place.flow;
    if engine.roots.router(step.key).is_none() {
        return Ok(());
    }
    let settings = &flow.nodes[step.node];
    let mut result = result;
    if result.is_ok() && ended.io.is_some() {
        let dir = engine.place.task_path(step);
        // Its files are part of what a node does, and of the time that it has.
        let left = settings
            .timeout
            .map(|all| all.saturating_sub(ended.duration));
        let due = left.map(|left| Instant::now() + left);
        let is_late = || due.is_some_and(|due| Instant::now() >= due);
        let is_stopped = || engine.programs.signals.stop().is_some() || is_late();
        match find_made_files(&dir, &settings.outputs, &is_stopped) {
            Ok(Some(made)) => ended.made = made,
            // The engine was asked to end. The next start begins the step again.
            Ok(None) if engine.programs.signals.stop().is_some() => return Ok(()),
            Ok(None) => result = Err(too_late(settings.timeout)),
            Err(why) => result = Err(Failure::new(FailureCode::Operation, why)),
        }
    }
    let fault = |output: &Payload| {
        let misfit = check_schema(flow.schema_out(step.node), output, FailureCode::SchemaOut);
        misfit.or_else(|| find_lacking(&settings.remember, output))
    };
    let result = result.and_then(|output| match fault(&output) {
        Some(failure) => Err(failure),
        None => choose_route(&flow.graph, step.node, &output).map(|route| (output, route)),
    });
    if let Err(failure) = &result {
        let attempts = engine.attempts.counts.entry(step.key).or_default();
        if attempts.failed < settings.retries && ended.io.is_some() {
            attempts.failed += 1;
            let wait = wait_after(attempts.failed);
            let due = Timestamp::now().plus(wait);
            engine.events.add_retry(step, failure, (due, ended.used));
            let how = format!("{}, again in {} s", failure.code.name(), wait.as_secs());
            engine.report_step(step, Err(&failure.message), &how);
            engine
                .queue
                .ready
                .delay(step.clone(), Instant::now() + wait);
            return Ok(());
        }
    }
    finish(engine, step, result, ended)
}

/// Records the end of a step and routes it.
pub(super) fn finish(
    engine: &mut FlowEngine<'_>,
    step: &StepRef,
    result: std::result::Result<(Payload, Route), Failure>,
    mut ended: AttemptEnd,
) -> Result<()> {
    if engine.roots.router(step.key).is_none() {
        return Ok(());
    }
    ended.records_removed = result.is_ok() && !ended.partial && engine.programs.spent.has(step.key);
    let kept = match &result {
        Ok((output, _)) => Ok(keep_output(engine, (step, output), &ended)?),
        Err(failure) => Err(failure.clone()),
    };
    engine.attempts.counts.remove(&step.key);
    let cache_key = engine.attempts.cache_keys.remove(&step.key);
    let cache_key = cache_key.filter(|_| !ended.partial);
    engine.table.count_end(result.is_ok());
    match &result {
        Ok((output, _)) => {
            if let Some(key) = cache_key {
                // Without room for it the run goes on.
                may_fail(write_cached(engine, step, &key, output, &ended.made));
            }
            let how = match (ended.cached, &ended.io) {
                (true, _) => "ok, cached".to_owned(),
                _ if ended.partial => format!("partial, {}", format_duration(ended.duration)),
                (false, Some(_)) => format!("ok, {}", format_duration(ended.duration)),
                (false, None) => "ok".to_owned(),
            };
            engine.report_step(step, Ok(()), &how);
        }
        Err(failure) => {
            engine.report_step(step, Err(&failure.message), failure.code.name());
        }
    }
    let time = engine.events.add_node_end(step, &kept, &ended);
    match ended.records_removed {
        true => engine.programs.spent.spend(&engine.place, step),
        false => engine.programs.spent.forget(step.key),
    }
    let (outcome, note) = match result {
        Ok((output, route)) => {
            let note = engine.context.note(engine.place.flow, step, &output, time);
            let outcome = match ended.partial {
                true => StepOutcome::Partial(output, route),
                false => StepOutcome::Success(output, route),
            };
            (outcome, note)
        }
        Err(failure) => (StepOutcome::Failure(failure), None),
    };
    if let Some(router) = engine.roots.open.get_mut(&step.key.root) {
        router.end_step(step.key.step, outcome, note);
    }
    drain(engine, step.key.root, None)
}

/// Keeps the output of a step, with the files that it made, for steps with the same key.
fn write_cached(
    engine: &FlowEngine<'_>,
    step: &StepRef,
    key: &str,
    output: &str,
    made: &[MadeFile],
) -> Result<()> {
    let place = &engine.place;
    if place.flow.nodes[step.node].outputs.is_empty() {
        return cache::write_entry(place.workspace, key, output);
    }
    let cached = CachedFiles {
        workspace: place.workspace,
        dir: &place.task_path(step),
        is_stopped: &|| engine.programs.signals.stop().is_some(),
    };
    cached.write_entry(key, output, made)
}

/// Writes an output where people look for it. Returns the form in which the journal has it.
fn keep_output(
    engine: &mut FlowEngine<'_>,
    (step, output): (&StepRef, &Payload),
    ended: &AttemptEnd,
) -> Result<Output> {
    if ended.identity {
        return Ok(Output::Identity);
    }
    let (run, linked) = (&engine.place.run.path, &mut engine.programs.linked);
    if ended.records_removed && output.len() <= events::INLINE {
        return Ok(Output::Text(output.clone()));
    }
    if let Some(io) = ended.io.as_ref().filter(|_| !ended.records_removed) {
        let name = io.join("output.json");
        let kept = events::keep_text(run, &attempt::reference(run, &name), output)?;
        if matches!(kept, Output::Text(_)) {
            linked.write(&name, output)?;
        }
        return Ok(kept);
    }
    let dir = format!("io/nodes/{}", dir_name(&step.task));
    files::make_dirs_below(run, Path::new(&dir))?;
    let name = format!("{dir}/{}.output.json", engine.place.node_id(step));
    events::keep_text(run, &name, output)
}

/// The failure of a node whose files cannot be read in the time that it has.
fn too_late(timeout: Option<Duration>) -> Failure {
    let ms = timeout.unwrap_or_default().as_millis();
    let message = format!("outputs: it took longer than {ms} ms, with the reading of its files");
    Failure::new(FailureCode::Timeout, message)
}

/// A failure, with the misuse of a tool that its program ended with, unless its message has that.
pub(super) fn with_misuse(failure: Failure, misuse: Option<String>) -> Failure {
    match misuse {
        Some(why) if failure.code == FailureCode::Operation && !failure.message.contains(&why) => {
            Failure::new(failure.code, format!("{}: {why}", failure.message))
        }
        _ => failure,
    }
}

/// Records which tools an attempt has called, but for the calls that the journal has. Returns what is
/// wrong with the last call, if it was none that could be run.
pub(super) fn add_tool_calls(
    events: &mut EventWriter<'_>,
    place: &RunPlace<'_>,
    step: &StepRef,
    (io, known): (&Path, &[String]),
) -> Result<Option<String>> {
    let mut misuse = None;
    for (name, call) in tool_calls::read_calls(io)? {
        let path = io.join(tool_calls::DIR).join(name);
        let reference = attempt::reference(&place.run.path, &path);
        if let Some(denied) = &call.denied
            && !known.contains(&denial_name(&reference))
        {
            events.add_denial(step, denied, Some(&reference));
        }
        if !known.iter().any(|known| *known == reference) {
            events.add_tool_call(step, &reference, &call);
        }
        let code = call.code;
        misuse = call
            .message
            .filter(|_| code.is_some_and(tool_calls::CallCode::is_misuse));
    }
    Ok(misuse)
}
