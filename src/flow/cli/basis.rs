//! What a run is made from: the flow, the start, the input. Read from the command line, written into
//! the journal, and compared when the run is resumed.
//!
//! Unaware of what happens in the run.

use super::args::FlowRunArgs as Wanted;
use super::run_format::RunFormat;
use crate::error::{Error, Exit, Result, reason};
use crate::flow::engine::inputs::StreamSource;
use crate::flow::graph::{NodeIx, Payload, Role, RoutePlan};
use crate::flow::manifest::{self, Flow, NodeKind, sha256};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::flow::record::{each_line, events, one_value};
use crate::record::event::{EventKind, FlowEvent};
use crate::record::journal::Journal;
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use crate::runs::task::{read_path, read_stdin};
use crate::text::json;
use crate::text::shell::shell_quoted;
use crate::text::suggestion::nearest;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{print, print_value};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(crate) enum RunInput {
    /// One input.
    One(Payload),
    /// The lines of a file, by its absolute path.
    Lines(PathBuf),
    /// The lines that come through a pipe; none: those that have come.
    Stream(Option<StreamSource>),
}

impl RunInput {
    /// Each is the input of a root of its own.
    pub(crate) fn has_many_roots(&self) -> bool {
        matches!(self, Self::Lines(_) | Self::Stream(_))
    }
}

/// The word for the standard input, and in records for all pipes.
const STREAM: &str = "-";

/// The identity of a run: two with the same basis are one.
#[derive(Debug)]
pub(crate) struct RunBasis {
    /// Where root tasks begin.
    pub start: NodeIx,
    /// With what.
    pub given: RunInput,
    /// The command line says the input, rather than leaving it open.
    pub is_said: bool,
}

/// Reads start and input as a command line has them.
pub(crate) fn read_basis(flow: &Flow, wanted: &Wanted, signals: &Signals) -> Result<RunBasis> {
    let (given, is_said) = match (&wanted.inputs, &wanted.input, &wanted.message) {
        (Some(path), _, _) => (find_inputs(path)?, true),
        (None, Some(path), _) => (RunInput::One(read_input(path, signals)?), true),
        (None, None, Some(text)) => (RunInput::One(json::text(text).into()), true),
        (None, None, None) => (RunInput::One("null".into()), false),
    };
    Ok(RunBasis {
        start: find_start(flow, wanted.start.as_deref())?,
        given,
        is_said,
    })
}

/// The source of many inputs.
fn find_inputs(path: &Path) -> Result<RunInput> {
    if path == Path::new(STREAM) {
        return Ok(RunInput::Stream(Some(StreamSource::Stdin)));
    }
    let path = files::absolute(path)?;
    match path.metadata() {
        Ok(meta) if meta.is_file() => Ok(RunInput::Lines(path)),
        Ok(meta) if !meta.is_dir() => Ok(RunInput::Stream(Some(StreamSource::Path(path)))),
        Ok(_) => {
            let path = path.display();
            Err(Error::usage(format!("--inputs: {path} is a directory")))
        }
        Err(e) => {
            let (path, why) = (path.display(), reason(&e));
            Err(Error::usage(format!("--inputs: cannot read {path}: {why}")))
        }
    }
}

/// One JSON value from a file, or from the standard input.
pub(super) fn read_input(path: &str, signals: &Signals) -> Result<Payload> {
    let (name, text) = match path {
        "-" => ("stdin", read_stdin("input", signals)?),
        path => ("the file", read_path(Path::new(path), signals)?),
    };
    let text = String::from_utf8(text)
        .map_err(|_| Error::usage(format!("-i {path}: {name} is not UTF-8")))?;
    one_value(text).map_err(|_| {
        Error::usage(format!(
            "-i {path}: {name} is not one JSON value; a text is given with -m"
        ))
    })
}

/// The start that is named, or else the default.
pub(super) fn find_start(flow: &Flow, named: Option<&str>) -> Result<NodeIx> {
    let nodes = &flow.graph.nodes;
    let mut starts = (0..nodes.len()).filter(|ix| nodes[*ix].role == Role::Start);
    if let Some(id) = named {
        let found = starts.clone().find(|ix| nodes[*ix].id == id);
        let known = starts.map(|ix| nodes[ix].id.as_str());
        return found.ok_or_else(|| unknown_name("--start", id, known));
    }
    let default = starts.clone().find(|ix| nodes[*ix].default_start);
    default
        .or_else(|| starts.next())
        .ok_or_else(|| Error::config("the flow has no start"))
}

