//! Derives what a workflow need not say: roles from the edges, contexts from agents and defaults.
//!
//! Unaware of what is looked up in other files: a context is a name here.

use super::agent::AgentDraft;
use super::defaults::Defaults;
use super::items::key_path;
use super::node::NodeDraft;
use super::problem::{Code, Manifest};
use crate::flow::graph::Role;
use crate::text::yaml::Step;
use std::collections::HashMap;

/// How often edges end and begin at a node.
#[derive(Clone, Copy, Default)]
struct EdgeCounts {
    into: usize,
    out: usize,
    /// One that begins there has a label.
    is_labelled: bool,
}

/// Gives the nodes that lack one the role that their edges say, and a single start its mark. Of an edge it
/// takes its ends and if it has a label.
pub(super) fn derive_roles(
    manifest: &mut Manifest,
    nodes: &mut [NodeDraft],
    edges: impl Iterator<Item = (Option<usize>, Option<usize>, bool)>,
) {
    let mut counts = vec![EdgeCounts::default(); nodes.len()];
    for (from, to, is_labelled) in edges {
        if let Some(from) = from {
            counts[from].out += 1;
            counts[from].is_labelled |= is_labelled;
        }
        if let Some(to) = to {
            counts[to].into += 1;
        }
    }
    for (node, counts) in nodes.iter_mut().zip(counts) {
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

fn add_no_role(manifest: &mut Manifest, node: &NodeDraft, counts: EdgeCounts) {
    let id = &node.id;
    let message = match counts.out {
        0 => format!("node \"{id}\": has no role, and no edge to derive it from"),
        out => format!(
            "node \"{id}\": has no role, and 1 edge in and {out} out can be a branch, a split or a decision; \
             write role:, or give the edges of a decision labels"
        ),
    };
    let at = key_path(&node.at, "role");
    manifest.add(Code::BadRole, vec![id.clone()], &at, message);
}

/// Gives the nodes that lack a context that of their agent, or else the default.
pub(super) fn derive_contexts(
    manifest: &mut Manifest,
    nodes: &mut [NodeDraft],
    agents: &[AgentDraft],
    defaults: &Defaults,
) {
    let of_agents: HashMap<&str, &str> = agents
        .iter()
        .rev()
        .filter_map(|agent| Some((&*agent.id, agent.context.as_deref()?)))
        .collect();
    for node in nodes.iter_mut().filter(|node| node.lacks_context) {
        let of_agent = node.agent_id.as_deref().and_then(|id| of_agents.get(id));
        let context = of_agent.copied().or(defaults.context.as_deref());
        if let Some(context) = context {
            node.context = Some(context.to_owned());
            node.derived.push(("context", context.to_owned()));
            continue;
        }
        let id = &node.id;
        let message = format!(
            "node \"{id}\": has no context; needs none, global, or a profile of memory.yaml, here or in defaults:"
        );
        let at: Vec<Step> = key_path(&node.at, "context");
        manifest.add(Code::ContextMissing, vec![id.clone()], &at, message);
    }
}
