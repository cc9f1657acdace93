//! The rules of a graph that can be run: arities, cycles, what can be reached.
//!
//! Works on what was written, however wrong: a node may have no role, an edge only one end.
//! Everything takes time in proportion to the graph, and no more stack for a longer path.

use super::derive::EdgeCounts;
use super::node::{EdgeDraft, NodeSettings};
use super::problem::{Code, Manifest};
use crate::flow::graph::Role;
use crate::text::shorten::{MOST_LISTED, list_names};
use std::ops::RangeInclusive;

const MANY: usize = usize::MAX;

/// The number of edges that end and begin at a node. A merge also does with one in after a split.
type Arity = (
    Role,
    Code,
    RangeInclusive<usize>,
    RangeInclusive<usize>,
    &'static str,
);

#[rustfmt::skip]
const ARITIES: [Arity; 7] = [
    (Role::Start, Code::StartArity, 0..=0, 1..=1, "none in and one out"),
    (Role::Linear, Code::LinearArity, 1..=1, 1..=1, "one in and one out"),
    (Role::Decision, Code::DecisionArity, 1..=1, 2..=MANY, "one in and two or more out"),
    (Role::Branch, Code::BranchArity, 1..=1, 2..=MANY, "one in and two or more out"),
    (Role::Split, Code::SplitArity, 1..=1, 1..=MANY, "one in and one or more out"),
    (Role::Merge, Code::MergeArity, 2..=MANY, 1..=1,
     "two or more in (one, if every way to it leads through a split) and one out"),
    (Role::Exit, Code::ExitArity, 1..=MANY, 0..=0, "one or more in and none out"),
];

struct Shape<'s> {
    manifest: &'s mut Manifest,
    nodes: &'s [NodeSettings],
    /// The edges of each node, those with an unknown other end among them.
    counts: &'s [EdgeCounts],
    /// The nodes after and before each node.
    next: Vec<Vec<usize>>,
    previous: Vec<Vec<usize>>,
}

/// Adds everything that is wrong with a graph.
pub(super) fn check_graph(
    manifest: &mut Manifest,
    nodes: &[NodeSettings],
    edges: &[EdgeDraft],
    counts: &[EdgeCounts],
) {
    let none = || vec![Vec::new(); nodes.len()];
    let (mut next, mut previous) = (none(), none());
    for edge in edges {
        if let [Some(from), Some(to)] = edge.ends {
            next[from].push(to);
            previous[to].push(from);
        }
    }
    let mut shape = Shape {
        manifest,
        nodes,
        counts,
        next,
        previous,
    };
    shape.starts();
    shape.reach();
    shape.arities();
    shape.cycles();
}

