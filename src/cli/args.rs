//! The command line of `delta` as plain data. Nothing is looked up or resolved here.

mod running;
mod waiting;
mod records;

use super::message::{GivenAgent, given_agent};
use super::schemas::{self, Schema};
use super::tables::DELTA;
use super::templates::{self, Template};
use crate::coder::tool;
use crate::error::{Error, Result};
use crate::mcp::stdio::SERVER_COMMAND;
use crate::text::manual::{self, Page};
use crate::text::options::completion;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line, unknown_word};
use crate::text::options::table::CommandTable;
use crate::text::suggestion::nearest;
use crate::unix::doors::Door;
use crate::unix::line_editor;
use crate::view::stats_table::StatsArgs;
use std::ffi::OsString;
use std::path::PathBuf;

pub use super::tables::COMMANDS;
pub(crate) use records::{
    ExportArgs, ExportForm, ListRunsArgs, LogArgs, PruneArgs, ReportArgs, RequestArgs,
    RequestNumber,
};
use records::{export_args, list_runs_args, log_args, prune_args, request_args};
pub(crate) use running::{ChatArgs, Common, ContinueArgs, ForkArgs, RunArgs};
use running::{chat_args, check_verbosity, continue_args, fork_args, run_args, settings};
use waiting::waiting_command;
pub(crate) use waiting::{DueArgs, LaterArgs, TellArgs};

