//! `delta-flow graph`: a flow as a picture, or a run of it with what became of its nodes.

use super::args::GraphArgs;
use super::basis;
use super::check;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::manifest;
use crate::flow::record::events::each_line;
use crate::flow::view::draw::{Mark, Picture};
use crate::record::metadata::{self, Status};
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::text::options::format::OutputFormat;
use crate::unix::terminal::{Screen, print};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Runs the command.
pub(crate) fn run(wanted: &GraphArgs) -> Result<Exit> {
    let what = wanted.what.as_deref();
    match what.map(Path::new) {
        None => draw(Path::new("."), wanted, None),
        Some(dir) if dir.is_dir() && !dir.join("journal.jsonl").exists() => draw(dir, wanted, None),
        Some(_) => {
            let run = find::find_run(&wanted.work_dir, what.unwrap_or_default())?;
            let Some(past) = basis::recorded(&run)? else {
                let id = &run.id;
                return Err(Error::failure(format!(
                    "run {id} is not a flow's; `delta log {id}` shows it"
                )));
            };
            draw(past.home(), wanted, Some((&run, &past)))
        }
    }
}

fn draw(
    dir: &Path,
    wanted: &GraphArgs,
    run: Option<(&RunDir, &basis::RecordedBasis)>,
) -> Result<Exit> {
    let loaded = manifest::load(dir);
    check::tell(&loaded.problems, OutputFormat::Text);
    let Some(flow) = loaded.flow else {
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

/// How often a node came to which end.
#[derive(Default)]
struct NodeEnds {
    good: usize,
    bad: usize,
    /// The tasks in which it has begun and not ended.
    open: HashSet<String>,
}

/// What became of each node of a run, by its id.
fn marks_of(run: &RunDir) -> Result<HashMap<String, Mark>> {
    let mut all: HashMap<String, NodeEnds> = HashMap::new();
    each_line(run, |line| {
        let Some(task) = &line.task_id else {
            return Ok(true);
        };
        if line.kind == "TASK_END" {
            // What has begun in a task that is over was cancelled with it.
            for ends in all.values_mut() {
                ends.open.remove(&**task);
            }
            return Ok(true);
        }
        let Some(node) = &line.node_id else {
            return Ok(true);
        };
        match &*line.kind {
            "NODE_START" => {
                let ends = all.entry(node.to_string()).or_default();
                ends.open.insert(task.to_string());
            }
            "NODE_END" => {
                let ends = all.entry(node.to_string()).or_default();
                ends.open.remove(&**task);
                match line.status.as_deref() {
                    Some("success") => ends.good += 1,
                    _ => ends.bad += 1,
                }
            }
            _ => {}
        }
        Ok(true)
    })?;
    let status = metadata::read(&run.path).map(|metadata| metadata.status);
    let waits = status == Some(Status::WaitingForInput);
    let mark = |ends: NodeEnds| match (ends.open.is_empty(), ends.good, ends.bad) {
        (false, ..) if waits => Some(Mark::Waiting),
        (false, ..) => Some(Mark::Running),
        (true, 0, 0) => None,
        (true, _, 0) => Some(Mark::Success),
        (true, 0, _) => Some(Mark::Failure),
        (true, ..) => Some(Mark::Partial),
    };
    Ok(all
        .into_iter()
        .filter_map(|(node, ends)| Some((node, mark(ends)?)))
        .collect())
}
