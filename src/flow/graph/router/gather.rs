//! Arrivals at a merge, and its input.

use super::report::{FlowStatus, TaskEnding};
use super::{FrameIx, OpenStep, Order, Progress, RoutedTask, Router, StepIx, TaskIx, Traveller};
use crate::flow::graph::choice::{Failure, FailureCode, Payload};
use crate::flow::graph::topology::{Graph, MergeFailureMode, NodeIx};
use crate::text::json;
use crate::text::order;

/// A merge that has been opened for one task.
#[derive(Debug, Default)]
pub(super) struct Instance {
    /// The number of arrivals still possible.
    pub expected: usize,
    /// The merge has begun, or never will.
    pub is_over: bool,
    arrivals: Vec<Traveller>,
    failures: Vec<Missing>,
}

impl Instance {
    pub(super) fn is_empty(&self) -> bool {
        self.arrivals.is_empty() && self.failures.is_empty()
    }
}

#[derive(Debug)]
struct Missing {
    task: TaskIx,
    node: NodeIx,
    failure: Failure,
    order: Order,
}

/// Gathered by a merge, in order of place.
#[derive(Debug)]
pub(crate) struct Gathered {
    arrivals: Vec<Traveller>,
    failures: Vec<Missing>,
}

impl Router<'_> {
    pub(super) fn arrive(&mut self, merge: NodeIx, frame: Option<FrameIx>, arrival: Traveller) {
        let (ix, slot) = self.instance(merge, frame);
        let owner = self.frames[ix].task;
        if self.frames[ix].instances[slot].is_empty() {
            self.tasks[owner].live += 1;
        }
        if owner != arrival.task {
            let status = FlowStatus::of(arrival.so_far.partial);
            let ending = TaskEnding {
                merged_at: Some(merge),
                is_taken: true,
                ..TaskEnding::new(status, Some(arrival.payload.clone()))
            };
            let fork = self.fork_around(arrival.task, frame);
            let ending = (fork, arrival.so_far.order, ending);
            self.tasks[arrival.task].endings.push(ending);
        }
        self.frames[ix].instances[slot].arrivals.push(arrival);
    }

    /// Passes a failure to the merges that could have been reached next, if they gather more than the
    /// step that failed. Returns whether any belongs to the same task, and whether any to another.
    pub(super) fn report_failure(&mut self, step: &OpenStep) -> (bool, bool) {
        let (mut own, mut others) = (false, false);
        let mut ignored = true;
        let mut pending: Vec<NodeIx> = self.plan.waits[step.node].to_vec();
        let mut seen = pending.clone();
        let Some((_, failure)) = self.tasks[step.task].failures.last().cloned() else {
            return (own, others);
        };
        while let Some(merge) = pending.pop() {
            let (ix, slot) = self.instance(merge, step.frame);
            if !self.has_fork_between(step.frame, ix) {
                for &next in &*self.plan.waits[merge] {
                    if !seen.contains(&next) {
                        seen.push(next);
                        pending.push(next);
                    }
                }
                continue;
            }
            let owner = self.frames[ix].task;
            own |= owner == step.task;
            others |= owner != step.task;
            let mode = self.plan.graph.nodes[merge].merge_failure_mode;
            ignored &= mode == MergeFailureMode::IgnoreFailures;
            let instance = &mut self.frames[ix].instances[slot];
            if instance.is_empty() {
                self.tasks[owner].live += 1;
            }
            instance.failures.push(Missing {
                task: step.task,
                node: step.node,
                failure: failure.clone(),
                order: step.so_far.order,
            });
        }
        if ignored && (own || others) {
            self.tasks[step.task].ignored.push(step.node);
        }
        (own, others)
    }

    /// Looks from a frame up to another one, both included.
    fn has_fork_between(&self, from: Option<FrameIx>, to: FrameIx) -> bool {
        let mut at = from;
        while let Some(ix) = at {
            if self.frames[ix].fork.is_some() {
                return true;
            }
            if ix == to {
                return false;
            }
            at = self.frames[ix].above;
        }
        false
    }

    /// Begins the step of a merge that has gathered all that can come.
    pub(super) fn begin_merge(&mut self, merge: NodeIx, frame: FrameIx, slot: usize) {
        let instance = &mut self.frames[frame].instances[slot];
        let mut arrivals = std::mem::take(&mut instance.arrivals);
        let mut failures = std::mem::take(&mut instance.failures);
        let (task, so_far) = (self.frames[frame].task, self.frames[frame].so_far);
        // A frame in which nothing else can happen is left, so that long chains stay flat.
        let is_done = self.frames[frame].fork.is_none() && self.frames[frame].instances.len() == 1;
        let around = if is_done {
            self.frames[frame].above
        } else {
            Some(frame)
        };
        order::sort_by_key(&mut arrivals, |arrival| {
            self.place_of_order(arrival.so_far.order)
        });
        order::sort_by_key(&mut failures, |missing| self.place_of_order(missing.order));
        let mode = self.plan.graph.nodes[merge].merge_failure_mode;
        let ignores = mode == MergeFailureMode::IgnoreFailures;
        let mut partials = arrivals.iter().filter(|arrival| arrival.so_far.partial);
        let partial = so_far.partial
            || partials.any(|arrival| arrival.task == task || !ignores)
            || (mode == MergeFailureMode::Partial && !failures.is_empty());
        let orders = arrivals.iter().map(|arrival| arrival.so_far.order);
        let orders_of_all = orders.chain(failures.iter().map(|missing| missing.order));
        let first = orders_of_all.min_by_key(|order| self.place_of_order(*order));
        let order = (first.map_or(task, |(task, _)| task), self.plan.rank[merge]);
        let ways = arrivals.iter().map(|arrival| arrival.so_far.trail);
        let trail = self.joined(so_far.trail, ways);
        // What was gathered counted as one thing that lives; from now on the step does.
        self.tasks[task].live -= 1;
        let step = OpenStep {
            task,
            node: merge,
            payload: "null".into(),
            frame: around,
            so_far: Progress {
                partial,
                order,
                trail,
            },
            gathered: Some(Box::new(Gathered { arrivals, failures })),
        };
        self.start_step(step, None);
    }

    /// A place to compare: for each task from the root on, which fork of its parent and which child.
    pub(super) fn place_of_order(&self, (task, merge): Order) -> (Vec<(usize, usize)>, usize) {
        let mut place = Vec::new();
        let mut at = task;
        while let Some((parent, frame, _)) = self.tasks[at].origin {
            let rank = self.plan.rank[self.frames[frame].node];
            place.push((rank, self.tasks[at].index));
            at = parent;
        }
        place.reverse();
        (place, merge)
    }
}

