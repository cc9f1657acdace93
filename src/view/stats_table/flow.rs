//! The rows of `delta stats` that only flows have.

use super::{Counted, figures_below};
use crate::text::amounts::format_millis;
use crate::text::table::{Table, name_cell};
use crate::view::stats::flow::{FlowFigures, NodeFigures};
use std::collections::BTreeSet;

/// Columns of a node in a line of CSV.
const OF_NODE: [&str; 12] = [
    "count",
    "failures",
    "retries",
    "cached",
    "median_ms",
    "longest_ms",
    "queue_ms",
    "cpu_ms",
    "memory_bytes",
    "context_bytes",
    "prompt_tokens",
    "completion_tokens",
];

/// The rows of a flow without its nodes; none for another run.
pub(super) fn rows(flow: Option<&FlowFigures>) -> Vec<(&'static str, String)> {
    const NAMES: [&str; 7] = [
        "tasks",
        "  failed",
        "nodes",
        "  failed",
        "  retried",
        "  cached",
        "cpu",
    ];
    let values = match flow {
        None => NAMES.map(|_| "-".to_owned()),
        Some(flow) => {
            let [nodes, failed, retried, cached] =
                flow.all_nodes().map(|number| number.to_string());
            let [tasks, failed_tasks] =
                [flow.tasks, flow.failed_tasks].map(|number| number.to_string());
            let cpu = format_millis(flow.cpu_ms());
            [tasks, failed_tasks, nodes, failed, retried, cached, cpu]
        }
    };
    NAMES.into_iter().zip(values).collect()
}

/// The rows of a run that is a flow, alone: without those that only an agent's run has.
pub(super) fn of_one(
    all: Vec<(&'static str, String)>,
    flow: &FlowFigures,
) -> Vec<(&'static str, String)> {
    const OF_AGENT: [&str; 5] = [
        "iterations",
        "  model",
        "  hooks",
        "  people",
        "cache losses",
    ];
    let mut rows = Vec::new();
    for (name, value) in all {
        match name {
            _ if OF_AGENT.contains(&name) => continue,
            "  tools" => rows.push(("  programs", value)),
            _ => rows.push((name, value)),
        }
        if name == "starts" {
            rows.extend(self::rows(Some(flow)));
        }
    }
    rows
}

/// A row for each node, below a row of names.
pub(super) fn table(flow: &FlowFigures) -> Table {
    let header = [
        "node", "count", "failed", "median", "longest", "waited", "cpu", "memory", "context", "in",
        "out",
    ];
    let mut table = figures_below(&header);
    for (id, node) in &flow.nodes {
        table.rows.push(vec![
            name_cell(id),
            node.count.to_string(),
            node.failures.to_string(),
            format_millis(node.median_ms),
            format_millis(node.longest_ms),
            format_millis(node.queue_ms),
            format_millis(node.cpu_ms),
            format!("{} MiB", node.memory_bytes >> 20),
            node.context_bytes.to_string(),
            node.tokens.prompt_tokens.to_string(),
            node.tokens.completion_tokens.to_string(),
        ]);
    }
    table
}

/// The ids of all nodes that some run was at.
pub(super) fn nodes(runs: &[Counted]) -> BTreeSet<&str> {
    runs.iter()
        .filter_map(|run| run.figures.flow.as_ref())
        .flat_map(|flow| flow.nodes.keys())
        .map(String::as_str)
        .collect()
}

fn node<'r>(run: &'r Counted, id: &str) -> Option<&'r NodeFigures> {
    run.figures.flow.as_ref()?.nodes.get(id)
}

/// A node of several runs, in short.
pub(super) fn side_by_side(run: &Counted, id: &str) -> String {
    node(run, id).map_or_else(
        || "-".to_owned(),
        |node| format!("{} x {}", node.count, format_millis(node.median_ms)),
    )
}

/// The names of the columns that some run being a flow adds to a line of CSV.
pub(super) fn csv_header(nodes: &BTreeSet<&str>) -> Vec<String> {
    let of_flow = [
        "tasks",
        "task_failures",
        "nodes",
        "node_failures",
        "node_retries",
        "nodes_cached",
        "cpu_ms",
    ];
    let mut header = of_flow.map(str::to_owned).to_vec();
    for id in nodes {
        header.extend(OF_NODE.map(|column| format!("node.{id}.{column}")));
    }
    header
}

/// The cells of these columns.
pub(super) fn csv_cells(run: &Counted, nodes: &BTreeSet<&str>) -> Vec<String> {
    let mut cells = match &run.figures.flow {
        None => vec![String::new(); 7],
        Some(flow) => {
            let mut numbers = vec![flow.tasks, flow.failed_tasks];
            numbers.extend(flow.all_nodes());
            numbers.push(flow.cpu_ms());
            numbers.iter().map(u64::to_string).collect()
        }
    };
    for id in nodes {
        match node(run, id) {
            None => cells.extend(OF_NODE.map(|_| String::new())),
            Some(node) => cells.extend(numbers_of(node).map(|number| number.to_string())),
        }
    }
    cells
}

fn numbers_of(node: &NodeFigures) -> [u64; 12] {
    [
        node.count,
        node.failures,
        node.retries,
        node.cached,
        node.median_ms,
        node.longest_ms,
        node.queue_ms,
        node.cpu_ms,
        node.memory_bytes,
        node.context_bytes,
        node.tokens.prompt_tokens,
        node.tokens.completion_tokens,
    ]
}
