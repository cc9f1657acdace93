//! The command line of `delta` as plain data. Nothing is looked up or resolved here.

use super::message::{GivenAgent, given_agent, message_parts};
use super::schemas::{self, Schema};
use super::tables::DELTA;
use super::templates::{self, Template};
use crate::coder::tool;
use crate::config::pricing::{GivenBudget, read_budget, read_deadline};
use crate::error::{Error, Result};
use crate::mcp::stdio::SERVER_COMMAND;
use crate::record::metadata::Status;
use crate::runs::prune::PruneRules;
use crate::runs::task::GivenPart;
use crate::text::json;
use crate::text::manual::{self, Page};
use crate::text::options::completion;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line, unknown_word};
use crate::text::options::table::CommandTable;
use crate::text::timestamp::{Timestamp, parse_span};
use crate::unix::files::absolute;
use crate::view::stats_table::StatsArgs;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;

pub use super::tables::COMMANDS;

/// A command line of `delta`, parsed.
#[derive(Debug)]
pub(crate) enum DeltaCommand {
    Run(RunArgs),
    Chat(ChatArgs),
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
    Prune(PruneArgs),
    Log(LogArgs),
    Report(ReportArgs),
    Export(ExportArgs),
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
    ListPages,
    /// A tool of the agent `coder`, and its values.
    CoderTool(Vec<String>),
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
    pub message: Vec<GivenPart>,
    pub max_iterations: Option<u64>,
    pub budget: Option<GivenBudget>,
    pub deadline: Option<Timestamp>,
    pub interactive: bool,
    pub verbose: bool,
    pub quiet: bool,
    pub format: OutputFormat,
}

/// `delta chat`.
#[derive(Debug)]
pub(crate) struct ChatArgs {
    pub agent: GivenAgent,
    pub adopt: bool,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub common: Common,
}

/// `delta run`.
#[derive(Debug)]
pub(crate) struct RunArgs {
    pub agent: GivenAgent,
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
    /// The question that the message answers, and nothing else.
    pub question: Option<String>,
    pub common: Common,
}

/// `delta list-runs`.
#[derive(Debug, Default)]
pub(crate) struct ListRunsArgs {
    pub work_dir: Option<PathBuf>,
    /// All workspaces of this agent instead; with `below`, only the runs of this agent.
    pub agent: Option<PathBuf>,
    /// All runs below these directories instead.
    pub below: Vec<PathBuf>,
    pub status: Option<Status>,
    /// Any of these; empty: whatever the reason.
    pub stop_reasons: Vec<String>,
    /// Only runs that have been started since.
    pub since: Option<Timestamp>,
    pub resumable: bool,
    pub retryable: bool,
    pub needs_attention: bool,
    pub first: bool,
    pub format: OutputFormat,
}

/// `delta prune`.
#[derive(Debug)]
pub(crate) struct PruneArgs {
    pub below: Vec<PathBuf>,
    pub rules: PruneRules,
    pub dry_run: bool,
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
    /// The actions with an effect instead of the events.
    pub effects: bool,
}

/// `delta export`.
#[derive(Debug)]
pub(crate) struct ExportArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub runs: Vec<String>,
    pub form: ExportForm,
    /// What was said, too, where the form can do without.
    pub has_content: bool,
}

/// The form in which runs are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportForm {
    /// A trajectory of the Agent Trajectory Interchange Format.
    Atif,
    /// Requests of OpenTelemetry's protocol, in JSON.
    Otlp,
    /// The conversation of each run.
    Chat,
}

/// `delta report`.
#[derive(Debug)]
pub(crate) struct ReportArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub run: Option<String>,
    /// The directory for the page and those that it links to; none: stdout.
    pub output: Option<PathBuf>,
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
        CommandLine::Raw(SERVER_COMMAND, words) => Ok(DeltaCommand::McpServer(words)),
        CommandLine::Raw("flow", words) => Ok(DeltaCommand::Flow(words)),
        CommandLine::Raw(completion::COMMAND, words) => Ok(DeltaCommand::Complete(words)),
        CommandLine::Raw(tool::COMMAND, words) => coder_tool(words),
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
        "skills" => DeltaCommand::Skills {
            dirs: given.operands.iter().map(PathBuf::from).collect(),
            output: given.path("--output"),
        },
        "sandbox" => DeltaCommand::Sandbox(sandbox_args(given)),
        "migrate" => DeltaCommand::Migrate {
            work_dir: given.work_dir(),
            adopt: given.has("--adopt"),
        },
        "mcp" => DeltaCommand::Mcp(mcp_args(given)?),
        "model" => DeltaCommand::ModelReplay {
            run_dir: given.operand_dir(1),
            lenient: given.has("--lenient"),
        },
        _ => page(given)?,
    })
}

