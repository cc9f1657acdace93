//! `delta-flow check`: reports everything that is wrong or doubtful with a flow.

use crate::error::{Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::manifest::{self, Flow, FlowProblem};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::text::options::format::OutputFormat;
use crate::unix::terminal::{Screen, counted, print, print_json};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the command.
pub(crate) fn check_flow(dir: &Path, verbose: bool, format: OutputFormat) -> Result<Exit> {
    let loaded = manifest::load_to_run(dir);
    print_problems(&loaded.problems, format);
    let derived = loaded.flow.as_ref().filter(|_| verbose);
    match (&loaded.flow, format) {
        (Some(flow), OutputFormat::Text) => {
            let derived = derived.map(derived_lines).unwrap_or_default();
            print((summary(dir, flow) + &derived).as_bytes())?;
        }
        (None, OutputFormat::Text) => {}
        (_, OutputFormat::Json) => {
            let mut object = errors_object(&loaded.problems);
            if let Some(flow) = derived {
                object["derived"] = derived_object(flow);
            }
            print_json(format!("{object}\n").as_bytes())?;
        }
    }
    Ok(match loaded.flow {
        Some(_) => Exit::Success,
        None => Exit::Config,
    })
}

/// Prints problems on stderr, a line each; where the errors are printed as an object, only the others.
pub(crate) fn print_problems(problems: &[FlowProblem], format: OutputFormat) {
    for problem in problems {
        if problem.code.is_none() || format == OutputFormat::Text {
            Screen::new(false, false).warn_as(PROGRAM, &problem.to_string());
        }
    }
}

/// Prints the object for a flow that cannot be loaded.
pub(crate) fn print_errors(problems: &[FlowProblem]) -> Result<()> {
    print_json(format!("{}\n", errors_object(problems)).as_bytes())
}

fn errors_object(problems: &[FlowProblem]) -> Value {
    let errors = problems.iter().filter(|problem| problem.code.is_some());
    let errors: Vec<Value> = errors.map(FlowProblem::object).collect();
    json!({"schema_version": SCHEMA_VERSION, "errors": errors})
}

/// A line for each node that keys were derived for.
fn derived_lines(flow: &Flow) -> String {
    let nodes = flow.graph.nodes.iter().zip(&flow.derived);
    let nodes: Vec<_> = nodes.filter(|(_, derived)| !derived.is_empty()).collect();
    let width = nodes.iter().map(|(node, _)| node.id.len()).max();
    let width = width.unwrap_or_default().min(24);
    let mut lines = String::new();
    for (node, derived) in nodes {
        let keys: Vec<String> = derived
            .iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        lines += &format!("  {:<width$}  {}\n", node.id, keys.join(", "));
    }
    lines
}

/// The keys that were derived, by node. Their values are those that could have been written.
fn derived_object(flow: &Flow) -> Value {
    let nodes = flow.graph.nodes.iter().zip(&flow.derived);
    let keys = |derived: &Vec<(&'static str, String)>| -> Value {
        let keys = derived.iter().map(|(key, value)| {
            let value = match *key {
                "default_start" | "timeout_ms" => value.parse().unwrap_or(Value::Null),
                _ => value.as_str().into(),
            };
            ((*key).to_owned(), value)
        });
        Value::Object(keys.collect())
    };
    let nodes = nodes.filter(|(_, derived)| !derived.is_empty());
    let nodes = nodes.map(|(node, derived)| (node.id.clone(), keys(derived)));
    Value::Object(nodes.collect())
}

fn summary(dir: &Path, flow: &Flow) -> String {
    let name = if dir == Path::new(".") {
        &flow.home
    } else {
        dir
    };
    let parts = [
        counted(flow.graph.nodes.len(), "node"),
        counted(flow.graph.edges.len(), "edge"),
        counted(flow.agents.len(), "agent"),
        counted(flow.tools.len(), "tool"),
        counted(flow.schemas.len(), "schema"),
    ];
    format!("{}: ok, {}\n", name.display(), parts.join(", "))
}
