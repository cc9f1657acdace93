//! `workflow.yaml`: nodes and edges, and what is wrong with them among themselves.
//!
//! Unaware of the other files.

use super::command::FORMS;
use super::derive::derive_roles;
use super::fields::{fields, or_null};
use super::node::{Defaults, EdgeDraft, NodeSettings, read_node};
use super::problem::{Code, Manifest};
use super::scheduling::{Scheduling, read_scheduling};
use super::shape::check_graph;
use super::{KeptRecords, NodeKind};
use crate::config::section::{Section, describe_value};
use crate::flow::graph::topology;
use crate::flow::graph::{Graph, MergeFailureMode, NodeIx, Role, RoutePlan};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;

fields! {
    /// The file as it was written.
    #[derive(Default)]
    struct WorkflowFile {
        defaults: Defaults = or_null("defaults"),
        records: Option<KeptRecords>,
    }
    beside {
        /// Only the first of nodes with one id.
        nodes: Vec<NodeSettings>,
        edges: Vec<EdgeDraft>,
        /// None: there is no such key.
        scheduling: Option<Scheduling>,
    }
    by hand { "nodes", "edges", "scheduling", "name", "description", "version" }
}

/// Reads the file. Contexts are derived later.
pub(super) fn read_workflow(manifest: &mut Manifest, home: &Path) -> WorkflowFile {
    let root = std::mem::take(&mut manifest.root);
    let section = Section::new(&root, vec![]);
    let (mut file, items) = manifest.visit("", &[], &section, |top| {
        let mut file = WorkflowFile::read_keys(top);
        if top.value("scheduling").is_some() {
            let given = top.read_section("scheduling");
            file.scheduling = given.map(|given| read_scheduling(&given, home));
        }
        file.edges = read_edges(top);
        if root.get("nodes").is_some_and(Value::is_null) {
            section.read_list("nodes");
        }
        (file, top.mappings("nodes"))
    });
    let broken = !manifest.problems.is_empty();
    file.nodes = read_nodes(manifest, &items, &file.defaults);
    find_ends(manifest, &mut file.edges, &file.nodes);
    let counts = derive_roles(manifest, &mut file.nodes, &file.edges);
    check_labels(manifest, &file.nodes, &file.edges);
    if root.contains_key("nodes") || !broken {
        check_graph(manifest, &file.nodes, &file.edges, &counts);
    }
    for node in &file.nodes {
        check_role(manifest, node);
    }
    warn_of_idle(manifest, &file.nodes);
    file
}

fn read_nodes(
    manifest: &mut Manifest,
    items: &[Section],
    defaults: &Defaults,
) -> Vec<NodeSettings> {
    let mut nodes: Vec<NodeSettings> = Vec::new();
    let mut ids = HashSet::new();
    for section in items {
        let Some(node) = read_node(manifest, section, defaults) else {
            continue;
        };
        if ids.insert(node.id.clone()) {
            nodes.push(node);
        } else {
            let message = format!("a second node has the id \"{}\"; rename one", node.id);
            manifest.push(Some(Code::DuplicateNodeId), &[&node.id], &node.at, message);
        }
    }
    nodes
}

/// The edges as they were written: each is a mapping, or a chain of ids.
fn read_edges(top: &Section) -> Vec<EdgeDraft> {
    let mut edges = Vec::new();
    if top.value("edges").is_none() {
        return edges;
    }
    let items = top.read_list("edges");
    for (index, item) in items.into_iter().flatten().enumerate() {
        let at = top.path_to_item("edges", index);
        match item {
            Value::Object(map) => edges.push(read_edge(&top.inner(map, at).about("edge"))),
            Value::Array(ids) => edges.extend(read_chain(top, ids, &at)),
            other => {
                let found = describe_value(other);
                let message =
                    format!("edges: expected a mapping or a chain of nodes, found {found}");
                top.error_at(at, message);
            }
        }
    }
    edges
}

fn read_edge(node: &Section) -> EdgeDraft {
    node.warn_of_unknown_keys(&["from", "to", "label"]);
    let ids = ["from", "to"].map(|key| {
        if !node.has(key) {
            node.error("", format!("has no {key}; name a node"));
        }
        node.read_text(key).map(str::to_owned)
    });
    EdgeDraft {
        ids,
        ends: [None; 2],
        label: node.read_row(&or_null("label")),
        at: [node.path_to(""), node.path_to("")],
    }
}

