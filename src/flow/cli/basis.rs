//! The basis of a run: the flow, the start, the input. Read from the command line, written into
//! the journal, and compared when the run is resumed.
//!
//! Unaware of what happens in the run.

use super::args::{FlowRunArgs as Wanted, RunFormat};
use crate::error::{Error, Exit, Result, reason};
use crate::flow::engine::inputs::StreamSource;
use crate::flow::graph::{NodeIx, Payload, Role, RoutePlan};
use crate::flow::manifest::{Flow, sha256};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::flow::record::{RecordedBasis, events, one_value};
use crate::record::event::FlowEvent;
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::workspace::command_in;
use crate::runs::find;
use crate::runs::origin::warn_if_foreign_run;
use crate::runs::task::{read_path, read_stdin};
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::text::order;
use crate::text::shell::shell_quoted;
use crate::text::suggestion::nearest;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{print, print_value};
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
    /// The node where root tasks begin.
    pub start: NodeIx,
    /// The input that they begin with.
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
    let shown = path.display();
    let why = match path.metadata() {
        Ok(meta) if meta.is_file() => return Ok(RunInput::Lines(path)),
        Ok(meta) if !meta.is_dir() => return Ok(RunInput::Stream(Some(StreamSource::Path(path)))),
        Ok(_) => format!("{shown} is a directory"),
        Err(e) => format!("cannot read {shown}: {}", reason(&e)),
    };
    Err(Error::usage(format!("--inputs: {why}")))
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

/// The node that an option names.
pub(super) fn find_node(flow: &Flow, option: &str, id: &str) -> Result<NodeIx> {
    let graph = &flow.graph;
    graph.find(id).ok_or_else(|| {
        let known = graph.nodes.iter().map(|node| node.id.as_str());
        unknown_name(option, id, known)
    })
}

/// A flow's directory, its files and the models of its agents.
pub(super) fn describe_flow(flow: &Flow) -> Value {
    let agents = flow.agents.iter().map(|agent| {
        let mut object = json!(agent.asked);
        object["id"] = agent.id.as_str().into();
        object
    });
    json!({
        "home": flow.home.to_string_lossy(),
        "files": flow.files,
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
            files::make_dirs_below(run, Path::new("io"))?;
            Some(events::keep_text(run, &events::input_name(1), input)?)
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

/// The run that an operand names; none if it is a flow's directory, or missing.
pub(super) fn named_run(given: &ParsedCommand) -> Result<Option<RunDir>> {
    let Some(name) = given.operand_text(0) else {
        return Ok(None);
    };
    let dir = Path::new(&name);
    if dir.is_dir() && !dir.join("journal.jsonl").exists() {
        return Ok(None);
    }
    find::find_run(&given.work_dir(), &name).map(Some)
}

/// The basis of a run that is shown, with a warning if the run was made elsewhere. For one that is not a flow's,
/// the error names the command of `delta` that shows it, if there is one.
pub(super) fn shown_basis(run: &RunDir, instead: Option<&str>) -> Result<RecordedBasis> {
    warn_if_foreign_run(run)?;
    RecordedBasis::read(run)?.ok_or_else(|| not_of_flow(run, instead))
}

/// The error for a run that is not a flow's, with the command of `delta` that does the same for it.
pub(super) fn not_of_flow(run: &RunDir, instead: Option<&str>) -> Error {
    let id = run.id.as_str();
    let hint = instead.map_or_else(String::new, |command| {
        let root = run.workspace().unwrap_or(Path::new("."));
        let mut words = command_in(root, &["delta", command]);
        words.push(id.to_owned());
        let does = match command {
            "replay" => "repeats",
            _ => "shows",
        };
        format!("; `{}` {does} it", shell_quoted(&words))
    });
    Error::failure(format!("run {id} is not a flow's{hint}"))
}

/// The recorded input, as far as it is known.
pub(crate) fn recorded_input(past: &RecordedBasis) -> Option<RunInput> {
    match &past.inputs {
        Some(path) if path == STREAM => Some(RunInput::Stream(None)),
        Some(path) => Some(RunInput::Lines(path.into())),
        None => past.input.clone().map(RunInput::One),
    }
}

/// True if a run with a recorded basis is the one that is meant.
pub(crate) fn is_same(past: &RecordedBasis, basis: &RunBasis, flow: &Flow) -> bool {
    let is_input = match &basis.given {
        _ if !basis.is_said => true,
        RunInput::One(input) => past.is_given(input),
        RunInput::Lines(path) => past.inputs.as_deref() == path.to_str(),
        RunInput::Stream(_) => past.inputs.as_deref() == Some(STREAM),
    };
    is_input && past.home == flow.home && past.start == flow.graph.nodes[basis.start].id
}

/// Prints what would run, and runs nothing.
pub(crate) fn print_dry_run(flow: &Flow, plan: &RoutePlan<'_>, wanted: &Wanted) -> Result<Exit> {
    let graph = &flow.graph;
    let mut order: Vec<NodeIx> = (0..graph.nodes.len())
        .filter(|node| plan.rank[*node] != usize::MAX)
        .collect();
    order::sort_by_key(&mut order, |node| plan.rank[*node]);
    let (mut out, mut objects) = (String::new(), Vec::new());
    for node in order {
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
        let settings = &flow.nodes[node];
        let program = if let Some(command) = &settings.command {
            let own = command.argv(&flow.home, Path::new("."));
            let argv = [wanted.launch(), &own].concat();
            object["command"] = json!(argv);
            shell_quoted(&argv)
        } else if let Some(agent) = flow.agent(node) {
            object["agent_id"] = agent.id.as_str().into();
            format!("agent {}", agent.id)
        } else if let Some(dir) = &settings.flow {
            let below = dir.strip_prefix(&flow.home).unwrap_or(dir).display();
            object["flow"] = below.to_string().into();
            format!("flow {below}")
        } else {
            String::new()
        };
        out.push_str(format!("{role:<8}  {id}{way}  {program}").trim_end());
        out.push('\n');
        objects.push(object);
    }
    if wanted.format == RunFormat::Text {
        print(out.as_bytes())?;
    } else {
        print_value(&json!({"schema_version": SCHEMA_VERSION, "nodes": objects}))?;
    }
    Ok(Exit::Success)
}
