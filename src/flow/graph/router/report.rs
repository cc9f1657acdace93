//! The report of a task, independent of timing.

use super::{Router, TaskIx, TaskKind};
use crate::flow::graph::choice::{Failure, FailureCode, Payload};
use crate::flow::graph::topology::{EdgeIx, NodeIx, WinnerRule};
use crate::text::names::named_enum;
use crate::text::order;

named_enum! {
    /// The status of tasks and of what they bring.
    pub(crate) enum FlowStatus {
        Success = "success",
        /// Something failed, and it went on.
        Partial = "partial",
        Failure = "failure",
    }
}

impl FlowStatus {
    pub(super) fn of(partial: bool) -> Self {
        if partial {
            Self::Partial
        } else {
            Self::Success
        }
    }
}

/// The end of a task, a step or a fork.
#[derive(Clone, Debug)]
pub(super) struct TaskEnding {
    pub status: FlowStatus,
    pub output: Option<Payload>,
    pub exit: Option<NodeIx>,
    pub merged_at: Option<NodeIx>,
    /// A merge has it, even if it is a failure: the waiting parent does not judge it.
    pub is_taken: bool,
}

impl TaskEnding {
    /// One that no exit and no merge has.
    pub(super) fn new(status: FlowStatus, output: Option<Payload>) -> Self {
        Self {
            status,
            output,
            exit: None,
            merged_at: None,
            is_taken: false,
        }
    }

    pub(super) fn failed() -> Self {
        Self::new(FlowStatus::Failure, None)
    }
}

/// A task's status as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskStatus {
    Open,
    Ended(FlowStatus),
    /// A race is lost. How far the task came depends on time and is not reported.
    Cancelled,
}

impl TaskStatus {
    /// The name in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Open => "running",
            Self::Ended(status) => status.name(),
            Self::Cancelled => "cancelled",
        }
    }
}

/// A task as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskView<'r> {
    pub id: &'r str,
    /// The id of the task that it came from.
    pub parent: Option<&'r str>,
    /// The maker of the task.
    pub kind: TaskKind,
    /// Which child it is, from 0.
    pub index: usize,
    /// The edge on which it began.
    pub edge: Option<EdgeIx>,
    /// The state of the task.
    pub status: TaskStatus,
    /// The nodes that it ran, each after all that lead to it.
    pub path: Vec<NodeIx>,
    /// The exit that it reached; of a race, the winner's.
    pub exit: Option<NodeIx>,
    /// The merge that took it.
    pub merged_at: Option<NodeIx>,
    pub output: Option<Payload>,
    /// The nodes of its path that failed.
    pub failed: Vec<NodeIx>,
    /// The first of these failures, or that of its children; none of a task that succeeded.
    pub error: Option<(NodeIx, Failure)>,
}

