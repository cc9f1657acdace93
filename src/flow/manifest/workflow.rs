//! `workflow.yaml`: nodes and edges, and what is wrong with them among themselves.
//!
//! Unaware of the other files.

use super::NodeKind;
use super::items::list;
use super::node::{self, NodeDraft};
use super::problem::{Code, FlowProblem, Manifest};
use super::shape::{self, EdgeSketch, NodeSketch};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::flow::graph::topology::{self, Graph, MergeFailureMode, Role};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// An edge as it was written. An end is none where no node has the id.
#[derive(Debug)]
pub(crate) struct EdgeDraft {
    /// Where it begins.
    pub from: Option<usize>,
    /// Where it ends.
    pub to: Option<usize>,
    /// What a decision calls it.
    pub label: Option<String>,
}

/// Reads the file. Of nodes with one id there is only the first.
pub(crate) fn read(
    manifest: &mut Manifest,
    problems: &mut Vec<FlowProblem>,
) -> (Vec<NodeDraft>, Vec<EdgeDraft>) {
    let root = std::mem::take(&mut manifest.root);
    let mut out = Diagnostics::about("");
    let top = Section::new(&root, vec![]);
    top.warn_of_unknown_keys(
        &["nodes", "edges", "name", "description", "version"],
        &mut out,
    );
    let edges = list(&top, "edges", &mut out);
    if let Some(other) = root.get("nodes").filter(|nodes| !nodes.is_array()) {
        let message = format!("nodes: expected a list, found {}", describe_value(other));
        out.error(top.path_to("nodes"), message);
    }
    let mut said = Vec::new();
    manifest.report(&[], out.into_list(), &mut said);
    let broken = !problems.is_empty() || !said.is_empty();
    problems.extend(said);
    let nodes = nodes(manifest, &root, problems);
    let by_id: HashMap<&str, usize> = nodes
        .iter()
        .enumerate()
        .map(|(ix, node)| (node.id.as_str(), ix))
        .collect();
    let edges = self::edges(manifest, edges, &nodes, &by_id, problems);
    if root.contains_key("nodes") || !broken {
        shape(manifest, &nodes, &edges, problems);
    }
    for node in &nodes {
        roles(manifest, node, problems);
    }
    (nodes, edges)
}

fn nodes(
    manifest: &mut Manifest,
    root: &Map<String, Value>,
    problems: &mut Vec<FlowProblem>,
) -> Vec<NodeDraft> {
    let mut nodes: Vec<NodeDraft> = Vec::new();
    let mut ids = HashSet::new();
    let items = root.get("nodes").and_then(Value::as_array);
    for (index, item) in items.into_iter().flatten().enumerate() {
        let at = vec![Step::Key("nodes".to_owned()), Step::Item(index)];
        let Some(draft) = node::read(manifest, item, at, problems) else {
            continue;
        };
        if ids.insert(draft.id.clone()) {
            nodes.push(draft);
        } else {
            let message = format!("a second node has the id \"{}\"; rename one", draft.id);
            let ids = vec![draft.id.clone()];
            problems.push(manifest.problem(Code::DuplicateNodeId, ids, &draft.at, message));
        }
    }
    nodes
}

