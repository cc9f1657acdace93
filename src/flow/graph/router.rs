//! The router: what has ended, folded into what is to be started, cancelled and said. A pure state
//! machine: no clock, no files, no processes.
//!
//! Unaware of commands, schemas and time. One router routes one root task and all that comes of it.
//!
//! Architecture invariant: the result depends on which outcome each step had and on nothing else.
//! Steps may end in any order, any number of them at once; tasks are named by their place, inputs of
//! merges are in order of place, and what a race has decided is told the same way whether its losers
//! were still running or not.
//!
//! A task goes from node to node as a *step*. At a branch or a split the step ends in a fork, whose
//! items are the children. A merge begins a new step in the task of its scope ([`super::plan`]). A task
//! has ended when it has no step, no child that lives, and no merge that has gathered something.
//!
//! **Failures.** A failure that nobody lets pass ends the step. Every open merge that could still have
//! been reached next, and that gathers more than this one step, is told of it: it is for the merge to
//! judge. If there is none, the task fails. A merge that gathered only failures runs with an empty list
//! if it ignores failures, and fails otherwise (`upstream_failure`). A merge at which nobody arrived,
//! not even a failure, never runs.
//!
//! **Partial.** A task is partial once it went on after a failure, gathered one in a merge that counts
//! them, or gathered a task that is partial, unless the merge ignores failures.

mod fork;
mod trail;
mod counting;
mod ending;
mod gather;
mod report;

pub(crate) use ending::FlowStatus;
pub(crate) use gather::Gathered;
pub(crate) use report::{TaskStatus, TaskView};
pub(crate) use trail::Note;

use super::choice::{Failure, Payload, Route};
use super::plan::RoutePlan;
use super::topology::{EdgeIx, NodeIx, Role};
use ending::TaskEnding;
use gather::Instance;
use std::collections::{HashMap, VecDeque};
use trail::{NOTHING, Trail, TrailIx};

/// A task, by its index among those of its root. Indices depend on timing, ids do not.
pub(crate) type TaskIx = usize;

/// A step: one node in one task.
pub(crate) type StepIx = u64;

type FrameIx = usize;

/// By what things are ordered: the first task that they came from, and the rank of the last merge.
type Order = (TaskIx, usize);

/// What is to be done, or is to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A task has come to be.
    Created(TaskIx),
    /// A step is to be run.
    Start(StepIx),
    /// A step that was started is not wanted any more, whether it has begun or not.
    Cancel(StepIx),
    /// A task went on from a node along these edges; a split names each only once.
    Routed(TaskIx, NodeIx, Vec<EdgeIx>),
    /// A merge has gathered all that can come.
    Merging(StepIx),
    /// A task has ended.
    Ended(TaskIx),
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// With this output, which chose this way on.
    Success(Payload, Route),
    /// It did not.
    Failure(Failure),
}

/// What a step is.
#[derive(Debug)]
pub(crate) struct OpenStep {
    /// Whose.
    pub task: TaskIx,
    /// Where.
    pub node: NodeIx,
    /// The way by which the task came; none at a start and at a merge.
    pub edge: Option<EdgeIx>,
    /// What it works on; of a merge, see [`Router::input`].
    payload: Payload,
    /// The innermost frame around it.
    frame: Option<FrameIx>,
    /// Whether the task is partial by now.
    partial: bool,
    /// By what the things that come of it are ordered.
    place: Order,
    /// What it is behind.
    past: TrailIx,
    /// What a merge has gathered.
    gathered: Option<Box<Gathered>>,
}

/// How a task came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// From an input.
    Root,
    /// At a branch.
    Clone,
    /// At a split.
    Subtask,
}

#[derive(Debug)]
struct RoutedTask {
    id: Box<str>,
    kind: TaskKind,
    /// The task and the fork that it came from, and by which edge.
    origin: Option<(TaskIx, FrameIx, EdgeIx)>,
    index: usize,
    /// Steps, children that live, and merges that have gathered something and do not run yet.
    live: usize,
    steps: Vec<StepIx>,
    forks: Vec<FrameIx>,
    path: Vec<NodeIx>,
    failures: Vec<(NodeIx, Failure)>,
    /// How its steps ended that did not go on in this task, each in the innermost fork around it.
    endings: Vec<(Option<FrameIx>, Order, TaskEnding)>,
    ended: Option<TaskEnding>,
}

/// What a node has opened when a task ran it: merges, children, or both.
#[derive(Debug)]
struct Frame {
    node: NodeIx,
    task: TaskIx,
    above: Option<FrameIx>,
    partial: bool,
    /// What everything in it is behind.
    past: TrailIx,
    /// One for each merge whose scope the node is.
    instances: Box<[Instance]>,
    fork: Option<TaskFork>,
}

#[derive(Debug)]
struct TaskFork {
    children: Vec<TaskIx>,
    /// Of a race: so many of the first children have not won.
    lost: usize,
    winner: Option<usize>,
    races: bool,
}

/// Routes one root task.
#[derive(Debug)]
pub(crate) struct Router<'p> {
    plan: &'p RoutePlan<'p>,
    tasks: Vec<RoutedTask>,
    frames: Vec<Frame>,
    steps: HashMap<StepIx, OpenStep>,
    pasts: Vec<Trail>,
    next_step: StepIx,
    effects: VecDeque<Effect>,
    /// Instances that nobody can reach any more.
    settled: Vec<(FrameIx, usize)>,
    cancelled: bool,
}

