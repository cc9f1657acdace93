//! What a retry of a run does again: the steps that failed, and what had ended behind them.
//!
//! Unaware of how they are done again. Nothing is written here.

use crate::error::{Error, Exit, Result};
use crate::flow::graph::{RoutePlan, Router};
use crate::flow::manifest::{Flow, ResumePolicy};
use crate::flow::record::{
    Replay, Replayed, RetriedStep, RetryStanding, Roots, TakenBack, each_line,
};
use crate::runs::inspect::RunSnapshot;
use crate::text::shorten::list_names;

/// The steps that a retry does again.
#[derive(Debug, Default)]
pub(super) struct RetryPlan {
    /// They failed. Sorted.
    pub failed: Vec<RetriedStep>,
    /// Nodes after a failure that ran something and succeeded. Sorted.
    pub behind: Vec<RetriedStep>,
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
    let taken = TakenBack::read(found.source())?;
    if taken.standing == RetryStanding::Underway {
        return Ok(None);
    }
    let failed = find_failed(found, plan, taken)?;
    let behind = match failed.is_empty() {
        true => Vec::new(),
        false => find_behind(found, flow, plan, &failed)?,
    };
    Ok(Some(RetryPlan { failed, behind }))
}

fn find_failed(
    found: &RunSnapshot,
    plan: &RoutePlan<'_>,
    taken: TakenBack,
) -> Result<Vec<RetriedStep>> {
    let mut replay = Replay::new(plan, &found.run.path, taken);
    let mut roots = Roots::new();
    let mut failed = Vec::new();
    each_line(found.source(), true, |line| {
        if let Replayed::RootEnd(number) = replay.follow(&mut roots, line, |_, _| None)?
            && roots.get(&number).is_some_and(Router::is_over)
            && let Some(router) = roots.remove(&number)
        {
            let steps = router.failed_steps().into_iter();
            failed.extend(steps.map(|(task, node)| RetriedStep {
                task_id: router.id(task).to_owned(),
                node_id: plan.graph.nodes[node].id.clone(),
            }));
        }
        Ok(true)
    })?;
    failed.sort();
    failed.dedup();
    Ok(failed)
}

/// The steps that end in one reading of the journal and not in another, in which the failed ones have not.
fn find_behind(
    found: &RunSnapshot,
    flow: &Flow,
    plan: &RoutePlan<'_>,
    failed: &[RetriedStep],
) -> Result<Vec<RetriedStep>> {
    let before = TakenBack::read(found.source())?;
    let mut after = TakenBack::read(found.source())?;
    after.add(failed);
    let mut readings = [before, after].map(|taken| {
        let roots = Roots::new();
        (Replay::new(plan, &found.run.path, taken), roots)
    });
    let mut behind = Vec::new();
    each_line(found.source(), true, |line| {
        let mut ended = [None, None];
        for ((replay, roots), ended) in readings.iter_mut().zip(&mut ended) {
            match replay.follow(roots, line, |_, _| None)? {
                Replayed::End(step) => *ended = Some(step),
                Replayed::RootEnd(number) => {
                    if roots.get(&number).is_some_and(Router::is_over) {
                        roots.remove(&number);
                    }
                }
                Replayed::Root(..) | Replayed::Other => {}
            }
        }
        if let [Some(step), None] = ended
            && line.status.as_deref() != Some("failure")
            && flow.nodes[step.node].runs()
        {
            let step = RetriedStep {
                task_id: step.task.to_string(),
                node_id: plan.graph.nodes[step.node].id.clone(),
            };
            // A partial one is repeated for its own sake.
            behind.extend((!failed.contains(&step)).then_some(step));
        }
        Ok(true)
    })?;
    behind.sort();
    behind.dedup();
    Ok(behind)
}

impl RetryPlan {
    /// The names of what had succeeded and is done again, in short.
    pub(super) fn told_behind(&self) -> Option<String> {
        (!self.behind.is_empty()).then(|| {
            format!(
                "these had succeeded behind what failed, and are done again: {}",
                in_short(&self.behind.iter().collect::<Vec<_>>())
            )
        })
    }

    /// # Errors
    /// A node with `on_resume: fail` would be repeated without `--repeat`.
    pub(super) fn check_repeats(&self, flow: &Flow, repeated: &[String]) -> Result<()> {
        let must_be_said = |step: &&RetriedStep| {
            let node = flow.graph.find(&step.node_id);
            node.is_some_and(|node| flow.nodes[node].on_resume == ResumePolicy::Fail)
                && !repeated.contains(&step.node_id)
        };
        let open: Vec<&RetriedStep> = self.behind.iter().filter(must_be_said).collect();
        let Some(first) = open.first() else {
            return Ok(());
        };
        Err(Error::new(
            Exit::Undecided,
            format!(
                "{} had succeeded behind what failed, with on_resume: fail; to repeat it all the same: \
                 --repeat {}",
                in_short(&open),
                first.node_id
            ),
        ))
    }
}

/// Steps by name, of many only the first.
fn in_short(steps: &[&RetriedStep]) -> String {
    let name = |step: &&RetriedStep| format!("{} of {}", step.node_id, step.task_id);
    list_names(steps.iter().map(name))
}
