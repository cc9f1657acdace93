//! `delta-flow show`: a run as a tree of tasks, one task, or one node with all that it was given.
//!
//! Reads the journal and the records of a run. Unaware of how runs go on.

use super::args::ShowArgs;
use super::basis;
use crate::error::{Error, Exit, Result};
use crate::flow::graph::choice::{Payload, choose};
use crate::flow::graph::plan::RoutePlan;
use crate::flow::graph::router::{Effect, Router, StepIx, StepOutcome};
use crate::flow::graph::topology::{EdgeIx, NodeIx};
use crate::flow::manifest::{self, Flow};
use crate::flow::record::events::{FlowLine, each_line, edge_name, read_back};
use crate::flow::record::tool_calls::{self, NodeToolCall};
use crate::record::run_dir::RunDir;
use crate::runs::{find, inspect};
use crate::text::ids::RunId;
use crate::unix::terminal::{in_short, print, printable, time};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// A task as its events tell it.
#[derive(Debug, Default)]
struct ShownTask {
    parent: Option<String>,
    edge: Option<String>,
    status: Option<String>,
    error: Option<String>,
    nodes: Vec<ShownStep>,
}

/// A node in a task.
#[derive(Debug)]
struct ShownStep {
    node: String,
    /// Directories of its attempts, from the run's directory.
    attempts: Vec<String>,
    /// What policies denied it.
    denied: Vec<String>,
    /// How it ended, if it has.
    end: Option<String>,
    output: Option<Payload>,
}

/// All tasks of a run, in the order in which they came to be.
#[derive(Debug, Default)]
struct RunTree {
    order: Vec<String>,
    tasks: HashMap<String, ShownTask>,
}

/// Runs the command.
pub(crate) fn run(wanted: &ShowArgs) -> Result<Exit> {
    let (run, rest) = which(&wanted.work_dir, &wanted.names)?;
    let id = &run.id;
    if basis::recorded(&run)?.is_none() {
        return Err(Error::failure(format!(
            "run {id} is not a flow's; `delta log {id}` shows it"
        )));
    }
    let record = RunTree::read(&run)?;
    let text = match rest {
        [] => record.tree(&run),
        [task] => record.task(task)?,
        [task, node, ..] => record.stage(&run, task, node)?,
    };
    if std::io::stdout().is_terminal() {
        print(printable(&text).as_bytes())?;
    } else {
        print(text.as_bytes())?;
    }
    Ok(Exit::Success)
}

/// The run that is meant, and the names behind it. A run need not be named.
pub(super) fn which<'n>(work_dir: &Path, names: &'n [String]) -> Result<(RunDir, &'n [String])> {
    let is_task = |name: &str| {
        let digits = name.strip_prefix('T').unwrap_or_default();
        digits.starts_with(|c: char| c.is_ascii_digit())
    };
    let is_run = |name: &str| match (find::open_workspace(work_dir), RunId::parse(name)) {
        (Ok(workspace), Ok(id)) => workspace.run_path(&id).is_dir(),
        _ => false,
    };
    match names {
        [first, rest @ ..] if !is_task(first) || is_run(first) => {
            Ok((find::find_run(work_dir, first)?, rest))
        }
        names => Ok((find::find_run_or_newest(work_dir, None)?, names)),
    }
}

impl RunTree {
    fn read(run: &RunDir) -> Result<Self> {
        let mut record = Self::default();
        each_line(run, |line| {
            record.note(run, line)?;
            Ok(true)
        })?;
        Ok(record)
    }

