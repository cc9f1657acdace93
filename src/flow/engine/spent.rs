//! `records: failed`: the records of steps that succeeded are removed, once the journal has what they came to.
//!
//! A start after a kill removes what the one before had left. Directories of tasks that succeeded go with them if nothing
//! is in them.

use super::FlowEngine;
use crate::error::may_fail;
use crate::flow::graph::{Router, StepKey, StepRef};
use crate::flow::manifest::KeptRecords;
use crate::flow::record::{Lineage, attempt, task_path};
use crate::record::event::Line;
use std::collections::HashMap;

/// Directories of records that do not stay, from the run's directory.
#[derive(Debug, Default)]
pub(super) struct SpentRecords {
    /// Of steps under way: those of all their attempts.
    open: HashMap<StepKey, Vec<String>>,
    /// Of steps that have succeeded: each with its task and node.
    due: Vec<(String, String, String)>,
}

impl SpentRecords {
    /// An attempt has these records.
    pub(super) fn note(&mut self, key: StepKey, reference: String) {
        self.open.entry(key).or_default().push(reference);
    }

    /// Nobody wants the step any more, or it has failed: its records stay.
    pub(super) fn forget(&mut self, key: StepKey) {
        self.open.remove(&key);
    }
}

impl FlowEngine<'_> {
    fn keeps_failed_only(&self) -> bool {
        self.options.records == KeptRecords::Failed && self.options.is_live
    }

    /// Notes the records of an attempt that may have to go.
    pub(super) fn note_records(&mut self, key: StepKey, references: impl Iterator<Item = String>) {
        if self.keeps_failed_only() {
            references.for_each(|reference| self.spent.note(key, reference));
        }
    }

    /// The records of a step go if it succeeds.
    pub(super) fn would_remove_records(&self, step: &StepRef) -> bool {
        self.spent.open.contains_key(&step.key)
    }

    /// A step has succeeded: its records go as soon as the journal says so.
    pub(super) fn spend_records(&mut self, step: &StepRef) {
        let (task, node) = (&*step.task, self.node_id(step));
        let references = self.spent.open.remove(&step.key).unwrap_or_default();
        self.add_due((task, node), references);
    }

    /// The same of a step that an earlier start has ended.
    pub(super) fn spend_replayed(&mut self, line: &Line<'_>, lineage: &Lineage) {
        if line.records_removed != Some(true) || !self.keeps_failed_only() {
            return;
        }
        let Some((task, node)) = line.step() else {
            return;
        };
        let steps = lineage.tasks.get(&task).map(|task| &task.steps);
        let step = steps.and_then(|steps| steps.iter().rfind(|it| it.node == node));
        let references = step.map(|step| step.records.clone()).unwrap_or_default();
        self.add_due((&task, &node), references);
        self.remove_spent();
    }

    fn add_due(&mut self, (task, node): (&str, &str), references: Vec<String>) {
        let graph = &self.place.flow.graph;
        let is_other = |name: &str| graph.find(name).is_some();
        let lower = attempt::lower_records(node, &references, is_other);
        let all = references.into_iter().chain(lower);
        let all = all.map(|reference| (task.to_owned(), node.to_owned(), reference));
        self.spent.due.extend(all);
    }

    /// Removes what is to go. The journal must have the ends of these steps.
    pub(super) fn remove_spent(&mut self) {
        if self.events.journal.was_changed() {
            return;
        }
        for (task, node, reference) in std::mem::take(&mut self.spent.due) {
            let run = &self.place.run.path;
            may_fail(attempt::remove_records(run, (&task, &node), &reference));
        }
    }

    /// Removes the directories in which the tasks of a root have left nothing.
    pub(super) fn remove_empty_dirs(&self, router: &Router<'_>) {
        if !self.keeps_failed_only() {
            return;
        }
        let (root, run) = (&self.place.workspace.root, self.place.run.id.as_str());
        for task in router.tasks() {
            if task > 0 || self.place.has_many_roots {
                // It stays if anything is in it.
                may_fail(std::fs::remove_dir(task_path(
                    root,
                    run,
                    Some(router.id(task)),
                )));
            }
        }
    }
}
