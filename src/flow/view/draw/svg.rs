//! The picture itself.

use super::layers::{LayoutItem, lay_out};
use super::{Picture, one_line};
use crate::flow::graph::Role;
use crate::text::shorten::cut_to_columns;

/// Pixels: of a box, of the way that an edge has through a row, of the room between them.
const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 44.0;
const LANE: f64 = 24.0;
const GAP: f64 = 24.0;
const ROW: f64 = 96.0;
const MARGIN: f64 = 16.0;

/// Columns of text that fit into a box.
const BOX_COLUMNS: usize = 20;

pub(super) fn draw_svg(picture: &Picture) -> String {
    let layout = lay_out(picture.graph);
    let width = |item: usize| match layout.items[item] {
        LayoutItem::Node(_) => WIDTH,
        LayoutItem::Edge => LANE,
    };
    let length = |row: &Vec<usize>| -> f64 {
        let boxes: f64 = row.iter().map(|item| width(*item)).sum();
        boxes + GAP * row.len().saturating_sub(1) as f64
    };
    let widest = layout.rows.iter().map(length).fold(0.0, f64::max);
    let mut middle = vec![(0.0, 0.0); layout.items.len()];
    for (at, row) in layout.rows.iter().enumerate() {
        let mut left = MARGIN + (widest - length(row)) / 2.0;
        for item in row {
            middle[*item] = (
                left + width(*item) / 2.0,
                MARGIN + HEIGHT / 2.0 + ROW * at as f64,
            );
            left += width(*item) + GAP;
        }
    }
    let rows = layout.rows.len().saturating_sub(1) as f64;
    let (whole_width, whole_height) = (widest + 2.0 * MARGIN, rows * ROW + HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole_width}\" height=\"{whole_height}\" \
         viewBox=\"0 0 {whole_width} {whole_height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#444\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (edge, way) in picture.graph.edges.iter().zip(&layout.ways) {
        let points: Vec<(f64, f64)> = way.iter().map(|item| middle[*item]).collect();
        out.push_str(&edge_path(&points, edge.label.as_deref()));
    }
    for (ix, node) in picture.graph.nodes.iter().enumerate() {
        let on = &picture.boxes[ix];
        let colour = on.mark.map_or("#f4f4f4", super::NodeMark::colour);
        out.push_str(&node_outline(node.role, middle[ix], colour, on.is_agent));
        let (x, y) = middle[ix];
        out.push_str(&format!(
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\" fill=\"#555\">{}</text>\n",
            y - 2.0,
            escape_xml(&cut_to_columns(on.name, BOX_COLUMNS)),
            y + 13.0,
            escape_xml(&cut_to_columns(&on.about, BOX_COLUMNS)),
        ));
    }
    out + "</svg>\n"
}

/// An edge through these points, bent at each of them, with its label near its beginning.
fn edge_path(points: &[(f64, f64)], label: Option<&str>) -> String {
    let last = points.len() - 1;
    let (x, y) = points[0];
    let mut path = format!("M{x} {}", y + HEIGHT / 2.0);
    for (at, pair) in points.windows(2).enumerate() {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let from = if at == 0 { y0 + HEIGHT / 2.0 } else { y0 };
        let to = if at + 1 == last {
            y1 - HEIGHT / 2.0
        } else {
            y1
        };
        let half = f64::midpoint(from, to);
        path.push_str(&format!("C{x0} {half} {x1} {half} {x1} {to}"));
    }
    let mut out =
        format!("<path d=\"{path}\" fill=\"none\" stroke=\"#444\" marker-end=\"url(#tip)\"/>\n");
    if let Some(label) = label {
        let (next, _) = points[1];
        out.push_str(&format!(
            "<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#333\">{}</text>\n",
            x + (next - x) * 0.35 + 4.0,
            y + HEIGHT / 2.0 + 20.0,
            escape_xml(&cut_to_columns(label, BOX_COLUMNS)),
        ));
    }
    out
}

/// The outline of a node, by its role; an agent's is thick.
fn node_outline(role: Role, middle: (f64, f64), colour: &str, is_agent: bool) -> String {
    let (x, y) = middle;
    let (left, right) = (x - WIDTH / 2.0, x + WIDTH / 2.0);
    let (top, bottom) = (y - HEIGHT / 2.0, y + HEIGHT / 2.0);
    let inset = 14.0;
    let corners = match role {
        Role::Start | Role::Exit | Role::Linear => {
            let is_linear = role == Role::Linear;
            let round = if is_linear { 3.0 } else { HEIGHT / 2.0 };
            return format!(
                "<rect x=\"{left}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"{round}\" \
                 fill=\"{colour}\" stroke=\"#444\" stroke-width=\"{}\"/>\n",
                line_width(is_agent)
            );
        }
        Role::Decision => vec![
            (left, y),
            (left + inset, top),
            (right - inset, top),
            (right, y),
            (right - inset, bottom),
            (left + inset, bottom),
        ],
        Role::Branch | Role::Split => vec![
            (left + inset, top),
            (right - inset, top),
            (right, bottom),
            (left, bottom),
        ],
        Role::Merge => vec![
            (left, top),
            (right, top),
            (right - inset, bottom),
            (left + inset, bottom),
        ],
    };
    let corners: Vec<String> = corners.iter().map(|(x, y)| format!("{x},{y}")).collect();
    format!(
        "<polygon points=\"{}\" fill=\"{colour}\" stroke=\"#444\" stroke-width=\"{}\"/>\n",
        corners.join(" "),
        line_width(is_agent)
    )
}

fn line_width(is_agent: bool) -> u8 {
    if is_agent { 3 } else { 1 }
}

fn escape_xml(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