fn edges(
    manifest: &mut Manifest,
    items: Vec<(&Map<String, Value>, Vec<Step>)>,
    nodes: &[NodeDraft],
    by_id: &HashMap<&str, usize>,
    problems: &mut Vec<FlowProblem>,
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
        manifest.report(&[], out.into_list(), problems);
        let [from, to] = ends.each_ref().map(|end| {
            let found = by_id.get(end.as_ref()?.as_str()).copied();
            if let (None, Some(id)) = (found, end) {
                problems.push(unknown_node(manifest, id, by_id, nodes, &at));
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
            let ids = vec![from_id, to_id];
            problems.push(manifest.problem(Code::DuplicateEdge, ids, &at, message));
            continue;
        }
        let decides = from.is_some_and(|ix| nodes[ix].role == Some(Role::Decision));
        if let Some(label) = label.as_ref().filter(|_| decides)
            && !labels.insert((from, label.clone()))
        {
            let message = format!(
                "a second edge of decision \"{from_id}\" has the label \"{label}\"; rename one"
            );
            problems.push(manifest.problem(Code::DuplicateLabel, vec![from_id], &at, message));
        }
        edges.push(EdgeDraft { from, to, label });
    }
    edges
}

fn unknown_node(
    manifest: &mut Manifest,
    id: &str,
    by_id: &HashMap<&str, usize>,
    nodes: &[NodeDraft],
    at: &[Step],
) -> FlowProblem {
    // Looking for what was meant takes a while in a long list.
    let meant = (by_id.len() <= 1000)
        .then(|| nearest(id, nodes.iter().map(|node| node.id.as_str())))
        .flatten();
    let hint = meant.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let message = format!("edge: there is no node \"{id}\"{hint}");
    manifest.problem(Code::UnknownNode, vec![id.to_owned()], at, message)
}

fn shape(
    manifest: &mut Manifest,
    nodes: &[NodeDraft],
    edges: &[EdgeDraft],
    problems: &mut Vec<FlowProblem>,
) {
    let knots: Vec<NodeSketch> = nodes
        .iter()
        .map(|node| NodeSketch {
            id: &node.id,
            role: node.role,
            default_start: node.default_start,
        })
        .collect();
    let ways: Vec<EdgeSketch> = edges
        .iter()
        .map(|edge| EdgeSketch {
            from: edge.from,
            to: edge.to,
        })
        .collect();
    for finding in shape::check(&knots, &ways) {
        let at = finding.nodes.first().map_or(&[][..], |ix| &nodes[*ix].at);
        let ids = finding.nodes.iter().map(|ix| nodes[*ix].id.clone());
        let ids = ids.collect();
        problems.push(manifest.problem(finding.code, ids, at, finding.message));
    }
}

/// What a node says that does not go with its role or its kind.
fn roles(manifest: &mut Manifest, node: &NodeDraft, problems: &mut Vec<FlowProblem>) {
    let about = format!("node \"{}\"", node.id);
    let mut say = |code, key: &str, message: &str| {
        let ids = vec![node.id.clone()];
        let message = format!("{about}: {message}");
        problems.push(manifest.problem(code, ids, &node.key(key), message));
    };
    let is_agent = node.kind == Some(NodeKind::Agent);
    let has_role = |role| node.role == Some(role);
    if has_role(Role::Start) && is_agent {
        let message = "a start is deterministic; let a linear node behind it be the agent";
        say(Code::StartNotDeterministic, "kind", message);
    }
    if has_role(Role::Exit) && is_agent {
        let message = "an exit is deterministic; let a linear node before it be the agent";
        say(Code::ExitNotDeterministic, "kind", message);
    }
    if has_role(Role::Exit) && node.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        say(
            Code::ExitHasTools,
            "tools",
            "an exit has no tools: it runs nothing",
        );
    }
    if has_role(Role::Exit) && node.form.is_some() {
        let message = "an exit has no command; let a linear node before it do the work";
        say(
            Code::ExitHasCommand,
            node.form.unwrap_or("command"),
            message,
        );
    }
    if node.role.is_some() && !has_role(Role::Exit) && node.always_fail {
        say(
            Code::AlwaysFailOnNonExit,
            "always_fail",
            "only an exit has always_fail",
        );
    }
    if node.role.is_some() && !has_role(Role::Start) && node.default_start {
        let message = "only a start has default_start";
        say(Code::DefaultStartOnNonStart, "default_start", message);
    }
    if is_agent && node.agent_id.is_none() {
        say(
            Code::AgentIdMissing,
            "agent_id",
            "an agent needs agent_id: which of agents.yaml it is",
        );
    }
    if is_agent && node.form.is_some() && !has_role(Role::Exit) {
        let message = "an agent has no command of its own; write kind: deterministic, or remove it";
        say(
            Code::ManifestInvalid,
            node.form.unwrap_or("command"),
            message,
        );
    }
    unused(manifest, node, problems);
}

/// Keys that have no meaning on such a node, or none in this version.
fn unused(manifest: &mut Manifest, node: &NodeDraft, problems: &mut Vec<FlowProblem>) {
    let mut out = Diagnostics::about(format!("node \"{}\"", node.id));
    if node.kind == Some(NodeKind::Deterministic) && node.agent_id.is_some() {
        out.warn(
            node.key("agent_id"),
            "agent_id has no meaning with kind: deterministic",
        );
    }
    let is_merge = node.role.is_none_or(|role| role == Role::Merge);
    if !is_merge && node.merge_failure_mode != MergeFailureMode::default() {
        let message = "merge_failure_mode has no meaning on a node that is no merge";
        out.warn(node.key("merge_failure_mode"), message);
    }
    manifest.report(std::slice::from_ref(&node.id), out.into_list(), problems);
}

/// The graph, if nothing is wrong with its nodes and edges.
pub(super) fn graph(drafts: &[NodeDraft], edges: Vec<EdgeDraft>) -> Option<Graph> {
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
