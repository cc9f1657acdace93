//! `workflow.yaml`: nodes and edges, and what is wrong with them among themselves.
//!
//! Unaware of the other files.

use super::NodeKind;
use super::items::{key_path, read_mappings};
use super::node::{self, NodeDraft};
use super::problem::{Code, Manifest};
use super::shape::{self, EdgeSketch, NodeSketch};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::flow::graph::topology;
use crate::flow::graph::{Graph, MergeFailureMode, Role};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// An edge as it was written. An end is none where no node has the id.
#[derive(Debug)]
pub(super) struct EdgeDraft {
    /// Where it begins.
    pub from: Option<usize>,
    /// Where it ends.
    pub to: Option<usize>,
    pub label: Option<String>,
}

/// Reads the file. Of nodes with one id there is only the first.
pub(super) fn read_workflow(manifest: &mut Manifest) -> (Vec<NodeDraft>, Vec<EdgeDraft>) {
    let root = std::mem::take(&mut manifest.root);
    let mut out = Diagnostics::about("");
    let top = Section::new(&root, vec![]);
    top.warn_of_unknown_keys(
        &["nodes", "edges", "name", "description", "version"],
        &mut out,
    );
    let edges = read_mappings(&top, "edges", &mut out);
    if let Some(other) = root.get("nodes").filter(|nodes| !nodes.is_array()) {
        let message = format!("nodes: expected a list, found {}", describe_value(other));
        out.error(top.path_to("nodes"), message);
    }
    manifest.report(&[], out);
    let broken = !manifest.problems.is_empty();
    let nodes = read_nodes(manifest, &root);
    let ids = nodes.iter().enumerate();
    let by_id: HashMap<&str, usize> = ids.map(|(ix, node)| (node.id.as_str(), ix)).collect();
    let edges = read_edges(manifest, edges, &nodes, &by_id);
    if root.contains_key("nodes") || !broken {
        check_shape(manifest, &nodes, &edges);
    }
    for node in &nodes {
        check_role(manifest, node);
        warn_of_unused(manifest, node);
    }
    (nodes, edges)
}

fn read_nodes(manifest: &mut Manifest, root: &Map<String, Value>) -> Vec<NodeDraft> {
    let mut nodes: Vec<NodeDraft> = Vec::new();
    let mut ids = HashSet::new();
    let items = root.get("nodes").and_then(Value::as_array);
    for (index, item) in items.into_iter().flatten().enumerate() {
        let at = vec![Step::Key("nodes".to_owned()), Step::Item(index)];
        let Some(draft) = node::read_node(manifest, item, at) else {
            continue;
        };
        if ids.insert(draft.id.clone()) {
            nodes.push(draft);
        } else {
            let message = format!("a second node has the id \"{}\"; rename one", draft.id);
            manifest.add(Code::DuplicateNodeId, vec![draft.id], &draft.at, message);
        }
    }
    nodes
}

fn read_edges(
    manifest: &mut Manifest,
    items: Vec<(&Map<String, Value>, Vec<Step>)>,
    nodes: &[NodeDraft],
    by_id: &HashMap<&str, usize>,
) -> Vec<EdgeDraft> {
    let mut edges = Vec::new();
    let mut seen = HashSet::new();
    let mut labels = HashSet::new();
    for (map, at) in items {
        let mut out = Diagnostics::about("edge");
        let node = Section::new(map, at.clone());
        node.warn_of_unknown_keys(&["from", "to", "label"], &mut out);
        let mut end = |key: &str| {
            if !map.contains_key(key) {
                out.error(at.clone(), format!("has no {key}; name a node"));
            }
            node.read_text(key, &mut out).map(str::to_owned)
        };
        let ends = [end("from"), end("to")];
        let label = match map.get("label") {
            None | Some(Value::Null) => None,
            Some(_) => node.read_text("label", &mut out).map(str::to_owned),
        };
        manifest.report(&[], out);
        let [from, to] = ends.each_ref().map(|end| {
            let found = by_id.get(end.as_ref()?.as_str()).copied();
            if let (None, Some(id)) = (found, end) {
                add_unknown_node(manifest, id, nodes, &at);
            }
            found
        });
        let [Some(from_id), Some(to_id)] = ends else {
            edges.push(EdgeDraft { from, to, label });
            continue;
        };
        if !seen.insert((from_id.clone(), to_id.clone(), label.clone())) {
            let message =
                format!("a second edge goes from \"{from_id}\" to \"{to_id}\"; remove one");
            manifest.add(Code::DuplicateEdge, vec![from_id, to_id], &at, message);
            continue;
        }
        let decides = from.is_some_and(|ix| nodes[ix].role == Some(Role::Decision));
        if let Some(label) = label.as_ref().filter(|_| decides)
            && !labels.insert((from, label.clone()))
        {
            let message = format!(
                "a second edge of decision \"{from_id}\" has the label \"{label}\"; rename one"
            );
            manifest.add(Code::DuplicateLabel, vec![from_id], &at, message);
        }
        edges.push(EdgeDraft { from, to, label });
    }
    edges
}