impl Router<'_> {
    /// The order of a step among those of its root: by its task's place, then by its node.
    pub(crate) fn place_of(&self, ix: StepIx) -> Option<impl Ord + use<>> {
        let step = self.steps.get(&ix)?;
        Some(self.place_of_order((step.task, self.plan.rank[step.node])))
    }

    /// A step's failure, known before anything of it has run.
    pub(crate) fn failed_early(&self, ix: StepIx) -> Option<Failure> {
        let step = self.steps.get(&ix)?;
        let mode = self.plan.graph.nodes[step.node].merge_failure_mode;
        let message = step.gathered.as_ref()?.fault(mode, &self.tasks)?;
        Some(Failure::new(FailureCode::UpstreamFailure, message))
    }

    /// The payload that a step works on.
    pub(crate) fn input(&self, ix: StepIx) -> Option<Payload> {
        self.steps.get(&ix).map(|step| self.input_of(step))
    }

    pub(super) fn input_of(&self, step: &OpenStep) -> Payload {
        match &step.gathered {
            Some(gathered) => gathered.input(self.plan.graph, &self.tasks),
            None => step.payload.clone(),
        }
    }

    /// The output of a step whose node has no operation.
    pub(crate) fn identity(&self, ix: StepIx) -> Option<Payload> {
        let step = self.steps.get(&ix)?;
        Some(match &step.gathered {
            Some(gathered) => gathered.outputs(),
            None => step.payload.clone(),
        })
    }
}

impl Gathered {
    /// The numbers of arrivals and of failures on the way.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.arrivals.len(), self.failures.len())
    }

    /// The input of the merge.
    pub(super) fn input(&self, graph: &Graph, tasks: &[RoutedTask]) -> Payload {
        let out = json::object(|object| {
            object.objects("merge_inputs", &self.arrivals, |entry, arrival| {
                entry
                    .put("node_id", &graph.nodes[graph.edges[arrival.edge].from].id)
                    .put("task_id", &*tasks[arrival.task].id)
                    .put("index", &tasks[arrival.task].index)
                    .put("status", FlowStatus::of(arrival.so_far.partial).name())
                    .raw("output", arrival.payload.as_bytes());
            });
            object.objects("failures", &self.failures, |entry, missing| {
                entry
                    .put("node_id", &graph.nodes[missing.node].id)
                    .put("task_id", &*tasks[missing.task].id)
                    .put("index", &tasks[missing.task].index)
                    .put("status", FlowStatus::Failure.name());
                entry.object("error", |error| {
                    error
                        .put("code", missing.failure.code.name())
                        .put("message", &*missing.failure.message);
                });
            });
        });
        // It is made of strings.
        String::from_utf8(out).unwrap_or_default().into()
    }

    /// The outputs of those that arrived, as a list.
    pub(super) fn outputs(&self) -> Payload {
        json_list(self.arrivals.iter().map(|arrival| &*arrival.payload))
    }

    /// The reason why the merge must not run, if there is one.
    pub(super) fn fault(&self, mode: MergeFailureMode, tasks: &[RoutedTask]) -> Option<String> {
        let first = self.failures.first()?;
        let fails = match mode {
            MergeFailureMode::FailOnAny => true,
            MergeFailureMode::IgnoreFailures => false,
            MergeFailureMode::Partial => self.arrivals.is_empty(),
        };
        let (all, failed) = (self.arrivals.len(), self.failures.len());
        fails.then(|| {
            format!(
                "{failed} of {} failed on the way here, first {}: {}: {}",
                all + failed,
                tasks[first.task].id,
                first.failure.code.name(),
                first.failure.message
            )
        })
    }
}

/// JSON texts as one list.
pub(super) fn json_list<'t>(texts: impl Iterator<Item = &'t str>) -> Payload {
    let mut out = String::from("[");
    for (number, text) in texts.enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str(text);
    }
    out.push(']');
    out.into()
}