fn continue_args(given: &ParsedCommand) -> Result<ContinueArgs> {
    let (question, common) = (given.text("--question"), common(given)?);
    if question.is_some() && common.message.is_empty() {
        return Err(Error::usage("--question needs its answer: -m ANSWER"));
    }
    Ok(ContinueArgs {
        agent: given.path("--agent"),
        set: settings(given)?,
        adopt: given.has("--adopt"),
        force: given.has("--force"),
        question,
        common,
    })
}

fn log_args(given: &ParsedCommand) -> Result<LogArgs> {
    let log = LogArgs {
        work_dir: given.work_dir(),
        run: given.operand_text(0),
        follow: given.has("--follow"),
        json: given.has("--json"),
        last: given.number("--lines"),
        effects: given.has("--effects"),
    };
    if log.effects && (log.follow || log.last.is_some()) {
        return Err(Error::usage(
            "--effects lists all actions at once: leave out -f and -n",
        ));
    }
    Ok(log)
}

fn mcp_args(given: &ParsedCommand) -> Result<McpArgs> {
    let mut words = given.operand_texts().into_iter();
    let action = words.next().unwrap_or_default();
    for (option, actions) in [
        ("--url", &["list", "import"][..]),
        ("--env", &["import"]),
        ("--bearer-env", &["list", "import"]),
        ("--json", &["call"]),
    ] {
        if given.has(option) && !actions.contains(&action.as_str()) {
            let message = format!("mcp {action} takes no {option}; see mcp -h");
            return Err(Error::usage(message));
        }
    }
    Ok(McpArgs {
        action,
        words: words.collect(),
        agent: given.path("--agent"),
        url: given.text("--url"),
        env: given.texts("--env"),
        bearer_env: given.text("--bearer-env"),
        json: given.has("--json"),
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
    let (agent, has_name) = given_agent(given)?;
    let has_task = given.operands.len() > usize::from(has_name);
    let mut common = common(given)?;
    common.message = message_parts(given, usize::from(has_name))?;
    Ok(RunArgs {
        agent: match agent {
            GivenAgent::Usual if !has_task => GivenAgent::Here,
            agent => agent,
        },
        new: given.has("--new"),
        retry_failed: given.has("--retry-failed"),
        adopt: given.has("--adopt"),
        yes: given.has("--yes"),
        dry: given.has("--dry-run"),
        set: settings(given)?,
        common,
    })
}

fn chat_args(given: &ParsedCommand) -> Result<ChatArgs> {
    let (agent, has_name) = given_agent(given)?;
    if let (Some(word), false) = (given.operand_text(0), has_name) {
        return Err(Error::usage(format!(
            "chat: '{}' does not name an agent, as @NAME and -a DIR do; the first message is typed at the prompt",
            word.escape_debug()
        )));
    }
    check_verbosity(given)?;
    Ok(ChatArgs {
        agent,
        adopt: given.has("--adopt"),
        set: plain_settings(given)?,
        common: Common {
            work_dir: given.path("--work-dir"),
            run_id: given.text("--run-id"),
            max_iterations: given.number("--max-iterations"),
            budget: read_budget(given.text("--budget"))?,
            interactive: true,
            verbose: given.has("--verbose"),
            quiet: given.has("--quiet"),
            ..Common::default()
        },
    })
}

fn common(given: &ParsedCommand) -> Result<Common> {
    check_verbosity(given)?;
    Ok(Common {
        work_dir: given.path("--work-dir"),
        run_id: given.text("--run-id"),
        message: match given.command.name {
            "run" => Vec::new(),
            // Operands are no text there.
            _ => message_parts(given, given.operands.len())?,
        },
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

/// The values of `--set`, and of `-M`.
fn plain_settings(given: &ParsedCommand) -> Result<Vec<(String, String)>> {
    let mut pairs = given.pairs("--set");
    if let Some(model) = given.text("--model") {
        if model.trim().is_empty() {
            return Err(Error::usage("-M: the name is empty"));
        }
        pairs.push(("llm.model".to_owned(), json::text(&model)));
    }
    let is_wrong = |(key, _): &&(String, String)| key.split('.').any(str::is_empty);
    match pairs.iter().find(is_wrong) {
        None => Ok(pairs),
        Some((key, _)) => Err(Error::usage(format!(
            "--set: '{key}' is not a key like llm.temperature"
        ))),
    }
}

/// The same, and the options that stand for a key.
fn settings(given: &ParsedCommand) -> Result<Vec<(String, String)>> {
    let mut pairs = plain_settings(given)?;
    if let Some(schema) = given.path("--output-schema") {
        let path = absolute(&schema)?;
        let path = path.to_str().ok_or_else(|| {
            let path = path.display();
            Error::usage(format!("--output-schema: {path} is not UTF-8"))
        })?;
        pairs.push(("output_schema".to_owned(), json::text(path)));
    }
    let accept = given.texts("--accept");
    if accept.iter().any(|command| command.trim().is_empty()) {
        return Err(Error::usage("--accept: the command is empty"));
    }
    if !accept.is_empty() {
        let commands = accept
            .iter()
            .map(|text| json!({"command": ["sh", "-c", text]}));
        let commands: Value = commands.collect();
        pairs.push(("accept".to_owned(), json::text(&commands)));
    }
    Ok(pairs)
}

fn list_runs_args(given: &ParsedCommand) -> Result<ListRunsArgs> {
    let below = below(given)?;
    if given.has("--work-dir") && !below.is_empty() {
        return Err(Error::usage(
            "-w and -r contradict each other: one workspace, or all below directories",
        ));
    }
    if given.has("--work-dir") && given.has("--agent") {
        return Err(Error::usage(
            "-w and --agent contradict each other: one workspace, or all of an agent",
        ));
    }
    let status = given.text("--status");
    let now = Timestamp::now();
    let since = given.text("--since").map(|text| {
        let ago = parse_span(&text).map(|span| now.minus(span));
        ago.or_else(|| Timestamp::parse_with_offset(&text))
            .ok_or_else(|| {
                Error::usage(format!(
                    "--since: '{text}' is not a time such as 2026-01-02T03:04:05Z or 2h"
                ))
            })
    });
    Ok(ListRunsArgs {
        work_dir: given.path("--work-dir"),
        agent: given.path("--agent"),
        below,
        status: status.and_then(|name| Status::parse(&name)),
        stop_reasons: given.texts("--stop-reason"),
        since: since.transpose()?,
        resumable: given.has("--resumable"),
        retryable: given.has("--retryable"),
        needs_attention: given.has("--needs-attention"),
        first: given.has("--first"),
        format: given.format(),
    })
}

/// The directories of `-r`, of which a shell may make several words.
fn below(given: &ParsedCommand) -> Result<Vec<PathBuf>> {
    let mut dirs = given.paths("--recursive");
    if let (Some(word), true) = (given.operand_text(0), dirs.is_empty()) {
        let command = given.command.name;
        return Err(Error::usage(format!(
            "{command}: unexpected argument '{word}'; -r {word} takes all runs below it"
        )));
    }
    dirs.extend(given.operand_texts().into_iter().map(PathBuf::from));
    Ok(dirs)
}

fn export_args(given: &ParsedCommand) -> Result<ExportArgs> {
    let form = match given.text("--format").as_deref() {
        Some("atif") => ExportForm::Atif,
        Some("otlp") => ExportForm::Otlp,
        _ => ExportForm::Chat,
    };
    let has_content = given.has("--content");
    if has_content && form != ExportForm::Otlp {
        return Err(Error::usage(
            "--content is for --format otlp; the other formats always have the content",
        ));
    }
    Ok(ExportArgs {
        work_dir: given.work_dir(),
        runs: given.operand_texts(),
        form,
        has_content,
    })
}

fn prune_args(given: &ParsedCommand) -> Result<PruneArgs> {
    let mut below = below(given)?;
    if below.is_empty() {
        below.push(".".into());
    }
    let age = given.text("--older-than").unwrap_or_default();
    let age = parse_span(&age).ok_or_else(|| {
        Error::usage(format!(
            "--older-than: '{age}' is not a span of time such as 30d or 12h"
        ))
    })?;
    let statuses = given.texts("--status");
    Ok(PruneArgs {
        below,
        rules: PruneRules {
            before: Timestamp::now().minus(age),
            statuses: statuses.iter().filter_map(|it| Status::parse(it)).collect(),
            keep_journal: given.has("--keep-journal"),
        },
        dry_run: given.has("--dry-run"),
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
    let names: Vec<String> = manual::PAGES.iter().map(Page::topic).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let page = manual::find(&topic).ok_or_else(|| unknown_word("no page about", &topic, &names))?;
    Ok(DeltaCommand::Page(page))
}