impl<'p> Router<'p> {
    /// A root task of this name stands at the start.
    pub(crate) fn new(plan: &'p RoutePlan<'p>, id: &str, index: usize, input: Payload) -> Self {
        let mut router = Self {
            plan,
            tasks: Vec::new(),
            frames: Vec::new(),
            steps: HashMap::new(),
            pasts: Vec::new(),
            next_step: 0,
            effects: VecDeque::new(),
            settled: Vec::new(),
            cancelled: false,
        };
        let root = router.create(id.into(), TaskKind::Root, None, index);
        router.step(OpenStep {
            task: root,
            node: plan.start,
            edge: None,
            payload: input,
            frame: None,
            partial: false,
            place: (root, 0),
            past: NOTHING,
            gathered: None,
        });
        router
    }

    /// The next thing to do, in the order in which it came about.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A step that was started and has neither ended nor been cancelled.
    pub(crate) fn get(&self, step: StepIx) -> Option<&OpenStep> {
        self.steps.get(&step)
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.cancelled || self.tasks[0].ended.is_some()
    }

    /// Stops everything; there is no result then.
    pub(crate) fn cancel(&mut self) {
        let mut steps: Vec<StepIx> = self.steps.drain().map(|(ix, _)| ix).collect();
        steps.sort_unstable();
        self.effects.clear();
        self.effects.extend(steps.into_iter().map(Effect::Cancel));
        self.cancelled = true;
    }

    /// Takes note of how a step ended. One that is not running any more is passed over.
    pub(crate) fn ended(&mut self, ix: StepIx, outcome: StepOutcome) {
        self.ended_with(ix, outcome, None);
    }

    /// The same, with a note for the steps behind this one; see [`Self::notes`].
    pub(crate) fn ended_with(&mut self, ix: StepIx, outcome: StepOutcome, left: Option<Note>) {
        let Some(mut step) = self.steps.remove(&ix) else {
            return;
        };
        let node = &self.plan.graph.nodes[step.node];
        let task = &mut self.tasks[step.task];
        task.steps.retain(|other| *other != ix);
        task.path.push(step.node);
        step.past = self.noted(step.past, left);
        let task = &mut self.tasks[step.task];
        match outcome {
            StepOutcome::Success(output, choice) => {
                step.payload = output;
                self.go_on(&step, choice);
            }
            StepOutcome::Failure(failure) => {
                task.failures.push((step.node, failure));
                // Without an output there is no way on to choose.
                let choice = match node.role {
                    Role::Start | Role::Decision | Role::Split => None,
                    Role::Branch => Some(Route::Everywhere),
                    Role::Exit => Some(Route::End),
                    Role::Linear | Role::Merge => {
                        Some(Route::Along(self.plan.graph.outgoing(step.node)[0]))
                    }
                };
                match choice.filter(|_| node.continue_on_failure) {
                    Some(choice) => {
                        step.payload = self.input_of(&step);
                        step.partial = true;
                        self.go_on(&step, choice);
                    }
                    None => self.fail(&step),
                }
            }
        }
        self.leave(step.node, step.frame);
        self.settle();
        self.done(step.task);
    }

    /// The way on from a step that has ended. What it counted for is still counted.
    fn go_on(&mut self, step: &OpenStep, choice: Route) {
        let (task, node) = (step.task, step.node);
        match choice {
            Route::End => self.exit(step),
            Route::Along(edge) => {
                self.effects
                    .push_back(Effect::Routed(task, node, vec![edge]));
                let frame = self.open(step, None);
                let payload = step.payload.clone();
                let so_far = (step.partial, step.place, step.past);
                self.travel(task, edge, payload, frame, so_far);
                if frame != step.frame {
                    self.check(frame);
                }
            }
            Route::Everywhere => {
                let edges = self.plan.graph.outgoing(node).to_vec();
                let payloads = vec![step.payload.clone(); edges.len()];
                self.fork(step, edges, payloads);
            }
            Route::Items(items) => {
                let edges = self.plan.graph.outgoing(node);
                let edges = edges.iter().copied().cycle().take(items.len()).collect();
                self.fork(step, edges, items);
            }
        }
    }

    /// A task comes to the end of an edge: to a node that it runs, or to a merge where it waits.
    fn travel(
        &mut self,
        task: TaskIx,
        edge: EdgeIx,
        payload: Payload,
        frame: Option<FrameIx>,
        (partial, place, past): (bool, Order, TrailIx),
    ) {
        let node = self.plan.graph.edges[edge].to;
        if self.plan.graph.nodes[node].role == Role::Merge {
            self.arrive(node, frame, (task, edge, payload, partial, place, past));
            return;
        }
        self.enter(node, frame);
        self.step(OpenStep {
            task,
            node,
            edge: Some(edge),
            payload,
            frame,
            partial,
            place,
            past,
            gathered: None,
        });
    }

    fn step(&mut self, step: OpenStep) -> StepIx {
        let ix = self.next_step;
        self.next_step += 1;
        let task = &mut self.tasks[step.task];
        task.live += 1;
        task.steps.push(ix);
        if step.gathered.is_some() {
            self.effects.push_back(Effect::Merging(ix));
        }
        self.steps.insert(ix, step);
        self.effects.push_back(Effect::Start(ix));
        ix
    }

    /// A task's id, made of the places of its forebears and its own.
    pub(crate) fn id(&self, task: TaskIx) -> &str {
        &self.tasks[task].id
    }
}

#[cfg(test)]
mod tests;
