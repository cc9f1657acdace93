//! The command lines that look at the records of runs: `list-runs` and `log`.

use crate::error::{Error, Result};
use crate::record::metadata::Status;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::{Timestamp, parse_span};
use std::path::PathBuf;

/// `delta list-runs`.
#[derive(Debug, Default)]
pub(crate) struct ListRunsArgs {
    pub work_dir: Option<PathBuf>,
    /// All workspaces of this agent instead; with `below`, only the runs of this agent.
    pub agent: Option<PathBuf>,
    /// All runs below these directories instead.
    pub below: Vec<PathBuf>,
    pub status: Option<Status>,
    /// Any of these; empty: any reason.
    pub stop_reasons: Vec<String>,
    /// Only runs that have been started since.
    pub since: Option<Timestamp>,
    pub resumable: bool,
    pub retryable: bool,
    pub needs_attention: bool,
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
    /// The connections of tools, too.
    pub verbose: bool,
    /// Only this many of the last events.
    pub last: Option<usize>,
    /// The actions with an effect instead of the events.
    pub effects: bool,
}

pub(crate) fn list_runs_args(given: &ParsedCommand) -> Result<ListRunsArgs> {
    let below = below(given)?;
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
pub(crate) fn below(given: &ParsedCommand) -> Result<Vec<PathBuf>> {
    let mut dirs = given.paths("--recursive");
    if !dirs.is_empty() && given.has("--work-dir") {
        return Err(Error::usage(
            "-w and -r contradict each other: one workspace, or all below directories",
        ));
    }
    if let (Some(word), true) = (given.operand_text(0), dirs.is_empty()) {
        let command = given.command.name;
        return Err(Error::usage(format!(
            "{command}: unexpected argument '{word}'; -r {word} takes all runs below it"
        )));
    }
    dirs.extend(given.operand_texts().into_iter().map(PathBuf::from));
    Ok(dirs)
}

pub(crate) fn log_args(given: &ParsedCommand) -> Result<LogArgs> {
    let log = LogArgs {
        work_dir: given.work_dir(),
        run: given.operand_text(0),
        follow: given.has("--follow"),
        json: given.has("--json"),
        verbose: given.has("--verbose"),
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
