//! `workflow.yaml`: nodes and edges, and what is wrong with them among themselves.
//!
//! Unaware of the other files.

use super::command::FORMS;
use super::defaults::{Defaults, read_defaults};
use super::derive::derive_roles;
use super::items::key_path;
use super::node::{self, NodeDraft};
use super::problem::{Code, Manifest};
use super::scheduling::{SchedulingDraft, read_scheduling};
use super::shape::{self, EdgeSketch, NodeSketch};
use super::{KeptRecords, NodeKind};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::flow::graph::topology;
use crate::flow::graph::{Graph, MergeFailureMode, NodeIx, Role, RoutePlan};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// An edge as it was written. An end without a node of its id is None.
#[derive(Debug)]
pub(super) struct EdgeDraft {
    /// Where it begins.
    pub from: Option<usize>,
    /// Where it ends.
    pub to: Option<usize>,
    pub label: Option<String>,
    /// Place in the document.
    at: Vec<Step>,
}

/// The file as it was written.
#[derive(Debug, Default)]
pub(super) struct WorkflowFile {
    /// Of nodes with one id there is only the first.
    pub nodes: Vec<NodeDraft>,
    pub edges: Vec<EdgeDraft>,
    pub defaults: Defaults,
    /// None: there is no such key.
    pub scheduling: Option<SchedulingDraft>,
    /// None: there is no such key.
    pub records: Option<KeptRecords>,
}

/// The ids of an edge's ends and its label as they were written.
struct EdgeWords {
    ends: [Option<String>; 2],
    /// The places of its ends.
    at: [Vec<Step>; 2],
    label: Option<String>,
}

/// Reads the file. Contexts are derived later.
pub(super) fn read_workflow(manifest: &mut Manifest, home: &Path) -> WorkflowFile {
    let root = std::mem::take(&mut manifest.root);
    let mut out = Diagnostics::about("");
    let top = Section::new(&root, vec![]);
    top.warn_of_unknown_keys(
        &[
            "nodes",
            "edges",
            "defaults",
            "scheduling",
            "records",
            "name",
            "description",
            "version",
        ],
        &mut out,
    );
    let defaults = read_defaults(&top, &mut out);
    let scheduling = match root.get("scheduling").is_some_and(|it| !it.is_null()) {
        true => top.read_section("scheduling", &mut out),
        false => None,
    };
    let scheduling = scheduling.map(|node| read_scheduling(&node, home, &mut out));
    let records = top.read_choice("records", &KeptRecords::ALL, &mut out);
    let words = read_edge_words(&top, &mut out);
    if let Some(other) = root.get("nodes").filter(|nodes| !nodes.is_array()) {
        let message = format!("nodes: expected a list, found {}", describe_value(other));
        out.error(top.path_to("nodes"), message);
    }
    manifest.report(&[], out);
    let broken = !manifest.problems.is_empty();
    let mut nodes = read_nodes(manifest, &root, &defaults);
    let edges = find_ends(manifest, words, &nodes);
    let ends = edges
        .iter()
        .map(|edge| (edge.from, edge.to, edge.label.is_some()));
    derive_roles(manifest, &mut nodes, ends);
    check_labels(manifest, &nodes, &edges);
    if root.contains_key("nodes") || !broken {
        check_shape(manifest, &nodes, &edges);
    }
    for node in &nodes {
        check_role(manifest, node);
        warn_of_unused(manifest, node);
    }
    warn_of_idle(manifest, &nodes);
    WorkflowFile {
        nodes,
        edges,
        defaults,
        scheduling,
        records,
    }
}

