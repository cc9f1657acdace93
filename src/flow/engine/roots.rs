//! The root tasks: what their routers want, and their results when they are over.

use super::FlowEngine;
use crate::error::Result;
use crate::flow::graph::{Effect, Router, StepKey};
use crate::flow::record::events::RootInput;
use crate::flow::record::replay::Roots;
use crate::flow::record::tally::{FinishedRoot, Tally};

pub(super) struct RootTasks<'e> {
    /// The routers of those that are not over, by number.
    pub open: Roots<'e>,
    /// The number of the first root that failed.
    pub failed: Option<usize>,
    pub tally: Tally,
    /// Lines about roots that have ended; printed when the journal has these.
    pub lines: Vec<u8>,
}

impl<'e> RootTasks<'e> {
    /// The router of a step that is still wanted.
    pub(super) fn router(&self, key: StepKey) -> Option<&Router<'e>> {
        let router = self.open.get(&key.root);
        router.filter(|router| router.is_wanted(key.step))
    }
}

/// Does what a router wants. `input` is that of a new root.
pub(super) fn drain(
    engine: &mut FlowEngine<'_>,
    number: usize,
    input: Option<&RootInput>,
) -> Result<()> {
    while let Some(router) = engine.roots.open.get_mut(&number)
        && let Some(effect) = router.next_effect()
    {
        match effect {
            Effect::Start(step) => engine.queue.ready.push_back(step),
            Effect::Cancel(key) => cancel(engine, key),
            Effect::Won(..) => {
                engine.events.add_effect(router, &effect, input);
                engine.events.journal.sync()?;
            }
            report => engine.events.add_effect(router, &report, input),
        }
    }
    harvest(engine, number);
    Ok(())
}

/// Takes in the result of a root that is over, which makes room for others.
pub(super) fn harvest(engine: &mut FlowEngine<'_>, number: usize) {
    let router = engine.roots.open.get(&number).filter(|it| it.is_over());
    let Some(router) = router else { return };
    let with_tasks = engine.options.with_tasks;
    let finished = FinishedRoot::of(engine.place.plan, number, router, with_tasks);
    if finished.succeeded() {
        engine
            .programs
            .spent
            .remove_empty_dirs(&engine.place, router);
    }
    engine.roots.open.remove(&number);
    engine.queue.faults.remove(&number);
    engine.context.forget(number);
    if engine.options.prints_roots {
        let line = finished.line(engine.place.run.id.as_str());
        engine.roots.lines.extend_from_slice(&line);
    }
    if finished.failed() && !engine.options.keep_going {
        give_up_after(engine, number);
    }
    engine.roots.tally.add(finished);
}

fn cancel(engine: &mut FlowEngine<'_>, key: StepKey) {
    engine.queue.cancel(key);
    engine.attempts.counts.remove(&key);
    engine.attempts.deferred.remove(&key);
    engine.programs.cancel(key);
}

/// Cancels the roots after one that has failed. Those before it go on, so that the first failure is the same however
/// many run at once.
fn give_up_after(engine: &mut FlowEngine<'_>, number: usize) {
    let first = engine
        .roots
        .failed
        .map_or(number, |failed| failed.min(number));
    engine.roots.failed = Some(first);
    engine.roots.tally.cut_after(first);
    for mut router in engine.roots.open.split_off(&(first + 1)).into_values() {
        router.cancel();
        while let Some(effect) = router.next_effect() {
            if let Effect::Cancel(key) = effect {
                cancel(engine, key);
            }
        }
    }
}