/// The error for an unknown name in an option.
pub(crate) fn unknown_name<'n>(
    option: &str,
    name: &str,
    known: impl Iterator<Item = &'n str>,
) -> Error {
    let known: Vec<&str> = known.collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None if known.is_empty() => "the flow has none".to_owned(),
        None => format!("there are {}", known.join(", ")),
    };
    Error::usage(format!("{option}: there is no '{name}'; {hint}"))
}

/// What a flow is made from: its directory, its files and the models of its agents.
pub(super) fn describe_flow(flow: &Flow) -> Value {
    let files = flow.files.iter();
    let files = files.map(|file| json!({"path": file.path, "sha256": file.sha256}));
    let agents = flow.agents.iter().map(|agent| {
        let mut object = json!(agent.asked);
        object["id"] = agent.id.as_str().into();
        object
    });
    json!({
        "home": flow.home.to_string_lossy(),
        "files": files.collect::<Vec<_>>(),
        "agents": agents.collect::<Vec<_>>(),
    })
}

/// The basis as metadata and journal have it.
pub(crate) fn describe_basis(basis: &RunBasis, flow: &Flow) -> Value {
    let mut object = describe_flow(flow);
    object["start"] = flow.graph.nodes[basis.start].id.as_str().into();
    match &basis.given {
        RunInput::One(input) => object["input_sha256"] = sha256(input.as_bytes()).into(),
        RunInput::Lines(path) => object["inputs"] = path.to_string_lossy().into(),
        RunInput::Stream(_) => object["inputs"] = STREAM.into(),
    }
    object
}

/// Puts it into the journal, with the input, so that it need not be given again.
pub(crate) fn record_basis(journal: &mut Journal, basis: &RunBasis, flow: &Flow) -> Result<()> {
    let kept = match &basis.given {
        RunInput::One(input) => {
            let run = journal.path().parent().unwrap_or(Path::new("."));
            let name = events::input_name(1);
            files::make_dirs_below(run, Path::new(&name).parent().unwrap_or(Path::new("")))?;
            Some(events::keep_text(run, &name, input)?)
        }
        RunInput::Lines(_) | RunInput::Stream(_) => None,
    };
    journal.add_line(FlowEvent::FlowStart, |line| {
        line.put("flow", &describe_basis(basis, flow));
        if let Some(kept) = &kept {
            events::put_input(line, kept);
        }
    });
    Ok(())
}

/// The basis of a run, from its journal.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedBasis {
    home: String,
    start: String,
    #[serde(default)]
    input_sha256: Option<String>,
    #[serde(default)]
    inputs: Option<String>,
    files: Vec<File>,
    #[serde(skip)]
    input: Option<Payload>,
}

#[derive(Debug, Deserialize)]
struct File {
    path: String,
    sha256: String,
}

/// The error for a run that is not a flow's, with the command of `delta` that does the same for it.
pub(super) fn not_of_flow(run: &RunDir, command: &str, does: &str) -> Error {
    let id = run.id.as_str();
    let root = run.workspace().unwrap_or(Path::new("."));
    let words = ["delta", command, "-w", &root.to_string_lossy(), id].map(str::to_owned);
    let words = shell_quoted(&words);
    Error::failure(format!("run {id} is not a flow's; `{words}` {does} it"))
}

/// The newest basis in a journal; none if the run is not a flow's.
pub(crate) fn read_recorded_basis(run: &RunDir) -> Result<Option<RecordedBasis>> {
    read_basis_in(run, (&run.journal()).into())
}

/// The same from a run's journal.
pub(crate) fn read_basis_in(
    run: &RunDir,
    journal: JournalSource<'_>,
) -> Result<Option<RecordedBasis>> {
    let mut found = None;
    each_line(journal, true, |line| {
        if line.kind != EventKind::Flow(FlowEvent::FlowStart) {
            // It follows a start, or is missing.
            return Ok(found.is_some() || line.kind == EventKind::EngineStart);
        }
        let basis = line
            .flow
            .and_then(|flow| serde_json::from_str::<RecordedBasis>(flow.get()).ok());
        if let Some(mut basis) = basis {
            let input = line.input_ref.as_deref();
            basis.input = events::read_text(&run.path, line.input, input)?;
            found = Some(basis);
        }
        Ok(true)
    })?;
    Ok(found)
}

impl RecordedBasis {
    /// The flow's directory.
    pub(crate) fn home(&self) -> &Path {
        Path::new(&self.home)
    }

    /// The flow, unless its files have changed since.
    pub(super) fn unchanged_flow(&self) -> Option<Flow> {
        let flow = manifest::load_flow(self.home()).flow;
        flow.filter(|flow| self.changes(flow).is_empty())
    }

