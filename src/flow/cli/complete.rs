//! `delta-flow complete -- WORD...`: what could stand next, for the completion scripts of shells.
//!
//! As that of `delta`, it only reads, and where something cannot be read it has nothing to offer.

use super::args::COMMANDS;
use super::main::{OVERVIEW, help};
use super::show;
use crate::cli::commands::complete::{runs, workspaces};
use crate::cli::completion::{Choice, Known, Line, Program, Syntax, Value, told};
use crate::error::{Exit, Result};
use crate::flow::graph::topology::{Node, Role};
use crate::flow::manifest::memory::StoreName;
use crate::flow::manifest::{self, NodeSettings};
use crate::flow::record::events::each_line;
use crate::flow::view::draw::Language;
use crate::record::metadata;
use crate::record::run_dir::RunDir;
use crate::unix::terminal::print;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

/// What `delta-flow` is, to somebody who types.
static FLOW: Program = Program {
    overview: OVERVIEW,
    options: OVERVIEW,
    command: |name| {
        let name = COMMANDS.into_iter().find(|known| *known == name)?;
        let text = help(Some(name));
        let usage = text.strip_prefix("usage: delta flow ").unwrap_or(text);
        Some(Syntax {
            usage: usage.lines().next().unwrap_or_default(),
            options: text,
            options_first: false,
        })
    },
};

/// Runs the command: the words behind the program's name, the last one under the cursor.
pub(crate) fn run(raw: &[OsString]) -> Result<Exit> {
    print(told(&FLOW, raw, known).as_bytes())?;
    Ok(Exit::Success)
}

/// What a value can be.
fn known(value: &Value, line: &Line) -> Known {
    let is_path = value.typed.contains('/');
    match value.name.as_str() {
        "DIR" if value.option.as_deref() == Some("--work-dir") => ("dirs", workspaces(value, line)),
        "DIR" => ("dirs", Vec::new()),
        "FILE" => ("files", Vec::new()),
        "RUN" | "DIR|RUN" if is_path => ("dirs", Vec::new()),
        "DIR|RUN" => ("dirs", runs(line, true, is_flows)),
        // The run may be left out, so that its first task stands in its place.
        "RUN" => ("", [runs(line, true, is_flows), behind(line)].concat()),
        "TASK" => ("", behind(line)),
        "NODE" => match value.option.as_deref() {
            None => ("", behind(line)),
            Some("--start") => ("", nodes(line, |role| role == Role::Start)),
            Some(_) => ("", nodes(line, |_| true)),
        },
        "STORE" => (
            "",
            StoreName::NAMES
                .map(|(word, _)| Choice::new(word, ""))
                .into(),
        ),
        "ID" => ("", runs(line, false, is_flows)),
        "LANGUAGE" => ("", Language::ALL.map(|(w, _)| Choice::new(w, "")).into()),
        "COMMAND" => ("", COMMANDS.map(|word| Choice::new(word, "")).into()),
        _ => ("", Vec::new()),
    }
}

fn is_flows(run: &Path) -> bool {
    metadata::read(run).is_some_and(|metadata| metadata.flow.is_some())
}

/// The nodes of the flow whose roles are wanted, in the order of the manifest.
fn nodes(line: &Line, is_wanted: impl Fn(Role) -> bool) -> Vec<Choice> {
    let dir = line.operands.first().map_or(".", String::as_str);
    let Some(flow) = manifest::load(Path::new(dir)).flow else {
        return Vec::new();
    };
    let nodes = flow.graph.nodes.iter().zip(&flow.nodes);
    let wanted = nodes.filter(|(node, _)| is_wanted(node.role));
    let choice = |(node, settings): (&Node, &NodeSettings)| {
        let role = Role::ALL.into_iter().find(|(_, role)| *role == node.role);
        let role = role.map_or("", |(word, _)| word);
        let about = match settings.name.as_str() {
            name if name == node.id => role.to_owned(),
            name => format!("{role}: {name}"),
        };
        Choice::new(&node.id, &about)
    };
    wanted.map(choice).collect()
}

/// What `show` could be given behind its operands: tasks of the run, or nodes of the task.
fn behind(line: &Line) -> Vec<Choice> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let Ok((run, rest)) = show::which(Path::new(dir), &line.operands) else {
        return Vec::new();
    };
    match rest {
        [] => tasks(&run),
        [task] => been_at(&run, task),
        _ => Vec::new(),
    }
}

/// The tasks of a run, in the order in which they came to be, and how they ended.
fn tasks(run: &RunDir) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    // What has been read until something cannot be is told.
    drop(each_line(run, |line| {
        let Some(id) = &line.task_id else {
            return Ok(true);
        };
        let at = *places.entry(id.to_string()).or_insert_with(|| {
            found.push(Choice::new(id, ""));
            found.len() - 1
        });
        if line.kind == "TASK_END" {
            found[at] = Choice::new(id, line.status.as_deref().unwrap_or_default());
        }
        Ok(true)
    }));
    found
}

/// The nodes that a task has been at.
fn been_at(run: &RunDir, task: &str) -> Vec<Choice> {
    let mut found: Vec<Choice> = Vec::new();
    drop(each_line(run, |line| {
        if line.kind == "NODE_START" && line.task_id.as_deref() == Some(task) {
            let id = line.node_id.as_deref().unwrap_or_default();
            if found.iter().all(|known| known.word != id) {
                found.push(Choice::new(id, ""));
            }
        }
        Ok(true)
    }));
    found
}
