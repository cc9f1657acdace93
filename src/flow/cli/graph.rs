//! `delta-flow graph`: a flow as a picture, or a run of it with what became of its nodes.

use super::args::GraphArgs;
use super::basis;
use super::check;
use crate::error::{Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::manifest;
use crate::flow::record::lineage::Lineage;
use crate::flow::view::draw::{NodeMark, Picture};
use crate::record::metadata::{self, Status};
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::runs::origin::warn_if_foreign_run;
use crate::unix::terminal::{Screen, print};
use std::collections::HashMap;
use std::path::Path;

/// Runs the command.
pub(crate) fn draw_graph(wanted: &GraphArgs) -> Result<Exit> {
    let what = wanted.what.as_deref();
    match what.map(Path::new) {
        None => print_picture(Path::new("."), wanted, None),
        Some(dir) if dir.is_dir() && !dir.join("journal.jsonl").exists() => {
            print_picture(dir, wanted, None)
        }
        Some(_) => {
            let run = find::find_run(&wanted.work_dir, what.unwrap_or_default())?;
            warn_if_foreign_run(&run)?;
            let Some(past) = basis::read_recorded_basis(&run)? else {
                return Err(basis::not_of_flow(&run, "log", "shows"));
            };
            print_picture(past.home(), wanted, Some((&run, &past)))
        }
    }
}

fn print_picture(
    dir: &Path,
    wanted: &GraphArgs,
    run: Option<(&RunDir, &basis::RecordedBasis)>,
) -> Result<Exit> {
    let Some(flow) = check::usable(manifest::load_flow(dir)) else {
        return Ok(Exit::Config);
    };
    let mut marks = HashMap::new();
    if let Some((run, past)) = run {
        marks = marks_of(run)?;
        if !past.changes(&flow).is_empty() {
            let message =
                "warning: files of the flow have changed since the run; drawn as they are now";
            Screen::new(false, false).warn_as(PROGRAM, message);
        }
    }
    let mark = |node: usize| marks.get(&flow.graph.nodes[node].id).copied();
    print(Picture::of(&flow, mark).written(wanted.language).as_bytes())?;
    Ok(Exit::Success)
}

/// How often a node ended in each way.
#[derive(Default)]
struct NodeEnds {
    good: usize,
    bad: usize,
    /// Begun, and neither ended nor cancelled with its task.
    open: usize,
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
                Some(true) => ends.good += 1,
                Some(false) => ends.bad += 1,
                None => ends.open += usize::from(task.status.is_none()),
            }
        }
    }
    let status = metadata::read(&run.path).map(|metadata| metadata.status);
    let waits = status == Some(Status::WaitingForInput);
    let mark = |ends: NodeEnds| match (ends.open, ends.good, ends.bad) {
        (0, 0, 0) => None,
        (0, _, 0) => Some(NodeMark::Success),
        (0, 0, _) => Some(NodeMark::Failure),
        (0, ..) => Some(NodeMark::Partial),
        _ if waits => Some(NodeMark::Waiting),
        _ => Some(NodeMark::Running),
    };
    let marks = all
        .into_iter()
        .filter_map(|(node, ends)| Some((node, mark(ends)?)));
    Ok(marks.collect())
}
