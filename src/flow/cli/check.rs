//! `delta-flow check`: reports everything that is wrong or doubtful with a flow.

use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::eval::load::{has_evaluations, load_evaluations, load_words, needs_flow};
use crate::flow::eval::suite::Evaluations;
use crate::flow::manifest::{self, Flow, FlowProblem};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::text::amounts::counted;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::unix::terminal::{Screen, print, print_value};
use serde_json::{Map, Value, json};
use std::path::Path;

/// A directory with a flow, evaluations or both.
pub(super) struct CheckedDir {
    /// None: there is no flow, or something is wrong.
    pub flow: Option<Flow>,
    pub evaluations: Option<Evaluations>,
    problems: Vec<FlowProblem>,
}

impl CheckedDir {
    pub(super) fn read(dir: &Path, has_flow: bool, has_suites: bool) -> Self {
        let loaded = has_flow.then(|| manifest::load_to_run(dir));
        let (flow, mut problems) =
            loaded.map_or_else(Default::default, |loaded| (loaded.flow, loaded.problems));
        let loaded = has_suites.then(|| load_evaluations(dir, flow.as_ref()));
        let evaluations = loaded.and_then(|loaded| {
            problems.extend(loaded.problems);
            loaded.evaluations
        });
        Self {
            flow,
            evaluations,
            problems,
        }
    }

    /// Suites that a command line describes.
    pub(super) fn of_words(root: Map<String, Value>) -> Self {
        let loaded = load_words(root);
        Self {
            flow: None,
            evaluations: loaded.evaluations,
            problems: loaded.problems,
        }
    }

    /// Prints the problems on stderr, a line each; where the errors are printed as an object, only the others.
    pub(super) fn print_problems(&self, program: &str, format: OutputFormat) {
        print_problems(program, &self.problems, format);
    }

    /// Prints the object for a directory that cannot be used.
    pub(super) fn print_errors(&self) -> Result<()> {
        print_errors(&self.problems)
    }

    fn summary(&self, dir: &Path) -> String {
        let mut name = dir;
        let mut parts = Vec::new();
        if let Some(flow) = &self.flow {
            if dir == Path::new(".") {
                name = &flow.home;
            }
            parts.extend([
                counted(flow.graph.nodes.len(), "node"),
                counted(flow.graph.edges.len(), "edge"),
                counted(flow.agents.len(), "agent"),
                counted(flow.tools.len(), "tool"),
                counted(flow.schemas.len(), "schema"),
            ]);
        }
        let evaluations = self.evaluations.iter();
        parts.extend(evaluations.map(|all| counted(all.suites.len(), "suite")));
        format!("{}: ok, {}\n", name.display(), parts.join(", "))
    }
}

/// Runs the command. Evaluations need no flow beside them, if none of them is about it.
pub(crate) fn check_flow(given: &ParsedCommand) -> Result<Exit> {
    let (dir, format) = (given.operand_dir(0), given.format());
    let has_suites = has_evaluations(&dir);
    let has_flow = dir.join("workflow.yaml").exists() || !has_suites || needs_flow(&dir);
    let checked = CheckedDir::read(&dir, has_flow, has_suites);
    checked.print_problems(PROGRAM, format);
    let is_well = checked.problems.iter().all(|it| it.code.is_none());
    let derived = checked.flow.as_ref().filter(|_| given.has("--verbose"));
    match format {
        OutputFormat::Text if is_well => {
            let lines = derived.map_or_else(String::new, derived_lines);
            print((checked.summary(&dir) + &lines).as_bytes())?;
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
    Ok(if is_well { Exit::Success } else { Exit::Config })
}

/// Prints the problems of a flow that was loaded. If it cannot be used, they are all that is said.
pub(super) fn usable(loaded: manifest::Loaded) -> Result<Flow> {
    print_problems(PROGRAM, &loaded.problems, OutputFormat::Text);
    loaded.flow.ok_or_else(|| Error::config(""))
}

/// Prints a warning.
pub(super) fn warn(text: &str) {
    Screen::new(false, false).warn_as(PROGRAM, text);
}

/// Prints problems on stderr, a line each; where the errors are printed as an object, only the others.
pub(super) fn print_problems(program: &str, problems: &[FlowProblem], format: OutputFormat) {
    for problem in problems {
        if problem.code.is_none() || format == OutputFormat::Text {
            Screen::new(false, false).warn_as(program, &problem.to_string());
        }
    }
}

/// Prints the object for a flow that cannot be loaded.
pub(super) fn print_errors(problems: &[FlowProblem]) -> Result<()> {
    print_value(&errors_object(problems))
}

fn errors_object(problems: &[FlowProblem]) -> Value {
    let errors: Vec<Value> = problems
        .iter()
        .filter(|problem| problem.code.is_some())
        .map(FlowProblem::object)
        .collect();
    json!({"schema_version": SCHEMA_VERSION, "errors": errors})
}

/// The nodes that keys were derived for, with these.
fn derived_nodes(flow: &Flow) -> impl Iterator<Item = (&str, &[(&'static str, String)])> {
    let nodes = flow.nodes.iter().filter(|node| !node.derived.is_empty());
    nodes.map(|node| (node.id.as_str(), node.derived.as_slice()))
}

/// A line for each node that keys were derived for.
fn derived_lines(flow: &Flow) -> String {
    let longest = derived_nodes(flow).map(|(id, _)| id.len()).max();
    let width = longest.map_or(0, |longest| longest.min(24));
    let line = |(id, derived): (&str, &[(&str, String)])| {
        let keys: Vec<String> = derived
            .iter()
            .map(|(key, value)| format!("{key}: {value}"))
            .collect();
        format!("  {id:<width$}  {}\n", keys.join(", "))
    };
    derived_nodes(flow).map(line).collect()
}

/// The keys that were derived, by node. Their values are those that could have been written.
fn derived_object(flow: &Flow) -> Value {
    let mut all = Map::new();
    for (id, derived) in derived_nodes(flow) {
        for (key, text) in derived {
            all.entry(id).or_insert_with(|| json!({}))[*key] = match *key {
                "default_start" | "timeout_ms" => text.parse().unwrap_or(Value::Null),
                _ => text.as_str().into(),
            };
        }
    }
    all.into()
}
