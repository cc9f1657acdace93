//! Whether a graph may be run: arities, cycles, what can be reached. Pure.
//!
//! Works on what was written, however wrong: a node may have no role, an edge only one end.
//! Everything takes time in proportion to the graph, and no more stack for a longer path.

use super::problem::Code;
use crate::flow::graph::Role;
use crate::text::shorten::{MOST_LISTED, list_names};
use std::ops::RangeInclusive;

/// A node, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSketch<'k> {
    pub id: &'k str,
    pub role: Option<Role>,
    /// A start that is taken where none is named.
    pub default_start: bool,
}

/// The ends of an edge, as far as they are known.
pub(super) type EdgeSketch = (Option<usize>, Option<usize>);

/// Something that must not be so.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShapeProblem {
    pub code: Code,
    /// The nodes concerned.
    pub nodes: Vec<usize>,
    /// The sentence; lower case, no full stop.
    pub message: String,
}

const MANY: usize = usize::MAX;

/// How many edges end and begin at a node. A merge also does with one in behind a split.
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
    nodes: &'s [NodeSketch<'s>],
    /// The nodes behind and before each node.
    next: Vec<Vec<usize>>,
    previous: Vec<Vec<usize>>,
    /// The edges that begin and end at each node, those with an unknown other end among them.
    out: Vec<usize>,
    into: Vec<usize>,
    found: Vec<ShapeProblem>,
}

/// Everything that is wrong with a graph.
pub(crate) fn check_graph(nodes: &[NodeSketch], edges: &[EdgeSketch]) -> Vec<ShapeProblem> {
    let none = || vec![Vec::new(); nodes.len()];
    let mut shape = Shape {
        nodes,
        next: none(),
        previous: none(),
        out: vec![0; nodes.len()],
        into: vec![0; nodes.len()],
        found: Vec::new(),
    };
    for (from, to) in edges.iter().copied() {
        if let Some(from) = from {
            shape.out[from] += 1;
        }
        if let Some(to) = to {
            shape.into[to] += 1;
        }
        if let (Some(from), Some(to)) = (from, to) {
            shape.next[from].push(to);
            shape.previous[to].push(from);
        }
    }
    shape.starts();
    shape.reach();
    shape.arities();
    shape.cycles();
    shape.found
}

