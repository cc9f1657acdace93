//! A graph prepared for routing before anything runs: for each merge, its scope;
//! for each node, which merges wait for a task at it.
//!
//! Unaware of tasks and payloads. Only what can be reached from the start that was chosen counts.
//!
//! **Scope.** A merge has a *scope*: the node whose task it runs in. A task at
//! a node has run a chain of nodes, and this chain is a path in a tree: a node's parent is the one
//! node that leads to it, and a merge's parent is its scope, because a merge continues the task of
//! its scope and everything between the two is over. The scope of a merge with several ways in
//! is the lowest common node of these ways in that tree. In a graph without merges of one way in this
//! is the merge's immediate dominator. So the diamond of a decision merges in the task that decided,
//! and clones merge in the task that branched. A merge with one way in gathers subtasks: its scope is
//! the nearest split above it that has not been merged yet; without such a split it runs in the task
//! that arrives.
//!
//! **Waits.** A merge is *open* for a task that has run its scope. The waits of a
//! node are the open merges that can be reached from it without passing another open one. A merge
//! that is open itself counts as a step at its own node, so that the merges after it wait for it.
//! Each task thus counts at few merges, however many there are in the graph, and a merge runs when
//! its count is zero.

use super::topology::{Graph, NodeIx, Role};
use std::collections::VecDeque;
use std::rc::Rc;

/// A graph, prepared for one of its starts.
#[derive(Debug)]
pub(crate) struct RoutePlan<'g> {
    /// The graph. It has been validated.
    pub graph: &'g Graph,
    /// The node at which tasks begin.
    pub start: NodeIx,
    /// A number that is larger for every node after this one.
    pub rank: Vec<usize>,
    /// The node in whose task a merge runs.
    pub scope: Vec<NodeIx>,
    /// A merge's place among those of its scope.
    pub slot: Vec<usize>,
    /// The merges whose scope a node is.
    pub opens: Vec<Vec<NodeIx>>,
    /// The open merges that wait for a task at a node.
    pub waits: Vec<Rc<[NodeIx]>>,
    /// The clones of a branch run for the first success: none of them can reach a merge, so that
    /// nothing waits for the losers.
    pub races: Vec<bool>,
}

/// No node.
const NONE: usize = usize::MAX;

impl<'g> RoutePlan<'g> {
    /// Prepares a graph that has been validated.
    pub(crate) fn new(graph: &'g Graph, start: NodeIx) -> Self {
        let count = graph.nodes.len();
        let mut plan = Self {
            graph,
            start,
            rank: vec![NONE; count],
            scope: vec![NONE; count],
            slot: vec![NONE; count],
            opens: vec![Vec::new(); count],
            waits: vec![Rc::from([]); count],
            races: vec![false; count],
        };
        let order = plan.order();
        plan.find_scopes(&order);
        plan.find_waits(&order);
        plan
    }

    /// Nodes that can be reached, each after all that lead to it. Ranks are the places in this order.
    fn order(&mut self) -> Vec<NodeIx> {
        let graph = self.graph;
        let mut ways_in = vec![0usize; graph.nodes.len()];
        let mut seen = vec![false; graph.nodes.len()];
        let mut stack = vec![self.start];
        seen[self.start] = true;
        while let Some(node) = stack.pop() {
            for next in graph.targets(node) {
                ways_in[next] += 1;
                if !std::mem::replace(&mut seen[next], true) {
                    stack.push(next);
                }
            }
        }
        let mut order = Vec::new();
        let mut queue = VecDeque::from([self.start]);
        while let Some(node) = queue.pop_front() {
            self.rank[node] = order.len();
            order.push(node);
            for next in graph.targets(node) {
                ways_in[next] -= 1;
                if ways_in[next] == 0 {
                    queue.push_back(next);
                }
            }
        }
        order
    }

    fn find_scopes(&mut self, order: &[NodeIx]) {
        let graph = self.graph;
        let mut tree = ScopeTree {
            above: vec![NONE; graph.nodes.len()],
            depth: vec![0; graph.nodes.len()],
        };
        for &node in order {
            let from = |&edge: &usize| graph.edges[edge].from;
            let all = graph.incoming(node).iter().map(from);
            let mut ways = all.filter(|from| self.rank[*from] != NONE);
            let Some(first) = ways.next() else {
                continue;
            };
            let role = graph.nodes[node].role;
            let above = match (role, ways.next()) {
                (Role::Merge, Some(second)) => {
                    let both = tree.lowest_common(first, second);
                    ways.fold(both, |both, way| tree.lowest_common(both, way))
                }
                (Role::Merge, None) => self.open_split(&tree, first).unwrap_or(first),
                _ => first,
            };
            tree.above[node] = above;
            tree.depth[node] = tree.depth[above] + 1;
            if role == Role::Merge {
                self.scope[node] = above;
                self.slot[node] = self.opens[above].len();
                self.opens[above].push(node);
            }
        }
    }

