//! `records: failed`: the records of steps that succeeded are removed, once the journal has their ends.
//!
//! A start after a kill removes what the one before had left. Directories of tasks that succeeded go with them if they
//! are empty.

use super::{FlowOptions, RunPlace};
use crate::error::ignore;
use crate::flow::graph::{Router, StepKey, StepRef};
use crate::flow::manifest::KeptRecords;
use crate::flow::record::{Lineage, attempt, task_path};
use crate::record::event::{Line, Recorded};
use crate::record::journal::Journal;
use std::collections::HashMap;

/// Directories of records that do not stay, from the run's directory.
#[derive(Debug)]
pub(super) struct SpentRecords {
    keeps_failed_only: bool,
    /// Records of steps under way: those of all their attempts.
    open: HashMap<StepKey, Vec<String>>,
    /// Records of steps that have succeeded, each with its task and node.
    due: Vec<(String, String, String)>,
}

impl SpentRecords {
    pub(super) fn new(options: &FlowOptions) -> Self {
        Self {
            keeps_failed_only: options.records == KeptRecords::Failed && options.is_live,
            open: HashMap::new(),
            due: Vec::new(),
        }
    }

    /// Notes the records of an attempt that may have to go.
    pub(super) fn note(&mut self, key: StepKey, reference: &str) {
        if self.keeps_failed_only {
            self.open.entry(key).or_default().push(reference.to_owned());
        }
    }

    /// The step was cancelled or has failed: its records stay.
    pub(super) fn forget(&mut self, key: StepKey) {
        self.open.remove(&key);
    }

    /// The records of a step go if it succeeds.
    pub(super) fn has(&self, key: StepKey) -> bool {
        self.open.contains_key(&key)
    }

    /// A step has succeeded: its records go as soon as the journal says so.
    pub(super) fn spend(&mut self, place: &RunPlace<'_>, step: &StepRef) {
        if let Some(references) = self.open.remove(&step.key) {
            self.add_due(place, &step.task, place.node_id(step), references);
        }
    }

    /// Spends the records of a step that an earlier start has ended.
    pub(super) fn spend_replayed(
        &mut self,
        place: &RunPlace<'_>,
        line: &Line<'_>,
        lineage: &Lineage,
    ) {
        let is_removed =
            matches!(&line.event, Recorded::NodeEnd(end) if end.records_removed == Some(true));
        if let Some((task, node)) = line.step()
            && is_removed
            && self.keeps_failed_only
            && let Some(record) = lineage.tasks.get(&task)
            && let Some(step) = record.steps.iter().rfind(|it| it.node == node)
        {
            self.add_due(place, &task, &node, step.records.clone());
        }
    }

    fn add_due(&mut self, place: &RunPlace<'_>, task: &str, node: &str, references: Vec<String>) {
        let is_other = |name: &str| place.flow.graph.find(name).is_some();
        let lower = attempt::lower_records(node, &references, is_other);
        let all = references.into_iter().chain(lower);
        self.due
            .extend(all.map(|it| (task.to_owned(), node.to_owned(), it)));
    }

    /// Removes what is due. The journal must have the ends of these steps.
    pub(super) fn remove(&mut self, place: &RunPlace<'_>, journal: &Journal) {
        if !journal.was_changed() {
            for (task, node, reference) in self.due.drain(..) {
                ignore(attempt::remove_records(
                    &place.run.path,
                    &task,
                    &node,
                    &reference,
                ));
            }
        }
    }

    /// Removes the directories in which the tasks of a root have left nothing.
    pub(super) fn remove_empty_dirs(&self, place: &RunPlace<'_>, router: &Router<'_>) {
        if !self.keeps_failed_only {
            return;
        }
        let (root, run) = (&place.workspace.root, place.run.id.as_str());
        for task in router.tasks() {
            if task > 0 || place.has_many_roots {
                let path = task_path(root, run, Some(router.id(task)));
                // It stays if anything is in it.
                ignore(std::fs::remove_dir(path));
            }
        }
    }
}
