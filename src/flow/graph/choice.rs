//! The way on that a node's output chooses, and failures.
//!
//! Unaware of tasks. An output is JSON text; no more of it is parsed than the choice needs.

use super::topology::{EdgeIx, Graph, NodeIx, Role};
use crate::text::json::parser_message;
use crate::text::names::named_enum;
use crate::text::shorten::cut_to_columns;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::rc::Rc;

/// JSON text on one line, shared by all who have it.
pub(crate) type Payload = Rc<str>;

named_enum! {
    /// The reason of a failure, in one word.
    pub(crate) enum FailureCode {
        /// A policy denied it.
        PolicyDenied = "policy_denied",
        /// The context could not be assembled.
        Context = "context",
        SchemaIn = "schema_in",
        /// The program failed, or printed no JSON.
        Operation = "operation",
        Timeout = "timeout",
        SchemaOut = "schema_out",
        /// A decision selected no edge of its own.
        InvalidEdge = "invalid_edge",
        /// A split has nothing to split.
        InvalidSplit = "invalid_split",
        /// A merge does without none of those that failed.
        UpstreamFailure = "upstream_failure",
    }
}

/// The failure of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// In one word.
    pub code: FailureCode,
    /// For people.
    pub message: Rc<str>,
}

impl Failure {
    /// A failure with its message.
    pub(crate) fn new(code: FailureCode, message: impl AsRef<str>) -> Self {
        Self {
            code,
            message: message.as_ref().into(),
        }
    }

    /// The failure of what a node runs.
    pub(crate) fn operation(message: impl AsRef<str>) -> Self {
        Self::new(FailureCode::Operation, message)
    }
}

/// The way on from a node that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Nowhere: it is an exit.
    End,
    /// Along one edge.
    Along(EdgeIx),
    /// Along every edge with the whole output.
    Everywhere,
    /// One subtask for each of these.
    Items(Vec<Payload>),
}

/// The way on that a node's output chooses.
///
/// # Errors
/// The output of a decision or a split chooses none.
pub(crate) fn choose_route(graph: &Graph, node: NodeIx, output: &str) -> Result<Route, Failure> {
    match graph.nodes[node].role {
        Role::Exit => Ok(Route::End),
        Role::Start | Role::Linear | Role::Merge => Ok(Route::Along(graph.outgoing(node)[0])),
        Role::Branch => Ok(Route::Everywhere),
        Role::Decision => find_edge(graph, node, output).map(Route::Along),
        Role::Split => split_items(output),
    }
}

#[derive(Deserialize)]
struct SelectedEdge<'j> {
    #[serde(borrow)]
    selected_edge: Option<&'j RawValue>,
}

#[derive(Deserialize)]
struct Divided<'j> {
    #[serde(borrow)]
    subtask_inputs: Option<&'j RawValue>,
}

/// Columns of a word that selects no edge, in the message that says so.
const WORD_SHOWN: usize = 200;

fn find_edge(graph: &Graph, node: NodeIx, output: &str) -> Result<EdgeIx, Failure> {
    let invalid = |message: String| Failure::new(FailureCode::InvalidEdge, message);
    let raw = if output.trim_start().starts_with('{') {
        let selected = serde_json::from_str::<SelectedEdge<'_>>(output).map_err(|error| {
            let why = parser_message(&error);
            invalid(format!("the output cannot be read: {why}"))
        })?;
        selected.selected_edge.map(RawValue::get)
    } else {
        Some(output)
    };
    let word = raw
        .filter(|raw| raw.trim_start().starts_with('"'))
        .and_then(|raw| serde_json::from_str::<String>(raw).ok());
    let edges = graph.outgoing(node);
    let label = |edge: &&EdgeIx| graph.edges[**edge].label.as_deref();
    let target = |edge: &&EdgeIx| graph.nodes[graph.edges[**edge].to].id.as_str();
    let Some(word) = word else {
        return Err(invalid(format!(
            "the output selects no edge: it is neither a string nor an object with a string \
             \"selected_edge\"; the edges are {}",
            edge_words(graph, node)
        )));
    };
    let by_label = edges.iter().find(|edge| label(edge) == Some(&word));
    let found = by_label.or_else(|| edges.iter().find(|edge| target(edge) == word));
    found.copied().ok_or_else(|| {
        invalid(format!(
            "there is no edge {:?}; the edges are {}",
            cut_to_columns(&word, WORD_SHOWN),
            edge_words(graph, node)
        ))
    })
}

