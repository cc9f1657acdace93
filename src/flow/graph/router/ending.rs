//! Ends of tasks: what becomes of a task whose steps and children have all ended.

use super::gather::json_list;
use super::report::{FlowStatus, TaskEnding};
use super::{Effect, FrameIx, OpenStep, Order, Router, TaskIx};
use crate::flow::graph::topology::{Role, WinnerRule};
use crate::text::order;

/// One of several endings that are judged together.
type Item = (Order, TaskEnding);

impl Router<'_> {
    pub(super) fn exit(&mut self, step: &OpenStep) {
        let status = if self.plan.graph.nodes[step.node].always_fail {
            FlowStatus::Failure
        } else {
            FlowStatus::of(step.so_far.partial)
        };
        let ending = TaskEnding {
            exit: Some(step.node),
            ..TaskEnding::new(status, Some(step.payload.clone()))
        };
        self.add_ending(step, ending);
    }

    pub(super) fn fail(&mut self, step: &OpenStep) {
        let (own, others) = self.report_failure(step);
        // A merge of the same task goes on with it.
        if !own {
            let ending = TaskEnding {
                is_taken: others,
                ..TaskEnding::failed()
            };
            self.add_ending(step, ending);
        }
    }

    fn add_ending(&mut self, step: &OpenStep, ending: TaskEnding) {
        let fork = self.fork_around(step.task, step.frame);
        let ending = (fork, step.so_far.order, ending);
        self.tasks[step.task].endings.push(ending);
    }

    /// The innermost fork of a task around a frame.
    pub(super) fn fork_around(&self, task: TaskIx, frame: Option<FrameIx>) -> Option<FrameIx> {
        let mut at = frame;
        while let Some(ix) = at {
            let frame = &self.frames[ix];
            if frame.task != task {
                return None;
            }
            if frame.fork.is_some() {
                return Some(ix);
            }
            at = frame.above;
        }
        None
    }

    /// A step of a task is over: the task may be, and with it those that wait for it.
    pub(super) fn done(&mut self, task: TaskIx) {
        self.tasks[task].live -= 1;
        let mut at = task;
        while self.tasks[at].live == 0 && self.tasks[at].ended.is_none() {
            let ending = self.ending(at);
            self.tasks[at].ended = Some(ending);
            self.effects.push_back(Effect::Ended(at));
            let Some((parent, frame, _)) = self.tasks[at].origin else {
                return;
            };
            self.tasks[parent].live -= 1;
            self.race(frame);
            at = parent;
        }
    }

    /// A child that went straight to a merge has ended already.
    pub(super) fn done_later(&mut self, child: TaskIx) {
        if self.tasks[child].live == 0 {
            // It counted in its parent, whose own step still does.
            let ending = self.ending(child);
            self.tasks[child].ended = Some(ending);
            self.effects.push_back(Effect::Ended(child));
            if let Some((parent, _, _)) = self.tasks[child].origin {
                self.tasks[parent].live -= 1;
            }
        }
    }

    /// Looks whether a race is decided. The clones that have not won are cancelled.
    fn race(&mut self, frame: FrameIx) {
        let Some(fork) = &self.frames[frame].fork else {
            return;
        };
        let Some(rule) = fork.race.filter(|_| fork.winner.is_none()) else {
            return;
        };
        match rule {
            WinnerRule::Order => self.race_by_order(frame),
            WinnerRule::First => self.race_by_time(frame),
        }
    }

    /// The first child in order that succeeded wins, once all before it have ended otherwise.
    fn race_by_order(&mut self, frame: FrameIx) {
        let tasks = &self.tasks;
        let Some(fork) = &mut self.frames[frame].fork else {
            return;
        };
        while let Some(ending) = fork
            .children
            .get(fork.lost)
            .and_then(|child| tasks[*child].ended.as_ref())
        {
            if ending.status == FlowStatus::Success {
                fork.winner = Some(fork.lost);
                break;
            }
            fork.lost += 1;
        }
        if let Some(winner) = fork.winner {
            let losers = fork.children[winner + 1..].to_vec();
            for loser in losers {
                if self.tasks[loser].ended.is_some() {
                    // Its result depends on timing: it is reported once more, as cancelled.
                    self.effects.push_back(Effect::Ended(loser));
                } else {
                    self.cancel_task(loser);
                }
            }
        }
    }

    /// The first child that succeeded wins. Those that ended before it stay as they ended.
    fn race_by_time(&mut self, frame: FrameIx) {
        let succeeded = |child: &TaskIx| {
            let ended = self.tasks[*child].ended.as_ref();
            ended.is_some_and(|ended| ended.status == FlowStatus::Success)
        };
        let (node, task) = (self.frames[frame].node, self.frames[frame].task);
        let Some(fork) = &self.frames[frame].fork else {
            return;
        };
        let Some(winner) = fork.children.iter().position(succeeded) else {
            return;
        };
        let children = fork.children.clone();
        if let Some(fork) = &mut self.frames[frame].fork {
            fork.winner = Some(winner);
        }
        self.effects
            .push_back(Effect::Won(task, node, children[winner]));
        for child in children {
            self.cancel_task(child);
        }
    }

    fn cancel_task(&mut self, task: TaskIx) {
        let mut pending = vec![task];
        while let Some(at) = pending.pop() {
            if self.tasks[at].ended.is_some() {
                continue;
            }
            self.tasks[at].ended = Some(TaskEnding::failed());
            self.tasks[at].is_cancelled = true;
            for step in std::mem::take(&mut self.tasks[at].steps) {
                self.steps.remove(&step);
                self.effects.push_back(Effect::Cancel(self.key(step)));
            }
            self.effects.push_back(Effect::Ended(at));
            if let Some((parent, _, _)) = self.tasks[at].origin {
                self.tasks[parent].live -= 1;
            }
            for fork in &self.tasks[at].forks {
                let fork = self.frames[*fork].fork.as_ref();
                pending.extend(fork.map_or(&[][..], |fork| &fork.children));
            }
        }
    }

    /// The ending of a task in which nothing lives any more.
    fn ending(&mut self, task: TaskIx) -> TaskEnding {
        let mut endings = std::mem::take(&mut self.tasks[task].endings);
        if let [(None, _, _)] = endings.as_slice()
            && self.tasks[task].forks.is_empty()
            && let Some((_, _, only)) = endings.pop()
        {
            return only;
        }
        // Where the task itself went on, its merged children say nothing more of it.
        let went_on = !endings.is_empty();
        // A fork precedes those made after it and inside it.
        let mut forks = self.tasks[task].forks.clone();
        while let Some(frame) = forks.pop() {
            let mut items: Vec<Item> = Vec::new();
            endings.retain(|(fork, order, ending)| {
                let inside = *fork == Some(frame);
                if inside {
                    items.push((*order, ending.clone()));
                }
                !inside
            });
            let children = self.children_of(frame);
            let loose = children.iter().any(|(_, ending)| !ending.is_taken);
            items.extend(
                children
                    .into_iter()
                    .filter(|it| !(went_on && it.1.is_taken)),
            );
            order::sort_by_key(&mut items, |(order, _)| self.place_of_order(*order));
            let order = items.first().map_or((task, 0), |(order, _)| *order);
            if let Some(ending) = self.combined(frame, items, loose) {
                let around = self.fork_around(task, self.frames[frame].above);
                endings.push((around, order, ending));
            }
        }
        let mut items: Vec<Item> = endings
            .into_iter()
            .map(|(_, order, ending)| (order, ending))
            .collect();
        order::sort_by_key(&mut items, |(order, _)| self.place_of_order(*order));
        let judged = best_of_clones(items.iter().filter(|(_, ending)| !ending.is_taken));
        judged
            .or_else(|| merged_ending(&items))
            .unwrap_or(TaskEnding {
                is_taken: true,
                ..TaskEnding::failed()
            })
    }

    /// The children of a fork that have ended; of a race, those that have not lost.
    fn children_of(&self, frame: FrameIx) -> Vec<Item> {
        let Some(fork) = &self.frames[frame].fork else {
            return Vec::new();
        };
        let ended = |child: &TaskIx| Some(((*child, 0), self.tasks[*child].ended.clone()?));
        let counts = |child: &&TaskIx| !self.has_lost(**child);
        fork.children
            .iter()
            .filter(counts)
            .filter_map(ended)
            .collect()
    }

    /// The combined ending of a fork's items, in order of place; None for no items.
    fn combined(&self, frame: FrameIx, items: Vec<Item>, loose: bool) -> Option<TaskEnding> {
        let frame = &self.frames[frame];
        let node = &self.plan.graph.nodes[frame.node];
        let mut judged: Vec<&Item> = items
            .iter()
            .filter(|(_, ending)| !ending.is_taken)
            .collect();
        if judged.is_empty() {
            return merged_ending(&items);
        }
        if judged.len() == 1 && !loose {
            // All were merged, and the task went on.
            return judged.pop().map(|(_, ending)| ending.clone());
        }
        let mut ending = match node.role {
            Role::Branch => {
                let came = |it: &&Item| it.1.status != FlowStatus::Failure;
                if !judged.iter().any(came) && items.iter().any(|it| came(&it)) {
                    // One that a merge has is a success, too.
                    let merged: Vec<Item> = items.into_iter().filter(|it| it.1.is_taken).collect();
                    return merged_ending(&merged);
                }
                best_of_clones(judged.into_iter())?
            }
            _ => all_of_subtasks(&judged, node.continue_on_failure),
        };
        if ending.status == FlowStatus::Success && frame.so_far.partial {
            ending.status = FlowStatus::Partial;
        }
        Some(ending)
    }
}