fn read_nodes(
    manifest: &mut Manifest,
    root: &Map<String, Value>,
    defaults: &Defaults,
) -> Vec<NodeDraft> {
    let mut nodes: Vec<NodeDraft> = Vec::new();
    let mut ids = HashSet::new();
    let items = root.get("nodes").and_then(Value::as_array);
    for (index, item) in items.into_iter().flatten().enumerate() {
        let at = vec![Step::Key("nodes".to_owned()), Step::Item(index)];
        let Some(draft) = node::read_node(manifest, item, at, defaults) else {
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

/// The edges as they were written: each is a mapping, or a chain of ids.
fn read_edge_words(top: &Section, out: &mut Diagnostics) -> Vec<EdgeWords> {
    let mut words = Vec::new();
    if top.map.get("edges").is_none_or(Value::is_null) {
        return words;
    }
    let items = top.read_list("edges", out);
    for (index, item) in items.into_iter().flatten().enumerate() {
        let mut at = top.path_to("edges");
        at.push(Step::Item(index));
        match item {
            Value::Object(map) => words.push(read_edge(map, at, out)),
            Value::Array(ids) => words.extend(read_chain(ids, &at, out)),
            other => {
                let found = describe_value(other);
                let message =
                    format!("edges: expected a mapping or a chain of nodes, found {found}");
                out.error(at, message);
            }
        }
    }
    words
}

fn read_edge(map: &Map<String, Value>, at: Vec<Step>, all: &mut Diagnostics) -> EdgeWords {
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
    all.absorb(out);
    EdgeWords {
        ends,
        at: [at.clone(), at],
        label,
    }
}

/// The edges of `[a, b, c]`: one from each node to the next.
fn read_chain(ids: &[Value], at: &[Step], all: &mut Diagnostics) -> Vec<EdgeWords> {
    let mut out = Diagnostics::about("edge");
    let place = |index: usize| {
        let mut at = at.to_vec();
        at.push(Step::Item(index));
        at
    };
    if ids.len() < 2 {
        let found = crate::text::amounts::counted(ids.len(), "node");
        out.error(
            at.to_vec(),
            format!("a chain of {found} leads nowhere; it needs two or more"),
        );
    }
    let mut name = |(index, id): (usize, &Value)| {
        if !id.is_string() {
            let found = describe_value(id);
            out.error(
                place(index),
                format!("a chain is made of ids of nodes, not of {found}"),
            );
        }
        id.as_str().map(str::to_owned)
    };
    let names: Vec<Option<String>> = ids.iter().enumerate().map(&mut name).collect();
    all.absorb(out);
    let pairs = names.windows(2).enumerate();
    let edge = |(index, pair): (usize, &[Option<String>])| EdgeWords {
        ends: [pair[0].clone(), pair[1].clone()],
        at: [place(index), place(index + 1)],
        label: None,
    };
    pairs.map(edge).collect()
}

/// Looks up the ends of edges. Of edges that are the same there is only the first.
fn find_ends(
    manifest: &mut Manifest,
    words: Vec<EdgeWords>,
    nodes: &[NodeDraft],
) -> Vec<EdgeDraft> {
    let ids = nodes.iter().enumerate();
    let by_id: HashMap<&str, usize> = ids.map(|(ix, node)| (node.id.as_str(), ix)).collect();
    let mut edges = Vec::new();
    let mut seen = HashSet::new();
    let mut unknown = HashSet::new();
    for EdgeWords { ends, at, label } in words {
        let mut find = |end: usize| {
            let id = ends[end].as_ref()?;
            let found = by_id.get(id.as_str()).copied();
            // A node inside a chain is the end of two edges.
            if found.is_none() && unknown.insert((id.clone(), at[end].clone())) {
                add_unknown_node(manifest, id, nodes, &at[end]);
            }
            found
        };
        let [from, to] = [find(0), find(1)];
        let [_, at] = at;
        if let [Some(from_id), Some(to_id)] = ends
            && !seen.insert((from_id.clone(), to_id.clone(), label.clone()))
        {
            let message =
                format!("a second edge goes from \"{from_id}\" to \"{to_id}\"; remove one");
            manifest.add(Code::DuplicateEdge, vec![from_id, to_id], &at, message);
            continue;
        }
        edges.push(EdgeDraft {
            from,
            to,
            label,
            at,
        });
    }
    edges
}

/// Adds labels that two edges of one decision have.
fn check_labels(manifest: &mut Manifest, nodes: &[NodeDraft], edges: &[EdgeDraft]) {
    let mut labels = HashSet::new();
    for edge in edges {
        let (Some(from), Some(_), Some(label)) = (edge.from, edge.to, &edge.label) else {
            continue;
        };
        if nodes[from].role == Some(Role::Decision) && !labels.insert((from, label)) {
            let id = &nodes[from].id;
            let message =
                format!("a second edge of decision \"{id}\" has the label \"{label}\"; rename one");
            manifest.add(Code::DuplicateLabel, vec![id.clone()], &edge.at, message);
        }
    }
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
    let waits = node.settings.wait.is_some();
    let has_command = node.form.is_some_and(|form| FORMS.contains(&form));
    for (is_wrong, code, key, message) in [
        (is_start && is_agent, Code::StartNotDeterministic, "kind",
         "a start is deterministic; make a linear node after it the agent"),
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
        (node.flow.is_some() && node.settings.command.is_some(), Code::ManifestInvalid, "flow",
         "a node is a flow or runs a command; keep one of the two"),
        (node.settings.later.is_some() && !has_command, Code::ManifestInvalid, "later",
         "only a command ends later; give the node one"),
        (has_role && waits && node.role != Some(Role::Linear), Code::ManifestInvalid, "wait",
         "only a linear node waits; put one before or after it"),
        (waits && (has_form || is_agent), Code::ManifestInvalid, "wait",
         "a node waits or runs something; keep one of the two"),
        (is_agent && has_form && !is_exit, Code::ManifestInvalid, form,
         "an agent has no command of its own; write kind: deterministic, or remove it"),
    ] {
        if is_wrong {
            let message = format!("node \"{}\": {message}", node.id);
            manifest.add(code, vec![node.id.clone()], &key_path(&node.at, key), message);
        }
    }
}

/// Warns, once, of linear nodes that the payload only passes.
fn warn_of_idle(manifest: &mut Manifest, nodes: &[NodeDraft]) {
    let is_idle = |node: &&NodeDraft| {
        let runs = node.form.is_some() || node.kind != Some(NodeKind::Deterministic);
        let checks = node.schema_in.is_some() || node.schema_out.is_some();
        let remembers = !node.settings.remember.is_empty();
        let waits = node.settings.wait.is_some();
        node.role == Some(Role::Linear) && !runs && !waits && !checks && !remembers
    };
    let idle: Vec<&NodeDraft> = nodes.iter().filter(is_idle).collect();
    let ids: Vec<String> = idle.iter().map(|node| node.id.clone()).collect();
    let subject = match &*idle {
        [] => return,
        [only] => format!("node \"{}\"", only.id),
        [first, rest @ ..] => format!("node \"{}\" and {} more", first.id, rest.len()),
    };
    let mut out = Diagnostics::about(subject);
    let message = "linear, without a command or an agent: the payload passes unchanged; give it one, or remove it";
    out.warn(idle[0].at.clone(), message);
    manifest.report(&ids, out);
}

/// Warns of keys that have no meaning on such a node.
fn warn_of_unused(manifest: &mut Manifest, node: &NodeDraft) {
    let mut out = Diagnostics::about(format!("node \"{}\"", node.id));
    if node.kind == Some(NodeKind::Deterministic) && node.agent_id.is_some() {
        let message = "agent_id has no meaning with kind: deterministic";
        out.warn(key_path(&node.at, "agent_id"), message);
    }
    let has_mode = node.merge_failure_mode != MergeFailureMode::default();
    for (is_given, key, role) in [
        (has_mode, "merge_failure_mode", Role::Merge),
        (node.winner.is_some(), "winner", Role::Branch),
        (node.payload.is_some(), "payload", Role::Decision),
    ] {
        if is_given && node.role.is_some_and(|it| it != role) {
            let name = role.name();
            let message = format!("{key} has no meaning on a node that is not a {name}");
            out.warn(key_path(&node.at, key), message);
        }
    }
    manifest.report(std::slice::from_ref(&node.id), out);
}

/// Warns of branches that choose a winner and whose clones are merged. The graph is one that can be run.
pub(super) fn warn_of_idle_winners(manifest: &mut Manifest, drafts: &[NodeDraft], graph: &Graph) {
    let chooses =
        |node: NodeIx| graph.nodes[node].role == Role::Branch && drafts[node].winner.is_some();
    let mut idle: Vec<NodeIx> = (0..drafts.len()).filter(|node| chooses(*node)).collect();
    if idle.is_empty() {
        return;
    }
    let is_start = |node: &NodeIx| graph.nodes[*node].role == Role::Start;
    for start in (0..graph.nodes.len()).filter(is_start) {
        let plan = RoutePlan::new(graph, start);
        idle.retain(|node| !plan.races[*node]);
    }
    for node in idle {
        let draft = &drafts[node];
        let mut out = Diagnostics::about(format!("node \"{}\"", draft.id));
        let message = "winner has no meaning on a branch whose clones come to a merge";
        out.warn(key_path(&draft.at, "winner"), message);
        manifest.report(std::slice::from_ref(&draft.id), out);
    }
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
            winner: draft.winner.unwrap_or_default(),
            payload: draft.payload,
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
