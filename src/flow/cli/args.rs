//! The command line of `delta-flow` as plain data. Nothing is looked up or resolved here.

mod eval;
mod run;

use super::tables::FLOW;
use super::templates::{self, FlowTemplate};
use crate::engine::validator;
use crate::error::{Error, Result};
use crate::flow::manifest::is_id;
use crate::flow::manifest::memory::StoreName;
use crate::flow::view::draw::Language;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line, unknown_word};
use crate::text::options::table::CommandTable;
use crate::view::stats_table::StatsArgs;
use std::ffi::OsString;
use std::path::PathBuf;

pub use super::tables::COMMANDS;
pub(crate) use eval::FlowEvalArgs;
pub(crate) use run::FlowRunArgs;

#[derive(Debug)]
pub(crate) enum FlowCommand {
    Check {
        dir: PathBuf,
        /// Print what was derived, too.
        verbose: bool,
        format: OutputFormat,
    },
    Init {
        dir: PathBuf,
        template: &'static FlowTemplate,
    },
    Run(Box<FlowRunArgs>),
    Show(ShowArgs),
    Graph(GraphArgs),
    Tool(ToolArgs),
    Stats(StatsArgs),
    /// The words behind the program's name, as they are typed.
    Complete(Vec<OsString>),
    Memory(MemoryArgs),
    Answer(AnswerArgs),
    Observe(ObserveArgs),
    Replay(FlowReplayArgs),
    Repl(ReplArgs),
    Artifacts(ArtifactsArgs),
    Manifest(ManifestArgs),
    Eval(Box<FlowEvalArgs>),
    /// Check the answer on the standard input, for `delta`.
    ValidateJson,
    Version,
    Help {
        /// None: all commands.
        command: Option<&'static CommandTable>,
        full: bool,
    },
}

/// `show`.
#[derive(Debug)]
pub(crate) struct ShowArgs {
    pub work_dir: PathBuf,
    /// A run, a task, a node: each may be left out from the end, the run also from the beginning.
    pub names: Vec<String>,
}

/// `graph`.
#[derive(Debug)]
pub(crate) struct GraphArgs {
    /// A flow's directory, a run or the directory of one; none: the current directory.
    pub what: Option<String>,
    pub work_dir: PathBuf,
    pub language: Language,
}

/// `answer`.
#[derive(Debug)]
pub(crate) struct AnswerArgs {
    pub work_dir: PathBuf,
    /// Of a flow; none: all that have not ended.
    pub run: Option<String>,
    pub task: Option<String>,
    /// None: questions are only listed.
    pub text: Option<String>,
}

/// `observe`.
#[derive(Debug)]
pub(crate) struct ObserveArgs {
    /// None: the newest.
    pub run: Option<String>,
    pub work_dir: PathBuf,
    /// None: one that follows from command and patterns.
    pub id: Option<String>,
    /// Patterns for the types of events; none: all.
    pub events: Vec<String>,
    /// The program and its arguments. Not empty.
    pub command: Vec<String>,
}

/// `replay`.
#[derive(Debug)]
pub(crate) struct FlowReplayArgs {
    pub run: String,
    /// None: the whole run.
    pub node: Option<String>,
    pub task: Option<String>,
    pub work_dir: PathBuf,
    jobs: Option<usize>,
    pub format: OutputFormat,
    pub adopt: bool,
    pub changed_ok: bool,
    pub quiet: bool,
}

impl FlowReplayArgs {
    /// The number of programs at once.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(processors)
    }
}

/// The default number of programs at once.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `repl`.
#[derive(Debug)]
pub(crate) struct ReplArgs {
    pub dir: PathBuf,
    /// None: the first.
    pub profile: Option<String>,
    pub work_dir: PathBuf,
    pub run_id: Option<String>,
    pub jobs: Option<usize>,
    pub quiet: bool,
}

/// `artifacts`.
#[derive(Debug)]
pub(crate) struct ArtifactsArgs {
    /// None: the newest.
    pub run: Option<String>,
    pub work_dir: PathBuf,
    /// None: all of them.
    pub node: Option<String>,
    /// None: of any schema.
    pub schema: Option<String>,
    pub format: OutputFormat,
    pub verify: bool,
}

