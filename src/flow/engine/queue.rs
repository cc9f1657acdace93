//! The work that has not begun: inputs, steps that are ready, those that a limit holds, retries that are not due, and steps
//! that do not go on by themselves.
//!
//! Unaware of time: the caller passes it.

use super::inputs::Inputs;
use super::programs::Programs;
use super::{RunPlace, SuspendedStep};
use crate::flow::graph::{Failure, FailureCode, NodeIx, StepKey, StepRef};
use crate::flow::manifest::Flow;
use crate::text::timestamp::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// An index of [`ProgramLimits`].
pub(super) type LimitGroup = usize;

/// The limits of a flow, each for a group of nodes: those of one, or of one provider.
struct ProgramLimits {
    /// The most programs of each group.
    groups: Vec<usize>,
    /// The groups of each node: none of one that runs nothing.
    of_node: Vec<Vec<LimitGroup>>,
}

impl ProgramLimits {
    fn new(flow: &Flow) -> Self {
        let mut limits = Self {
            groups: Vec::new(),
            of_node: vec![Vec::new(); flow.nodes.len()],
        };
        for (node, settings) in flow.nodes.iter().enumerate() {
            limits.add(settings.limit.filter(|_| settings.runs()), |it| it == node);
        }
        for (index, provider) in flow.providers.iter().enumerate() {
            limits.add(provider.limit, |node| flow.provider(node) == Some(index));
        }
        limits
    }

    fn add(&mut self, limit: Option<usize>, is_of_group: impl Fn(NodeIx) -> bool) {
        let Some(limit) = limit else { return };
        for (node, groups) in self.of_node.iter_mut().enumerate() {
            if is_of_group(node) {
                groups.push(self.groups.len());
            }
        }
        self.groups.push(limit);
    }

    /// The number of further programs of a group that may run.
    fn room(&self, group: LimitGroup, programs: &Programs<'_>) -> usize {
        let used = programs
            .nodes_at_work()
            .filter(|node| self.of_node[*node].contains(&group));
        self.groups[group].saturating_sub(used.count())
    }
}

/// The wait of a step after this many failed attempts: a second after the first, doubled by each other, at most five
/// minutes.
pub(super) fn wait_after(failed: u32) -> Duration {
    let doubled = 1_u64 << failed.saturating_sub(1).min(9);
    Duration::from_secs(doubled.min(300))
}

pub(super) struct Queue {
    pub inputs: Inputs,
    /// The reasons why roots fail at their start, by their numbers.
    pub faults: HashMap<usize, String>,
    pub ready: VecDeque<StepRef>,
    /// By the limit that has no room for them.
    held: BTreeMap<LimitGroup, VecDeque<StepRef>>,
    /// Retries, by the time when they are due.
    due: BTreeSet<(Instant, StepKey)>,
    delayed: HashMap<StepKey, (Instant, StepRef)>,
    pub suspended: BTreeMap<StepKey, (StepRef, SuspendedStep)>,
    /// Suspended steps that go on in this start when their times come.
    timers: BTreeSet<(Timestamp, StepKey)>,
    /// The earliest time that a step was suspended for.
    first_due: Option<Timestamp>,
    limits: ProgramLimits,
}

impl Queue {
    pub(super) fn new(inputs: Inputs, flow: &Flow) -> Self {
        Self {
            inputs,
            faults: HashMap::new(),
            ready: VecDeque::new(),
            held: BTreeMap::new(),
            due: BTreeSet::new(),
            delayed: HashMap::new(),
            suspended: BTreeMap::new(),
            timers: BTreeSet::new(),
            first_due: None,
            limits: ProgramLimits::new(flow),
        }
    }

    /// Returns the time that the step waits for, if it is earlier than those of all steps before.
    pub(super) fn suspend(
        &mut self,
        place: &RunPlace<'_>,
        step: StepRef,
        why: SuspendedStep,
    ) -> Option<Timestamp> {
        let due_at = why.due_at;
        if let Some(due_at) = due_at
            && !place.flow.is_own_run(step.node)
        {
            self.timers.insert((due_at, step.key));
        }
        let named = why.named(&format!("{} of {}", place.node_id(&step), step.task));
        self.suspended.insert(step.key, (step, named));
        let first = due_at.filter(|due_at| self.first_due.is_none_or(|first| *due_at < first))?;
        self.first_due = Some(first);
        Some(first)
    }

    /// The step is ready at that time, and not before.
    pub(super) fn delay(&mut self, step: StepRef, due: Instant) {
        self.due.insert((due, step.key));
        self.delayed.insert(step.key, (due, step));
    }

    /// The step waits until a limit has room.
    pub(super) fn hold(&mut self, step: StepRef, group: LimitGroup) {
        self.held.entry(group).or_default().push_back(step);
    }

    pub(super) fn cancel(&mut self, key: StepKey) {
        self.suspended.remove(&key);
        if let Some((due, _)) = self.delayed.remove(&key) {
            self.due.remove(&(due, key));
        }
    }

    /// Makes the retries ready that are due, the one that has waited longest first; the suspended steps whose times have
    /// come; and as many as the limits that hold them have room for.
    pub(super) fn release(&mut self, programs: &Programs<'_>, now: Instant, time: Timestamp) {
        let mut released = Vec::new();
        while let Some((due, key)) = self.due.first().copied()
            && due <= now
        {
            self.due.pop_first();
            released.extend(self.delayed.remove(&key).map(|(_, step)| step));
        }
        self.put_first(released);
        while let Some((due_at, key)) = self.timers.first().copied()
            && due_at <= time
        {
            self.timers.pop_first();
            self.ready
                .extend(self.suspended.remove(&key).map(|(step, _)| step));
        }
        for group in self.held.keys().copied().collect::<Vec<_>>() {
            let room = self.limits.room(group, programs);
            if let Some(held) = self.held.get_mut(&group) {
                let released = held.drain(..room.min(held.len())).collect();
                self.put_first(released);
            }
        }
        self.held.retain(|_, held| !held.is_empty());
    }

    fn put_first(&mut self, steps: Vec<StepRef>) {
        for step in steps.into_iter().rev() {
            self.ready.push_front(step);
        }
    }

    /// The time when the next retry is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        Some(self.due.first()?.0)
    }

    /// The number of steps that wait for something else than a free place or a time.
    pub(super) fn held(&self) -> usize {
        let held: usize = self.held.values().map(VecDeque::len).sum();
        held + self.delayed.len()
    }

    /// A limit that leaves no room for a step at a node.
    pub(super) fn full_group(&self, node: NodeIx, programs: &Programs<'_>) -> Option<LimitGroup> {
        let mut groups = self.limits.of_node[node].iter().copied();
        groups.find(|group| self.limits.room(*group, programs) == 0)
    }

    /// The failure of a root whose input is not valid, at its start.
    pub(super) fn input_fault(&self, place: &RunPlace<'_>, step: &StepRef) -> Option<Failure> {
        let fault = self.faults.get(&step.key.root)?;
        let is_start = step.is_root && step.node == place.plan.start;
        is_start.then(|| Failure::new(FailureCode::SchemaIn, fault))
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
