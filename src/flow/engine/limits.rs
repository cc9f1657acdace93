//! How many programs of a node, and of a provider, may run at once.
//!
//! Unaware of what runs: the caller passes it, so that no count can go wrong.

use crate::flow::graph::NodeIx;
use crate::flow::manifest::Flow;

/// An index in [`ProgramLimits::groups`].
pub(super) type LimitGroup = usize;

/// The limits of a flow, each for a group of nodes.
pub(super) struct ProgramLimits {
    /// How many programs of each group may run.
    groups: Vec<usize>,
    /// The groups of each node: none of one that runs nothing.
    of_node: Vec<Vec<LimitGroup>>,
}

impl ProgramLimits {
    pub(super) fn new(flow: &Flow) -> Self {
        let mut groups = Vec::new();
        let mut of_node = vec![Vec::new(); flow.nodes.len()];
        for (node, settings) in flow.nodes.iter().enumerate() {
            if let Some(limit) = settings.limit.filter(|_| settings.runs()) {
                of_node[node].push(groups.len());
                groups.push(limit);
            }
        }
        for (index, provider) in flow.providers.iter().enumerate() {
            let Some(limit) = provider.limit else {
                continue;
            };
            for node in (0..flow.nodes.len()).filter(|node| flow.provider(*node) == Some(index)) {
                of_node[node].push(groups.len());
            }
            groups.push(limit);
        }
        Self { groups, of_node }
    }

    pub(super) fn groups_of(&self, node: NodeIx) -> &[LimitGroup] {
        &self.of_node[node]
    }

    /// How many more programs of a group may run beside those at these nodes.
    pub(super) fn room(&self, group: LimitGroup, at_work: impl Iterator<Item = NodeIx>) -> usize {
        let used = at_work.filter(|node| self.of_node[*node].contains(&group));
        self.groups[group].saturating_sub(used.count())
    }
}
