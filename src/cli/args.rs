//! The command line of `delta` as plain data. Nothing is looked up or resolved here.

use super::schemas::{self, Schema};
use super::tables::DELTA;
use super::templates::{self, Template};
use crate::config::pricing::{GivenBudget, read_budget, read_deadline};
use crate::error::{Error, Result};
use crate::record::metadata::Status;
use crate::text::manual::{self, Page};
use crate::text::options::completion;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line, unknown_word};
use crate::text::options::table::CommandTable;
use crate::text::timestamp::Timestamp;
use crate::view::stats_table::StatsArgs;
use std::ffi::OsString;
use std::path::PathBuf;

pub use super::tables::COMMANDS;

/// A command line of `delta`, parsed.
#[derive(Debug)]
pub(crate) enum DeltaCommand {
    Run(RunArgs),
    Continue(ContinueArgs),
    Init {
        dir: PathBuf,
        /// None: ask, or use the first one.
        template: Option<&'static Template>,
        yes: bool,
    },
    Check {
        agent: PathBuf,
        format: OutputFormat,
    },
    ListRuns(ListRunsArgs),
    Log(LogArgs),
    Report(ReportArgs),
    Request(RequestArgs),
    Stats(StatsArgs),
    Schema(&'static Schema),
    Migrate {
        work_dir: PathBuf,
        adopt: bool,
    },
    ModelReplay {
        run_dir: PathBuf,
        lenient: bool,
    },
    Replay(ReplayArgs),
    Fork(ForkArgs),
    Diff {
        work_dir: PathBuf,
        /// Ids, or the paths of runs' directories.
        runs: [String; 2],
    },
    ToolExpand {
        file: PathBuf,
    },
    Sandbox(SandboxArgs),
    /// The words behind `flow`.
    Flow(Vec<OsString>),
    Version,
    Help {
        /// None: all commands.
        command: Option<&'static CommandTable>,
        full: bool,
    },
    Page(&'static Page),
    ListPages,
    /// Ask the system's resolver, for the engine itself.
    ResolveHost(String),
    /// The words behind the program's name, as they are typed.
    Complete(Vec<OsString>),
}

/// Options that `run`, `continue` and `fork` share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub work_dir: Option<PathBuf>,
    pub run_id: Option<String>,
    /// `-` stands for stdin.
    pub message: Option<String>,
    pub max_iterations: Option<u64>,
    pub budget: Option<GivenBudget>,
    pub deadline: Option<Timestamp>,
    pub interactive: bool,
    pub verbose: bool,
    pub quiet: bool,
    pub format: OutputFormat,
}

/// `delta run`.
#[derive(Debug)]
pub(crate) struct RunArgs {
    pub agent: PathBuf,
    /// Begin a new run, whatever was interrupted.
    pub new: bool,
    /// Put a failed run of the same name aside.
    pub retry_failed: bool,
    pub adopt: bool,
    pub yes: bool,
    pub dry: bool,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub common: Common,
}

/// `delta continue`.
#[derive(Debug)]
pub(crate) struct ContinueArgs {
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub adopt: bool,
    /// Skip damage, and ignore a lock that another host may hold.
    pub force: bool,
    pub common: Common,
}

/// `delta list-runs`.
#[derive(Debug, Default)]
pub(crate) struct ListRunsArgs {
    pub work_dir: Option<PathBuf>,
    /// All workspaces of this agent instead.
    pub agent: Option<PathBuf>,
    pub status: Option<Status>,
    pub resumable: bool,
    pub first: bool,
    pub format: OutputFormat,
}

/// `delta log`.
#[derive(Debug)]
pub(crate) struct LogArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub run: Option<String>,
    pub follow: bool,
    /// The journal's lines unchanged.
    pub json: bool,
    /// Only so many of the last events.
    pub last: Option<usize>,
}

/// `delta report`.
#[derive(Debug)]
pub(crate) struct ReportArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub run: Option<String>,
}

/// `delta request`.
#[derive(Debug)]
pub(crate) struct RequestArgs {
    pub work_dir: PathBuf,
    pub run: String,
    /// From 1; none: the last.
    pub number: Option<usize>,
    /// The one that continuing would send.
    pub next: bool,
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub adopt: bool,
    /// Compare with this one.
    pub diff: Option<usize>,
}

/// `delta replay`.
#[derive(Debug)]
pub(crate) struct ReplayArgs {
    pub work_dir: PathBuf,
    /// An id, or the path of a run's directory.
    pub run: String,
    /// None: a temporary directory.
    pub to: Option<PathBuf>,
    /// The first contents of the workspace.
    pub from: Option<PathBuf>,
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub adopt: bool,
    /// The results of tools, hooks and generators are taken from the record.
    pub executes_nothing: bool,
    pub quiet: bool,
    pub verbose: bool,
}

