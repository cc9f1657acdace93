//! The command lines of the commands that repeat, branch and compare recorded runs.

use super::{Arg, Command, Common, help, next, path, unexpected, usage, wrong};
use crate::error::{Error, Result};
use lexopt::{Parser, ValueExt};
use std::path::PathBuf;

/// `delta replay`.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The workspace that the run is in.
    pub work_dir: PathBuf,
    /// The run, or the path of its directory.
    pub run: String,
    /// Where it is repeated; none: a temporary directory.
    pub to: Option<PathBuf>,
    /// What the workspace of the repetition begins with.
    pub from: Option<PathBuf>,
    /// The agent; none: the one that the run had.
    pub agent: Option<PathBuf>,
    /// Nothing is executed; what came of tools, hooks and generators is taken from the record.
    pub executes_nothing: bool,
    /// Say nothing but the result.
    pub quiet: bool,
    /// Say more.
    pub verbose: bool,
}

/// `delta fork`.
#[derive(Debug)]
pub(crate) struct Fork {
    /// The run.
    pub run: String,
    /// How many of its iterations the new run begins with.
    pub at: u64,
    /// A new workspace for the new run; none: the same.
    pub to: Option<PathBuf>,
    /// Keys of agent.yaml and what they are set to, as YAML.
    pub set: Vec<(String, String)>,
    /// The rest.
    pub common: Common,
}

pub(super) fn replay(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 8] = [
        "work-dir", "to", "from", "tools", "agent", "quiet", "verbose", "help",
    ];
    let mut run = None;
    let mut replay = Replay {
        work_dir: PathBuf::from("."),
        run: String::new(),
        to: None,
        from: None,
        agent: None,
        executes_nothing: false,
        quiet: false,
        verbose: false,
    };
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => replay.work_dir = path(parser)?,
            ref arg if arg.is(Some('a'), "agent") => replay.agent = Some(path(parser)?),
            ref arg if arg.is(None, "to") => replay.to = Some(path(parser)?),
            ref arg if arg.is(None, "from") => replay.from = Some(path(parser)?),
            ref arg if arg.is(None, "tools") => replay.executes_nothing = tools_value(parser)?,
            ref arg if arg.is(Some('q'), "quiet") => replay.quiet = true,
            ref arg if arg.is(Some('v'), "verbose") => replay.verbose = true,
            Arg::Short('h') => return Ok(help(Some("replay"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("replay"), true)),
            Arg::Value(value) if run.is_none() => {
                run = Some(value.string().map_err(|e| wrong(&e))?);
            }
            other => return Err(unexpected(&other, &OPTIONS)),
        }
    }
    if replay.quiet && replay.verbose {
        return Err(Error::usage("-q and -v contradict each other"));
    }
    replay.run =
        run.ok_or_else(|| Error::usage("replay needs a run: delta replay [-w DIR] RUN"))?;
    Ok(Command::Replay(replay))
}

fn tools_value(parser: &mut Parser) -> Result<bool> {
    let value = parser.value().map_err(|e| wrong(&e))?;
    match &*value.to_string_lossy() {
        "run" => Ok(false),
        "recorded" => Ok(true),
        other => Err(usage(
            "--tools is run or recorded, not",
            &["run", "recorded"],
            other,
        )),
    }
}

pub(super) fn model(parser: &mut Parser) -> Result<Command> {
    let (mut words, mut lenient) = (Vec::new(), false);
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(None, "lenient") => lenient = true,
            Arg::Short('h') => return Ok(help(Some("model"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("model"), true)),
            Arg::Value(value) => words.push(value),
            other => return Err(unexpected(&other, &["lenient", "help"])),
        }
    }
    match words.as_slice() {
        [verb, dir] if verb == "replay" && !dir.is_empty() => Ok(Command::ModelReplay {
            run_dir: dir.into(),
            lenient,
        }),
        [verb, ..] if verb != "replay" => {
            let verb = verb.to_string_lossy();
            Err(usage("unknown command", &["replay"], &verb))
        }
        _ => Err(Error::usage("the form is: delta model replay RUN_DIR")),
    }
}

pub(super) fn fork(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 12] = [
        "at",
        "to",
        "set",
        "message",
        "work-dir",
        "run-id",
        "max-iterations",
        "interactive",
        "verbose",
        "quiet",
        "format",
        "help",
    ];
    const FORM: &str = "delta fork [-w DIR] RUN --at N [-m TEXT]";
    let (mut run, mut at, mut to) = (None, None, None);
    let (mut set, mut common) = (Vec::new(), Common::default());
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(None, "at") => at = Some(at_value(parser)?),
            ref arg if arg.is(None, "to") => to = Some(path(parser)?),
            ref arg if arg.is(None, "set") => set.push(set_value(parser)?),
            Arg::Short('h') => return Ok(help(Some("fork"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("fork"), true)),
            Arg::Value(value) if run.is_none() => {
                run = Some(value.string().map_err(|e| wrong(&e))?);
            }
            other => common.take(&other, parser, &OPTIONS)?,
        }
    }
    common.check()?;
    Ok(Command::Fork(Fork {
        run: run.ok_or_else(|| Error::usage(format!("fork needs a run: {FORM}")))?,
        at: at.ok_or_else(|| {
            Error::usage(format!(
                "fork needs the iteration to part from, --at N: {FORM}"
            ))
        })?,
        to,
        set,
        common,
    }))
}

fn at_value(parser: &mut Parser) -> Result<u64> {
    let text = parser.value().map_err(|e| wrong(&e))?;
    let text = text.to_string_lossy();
    text.parse().map_err(|_| {
        Error::usage(format!(
            "--at: '{text}' is not a number of iterations, 0 or more"
        ))
    })
}

pub(super) fn set_value(parser: &mut Parser) -> Result<(String, String)> {
    let text = parser.value().map_err(|e| wrong(&e))?.string();
    let text = text.map_err(|_| Error::usage("the value of --set is not UTF-8"))?;
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && key.split('.').all(|step| !step.is_empty()) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(Error::usage(format!(
            "--set: '{text}' is not of the form KEY=VALUE, as in llm.temperature=0"
        ))),
    }
}

pub(super) fn diff(parser: &mut Parser) -> Result<Command> {
    let (mut work_dir, mut runs) = (PathBuf::from("."), Vec::new());
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => work_dir = path(parser)?,
            Arg::Short('h') => return Ok(help(Some("diff"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("diff"), true)),
            Arg::Value(value) if runs.len() < 2 => {
                runs.push(value.string().map_err(|e| wrong(&e))?);
            }
            other => return Err(unexpected(&other, &["work-dir", "help"])),
        }
    }
    let runs = <[String; 2]>::try_from(runs)
        .map_err(|_| Error::usage("diff needs two runs: delta diff [-w DIR] RUN_A RUN_B"))?;
    Ok(Command::Diff { work_dir, runs })
}
