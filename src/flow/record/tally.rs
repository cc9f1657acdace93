//! A run's results: its status, its output, and a report of each task.
//!
//! Unaware of files and of time. Nothing here depends on how many programs ran at once.

use super::events::edge_name;
use crate::flow::graph::{
    Failure, FlowStatus, Graph, NodeIx, Payload, RoutePlan, Router, TaskKind, TaskStatus, TaskView,
};
use crate::text::json::{self, Object};
use crate::text::shorten::in_short;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of the JSON object.
pub(crate) const SCHEMA_VERSION: &str = "1.0";

/// A failure with the name of its node.
#[derive(Clone, Debug)]
struct NamedFailure {
    node: String,
    failure: Failure,
}

impl NamedFailure {
    fn of(graph: &Graph, node: NodeIx, failure: &Failure) -> Self {
        Self {
            node: graph.nodes[node].id.clone(),
            failure: failure.clone(),
        }
    }

    fn object(&self) -> Value {
        let (code, message) = (self.failure.code.name(), &*self.failure.message);
        json!({"code": code, "node": self.node, "message": message})
    }
}

/// A root task that has ended.
#[derive(Debug)]
pub(crate) struct FinishedRoot {
    number: usize,
    status: FlowStatus,
    output: Option<Payload>,
    exit: Option<String>,
    error: Option<NamedFailure>,
    /// The reports of the root and of all that came of it: objects, separated by commas.
    tasks: String,
    counts: TaskCounts,
}

/// The numbers of tasks and failures.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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
            error: error.map(|(node, failure)| NamedFailure::of(graph, node, &failure)),
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
        json::line(|object| {
            object
                .put("run_id", run_id)
                .put("task_id", &format!("T{}", self.number))
                .put("status", self.status.name())
                .put("exit_node", &self.exit)
                .raw("output", or_null(self.output.as_ref()).as_bytes())
                .put("error", &self.error.as_ref().map(NamedFailure::object));
        })
    }
}

fn task_object(graph: &Graph, view: &TaskView<'_>) -> String {
    let id = |node: usize| graph.nodes[node].id.as_str();
    let ids = |nodes: &[usize]| nodes.iter().map(|node| id(*node)).collect::<Vec<_>>();
    let error = (view.error.as_ref())
        .map(|(node, failure)| NamedFailure::of(graph, *node, failure).object());
    let out = json::object(|task| {
        task.put("task_id", view.id)
            .put("parent", &view.parent)
            .put("type", view.kind.name())
            .put("index", &view.index)
            .put("edge", &view.edge.map(|edge| edge_name(graph, edge)))
            .put("status", view.status.name())
            .put("path", &ids(&view.path))
            .put("exit_node", &view.exit.map(id))
            .put("merged_at", &view.merged_at.map(id))
            .raw("output", or_null(view.output.as_ref()).as_bytes())
            .put("failed_nodes", &ids(&view.failed))
            .put("error", &error);
    });
    String::from_utf8(out).unwrap_or_default()
}

fn or_null(output: Option<&Payload>) -> &str {
    output.map_or("null", |output| output)
}

/// The roots that a tally keeps; of the others it has sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeping {
    #[default]
    All,
    /// Roots that a failure before them may still cut off, and the outputs of all.
    Outputs,
    /// Roots that a failure before them may still cut off.
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
    /// Their outputs, a line each, in order; empty unless outputs are kept.
    outputs: Vec<u8>,
}

/// The number of a root that did not succeed, and why.
type BadRoot = (usize, Option<NamedFailure>);

/// The results of all root tasks.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    finished: BTreeMap<usize, FinishedRoot>,
    cut: Option<usize>,
    keeping: Keeping,
    sums: RootSums,
    succeeded: bool,
    first_failure: Option<BadRoot>,
    first_partial: Option<BadRoot>,
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
        let number = finished.number;
        let first = match finished.status {
            FlowStatus::Success => None,
            FlowStatus::Partial => Some(&mut self.first_partial),
            FlowStatus::Failure => Some(&mut self.first_failure),
        };
        self.succeeded |= first.is_none();
        if let Some(first) = first
            && first.as_ref().is_none_or(|(other, _)| number < *other)
        {
            *first = Some((number, finished.error.clone()));
        }
        if self.keeping != Keeping::All {
            finished.tasks = String::new();
        }
        if matches!(self.keeping, Keeping::BehindOpen | Keeping::Sums) {
            finished.output = None;
        }
        self.finished.insert(number, finished);
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
            self.sums.roots += 1;
            self.sums.last = self.sums.last.max(root.number);
            self.sums.counts.add(&root.counts);
        }
    }

    /// Roots after this one, which has failed, do not count.
    pub(crate) fn cut_after(&mut self, number: usize) {
        self.cut = Some(number);
        self.finished.split_off(&number.saturating_add(1));
    }

    /// Forgets all roots but the last.
    pub(crate) fn keep_last(&mut self) {
        let last = self.finished.pop_last();
        *self = Self::new(self.keeping);
        if let Some((_, last)) = last {
            self.add(last);
        }
    }

    /// The status of all. Where failures cut nothing off, some of several are a part.
    pub(crate) fn status(&self) -> FlowStatus {
        let is_partial = self.first_partial.is_some();
        let all_failed = !self.succeeded && !is_partial;
        match self.first_failure {
            Some(_) if self.cut.is_some() || all_failed => FlowStatus::Failure,
            None if !is_partial => FlowStatus::Success,
            _ => FlowStatus::Partial,
        }
    }

    /// The reason why it is not a success, in a line.
    pub(crate) fn reason(&self) -> Option<String> {
        let first_bad = self.first_failure.as_ref().or(self.first_partial.as_ref());
        let (number, error) = first_bad?;
        Some(match error {
            Some(NamedFailure { node, failure }) => {
                let (code, message) = (failure.code.name(), &failure.message);
                format!("T{number}: {node}: {code}: {message}")
            }
            None => format!("T{number}: it ended in an exit that always fails"),
        })
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
        let all = || self.finished.values();
        let output = if many {
            let texts: Vec<&str> = all().map(|it| or_null(it.output.as_ref())).collect();
            format!("[{}]", texts.join(","))
        } else {
            or_null(single.and_then(|it| it.output.as_ref())).to_owned()
        };
        let mut failed = all().filter(|it| it.status != FlowStatus::Success);
        let error = failed.find_map(|it| it.error.as_ref());
        let tasks: Vec<&str> = all().map(|it| it.tasks.as_str()).collect();
        object
            .raw("output", output.as_bytes())
            .put("error", &error.map(NamedFailure::object))
            .raw("tasks", format!("[{}]", tasks.join(",")).as_bytes());
    }

    /// Writes the numbers of roots, tasks and failures.
    pub(crate) fn write_counts(&self, object: &mut Object<'_>) {
        let mut counts = self.sums.counts;
        self.finished.values().for_each(|it| counts.add(&it.counts));
        object
            .put("roots", &(self.finished.len() + self.sums.roots))
            .members(&counts);
    }

    /// The output of a single input, in short, for the summary of the run.
    pub(crate) fn summary(&self) -> String {
        let first = self.finished.values().next();
        let output = or_null(first.and_then(|it| it.output.as_ref()));
        match self.finished.len() + self.sums.roots {
            0 | 1 if self.sums.roots == 0 => in_short(output, 2000),
            1 => json::text("1 output"),
            count => json::text(&format!("{count} outputs")),
        }
    }
}