/// A command line of `delta`, parsed.
#[derive(Debug)]
pub(crate) enum DeltaCommand {
    Run(RunArgs),
    Chat(ChatArgs),
    Continue(ContinueArgs),
    /// Serve an editor.
    Acp(GivenAgent),
    Setup(SetupArgs),
    Models(GivenAgent),
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
    Later(LaterArgs),
    Due(DueArgs),
    Tell(TellArgs),
    ListRuns(ListRunsArgs),
    Prune(PruneArgs),
    Log(LogArgs),
    Report(ReportArgs),
    Export(ExportArgs),
    Request(RequestArgs),
    Stats(StatsArgs),
    Schema(&'static Schema),
    ModelReplay {
        run_dir: PathBuf,
        lenient: bool,
    },
    Replay(ReplayArgs),
    Fork(ForkArgs),
    Diff {
        work_dir: PathBuf,
        /// Ids, or the paths of runs' directories; none: the newest.
        runs: [Option<String>; 2],
    },
    ToolExpand {
        file: PathBuf,
    },
    Skills {
        dirs: Vec<PathBuf>,
        /// None: stdout.
        output: Option<PathBuf>,
    },
    Sandbox(SandboxArgs),
    Mcp(McpArgs),
    /// Supervise an MCP server, for delta itself: the words behind the hidden command.
    McpServer(Vec<OsString>),
    /// The words behind `flow`.
    Flow(Vec<OsString>),
    Version,
    Help {
        /// None: all commands.
        command: Option<&'static CommandTable>,
        full: bool,
    },
    Page(&'static Page),
    /// Lines of the manual.
    FoundLines(String),
    ListPages,
    /// A tool of the agent `coder`, and its values.
    CoderTool(Vec<String>),
    /// Let a person edit lines, for another process.
    EditLines,
    /// Ask the system's resolver, for the engine itself.
    ResolveHost(String),
    /// The words behind the program's name, as they are typed.
    Complete(Vec<OsString>),
}

/// `delta setup`.
#[derive(Debug)]
pub(crate) struct SetupArgs {
    /// A URL, or a service's name.
    pub base_url: Option<String>,
    pub model: Option<String>,
    /// The key is on stdin.
    pub key_stdin: bool,
    /// Ask nothing.
    pub yes: bool,
}

/// `delta mcp`.
#[derive(Debug)]
pub(crate) struct McpArgs {
    /// list, import, check or call.
    pub action: String,
    /// What follows it: a server's name, a tool, or a server's argv.
    pub words: Vec<String>,
    pub agent: Option<PathBuf>,
    pub url: Option<String>,
    pub env: Vec<String>,
    pub bearer_env: Option<String>,
    pub json: bool,
    /// Seconds for a call; 0 for no limit.
    pub timeout: Option<u64>,
    /// The server's own names of the tools to import; empty for all.
    pub only: Vec<String>,
    /// A file of another program.
    pub from: Option<PathBuf>,
    /// Ask nothing.
    pub yes: bool,
}

/// `delta replay`.
#[derive(Debug)]
pub(crate) struct ReplayArgs {
    pub work_dir: PathBuf,
    /// An id, or the path of a run's directory; none: the newest.
    pub run: Option<String>,
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

/// `delta sandbox`.
#[derive(Debug, Default)]
pub(crate) struct SandboxArgs {
    pub rw: Vec<PathBuf>,
    pub ro: Vec<PathBuf>,
    /// Kept read-only even below `rw`.
    pub protect: Vec<PathBuf>,
    /// Empty for the command.
    pub hide: Vec<PathBuf>,
    pub no_network: bool,
    /// Unix sockets stay allowed without a network.
    pub allow_unix: bool,
    /// Hosts that can be reached although there is no network.
    pub doors: Vec<Door>,
    /// Those that the environment lists, too.
    pub doors_from_env: bool,
    /// Where connections are recorded; none: in the directory of the execution, inside a run.
    pub log: Option<PathBuf>,
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
        CommandLine::Raw(SERVER_COMMAND, words) => Ok(DeltaCommand::McpServer(words)),
        CommandLine::Raw("flow", words) => Ok(DeltaCommand::Flow(words)),
        CommandLine::Raw(completion::COMMAND, words) => Ok(DeltaCommand::Complete(words)),
        CommandLine::Raw(tool::COMMAND, words) => coder_tool(words),
        CommandLine::Raw(line_editor::COMMAND, _) => Ok(DeltaCommand::EditLines),
        CommandLine::Raw(_, words) => match words.first() {
            Some(host) => Ok(DeltaCommand::ResolveHost(
                host.to_string_lossy().into_owned(),
            )),
            None => Err(Error::usage("resolve-host needs a name")),
        },
    }
}

/// A tool of the agent `coder` and its values.
fn coder_tool(words: Vec<OsString>) -> Result<DeltaCommand> {
    let words = words.into_iter().map(OsString::into_string);
    let words: std::result::Result<_, _> = words.collect();
    let words = words.map_err(|_| Error::usage("the values of a tool are UTF-8"))?;
    Ok(DeltaCommand::CoderTool(words))
}

fn command_of(given: &ParsedCommand) -> Result<DeltaCommand> {
    Ok(match given.command.name {
        "run" => DeltaCommand::Run(run_args(given)?),
        "chat" => DeltaCommand::Chat(chat_args(given)?),
        "continue" => DeltaCommand::Continue(continue_args(given)?),
        "setup" => DeltaCommand::Setup(SetupArgs {
            base_url: given.text("--base-url"),
            model: given.text("--model"),
            key_stdin: given.has("--key-stdin"),
            yes: given.has("--yes"),
        }),
        "models" => DeltaCommand::Models(only_agent(given)?),
        "acp" => DeltaCommand::Acp(only_agent(given)?),
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
        "later" | "due" | "tell" => waiting_command(given)?,
        "list-runs" => DeltaCommand::ListRuns(list_runs_args(given)?),
        "prune" => DeltaCommand::Prune(prune_args(given)?),
        "log" => DeltaCommand::Log(log_args(given)?),
        "export" => DeltaCommand::Export(export_args(given)?),
        "report" => DeltaCommand::Report(ReportArgs {
            work_dir: given.work_dir(),
            run: given.operand_text(0),
            output: given.path("--output"),
        }),
        "request" => DeltaCommand::Request(request_args(given)?),
        "stats" => DeltaCommand::Stats(StatsArgs::new(given)),
        "fork" => DeltaCommand::Fork(fork_args(given)?),
        "replay" => DeltaCommand::Replay(replay_args(given)?),
        "diff" => DeltaCommand::Diff {
            work_dir: given.work_dir(),
            runs: [given.operand_text(0), given.operand_text(1)],
        },
        "schema" => {
            let name = given.operand_text(0).unwrap_or_default();
            let found = schemas::ALL.into_iter().find(|schema| schema.name == name);
            DeltaCommand::Schema(found.unwrap_or(schemas::ALL[0]))
        }
        "tool" => DeltaCommand::ToolExpand {
            file: given.operand_dir(1),
        },
        "skills" => DeltaCommand::Skills {
            dirs: given.operands.iter().map(PathBuf::from).collect(),
            output: given.path("--output"),
        },
        "sandbox" => DeltaCommand::Sandbox(sandbox_args(given)?),
        "mcp" => DeltaCommand::Mcp(mcp_args(given)?),
        "model" => DeltaCommand::ModelReplay {
            run_dir: given.operand_dir(1),
            lenient: given.has("--lenient"),
        },
        _ => page(given)?,
    })
}

/// The agent of a command that has no other operand.
fn only_agent(given: &ParsedCommand) -> Result<GivenAgent> {
    match (given_agent(given)?, given.operand_text(0)) {
        ((_, false), Some(word)) => {
            let name = given.command.name;
            let message = format!("{name}: '{word}' does not name an agent, as @NAME does");
            Err(Error::usage(message))
        }
        ((agent, _), _) => Ok(agent),
    }
}

fn mcp_args(given: &ParsedCommand) -> Result<McpArgs> {
    let mut words = given.operand_texts().into_iter();
    let action = words.next().unwrap_or_default();
    for (option, actions) in [
        ("--url", &["list", "import"][..]),
        ("--env", &["import"]),
        ("--bearer-env", &["list", "import"]),
        ("--json", &["call"]),
        ("--timeout", &["call"]),
        ("--only", &["import"]),
        ("--from", &["import"]),
        ("--yes", &["import"]),
    ] {
        if given.has(option) && !actions.contains(&action.as_str()) {
            let message = format!("mcp {action} takes no {option}; see mcp -h");
            return Err(Error::usage(message));
        }
    }
    if given.has("--from")
        && ["--url", "--env", "--bearer-env"]
            .iter()
            .any(|it| given.has(it))
    {
        let message = "mcp import: --from says where servers are; it goes with --only and -y only";
        return Err(Error::usage(message));
    }
    if given.has("--yes") && !given.has("--from") {
        return Err(Error::usage("mcp import: -y goes with --from"));
    }
    Ok(McpArgs {
        action,
        words: words.collect(),
        agent: given.path("--agent"),
        url: given.text("--url"),
        env: given.texts("--env"),
        bearer_env: given.text("--bearer-env"),
        json: given.has("--json"),
        timeout: given.number("--timeout"),
        only: given.texts("--only"),
        from: given.path("--from"),
        yes: given.has("--yes"),
    })
}

fn sandbox_args(given: &ParsedCommand) -> Result<SandboxArgs> {
    let hide = given.paths("--hide");
    let is_other_home = |path: &&PathBuf| {
        let first = path.components().next();
        first.is_some_and(|first| {
            let name = first.as_os_str().as_encoded_bytes();
            name.starts_with(b"~") && name != b"~"
        })
    };
    if given.has("--log") && !given.has("--allow-host") && !given.has("--allow-hosts-from-env") {
        return Err(Error::usage(
            "sandbox: --log needs --allow-host, which it records the use of",
        ));
    }
    if let Some(path) = hide.iter().find(is_other_home) {
        let path = path.display();
        return Err(Error::usage(format!(
            "--hide {path}: only ~/ becomes a home directory, yours; write the whole path, or ./{path} for a file of \
             this name"
        )));
    }
    Ok(SandboxArgs {
        rw: given.paths("--rw"),
        ro: given.paths("--ro"),
        protect: given.paths("--protect"),
        hide,
        no_network: given.has("--no-network"),
        allow_unix: given.has("--allow-unix"),
        doors: given_doors(given)?,
        doors_from_env: given.has("--allow-hosts-from-env"),
        log: given.path("--log"),
        strict: given.has("--strict"),
        command: given.operands.clone(),
    })
}

/// The doors of `--allow-host`.
pub(super) fn given_doors(given: &ParsedCommand) -> Result<Vec<Door>> {
    let each = given.texts("--allow-host").into_iter();
    let read = each.map(|text| {
        Door::parse(&text).map_err(|why| Error::usage(format!("--allow-host '{text}': {why}")))
    });
    read.collect()
}

fn replay_args(given: &ParsedCommand) -> Result<ReplayArgs> {
    check_verbosity(given)?;
    Ok(ReplayArgs {
        work_dir: given.work_dir(),
        run: given.operand_text(0),
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
    let words: Vec<_> = given
        .operands
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let topic = words.join(" ");
    if words.is_empty() {
        return match given.has("--search") {
            true => Err(Error::usage("help -k needs a word to search for")),
            false => Ok(DeltaCommand::ListPages),
        };
    }
    if let Some(page) = manual::find(&words.join("-")).filter(|_| !given.has("--search")) {
        return Ok(DeltaCommand::Page(page));
    }
    let found = manual::search(&topic);
    if found.is_empty() {
        let names: Vec<String> = manual::PAGES.iter().map(Page::topic).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let known = names.iter().copied().chain(manual::index_words());
        let near = nearest(&topic, known).map(|near| vec![near]);
        let what = "nothing in the manual about";
        return Err(unknown_word(what, &topic, &near.unwrap_or(names)));
    }
    Ok(DeltaCommand::FoundLines(found))
}