impl Shape<'_> {
    fn of_role(&self, role: Role) -> Vec<usize> {
        let is_so = |ix: &usize| self.nodes[*ix].role == Some(role);
        (0..self.nodes.len()).filter(is_so).collect()
    }

    /// Adds what is wrong with some nodes.
    fn add(&mut self, code: Code, nodes: &[usize], message: impl Into<String>) {
        let all = self.nodes;
        let ids: Vec<&str> = nodes.iter().map(|ix| &*all[*ix].id).collect();
        let at = nodes.first().map_or(&[][..], |ix| &all[*ix].at);
        self.manifest.push(Some(code), &ids, at, message);
    }

    fn names(&self, nodes: &[usize]) -> String {
        let quoted = |ix: &usize| format!("\"{}\"", self.nodes[*ix].id);
        list_names(nodes.iter().map(quoted))
    }

    fn starts(&mut self) {
        let starts = self.of_role(Role::Start);
        if self.of_role(Role::Exit).is_empty() {
            let message = "no node has role: exit; a task could not end";
            self.add(Code::NoExit, &[], message);
        }
        if starts.is_empty() {
            let message = "no node has role: start; a task could not begin";
            return self.add(Code::NoStart, &[], message);
        }
        let mut marked = starts.clone();
        marked.retain(|ix| self.nodes[*ix].default_start);
        match marked.as_slice() {
            [_] => {}
            [] if starts.len() == 1 => {}
            [] => {
                let names = self.names(&starts);
                let message =
                    format!("no start has default_start: true; give it to one of {names}");
                self.add(Code::NoDefaultStart, &starts, message);
            }
            _ => {
                let names = self.names(&marked);
                let message = format!("default_start: true on {names}; keep it on one");
                self.add(Code::MultipleDefaultStart, &marked, message);
            }
        }
    }

    /// The nodes that can be reached from some, not going on from those that `stops` names.
    fn reached(
        &self,
        from: &[usize],
        along: &[Vec<usize>],
        stops: impl Fn(usize) -> bool,
    ) -> Vec<bool> {
        let mut seen = vec![false; self.nodes.len()];
        let mut open = from.to_vec();
        for ix in from {
            seen[*ix] = true;
        }
        while let Some(ix) = open.pop() {
            if stops(ix) {
                continue;
            }
            for next in &along[ix] {
                if !std::mem::replace(&mut seen[*next], true) {
                    open.push(*next);
                }
            }
        }
        seen
    }

    fn reach(&mut self) {
        let starts = self.of_role(Role::Start);
        if starts.is_empty() {
            // Nothing can be reached then; the missing start says it all.
            return;
        }
        let seen = self.reached(&starts, &self.next, |_| false);
        let lost: Vec<usize> = (0..seen.len()).filter(|ix| !seen[*ix]).collect();
        if !lost.is_empty() {
            let names = self.names(&lost);
            let message =
                format!("no start leads to {names}; add an edge, or remove what is unused");
            self.add(Code::UnreachableNode, &lost, message);
        }
        let exits = self.of_role(Role::Exit);
        if exits.is_empty() {
            return;
        }
        let ending = self.reached(&exits, &self.previous, |_| false);
        for start in starts {
            if !ending[start] {
                let message = format!("no exit can be reached from {}", self.names(&[start]));
                self.add(Code::StartCannotReachExit, &[start], message);
            }
        }
    }

    fn arities(&mut self) {
        let starts = self.of_role(Role::Start);
        let is_split = |ix: usize| self.nodes[ix].role == Some(Role::Split);
        let unsplit = self.reached(&starts, &self.next, is_split);
        for (ix, unsplit) in unsplit.into_iter().enumerate() {
            let EdgeCounts { into, out, .. } = self.counts[ix];
            let arity = ARITIES.iter().find(|it| self.nodes[ix].role == Some(it.0));
            let Some((role, code, ins, outs, law)) = arity else {
                continue;
            };
            let gathers = *role == Role::Merge && into == 1 && !unsplit;
            if (ins.contains(&into) || gathers) && outs.contains(&out) {
                continue;
            }
            let (id, word) = (&self.nodes[ix].id, role.name());
            let message =
                format!("node \"{id}\" has {into} in and {out} out; role {word} needs {law}");
            self.add(*code, &[ix], message);
        }
    }

    /// One finding for every group of nodes that can reach each other: the shortest way round from
    /// the first of them.
    fn cycles(&mut self) {
        let first_of = self.groups();
        for first in 0..first_of.len() {
            let Some(path) = self.way_round(first, |ix| first_of[ix] == first) else {
                continue;
            };
            let named = if path.len() > 2 * MOST_LISTED {
                let (head, tail) = (&path[..MOST_LISTED], &path[path.len() - MOST_LISTED..]);
                let between = path.len() - 2 * MOST_LISTED;
                format!(
                    "{} > … {between} more … > {}",
                    self.way(head),
                    self.way(tail)
                )
            } else {
                self.way(&path)
            };
            let message = format!(
                "{named} > {} is a cycle; a task could go round for ever: remove one of the edges",
                self.nodes[first].id
            );
            self.add(Code::Cycle, &path, message);
        }
    }

    fn way(&self, path: &[usize]) -> String {
        let ids: Vec<&str> = path.iter().map(|ix| &*self.nodes[*ix].id).collect();
        ids.join(" > ")
    }

    /// The shortest cycle through a node, if there is one, without its return to the node.
    fn way_round(&self, first: usize, within: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut before = std::collections::HashMap::new();
        let mut open = std::collections::VecDeque::from([first]);
        while let Some(ix) = open.pop_front() {
            for &next in self.next[ix].iter().filter(|next| within(**next)) {
                if next == first {
                    let mut path = vec![ix];
                    while let Some(&at) = path.last().and_then(|ix| before.get(ix)) {
                        path.push(at);
                    }
                    path.reverse();
                    return Some(path);
                }
                before.entry(next).or_insert_with(|| {
                    open.push_back(next);
                    ix
                });
            }
        }
        None
    }

    /// For each node the first of those that it reaches and that reach it: Kosaraju's algorithm, with a stack of its own.
    fn groups(&self) -> Vec<usize> {
        let mut seen = vec![false; self.nodes.len()];
        let mut left = Vec::new();
        for root in 0..seen.len() {
            // A node, and the number of its successors examined.
            let mut calls = vec![(root, 0)];
            if std::mem::replace(&mut seen[root], true) {
                continue;
            }
            while let Some((ix, at)) = calls.pop() {
                let Some(&next) = self.next[ix].get(at) else {
                    left.push(ix);
                    continue;
                };
                calls.push((ix, at + 1));
                if !std::mem::replace(&mut seen[next], true) {
                    calls.push((next, 0));
                }
            }
        }
        // The nodes that lead to the one that was left last are those of its group.
        let mut first_of = vec![0; seen.len()];
        while let Some(root) = left.pop() {
            let (mut group, mut open) = (Vec::new(), vec![root]);
            while let Some(ix) = open.pop() {
                if std::mem::replace(&mut seen[ix], false) {
                    group.push(ix);
                    open.extend(&self.previous[ix]);
                }
            }
            let first = group.iter().copied().min();
            for ix in group {
                first_of[ix] = first.unwrap_or(ix);
            }
        }
        first_of
    }
}