/// `manifest`.
#[derive(Debug)]
pub(crate) struct ManifestArgs {
    /// A flow's directory, a run or the directory of one; none: the current directory.
    pub what: Option<String>,
    pub work_dir: PathBuf,
    /// A file with what the command printed before.
    pub check: Option<PathBuf>,
}

/// `tool`.
#[derive(Debug, Default)]
pub(crate) struct ToolArgs {
    pub name: String,
    /// Parameters by their names. With these or the next one, the standard input has no arguments.
    pub parameters: Vec<(String, String)>,
    /// The parameter whose value is the standard input.
    pub stdin: Option<String>,
}

/// `memory`.
#[derive(Debug)]
pub(crate) struct MemoryArgs {
    pub store: StoreName,
    pub dir: PathBuf,
    pub work_dir: PathBuf,
    /// Given to an item that is added; one of them is enough to be listed.
    pub tags: Vec<String>,
    pub what: MemoryAction,
}

/// To do with a store.
#[derive(Debug)]
pub(crate) enum MemoryAction {
    AddText(String),
    /// The JSON value in a file, or `-`.
    AddFile(String),
    List(OutputFormat),
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse_args(words: impl IntoIterator<Item = OsString>) -> Result<FlowCommand> {
    match parse_line(&FLOW, words)? {
        CommandLine::Version => Ok(FlowCommand::Version),
        CommandLine::Help { command, full } => Ok(FlowCommand::Help { command, full }),
        CommandLine::Raw(validator::COMMAND, _) => Ok(FlowCommand::ValidateJson),
        CommandLine::Raw(_, words) => Ok(FlowCommand::Complete(words)),
        CommandLine::Command(given) => command_of(&given),
    }
}

fn command_of(given: &ParsedCommand) -> Result<FlowCommand> {
    Ok(match given.command.name {
        "run" => FlowCommand::Run(Box::new(run::run_args(given)?)),
        "show" => FlowCommand::Show(ShowArgs {
            work_dir: given.work_dir(),
            names: given.operand_texts(),
        }),
        "init" => FlowCommand::Init {
            dir: given.operand_dir(0),
            template: template(given)?,
        },
        "check" => FlowCommand::Check {
            dir: given.operand_dir(0),
            verbose: given.has("--verbose"),
            format: given.format(),
        },
        "graph" => {
            let language = given.text("--format");
            FlowCommand::Graph(GraphArgs {
                what: given.operand_text(0),
                work_dir: given.work_dir(),
                language: language
                    .and_then(|word| Language::parse(&word))
                    .unwrap_or_default(),
            })
        }
        "stats" => FlowCommand::Stats(StatsArgs::new(given)),
        "tool" => FlowCommand::Tool(ToolArgs {
            name: given.operand_text(0).unwrap_or_default(),
            parameters: given.pairs("--parameter"),
            stdin: given.text("--stdin"),
        }),
        "answer" => FlowCommand::Answer(answer_args(given)),
        "observe" => FlowCommand::Observe(observe_args(given)?),
        "replay" => FlowCommand::Replay(replay_args(given)),
        "artifacts" => FlowCommand::Artifacts(ArtifactsArgs {
            run: given.operand_text(0),
            work_dir: given.work_dir(),
            node: given.text("--node"),
            schema: given.text("--schema"),
            format: match given.has("--json") {
                true => OutputFormat::Json,
                false => OutputFormat::Text,
            },
            verify: given.has("--verify"),
        }),
        "manifest" => FlowCommand::Manifest(ManifestArgs {
            what: given.operand_text(0),
            work_dir: given.work_dir(),
            check: given.path("--check"),
        }),
        "repl" => FlowCommand::Repl(ReplArgs {
            dir: given.operand_dir(0),
            profile: given.text("--profile"),
            work_dir: given.work_dir(),
            run_id: given.text("--run-id"),
            jobs: given.number("--jobs"),
            quiet: given.has("--quiet"),
        }),
        "memory" => FlowCommand::Memory(memory_args(given)?),
        "eval" => FlowCommand::Eval(Box::new(eval::eval_args(given)?)),
        _ => help_of(given.operand_text(0))?,
    })
}

fn template(given: &ParsedCommand) -> Result<&'static FlowTemplate> {
    let Some(name) = given.text("--template") else {
        let names = templates::NAMES.join("|");
        return given
            .has("--yes")
            .then_some(&templates::ALL[0])
            .ok_or_else(|| {
                Error::usage(format!(
                    "init needs -t {names}, or -y for {}",
                    templates::NAMES[0]
                ))
            });
    };
    let found = templates::ALL.iter().find(|template| template.name == name);
    found.ok_or_else(|| unknown_word("init: no such template", &name, &templates::NAMES))
}

