//! Graphviz and Mermaid, which lay the graph out themselves.

use super::{Picture, one_line};
use crate::flow::graph::Role;

pub(super) fn draw_dot(picture: &Picture) -> String {
    let mut out = "digraph flow {\n  node [shape=box, style=filled, fillcolor=white];\n".to_owned();
    let quoted = |text: &str| one_line(text).replace('\\', "\\\\").replace('"', "\\\"");
    for (node, on) in picture.graph.nodes.iter().zip(&picture.boxes) {
        let shape = match node.role {
            Role::Start | Role::Exit => ", shape=oval",
            Role::Decision => ", shape=diamond",
            Role::Branch => ", shape=triangle",
            Role::Split => ", shape=trapezium",
            Role::Merge => ", shape=invtrapezium",
            Role::Linear => "",
        };
        let agent = if on.is_agent { ", peripheries=2" } else { "" };
        let colour = on.mark.map_or(String::new(), |mark| {
            format!(", fillcolor=\"{}\"", mark.colour())
        });
        out.push_str(&format!(
            "  \"{}\" [label=\"{}\\n{}\"{shape}{agent}{colour}];\n",
            node.id,
            quoted(on.name),
            quoted(&on.about),
        ));
    }
    for edge in &picture.graph.edges {
        let [from, to] = [edge.from, edge.to].map(|ix| &picture.graph.nodes[ix].id);
        let label = edge.label.as_ref().map_or(String::new(), |label| {
            format!(" [label=\"{}\"]", quoted(label))
        });
        out.push_str(&format!("  \"{from}\" -> \"{to}\"{label};\n"));
    }
    out + "}\n"
}

pub(super) fn draw_mermaid(picture: &Picture) -> String {
    let mut out = "flowchart TD\n".to_owned();
    for (ix, (node, on)) in picture.graph.nodes.iter().zip(&picture.boxes).enumerate() {
        let (open, close) = match node.role {
            Role::Start | Role::Exit => ("([", "])"),
            Role::Decision => ("{", "}"),
            Role::Branch | Role::Split => ("[/", "\\]"),
            Role::Merge => ("[\\", "/]"),
            Role::Linear if on.is_agent => ("[[", "]]"),
            Role::Linear => ("[", "]"),
        };
        let label = format!(
            "{}<br>{}",
            escape_mermaid(on.name),
            escape_mermaid(&on.about)
        );
        // An id of a manifest may be a word of the language.
        out.push_str(&format!("  n{ix}{open}\"{label}\"{close}\n"));
        if let Some(mark) = on.mark {
            out.push_str(&format!("  style n{ix} fill:{}\n", mark.colour()));
        }
    }
    for edge in &picture.graph.edges {
        let label = edge.label.as_ref().map_or(String::new(), |label| {
            format!("|\"{}\"|", escape_mermaid(label))
        });
        out.push_str(&format!("  n{} -->{label} n{}\n", edge.from, edge.to));
    }
    out
}

/// Mermaid writes what is not text as `#` and a number.
fn escape_mermaid(text: &str) -> String {
    let mut out = String::new();
    for c in one_line(text).chars() {
        if matches!(c, '"' | '#' | '<' | '>' | '&' | ';' | '`' | '\\') {
            out.push_str(&format!("#{};", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}
