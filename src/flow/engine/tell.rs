//! What routers tell, as events.

use crate::flow::graph::router::{Effect, Router, StepIx, TaskIx};
use crate::flow::graph::topology::Graph;
use crate::flow::record::events::{self, About, Output};
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
            events::task_created(journal, graph, &router.view(*task), input);
        }
        Effect::Routed(task, node, edges) => {
            events::route(journal, graph, router.id(*task), *node, edges);
        }
        Effect::Merging(step) => {
            if let (Some(at), Some(gathered)) = (router.get(*step), router.gathered(*step)) {
                let place = (router.id(at.task), at.node);
                events::merge(journal, graph, place, gathered.counts());
            }
        }
        Effect::Ended(task) => events::task_end(journal, graph, &router.view(*task)),
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
