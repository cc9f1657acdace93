//! The graph of a workflow: nodes with roles, edges in the order of the manifest.
//!
//! Unaware of files, commands, schemas and payloads: it holds what routing needs and nothing else.
//! Nodes and edges are named by their index, which is their place in the manifest.

use crate::text::names::named_enum;
use std::collections::HashMap;

/// A node's index in [`Graph::nodes`].
pub(crate) type NodeIx = usize;

/// An edge's index in [`Graph::edges`].
pub(crate) type EdgeIx = usize;

named_enum! {
    /// The effect of a node on the task that arrives.
    pub enum Role {
        /// Begins a task; its input is normalised.
        Start = "start",
        /// One way in, one way out.
        Linear = "linear",
        /// The output selects the edge.
        Decision = "decision",
        /// A clone of the task goes along every edge.
        Branch = "branch",
        /// A subtask for every item of its output.
        Split = "split",
        /// Waits for every task that can still arrive.
        Merge = "merge",
        /// Ends a task.
        Exit = "exit",
    }
}

named_enum! {
    /// A merge's verdict on tasks that failed on their way to it.
    #[derive(Default)]
    pub(crate) enum MergeFailureMode {
        /// One failure fails the merge (`upstream_failure`).
        #[default]
        FailOnAny = "fail_on_any",
        /// Failures are listed and change nothing.
        IgnoreFailures = "ignore_failures",
        /// Some failed: partial. All failed: failure.
        Partial = "partial",
    }
}

named_enum! {
    /// Which of the clones of a branch without a merge wins.
    #[derive(Default)]
    pub(crate) enum WinnerRule {
        /// The first in edge order that succeeds, independent of timing.
        #[default]
        Order = "order",
        /// The first in time that succeeds.
        First = "first",
    }
}

named_enum! {
    /// The payload that goes on from a decision.
    pub(crate) enum PayloadRule {
        /// The node's input.
        Keep = "keep",
        /// The node's output.
        Output = "output",
    }
}

/// A node, as routing sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Unique in the graph.
    pub id: String,
    pub role: Role,
    /// A start that is taken where none is named.
    pub default_start: bool,
    /// An exit that makes the status failure.
    pub always_fail: bool,
    /// A failure lets the payload go on unchanged.
    pub continue_on_failure: bool,
    /// For a merge.
    pub merge_failure_mode: MergeFailureMode,
    /// For a branch without a merge.
    pub winner: WinnerRule,
    /// For a decision; none: its output goes on unless that is a bare label.
    pub payload: Option<PayloadRule>,
}

impl Node {
    /// True if the input goes on from a node with this output.
    pub(super) fn keeps_input(&self, output: &str) -> bool {
        let keeps = match self.payload {
            Some(rule) => rule == PayloadRule::Keep,
            None => output.trim_start().starts_with('"'),
        };
        self.role == Role::Decision && keeps
    }
}

/// A way from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The node at its beginning.
    pub from: NodeIx,
    /// The node at its end.
    pub to: NodeIx,
    pub label: Option<String>,
}

/// Nodes and edges, and for each node the edges that end and begin there, in the manifest's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// In the order of the manifest.
    pub nodes: Vec<Node>,
    /// In the order of the manifest.
    pub edges: Vec<Edge>,
    incoming: Vec<Vec<EdgeIx>>,
    outgoing: Vec<Vec<EdgeIx>>,
    by_id: HashMap<String, NodeIx>,
}

impl Graph {
    /// A graph of any shape: whether it may be run is for validation to say. Of two nodes with one
    /// id, [`Self::find`] knows the first.
    pub(crate) fn new(nodes: Vec<Node>, edges: Vec<Edge>) -> Self {
        let mut incoming = vec![Vec::new(); nodes.len()];
        let mut outgoing = vec![Vec::new(); nodes.len()];
        for (ix, edge) in edges.iter().enumerate() {
            incoming[edge.to].push(ix);
            outgoing[edge.from].push(ix);
        }
        let mut by_id = HashMap::new();
        for (ix, node) in nodes.iter().enumerate() {
            by_id.entry(node.id.clone()).or_insert(ix);
        }
        Self {
            nodes,
            edges,
            incoming,
            outgoing,
            by_id,
        }
    }

    /// The node with this id.
    pub(crate) fn find(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    /// The edges that end at a node.
    pub(crate) fn incoming(&self, node: NodeIx) -> &[EdgeIx] {
        &self.incoming[node]
    }

    /// The edges that begin at a node.
    pub(crate) fn outgoing(&self, node: NodeIx) -> &[EdgeIx] {
        &self.outgoing[node]
    }

    /// The ends of the edges that begin at a node.
    pub(crate) fn targets(&self, node: NodeIx) -> impl Iterator<Item = NodeIx> {
        self.outgoing[node].iter().map(|edge| self.edges[*edge].to)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A graph in short: `id:role>target,target=label` for each node; a role that is not said is linear.
    /// After the role: `!` for `continue_on_failure`, `?` for `ignore_failures`, `~` for partial, `-` for
    /// `always_fail`, `^` for `winner: first`.
    pub(crate) fn graph(text: &str) -> Graph {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut nodes = Vec::new();
        for word in &words {
            let head = word.split('>').next().unwrap();
            let (id, role) = head.split_once(':').unwrap_or((head, "linear"));
            let name = role.trim_end_matches(['!', '?', '~', '-', '^']);
            let role_of = Role::parse(name).unwrap();
            nodes.push(Node {
                id: id.to_owned(),
                role: role_of,
                default_start: false,
                always_fail: role.contains('-'),
                continue_on_failure: role.contains('!'),
                merge_failure_mode: match role {
                    _ if role.contains('?') => MergeFailureMode::IgnoreFailures,
                    _ if role.contains('~') => MergeFailureMode::Partial,
                    _ => MergeFailureMode::FailOnAny,
                },
                winner: if role.contains('^') {
                    WinnerRule::First
                } else {
                    WinnerRule::Order
                },
                payload: Some(PayloadRule::Output),
            });
        }
        let ix = |id: &str| nodes.iter().position(|node| node.id == id).unwrap();
        let mut edges = Vec::new();
        for (from, word) in words.iter().enumerate() {
            let targets = word.split_once('>').map_or("", |(_, targets)| targets);
            for target in targets.split(',').filter(|target| !target.is_empty()) {
                let (to, label) = target.split_once('=').unwrap_or((target, ""));
                edges.push(Edge {
                    from,
                    to: ix(to),
                    label: (!label.is_empty()).then(|| label.to_owned()),
                });
            }
        }
        Graph::new(nodes, edges)
    }

    #[test]
    fn edges_are_known_at_both_ends() {
        let graph = graph("s:start>a a>x x:exit-");
        assert_eq!(graph.incoming(2), [1]);
        assert_eq!(graph.targets(0).collect::<Vec<_>>(), [1]);
        assert!(graph.nodes[2].always_fail);
        assert_eq!(graph.find("x"), Some(2));
    }
}