impl Router<'_> {
    /// The root and all that came of it, children by place after their parents.
    pub(crate) fn tasks(&self) -> Vec<TaskIx> {
        let mut all = Vec::new();
        let mut pending = vec![0];
        while let Some(task) = pending.pop() {
            all.push(task);
            if self.has_lost(task) {
                continue;
            }
            let mut forks = self.tasks[task].forks.clone();
            order::sort_by_key(&mut forks, |fork| self.plan.rank[self.frames[*fork].node]);
            for fork in forks.into_iter().rev() {
                let fork = self.frames[fork].fork.as_ref();
                let children = fork.map_or(&[][..], |fork| &fork.children);
                pending.extend(children.iter().rev());
            }
        }
        all
    }

    /// The steps that kept the root task from success: each task with its node that failed or has a partial
    /// output. Failures that a merge ignores, and results of clones beside the winner, do not count.
    pub(crate) fn failed_steps(&self) -> Vec<(TaskIx, NodeIx)> {
        let mut failed = Vec::new();
        let succeeded = |task: TaskIx| {
            let ended = self.tasks[task].ended.as_ref();
            ended.is_some_and(|ended| ended.status == FlowStatus::Success)
        };
        if succeeded(0) {
            return failed;
        }
        for task in self.tasks() {
            if self.is_beside_a_winner(task) {
                continue;
            }
            let own = &self.tasks[task];
            let nodes = own.failures.iter().map(|(node, _)| *node);
            let counted = nodes.filter(|node| !own.ignored.contains(node));
            let all = counted.chain(own.partials.iter().copied());
            failed.extend(all.map(|node| (task, node)));
        }
        failed
    }

    /// The task, or one that it came from, ran in a race that is decided.
    fn is_beside_a_winner(&self, task: TaskIx) -> bool {
        let mut at = task;
        while let Some((parent, frame, _)) = self.tasks[at].origin {
            let fork = self.frames[frame].fork.as_ref();
            if fork.is_some_and(|fork| fork.winner.is_some()) {
                return true;
            }
            at = parent;
        }
        false
    }

    pub(super) fn has_lost(&self, task: TaskIx) -> bool {
        let Some((_, frame, _)) = self.tasks[task].origin else {
            return false;
        };
        let Some(fork) = &self.frames[frame].fork else {
            return false;
        };
        let Some(winner) = fork.winner else {
            return false;
        };
        match fork.race {
            // One that failed before time decided is what it is.
            Some(WinnerRule::First) => self.tasks[task].is_cancelled,
            _ => winner < self.tasks[task].index,
        }
    }

    pub(crate) fn view(&self, ix: TaskIx) -> TaskView<'_> {
        let task = &self.tasks[ix];
        let mut view = TaskView {
            id: &task.id,
            parent: task.origin.map(|(parent, _, _)| self.id(parent)),
            kind: task.kind,
            index: task.index,
            edge: task.origin.map(|(_, _, edge)| edge),
            status: TaskStatus::Open,
            path: Vec::new(),
            exit: None,
            merged_at: None,
            output: None,
            failed: Vec::new(),
            error: None,
        };
        if self.has_lost(ix) {
            view.status = TaskStatus::Cancelled;
            return view;
        }
        view.path.clone_from(&task.path);
        order::sort_by_key(&mut view.path, |node| self.plan.rank[*node]);
        let mut failures: Vec<_> = task.failures.iter().collect();
        order::sort_by_key(&mut failures, |(node, _)| self.plan.rank[*node]);
        view.failed = failures.iter().map(|(node, _)| *node).collect();
        if let Some(ended) = &task.ended {
            view.status = TaskStatus::Ended(ended.status);
            view.exit = ended.exit;
            view.merged_at = ended.merged_at;
            view.output.clone_from(&ended.output);
            if ended.status != FlowStatus::Success {
                let own = failures.first().map(|failure| (*failure).clone());
                view.error = own.or_else(|| self.children_error(ix));
            }
        }
        view
    }

    /// The failure of the first failed child, attributed to the node that made the child.
    fn children_error(&self, ix: TaskIx) -> Option<(NodeIx, Failure)> {
        let mut forks = self.tasks[ix].forks.clone();
        order::sort_by_key(&mut forks, |fork| self.plan.rank[self.frames[*fork].node]);
        forks.into_iter().rev().find_map(|ix| {
            let fork = self.frames[ix].fork.as_ref()?;
            if fork.winner.is_some() {
                return None;
            }
            let failed = fork.children.iter().find(|child| {
                let ended = self.tasks[**child].ended.as_ref();
                ended.is_some_and(|ended| ended.status != FlowStatus::Success && !ended.is_taken)
            })?;
            let view = self.view(*failed);
            let why = view.error.map_or_else(
                || "it ended in an exit that always fails".to_owned(),
                |(node, failure)| {
                    let node = &self.plan.graph.nodes[node].id;
                    format!("{node}: {}: {}", failure.code.name(), failure.message)
                },
            );
            let message = format!("{}: {why}", view.id);
            let failure = Failure::new(FailureCode::UpstreamFailure, message);
            Some((self.frames[ix].node, failure))
        })
    }
}
