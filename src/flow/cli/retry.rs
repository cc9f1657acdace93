//! The steps that a retry of a run does again: those that failed, and what had ended after them.
//!
//! Unaware of how they are done again. Nothing is written here.

use crate::error::{Error, Exit, Result};
use crate::flow::graph::{RoutePlan, Router};
use crate::flow::manifest::{Flow, ResumePolicy};
use crate::flow::record::{Replay, Replayed, RetriedStep, Retries, Roots, each_line};
use crate::record::event::Recorded;
use crate::runs::inspect::RunSnapshot;
use crate::text::shorten::list_names;
use std::collections::{BTreeMap, BTreeSet};

/// The steps that a retry does again.
#[derive(Debug, Default)]
pub(super) struct RetryPlan {
    /// Steps that failed. Sorted.
    pub failed: Vec<RetriedStep>,
    /// Nodes after a failure that ran something and succeeded. Sorted.
    after: Vec<RetriedStep>,
}

/// The steps to repeat in a run. None if it has not ended, or is being retried already.
///
/// # Errors
/// The journal cannot be read.
pub(super) fn plan_retry(
    found: &RunSnapshot,
    flow: &Flow,
    plan: &RoutePlan<'_>,
) -> Result<Option<RetryPlan>> {
    let retries = Retries::read(found.source())?;
    if !retries.has_ended {
        return Ok(None);
    }
    let first = walk(found, flow, plan, retries)?;
    let failed: Vec<RetriedStep> = first.failed.iter().cloned().collect();
    if failed.is_empty() {
        return Ok(Some(RetryPlan::default()));
    }
    let mut retries = Retries::read(found.source())?;
    retries.take_back(&failed);
    let again = walk(found, flow, plan, retries)?;
    let mut after = BTreeSet::new();
    for (root, steps) in first.succeeded {
        let kept = again.succeeded.get(&root);
        let is_kept = |step: &RetriedStep| kept.is_some_and(|kept| kept.contains(step));
        // A partial one that failed is repeated for its own sake.
        let is_after = |step: &RetriedStep| !is_kept(step) && !first.failed.contains(step);
        after.extend(steps.into_iter().filter(is_after));
    }
    Ok(Some(RetryPlan {
        failed,
        after: after.into_iter().collect(),
    }))
}

/// The steps that a reading of the journal ends.
#[derive(Default)]
struct RecordedWalk {
    failed: BTreeSet<RetriedStep>,
    /// Steps that ran something, by their root, unless it has ended without a failed step.
    succeeded: BTreeMap<usize, BTreeSet<RetriedStep>>,
}

fn walk(
    found: &RunSnapshot,
    flow: &Flow,
    plan: &RoutePlan<'_>,
    retries: Retries,
) -> Result<RecordedWalk> {
    let mut walk = RecordedWalk::default();
    let mut replay = Replay::new(plan, &found.run.path, retries);
    let mut roots = Roots::new();
    let named = |task: &str, node: usize| RetriedStep {
        task_id: task.to_owned(),
        node_id: plan.graph.nodes[node].id.clone(),
    };
    each_line(found.source(), true, |line| {
        match replay.follow(&mut roots, line, |_, _| None)? {
            Replayed::End(step)
                if flow.nodes[step.node].runs()
                    && matches!(&line.event, Recorded::NodeEnd(end) if !end.has_failed()) =>
            {
                let of_root = walk.succeeded.entry(step.key.root).or_default();
                of_root.insert(named(&step.task, step.node));
            }
            Replayed::RootEnd(number) if roots.get(&number).is_some_and(Router::is_over) => {
                if let Some(router) = roots.remove(&number) {
                    let failed = router.failed_steps();
                    if failed.is_empty() {
                        walk.succeeded.remove(&number);
                    }
                    let steps = failed.into_iter();
                    let named = steps.map(|(task, node)| named(router.id(task), node));
                    walk.failed.extend(named);
                }
            }
            _ => {}
        }
        Ok(true)
    })?;
    Ok(walk)
}

impl RetryPlan {
    /// The names of what had succeeded and is done again, in short.
    pub(super) fn remark(&self) -> Option<String> {
        let names = in_short(self.after.iter());
        (!self.after.is_empty())
            .then(|| format!("these had succeeded behind what failed, and are done again: {names}"))
    }

    /// # Errors
    /// A node with `on_resume: fail` would be repeated without `--repeat`.
    pub(super) fn check_repeats(&self, flow: &Flow, repeated: &[String]) -> Result<()> {
        let must_be_said = |step: &&RetriedStep| {
            let node = flow.graph.find(&step.node_id);
            node.is_some_and(|node| flow.nodes[node].on_resume == ResumePolicy::Fail)
                && !repeated.contains(&step.node_id)
        };
        let open: Vec<&RetriedStep> = self.after.iter().filter(must_be_said).collect();
        let Some(first) = open.first() else {
            return Ok(());
        };
        Err(Error::new(
            Exit::Undecided,
            format!(
                "{} had succeeded behind what failed, with on_resume: fail; to repeat it all the same: \
                 --repeat {}",
                in_short(open.iter().copied()),
                first.node_id
            ),
        ))
    }
}

/// Steps by name, of many only the first.
fn in_short<'s>(steps: impl ExactSizeIterator<Item = &'s RetriedStep>) -> String {
    list_names(steps.map(|step| format!("{} of {}", step.node_id, step.task_id)))
}
