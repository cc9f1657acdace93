//! The attempts at steps that have not ended, and the runs that nodes are.

use super::FlowEngine;
use crate::flow::graph::{StepKey, StepRef};
use crate::flow::record::lineage::{Attempts, DeferredStep};
use crate::flow::record::{BegunBefore, OwnRun};
use crate::record::metadata;
use crate::text::digest::sha256;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use std::collections::HashMap;

/// The run of an earlier attempt or step, with which an attempt went on.
pub(super) struct KeptRun {
    pub run: OwnRun,
    /// An earlier start began that attempt, and it has not ended.
    pub is_open: bool,
}

#[derive(Default)]
pub(super) struct AttemptState {
    pub counts: HashMap<StepKey, Attempts>,
    /// The earlier life of steps that a retry begins anew, by task and node.
    pub begun_before: HashMap<(String, String), BegunBefore>,
    /// The runs that the last attempts of steps went on with.
    pub own_runs: HashMap<StepKey, KeptRun>,
    /// Work that attempts have begun and that ends later.
    pub deferred: HashMap<StepKey, DeferredStep>,
    /// The names under which the outputs of steps are kept.
    pub cache_keys: HashMap<StepKey, String>,
}

impl AttemptState {
    pub(super) fn of(&self, key: StepKey) -> Attempts {
        self.counts.get(&key).copied().unwrap_or_default()
    }
}

impl FlowEngine<'_> {
    fn begun_before(&self, step: &StepRef) -> Option<&BegunBefore> {
        let name = (step.task.to_string(), self.place.node_id(step).to_owned());
        self.attempts.begun_before.get(&name)
    }

    /// The name of the run that a node is, of an agent or a flow: the same for the same step, and another one for each
    /// retry of the step or of the flow.
    pub(super) fn own_run(&self, step: &StepRef) -> String {
        let times = self.begun_before(step).map_or(0, |it| it.times);
        self.run_name(step, times, self.attempts.of(step.key).failed)
    }

    /// The time when the run that a node is goes on, if it waits for one.
    pub(super) fn due_at(&self, step: &StepRef) -> Option<Timestamp> {
        let id = self
            .attempts
            .own_runs
            .get(&step.key)
            .map_or_else(|| self.own_run(step), |it| it.run.id.to_string());
        let run = metadata::read(&self.place.task_path(step).join(".delta").join(id))?;
        Timestamp::parse(run.due_at.as_deref()?)
    }

    /// The run of the attempt before, or of a step before a retry took its end back.
    pub(super) fn run_before(&self, step: &StepRef) -> Option<RunId> {
        let begun = self.begun_before(step);
        let name = match self.attempts.of(step.key).failed {
            0 => {
                let before = begun.filter(|it| it.is_taken_back)?;
                if let Some(own) = &before.own_run {
                    return Some(own.id.clone());
                }
                self.run_name(step, before.times - 1, before.failed)
            }
            failed => self.run_name(step, begun.map_or(0, |it| it.times), failed - 1),
        };
        RunId::parse(&name).ok()
    }

    /// The name of the run of a step, after this many earlier lives of the step and failed attempts.
    fn run_name(&self, step: &StepRef, times: u32, failed: u32) -> String {
        const OF_NODE: usize = 40;
        let node = self.place.node_id(step);
        let name = format!("{}\n{}\n{node}", self.place.run.id, step.task);
        let sum = &sha256(name.as_bytes())[..10];
        let begin: String = node.trim_start_matches('.').chars().take(OF_NODE).collect();
        let mut name = format!("node-{begin}-{sum}");
        if times > 0 {
            name.push_str(&format!("-r{times}"));
        }
        if failed > 0 {
            name.push_str(&format!("-{}", failed + 1));
        }
        name
    }
}
