//! Counts the steps that can still reach each merge: from the run of its scope down to zero.

use super::gather::Instance;
use super::{Frame, FrameIx, OpenStep, Router, TaskFork};
use crate::flow::graph::topology::NodeIx;

impl Router<'_> {
    /// Opens what a node opens, in a frame of its own if that is anything.
    pub(super) fn open(&mut self, step: &OpenStep, fork: Option<TaskFork>) -> Option<FrameIx> {
        let merges = &self.plan.opens[step.node];
        if merges.is_empty() && fork.is_none() {
            return step.frame;
        }
        let ix = self.frames.len();
        self.frames.push(Frame {
            node: step.node,
            task: step.task,
            above: step.frame,
            so_far: step.so_far,
            instances: merges.iter().map(|_| Instance::default()).collect(),
            fork,
        });
        for &merge in merges {
            self.enter(merge, Some(ix));
        }
        Some(ix)
    }

    /// The instance of a merge for the steps of a frame.
    pub(super) fn instance(&self, merge: NodeIx, frame: Option<FrameIx>) -> (FrameIx, usize) {
        let scope = self.plan.scope[merge];
        let mut at = frame;
        while let Some(ix) = at {
            if self.frames[ix].node == scope {
                return (ix, self.plan.slot[merge]);
            }
            at = self.frames[ix].above;
        }
        unreachable!("a merge is waited for only where its scope has been run")
    }

    /// A step in this frame entered the node.
    pub(super) fn enter(&mut self, node: NodeIx, frame: Option<FrameIx>) {
        for &merge in &*self.plan.waits[node] {
            let (ix, slot) = self.instance(merge, frame);
            self.frames[ix].instances[slot].expected += 1;
        }
    }

    /// A step in this frame left the node.
    pub(super) fn leave(&mut self, node: NodeIx, frame: Option<FrameIx>) {
        for &merge in &*self.plan.waits[node] {
            let (ix, slot) = self.instance(merge, frame);
            let instance = &mut self.frames[ix].instances[slot];
            instance.expected -= 1;
            if instance.expected == 0 {
                self.settled.push((ix, slot));
            }
        }
    }

    /// Finds the merges of a frame that no step could reach from the beginning.
    pub(super) fn check(&mut self, frame: Option<FrameIx>) {
        let Some(ix) = frame else { return };
        for slot in 0..self.frames[ix].instances.len() {
            let instance = &self.frames[ix].instances[slot];
            if instance.expected == 0 && !instance.is_over {
                self.settled.push((ix, slot));
            }
        }
    }

    /// Runs the merges that no further step can reach, and drops those without arrivals.
    pub(super) fn settle(&mut self) {
        while let Some((ix, slot)) = self.settled.pop() {
            let frame = &mut self.frames[ix];
            let merge = self.plan.opens[frame.node][slot];
            let instance = &mut frame.instances[slot];
            if instance.expected > 0 || instance.is_over {
                continue;
            }
            instance.is_over = true;
            if instance.is_empty() {
                self.leave(merge, Some(ix));
            } else {
                // The step takes the instance's place and counts as it did.
                self.begin_merge(merge, ix, slot);
            }
        }
    }
}