/// The edges of `[a, b, c]`: one from each node to the next.
fn read_chain(top: &Section, ids: &[Value], at: &[Step]) -> Vec<EdgeDraft> {
    if ids.len() < 2 {
        let found = crate::text::amounts::counted(ids.len(), "node");
        let message = format!("edge: a chain of {found} leads nowhere; it needs two or more");
        top.error_at(at.to_vec(), message);
    }
    let place = |index: usize| [at, &[Step::Item(index)]].concat();
    for (index, id) in ids.iter().enumerate().filter(|(_, id)| !id.is_string()) {
        let found = describe_value(id);
        let message = format!("edge: a chain is made of ids of nodes, not of {found}");
        top.error_at(place(index), message);
    }
    let pairs = ids.windows(2).enumerate();
    let edges = pairs.map(|(index, pair)| EdgeDraft {
        ids: [0, 1].map(|end| pair[end].as_str().map(str::to_owned)),
        ends: [None; 2],
        label: None,
        at: [place(index), place(index + 1)],
    });
    edges.collect()
}

/// Looks up the ends of edges. Keeps only the first of edges that are the same.
fn find_ends(manifest: &mut Manifest, edges: &mut Vec<EdgeDraft>, nodes: &[NodeSettings]) {
    let ids = nodes.iter().enumerate();
    let by_id: HashMap<&str, usize> = ids.map(|(ix, node)| (node.id.as_str(), ix)).collect();
    let mut seen = HashSet::new();
    let mut unknown = HashSet::new();
    edges.retain_mut(|edge| {
        edge.ends = [0, 1].map(|end| {
            let id = edge.ids[end].as_ref()?;
            let found = by_id.get(id.as_str()).copied();
            // A node inside a chain is the end of two edges.
            let at = &edge.at[end];
            if found.is_none() && unknown.insert((id.clone(), at.clone())) {
                add_unknown_node(manifest, id, nodes, at);
            }
            found
        });
        let [Some(from), Some(to)] = &edge.ids else {
            return true;
        };
        let is_new = seen.insert((from.clone(), to.clone(), edge.label.clone()));
        if !is_new {
            let message = format!("a second edge goes from \"{from}\" to \"{to}\"; remove one");
            let code = Some(Code::DuplicateEdge);
            manifest.push(code, &[from, to], &edge.at[1], message);
        }
        is_new
    });
}

/// Adds labels that two edges of one decision have.
fn check_labels(manifest: &mut Manifest, nodes: &[NodeSettings], edges: &[EdgeDraft]) {
    let mut labels = HashSet::new();
    for edge in edges {
        let ([Some(from), Some(_)], Some(label)) = (edge.ends, &edge.label) else {
            continue;
        };
        if nodes[from].role == Some(Role::Decision) && !labels.insert((from, label)) {
            let id = &nodes[from].id;
            let message =
                format!("a second edge of decision \"{id}\" has the label \"{label}\"; rename one");
            manifest.push(Some(Code::DuplicateLabel), &[id], &edge.at[1], message);
        }
    }
}

fn add_unknown_node(manifest: &mut Manifest, id: &str, nodes: &[NodeSettings], at: &[Step]) {
    // Looking for what was meant takes a while in a long list.
    let ids = nodes.iter().map(|node| node.id.as_str());
    let meant = nearest(id, ids.filter(|_| nodes.len() <= 1000));
    let hint = meant.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let message = format!("edge: there is no node \"{id}\"{hint}");
    manifest.push(Some(Code::UnknownNode), &[id], at, message);
}

