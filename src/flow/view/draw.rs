//! A flow as a picture: in the languages of Graphviz and Mermaid, or drawn as SVG.
//!
//! Unaware of files and of runs: the caller supplies the state of each node.

mod layers;
mod svg;
mod text;

use crate::flow::graph::{Graph, NodeIx};
use crate::flow::manifest::Flow;
use crate::text::disguise::printable_line;
use crate::text::names::named_enum;

named_enum! {
    /// In which language.
    #[derive(Default)]
    pub(crate) enum Language {
        /// Graphviz.
        #[default]
        Dot = "dot",
        /// Mermaid, which some sites show in their pages.
        Mermaid = "mermaid",
        /// A picture.
        Svg = "svg",
    }
}

/// The fate of a node in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeMark {
    Success,
    Failure,
    /// Some of it failed.
    Partial,
    /// Begun, and not ended.
    Running,
    Waiting,
}

impl NodeMark {
    /// The colour of its ground, distinct from the others and light enough for text.
    fn colour(self) -> &'static str {
        match self {
            Self::Success => "#b7e4c7",
            Self::Failure => "#f5b5b0",
            Self::Partial => "#ffe08a",
            Self::Running => "#a9d6f5",
            Self::Waiting => "#d9c2f0",
        }
    }
}

/// A graph with what is written on it.
#[derive(Debug)]
pub(crate) struct Picture<'p> {
    graph: &'p Graph,
    boxes: Vec<Box<'p>>,
}

/// The text and the look of a node.
#[derive(Debug)]
struct Box<'p> {
    name: &'p str,
    /// The role, and the agent if there is one.
    about: String,
    is_agent: bool,
    mark: Option<NodeMark>,
}

impl<'p> Picture<'p> {
    /// The picture of a flow. `mark` gives the state of a node, if it has one.
    pub(crate) fn of(flow: &'p Flow, mark: impl Fn(NodeIx) -> Option<NodeMark>) -> Self {
        let boxes = flow.nodes.iter().enumerate().map(|(ix, node)| {
            let role = flow.graph.nodes[ix].role.name();
            let agent = flow.agent(ix);
            Box {
                name: node.name(),
                about: agent.map_or(role.to_owned(), |agent| format!("{role}, {}", agent.id)),
                is_agent: agent.is_some(),
                mark: mark(ix),
            }
        });
        Self {
            graph: &flow.graph,
            boxes: boxes.collect(),
        }
    }

    /// The picture in a language, with a newline at its end.
    pub(crate) fn written(&self, language: Language) -> String {
        match language {
            Language::Dot => text::draw_dot(self),
            Language::Mermaid => text::draw_mermaid(self),
            Language::Svg => svg::draw_svg(self),
        }
    }
}

/// A text on one line, without control characters.
fn one_line(text: &str) -> String {
    printable_line(&text.replace(char::is_control, " "))
}
