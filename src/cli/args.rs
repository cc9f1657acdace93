//! The command line of `delta` as plain data. Nothing is looked up or resolved here.

mod running;
mod records;

use super::message::{GivenAgent, given_agent};
use crate::error::{Error, Result};
use crate::text::options::parse::ParsedCommand;
use crate::unix::doors::Door;
use std::ffi::OsString;
use std::path::PathBuf;

pub use super::tables::COMMANDS;
pub(crate) use records::{ListRunsArgs, LogArgs, below, list_runs_args, log_args};
pub(crate) use running::{ChatArgs, ContinueArgs, ForkArgs};
pub(crate) use running::{Common, RunArgs, chat_args, continue_args, fork_args, run_args};
pub(crate) use running::{check_verbosity, settings};

/// `delta mcp`.
#[derive(Debug)]
pub(crate) struct McpArgs {
    /// list, import, check or call.
    pub action: String,
    /// Words after it: a server's name, a tool, or a server's argv.
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
    /// Open the hosts that the environment lists, too.
    pub doors_from_env: bool,
    /// File in which connections are recorded; none: one in the directory of the execution, inside a run.
    pub log: Option<PathBuf>,
    /// Fail where the kernel cannot enforce it all.
    pub strict: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
}

/// The agent of a command that has no other operand.
pub(crate) fn only_agent(given: &ParsedCommand) -> Result<GivenAgent> {
    match (given_agent(given)?, given.operand_text(0)) {
        ((_, false), Some(word)) => {
            let name = given.command.name;
            let message = format!("{name}: '{word}' does not name an agent, as @NAME does");
            Err(Error::usage(message))
        }
        ((agent, _), _) => Ok(agent),
    }
}

pub(crate) fn mcp_args(given: &ParsedCommand) -> Result<McpArgs> {
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

pub(crate) fn sandbox_args(given: &ParsedCommand) -> Result<SandboxArgs> {
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
