//! The work of earlier starts, read from the journal and routed again.
//!
//! Only inputs of roots and ends of steps count: tasks, ways and merges follow from them. What routers
//! report and the journal lacks, because the engine died between two lines, is known in the end.
//!
//! Unaware of attempts ([`super::lineage`]) and of programs.

use super::ends::root_number;
use super::events::{edge_name, failure_of, read_text};
use super::retry::Retries;
use crate::error::{Error, Result};
use crate::flow::graph::choice::{Payload, choose_route};
use crate::flow::graph::plan::RoutePlan;
use crate::flow::graph::router::{Effect, Note, Router, StepOutcome, StepRef};
use crate::flow::graph::topology::{EdgeIx, Graph, NodeIx};
use crate::record::event::flow::NodeEnd;
use crate::record::event::{Line, Recorded};
use crate::text::order;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The routers of the root tasks under way, by the numbers of these.
pub(crate) type Roots<'p> = BTreeMap<usize, Router<'p>>;

/// The name of a step in the journal.
type StepName = (Rc<str>, NodeIx, Option<EdgeIx>);

/// The state of routing at a line of the journal.
pub(crate) struct Replay<'p> {
    plan: &'p RoutePlan<'p>,
    /// The run's directory.
    run: PathBuf,
    open: HashMap<StepName, StepRef>,
    /// Reports of routers that the journal does not have yet, by their names and with the numbers of their roots. It has
    /// them in the same order, so that the first is the one that is looked for.
    unrecorded: VecDeque<(String, (usize, Effect))>,
    retries: Retries,
    /// The number of lines followed.
    lines: usize,
}

/// The meaning of a line of the journal.
pub(crate) enum Replayed {
    /// A root task with this number began with this input.
    Root(usize, Payload),
    /// The last thing that is recorded of a root.
    RootEnd(usize),
    /// This step has ended.
    End(StepRef),
    Other,
}

impl<'p> Replay<'p> {
    /// `retries` are those that the journal has.
    pub(crate) fn new(plan: &'p RoutePlan<'p>, run: &Path, retries: Retries) -> Self {
        Self {
            plan,
            run: run.to_owned(),
            retries,
            lines: 0,
            open: HashMap::new(),
            unrecorded: VecDeque::new(),
        }
    }

    /// Follows the next line. `note` is asked for the note of each step that has ended with an output.
    pub(crate) fn follow(
        &mut self,
        roots: &mut Roots<'p>,
        line: &Line<'_>,
        note: impl FnOnce(&StepRef, &Payload) -> Option<Note>,
    ) -> Result<Replayed> {
        let (task, node) = (&*line.task_id, &*line.node_id);
        let mut replayed = Replayed::Other;
        self.lines += 1;
        match &line.event {
            Recorded::TaskCreated(created) => {
                if !created.parent_id.is_some() {
                    let wrong = |what| Error::damaged(&self.run, format!("{task} {what}"));
                    let number = root_number(task).ok_or_else(|| wrong("is not a root task"))?;
                    let input = read_text(&self.run, created.input.0, &created.input_ref)?
                        .ok_or_else(|| wrong("has no input"))?;
                    roots.insert(number, Router::new(self.plan, number, input.clone()));
                    self.listen(roots, number);
                    replayed = Replayed::Root(number, input);
                }
                self.forget_report(&format!("C {task}"));
            }
            Recorded::TaskEnd(_) => {
                self.forget_report(&format!("E {task}"));
                if let Some(number) = root_number(task) {
                    replayed = Replayed::RootEnd(number);
                }
            }
            Recorded::Route(_) => self.forget_report(&format!("R {task} {node}")),
            Recorded::Merge(_) => self.forget_report(&format!("M {task} {node}")),
            Recorded::Winner(_) => self.forget_report(&format!("W {task} {node}")),
            Recorded::NodeEnd(end) if !self.retries.undo(line, self.lines) => {
                if let Some(step) = self.follow_end(roots, line, end, note)? {
                    replayed = Replayed::End(step);
                }
            }
            _ => {}
        }
        Ok(replayed)
    }

