//! The command line of `delta-flow` as plain data. Nothing is looked up or resolved here.

pub(crate) mod memory;
pub(crate) mod run;

use crate::cli::args::{
    self, Arg, Format, Stats, format_value, next, path, unexpected, usage, wrong,
};
use crate::error::{Error, Result};
use crate::flow::view::draw::Language;
use lexopt::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum FlowCommand {
    /// `check`.
    Check {
        /// The flow's directory.
        dir: PathBuf,
        /// How problems are printed.
        format: Format,
    },
    /// `run`.
    Run(Box<run::RunArgs>),
    /// `show`.
    Show(ShowArgs),
    /// `graph`.
    Graph(GraphArgs),
    /// `tool`.
    Tool(ToolArgs),
    /// `stats`, which is that of `delta`.
    Stats(Stats),
    /// Tell a shell what could stand next.
    Complete {
        /// The words behind the program's name, as they are typed.
        words: Vec<OsString>,
    },
    /// `memory`.
    Memory(memory::MemoryArgs),
    /// `-V`.
    Version,
    /// `-h`, `--help` and `help`: about what, and whether in full.
    Help {
        /// The command, or none for all.
        topic: Option<&'static str>,
        /// The manual page.
        full: bool,
    },
}

/// What `show` is to show.
#[derive(Debug)]
pub(crate) struct ShowArgs {
    /// The workspace.
    pub work_dir: PathBuf,
    /// A run, a task, a node: each may be left out from the end, the run also from the beginning.
    pub names: Vec<String>,
}

/// What `graph` is to draw.
#[derive(Debug)]
pub(crate) struct GraphArgs {
    /// A flow's directory, a run or the directory of one; none: the current directory.
    pub what: Option<String>,
    /// The workspace that runs are looked for in.
    pub work_dir: PathBuf,
    /// In which language.
    pub language: Language,
}

/// Which tool `tool` is to run.
#[derive(Debug, Default)]
pub(crate) struct ToolArgs {
    /// Its id.
    pub name: String,
    /// Parameters by their names. With these or the next one, the standard input has no arguments.
    pub parameters: Vec<(String, String)>,
    /// The parameter whose value is the standard input.
    pub stdin: Option<String>,
}

/// The commands, in the order in which help lists them.
pub const COMMANDS: [&str; 8] = [
    "run", "show", "check", "graph", "stats", "tool", "memory", "help",
];

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<FlowCommand> {
    let mut parser = Parser::from_args(args);
    let Some(first) = next(&mut parser)? else {
        return Err(usage("no command given", &COMMANDS, ""));
    };
    match first {
        Arg::Short('h') => Ok(help(None, false)),
        ref arg if arg.is(None, "help") => Ok(help(None, true)),
        ref arg if arg.is(Some('V'), "version") => Ok(FlowCommand::Version),
        Arg::Value(word) => command(&word.to_string_lossy(), &mut parser),
        other => Err(unexpected(&other, &["help", "version"])),
    }
}

/// One line for each command, whose parser reads the rest of the line.
fn command(word: &str, parser: &mut Parser) -> Result<FlowCommand> {
    match word {
        "run" => run::parse(parser),
        "show" => show(parser),
        "stats" => stats(parser),
        "check" => check(parser),
        "graph" => graph(parser),
        "tool" => tool(parser),
        "memory" => memory::parse(parser),
        "help" => about(parser),
        crate::cli::completion::COMMAND => Ok(FlowCommand::Complete {
            words: parser.raw_args().map_err(|e| wrong(&e))?.collect(),
        }),
        other => Err(usage("unknown command", &COMMANDS, other)),
    }
}

fn check(parser: &mut Parser) -> Result<FlowCommand> {
    let (mut dir, mut format) = (None, Format::Text);
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(None, "format") => format = format_value(parser)?,
            Arg::Short('h') => return Ok(help(Some("check"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("check"), true)),
            Arg::Value(value) if dir.is_none() => dir = Some(value.into()),
            other => return Err(unexpected(&other, &["format", "help"])),
        }
    }
    let dir = dir.unwrap_or_else(|| PathBuf::from("."));
    Ok(FlowCommand::Check { dir, format })
}

