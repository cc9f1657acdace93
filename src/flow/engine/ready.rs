//! Steps that are to begin: those that may at once, those that a limit holds, and retries that are not due.
//!
//! Unaware of programs and of time: the caller passes the time, and what a limit has room for.

use super::limits::LimitGroup;
use crate::flow::graph::{StepKey, StepRef};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The wait of a step after this many failed attempts: a second after the first, doubled by each other, at most five
/// minutes.
pub(super) fn wait_after(failed: u32) -> Duration {
    let doubled = 1_u64 << failed.saturating_sub(1).min(9);
    Duration::from_secs(doubled.min(300))
}

/// The steps that have not begun.
#[derive(Default)]
pub(super) struct ReadySteps {
    now: VecDeque<StepRef>,
    /// By the limit that has no room for them. None is empty.
    held: BTreeMap<LimitGroup, VecDeque<StepRef>>,
    /// Retries, by the time when they are due.
    due: BTreeSet<(Instant, StepKey)>,
    delayed: HashMap<StepKey, (Instant, StepRef)>,
}

impl ReadySteps {
    pub(super) fn push_back(&mut self, step: StepRef) {
        self.now.push_back(step);
    }

    /// It is the next one.
    pub(super) fn push_front(&mut self, step: StepRef) {
        self.now.push_front(step);
    }

    /// It waits until a limit has room.
    pub(super) fn hold(&mut self, step: StepRef, group: LimitGroup) {
        self.held.entry(group).or_default().push_back(step);
    }

    /// The limits that hold steps.
    pub(super) fn holding(&self) -> Vec<LimitGroup> {
        self.held.keys().copied().collect()
    }

    /// Makes this many of the steps ready that a limit holds.
    pub(super) fn release_held(&mut self, group: LimitGroup, count: usize) {
        let Some(held) = self.held.get_mut(&group) else {
            return;
        };
        for step in held.drain(..count.min(held.len())).rev() {
            self.now.push_front(step);
        }
        if held.is_empty() {
            self.held.remove(&group);
        }
    }

    /// It is ready at that time, and not before.
    pub(super) fn delay(&mut self, step: StepRef, due: Instant) {
        self.due.insert((due, step.key));
        self.delayed.insert(step.key, (due, step));
    }

    /// The step was cancelled: its time does not matter.
    pub(super) fn forget_delayed(&mut self, key: StepKey) {
        if let Some((due, _)) = self.delayed.remove(&key) {
            self.due.remove(&(due, key));
        }
    }

    /// Makes the retries ready that are due, the one that has waited longest first.
    pub(super) fn release(&mut self, now: Instant) {
        let mut released = Vec::new();
        while let Some((due, key)) = self.due.first().copied()
            && due <= now
        {
            self.due.pop_first();
            released.extend(self.delayed.remove(&key));
        }
        for (_, step) in released.into_iter().rev() {
            self.now.push_front(step);
        }
    }

    pub(super) fn pop(&mut self) -> Option<StepRef> {
        self.now.pop_front()
    }

    /// When the next retry is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        Some(self.due.first()?.0)
    }

    /// The number of steps that wait, for any reason.
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.held()
    }

    /// The number of steps that wait for something else than a free place.
    pub(super) fn held(&self) -> usize {
        let held: usize = self.held.values().map(VecDeque::len).sum();
        held + self.delayed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_a_second_to_five_minutes() {
        let seconds = |failed| wait_after(failed).as_secs();
        let waits: Vec<u64> = (1..=10).map(seconds).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        for failed in [64, 65, u32::MAX] {
            assert_eq!(seconds(failed), 300);
        }
    }
}
