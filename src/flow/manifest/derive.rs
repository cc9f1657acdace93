//! Derives what a workflow need not say: roles from the edges, contexts from agents and defaults.
//!
//! Unaware of what is looked up in other files: a context is a name here.

use super::agent::FlowAgent;
use super::node::{EdgeDraft, NodeSettings};
use super::problem::{Code, Manifest};
use crate::flow::graph::Role;

/// The numbers of edges that end and begin at a node.
#[derive(Clone, Copy, Default)]
pub(super) struct EdgeCounts {
    pub into: usize,
    pub out: usize,
    /// One that begins there has a label.
    is_labelled: bool,
}

/// Gives the nodes that lack one the role that their edges say, and a single start its mark. Returns the edges of each
/// node.
pub(super) fn derive_roles(
    manifest: &mut Manifest,
    nodes: &mut [NodeSettings],
    edges: &[EdgeDraft],
) -> Vec<EdgeCounts> {
    let mut counts = vec![EdgeCounts::default(); nodes.len()];
    for edge in edges {
        let [from, to] = edge.ends;
        if let Some(from) = from {
            counts[from].out += 1;
            counts[from].is_labelled |= edge.label.is_some();
        }
        if let Some(to) = to {
            counts[to].into += 1;
        }
    }
    for (node, counts) in nodes.iter_mut().zip(counts.iter().copied()) {
        if !node.lacks_role {
            continue;
        }
        node.role = role_by_edges(counts);
        match node.role {
            Some(role) => node.derived.push(("role", role.name().to_owned())),
            None => add_no_role(manifest, node, counts),
        }
    }
    let mut starts = nodes.iter_mut().filter(|it| it.role == Some(Role::Start));
    if let (Some(only), None) = (starts.next(), starts.next())
        && !only.default_start
    {
        only.derived.push(("default_start", "true".to_owned()));
    }
    counts
}

/// The role that edges say, if it is one.
fn role_by_edges(counts: EdgeCounts) -> Option<Role> {
    match (counts.into, counts.out) {
        (0, 0) => None,
        (0, _) => Some(Role::Start),
        (_, 0) => Some(Role::Exit),
        _ if counts.is_labelled => Some(Role::Decision),
        (1, 1) => Some(Role::Linear),
        (1, _) => None,
        _ => Some(Role::Merge),
    }
}

fn add_no_role(manifest: &mut Manifest, node: &NodeSettings, counts: EdgeCounts) {
    let message = match counts.out {
        0 => "has no role, and no edge to derive it from".to_owned(),
        out => format!(
            "has no role, and 1 edge in and {out} out can be a branch, a split or a decision; \
             write role:, or give the edges of a decision labels"
        ),
    };
    manifest.add_to(node.place(), "role", Some(Code::BadRole), message);
}

/// Gives the nodes that lack a context that of their agent, or else the default.
pub(super) fn derive_contexts(
    manifest: &mut Manifest,
    nodes: &mut [NodeSettings],
    agents: &[FlowAgent],
    default: Option<&str>,
) {
    for node in nodes.iter_mut().filter(|node| node.lacks_context) {
        let id = node.agent_id.as_ref();
        let mut named = agents.iter().filter(|agent| Some(&agent.id) == id);
        let of_agent = named.find_map(|agent| agent.context.as_deref());
        if let Some(context) = of_agent.or(default) {
            node.context = Some(context.to_owned());
            node.derived.push(("context", context.to_owned()));
            continue;
        }
        let message =
            "has no context; needs none, global, or a profile of memory.yaml, here or in defaults:";
        manifest.add_to(node.place(), "context", Some(Code::ContextMissing), message);
    }
}
