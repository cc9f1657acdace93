//! The options of the commands that look at runs and change nothing.

use super::{Arg, Command, Format, format_value, help, next, path, unexpected, usage, wrong};
use crate::error::{Error, Result};
use crate::record::metadata::Status;
use crate::text::suggestion::nearest;
use lexopt::{Parser, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

/// `delta list-runs`.
#[derive(Debug, Default)]
pub(crate) struct ListRuns {
    /// The workspace; none: the current directory.
    pub work_dir: Option<PathBuf>,
    /// All workspaces of this agent instead.
    pub agent: Option<PathBuf>,
    /// Only runs with this status.
    pub status: Option<Status>,
    /// Only runs that the same command would resume.
    pub resumable: bool,
    /// Only the newest of them.
    pub first: bool,
    /// How the list is printed.
    pub format: Format,
}

/// `delta log`.
#[derive(Debug)]
pub(crate) struct Log {
    /// The workspace.
    pub work_dir: PathBuf,
    /// The run; none: the newest.
    pub run: Option<String>,
    /// Go on until the run ends.
    pub follow: bool,
    /// The lines of the journal as they are.
    pub json: bool,
    /// Only so many of the last events.
    pub last: Option<usize>,
}

/// `delta report`.
#[derive(Debug)]
pub(crate) struct Report {
    /// The workspace.
    pub work_dir: PathBuf,
    /// The run; none: the newest.
    pub run: Option<String>,
}

/// `delta request`.
#[derive(Debug)]
pub(crate) struct Request {
    /// The workspace.
    pub work_dir: PathBuf,
    /// The run.
    pub run: String,
    /// Which request, from 1; none: the last.
    pub number: Option<usize>,
    /// The one that continuing would send.
    pub next: bool,
    /// Compare with this one.
    pub diff: Option<usize>,
}

/// `delta stats`.
#[derive(Debug)]
pub(crate) struct Stats {
    /// The workspace.
    pub work_dir: PathBuf,
    /// The runs; none: the newest.
    pub runs: Vec<String>,
    /// How they are printed.
    pub format: Table,
}

/// How a table is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Table {
    /// For people.
    #[default]
    Text,
    /// An array of objects.
    Json,
    /// RFC 4180, with names in the first line.
    Csv,
}

pub(super) fn list_runs(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 7] = [
        "work-dir",
        "agent",
        "status",
        "resumable",
        "first",
        "format",
        "help",
    ];
    let mut options = ListRuns::default();
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => options.work_dir = Some(path(parser)?),
            ref arg if arg.is(Some('a'), "agent") => options.agent = Some(path(parser)?),
            ref arg if arg.is(None, "status") => options.status = Some(status(parser)?),
            ref arg if arg.is(None, "resumable") => options.resumable = true,
            ref arg if arg.is(None, "first") => options.first = true,
            ref arg if arg.is(None, "format") => options.format = format_value(parser)?,
            Arg::Short('h') => return Ok(help(Some("list-runs"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("list-runs"), true)),
            other => return Err(unexpected(&other, &OPTIONS)),
        }
    }
    if options.work_dir.is_some() && options.agent.is_some() {
        return Err(Error::usage(
            "-w and --agent contradict each other: one workspace, or all of an agent",
        ));
    }
    Ok(Command::ListRuns(options))
}

/// A status in any case, with `-` for `_`.
fn status(parser: &mut Parser) -> Result<Status> {
    let value = parser.value().map_err(|e| wrong(&e))?;
    let given = value.to_string_lossy().into_owned();
    let name = given.to_uppercase().replace('-', "_");
    Status::parse(&name).ok_or_else(|| {
        let names = Status::ALL.map(Status::name);
        let hint = match nearest(&given, names) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", names.join(", ")),
        };
        Error::usage(format!("--status: '{given}' is no status; {hint}"))
    })
}

