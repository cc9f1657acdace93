//! A run's results: its status, its output, and a report of each task.
//!
//! Unaware of files and of time. Nothing here depends on how many programs ran at once.

use super::events::edge_name;
use crate::flow::graph::{
    Failure, FlowStatus, Graph, Payload, RoutePlan, Router, TaskKind, TaskStatus, TaskView,
};
use crate::text::json::{self, Object};
use std::collections::BTreeMap;

/// The version of the JSON object.
pub(crate) const SCHEMA_VERSION: &str = "1.0";

/// A root task that has ended.
#[derive(Debug)]
pub(crate) struct FinishedRoot {
    number: usize,
    status: FlowStatus,
    output: Option<Payload>,
    exit: Option<String>,
    /// The node that failed, and how.
    error: Option<(String, Failure)>,
    /// The reports of the root and of all that came of it: objects, separated by commas.
    tasks: String,
    counts: TaskCounts,
}

/// How many tasks and failures there were.
#[derive(Clone, Copy, Debug, Default)]
struct TaskCounts {
    tasks: usize,
    clones: usize,
    subtasks: usize,
    nodes: usize,
    failed_nodes: usize,
}

impl TaskCounts {
    fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.clones += other.clones;
        self.subtasks += other.subtasks;
        self.nodes += other.nodes;
        self.failed_nodes += other.failed_nodes;
    }
}

impl FinishedRoot {
    pub(crate) fn of(
        plan: &RoutePlan<'_>,
        number: usize,
        router: &Router<'_>,
        with_tasks: bool,
    ) -> Self {
        let graph = plan.graph;
        let root = router.view(0);
        let mut counts = TaskCounts::default();
        let mut tasks = Vec::new();
        let mut first_error = None;
        for task in router.tasks() {
            let view = router.view(task);
            counts.tasks += 1;
            counts.clones += usize::from(view.kind == TaskKind::Clone);
            counts.subtasks += usize::from(view.kind == TaskKind::Subtask);
            counts.nodes += view.path.len();
            counts.failed_nodes += view.failed.len();
            if first_error.is_none() {
                first_error.clone_from(&view.error);
            }
            if with_tasks {
                tasks.push(task_object(graph, &view));
            }
        }
        let status = match root.status {
            TaskStatus::Ended(status) => status,
            TaskStatus::Open | TaskStatus::Cancelled => FlowStatus::Failure,
        };
        // What failed on the way to a merge is in a task of its own.
        let gathered = first_error.filter(|_| status == FlowStatus::Partial);
        let error = root.error.or(gathered);
        Self {
            number,
            status,
            exit: root.exit.map(|node| graph.nodes[node].id.clone()),
            error: error.map(|(node, failure)| (graph.nodes[node].id.clone(), failure)),
            output: root.output,
            tasks: tasks.join(","),
            counts,
        }
    }

    pub(crate) fn failed(&self) -> bool {
        self.status == FlowStatus::Failure
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.status == FlowStatus::Success
    }

    /// Adds the output as a line; with many inputs, `null` if there is no output.
    fn add_output(&self, out: &mut Vec<u8>, many: bool) {
        match &self.output {
            Some(output) => out.extend_from_slice(output.as_bytes()),
            None if many => out.extend_from_slice(b"null"),
            None => return,
        }
        out.push(b'\n');
    }

    /// The line of `--format jsonl`.
    pub(crate) fn line(&self, run_id: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object
            .put("run_id", run_id)
            .put("task_id", &format!("T{}", self.number))
            .put("status", self.status.name())
            .put("exit_node", &self.exit)
            .raw(
                "output",
                self.output.as_deref().unwrap_or("null").as_bytes(),
            );
        let error = self.error.as_ref();
        write_error(&mut object, error.map(|(node, it)| (node.as_str(), it)));
        object.end();
        out.push(b'\n');
        out
    }
}

fn task_object(graph: &Graph, view: &TaskView<'_>) -> String {
    let id = |node: usize| graph.nodes[node].id.as_str();
    let ids = |nodes: &[usize]| nodes.iter().map(|node| id(*node)).collect::<Vec<_>>();
    let mut out = Vec::new();
    let mut task = Object::begin(&mut out);
    task.put("task_id", view.id)
        .put("parent", &view.parent)
        .put("type", view.kind.name())
        .put("index", &view.index)
        .put("edge", &view.edge.map(|edge| edge_name(graph, edge)))
        .put("status", view.status.name())
        .put("path", &ids(&view.path))
        .put("exit_node", &view.exit.map(id))
        .put("merged_at", &view.merged_at.map(id))
        .raw(
            "output",
            view.output.as_deref().unwrap_or("null").as_bytes(),
        )
        .put("failed_nodes", &ids(&view.failed));
    write_error(
        &mut task,
        view.error.as_ref().map(|(node, it)| (id(*node), it)),
    );
    task.end();
    String::from_utf8(out).unwrap_or_default()
}

