//! The attempts at steps that have not ended, and the runs that nodes are.

use super::RunPlace;
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
    /// What attempts have begun and what ends later.
    pub deferred: HashMap<StepKey, DeferredStep>,
    /// The names under which the outputs of steps are kept.
    pub cache_keys: HashMap<StepKey, String>,
}

impl AttemptState {
    pub(super) fn of(&self, key: StepKey) -> Attempts {
        self.counts.get(&key).copied().unwrap_or_default()
    }

    fn begun_before(&self, place: &RunPlace<'_>, step: &StepRef) -> Option<&BegunBefore> {
        let name = (step.task.to_string(), place.node_id(step).to_owned());
        self.begun_before.get(&name)
    }

    /// The name of the run that a node is, of an agent or a flow: the same for the same step, and another one for each
    /// retry of the step or of the flow.
    pub(super) fn own_run(&self, place: &RunPlace<'_>, step: &StepRef) -> String {
        let times = self.begun_before(place, step).map_or(0, |it| it.times);
        run_name(place, step, (times, self.of(step.key).failed))
    }

    /// When the run that a node is goes on, if that waits for a time.
    pub(super) fn due_at(&self, place: &RunPlace<'_>, step: &StepRef) -> Option<Timestamp> {
        let kept = self.own_runs.get(&step.key);
        let id = kept.map_or_else(|| self.own_run(place, step), |it| it.run.id.to_string());
        let run = metadata::read(&place.task_path(step).join(".delta").join(id))?;
        Timestamp::parse(run.due_at.as_deref()?)
    }

    /// The run of the attempt before, or of a step before a retry took its end back.
    pub(super) fn run_before(&self, place: &RunPlace<'_>, step: &StepRef) -> Option<RunId> {
        let begun = self.begun_before(place, step);
        let times = match self.of(step.key).failed {
            0 => {
                let before = begun.filter(|it| it.is_taken_back)?;
                if let Some(own) = &before.own_run {
                    return Some(own.id.clone());
                }
                (before.times - 1, before.failed)
            }
            failed => (begun.map_or(0, |it| it.times), failed - 1),
        };
        RunId::parse(&run_name(place, step, times)).ok()
    }
}

/// The name of the run of a step, after this many earlier lives of the step and failed attempts.
fn run_name(place: &RunPlace<'_>, step: &StepRef, (times, failed): (u32, u32)) -> String {
    const OF_NODE: usize = 40;
    let node = place.node_id(step);
    let name = format!("{}\n{}\n{node}", place.run.id, step.task);
    let sum = &sha256(name.as_bytes())[..10];
    let begin: String = node.trim_start_matches('.').chars().take(OF_NODE).collect();
    let again = match times {
        0 => String::new(),
        times => format!("-r{times}"),
    };
    match failed {
        0 => format!("node-{begin}-{sum}{again}"),
        failed => format!("node-{begin}-{sum}{again}-{}", failed + 1),
    }
}