pub(super) fn log(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 5] = ["work-dir", "follow", "json", "lines", "help"];
    let mut options = Log {
        work_dir: PathBuf::from("."),
        run: None,
        follow: false,
        json: false,
        last: None,
    };
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => options.work_dir = path(parser)?,
            ref arg if arg.is(Some('f'), "follow") => options.follow = true,
            ref arg if arg.is(None, "json") => options.json = true,
            ref arg if arg.is(Some('n'), "lines") => {
                let value = parser.value().map_err(|e| wrong(&e))?;
                options.last = Some(number(value, "a number of events", 0)?);
            }
            Arg::Short('h') => return Ok(help(Some("log"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("log"), true)),
            Arg::Value(value) if options.run.is_none() => options.run = Some(word(value)?),
            other => return Err(unexpected(&other, &OPTIONS)),
        }
    }
    Ok(Command::Log(options))
}

pub(super) fn report(parser: &mut Parser) -> Result<Command> {
    let mut options = Report {
        work_dir: PathBuf::from("."),
        run: None,
    };
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => options.work_dir = path(parser)?,
            Arg::Short('h') => return Ok(help(Some("report"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("report"), true)),
            Arg::Value(value) if options.run.is_none() => options.run = Some(word(value)?),
            other => return Err(unexpected(&other, &["work-dir", "help"])),
        }
    }
    Ok(Command::Report(options))
}

pub(super) fn request(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 4] = ["work-dir", "next", "diff", "help"];
    const NUMBER: &str = "the number of a request; they count from 1";
    let (mut work_dir, mut run, mut which) = (PathBuf::from("."), None, None);
    let (mut following, mut diff) = (false, None);
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => work_dir = path(parser)?,
            ref arg if arg.is(None, "next") => following = true,
            ref arg if arg.is(None, "diff") => {
                let value = parser.value().map_err(|e| wrong(&e))?;
                diff = Some(number(value, NUMBER, 1)?);
            }
            Arg::Short('h') => return Ok(help(Some("request"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("request"), true)),
            Arg::Value(value) if run.is_none() => run = Some(word(value)?),
            Arg::Value(value) if which.is_none() => which = Some(number(value, NUMBER, 1)?),
            other => return Err(unexpected(&other, &OPTIONS)),
        }
    }
    if following && which.is_some() {
        return Err(Error::usage(
            "--next is the request after the last one; it has no number",
        ));
    }
    let run =
        run.ok_or_else(|| Error::usage("request needs a run: delta request [-w DIR] RUN [N]"))?;
    Ok(Command::Request(Request {
        work_dir,
        run,
        number: which,
        next: following,
        diff,
    }))
}

pub(crate) fn stats(parser: &mut Parser) -> Result<Command> {
    let mut options = Stats {
        work_dir: PathBuf::from("."),
        runs: Vec::new(),
        format: Table::Text,
    };
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => options.work_dir = path(parser)?,
            ref arg if arg.is(None, "format") => {
                let value = parser.value().map_err(|e| wrong(&e))?;
                options.format = match &*value.to_string_lossy() {
                    "text" => Table::Text,
                    "json" => Table::Json,
                    "csv" => Table::Csv,
                    other => {
                        let words = ["text", "json", "csv"];
                        return Err(usage("--format is text, json or csv, not", &words, other));
                    }
                };
            }
            Arg::Short('h') => return Ok(help(Some("stats"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("stats"), true)),
            Arg::Value(value) => options.runs.push(word(value)?),
            other => return Err(unexpected(&other, &["work-dir", "format", "help"])),
        }
    }
    Ok(Command::Stats(options))
}

fn word(value: OsString) -> Result<String> {
    value.string().map_err(|e| wrong(&e))
}

fn number(value: OsString, what: &str, least: usize) -> Result<usize> {
    let text = word(value)?;
    let parsed: Option<usize> = text.parse().ok().filter(|n| *n >= least);
    parsed.ok_or_else(|| Error::usage(format!("'{text}' is not {what}")))
}