fn write_error(object: &mut Object<'_>, error: Option<(&str, &Failure)>) {
    let Some((node, failure)) = error else {
        object.raw("error", b"null");
        return;
    };
    let mut error = Object::begin(object.nest("error"));
    error
        .put("code", failure.code.name())
        .put("node", node)
        .put("message", &*failure.message);
    error.end();
}

/// Which roots a tally keeps; of the others it has sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeping {
    #[default]
    All,
    /// Those that a failure before them may still cut off, and the outputs of all.
    Outputs,
    /// Those that a failure before them may still cut off.
    BehindOpen,
    Sums,
}

/// The summed results of roots that are not kept.
#[derive(Debug, Default)]
struct RootSums {
    roots: usize,
    /// The highest number among them.
    last: usize,
    counts: TaskCounts,
    succeeded: bool,
    first_failure: Option<BadRoot>,
    first_partial: Option<BadRoot>,
    /// Their outputs, a line each, in order; none unless outputs are kept.
    outputs: Vec<u8>,
}

/// A root that did not succeed.
#[derive(Debug)]
struct BadRoot {
    number: usize,
    error: Option<(String, Failure)>,
}

/// The results of all root tasks.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    finished: BTreeMap<usize, FinishedRoot>,
    cut: Option<usize>,
    keeping: Keeping,
    sums: RootSums,
}

impl RootSums {
    fn add(&mut self, root: FinishedRoot) {
        self.roots += 1;
        self.last = self.last.max(root.number);
        self.counts.add(&root.counts);
        let first = match root.status {
            FlowStatus::Success => {
                self.succeeded = true;
                return;
            }
            FlowStatus::Partial => &mut self.first_partial,
            FlowStatus::Failure => &mut self.first_failure,
        };
        if first.as_ref().is_none_or(|it| root.number < it.number) {
            *first = Some(BadRoot {
                number: root.number,
                error: root.error,
            });
        }
    }
}

impl Tally {
    /// Nothing has ended.
    pub(crate) fn new(keeping: Keeping) -> Self {
        Self {
            keeping,
            ..Self::default()
        }
    }

    /// A root task has ended.
    pub(crate) fn add(&mut self, mut finished: FinishedRoot) {
        if self.cut.is_some_and(|cut| finished.number > cut) {
            return;
        }
        if self.keeping != Keeping::All {
            finished.tasks = String::new();
        }
        if matches!(self.keeping, Keeping::BehindOpen | Keeping::Sums) {
            finished.output = None;
        }
        self.finished.insert(finished.number, finished);
        let is_due = |number: usize, sums: &RootSums| match self.keeping {
            Keeping::All => false,
            Keeping::Outputs | Keeping::BehindOpen => sums.last.checked_add(1) == Some(number),
            Keeping::Sums => true,
        };
        while let Some(first) = self.finished.first_entry()
            && is_due(*first.key(), &self.sums)
        {
            let root = first.remove();
            if self.keeping == Keeping::Outputs {
                root.add_output(&mut self.sums.outputs, true);
            }
            self.sums.add(root);
        }
    }

    /// Roots behind this one do not count.
    pub(crate) fn cut_after(&mut self, number: usize) {
        self.cut = Some(number);
        self.finished.split_off(&number.saturating_add(1));
    }

    /// Forgets all roots but the last.
    pub(crate) fn keep_last(&mut self) {
        if let Some((&last, _)) = self.finished.last_key_value() {
            self.finished = self.finished.split_off(&last);
        }
    }

