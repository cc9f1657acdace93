//! `delta-flow complete -- WORD...`: the possible next words, for the completion scripts of shells.
//!
//! As that of `delta`, it only reads, and where something cannot be read it has nothing to offer.

use super::memory::stores;
use super::show;
use super::tables::{COMMANDS, FLOW};
use crate::error::{Exit, Result};
use crate::flow::graph::{Node, Role};
use crate::flow::manifest::{self, Flow, NodeSettings};
use crate::flow::record::RecordedBasis;
use crate::flow::record::lineage::{Lineage, TaskRecord};
use crate::record::metadata;
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::runs::origin::foreign_reason;
use crate::text::options::completion::{Candidate, Offer, TypedLine, TypedValue, complete_line};
use crate::text::options::table::ValueKind;
use crate::unix::terminal::print;
use crate::view::run_candidates::{run_candidates, workspace_candidates};
use std::env;
use std::ffi::OsString;
use std::path::Path;

/// Prints the offer for the words after the program's name, the last one under the cursor.
pub(crate) fn print_candidates(raw: &[OsString]) -> Result<Exit> {
    let home = env::var("HOME").ok();
    print(complete_line(&FLOW, raw, home.as_deref(), offer).as_bytes())?;
    Ok(Exit::Success)
}

fn offer(value: &TypedValue, line: &TypedLine) -> Option<Offer> {
    if value.value.kind == ValueKind::Workspace {
        return Some(("dirs", workspace_candidates(value, line)));
    }
    let is_path = value.typed.contains('/');
    let candidates = match (value.value.name, value.option) {
        ("RUN" | "DIR|RUN", _) if is_path => return None,
        ("DIR|RUN", _) => return Some(("dirs", run_candidates(line, true, is_flows))),
        // The run may be left out, so that its first task is in its place.
        ("RUN", _) if line.command == "show" => [
            run_candidates(line, true, is_flows),
            operand_candidates(line),
        ]
        .concat(),
        ("RUN", _) => run_candidates(line, true, is_flows),
        // Of a whole run, and not of one task.
        ("NODE", _) if ["replay", "artifacts"].contains(&line.command) => {
            recorded_candidates(named_run(line), |lineage| {
                let tasks = lineage.order.iter().map(|id| &lineage.tasks[id]);
                tasks.flat_map(|task| nodes_of(Some(task))).collect()
            })
        }
        ("PROFILE", _) => {
            let flow = named_flow(line);
            let profiles = flow.iter().flat_map(|flow| &flow.cli_profiles);
            Candidate::plain(profiles.map(|profile| profile.id.as_str()))
        }
        ("SCHEMA", _) => schema_candidates(line),
        ("TASK", Some(_)) => recorded_candidates(named_run(line), |lineage| {
            let order = lineage.order.iter();
            order.map(|id| (id.clone(), String::new())).collect()
        }),
        ("TASK", _) | ("NODE", None) => operand_candidates(line),
        ("NODE", Some("--start")) => node_candidates(line, |role| role == Role::Start),
        ("NODE", Some(_)) => node_candidates(line, |_| true),
        ("STORE", _) => {
            let is_add = line.operands.first().is_some_and(|word| word == "add");
            Candidate::plain(stores(is_add).iter().map(|(word, _)| *word))
        }
        ("ID", _) => run_candidates(line, false, is_flows),
        ("COMMAND", None) => Candidate::plain(COMMANDS),
        _ => return None,
    };
    Some(("", candidates))
}

fn is_flows(run: &Path) -> bool {
    metadata::read(run).is_some_and(|metadata| metadata.flow.is_some())
}

/// The flow that the line names.
fn named_flow(line: &TypedLine) -> Option<Flow> {
    let dir = line.operands.first().map_or(".", String::as_str);
    manifest::load_flow(Path::new(dir)).flow
}

/// The workspace that the line names.
fn work_dir(line: &TypedLine) -> &Path {
    Path::new(line.value("--work-dir").unwrap_or("."))
}

/// The run that the line names.
fn named_run(line: &TypedLine) -> Result<RunDir> {
    let name = line.operands.first().map(String::as_str);
    find::find_run_or_newest(work_dir(line), name)
}

/// The nodes of the flow whose roles are wanted, in the order of the manifest.
fn node_candidates(line: &TypedLine, is_wanted: impl Fn(Role) -> bool) -> Vec<Candidate> {
    let Some(flow) = named_flow(line) else {
        return Vec::new();
    };
    let nodes = flow.graph.nodes.iter().zip(&flow.nodes);
    let wanted = nodes.filter(|(node, _)| is_wanted(node.role));
    let candidate = |(node, settings): (&Node, &NodeSettings)| {
        let role = node.role.name();
        let about = match settings.name() {
            name if name == node.id => role.to_owned(),
            name => format!("{role}: {name}"),
        };
        Candidate::new(&node.id, &about)
    };
    wanted.map(candidate).collect()
}

/// The schemas of the flow of the run that the line names.
fn schema_candidates(line: &TypedLine) -> Vec<Candidate> {
    let past = named_run(line).and_then(|run| RecordedBasis::read(&run));
    let flow = match past {
        Ok(Some(past)) => manifest::load_flow(&past.home).flow,
        _ => None,
    };
    let schemas = flow.iter().flat_map(|flow| &flow.schemas);
    Candidate::plain(schemas.map(|schema| schema.id.as_str()))
}

/// Names that the record of a run has, each once, with what is said about them. Of a run that was made elsewhere only
/// names that mean nothing to a shell are offered.
fn recorded_candidates(
    run: Result<RunDir>,
    names: impl FnOnce(&Lineage) -> Vec<(String, String)>,
) -> Vec<Candidate> {
    let read = run.and_then(|run| {
        let control = run.path.parent().unwrap_or(&run.path);
        let is_own = foreign_reason(control)?.is_none() && foreign_reason(&run.path)?.is_none();
        Ok((Lineage::read(&run)?, is_own))
    });
    let Ok((lineage, is_own)) = read else {
        return Vec::new();
    };
    let is_plain = |name: &str| {
        let mut letters = name.chars();
        letters.all(|c| c.is_ascii_alphanumeric() || "_.:@%+/-".contains(c))
    };
    let mut all: Vec<Candidate> = Vec::new();
    for (name, about) in names(&lineage) {
        if (is_own || is_plain(&name)) && all.iter().all(|other| other.word != name) {
            all.push(Candidate::new(&name, &about));
        }
    }
    all
}

/// The nodes that a task was at.
fn nodes_of(task: Option<&TaskRecord>) -> Vec<(String, String)> {
    let steps = task.map_or(&[][..], |task| &task.steps).iter();
    steps
        .map(|step| (step.node.clone(), String::new()))
        .collect()
}

/// Candidates for the operands of `show`: tasks of the run, or nodes of the task.
fn operand_candidates(line: &TypedLine) -> Vec<Candidate> {
    let Ok((run, rest)) = show::find_run(work_dir(line), &line.operands) else {
        return Vec::new();
    };
    recorded_candidates(Ok(run), |lineage| match rest {
        [] => {
            let status = |id: &String| lineage.tasks[id].status.clone().unwrap_or_default();
            let order = lineage.order.iter();
            order.map(|id| (id.clone(), status(id))).collect()
        }
        [task] => nodes_of(lineage.tasks.get(task)),
        _ => Vec::new(),
    })
}