    /// Where its root tasks began.
    pub(crate) fn start(&self) -> &str {
        &self.start
    }

    /// Each of its inputs is the task of a root of its own.
    pub(crate) fn has_many_roots(&self) -> bool {
        self.inputs.is_some()
    }

    /// The input, as far as it is known.
    pub(crate) fn given(&self) -> Option<RunInput> {
        match (&self.inputs, &self.input) {
            (Some(path), _) if path == STREAM => Some(RunInput::Stream(None)),
            (Some(path), _) => Some(RunInput::Lines(path.into())),
            (None, input) => input.clone().map(RunInput::One),
        }
    }

    /// A run with this basis is the one that is meant.
    pub(crate) fn is_same(&self, basis: &RunBasis, flow: &Flow) -> bool {
        let is_home = flow.home.to_str() == Some(&self.home);
        let is_input = match &basis.given {
            _ if !basis.is_said => true,
            RunInput::One(input) => self.input_sha256 == Some(sha256(input.as_bytes())),
            RunInput::Lines(path) => self.inputs.as_deref() == path.to_str(),
            RunInput::Stream(_) => self.inputs.as_deref() == Some(STREAM),
        };
        is_home && is_input && self.start == flow.graph.nodes[basis.start].id
    }

    /// The files that are not what they were, or are there no more, or were not there.
    pub(crate) fn changes(&self, flow: &Flow) -> Vec<String> {
        let now = |path: &str| flow.files.iter().find(|file| file.path == path);
        let then = |path: &str| self.files.iter().any(|file| file.path == path);
        let changed = self
            .files
            .iter()
            .filter(|file| now(&file.path).is_none_or(|now| now.sha256 != file.sha256));
        let changed = changed.map(|file| file.path.clone());
        let new = flow.files.iter().filter(|file| !then(&file.path));
        changed.chain(new.map(|file| file.path.clone())).collect()
    }
}

/// What a node would run.
enum PlannedRun {
    Command(Vec<String>),
    Agent(String),
    /// The directory of the flow within.
    Flow(String),
    Nothing,
}

/// Prints what would run, and runs nothing.
pub(crate) fn print_dry_run(flow: &Flow, plan: &RoutePlan<'_>, wanted: &Wanted) -> Result<Exit> {
    let graph = &flow.graph;
    let mut order: Vec<NodeIx> = (0..graph.nodes.len())
        .filter(|node| plan.rank[*node] != usize::MAX)
        .collect();
    order.sort_by_key(|node| plan.rank[*node]);
    let (mut out, mut objects) = (String::new(), Vec::new());
    for node in order {
        let runs = planned_run(flow, node, wanted);
        let targets: Vec<&str> = graph
            .targets(node)
            .map(|to| graph.nodes[to].id.as_str())
            .collect();
        let (role, id) = (graph.nodes[node].role.name(), &graph.nodes[node].id);
        let mut object = json!({"node_id": id, "role": role, "targets": targets});
        let way = match targets.as_slice() {
            [] => String::new(),
            targets => format!("  > {}", targets.join(", ")),
        };
        let program = match runs {
            PlannedRun::Command(argv) => {
                object["command"] = json!(argv);
                shell_quoted(&argv)
            }
            PlannedRun::Agent(id) => {
                object["agent_id"] = json!(id);
                format!("agent {id}")
            }
            PlannedRun::Flow(dir) => {
                object["flow"] = json!(dir);
                format!("flow {dir}")
            }
            PlannedRun::Nothing => String::new(),
        };
        out.push_str(format!("{role:<8}  {id}{way}  {program}").trim_end());
        out.push('\n');
        objects.push(object);
    }
    if wanted.format == RunFormat::Text {
        print(out.as_bytes())?;
    } else {
        let object = json!({"schema_version": SCHEMA_VERSION, "nodes": objects});
        print_value(&object)?;
    }
    Ok(Exit::Success)
}

fn planned_run(flow: &Flow, node: NodeIx, wanted: &Wanted) -> PlannedRun {
    let settings = &flow.nodes[node];
    match (&settings.command, settings.kind, settings.agent) {
        (Some(command), ..) => {
            let own = command.argv(&flow.home, Path::new("."));
            PlannedRun::Command([wanted.launch().to_vec(), own].concat())
        }
        (None, NodeKind::Agent, Some(agent)) => PlannedRun::Agent(flow.agents[agent].id.clone()),
        _ => settings.flow.as_ref().map_or(PlannedRun::Nothing, |dir| {
            let dir = dir.strip_prefix(&flow.home).unwrap_or(dir);
            PlannedRun::Flow(dir.display().to_string())
        }),
    }
}