    /// The status of all. Where failures cut nothing off, some of several are a part.
    pub(crate) fn status(&self) -> FlowStatus {
        let any = |status| {
            let of_sums = match status {
                FlowStatus::Success => self.sums.succeeded,
                FlowStatus::Partial => self.sums.first_partial.is_some(),
                FlowStatus::Failure => self.sums.first_failure.is_some(),
            };
            of_sums || self.finished.values().any(|it| it.status == status)
        };
        let all_failed = || !any(FlowStatus::Success) && !any(FlowStatus::Partial);
        if any(FlowStatus::Failure) && (self.cut.is_some() || all_failed()) {
            FlowStatus::Failure
        } else if any(FlowStatus::Failure) || any(FlowStatus::Partial) {
            FlowStatus::Partial
        } else {
            FlowStatus::Success
        }
    }

    /// Why it is not a success, in a line.
    pub(crate) fn reason(&self) -> Option<String> {
        let (number, error) = self
            .first_bad(FlowStatus::Failure)
            .or_else(|| self.first_bad(FlowStatus::Partial))?;
        Some(match error {
            Some((node, failure)) => {
                let (code, message) = (failure.code.name(), &failure.message);
                format!("T{number}: {node}: {code}: {message}")
            }
            None => format!("T{number}: it ended in an exit that always fails"),
        })
    }

    /// The first root that ended like this, and why.
    fn first_bad(&self, status: FlowStatus) -> Option<(usize, Option<&(String, Failure)>)> {
        let of_sums = match status {
            FlowStatus::Failure => self.sums.first_failure.as_ref(),
            FlowStatus::Partial => self.sums.first_partial.as_ref(),
            FlowStatus::Success => None,
        };
        let of_sums = of_sums.map(|bad| (bad.number, bad.error.as_ref()));
        let kept = self.finished.values().find(|it| it.status == status);
        let kept = kept.map(|it| (it.number, it.error.as_ref()));
        of_sums
            .into_iter()
            .chain(kept)
            .min_by_key(|(number, _)| *number)
    }

    /// The outputs, a line each, in two parts; with many inputs, `null` for a missing one.
    pub(crate) fn outputs(&self, many: bool) -> (&[u8], Vec<u8>) {
        let mut rest = Vec::new();
        for finished in self.finished.values() {
            finished.add_output(&mut rest, many);
        }
        (&self.sums.outputs, rest)
    }

    /// Writes status, exit, output, error, tasks and counts into an object.
    pub(crate) fn write(&self, object: &mut Object<'_>, many: bool, status: Option<&str>) {
        let single = self.finished.values().next().filter(|_| !many);
        object
            .put("status", status.unwrap_or(self.status().name()))
            .put("exit_node", &single.and_then(|it| it.exit.as_deref()));
        let output = if many {
            let outputs = self.finished.values().map(|it| it.output.as_deref());
            let texts: Vec<&str> = outputs.map(|it| it.unwrap_or("null")).collect();
            format!("[{}]", texts.join(","))
        } else {
            let output = single.and_then(|it| it.output.as_deref());
            output.unwrap_or("null").to_owned()
        };
        object.raw("output", output.as_bytes());
        let mut failed = self
            .finished
            .values()
            .filter(|it| it.status != FlowStatus::Success);
        let error = failed.find_map(|it| it.error.as_ref());
        write_error(object, error.map(|(node, it)| (node.as_str(), it)));
        let tasks = self.finished.values().map(|it| it.tasks.as_str());
        let tasks = tasks.collect::<Vec<_>>().join(",");
        object.raw("tasks", format!("[{tasks}]").as_bytes());
    }

    /// How much there was of everything.
    pub(crate) fn write_counts(&self, object: &mut Object<'_>) {
        let sum = |of: fn(&TaskCounts) -> usize| -> usize {
            let kept: usize = self.finished.values().map(|it| of(&it.counts)).sum();
            kept + of(&self.sums.counts)
        };
        object
            .put("roots", &(self.finished.len() + self.sums.roots))
            .put("tasks", &sum(|it| it.tasks))
            .put("clones", &sum(|it| it.clones))
            .put("subtasks", &sum(|it| it.subtasks))
            .put("nodes", &sum(|it| it.nodes))
            .put("failed_nodes", &sum(|it| it.failed_nodes));
    }

    /// The output of a single input, in short, for the summary of the run.
    pub(crate) fn summary(&self) -> String {
        let first = self.finished.values().next();
        let output = first.and_then(|it| it.output.as_deref()).unwrap_or("null");
        match self.finished.len() + self.sums.roots {
            0 | 1 if self.sums.roots == 0 => crate::text::shorten::in_short(output, 2000),
            1 => json::text("1 output"),
            count => json::text(&format!("{count} outputs")),
        }
    }
}
