//! Creates tasks: the root, clones and subtasks.

use super::{
    Effect, FrameIx, OpenStep, Progress, RoutedTask, Router, TaskFork, TaskIx, TaskKind, Traveller,
};
use crate::flow::graph::choice::Payload;
use crate::flow::graph::topology::{EdgeIx, Role};
use std::rc::Rc;

impl Router<'_> {
    /// The end of a branch or a split: a child for each of these edges.
    pub(super) fn fork(&mut self, step: &OpenStep, edges: Vec<EdgeIx>, payloads: Vec<Payload>) {
        let (task, node) = (step.task, step.node);
        let is_branch = self.plan.graph.nodes[node].role == Role::Branch;
        let mut used = edges.clone();
        used.truncate(self.plan.graph.outgoing(node).len());
        self.effects.push_back(Effect::Routed(task, node, used));
        let fork = TaskFork {
            children: Vec::with_capacity(edges.len()),
            lost: 0,
            winner: None,
            race: (is_branch && self.plan.races[node])
                .then_some(self.plan.graph.nodes[node].winner),
        };
        let frame = self.open(step, Some(fork));
        let (kind, letter) = if is_branch {
            (TaskKind::Clone, 'c')
        } else {
            (TaskKind::Subtask, 's')
        };
        // The first fork of a task comes before any other of it; the others are named by their node.
        let suffix = match self.tasks[task].forks.len() {
            0 => String::new(),
            _ => format!("@{}", self.plan.graph.nodes[node].id),
        };
        if let Some(frame) = frame {
            self.tasks[task].forks.push(frame);
            for (index, (edge, payload)) in edges.into_iter().zip(payloads).enumerate() {
                let id = format!("{}.{letter}{index}{suffix}", self.tasks[task].id);
                let child = self.create(id.into(), kind, Some((task, frame, edge)), index);
                self.tasks[task].live += 1;
                if let Some(fork) = &mut self.frames[frame].fork {
                    fork.children.push(child);
                }
                let traveller = Traveller {
                    task: child,
                    edge,
                    payload,
                    so_far: Progress {
                        trail: step.so_far.trail,
                        ..Progress::begin(child)
                    },
                };
                self.travel(traveller, Some(frame));
                self.done_later(child);
            }
        }
        self.check(frame);
    }

    /// A new task, with nothing to do yet.
    pub(super) fn create(
        &mut self,
        id: Rc<str>,
        kind: TaskKind,
        origin: Option<(TaskIx, FrameIx, EdgeIx)>,
        index: usize,
    ) -> TaskIx {
        let ix = self.tasks.len();
        self.tasks.push(RoutedTask {
            id,
            kind,
            origin,
            index,
            live: 0,
            steps: Vec::new(),
            forks: Vec::new(),
            path: Vec::new(),
            failures: Vec::new(),
            partials: Vec::new(),
            ignored: Vec::new(),
            endings: Vec::new(),
            ended: None,
            is_cancelled: false,
        });
        self.effects.push_back(Effect::Created(ix));
        ix
    }
}