/// Adds what does not go with the role or the kind of a node, and keys that have no meaning on such a node.
#[rustfmt::skip]
fn check_role(manifest: &mut Manifest, node: &NodeSettings) {
    let is_agent = node.kind == Some(NodeKind::Agent);
    let is_start = node.role == Some(Role::Start);
    let is_exit = node.role == Some(Role::Exit);
    let has_tools = node.tools.as_ref().is_some_and(|tools| !tools.is_empty());
    let has_form = node.form.is_some();
    let form = node.form.unwrap_or("command");
    let waits = node.wait.is_some();
    let has_command = node.form.is_some_and(|form| FORMS.contains(&form));
    let is_other = |role: Role| node.role.is_some_and(|it| it != role);
    let has_mode = node.merge_failure_mode != MergeFailureMode::default();
    for (is_wrong, code, key, message) in [
        (is_start && is_agent, Some(Code::StartNotDeterministic), "kind",
         "a start is deterministic; make a linear node after it the agent"),
        (is_exit && is_agent, Some(Code::ExitNotDeterministic), "kind",
         "an exit is deterministic; let a linear node before it be the agent"),
        (is_exit && has_tools, Some(Code::ExitHasTools), "tools",
         "an exit has no tools: it runs nothing"),
        (is_exit && has_form, Some(Code::ExitHasCommand), form,
         "an exit has no command; let a linear node before it do the work"),
        (node.always_fail && is_other(Role::Exit), Some(Code::AlwaysFailOnNonExit), "always_fail",
         "only an exit has always_fail"),
        (node.default_start && is_other(Role::Start), Some(Code::DefaultStartOnNonStart), "default_start",
         "only a start has default_start"),
        (is_agent && node.agent_id.is_none(), Some(Code::AgentIdMissing), "agent_id",
         "an agent needs agent_id: which of agents.yaml it is"),
        (node.flow_dir.is_some() && node.command.is_some(), Some(Code::ManifestInvalid), "flow",
         "a node is a flow or runs a command; keep one of the two"),
        (node.later.is_some() && !has_command, Some(Code::ManifestInvalid), "later",
         "only a command ends later; give the node one"),
        (waits && is_other(Role::Linear), Some(Code::ManifestInvalid), "wait",
         "only a linear node waits; put one before or after it"),
        (waits && (has_form || is_agent), Some(Code::ManifestInvalid), "wait",
         "a node waits or runs something; keep one of the two"),
        (is_agent && has_form && !is_exit, Some(Code::ManifestInvalid), form,
         "an agent has no command of its own; write kind: deterministic, or remove it"),
        (node.kind == Some(NodeKind::Deterministic) && node.agent_id.is_some(), None, "agent_id",
         "agent_id has no meaning with kind: deterministic"),
        (has_mode && is_other(Role::Merge), None, "merge_failure_mode",
         "merge_failure_mode has no meaning on a node that is not a merge"),
        (node.winner.is_some() && is_other(Role::Branch), None, "winner",
         "winner has no meaning on a node that is not a branch"),
        (node.payload.is_some() && is_other(Role::Decision), None, "payload",
         "payload has no meaning on a node that is not a decision"),
    ] {
        if is_wrong {
            manifest.add_to(node.place(), key, code, message);
        }
    }
}

/// Warns, once, of linear nodes that the payload only passes.
fn warn_of_idle(manifest: &mut Manifest, nodes: &[NodeSettings]) {
    let is_idle = |node: &&NodeSettings| {
        let runs = node.form.is_some() || node.kind != Some(NodeKind::Deterministic);
        let checks = node.schema_in.is_some() || node.schema_out.is_some();
        let remembers = !node.remember.is_empty();
        let waits = node.wait.is_some();
        node.role == Some(Role::Linear) && !runs && !waits && !checks && !remembers
    };
    let idle: Vec<&NodeSettings> = nodes.iter().filter(is_idle).collect();
    let Some(first) = idle.first() else {
        return;
    };
    let more = match idle.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "node \"{}\"{more}: linear, without a command or an agent: the payload passes unchanged; give it one, or remove it",
        first.id
    );
    let ids: Vec<&str> = idle.iter().map(|node| &*node.id).collect();
    manifest.push(None, &ids, &first.at, message);
}

/// Warns of branches that choose a winner and whose clones are merged. The graph is one that can be run.
pub(super) fn warn_of_idle_winners(manifest: &mut Manifest, nodes: &[NodeSettings], graph: &Graph) {
    let role = |node: &NodeIx| graph.nodes[*node].role;
    let chooses = |node: &NodeIx| role(node) == Role::Branch && nodes[*node].winner.is_some();
    let mut idle: Vec<NodeIx> = (0..nodes.len()).filter(chooses).collect();
    if idle.is_empty() {
        return;
    }
    for start in (0..nodes.len()).filter(|node| role(node) == Role::Start) {
        let plan = RoutePlan::new(graph, start);
        idle.retain(|node| !plan.races[*node]);
    }
    for node in idle {
        let message = "winner has no meaning on a branch whose clones come to a merge";
        manifest.add_to(nodes[node].place(), "winner", None, message);
    }
}

/// The graph, if nothing is wrong with its nodes and edges.
pub(super) fn build_graph(nodes: &[NodeSettings], edges: Vec<EdgeDraft>) -> Option<Graph> {
    let node = |node: &NodeSettings| {
        Some(topology::Node {
            id: node.id.clone(),
            role: node.role?,
            default_start: node.default_start,
            always_fail: node.always_fail && node.role == Some(Role::Exit),
            continue_on_failure: node.continue_on_failure,
            merge_failure_mode: node.merge_failure_mode,
            winner: node.winner.unwrap_or_default(),
            payload: node.payload,
        })
    };
    let edge = |edge: EdgeDraft| {
        let [from, to] = edge.ends;
        Some(topology::Edge {
            from: from?,
            to: to?,
            label: edge.label,
        })
    };
    Some(Graph::new(
        nodes.iter().map(node).collect::<Option<_>>()?,
        edges.into_iter().map(edge).collect::<Option<_>>()?,
    ))
}