    fn note(&mut self, run: &RunDir, line: &FlowLine<'_>) -> Result<()> {
        let text =
            |from: &Option<std::borrow::Cow<'_, str>>| from.as_ref().map(ToString::to_string);
        let Some(id) = text(&line.task_id) else {
            return Ok(());
        };
        let task = self.tasks.entry(id.clone()).or_insert_with(|| {
            self.order.push(id);
            ShownTask::default()
        });
        let node = text(&line.node_id).unwrap_or_default();
        match &*line.kind {
            "TASK_CREATED" => {
                task.parent = text(&line.parent_id);
                task.edge = text(&line.edge);
            }
            "TASK_END" => {
                task.status = text(&line.status);
                let failure = line.failure();
                task.error = line
                    .code
                    .as_ref()
                    .map(|code| format!("{node}: {code}: {}", failure.message));
            }
            "NODE_START" => {
                let last = task
                    .nodes
                    .iter()
                    .rposition(|stage| stage.node == node && stage.end.is_none());
                let at = last.unwrap_or_else(|| {
                    let stage = ShownStep {
                        node,
                        attempts: Vec::new(),
                        denied: Vec::new(),
                        end: None,
                        output: None,
                    };
                    task.nodes.push(stage);
                    task.nodes.len() - 1
                });
                task.nodes[at].attempts.extend(text(&line.execution_ref));
                task.nodes[at].denied.clear();
            }
            "POLICY" if line.execution_ref.is_none() => {
                if let Some(stage) = task.nodes.iter_mut().rfind(|stage| stage.node == node) {
                    let (what, id) = (text(&line.target), text(&line.target_id));
                    let denied = [what.unwrap_or_default(), id.unwrap_or_default()].join(" ");
                    stage.denied.push(denied);
                }
            }
            "NODE_END" => {
                let mut stages = task.nodes.iter_mut();
                if let Some(stage) = stages.find(|stage| stage.node == node && stage.end.is_none())
                {
                    stage.end = Some(ended(line));
                    stage.output = read_back(&run.path, line.output, line.output_ref.as_deref())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn tree(&self, run: &RunDir) -> String {
        let id = &run.id;
        let (metadata, _) = inspect::read_summary(run);
        let mut out = format!("run {id}  {}", metadata.status.name());
        if let Some(error) = &metadata.error {
            out.push_str(&format!(": {}", in_short(error, 200)));
        }
        out.push('\n');
        for id in &self.order {
            let task = &self.tasks[id];
            let depth = id.matches('.').count();
            out.push_str(&format!(
                "{:indent$}{}\n",
                "",
                line_of(id, task),
                indent = 2 * (depth + 1)
            ));
        }
        out
    }

    fn find(&self, id: &str) -> Result<&ShownTask> {
        self.tasks.get(id).ok_or_else(|| {
            let known: Vec<&str> = self.order.iter().map(String::as_str).take(20).collect();
            Error::failure(format!(
                "there is no task {id}; there are {}",
                known.join(", ")
            ))
        })
    }

    fn task(&self, id: &str) -> Result<String> {
        let task = self.find(id)?;
        let mut out = format!("{}\n", line_of(id, task));
        if let Some(parent) = &task.parent {
            out.push_str(&format!(
                "of {parent}, along {}\n",
                task.edge.as_deref().unwrap_or("?")
            ));
        }
        for stage in &task.nodes {
            let end = end_of(task, stage);
            out.push_str(&format!("  {}  {end}\n", stage.node));
        }
        Ok(out)
    }

    fn stage(&self, run: &RunDir, id: &str, node: &str) -> Result<String> {
        let task = self.find(id)?;
        let stage = task.nodes.iter().rfind(|stage| stage.node == node);
        let Some(stage) = stage else {
            let known: Vec<&str> = task.nodes.iter().map(|stage| stage.node.as_str()).collect();
            return Err(Error::failure(format!(
                "task {id} has not been at {node}; it was at {}",
                known.join(", ")
            )));
        };
        let end = end_of(task, stage);
        let mut out = format!("{id} {node}  {end}\n");
        let mut part = |name: &str, text: &str| {
            let text = text.trim_end();
            if !text.is_empty() {
                out.push_str(&format!("--- {name}\n{text}\n"));
            }
        };
        part("denied", &stage.denied.join("\n"));
        let Some(last) = stage.attempts.last() else {
            let input = input_of(run, id, node)?;
            part("input", input.as_deref().unwrap_or_default());
            part(
                "output",
                stage.output.as_deref().unwrap_or("the input, as it is"),
            );
            return Ok(out);
        };
        for attempt in &stage.attempts {
            part("records", &run.path.join(attempt).to_string_lossy());
        }
        let dir = run.path.join(last);
        for (name, file) in [
            ("command", "command.txt"),
            ("input", "input.json"),
            ("context", "context.json"),
            ("said", "stderr.log"),
            ("output", "output.json"),
            ("usage", "usage.json"),
        ] {
            part(name, &lossy(&dir.join(file)));
        }
        part("tools", &called(&dir)?);
        Ok(out)
    }
}

/// The tools that an attempt has called, a line each.
fn called(io: &Path) -> Result<String> {
    let line = |(name, call): (String, NodeToolCall)| match &call.message {
        Some(why) => format!("{name}  {}: {}\n", call.code_name(), in_short(why, 200)),
        None => {
            let took = time(Duration::from_millis(call.duration_ms));
            format!("{name}  ok, {took}\n")
        }
    };
    Ok(tool_calls::calls(io)?.into_iter().map(line).collect())
}

fn lossy(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn line_of(id: &str, task: &ShownTask) -> String {
    let path: Vec<&str> = task.nodes.iter().map(|stage| stage.node.as_str()).collect();
    let status = task.status.as_deref().unwrap_or("open");
    let error = task
        .error
        .as_ref()
        .map_or_else(String::new, |error| format!("  {}", in_short(error, 200)));
    format!("{id}  {status}  {}{error}", path.join(" > "))
}

/// How a node in a task ended, or why it has not.
fn end_of<'s>(task: &ShownTask, stage: &'s ShownStep) -> &'s str {
    match (&stage.end, &task.status) {
        (Some(end), _) => end,
        (None, Some(_)) => "cancelled",
        (None, None) => "running, or interrupted",
    }
}

fn ended(line: &FlowLine<'_>) -> String {
    if line.status.as_deref() == Some("success") {
        if line.cached {
            return "ok, cached".to_owned();
        }
        return format!("ok, {}", time(Duration::from_millis(line.duration_ms)));
    }
    let failure = line.failure();
    format!("{}: {}", failure.code.name(), failure.message)
}

/// What a node was given that keeps no records: routed again from the journal. None if the flow is not
/// there any more as it was.
fn input_of(run: &RunDir, task: &str, node: &str) -> Result<Option<Payload>> {
    let past = basis::recorded(run)?;
    let Some(past) = past else { return Ok(None) };
    let Some(flow) = manifest::load(past.home()).flow else {
        return Ok(None);
    };
    let Some(start) = flow
        .graph
        .find(past.start())
        .filter(|_| past.changes(&flow).is_empty())
    else {
        return Ok(None);
    };
    let plan = RoutePlan::new(&flow.graph, start);
    let mut again = Replay {
        flow: &flow,
        plan: &plan,
        routers: BTreeMap::new(),
        open: HashMap::new(),
    };
    let mut found = None;
    each_line(run, |line| {
        found = again.line(run, line, (task, node))?;
        Ok(found.is_none())
    })?;
    Ok(found)
}

type Name = (String, NodeIx, Option<EdgeIx>);

/// A run that is routed again.
struct Replay<'a> {
    flow: &'a Flow,
    plan: &'a RoutePlan<'a>,
    routers: BTreeMap<String, Router<'a>>,
    open: HashMap<Name, StepIx>,
}

impl Replay<'_> {
    /// Follows a line. Returns what the wanted node is given, if it begins with this line.
    fn line(
        &mut self,
        run: &RunDir,
        line: &FlowLine<'_>,
        wanted: (&str, &str),
    ) -> Result<Option<Payload>> {
        let graph = &self.flow.graph;
        let Some(task) = line.task_id.as_deref() else {
            return Ok(None);
        };
        let root = task.split('.').next().unwrap_or(task).to_owned();
        match &*line.kind {
            "TASK_CREATED" if line.parent_id.is_none() => {
                let input = read_back(&run.path, line.input, line.input_ref.as_deref())?;
                let input = input.unwrap_or_else(|| "null".into());
                let router = Router::new(self.plan, task, line.index, input);
                self.routers.insert(root.clone(), router);
            }
            "NODE_END" => {
                let node = line.node_id.as_deref().and_then(|id| graph.find(id));
                let found = self.open.keys().find(|(id, at, edge)| {
                    let name = edge.map(|edge| edge_name(graph, edge));
                    id == task
                        && Some(*at) == node
                        && (line.edge.is_none() || line.edge.as_deref() == name.as_deref())
                });
                let Some(name) = found.cloned() else {
                    return Ok(None);
                };
                let (Some(step), Some(router)) =
                    (self.open.remove(&name), self.routers.get_mut(&root))
                else {
                    return Ok(None);
                };
                let outcome = if line.status.as_deref() == Some("success") {
                    let output = read_back(&run.path, line.output, line.output_ref.as_deref())?;
                    let output = output.or_else(|| router.identity(step));
                    let output = output.unwrap_or_else(|| "null".into());
                    match choose(graph, name.1, &output) {
                        Ok(choice) => StepOutcome::Success(output, choice),
                        Err(failure) => StepOutcome::Failure(failure),
                    }
                } else {
                    StepOutcome::Failure(line.failure())
                };
                router.ended(step, outcome);
            }
            _ => return Ok(None),
        }
        Ok(self.listen(&root, wanted))
    }

    fn listen(&mut self, root: &str, (task, node): (&str, &str)) -> Option<Payload> {
        let router = self.routers.get_mut(root)?;
        let mut found = None;
        while let Some(effect) = router.next_effect() {
            let Effect::Start(ix) = effect else { continue };
            let Some(step) = router.get(ix) else { continue };
            let name = (router.id(step.task).to_owned(), step.node, step.edge);
            if name.0 == task && self.flow.graph.nodes[name.1].id == node {
                found = router.input(ix);
            }
            self.open.insert(name, ix);
        }
        found
    }
}