impl Shape<'_> {
    fn of_role(&self, role: Role) -> Vec<usize> {
        let is_so = |ix: &usize| self.nodes[*ix].role == Some(role);
        (0..self.nodes.len()).filter(is_so).collect()
    }

    fn add(&mut self, code: Code, nodes: Vec<usize>, message: impl Into<String>) {
        self.found.push(ShapeProblem {
            code,
            nodes,
            message: message.into(),
        });
    }

    fn names(&self, nodes: &[usize]) -> String {
        let quoted = |ix: &usize| format!("\"{}\"", self.nodes[*ix].id);
        list_names(nodes.iter().map(quoted))
    }

    fn starts(&mut self) {
        let starts = self.of_role(Role::Start);
        if self.of_role(Role::Exit).is_empty() {
            self.add(
                Code::NoExit,
                vec![],
                "no node has role: exit; a task could not end",
            );
        }
        if starts.is_empty() {
            let message = "no node has role: start; a task could not begin";
            return self.add(Code::NoStart, vec![], message);
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
                self.add(Code::NoDefaultStart, starts, message);
            }
            _ => {
                let names = self.names(&marked);
                let message = format!("default_start: true on {names}; keep it on one");
                self.add(Code::MultipleDefaultStart, marked, message);
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
            self.add(Code::UnreachableNode, lost, message);
        }
        let exits = self.of_role(Role::Exit);
        if exits.is_empty() {
            return;
        }
        let ending = self.reached(&exits, &self.previous, |_| false);
        for start in starts {
            if !ending[start] {
                let message = format!("no exit can be reached from {}", self.names(&[start]));
                self.add(Code::StartCannotReachExit, vec![start], message);
            }
        }
    }

    fn arities(&mut self) {
        let starts = self.of_role(Role::Start);
        let is_split = |ix: usize| self.nodes[ix].role == Some(Role::Split);
        let unsplit = self.reached(&starts, &self.next, is_split);
        for (ix, unsplit) in unsplit.into_iter().enumerate() {
            let (into, out) = (self.into[ix], self.out[ix]);
            let arity = ARITIES.iter().find(|it| self.nodes[ix].role == Some(it.0));
            let Some((role, code, ins, outs, law)) = arity else {
                continue;
            };
            let gathers = *role == Role::Merge && into == 1 && !unsplit;
            if (ins.contains(&into) || gathers) && outs.contains(&out) {
                continue;
            }
            let (id, word) = (self.nodes[ix].id, role.name());
            let message =
                format!("node \"{id}\" has {into} in and {out} out; role {word} needs {law}");
            self.add(*code, vec![ix], message);
        }
    }

    /// One finding for every group of nodes that can reach each other: the shortest way round from
    /// the first of them.
    fn cycles(&mut self) {
        let mut parts = self.parts();
        parts.retain(|part| part.len() > 1 || self.next[part[0]].contains(&part[0]));
        parts.sort_by_key(|part| part.iter().min().copied());
        let mut part_of = vec![usize::MAX; self.nodes.len()];
        for (number, part) in parts.iter().enumerate() {
            for ix in part {
                part_of[*ix] = number;
            }
        }
        for (number, part) in parts.iter().enumerate() {
            let Some(first) = part.iter().min().copied() else {
                continue;
            };
            let path = self.way_round(first, |ix| part_of[ix] == number);
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
            self.add(Code::Cycle, path, message);
        }
    }

    fn way(&self, path: &[usize]) -> String {
        let ids: Vec<&str> = path.iter().map(|ix| self.nodes[*ix].id).collect();
        ids.join(" > ")
    }

    /// The shortest cycle through a node, without its return to the node.
    fn way_round(&self, first: usize, within: impl Fn(usize) -> bool) -> Vec<usize> {
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
                    return path;
                }
                before.entry(next).or_insert_with(|| {
                    open.push_back(next);
                    ix
                });
            }
        }
        vec![first]
    }

    /// The nodes in parts within which each reaches every other: Tarjan's algorithm, with a stack
    /// of its own.
    fn parts(&self) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let count = self.nodes.len();
        let (mut order, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let mut pending = vec![false; count];
        let (mut stack, mut parts, mut seen) = (Vec::new(), Vec::new(), 0);
        for root in 0..count {
            if order[root] != UNSEEN {
                continue;
            }
            // A node, and the number of its successors examined.
            let mut calls = vec![(root, 0)];
            while let Some((ix, at)) = calls.pop() {
                if at == 0 {
                    order[ix] = seen;
                    low[ix] = seen;
                    seen += 1;
                    stack.push(ix);
                    pending[ix] = true;
                } else {
                    let below: usize = self.next[ix][at - 1];
                    if pending[below] {
                        low[ix] = low[ix].min(low[below]);
                    }
                }
                let fresh = (at..self.next[ix].len()).find(|place| {
                    let next = self.next[ix][*place];
                    if order[next] != UNSEEN && pending[next] {
                        low[ix] = low[ix].min(order[next]);
                    }
                    order[next] == UNSEEN
                });
                if let Some(place) = fresh {
                    calls.push((ix, place + 1));
                    calls.push((self.next[ix][place], 0));
                } else if low[ix] == order[ix] {
                    let from = stack.iter().rposition(|other| *other == ix).unwrap_or(0);
                    let part = stack.split_off(from);
                    for other in &part {
                        pending[*other] = false;
                    }
                    parts.push(part);
                }
            }
        }
        parts
    }
}
