//! `records: failed`: the records of steps that succeeded are removed, once the journal has their ends.
//!
//! A start after a kill removes what the one before had left. Directories of tasks that succeeded go with them if they
//! are empty.

use super::{FlowOptions, RunPlace};
use crate::error::may_fail;
use crate::flow::graph::{Router, StepKey, StepRef};
use crate::flow::manifest::KeptRecords;
use crate::flow::record::{Lineage, attempt, task_path};
use crate::record::event::Line;
use crate::record::journal::Journal;
use std::collections::HashMap;

/// Directories of records that do not stay, from the run's directory.
#[derive(Debug)]
pub(super) struct SpentRecords {
    keeps_failed_only: bool,
    /// Of steps under way: those of all their attempts.
    open: HashMap<StepKey, Vec<String>>,
    /// Of steps that have succeeded: each with its task and node.
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
        let references = self.open.remove(&step.key).unwrap_or_default();
        self.add_due(place, (&step.task, place.node_id(step)), references);
    }

    /// The same of a step that an earlier start has ended.
    pub(super) fn spend_replayed(
        &mut self,
        place: &RunPlace<'_>,
        line: &Line<'_>,
        lineage: &Lineage,
    ) {
        if line.records_removed != Some(true) || !self.keeps_failed_only {
            return;
        }
        let Some((task, node)) = line.step() else {
            return;
        };
        let steps = lineage.tasks.get(&task).map(|task| &task.steps);
        let step = steps.and_then(|steps| steps.iter().rfind(|it| it.node == node));
        let references = step.map(|step| step.records.clone()).unwrap_or_default();
        self.add_due(place, (&task, &node), references);
    }

    fn add_due(
        &mut self,
        place: &RunPlace<'_>,
        (task, node): (&str, &str),
        references: Vec<String>,
    ) {
        let is_other = |name: &str| place.flow.graph.find(name).is_some();
        let lower = attempt::lower_records(node, &references, is_other);
        let all = references.into_iter().chain(lower);
        let all = all.map(|reference| (task.to_owned(), node.to_owned(), reference));
        self.due.extend(all);
    }

    /// Removes what is due. The journal must have the ends of these steps.
    pub(super) fn remove(&mut self, place: &RunPlace<'_>, journal: &Journal) {
        if journal.was_changed() {
            return;
        }
        for (task, node, reference) in std::mem::take(&mut self.due) {
            may_fail(attempt::remove_records(
                &place.run.path,
                (&task, &node),
                &reference,
            ));
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
                may_fail(std::fs::remove_dir(path));
            }
        }
    }
}