fn add_unknown_node(manifest: &mut Manifest, id: &str, nodes: &[NodeDraft], at: &[Step]) {
    // Looking for what was meant takes a while in a long list.
    let meant = (nodes.len() <= 1000)
        .then(|| nearest(id, nodes.iter().map(|node| node.id.as_str())))
        .flatten();
    let hint = meant.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let message = format!("edge: there is no node \"{id}\"{hint}");
    manifest.add(Code::UnknownNode, vec![id.to_owned()], at, message);
}

fn check_shape(manifest: &mut Manifest, nodes: &[NodeDraft], edges: &[EdgeDraft]) {
    let sketches = nodes.iter().map(|node| NodeSketch {
        id: &node.id,
        role: node.role,
        default_start: node.default_start,
    });
    let sketches: Vec<NodeSketch> = sketches.collect();
    let ends: Vec<EdgeSketch> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    for finding in shape::check_graph(&sketches, &ends) {
        let at = finding.nodes.first().map_or(&[][..], |ix| &nodes[*ix].at);
        let ids = finding.nodes.iter().map(|ix| nodes[*ix].id.clone());
        manifest.add(finding.code, ids.collect(), at, finding.message);
    }
}

/// Adds what does not go with the role or the kind of a node.
#[rustfmt::skip]
fn check_role(manifest: &mut Manifest, node: &NodeDraft) {
    let is_agent = node.kind == Some(NodeKind::Agent);
    let is_start = node.role == Some(Role::Start);
    let is_exit = node.role == Some(Role::Exit);
    let has_tools = node.tools.as_ref().is_some_and(|tools| !tools.is_empty());
    let (has_role, has_form) = (node.role.is_some(), node.form.is_some());
    let form = node.form.unwrap_or("command");
    for (is_wrong, code, key, message) in [
        (is_start && is_agent, Code::StartNotDeterministic, "kind",
         "a start is deterministic; let a linear node behind it be the agent"),
        (is_exit && is_agent, Code::ExitNotDeterministic, "kind",
         "an exit is deterministic; let a linear node before it be the agent"),
        (is_exit && has_tools, Code::ExitHasTools, "tools",
         "an exit has no tools: it runs nothing"),
        (is_exit && has_form, Code::ExitHasCommand, form,
         "an exit has no command; let a linear node before it do the work"),
        (has_role && !is_exit && node.always_fail, Code::AlwaysFailOnNonExit, "always_fail",
         "only an exit has always_fail"),
        (has_role && !is_start && node.default_start, Code::DefaultStartOnNonStart, "default_start",
         "only a start has default_start"),
        (is_agent && node.agent_id.is_none(), Code::AgentIdMissing, "agent_id",
         "an agent needs agent_id: which of agents.yaml it is"),
        (is_agent && has_form && !is_exit, Code::ManifestInvalid, form,
         "an agent has no command of its own; write kind: deterministic, or remove it"),
    ] {
        if is_wrong {
            let message = format!("node \"{}\": {message}", node.id);
            manifest.add(code, vec![node.id.clone()], &key_path(&node.at, key), message);
        }
    }
}

/// Warns of keys that have no meaning on such a node.
fn warn_of_unused(manifest: &mut Manifest, node: &NodeDraft) {
    let mut out = Diagnostics::about(format!("node \"{}\"", node.id));
    if node.kind == Some(NodeKind::Deterministic) && node.agent_id.is_some() {
        let message = "agent_id has no meaning with kind: deterministic";
        out.warn(key_path(&node.at, "agent_id"), message);
    }
    let is_merge = node.role.is_none_or(|role| role == Role::Merge);
    if !is_merge && node.merge_failure_mode != MergeFailureMode::default() {
        let message = "merge_failure_mode has no meaning on a node that is not a merge";
        out.warn(key_path(&node.at, "merge_failure_mode"), message);
    }
    manifest.report(std::slice::from_ref(&node.id), out);
}

/// The graph, if nothing is wrong with its nodes and edges.
pub(super) fn build_graph(drafts: &[NodeDraft], edges: Vec<EdgeDraft>) -> Option<Graph> {
    let node = |draft: &NodeDraft| {
        Some(topology::Node {
            id: draft.id.clone(),
            role: draft.role?,
            default_start: draft.default_start,
            always_fail: draft.always_fail && draft.role == Some(Role::Exit),
            continue_on_failure: draft.continue_on_failure,
            merge_failure_mode: draft.merge_failure_mode,
        })
    };
    let nodes = drafts.iter().map(node).collect::<Option<_>>()?;
    let edge = |edge: EdgeDraft| {
        Some(topology::Edge {
            from: edge.from?,
            to: edge.to?,
            label: edge.label,
        })
    };
    let edges = edges.into_iter().map(edge).collect::<Option<_>>()?;
    Some(Graph::new(nodes, edges))
}
