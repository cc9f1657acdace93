//! Goes on where the journal leaves a run: the ends that it has are routed again, and events that are
//! missing are added.

use super::FlowEngine;
use super::attempt_runs::KeptRun;
use super::finish::{add_tool_calls, finish};
use super::ready::wait_after;
use super::remember::{begin_recall, store_items};
use super::roots::harvest;
use super::wait::note_inputs;
use crate::error::Result;
use crate::flow::graph::{Effect, Failure, FailureCode, StepRef};
use crate::flow::manifest::ResumePolicy;
use crate::flow::record::lineage::Attempts;
use crate::flow::record::{AttemptEnd, Lineage, Replay, Replayed, TakenBack, each_line, edge_told};
use crate::record::event::{EventKind, FlowEvent};
use crate::record::reader::JournalSource;
use crate::text::amounts::counted;
use crate::text::timestamp::Timestamp;
use crate::unix::process;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Brings everything to where the journal leaves it.
pub(super) fn resume(engine: &mut FlowEngine<'_>, record: &[u8]) -> Result<()> {
    begin_recall(engine)?;
    let (flow, plan) = (engine.place.flow, engine.place.plan);
    let mut lineage = Lineage::default();
    let journal = JournalSource {
        path: engine.events.journal.path().to_owned(),
        read: Some(record),
    };
    let taken = TakenBack::read(journal.clone())?;
    let mut replay = Replay::new(plan, &engine.place.run.path, taken);
    let mut stored: HashSet<String> = HashSet::new();
    let mut dead = Vec::new();
    each_line(journal, false, |line| {
        lineage.add(line);
        let recall = &mut engine.context;
        let time = line.time().unwrap_or(Timestamp::from_millis(0));
        let replayed = replay.follow(&mut engine.roots.open, line, |step, output| {
            recall.note(flow, step, output, time)
        })?;
        match replayed {
            Replayed::Root(number, input) => {
                if let Some(fault) = line.input_error.as_deref() {
                    engine.queue.faults.insert(number, fault.to_owned());
                }
                engine.queue.inputs.pass_over(number, &input)?;
            }
            Replayed::RootEnd(number) => {
                harvest(engine, number);
                if !engine.roots.open.contains_key(&number) {
                    dead.extend(lineage.running_calls(Some(&format!("T{number}"))));
                    lineage.forget(&format!("T{number}"));
                }
            }
            Replayed::Other if line.kind == EventKind::Flow(FlowEvent::Retry) => {
                // What the steps that are done again had left in stores does not count.
                engine.context.forget_stored(&stored);
                stored.clear();
                lineage.retire(&replay.open_steps());
            }
            Replayed::Other if line.kind == EventKind::Flow(FlowEvent::Memory) => {
                stored.extend(line.item_id.as_deref().map(str::to_owned));
            }
            Replayed::End(_) => {
                engine
                    .table
                    .count_end(line.status.as_deref() != Some("failure"));
                let (programs, place) = (&mut engine.programs, &engine.place);
                programs.spent.spend_replayed(place, line, &lineage);
                programs.spent.remove(place, &engine.events.journal);
            }
            Replayed::Other => {}
        }
        Ok(true)
    })?;
    engine.context.forget_stored(&stored);
    store_items(engine, true)?;
    note_inputs(engine);
    for (number, report) in replay.unrecorded() {
        if let Some(router) = engine.roots.open.get(number) {
            engine.events.add_effect(router, report, None);
        }
    }
    // A race that is decided is on disk before its losers are ended.
    let is_won = |(_, effect): &(_, Effect)| matches!(effect, Effect::Won(..));
    if replay.unrecorded().any(is_won) {
        engine.events.journal.sync()?;
    }
    // Of cancelled steps, too.
    dead.extend(lineage.running_calls(None));
    engine.attempts.begun_before = lineage.begun_before();
    go_on(engine, replay.into_open(), &lineage, dead)
}

/// Begins again with the steps that have not ended.
fn go_on(
    engine: &mut FlowEngine<'_>,
    open: Vec<StepRef>,
    lineage: &Lineage,
    mut dead: Vec<String>,
) -> Result<()> {
    let flow = engine.place.flow;
    let mut failed = Vec::new();
    for step in open {
        let (node, edge) = (engine.place.node_id(&step), edge_told(&flow.graph, &step));
        let edge = edge.as_deref();
        let record = lineage.open_step(&step.task, node, edge);
        if let Some(record) = record.filter(|record| record.is_running) {
            if let Some(io) = record.records.last() {
                let io = engine.place.run.path.join(io);
                add_tool_calls(
                    &mut engine.events,
                    &engine.place,
                    &step,
                    (&io, &record.calls),
                )?;
            }
            let fails = flow.nodes[step.node].on_resume == ResumePolicy::Fail;
            if fails && record.call_id.is_some() && !flow.is_own_run(step.node) {
                failed.push(step);
                continue;
            }
        }
        if let Some((run, is_open)) = lineage.own_run(&step.task, node, edge) {
            engine
                .attempts
                .own_runs
                .insert(step.key, KeptRun { run, is_open });
        }
        let attempts = lineage.attempts(&step.task, node, edge);
        if let Some(record) = lineage.open_step(&step.task, node, edge) {
            let spent = &mut engine.programs.spent;
            record
                .records
                .iter()
                .for_each(|it| spent.note(step.key, it));
            let deferred = record.deferred.clone();
            let deferred = deferred.map(|deferred| (step.key, deferred));
            engine.attempts.deferred.extend(deferred);
        }
        if attempts.last > 0 || attempts.pause_acknowledged {
            engine.attempts.counts.insert(step.key, attempts);
        }
        match rest_of_wait(&attempts) {
            Some(wait) => engine.queue.ready.delay(step, Instant::now() + wait),
            None => engine.queue.ready.push_back(step),
        }
    }
    if engine.context.asks(flow) {
        dead.push(engine.calls_of_helpers());
    }
    end_leftovers(engine, &dead)?;
    for number in engine.roots.open.keys().copied().collect::<Vec<_>>() {
        harvest(engine, number);
    }
    for step in failed {
        let message = "the engine was stopped while it ran, and on_resume: fail is set";
        let failure = Failure::new(FailureCode::Operation, message);
        finish(engine, &step, Err(failure), AttemptEnd::default())?;
    }
    Ok(())
}

/// Ends what is left of programs whose engine died.
fn end_leftovers(engine: &mut FlowEngine<'_>, calls: &[String]) -> Result<()> {
    if !engine.options.is_ours || calls.is_empty() {
        return Ok(());
    }
    let count: usize = process::end_all_leftovers(calls);
    if count > 0 {
        let processes = counted(count, "process");
        let text = format!("ended {processes} that an engine that died had left");
        engine.warn(&text);
        engine.events.journal.flush()?;
    }
    Ok(())
}

/// How long a retry still waits. Neither a clock that jumped nor a record makes that longer than it was.
fn rest_of_wait(attempts: &Attempts) -> Option<Duration> {
    let rest = attempts.retry_at?.since(Timestamp::now());
    Some(rest.min(wait_after(attempts.failed)))
}
