//! The work that has not begun: inputs, steps that are ready, and steps that do not go on by themselves.

use super::inputs::Inputs;
use super::limits::{LimitGroup, ProgramLimits};
use super::programs::Programs;
use super::ready::ReadySteps;
use super::{RunPlace, SuspendedStep};
use crate::flow::graph::{Failure, FailureCode, NodeIx, StepKey, StepRef};
use crate::flow::manifest::Flow;
use std::collections::{BTreeMap, HashMap};

pub(super) struct Queue {
    pub inputs: Inputs,
    /// Why roots fail at their start, by their numbers.
    pub faults: HashMap<usize, String>,
    pub ready: ReadySteps,
    pub suspended: BTreeMap<StepKey, (StepRef, SuspendedStep)>,
    limits: ProgramLimits,
}

impl Queue {
    pub(super) fn new(inputs: Inputs, flow: &Flow) -> Self {
        Self {
            inputs,
            faults: HashMap::new(),
            ready: ReadySteps::default(),
            suspended: BTreeMap::new(),
            limits: ProgramLimits::new(flow),
        }
    }

    pub(super) fn suspend(&mut self, place: &RunPlace<'_>, step: StepRef, why: SuspendedStep) {
        let why = why.named(&format!("{} of {}", place.node_id(&step), step.task));
        self.suspended.insert(step.key, (step, why));
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
