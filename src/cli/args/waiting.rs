//! The command lines of `later`, `due` and `tell`.

use super::DeltaCommand;
use crate::config::pricing::parse_deadline;
use crate::error::{Error, Result};
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::{Timestamp, parse_span};
use std::path::PathBuf;

/// `delta later`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LaterArgs {
    /// Wait until a time.
    Until(Timestamp),
    /// Look whether it has come.
    Check,
}

/// `delta due`.
#[derive(Debug)]
pub(crate) struct DueArgs {
    /// List all that is registered, whether it is due or not.
    pub all: bool,
    /// Start what is due.
    pub run: bool,
    /// The most that run at once.
    pub jobs: usize,
    pub format: OutputFormat,
}

/// `delta tell`.
#[derive(Debug)]
pub(crate) struct TellArgs {
    pub work_dir: PathBuf,
    /// None: the newest that is live, else the newest.
    pub run_id: Option<String>,
    pub text: String,
}

pub(super) fn waiting_command(given: &ParsedCommand) -> Result<DeltaCommand> {
    Ok(match given.command.name {
        "later" => DeltaCommand::Later(later_args(given)?),
        "due" => DeltaCommand::Due(due_args(given)?),
        _ => DeltaCommand::Tell(TellArgs {
            work_dir: given.work_dir(),
            run_id: given.text("--run-id"),
            text: given.operand_texts().join(" "),
        }),
    })
}

fn later_args(given: &ParsedCommand) -> Result<LaterArgs> {
    let now = Timestamp::now();
    let until = match (
        given.text("--for"),
        given.text("--at"),
        given.has("--check"),
    ) {
        (Some(span), None, false) => parse_span(&span)
            .map(|time| now.plus(time))
            .ok_or_else(|| format!("--for: '{span}' is not a time such as 90m, 2h or 3d")),
        (None, Some(time), false) => {
            parse_deadline(&time, now).map_err(|why| format!("--at: {why}"))
        }
        (None, None, true) => return Ok(LaterArgs::Check),
        _ => Err("later needs one of --for, --at and --check".to_owned()),
    };
    until.map(LaterArgs::Until).map_err(Error::usage)
}

fn due_args(given: &ParsedCommand) -> Result<DueArgs> {
    let (all, run) = (given.has("--all"), given.has("--run"));
    if all && run {
        let message = "--all and --run contradict each other: what is not due is not started";
        return Err(Error::usage(message));
    }
    if given.has("--format") && run {
        let message = "--format and --run contradict each other: runs print their results";
        return Err(Error::usage(message));
    }
    if given.has("--jobs") && !run {
        return Err(Error::usage("-j needs --run"));
    }
    Ok(DueArgs {
        all,
        run,
        jobs: given.number("--jobs").map_or(1, |jobs: u64| jobs as usize),
        format: given.format(),
    })
}