/// For clones: the first that succeeded, or else the first that is partial.
fn best_of_clones<'e>(items: impl Iterator<Item = &'e Item> + Clone) -> Option<TaskEnding> {
    let with = |status| {
        let mut items = items.clone();
        items.find(|(_, ending)| ending.status == status)
    };
    let best = with(FlowStatus::Success).or_else(|| with(FlowStatus::Partial));
    if let Some((_, best)) = best {
        return Some(best.clone());
    }
    // A single ending is the task's own.
    let mut all = items;
    let (_, first) = all.next()?;
    if all.next().is_none() {
        return Some(first.clone());
    }
    Some(TaskEnding {
        output: None,
        exit: None,
        ..first.clone()
    })
}

/// For subtasks: all must have succeeded.
fn all_of_subtasks(items: &[&Item], continues: bool) -> TaskEnding {
    let count = |status| items.iter().filter(|(_, it)| it.status == status).count();
    let failed = count(FlowStatus::Failure);
    let status = match (failed, count(FlowStatus::Partial)) {
        (0, 0) => FlowStatus::Success,
        (0, _) => FlowStatus::Partial,
        (failed, _) if continues && failed < items.len() => FlowStatus::Partial,
        _ => FlowStatus::Failure,
    };
    let outputs = items
        .iter()
        .filter(|(_, ending)| ending.status != FlowStatus::Failure)
        .filter_map(|(_, ending)| ending.output.as_deref());
    TaskEnding::new(
        status,
        (status != FlowStatus::Failure).then(|| json_list(outputs)),
    )
}

/// The ending of a task of which merges have everything.
fn merged_ending(items: &[Item]) -> Option<TaskEnding> {
    let (_, first) = items.first()?;
    if items.len() == 1 {
        return Some(first.clone());
    }
    let all = |status| items.iter().all(|(_, it)| it.status == status);
    let status = if all(FlowStatus::Success) {
        FlowStatus::Success
    } else if all(FlowStatus::Failure) {
        FlowStatus::Failure
    } else {
        FlowStatus::Partial
    };
    let same = items.iter().all(|(_, it)| it.merged_at == first.merged_at);
    let outputs = items.iter().filter_map(|(_, it)| it.output.as_deref());
    let output = (status != FlowStatus::Failure).then(|| json_list(outputs));
    Some(TaskEnding {
        merged_at: first.merged_at.filter(|_| same),
        is_taken: true,
        ..TaskEnding::new(status, output)
    })
}
