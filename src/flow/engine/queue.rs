//! The work that has not begun: inputs, steps that are ready, and steps that do not go on by themselves.

use super::inputs::Inputs;
use super::limits::{LimitGroup, ProgramLimits};
use super::programs::Programs;
use super::ready::ReadySteps;
use super::{RunPlace, SuspendedStep};
use crate::flow::graph::{Failure, FailureCode, NodeIx, StepKey, StepRef};
use crate::flow::manifest::Flow;
use crate::text::timestamp::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(super) struct Queue {
    pub inputs: Inputs,
    /// Why roots fail at their start, by their numbers.
    pub faults: HashMap<usize, String>,
    pub ready: ReadySteps,
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
            ready: ReadySteps::default(),
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
        let why = why.named(&format!("{} of {}", place.node_id(&step), step.task));
        self.suspended.insert(step.key, (step, why));
        let first = due_at.filter(|due_at| self.first_due.is_none_or(|first| *due_at < first))?;
        self.first_due = Some(first);
        Some(first)
    }

    /// Makes the suspended steps ready whose times have come.
    pub(super) fn wake(&mut self, now: Timestamp) {
        while self.has_timer_due(now)
            && let Some((_, key)) = self.timers.pop_first()
        {
            if let Some((step, _)) = self.suspended.remove(&key) {
                self.ready.push_back(step);
            }
        }
    }

    pub(super) fn has_timer_due(&self, now: Timestamp) -> bool {
        self.timers
            .first()
            .is_some_and(|(due_at, _)| *due_at <= now)
    }

    pub(super) fn cancel(&mut self, key: StepKey) {
        self.suspended.remove(&key);
        self.ready.forget_delayed(key);
    }

    /// Makes as many steps ready as the limits that hold them have room for.
    pub(super) fn release_held(&mut self, programs: &Programs<'_>) {
        for group in self.ready.holding() {
            let room = self.limits.room(group, programs.nodes_at_work());
            self.ready.release_held(group, room);
        }
    }

    /// A limit that leaves no room for a step at a node.
    pub(super) fn full_group(&self, node: NodeIx, programs: &Programs<'_>) -> Option<LimitGroup> {
        let mut groups = self.limits.groups_of(node).iter().copied();
        groups.find(|group| self.limits.room(*group, programs.nodes_at_work()) == 0)
    }

    /// The failure of a root whose input is not valid, at its start.
    pub(super) fn input_fault(&self, place: &RunPlace<'_>, step: &StepRef) -> Option<Failure> {
        let fault = self.faults.get(&step.key.root)?;
        let is_start = step.is_root && step.node == place.plan.start;
        is_start.then(|| Failure::new(FailureCode::SchemaIn, fault.as_str()))
    }
}