    /// The nearest split at or above a node that no merge on the way has closed.
    fn open_split(&self, tree: &ScopeTree, from: NodeIx) -> Option<NodeIx> {
        let role = |node: NodeIx| self.graph.nodes[node].role;
        let mut at = from;
        while at != NONE && role(at) != Role::Split {
            let above = tree.above[at];
            let closed = role(at) == Role::Merge && role(above) == Role::Split;
            at = if closed { tree.above[above] } else { above };
        }
        (at != NONE).then_some(at)
    }

    fn find_waits(&mut self, order: &[NodeIx]) {
        let graph = self.graph;
        let is_merge = |node: NodeIx| graph.nodes[node].role == Role::Merge;
        for &node in order.iter().rev() {
            let mut waits = Vec::new();
            let mut races = graph.nodes[node].role == Role::Branch;
            let mut targets = 0;
            for next in graph.targets(node) {
                targets += 1;
                if is_merge(next) {
                    waits.push(next);
                    races = false;
                } else {
                    waits.extend_from_slice(&self.waits[next]);
                    races &= self.waits[next].is_empty();
                }
            }
            self.races[node] = races;
            if targets == 1 && self.opens[node].is_empty() {
                let next = graph.edges[graph.outgoing(node)[0]].to;
                if !is_merge(next) {
                    // Long chains share one list.
                    self.waits[node] = Rc::clone(&self.waits[next]);
                    continue;
                }
            }
            // Merges that this node opens are not open yet: what they lead to is seen through them.
            for &merge in &self.opens[node] {
                waits.extend_from_slice(&self.waits[merge]);
            }
            waits.retain(|merge| self.scope[*merge] != node);
            waits.sort_unstable();
            waits.dedup();
            self.waits[node] = waits.into();
        }
    }
}

struct ScopeTree {
    above: Vec<NodeIx>,
    depth: Vec<usize>,
}

impl ScopeTree {
    fn lowest_common(&self, mut a: NodeIx, mut b: NodeIx) -> NodeIx {
        while a != b {
            if self.depth[a] >= self.depth[b] {
                a = self.above[a];
            } else {
                b = self.above[b];
            }
        }
        a
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::graph::topology::tests::graph;

    fn scopes(text: &str) -> String {
        let graph = graph(text);
        let plan = RoutePlan::new(&graph, 0);
        let merges = (0..graph.nodes.len()).filter(|n| graph.nodes[*n].role == Role::Merge);
        let shown = merges.map(|m| {
            let scope = &graph.nodes[plan.scope[m]].id;
            format!("{}:{scope}", graph.nodes[m].id)
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn clones_merge_where_the_task_branched_and_diamonds_where_it_was_decided() {
        assert_eq!(
            scopes("s:start>b b:branch>l,k l>m k>m m:merge>x x:exit"),
            "m:b"
        );
        assert_eq!(
            scopes("s:start>p p:split>w w>d d:decision>a,c a>m c>m m:merge>x x:exit"),
            "m:d"
        );
        assert_eq!(
            scopes("s:start>b b:branch>u,v,z u>m v>m m:merge>n z>n n:merge>x x:exit"),
            "m:b n:b"
        );
    }

    #[test]
    fn a_merge_of_one_way_gathers_the_nearest_split_that_is_open() {
        assert_eq!(
            scopes("s:start>p p:split>q q:split>w w>m m:merge>n n:merge>x x:exit"),
            "m:q n:p"
        );
        // The diamond inside each subtask is closed; the split around it is not.
        assert_eq!(
            scopes("s:start>p p:split>d d:decision>a,c a>m c>m m:merge>n n:merge>x x:exit"),
            "m:d n:p"
        );
        assert_eq!(
            scopes("s:start>p p:split>w w>m m:merge>n n:merge>x x:exit"),
            "m:p n:m"
        );
    }

    #[test]
    fn what_a_gathering_merge_leads_to_merges_above_its_split() {
        // `c` is reached in the task that split, `e` in its subtasks: `n` belongs to the former.
        assert_eq!(
            scopes("s:start>p p:split>d d:decision>a,e a>m m:merge>c c>n e>n n:merge>x x:exit"),
            "m:p n:p"
        );
    }

    #[test]
    fn a_node_waits_only_for_the_nearest_open_merges() {
        let graph =
            graph("s:start>b b:branch>i,z i:branch>u,v u>m v>m m:merge>n z>n n:merge>x x:exit");
        let plan = RoutePlan::new(&graph, 0);
        let waits = |id: &str| {
            let found = &plan.waits[graph.find(id).unwrap()];
            let ids = found.iter().map(|n| graph.nodes[*n].id.as_str());
            ids.collect::<Vec<_>>().join(",")
        };
        let all = ["s", "b", "i", "u", "m", "z", "x"].map(waits);
        assert_eq!(all, ["", "", "n", "m", "n", "n", ""]);
        assert!(!plan.races[graph.find("b").unwrap()]);
    }
}
