//! The router: folds what has ended into what to start, cancel and report. A pure state
//! machine: no clock, no files, no processes.
//!
//! Unaware of commands, schemas and time. One router routes one root task and all tasks below it.
//!
//! Architecture invariant: the result depends on which outcome each step had and on nothing else.
//! Steps may end in any order, any number of them at once; tasks are named by their place, inputs of
//! merges are in order of place, and a decided race is reported the same way whether its losers
//! were still running or not.
//!
//! A task goes from node to node as a *step*. At a branch or a split the step ends in a fork, whose
//! items are the children. A merge begins a new step in the task of its scope ([`super::plan`]). A task
//! has ended when it has no step, no child that lives, and no merge that has gathered something.
//!
//! **Failures.** A failure that the node does not let pass ends the step. Every open merge that could still have
//! been reached next, and that gathers more than this one step, receives it and judges it.
//! Without such a merge the task fails. A merge that gathered only failures runs with an empty list
//! if it ignores failures, and fails otherwise (`upstream_failure`). A merge without arrivals,
//! not even failures, never runs.
//!
//! **Partial.** A task is partial once it went on after a failure, gathered one in a merge that counts
//! them, or gathered a task that is partial, unless the merge ignores failures.

mod report;
mod trail;
mod gather;
mod counting;
mod ending;
mod fork;

pub(crate) use gather::Gathered;
pub(crate) use report::{FlowStatus, TaskStatus, TaskView};
pub(crate) use trail::Note;

use super::choice::{Failure, Payload, Route};
use super::plan::RoutePlan;
use super::topology::{EdgeIx, NodeIx, Role, WinnerRule};
use crate::text::names::named_enum;
use gather::Instance;
use report::TaskEnding;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use trail::{NOTHING, Trail, TrailIx};

/// A task, by its index among those of its root. Indices depend on timing, ids do not.
pub(crate) type TaskIx = usize;

/// A step: one node in one task.
pub(crate) type StepIx = u64;

type FrameIx = usize;

/// By what things are ordered: the first task that they came from, and the rank of the last merge.
type Order = (TaskIx, usize);

/// A step among those of all roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StepKey {
    /// The number of its root task, from 1.
    pub root: usize,
    pub step: StepIx,
}

/// A step as its router started it, with all that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepRef {
    pub key: StepKey,
    pub task: Rc<str>,
    pub is_root: bool,
    pub node: NodeIx,
    /// The edge by which the task came; none at a start and at a merge.
    pub edge: Option<EdgeIx>,
}

/// Something to do, or to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Created(TaskIx),
    Start(StepRef),
    /// A step that was started is not wanted any more, whether it has begun or not.
    Cancel(StepKey),
    /// A task went on from a node along these edges; a split names each only once.
    Routed(TaskIx, NodeIx, Vec<EdgeIx>),
    /// A merge in this task has gathered all that can arrive: the numbers of arrivals and of failures.
    Merged(TaskIx, NodeIx, (usize, usize)),
    /// The race at a branch of this task is decided by time, and this clone has won. It must be on disk
    /// before anything is cancelled.
    Won(TaskIx, NodeIx, TaskIx),
    Ended(TaskIx),
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// The output, which chose this way on.
    Success(Payload, Route),
    /// A success from which on the task is partial.
    Partial(Payload, Route),
    Failure(Failure),
}

/// A step that has not ended.
#[derive(Debug)]
struct OpenStep {
    task: TaskIx,
    node: NodeIx,
    /// A merge's is made by [`Router::input`].
    payload: Payload,
    /// The innermost frame around it.
    frame: Option<FrameIx>,
    so_far: Progress,
    gathered: Option<Box<Gathered>>,
}

/// The way of a task up to here.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// The task is partial by now.
    partial: bool,
    /// By what the things that come of it are ordered.
    order: Order,
    trail: TrailIx,
}

impl Progress {
    fn begin(task: TaskIx) -> Self {
        Self {
            partial: false,
            order: (task, 0),
            trail: NOTHING,
        }
    }
}

/// A task on an edge.
#[derive(Debug)]
struct Traveller {
    task: TaskIx,
    edge: EdgeIx,
    payload: Payload,
    so_far: Progress,
}

named_enum! {
    /// The maker of a task.
    pub(crate) enum TaskKind {
        /// From an input.
        Root = "root",
        /// At a branch.
        Clone = "clone",
        /// At a split.
        Subtask = "subtask",
    }
}

#[derive(Debug)]
struct RoutedTask {
    id: Rc<str>,
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
    /// The nodes whose outputs are partial.
    partials: Vec<NodeIx>,
    /// The nodes of failures that only merges gathered that ignore them.
    ignored: Vec<NodeIx>,
    /// The ends of its steps that did not go on in this task, each in the innermost fork around it.
    endings: Vec<(Option<FrameIx>, Order, TaskEnding)>,
    ended: Option<TaskEnding>,
    /// True if it lost a race while something of it was under way.
    is_cancelled: bool,
}

/// The merges and children that a node has opened when a task ran it.
#[derive(Debug)]
struct Frame {
    node: NodeIx,
    task: TaskIx,
    above: Option<FrameIx>,
    /// Up to the node.
    so_far: Progress,
    /// One for each merge whose scope the node is.
    instances: Box<[Instance]>,
    fork: Option<TaskFork>,
}

