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

impl FlowEngine<'_> {
    /// Does what a router wants. `input` is that of a new root.
    pub(super) fn drain_router(&mut self, number: usize, input: Option<&RootInput>) -> Result<()> {
        while let Some(router) = self.roots.open.get_mut(&number)
            && let Some(effect) = router.next_effect()
        {
            match effect {
                Effect::Start(step) => self.queue.ready.push_back(step),
                Effect::Cancel(key) => self.cancel_step(key),
                Effect::Won(..) => {
                    self.events.add_effect(router, &effect, input);
                    self.events.journal.sync()?;
                }
                report => self.events.add_effect(router, &report, input),
            }
        }
        self.harvest_root(number);
        Ok(())
    }

    /// Takes in the result of a root that is over, which makes room for others.
    pub(super) fn harvest_root(&mut self, number: usize) {
        let router = self.roots.open.get(&number).filter(|it| it.is_over());
        let Some(router) = router else { return };
        let with_tasks = self.options.with_tasks;
        let finished = FinishedRoot::of(self.place.plan, number, router, with_tasks);
        if finished.succeeded() {
            self.programs.spent.remove_empty_dirs(&self.place, router);
        }
        self.roots.open.remove(&number);
        self.queue.faults.remove(&number);
        self.context.forget(number);
        if self.options.prints_roots {
            self.roots
                .lines
                .extend_from_slice(&finished.line(self.place.run.id.as_str()));
        }
        if finished.failed() && !self.options.keep_going {
            self.give_up_after(number);
        }
        self.roots.tally.add(finished);
    }

    fn cancel_step(&mut self, key: StepKey) {
        self.queue.cancel(key);
        self.attempts.counts.remove(&key);
        self.attempts.deferred.remove(&key);
        self.programs.cancel(key);
    }

    /// Cancels the roots after one that has failed. Those before it go on, so that the first failure is the same however
    /// many run at once.
    fn give_up_after(&mut self, number: usize) {
        let first = self
            .roots
            .failed
            .map_or(number, |failed| failed.min(number));
        self.roots.failed = Some(first);
        self.roots.tally.cut_after(first);
        for mut router in self.roots.open.split_off(&(first + 1)).into_values() {
            router.cancel();
            while let Some(effect) = router.next_effect() {
                if let Effect::Cancel(key) = effect {
                    self.cancel_step(key);
                }
            }
        }
    }
}
