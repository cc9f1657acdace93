//! How often a schema makes its validator look at one place of a value, counted before any value is
//! there.
//!
//! References multiply: thirty definitions that each refer twice to the next one look at a value a
//! thousand million times. The count follows every way through the schema that one path into a value can
//! take. The validator remembers what a schema that leads back to itself has said of a list or an object,
//! so that such ways are not followed for the question whether a value fits; it does not remember what
//! does not fit, so that this is told only of values that are not too deep.
//!
//! What is counted is never less than what happens: alternatives that end early count in full.

mod read;

use read::{Label, Nodes};
use std::collections::{HashMap, HashSet};

/// So often may one place be looked at.
const MOST: u64 = 100_000;

/// Steps of counting, over the whole schema.
const MOST_STEPS: usize = 2_000_000;

/// Schemas that apply to the same place, one inside or behind the other: the validator calls itself for
/// each.
const MOST_NESTED: usize = 256;

/// Values are not nested deeper than this: whatever reads them refuses it.
const DEEPEST: usize = 128;

/// A schema whose value is another one than that of the schema around it.
#[derive(Default)]
struct Start {
    /// Schemas that apply to the same place, each as often as it does.
    size: u64,
    /// By the way into the value, the starts that are applied there, each as often as it is.
    ways: Vec<Vec<(usize, u64)>>,
}

/// How many levels a value may have for everything to be told that does not fit; none: any.
///
/// # Errors
/// No value could be validated in a time that ends.
pub(super) fn depth(schema: &serde_json::Value) -> Result<Option<usize>, String> {
    let nodes = Nodes::read(schema);
    let Some(deepest) = exceeded(&starts(&nodes, &Edges::new())?) else {
        return Ok(None);
    };
    match exceeded(&starts(&nodes, &leading_back(&nodes))?) {
        None => Ok(Some(deepest - 1)),
        Some(_) => Err(too_much()),
    }
}

fn too_much() -> String {
    format!(
        "its references multiply: one place of a value would be looked at more than {MOST} times; \
         refer to a definition once where it applies"
    )
}

/// From which schema to which.
type Edges = HashSet<(usize, usize)>;

/// All starts that the first one, the schema itself, leads to, if some edges are not followed.
fn starts(nodes: &Nodes<'_>, without: &Edges) -> Result<Vec<Start>, String> {
    let mut known: HashMap<usize, usize> = HashMap::from([(0, 0)]);
    let mut order = vec![0];
    let mut starts = Vec::new();
    let mut steps = 0;
    while let Some(&node) = order.get(starts.len()) {
        let mut closure = Closure {
            nodes,
            without,
            stack: Vec::new(),
            size: 0,
            below: HashMap::new(),
            everywhere: HashMap::new(),
        };
        closure.follow(node)?;
        steps += closure.size as usize;
        if steps > MOST_STEPS {
            return Err(too_much());
        }
        let mut number = |node: usize| {
            *known.entry(node).or_insert_with(|| {
                order.push(node);
                order.len() - 1
            })
        };
        let mut ways = Vec::new();
        for (label, own) in closure.below {
            let mut way: HashMap<usize, u64> = own;
            for (kind, all) in &closure.everywhere {
                if label.kind() == *kind {
                    for (node, count) in all {
                        *way.entry(*node).or_default() += count;
                    }
                }
            }
            ways.push(way);
        }
        ways.extend(closure.everywhere.into_values());
        let numbered = |way: HashMap<usize, u64>| {
            let mut way: Vec<(usize, u64)> = way.into_iter().collect();
            way.sort_unstable();
            way.into_iter()
                .map(|(node, count)| (number(node), count))
                .collect()
        };
        starts.push(Start {
            size: closure.size,
            ways: ways.into_iter().map(numbered).collect(),
        });
    }
    Ok(starts)
}

/// The schemas that apply to one place, gathered from one of them.
struct Closure<'n, 's> {
    nodes: &'n Nodes<'s>,
    without: &'n Edges,
    stack: Vec<usize>,
    size: u64,
    /// What applies below, by the way that leads there.
    below: HashMap<Label<'s>, HashMap<usize, u64>>,
    /// What applies to every member, item or name.
    everywhere: HashMap<u8, HashMap<usize, u64>>,
}

impl Closure<'_, '_> {
    fn follow(&mut self, node: usize) -> Result<(), String> {
        if self.stack.contains(&node) {
            // The validator notices that it is here already.
            return Ok(());
        }
        if self.stack.len() >= MOST_NESTED {
            return Err(format!(
                "more than {MOST_NESTED} schemas refer to each other for one place of a value"
            ));
        }
        self.size += 1;
        if self.size > MOST {
            return Err(too_much());
        }
        let schema = self.nodes.get(node);
        for (label, child) in &schema.below {
            let of = match label {
                Label::All(kind) => self.everywhere.entry(*kind).or_default(),
                label => self.below.entry(*label).or_default(),
            };
            *of.entry(*child).or_default() += 1;
        }
        self.stack.push(node);
        for _ in 0..schema.times {
            for child in &schema.beside {
                if !self.without.contains(&(node, *child)) {
                    self.follow(*child)?;
                }
            }
        }
        self.stack.pop();
        Ok(())
    }
}

/// The first depth of a value at which the schema looks too often at one place; none: it never does.
fn exceeded(starts: &[Start]) -> Option<usize> {
    let mut works: Vec<u64> = starts.iter().map(|start| start.size).collect();
    for depth in 1..=DEEPEST {
        let work = |start: &Start| {
            let way = |way: &Vec<(usize, u64)>| {
                way.iter().fold(0_u64, |sum, (to, count)| {
                    sum.saturating_add(count.saturating_mul(works[*to]))
                })
            };
            let most = start.ways.iter().map(way).max().unwrap_or(0);
            start.size.saturating_add(most)
        };
        let next: Vec<u64> = starts.iter().map(work).collect();
        if next[0] > MOST {
            return Some(depth);
        }
        if next == works {
            break;
        }
        works = next;
    }
    None
}

/// The references that lead back to a schema around them, as they are found when each is followed once.
fn leading_back(nodes: &Nodes<'_>) -> Edges {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let targets = |at: usize| -> Vec<usize> {
        let node = nodes.get(at);
        let below = node.below.iter().map(|(_, child)| *child);
        node.beside.iter().copied().chain(below).collect()
    };
    let mut state = vec![State::New; nodes.len()];
    let mut back = Edges::new();
    let mut stack = vec![(0, targets(0))];
    state[0] = State::Open;
    while let Some((at, left)) = stack.last_mut() {
        let at = *at;
        match left.pop() {
            Some(to) if state[to] == State::Open => {
                back.insert((at, to));
            }
            Some(to) if state[to] == State::New => {
                state[to] = State::Open;
                stack.push((to, targets(to)));
            }
            Some(_) => {}
            None => {
                state[at] = State::Done;
                stack.pop();
            }
        }
    }
    back
}