fn replay_args(given: &ParsedCommand) -> FlowReplayArgs {
    FlowReplayArgs {
        run: given.operand_text(0).unwrap_or_default(),
        node: given.operand_text(1),
        task: given.text("--task"),
        work_dir: given.work_dir(),
        jobs: given.number("--jobs"),
        format: given.format(),
        adopt: given.has("--adopt"),
        changed_ok: given.has("--changed"),
        quiet: given.has("--quiet"),
    }
}

fn answer_args(given: &ParsedCommand) -> AnswerArgs {
    let mut words = given.operand_texts();
    let text = words.pop();
    AnswerArgs {
        work_dir: given.work_dir(),
        run: given.text("--run-id"),
        task: words.pop(),
        text,
    }
}

fn observe_args(given: &ParsedCommand) -> Result<ObserveArgs> {
    let run = given.first_before_dashes();
    let run = run.map(|run| run.to_string_lossy().into_owned());
    let command = given.operand_texts().split_off(usize::from(run.is_some()));
    if command.is_empty() || given.count_before_dashes() > 1 {
        let message = "observe: give the program behind --: observe RUN -- PROGRAM";
        return Err(Error::usage(message));
    }
    let id = given.text("--id");
    if let Some(id) = id.as_ref().filter(|id| !is_id(id)) {
        return Err(Error::usage(format!(
            "--id: {id:?}: 1 to 64 letters, digits, '_', '.' and '-' make an id"
        )));
    }
    Ok(ObserveArgs {
        run,
        work_dir: given.work_dir(),
        id,
        events: given.texts("--events"),
        command,
    })
}

fn memory_args(given: &ParsedCommand) -> Result<MemoryArgs> {
    let is_add = given.operand_text(0).as_deref() == Some("add");
    let what = match (is_add, given.text("--message"), given.text("--input")) {
        (true, ..) if given.has("--format") => {
            return Err(Error::usage("memory add: --format is not allowed"));
        }
        (true, Some(text), None) => MemoryAction::AddText(text),
        (true, None, Some(file)) => MemoryAction::AddFile(file),
        (true, ..) => return Err(Error::usage("memory add: give either -m TEXT or -i FILE")),
        (false, None, None) => MemoryAction::List(given.format()),
        (false, ..) => return Err(Error::usage("memory list: -m and -i are not allowed")),
    };
    Ok(MemoryArgs {
        store: store(&given.operand_text(1).unwrap_or_default(), is_add)?,
        dir: given.operand_dir(2),
        work_dir: given.work_dir(),
        tags: given.texts("--tag"),
        what,
    })
}

/// The stores that `memory add` or `memory list` can name: what tasks remember is what their nodes
/// brought, and nothing else.
pub(crate) fn stores(is_add: bool) -> &'static [(&'static str, StoreName)] {
    &StoreName::ALL[usize::from(is_add)..]
}

fn store(given: &str, is_add: bool) -> Result<StoreName> {
    let stores = stores(is_add);
    let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
    let found = stores.iter().find(|(name, _)| *name == given);
    let wrong = || unknown_word("memory: no such store", given, &names);
    found.map(|(_, store)| *store).ok_or_else(wrong)
}

fn help_of(topic: Option<String>) -> Result<FlowCommand> {
    let Some(topic) = topic else {
        return Ok(FlowCommand::Help {
            command: None,
            full: true,
        });
    };
    let command = FLOW.command(&topic);
    let command = command.ok_or_else(|| unknown_word("unknown command", &topic, &COMMANDS))?;
    Ok(FlowCommand::Help {
        command: Some(command),
        full: false,
    })
}