/// `delta fork`.
#[derive(Debug)]
pub(crate) struct ForkArgs {
    pub run: String,
    /// How many of its iterations the new run begins with.
    pub at: u64,
    /// A new workspace for the new run; none: the same.
    pub to: Option<PathBuf>,
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    pub adopt: bool,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub common: Common,
}

/// `delta sandbox`.
#[derive(Debug, Default)]
pub(crate) struct SandboxArgs {
    pub rw: Vec<PathBuf>,
    pub ro: Vec<PathBuf>,
    /// Kept read-only even below `rw`.
    pub protect: Vec<PathBuf>,
    pub no_network: bool,
    /// Fail where the kernel cannot enforce it all.
    pub strict: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse_args(words: impl IntoIterator<Item = OsString>) -> Result<DeltaCommand> {
    match parse_line(&DELTA, words)? {
        CommandLine::Version => Ok(DeltaCommand::Version),
        CommandLine::Help { command, full } => Ok(DeltaCommand::Help { command, full }),
        CommandLine::Command(given) => command_of(&given),
        CommandLine::Raw("flow", words) => Ok(DeltaCommand::Flow(words)),
        CommandLine::Raw(completion::COMMAND, words) => Ok(DeltaCommand::Complete(words)),
        CommandLine::Raw(_, words) => match words.first() {
            Some(host) => Ok(DeltaCommand::ResolveHost(
                host.to_string_lossy().into_owned(),
            )),
            None => Err(Error::usage("resolve-host needs a name")),
        },
    }
}

fn command_of(given: &ParsedCommand) -> Result<DeltaCommand> {
    Ok(match given.command.name {
        "run" => DeltaCommand::Run(run_args(given)?),
        "continue" => DeltaCommand::Continue(ContinueArgs {
            agent: given.path("--agent"),
            set: settings(given)?,
            adopt: given.has("--adopt"),
            force: given.has("--force"),
            common: common(given)?,
        }),
        "init" => {
            let template = given.text("--template");
            let all = templates::ALL.into_iter();
            DeltaCommand::Init {
                dir: given.operand_dir(0),
                template: template.and_then(|name| all.into_iter().find(|it| it.name == name)),
                yes: given.has("--yes"),
            }
        }
        "check" => DeltaCommand::Check {
            agent: given.operand_dir(0),
            format: given.format(),
        },
        "list-runs" => DeltaCommand::ListRuns(list_runs_args(given)?),
        "log" => DeltaCommand::Log(LogArgs {
            work_dir: given.work_dir(),
            run: given.operand_text(0),
            follow: given.has("--follow"),
            json: given.has("--json"),
            last: given.number("--lines"),
        }),
        "report" => DeltaCommand::Report(ReportArgs {
            work_dir: given.work_dir(),
            run: given.operand_text(0),
        }),
        "request" => DeltaCommand::Request(request_args(given)?),
        "stats" => DeltaCommand::Stats(StatsArgs::new(given)),
        "fork" => DeltaCommand::Fork(fork_args(given)?),
        "replay" => DeltaCommand::Replay(replay_args(given)?),
        "diff" => {
            let run = |at| given.operand_text(at).unwrap_or_default();
            DeltaCommand::Diff {
                work_dir: given.work_dir(),
                runs: [run(0), run(1)],
            }
        }
        "schema" => {
            let name = given.operand_text(0).unwrap_or_default();
            let found = schemas::ALL.into_iter().find(|schema| schema.name == name);
            DeltaCommand::Schema(found.unwrap_or(schemas::ALL[0]))
        }
        "tool" => DeltaCommand::ToolExpand {
            file: given.operand_dir(1),
        },
        "sandbox" => DeltaCommand::Sandbox(sandbox_args(given)),
        "migrate" => DeltaCommand::Migrate {
            work_dir: given.work_dir(),
            adopt: given.has("--adopt"),
        },
        "model" => DeltaCommand::ModelReplay {
            run_dir: given.operand_dir(1),
            lenient: given.has("--lenient"),
        },
        _ => page(given)?,
    })
}

fn fork_args(given: &ParsedCommand) -> Result<ForkArgs> {
    Ok(ForkArgs {
        run: given.operand_text(0).unwrap_or_default(),
        at: given.number("--at").unwrap_or_default(),
        to: given.path("--to"),
        agent: given.path("--agent"),
        adopt: given.has("--adopt"),
        set: settings(given)?,
        common: common(given)?,
    })
}

fn sandbox_args(given: &ParsedCommand) -> SandboxArgs {
    SandboxArgs {
        rw: given.paths("--rw"),
        ro: given.paths("--ro"),
        protect: given.paths("--protect"),
        no_network: given.has("--no-network"),
        strict: given.has("--strict"),
        command: given.operands.clone(),
    }
}

fn run_args(given: &ParsedCommand) -> Result<RunArgs> {
    let is_named = given.has("--run-id");
    if given.has("--new") && is_named {
        return Err(Error::usage(
            "--new and --run-id contradict each other: a name is used once",
        ));
    }
    if given.has("--retry-failed") && !is_named {
        return Err(Error::usage(
            "--retry-failed needs --run-id: without a name, a failed run is never in the way",
        ));
    }
    Ok(RunArgs {
        agent: given.path("--agent").unwrap_or_else(|| ".".into()),
        new: given.has("--new"),
        retry_failed: given.has("--retry-failed"),
        adopt: given.has("--adopt"),
        yes: given.has("--yes"),
        dry: given.has("--dry-run"),
        set: settings(given)?,
        common: common(given)?,
    })
}

fn common(given: &ParsedCommand) -> Result<Common> {
    check_verbosity(given)?;
    let message = given.text("--message");
    if message.as_deref().is_some_and(str::is_empty) {
        return Err(Error::usage("the message given with -m is empty"));
    }
    Ok(Common {
        work_dir: given.path("--work-dir"),
        run_id: given.text("--run-id"),
        message,
        max_iterations: given.number("--max-iterations"),
        budget: read_budget(given.text("--budget"))?,
        deadline: read_deadline(given.text("--deadline"))?,
        interactive: given.has("--interactive"),
        verbose: given.has("--verbose"),
        quiet: given.has("--quiet"),
        format: given.format(),
    })
}

fn check_verbosity(given: &ParsedCommand) -> Result<()> {
    if given.has("--quiet") && given.has("--verbose") {
        return Err(Error::usage("-q and -v contradict each other"));
    }
    Ok(())
}

/// The values of `--set`, whose keys are dotted.
fn settings(given: &ParsedCommand) -> Result<Vec<(String, String)>> {
    let pairs = given.pairs("--set");
    match pairs
        .iter()
        .find(|(key, _)| key.split('.').any(str::is_empty))
    {
        None => Ok(pairs),
        Some((key, _)) => Err(Error::usage(format!(
            "--set: '{key}' is not a key like llm.temperature"
        ))),
    }
}

fn list_runs_args(given: &ParsedCommand) -> Result<ListRunsArgs> {
    if given.has("--work-dir") && given.has("--agent") {
        return Err(Error::usage(
            "-w and --agent contradict each other: one workspace, or all of an agent",
        ));
    }
    let status = given.text("--status");
    Ok(ListRunsArgs {
        work_dir: given.path("--work-dir"),
        agent: given.path("--agent"),
        status: status.and_then(|name| Status::parse(&name)),
        resumable: given.has("--resumable"),
        first: given.has("--first"),
        format: given.format(),
    })
}

fn request_args(given: &ParsedCommand) -> Result<RequestArgs> {
    let number = given.operand_text(1);
    if given.has("--next") && number.is_some() {
        return Err(Error::usage(
            "--next is the request after the last one; it has no number",
        ));
    }
    Ok(RequestArgs {
        work_dir: given.work_dir(),
        run: given.operand_text(0).unwrap_or_default(),
        number: number.and_then(|number| number.parse().ok()),
        next: given.has("--next"),
        agent: given.path("--agent"),
        set: settings(given)?,
        adopt: given.has("--adopt"),
        diff: given.number("--diff"),
    })
}

fn replay_args(given: &ParsedCommand) -> Result<ReplayArgs> {
    check_verbosity(given)?;
    Ok(ReplayArgs {
        work_dir: given.work_dir(),
        run: given.operand_text(0).unwrap_or_default(),
        to: given.path("--to"),
        from: given.path("--from"),
        agent: given.path("--agent"),
        set: settings(given)?,
        adopt: given.has("--adopt"),
        executes_nothing: given.text("--tools").as_deref() == Some("recorded"),
        quiet: given.has("--quiet"),
        verbose: given.has("--verbose"),
    })
}

fn page(given: &ParsedCommand) -> Result<DeltaCommand> {
    let Some(topic) = given.operand_text(0) else {
        return Ok(DeltaCommand::ListPages);
    };
    let names: Vec<&str> = manual::PAGES.iter().map(|page| page.name).collect();
    let page = manual::find(&topic).ok_or_else(|| unknown_word("no page about", &topic, &names))?;
    Ok(DeltaCommand::Page(page))
}