#[derive(Debug)]
struct TaskFork {
    children: Vec<TaskIx>,
    /// In a race, the number of the first children that have lost.
    lost: usize,
    winner: Option<usize>,
    /// The rule of the race, if it is one.
    race: Option<WinnerRule>,
}

/// Routes one root task.
#[derive(Debug)]
pub(crate) struct Router<'p> {
    plan: &'p RoutePlan<'p>,
    /// The root task's, from 1.
    number: usize,
    tasks: Vec<RoutedTask>,
    frames: Vec<Frame>,
    steps: HashMap<StepIx, OpenStep>,
    trails: Vec<Trail>,
    next_step: StepIx,
    effects: VecDeque<Effect>,
    /// Instances that no task can reach any more.
    settled: Vec<(FrameIx, usize)>,
    cancelled: bool,
}

impl<'p> Router<'p> {
    /// The root task of this number, at the start.
    pub(crate) fn new(plan: &'p RoutePlan<'p>, number: usize, input: Payload) -> Self {
        let mut router = Self {
            plan,
            number,
            tasks: Vec::new(),
            frames: Vec::new(),
            steps: HashMap::new(),
            trails: Vec::new(),
            next_step: 0,
            effects: VecDeque::new(),
            settled: Vec::new(),
            cancelled: false,
        };
        let id = format!("T{number}");
        let root = router.create(id.into(), TaskKind::Root, None, number - 1);
        let start = OpenStep {
            task: root,
            node: plan.start,
            payload: input,
            frame: None,
            so_far: Progress::begin(root),
            gathered: None,
        };
        router.start_step(start, None);
        router
    }

    /// The next thing to do, in the order in which it came about.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The step was started, and has neither ended nor been cancelled.
    pub(crate) fn is_wanted(&self, step: StepIx) -> bool {
        self.steps.contains_key(&step)
    }

    /// Nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.cancelled || self.tasks[0].ended.is_some()
    }

    /// Stops everything; there is no result then.
    pub(crate) fn cancel(&mut self) {
        let mut steps: Vec<StepIx> = self.steps.drain().map(|(ix, _)| ix).collect();
        steps.sort_unstable();
        self.effects.clear();
        let root = self.number;
        let keys = steps.into_iter().map(|step| StepKey { root, step });
        self.effects.extend(keys.map(Effect::Cancel));
        self.cancelled = true;
    }

    /// Continues from the end of a step, if it is still wanted. The note is for the steps after it; see
    /// [`Self::notes`].
    pub(crate) fn end_step(&mut self, ix: StepIx, outcome: StepOutcome, note: Option<Note>) {
        let Some(mut step) = self.steps.remove(&ix) else {
            return;
        };
        let node = &self.plan.graph.nodes[step.node];
        let task = &mut self.tasks[step.task];
        task.steps.retain(|other| *other != ix);
        task.path.push(step.node);
        step.so_far.trail = self.noted(step.so_far.trail, note);
        let task = &mut self.tasks[step.task];
        let is_partial = matches!(outcome, StepOutcome::Partial(..));
        match outcome {
            StepOutcome::Success(output, choice) | StepOutcome::Partial(output, choice) => {
                if is_partial {
                    task.partials.push(step.node);
                    step.so_far.partial = true;
                }
                if !node.keeps_input(&output) {
                    step.payload = output;
                }
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
                        step.so_far.partial = true;
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
                let traveller = Traveller {
                    task,
                    edge,
                    payload: step.payload.clone(),
                    so_far: step.so_far,
                };
                self.travel(traveller, frame);
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
                let edges = self.plan.graph.outgoing(node).iter().copied();
                let each = edges.cycle().take(items.len()).collect();
                self.fork(step, each, items);
            }
        }
    }

    /// Takes a task to the end of an edge: to a node that it runs, or to a merge where it waits.
    fn travel(&mut self, traveller: Traveller, frame: Option<FrameIx>) {
        let node = self.plan.graph.edges[traveller.edge].to;
        if self.plan.graph.nodes[node].role == Role::Merge {
            self.arrive(node, frame, traveller);
            return;
        }
        self.enter(node, frame);
        let step = OpenStep {
            task: traveller.task,
            node,
            payload: traveller.payload,
            frame,
            so_far: traveller.so_far,
            gathered: None,
        };
        self.start_step(step, Some(traveller.edge));
    }

    fn start_step(&mut self, step: OpenStep, edge: Option<EdgeIx>) {
        let key = StepKey {
            root: self.number,
            step: self.next_step,
        };
        self.next_step += 1;
        let task = &mut self.tasks[step.task];
        task.live += 1;
        task.steps.push(key.step);
        if let Some(gathered) = &step.gathered {
            let merged = Effect::Merged(step.task, step.node, gathered.counts());
            self.effects.push_back(merged);
        }
        self.effects.push_back(Effect::Start(StepRef {
            key,
            task: Rc::clone(&task.id),
            is_root: task.origin.is_none(),
            node: step.node,
            edge,
        }));
        self.steps.insert(key.step, step);
    }

    fn key(&self, step: StepIx) -> StepKey {
        let root = self.number;
        StepKey { root, step }
    }

    /// A task's id, made of the places of its forebears and its own.
    pub(crate) fn id(&self, task: TaskIx) -> &str {
        &self.tasks[task].id
    }
}

#[cfg(test)]
mod tests;