    fn follow_end(
        &mut self,
        roots: &mut Roots<'p>,
        line: &Line<'_>,
        end: &NodeEnd<'_>,
        note: impl FnOnce(&StepRef, &Payload) -> Option<Note>,
    ) -> Result<Option<StepRef>> {
        // A step may have been cancelled as it ended.
        let name = self.name_of(line);
        let Some(step) = name.and_then(|name| self.open.remove(&name)) else {
            return Ok(None);
        };
        let Some(router) = roots.get_mut(&step.key.root) else {
            return Ok(None);
        };
        let (outcome, note) = if end.has_failed() {
            let failure = failure_of(&end.code, &end.message);
            (StepOutcome::Failure(failure), None)
        } else {
            let output = read_text(&self.run, end.output.0, &end.output_ref)?
                .or_else(|| router.identity(step.key.step))
                .unwrap_or_else(|| "null".into());
            match choose_route(self.plan.graph, step.node, &output) {
                Ok(route) => {
                    let note = note(&step, &output);
                    let outcome = match &*end.status {
                        "partial" => StepOutcome::Partial(output, route),
                        _ => StepOutcome::Success(output, route),
                    };
                    (outcome, note)
                }
                Err(failure) => (StepOutcome::Failure(failure), None),
            }
        };
        router.end_step(step.key.step, outcome, note);
        self.listen(roots, step.key.root);
        Ok(Some(step))
    }

    /// The name of the open step that a line is about.
    fn name_of(&self, line: &Line<'_>) -> Option<StepName> {
        let graph = self.plan.graph;
        let task: Rc<str> = line.task_id.get()?.into();
        let node = graph.find(line.node_id.get()?)?;
        let is_meant = |edge: &&EdgeIx| {
            line.edge
                .get()
                .is_none_or(|name| name == edge_name(graph, **edge))
        };
        let edges = graph
            .incoming(node)
            .iter()
            .filter(is_meant)
            .map(|edge| Some(*edge));
        let mut names = [None]
            .into_iter()
            .chain(edges)
            .map(|edge| (Rc::clone(&task), node, edge));
        names.find(|name| self.open.contains_key(name))
    }

    /// Takes from a router what it reports and wants.
    fn listen(&mut self, roots: &mut Roots<'p>, number: usize) {
        let Some(router) = roots.get_mut(&number) else {
            return;
        };
        while let Some(effect) = router.next_effect() {
            match effect {
                Effect::Start(step) => {
                    let name = (Rc::clone(&step.task), step.node, step.edge);
                    self.open.insert(name, step);
                }
                Effect::Cancel(key) => self.open.retain(|_, step| step.key != key),
                report => {
                    let name = report_name(self.plan.graph, router, &report);
                    self.unrecorded.push_back((name, (number, report)));
                }
            }
        }
    }

    /// Forgets a report, because the journal has it.
    fn forget_report(&mut self, name: &str) {
        let mut reports = self.unrecorded.iter();
        if let Some(at) = reports.position(|(other, _)| other == name) {
            self.unrecorded.remove(at);
        }
    }

    /// The input of a step, if it is open now.
    pub(crate) fn input_of(&self, roots: &Roots<'p>, task: &str, node: &str) -> Option<Payload> {
        let node = self.plan.graph.find(node)?;
        let is_it = |step: &&StepRef| *step.task == *task && step.node == node;
        let step = self.open.values().find(is_it)?;
        roots.get(&step.key.root)?.input(step.key.step)
    }

    /// The steps that are open now, by task and node.
    pub(crate) fn open_steps(&self) -> HashSet<(String, String)> {
        let nodes = &self.plan.graph.nodes;
        let open = self.open.keys();
        open.map(|(task, node, _)| (task.to_string(), nodes[*node].id.clone()))
            .collect()
    }

    /// Reports of routers that the journal lacks, each with the number of its root.
    pub(crate) fn unrecorded(&self) -> impl Iterator<Item = &(usize, Effect)> {
        self.unrecorded.iter().map(|(_, report)| report)
    }

    /// The steps that have not ended, in the order of their keys.
    pub(crate) fn into_open(self) -> Vec<StepRef> {
        let mut open: Vec<StepRef> = self.open.into_values().collect();
        order::sort_by_key(&mut open, |step| step.key);
        open
    }
}

/// The name of a report, which is that of the event that has it, too.
fn report_name(graph: &Graph, router: &Router<'_>, effect: &Effect) -> String {
    let id = |node: NodeIx| &graph.nodes[node].id;
    match effect {
        Effect::Created(task) => format!("C {}", router.id(*task)),
        Effect::Ended(task) => format!("E {}", router.id(*task)),
        Effect::Routed(task, node, _) => format!("R {} {}", router.id(*task), id(*node)),
        Effect::Merged(task, node, _) => format!("M {} {}", router.id(*task), id(*node)),
        Effect::Won(task, node, _) => format!("W {} {}", router.id(*task), id(*node)),
        Effect::Start(_) | Effect::Cancel(_) => String::new(),
    }
}
