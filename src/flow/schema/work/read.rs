//! A schema as a graph: which schemas apply to the same place as another one, and which below it.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// Which part of a value a schema applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Label<'s> {
    /// A member by its name.
    Member(&'s str),
    /// An item by its place.
    Item(usize),
    /// All members, items or names: one of the constants.
    All(u8),
}

const MEMBERS: u8 = 0;
const ITEMS: u8 = 1;
const NAMES: u8 = 2;

impl Label<'_> {
    /// What it is one of.
    pub(crate) fn kind(self) -> u8 {
        match self {
            Self::Member(_) => MEMBERS,
            Self::Item(_) => ITEMS,
            Self::All(kind) => kind,
        }
    }
}

/// A schema among others.
#[derive(Default)]
pub(crate) struct Node<'s> {
    /// Those that apply to the same place.
    pub beside: Vec<usize>,
    /// How often these are looked at: more than once to find out what they leave unevaluated.
    pub times: u32,
    /// Those that apply below.
    pub below: Vec<(Label<'s>, usize)>,
}

/// All schemas that one leads to; itself is the first.
pub(crate) struct Nodes<'s> {
    nodes: Vec<Node<'s>>,
}

/// Where references lead.
struct Document<'s> {
    root: &'s Value,
    /// By the address of an object, the nearest one around it that has an id, or is the root.
    resources: HashMap<usize, &'s Value>,
    ids: Vec<(&'s str, &'s Value)>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

impl<'s> Nodes<'s> {
    pub(crate) fn read(root: &'s Value) -> Self {
        let mut document = Document {
            root,
            resources: HashMap::new(),
            ids: Vec::new(),
            anchors: HashMap::new(),
        };
        document.survey(root, root);
        let mut reader = Reader {
            document: &document,
            known: HashMap::from([(address(root), 0)]),
            order: vec![root],
        };
        let mut nodes = Vec::new();
        while let Some(&schema) = reader.order.get(nodes.len()) {
            nodes.push(reader.node(schema));
        }
        Self { nodes }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, node: usize) -> &Node<'s> {
        &self.nodes[node]
    }
}

struct Reader<'d, 's> {
    document: &'d Document<'s>,
    known: HashMap<usize, usize>,
    order: Vec<&'s Value>,
}

impl<'s> Reader<'_, 's> {
    fn number(&mut self, schema: &'s Value) -> usize {
        *self.known.entry(address(schema)).or_insert_with(|| {
            self.order.push(schema);
            self.order.len() - 1
        })
    }

    fn node(&mut self, schema: &'s Value) -> Node<'s> {
        let mut node = Node {
            times: 1,
            ..Node::default()
        };
        let Some(map) = schema.as_object() else {
            return node;
        };
        for (key, value) in map {
            for schema in beside(key, value) {
                node.beside.push(self.number(schema));
            }
            if matches!(&**key, "$ref" | "$dynamicRef" | "$recursiveRef")
                && let Some(reference) = value.as_str()
            {
                for target in self.document.targets(schema, key, reference) {
                    node.beside.push(self.number(target));
                }
            }
            for (label, schema) in below(key, value) {
                node.below.push((label, self.number(schema)));
            }
            if matches!(&**key, "unevaluatedProperties" | "unevaluatedItems") {
                node.times = 3;
            }
        }
        node
    }
}

/// The schemas of a keyword that apply to the same place.
fn beside<'s>(key: &str, value: &'s Value) -> Vec<&'s Value> {
    match (key, value) {
        ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter().collect(),
        ("not" | "if" | "then" | "else", value) => vec![value],
        ("dependentSchemas" | "dependencies", Value::Object(map)) => map.values().collect(),
        _ => Vec::new(),
    }
}

/// The schemas of a keyword that apply below.
fn below<'s>(key: &str, value: &'s Value) -> Vec<(Label<'s>, &'s Value)> {
    let all = |kind, value| vec![(Label::All(kind), value)];
    match (key, value) {
        ("properties", Value::Object(map)) => {
            let member = |(name, schema): (&'s String, _)| (Label::Member(name), schema);
            map.iter().map(member).collect()
        }
        ("patternProperties", Value::Object(map)) => {
            let schemas = map.values();
            schemas.map(|it| (Label::All(MEMBERS), it)).collect()
        }
        ("additionalProperties" | "unevaluatedProperties", value) => all(MEMBERS, value),
        ("propertyNames", value) => all(NAMES, value),
        ("prefixItems" | "items", Value::Array(list)) => {
            let item = |(place, schema)| (Label::Item(place), schema);
            list.iter().enumerate().map(item).collect()
        }
        ("items" | "additionalItems" | "unevaluatedItems" | "contains", value) => all(ITEMS, value),
        _ => Vec::new(),
    }
}

impl<'s> Document<'s> {
    /// Notes ids and anchors, wherever they stand.
    fn survey(&mut self, value: &'s Value, resource: &'s Value) {
        match value {
            Value::Object(map) => {
                let text = |key: &str| map.get(key).and_then(Value::as_str);
                let id = text("$id").or_else(|| text("id"));
                let own = id.filter(|id| !id.starts_with('#'));
                let resource = if own.is_some() { value } else { resource };
                self.resources.insert(address(value), resource);
                self.ids.extend(own.map(|id| (without_fragment(id), value)));
                let old = id.and_then(|id| id.strip_prefix('#'));
                let anchors = [text("$anchor"), text("$dynamicAnchor"), old];
                for name in anchors.into_iter().flatten() {
                    self.anchors.entry(name).or_default().push(value);
                }
                self.survey_all(map, resource);
            }
            Value::Array(list) => list.iter().for_each(|item| self.survey(item, resource)),
            _ => {}
        }
    }

    fn survey_all(&mut self, map: &'s Map<String, Value>, resource: &'s Value) {
        map.values().for_each(|value| self.survey(value, resource));
    }

    /// The schemas that a reference may mean: more than one where it is not clear from here. One that
    /// leads out of the document means none.
    fn targets(&self, from: &'s Value, key: &str, reference: &str) -> Vec<&'s Value> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resources: Vec<&Value> = if uri.is_empty() {
            let own = self.resources.get(&address(from)).copied();
            own.into_iter().chain([self.root]).collect()
        } else {
            let is_it = |id: &str| {
                let ends = |long: &str, short: &str| {
                    let start = long.strip_suffix(short.trim_start_matches(['.', '/']));
                    start.is_some_and(|start| start.is_empty() || start.ends_with(['/', ':']))
                };
                ends(id, uri) || ends(uri, id)
            };
            let found = self.ids.iter().filter(|(id, _)| is_it(id));
            found.map(|(_, resource)| *resource).collect()
        };
        // Of two that may be the one around, the nearest is.
        let most = if uri.is_empty() { 1 } else { usize::MAX };
        let mut found: Vec<&Value> = if fragment.is_empty() {
            resources.into_iter().take(most).collect()
        } else if fragment.starts_with('/') {
            let pointer = decoded(fragment);
            let found = resources.iter().filter_map(|it| it.pointer(&pointer));
            found.take(most).collect()
        } else {
            self.anchors.get(fragment).cloned().unwrap_or_default()
        };
        if key == "$dynamicRef" {
            found.extend(self.anchors.get(fragment).into_iter().flatten());
        }
        found.sort_by_key(|schema| address(schema));
        found.dedup_by_key(|schema| address(schema));
        found
    }
}

fn without_fragment(id: &str) -> &str {
    id.split('#').next().unwrap_or(id)
}

/// A pointer without the escapes that it has in a URI.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match (byte, digit(ahead.next()), digit(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