/// The edges of a node as a decision names them: JSON strings, separated by commas.
pub(crate) fn edge_words(graph: &Graph, node: NodeIx) -> String {
    let names = edge_names(graph, node).map(|name| format!("{name:?}"));
    names.collect::<Vec<_>>().join(", ")
}

/// The edges of a node as a decision names them.
pub(crate) fn edge_names(graph: &Graph, node: NodeIx) -> impl Iterator<Item = &str> {
    graph.outgoing(node).iter().map(|edge| {
        let edge = &graph.edges[*edge];
        let target = &graph.nodes[edge.to].id;
        edge.label.as_ref().unwrap_or(target).as_str()
    })
}

fn split_items(output: &str) -> Result<Route, Failure> {
    let invalid = |message: &str| Failure::new(FailureCode::InvalidSplit, message);
    let text = output.trim_start();
    let list = if text.starts_with('[') {
        Some(output)
    } else if text.starts_with('{') {
        let divided = serde_json::from_str::<Divided<'_>>(output).map_err(|error| {
            invalid(&format!(
                "the output cannot be read: {}",
                parser_message(&error)
            ))
        })?;
        match divided.subtask_inputs.map(RawValue::get) {
            Some(list) if list.starts_with('[') => Some(list),
            Some(_) => return Err(invalid("\"subtask_inputs\" is not a list")),
            None => None,
        }
    } else {
        None
    };
    let Some(list) = list else {
        return Ok(Route::Everywhere);
    };
    let items = serde_json::from_str::<Vec<&RawValue>>(list).map_err(|error| {
        invalid(&format!(
            "the list cannot be read: {}",
            parser_message(&error)
        ))
    })?;
    if items.is_empty() {
        return Err(invalid("the list is empty: there is nothing to split"));
    }
    let payloads = items.into_iter().map(|item| item.get().into());
    Ok(Route::Items(payloads.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::graph::topology::tests::graph;

    #[test]
    fn a_decision_takes_a_label_or_else_a_target_and_guesses_nothing() {
        // `k` has the label `l`, which is also the name of the other target.
        let graph = graph("s:start>d d:decision>l,k=l l>x k>x x:exit");
        let edge = |output: &str| match choose_route(&graph, 1, output) {
            Ok(Route::Along(edge)) => graph.nodes[graph.edges[edge].to].id.clone(),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => failure.code.name().to_owned(),
        };
        assert_eq!(edge("\"l\""), "k");
        assert_eq!(edge("{\"selected_edge\":\"l\",\"more\":[1]}"), "k");
        assert_eq!(edge("\"k\""), "k");
        for wrong in [
            "\"L\"",
            "\" l\"",
            "0",
            "null",
            "[\"l\"]",
            "{}",
            "{\"selected_edge\":0}",
            "{\"selected_edge\":null}",
            "{\"selected_edge\":[\"l\"]}",
            "\"\"",
        ] {
            assert_eq!(edge(wrong), "invalid_edge", "{wrong}");
        }
    }

    #[test]
    fn a_split_takes_a_list_or_an_object_with_one_and_else_the_whole() {
        let graph = graph("s:start>p p:split>l l>x x:exit");
        let items = |output: &str| match choose_route(&graph, 1, output) {
            Ok(Route::Items(items)) => items.join("|"),
            Ok(Route::Everywhere) => "whole".to_owned(),
            Ok(other) => panic!("{other:?}"),
            Err(failure) => failure.code.name().to_owned(),
        };
        assert_eq!(items("[1, {\"a\": []},\"x\"]"), "1|{\"a\": []}|\"x\"");
        assert_eq!(items("{\"subtask_inputs\": [null]}"), "null");
        assert_eq!(items("{\"other\":[1]}"), "whole");
        assert_eq!(items("7"), "whole");
        assert_eq!(items("[]"), "invalid_split");
        assert_eq!(items("{\"subtask_inputs\":[]}"), "invalid_split");
        assert_eq!(items("{\"subtask_inputs\":7}"), "invalid_split");
    }
}
