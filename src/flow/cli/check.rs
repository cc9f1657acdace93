//! `delta-flow check`: reports everything that is wrong or doubtful with a flow.

use crate::error::{Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::eval::load::{has_evaluations, load_evaluations, needs_flow};
use crate::flow::manifest::{self, Flow, FlowProblem};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::text::amounts::counted;
use crate::text::options::format::OutputFormat;
use crate::unix::terminal::{Screen, print, print_value};
use serde_json::{Value, json};
use std::path::Path;

/// A directory that has been checked.
struct CheckedDir {
    /// None: there is no flow, or something is wrong.
    flow: Option<Flow>,
    /// How many suites there are, if there are evaluations.
    suites: Option<usize>,
    problems: Vec<FlowProblem>,
}

impl CheckedDir {
    /// Reads the flow of a directory and its evaluations. These need no flow beside them, if none of them is
    /// about it.
    fn read(dir: &Path) -> Self {
        let has_suites = has_evaluations(dir);
        let has_flow = dir.join("workflow.yaml").exists() || !has_suites || needs_flow(dir);
        let mut checked = Self {
            flow: None,
            suites: None,
            problems: Vec::new(),
        };
        if has_flow {
            let loaded = manifest::load_to_run(dir);
            (checked.flow, checked.problems) = (loaded.flow, loaded.problems);
        }
        if has_suites {
            let loaded = load_evaluations(dir, checked.flow.as_ref());
            checked.problems.extend(loaded.problems);
            checked.suites = loaded.evaluations.map(|all| all.suites.len());
        }
        checked
    }

    fn is_well(&self) -> bool {
        self.problems.iter().all(|problem| problem.code.is_none())
    }

    fn summary(&self, dir: &Path) -> String {
        let suites = self.suites.map(|count| counted(count, "suite"));
        match &self.flow {
            Some(flow) => summary(dir, flow, suites),
            None => format!("{}: ok, {}\n", dir.display(), suites.unwrap_or_default()),
        }
    }
}

/// Runs the command.
pub(crate) fn check_flow(dir: &Path, verbose: bool, format: OutputFormat) -> Result<Exit> {
    let checked = CheckedDir::read(dir);
    print_problems(&checked.problems, format);
    let derived = checked.flow.as_ref().filter(|_| verbose);
    match format {
        OutputFormat::Text if checked.is_well() => {
            let derived = derived.map(derived_lines).unwrap_or_default();
            print((checked.summary(dir) + &derived).as_bytes())?;
        }
        OutputFormat::Text => {}
        OutputFormat::Json => {
            let mut object = errors_object(&checked.problems);
            if let Some(flow) = derived {
                object["derived"] = derived_object(flow);
            }
            print_value(&object)?;
        }
    }
    Ok(match checked.is_well() {
        true => Exit::Success,
        false => Exit::Config,
    })
}

/// A flow that was loaded, if it can be used; prints its problems.
pub(super) fn usable(loaded: manifest::Loaded) -> Option<Flow> {
    print_problems(&loaded.problems, OutputFormat::Text);
    loaded.flow
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
    print_value(&errors_object(problems))
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

fn summary(dir: &Path, flow: &Flow, suites: Option<String>) -> String {
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
    let parts: Vec<String> = parts.into_iter().chain(suites).collect();
    format!("{}: ok, {}\n", name.display(), parts.join(", "))
}
