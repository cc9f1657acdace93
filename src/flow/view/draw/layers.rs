//! The layout of an acyclic graph: its nodes in rows from the start to the exits, ordered so that
//! few edges cross. Pure.
//!
//! An edge over several rows has a place in each of them, so that it leads round the nodes there.

use crate::flow::graph::{EdgeIx, Graph, NodeIx};
use crate::text::order;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayoutItem {
    /// A node.
    Node(NodeIx),
    /// An edge on its way.
    Edge,
}

/// The rows, and the way of each edge.
#[derive(Debug)]
pub(super) struct Layout {
    /// The items of each row, from left to right, as indices in `items`.
    pub rows: Vec<Vec<usize>>,
    /// The first are the nodes, in their order.
    pub items: Vec<LayoutItem>,
    /// The items that each edge passes, both ends among them.
    pub ways: Vec<Vec<usize>>,
}

/// More places than this for edges on their way are too many: then all edges go straight.
const MOST_PLACES: usize = 100_000;

/// The number of times that the rows are put in order, down and up.
const SWEEPS: usize = 4;

/// Lays a graph out. It has no cycle.
pub(super) fn lay_out(graph: &Graph) -> Layout {
    let row = node_rows(graph);
    let span = |edge: EdgeIx| row[graph.edges[edge].to] - row[graph.edges[edge].from];
    let count = graph.nodes.len();
    let places: usize = (0..graph.edges.len()).map(|edge| span(edge) - 1).sum();
    let straight = places > MOST_PLACES;
    let mut layout = Layout {
        rows: vec![Vec::new(); row.iter().max().map_or(0, |last| last + 1)],
        items: (0..count).map(LayoutItem::Node).collect(),
        ways: Vec::with_capacity(graph.edges.len()),
    };
    for (ix, row) in row.iter().enumerate() {
        layout.rows[*row].push(ix);
    }
    for edge in &graph.edges {
        let mut way = vec![edge.from];
        if !straight {
            for row in &mut layout.rows[row[edge.from] + 1..row[edge.to]] {
                row.push(layout.items.len());
                way.push(layout.items.len());
                layout.items.push(LayoutItem::Edge);
            }
        }
        way.push(edge.to);
        layout.ways.push(way);
    }
    layout.untangle();
    layout
}

/// The row of each node: one below the lowest of those that lead to it.
fn node_rows(graph: &Graph) -> Vec<usize> {
    let count = graph.nodes.len();
    let mut row = vec![0; count];
    let mut open: Vec<usize> = (0..count).map(|ix| graph.incoming(ix).len()).collect();
    let mut ready: Vec<NodeIx> = (0..count).filter(|ix| open[*ix] == 0).collect();
    while let Some(ix) = ready.pop() {
        for edge in graph.outgoing(ix) {
            let to = graph.edges[*edge].to;
            row[to] = row[to].max(row[ix] + 1);
            open[to] -= 1;
            if open[to] == 0 {
                ready.push(to);
            }
        }
    }
    row
}

impl Layout {
    /// Orders each row by the middle of the neighbours in the row before, again and again.
    fn untangle(&mut self) {
        let mut above = vec![Vec::new(); self.items.len()];
        let mut below = vec![Vec::new(); self.items.len()];
        for way in &self.ways {
            for pair in way.windows(2) {
                below[pair[0]].push(pair[1]);
                above[pair[1]].push(pair[0]);
            }
        }
        let mut place = vec![0.0; self.items.len()];
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            let neighbours = if down { &above } else { &below };
            let order: Vec<usize> = if down {
                (0..self.rows.len()).collect()
            } else {
                (0..self.rows.len()).rev().collect()
            };
            for at in order {
                let row = &mut self.rows[at];
                let middle = |item: usize, old: usize| {
                    let near = &neighbours[item];
                    let sum: f64 = near.iter().map(|other| place[*other]).sum();
                    match near.len() {
                        0 => old as f64,
                        some => sum / some as f64,
                    }
                };
                let mut keyed: Vec<(f64, usize)> = row
                    .iter()
                    .enumerate()
                    .map(|(old, item)| (middle(*item, old), *item))
                    .collect();
                order::sort_by(&mut keyed, |a, b| a.0.total_cmp(&b.0));
                *row = keyed.into_iter().map(|(_, item)| item).collect();
                let width = row.len() as f64;
                for (index, item) in row.iter().enumerate() {
                    // From the middle of the row, so that rows of different lengths compare.
                    place[*item] = index as f64 - (width - 1.0) / 2.0;
                }
            }
        }
    }
}
