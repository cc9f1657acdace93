//! `delta-flow complete -- WORD...`: the possible next words, for the completion scripts of shells.
//!
//! As that of `delta`, it only reads, and where something cannot be read it has nothing to offer.

use super::args::stores;
use super::tables::{COMMANDS, FLOW};
use super::{basis, show};
use crate::error::{Exit, Result};
use crate::flow::graph::{Node, Role};
use crate::flow::manifest::{self, NodeSettings};
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

/// Prints the offer for the words behind the program's name, the last one under the cursor.
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
        ("NODE", _) if is_of_run(line) => steps_candidates(line, |_, task| {
            task.steps.iter().map(|step| step.node.clone()).collect()
        }),
        ("PROFILE", _) => profile_candidates(line),
        ("SCHEMA", _) => schema_candidates(line),
        ("TASK", Some(_)) => steps_candidates(line, |id, _| vec![id.to_owned()]),
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

/// The nodes of the flow whose roles are wanted, in the order of the manifest.
fn node_candidates(line: &TypedLine, is_wanted: impl Fn(Role) -> bool) -> Vec<Candidate> {
    let dir = line.operands.first().map_or(".", String::as_str);
    let Some(flow) = manifest::load_flow(Path::new(dir)).flow else {
        return Vec::new();
    };
    let nodes = flow.graph.nodes.iter().zip(&flow.nodes);
    let wanted = nodes.filter(|(node, _)| is_wanted(node.role));
    let candidate = |(node, settings): (&Node, &NodeSettings)| {
        let role = node.role.name();
        let about = match settings.name.as_str() {
            name if name == node.id => role.to_owned(),
            name => format!("{role}: {name}"),
        };
        Candidate::new(&node.id, &about)
    };
    wanted.map(candidate).collect()
}

/// The command's nodes are those of a run.
fn is_of_run(line: &TypedLine) -> bool {
    ["replay", "artifacts"].contains(&line.command)
}

/// The profiles of the flow that the line names.
fn profile_candidates(line: &TypedLine) -> Vec<Candidate> {
    let dir = line.operands.first().map_or(".", String::as_str);
    let flow = manifest::load_flow(Path::new(dir)).flow;
    let profiles = flow.iter().flat_map(|flow| &flow.cli_profiles);
    Candidate::plain(profiles.map(|profile| profile.id.as_str()))
}

/// The schemas of the flow of the run that the line names.
fn schema_candidates(line: &TypedLine) -> Vec<Candidate> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let name = line.operands.first().map(String::as_str);
    let run = find::find_run_or_newest(Path::new(dir), name);
    let past = run.and_then(|run| basis::read_recorded_basis(&run));
    let flow = past.ok().flatten();
    let flow = flow.and_then(|past| manifest::load_flow(past.home()).flow);
    let schemas = flow.iter().flat_map(|flow| &flow.schemas);
    Candidate::plain(schemas.map(|schema| schema.id.as_str()))
}

/// The record of a run, and whether the run was made here.
fn read_lineage(run: &RunDir) -> Result<(Lineage, bool)> {
    let control = run.path.parent().unwrap_or(&run.path);
    let is_own = foreign_reason(control)?.is_none() && foreign_reason(&run.path)?.is_none();
    Ok((Lineage::read(run)?, is_own))
}

/// True for a name that means nothing to a shell: of runs that were made elsewhere, only such are offered.
fn is_plain(name: &str) -> bool {
    let mut letters = name.chars();
    letters.all(|c| c.is_ascii_alphanumeric() || "_.:@%+/-".contains(c))
}

/// What the tasks of the run that the line names bring, each name once.
fn steps_candidates(
    line: &TypedLine,
    names: impl Fn(&str, &TaskRecord) -> Vec<String>,
) -> Vec<Candidate> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let name = line.operands.first().map(String::as_str);
    let run = find::find_run_or_newest(Path::new(dir), name);
    let Ok((lineage, is_own)) = run.and_then(|run| read_lineage(&run)) else {
        return Vec::new();
    };
    let mut all: Vec<String> = Vec::new();
    for id in &lineage.order {
        for name in names(id, &lineage.tasks[id]) {
            if !all.contains(&name) && (is_own || is_plain(&name)) {
                all.push(name);
            }
        }
    }
    Candidate::plain(all.iter().map(String::as_str))
}

/// Candidates behind the operands of `show`: tasks of the run, or nodes of the task.
fn operand_candidates(line: &TypedLine) -> Vec<Candidate> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let Ok((run, rest)) = show::find_run(Path::new(dir), &line.operands) else {
        return Vec::new();
    };
    let Ok((lineage, is_own)) = read_lineage(&run) else {
        return Vec::new();
    };
    match rest {
        [] => {
            let status = |id: &String| lineage.tasks[id].status.as_deref().unwrap_or_default();
            let tasks = lineage.order.iter().filter(|id| is_own || is_plain(id));
            tasks.map(|id| Candidate::new(id, status(id))).collect()
        }
        [task] => {
            let steps = lineage.tasks.get(task).map_or(&[][..], |task| &task.steps);
            let mut nodes: Vec<&str> = Vec::new();
            for step in steps {
                if !nodes.contains(&&*step.node) && (is_own || is_plain(&step.node)) {
                    nodes.push(&step.node);
                }
            }
            Candidate::plain(nodes)
        }
        _ => Vec::new(),
    }
}
