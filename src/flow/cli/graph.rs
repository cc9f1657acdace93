//! `delta-flow graph`: a flow as a picture, or a run of it with what became of its nodes.

use super::basis;
use super::check;
use crate::error::{Exit, Result};
use crate::flow::manifest;
use crate::flow::record::lineage::Lineage;
use crate::flow::view::draw::{Language, NodeMark, Picture};
use crate::record::metadata::{self, Status};
use crate::record::run_dir::RunDir;
use crate::text::options::parse::ParsedCommand;
use crate::unix::terminal::print;
use std::collections::HashMap;

/// Runs the command.
pub(crate) fn draw_graph(given: &ParsedCommand) -> Result<Exit> {
    let run = basis::named_run(given)?;
    let past = run
        .as_ref()
        .map(|run| basis::shown_basis(run, Some("log")))
        .transpose()?;
    let dir = past
        .as_ref()
        .map_or_else(|| given.operand_dir(0), |past| past.home.clone());
    let flow = check::usable(manifest::load_flow(&dir))?;
    let marks = run.as_ref().map_or(Ok(HashMap::new()), marks_of)?;
    if past.is_some_and(|past| !past.changes(&flow).is_empty()) {
        let message =
            "warning: files of the flow have changed since the run; drawn as they are now";
        check::warn(message);
    }
    let mark = |node: usize| marks.get(&flow.graph.nodes[node].id).copied();
    let language = given.choice("--format", Language::parse);
    print(Picture::of(&flow, mark).written(language).as_bytes())?;
    Ok(Exit::Success)
}

/// The ways in which a node ended.
#[derive(Default)]
struct NodeEnds {
    has_good: bool,
    has_bad: bool,
    /// Begun, and neither ended nor cancelled with its task.
    has_open: bool,
}

/// The mark of each node of a run, by its id.
fn marks_of(run: &RunDir) -> Result<HashMap<String, NodeMark>> {
    let mut all: HashMap<String, NodeEnds> = HashMap::new();
    for task in Lineage::read(run)?.tasks.into_values() {
        // Of a step that a retry did again, the last end counts.
        let steps = task.steps.into_iter().map(|step| (step.node.clone(), step));
        for (node, step) in steps.collect::<HashMap<_, _>>() {
            let ends = all.entry(node).or_default();
            match step.end.map(|end| end.failure.is_none()) {
                Some(true) => ends.has_good = true,
                Some(false) => ends.has_bad = true,
                None => ends.has_open |= task.status.is_none(),
            }
        }
    }
    let status = metadata::read(&run.path).map(|metadata| metadata.status);
    let waits = status == Some(Status::WaitingForInput);
    let mark = |ends: NodeEnds| match (ends.has_open, ends.has_good, ends.has_bad) {
        (true, ..) if waits => Some(NodeMark::Waiting),
        (true, ..) => Some(NodeMark::Running),
        (_, true, true) => Some(NodeMark::Partial),
        (_, true, _) => Some(NodeMark::Success),
        (_, _, true) => Some(NodeMark::Failure),
        _ => None,
    };
    let marks = all.into_iter();
    Ok(marks
        .filter_map(|(node, ends)| Some((node, mark(ends)?)))
        .collect())
}