fn graph(parser: &mut Parser) -> Result<FlowCommand> {
    let mut wanted = GraphArgs {
        what: None,
        work_dir: PathBuf::from("."),
        language: Language::default(),
    };
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => wanted.work_dir = path(parser)?,
            ref arg if arg.is(None, "format") => wanted.language = language_value(parser)?,
            Arg::Short('h') => return Ok(help(Some("graph"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("graph"), true)),
            Arg::Value(value) if wanted.what.is_none() => {
                wanted.what = Some(value.to_string_lossy().into_owned());
            }
            other => return Err(unexpected(&other, &["work-dir", "format", "help"])),
        }
    }
    Ok(FlowCommand::Graph(wanted))
}

fn language_value(parser: &mut Parser) -> Result<Language> {
    let value = parser.value().map_err(|e| wrong(&e))?;
    let value = value.to_string_lossy();
    let words = Language::ALL.map(|(word, _)| word);
    let found = Language::ALL.into_iter().find(|(word, _)| *word == value);
    let wrong = || usage("--format is dot, mermaid or svg, not", &words, &value);
    Ok(found.ok_or_else(wrong)?.1)
}

fn show(parser: &mut Parser) -> Result<FlowCommand> {
    let mut work_dir = PathBuf::from(".");
    let mut names = Vec::new();
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => work_dir = path(parser)?,
            Arg::Short('h') => return Ok(help(Some("show"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("show"), true)),
            Arg::Value(value) if names.len() < 3 => {
                names.push(value.to_string_lossy().into_owned());
            }
            other => return Err(unexpected(&other, &["work-dir", "help"])),
        }
    }
    Ok(FlowCommand::Show(ShowArgs { work_dir, names }))
}

fn stats(parser: &mut Parser) -> Result<FlowCommand> {
    Ok(match args::stats(parser)? {
        args::Command::Stats(wanted) => FlowCommand::Stats(wanted),
        args::Command::Help { full, .. } => help(Some("stats"), full),
        _ => help(None, false),
    })
}

fn tool(parser: &mut Parser) -> Result<FlowCommand> {
    let mut wanted = ToolArgs::default();
    let text = |parser: &mut Parser| -> Result<String> {
        let value = parser.value().map_err(|e| wrong(&e))?;
        let not_text = |_| Error::usage("tool: the value of a parameter is not UTF-8");
        value.into_string().map_err(not_text)
    };
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('p'), "parameter") => {
                let given = text(parser)?;
                let Some((name, value)) = given.split_once('=') else {
                    let message = format!("tool: -p takes NAME=VALUE, not {given}");
                    return Err(Error::usage(message));
                };
                wanted.parameters.push((name.to_owned(), value.to_owned()));
            }
            ref arg if arg.is(None, "stdin") => wanted.stdin = Some(text(parser)?),
            Arg::Short('h') => return Ok(help(Some("tool"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("tool"), true)),
            Arg::Value(value) if wanted.name.is_empty() => {
                wanted.name = value.to_string_lossy().into_owned();
            }
            other => return Err(unexpected(&other, &["parameter", "stdin", "help"])),
        }
    }
    if wanted.name.is_empty() {
        return Err(Error::usage("tool needs a name: delta flow tool NAME"));
    }
    Ok(FlowCommand::Tool(wanted))
}

fn about(parser: &mut Parser) -> Result<FlowCommand> {
    match next(parser)? {
        None => Ok(help(None, true)),
        Some(Arg::Short('h')) => Ok(help(Some("help"), false)),
        Some(ref arg) if arg.is(None, "help") => Ok(help(Some("help"), true)),
        Some(Arg::Value(word)) => {
            let word = word.to_string_lossy();
            let found = COMMANDS.into_iter().find(|name| *name == word);
            let topic = found.ok_or_else(|| usage("unknown command", &COMMANDS, &word))?;
            Ok(help(Some(topic), false))
        }
        Some(other) => Err(unexpected(&other, &["help"])),
    }
}

fn help(topic: Option<&'static str>, full: bool) -> FlowCommand {
    FlowCommand::Help { topic, full }
}
