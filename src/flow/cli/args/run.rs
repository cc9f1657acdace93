//! The command line of `delta-flow run`.

use super::help;
use crate::cli::args::{Arg, Format, format_value, next, path, unexpected, wrong};
use crate::error::{Error, Result};
use lexopt::{Parser, ValueExt};
use std::path::PathBuf;

/// What `run` is to do.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub(crate) struct RunArgs {
    /// The flow's directory.
    pub dir: PathBuf,
    /// A file with the input, or `-`.
    pub input: Option<String>,
    /// The input as a text.
    pub message: Option<String>,
    /// A file with an input on each line.
    pub inputs: Option<PathBuf>,
    /// Where to begin.
    pub start: Option<String>,
    /// The workspace.
    pub work_dir: Option<PathBuf>,
    /// So many programs at once; none: as many as there are processors.
    pub jobs: Option<usize>,
    /// The run's name.
    pub run_id: Option<String>,
    /// How the result is printed.
    pub format: Format,
    /// Say what would run, and run nothing.
    pub dry_run: bool,
    /// Nodes to stop before.
    pub pause_before: Vec<String>,
    /// Words that are put before every program.
    pub launch: Vec<String>,
    /// Go on with other inputs after a failure.
    pub keep_going: bool,
    /// Go on although files of the flow have changed.
    pub changed_ok: bool,
    /// Say nothing but results and errors.
    pub quiet: bool,
}

impl RunArgs {
    /// So many programs at once.
    pub(crate) fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or_else(cores)
    }
}

const OPTIONS: [&str; 15] = [
    "input",
    "message",
    "inputs",
    "start",
    "work-dir",
    "jobs",
    "run-id",
    "format",
    "dry-run",
    "pause-before",
    "launch",
    "keep-going",
    "changed",
    "quiet",
    "help",
];

/// Reads what follows `run`.
pub(super) fn parse(parser: &mut Parser) -> Result<super::FlowCommand> {
    let mut run = RunArgs::default();
    let mut dir: Option<PathBuf> = None;
    while let Some(arg) = next(parser)? {
        match arg {
            Arg::Short('h') => return Ok(help(Some("run"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("run"), true)),
            Arg::Value(value) if dir.is_none() => dir = Some(value.into()),
            other => run.option(&other, parser)?,
        }
    }
    let inputs = [
        run.input.is_some(),
        run.message.is_some(),
        run.inputs.is_some(),
    ];
    if inputs.iter().filter(|given| **given).count() > 1 {
        return Err(Error::usage("only one of -i, -m and --inputs can be given"));
    }
    run.dir = dir.unwrap_or_else(|| PathBuf::from("."));
    Ok(super::FlowCommand::Run(Box::new(run)))
}

impl RunArgs {
    fn option(&mut self, arg: &Arg, parser: &mut Parser) -> Result<()> {
        let is = |short, long| arg.is(short, long);
        if is(Some('i'), "input") {
            self.input = Some(text(parser)?);
        } else if is(Some('m'), "message") {
            self.message = Some(text(parser)?);
        } else if is(None, "inputs") {
            self.inputs = Some(path(parser)?);
        } else if is(None, "start") {
            self.start = Some(text(parser)?);
        } else if is(Some('w'), "work-dir") {
            self.work_dir = Some(path(parser)?);
        } else if is(Some('j'), "jobs") {
            self.jobs = Some(jobs(parser)?);
        } else if is(None, "run-id") {
            self.run_id = Some(text(parser)?);
        } else if is(None, "format") {
            self.format = format_value(parser)?;
        } else if is(None, "dry-run") {
            self.dry_run = true;
        } else if is(None, "pause-before") {
            self.pause_before.push(text(parser)?);
        } else if is(None, "launch") {
            self.launch = words(&text(parser)?)?;
        } else if is(Some('k'), "keep-going") {
            self.keep_going = true;
        } else if is(None, "changed") {
            let given = text(parser)?;
            if given != "ok" {
                let message = format!("--changed cannot be '{given}'; it is --changed ok");
                return Err(Error::usage(message));
            }
            self.changed_ok = true;
        } else if is(Some('q'), "quiet") {
            self.quiet = true;
        } else {
            return Err(unexpected(arg, &OPTIONS));
        }
        Ok(())
    }
}

fn text(parser: &mut Parser) -> Result<String> {
    let value = parser.value().map_err(|e| wrong(&e))?;
    value.string().map_err(|e| wrong(&e))
}

fn jobs(parser: &mut Parser) -> Result<usize> {
    let given = text(parser)?;
    let number = given.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Error::usage(format!("-j needs a number from 1 on, not '{given}'")))
}

/// The words of a command, as a shell splits them.
fn words(text: &str) -> Result<Vec<String>> {
    let words = shlex::split(text).filter(|words| !words.is_empty());
    words.ok_or_else(|| Error::usage(format!("--launch: '{text}' is no command")))
}
