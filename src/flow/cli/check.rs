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
pub(crate) fn check_flow(dir: &Path, format: OutputFormat) -> Result<Exit> {
    let loaded = manifest::load_to_run(dir);
    print_problems(&loaded.problems, format);
    match (&loaded.flow, format) {
        (Some(flow), OutputFormat::Text) => print(summary(dir, flow).as_bytes())?,
        (None, OutputFormat::Text) => {}
        (_, OutputFormat::Json) => print_errors(&loaded.problems)?,
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
    let errors = problems.iter().filter(|problem| problem.code.is_some());
    let errors: Vec<Value> = errors.map(FlowProblem::object).collect();
    let object = json!({"schema_version": SCHEMA_VERSION, "errors": errors});
    print_json(format!("{object}\n").as_bytes())
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
