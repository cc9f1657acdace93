//! What routers tell, as events.

use crate::flow::graph::Graph;
use crate::flow::record::{self, About, Output};
use crate::flow::router::{Effect, Router, StepIx, TaskIx};
use crate::record::journal::Journal;

/// Writes down what a router tells, where it is something to tell.
pub(super) fn told(
    journal: &mut Journal,
    graph: &Graph,
    router: &Router<'_>,
    effect: &Effect,
    input: Option<&Output>,
) {
    const ROOT: TaskIx = 0;
    match effect {
        Effect::Created(task) => {
            let input = input.filter(|_| *task == ROOT);
            record::task_created(journal, graph, &router.view(*task), input);
        }
        Effect::Routed(task, node, edges) => {
            record::route(journal, graph, router.id(*task), *node, edges);
        }
        Effect::Merging(step) => {
            if let (Some(at), Some(gathered)) = (router.get(*step), router.gathered(*step)) {
                let place = (router.id(at.task), at.node);
                record::merge(journal, graph, place, gathered.counts());
            }
        }
        Effect::Ended(task) => record::task_end(journal, graph, &router.view(*task)),
        Effect::Start(_) | Effect::Cancel(_) => {}
    }
}

/// What an event about a step calls it.
pub(super) fn about<'r>(router: &'r Router<'_>, step: StepIx) -> Option<About<'r>> {
    let at = router.get(step)?;
    Some(About {
        task: router.id(at.task),
        node: at.node,
        edge: at.edge,
    })
}
