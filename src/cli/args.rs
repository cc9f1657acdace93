//! The command line as plain data. Nothing is looked up or resolved here.

mod files;
mod look;
pub(crate) mod repeat;
mod word;

use crate::cli::manual;
use crate::cli::schemas::Schema;
use crate::cli::templates::Template;
use crate::error::{Error, Result};
use lexopt::{Parser, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use word::{Arg, format_value, next, path, unexpected, usage, wrong};

#[cfg(feature = "flow")]
pub(crate) use look::stats;
pub(crate) use look::{ListRuns, Log, Report, Request, Stats, Table};

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// The result alone.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Options that `run` and `continue` share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// The workspace.
    pub work_dir: Option<PathBuf>,
    /// The run.
    pub run_id: Option<String>,
    /// What is said to the agent; `-` stands for stdin.
    pub message: Option<String>,
    /// The limit of iterations.
    pub max_iterations: Option<u64>,
    /// Ask people at the terminal.
    pub interactive: bool,
    /// Say more.
    pub verbose: bool,
    /// Say nothing but results and errors.
    pub quiet: bool,
    /// How the result is printed.
    pub format: Format,
}

/// What `delta run` is to do.
#[derive(Debug)]
pub(crate) struct Run {
    /// The agent's directory.
    pub agent: PathBuf,
    /// Take the next workspace without asking.
    pub yes: bool,
    /// Print the first request instead of sending it.
    pub dry: bool,
    /// Keys of agent.yaml that this run sets otherwise, and to what, as YAML.
    pub set: Vec<(String, String)>,
    /// The rest.
    pub common: Common,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Command {
    /// `delta run`.
    Run(Run),
    /// `delta continue`.
    Continue {
        /// Pass over damage, and over a lock that another host may hold.
        force: bool,
        /// The rest.
        common: Common,
    },
    /// `delta init`.
    Init {
        /// The agent's directory.
        dir: PathBuf,
        /// What it begins as; none: ask, or take the first one.
        template: Option<&'static Template>,
        /// Do not ask.
        yes: bool,
    },
    /// `delta check`.
    Check {
        /// The agent's directory.
        agent: PathBuf,
        /// How problems are printed.
        format: Format,
    },
    /// `delta list-runs`.
    ListRuns(ListRuns),
    /// `delta log`.
    Log(Log),
    /// `delta report`.
    Report(Report),
    /// `delta request`.
    Request(Request),
    /// `delta stats`.
    Stats(Stats),
    /// `delta schema`.
    Schema {
        /// Of which file.
        schema: &'static Schema,
    },
    /// `delta migrate`.
    Migrate {
        /// The workspace.
        work_dir: PathBuf,
    },
    /// `delta model replay`.
    ModelReplay {
        /// The run's directory.
        run_dir: PathBuf,
        /// Find the answer by its place alone.
        lenient: bool,
    },
    /// `delta replay`.
    Replay(repeat::Replay),
    /// `delta fork`.
    Fork(repeat::Fork),
    /// `delta diff`.
    Diff {
        /// The workspace that runs are looked for in.
        work_dir: PathBuf,
        /// Both runs, or the paths of their directories.
        runs: [String; 2],
    },
    /// `delta tool expand`.
    ToolExpand {
        /// The file.
        file: PathBuf,
    },
    /// `delta sandbox`.
    Sandbox(Sandbox),
    /// `delta flow`, with the words behind it.
    Flow(Vec<OsString>),
    /// `delta -V`.
    Version,
    /// `-h` and `--help`: about what, and whether in full.
    Help {
        /// The command, or none for all.
        topic: Option<&'static str>,
        /// The manual page.
        full: bool,
    },
    /// `delta help PAGE`.
    Page(&'static manual::Page),
    /// `delta help`: which pages there are.
    Pages,
    /// Ask the system's resolver, for the engine itself.
    ResolveHost {
        /// The name.
        host: String,
    },
    /// Tell a shell what could stand next.
    Complete {
        /// The words behind the program's name, as they are typed.
        words: Vec<OsString>,
    },
}

/// What `delta sandbox` is to do.
#[derive(Debug, Default)]
pub(crate) struct Sandbox {
    /// Where the command may write.
    pub rw: Vec<PathBuf>,
    /// Where it may read.
    pub ro: Vec<PathBuf>,
    /// Paths to keep read-only in there.
    pub protect: Vec<PathBuf>,
    /// No network.
    pub no_network: bool,
    /// Fail where the kernel cannot do it all.
    pub strict: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
}

/// The commands, in the order in which help lists them.
pub const COMMANDS: [&str; 19] = [
    "run",
    "continue",
    "init",
    "list-runs",
    "log",
    "stats",
    "report",
    "request",
    "fork",
    "replay",
    "diff",
    "check",
    "schema",
    "tool",
    "sandbox",
    "migrate",
    "model",
    "flow",
    "help",
];

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut parser = Parser::from_args(args);
    let Some(first) = next(&mut parser)? else {
        return Err(usage("no command given", &COMMANDS, ""));
    };
    match first {
        Arg::Short('h') => Ok(help(None, false)),
        ref arg if arg.is(None, "help") => Ok(help(None, true)),
        ref arg if arg.is(Some('V'), "version") => Ok(Command::Version),
        Arg::Value(word) => {
            let word = word.string().map_err(|e| wrong(&e))?;
            command(&word, parser)
        }
        other => Err(unexpected(&other, &["help", "version"])),
    }
}

fn command(word: &str, mut parser: Parser) -> Result<Command> {
    match word {
        "run" => run(&mut parser),
        "continue" => resume(&mut parser),
        "init" => files::init(&mut parser),
        "check" => files::check(&mut parser),
        "schema" => files::schema(&mut parser),
        "migrate" => files::migrate(&mut parser),
        "replay" => repeat::replay(&mut parser),
        "fork" => repeat::fork(&mut parser),
        "diff" => repeat::diff(&mut parser),
        "model" => repeat::model(&mut parser),
        "list-runs" => look::list_runs(&mut parser),
        "log" => look::log(&mut parser),
        "request" => look::request(&mut parser),
        "stats" => look::stats(&mut parser),
        "report" => look::report(&mut parser),
        "tool" => files::tool(&mut parser),
        "sandbox" => sandbox(&mut parser),
        "flow" => flow(&mut parser),
        "help" => page(&mut parser),
        crate::cli::completion::COMMAND => Ok(Command::Complete {
            words: parser.raw_args().map_err(|e| wrong(&e))?.collect(),
        }),
        crate::model::http::RESOLVE_COMMAND => match next(&mut parser)? {
            Some(Arg::Value(host)) => Ok(Command::ResolveHost {
                host: host.string().map_err(|e| wrong(&e))?,
            }),
            _ => Err(Error::usage("resolve-host needs a name")),
        },
        other => Err(usage("unknown command", &COMMANDS, other)),
    }
}

fn run(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 13] = [
        "agent",
        "yes",
        "dry-run",
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
    let (mut agent, mut common) = (PathBuf::from("."), Common::default());
    let (mut yes, mut dry, mut set) = (false, false, Vec::new());
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('a'), "agent") => agent = path(parser)?,
            ref arg if arg.is(Some('y'), "yes") => yes = true,
            ref arg if arg.is(None, "dry-run") => dry = true,
            ref arg if arg.is(None, "set") => set.push(repeat::set_value(parser)?),
            ref arg if arg.is(None, "task") => {
                return Err(Error::usage("--task is called -m (--message) now"));
            }
            Arg::Short('h') => return Ok(help(Some("run"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("run"), true)),
            other => common.take(&other, parser, &OPTIONS)?,
        }
    }
    common.check()?;
    Ok(Command::Run(Run {
        agent,
        yes,
        dry,
        set,
        common,
    }))
}

fn resume(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 10] = [
        "force",
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
    let (mut force, mut common) = (false, Common::default());
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(None, "force") => force = true,
            Arg::Short('h') => return Ok(help(Some("continue"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("continue"), true)),
            other => common.take(&other, parser, &OPTIONS)?,
        }
    }
    common.check()?;
    if common.work_dir.is_none() {
        return Err(Error::usage("continue needs the workspace: -w DIR"));
    }
    Ok(Command::Continue { force, common })
}

/// Whatever stands behind the word is for the other program to read.
fn flow(parser: &mut Parser) -> Result<Command> {
    let rest = parser.raw_args().map_err(|e| wrong(&e))?;
    Ok(Command::Flow(rest.collect()))
}

fn page(parser: &mut Parser) -> Result<Command> {
    let topic = match next(parser)? {
        None => return Ok(Command::Pages),
        Some(Arg::Short('h')) => return Ok(help(Some("help"), false)),
        Some(ref arg) if arg.is(None, "help") => return Ok(help(Some("help"), true)),
        Some(Arg::Value(topic)) => topic.string().map_err(|e| wrong(&e))?,
        Some(other) => return Err(unexpected(&other, &["help"])),
    };
    if let Some(other) = next(parser)? {
        return Err(unexpected(&other, &["help"]));
    }
    let names: Vec<&str> = manual::PAGES.iter().map(|page| page.name).collect();
    let page = manual::find(&topic).ok_or_else(|| usage("no page about", &names, &topic))?;
    Ok(Command::Page(page))
}

fn sandbox(parser: &mut Parser) -> Result<Command> {
    const OPTIONS: [&str; 6] = ["rw", "ro", "protect", "no-network", "strict", "help"];
    let mut wanted = Sandbox::default();
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(None, "rw") => wanted.rw.push(path(parser)?),
            ref arg if arg.is(None, "ro") => wanted.ro.push(path(parser)?),
            ref arg if arg.is(None, "protect") => wanted.protect.push(path(parser)?),
            ref arg if arg.is(None, "no-network") => wanted.no_network = true,
            ref arg if arg.is(None, "strict") => wanted.strict = true,
            Arg::Short('h') => return Ok(help(Some("sandbox"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("sandbox"), true)),
            Arg::Value(program) => {
                // From here on everything is the command's, whatever it looks like.
                wanted.command.push(program);
                let rest = parser.raw_args().map_err(|e| wrong(&e))?;
                wanted.command.extend(rest);
                return Ok(Command::Sandbox(wanted));
            }
            other => return Err(unexpected(&other, &OPTIONS)),
        }
    }
    Err(Error::usage(
        "sandbox needs a command: delta sandbox [OPTIONS] -- COMMAND [ARGUMENT…]",
    ))
}

impl Common {
    fn take(&mut self, arg: &Arg, parser: &mut Parser, options: &[&str]) -> Result<()> {
        match arg {
            _ if arg.is(Some('m'), "message") => {
                self.message = Some(
                    parser
                        .value()
                        .map_err(|e| wrong(&e))?
                        .string()
                        .map_err(|_| Error::usage("the message is not UTF-8"))?,
                );
            }
            _ if arg.is(Some('w'), "work-dir") => self.work_dir = Some(path(parser)?),
            _ if arg.is(None, "run-id") => {
                let id = parser.value().map_err(|e| wrong(&e))?;
                let id = id.to_string_lossy().into_owned();
                crate::text::ids::RunId::parse(&id)
                    .map_err(|e| Error::usage(format!("--run-id: {e}")))?;
                self.run_id = Some(id);
            }
            _ if arg.is(None, "max-iterations") => {
                let text = parser.value().map_err(|e| wrong(&e))?;
                let text = text.to_string_lossy();
                let number: Option<u64> = text.parse().ok().filter(|n| *n > 0);
                self.max_iterations = Some(number.ok_or_else(|| {
                    Error::usage(format!(
                        "--max-iterations: '{text}' is not a number of iterations, 1 or more"
                    ))
                })?);
            }
            _ if arg.is(Some('i'), "interactive") => self.interactive = true,
            _ if arg.is(Some('v'), "verbose") => self.verbose = true,
            _ if arg.is(Some('q'), "quiet") => self.quiet = true,
            _ if arg.is(None, "format") => self.format = format_value(parser)?,
            other => return Err(unexpected(other, options)),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.quiet && self.verbose {
            return Err(Error::usage("-q and -v contradict each other"));
        }
        if self.message.as_deref().is_some_and(str::is_empty) {
            return Err(Error::usage("the message given with -m is empty"));
        }
        Ok(())
    }
}

fn help(topic: Option<&'static str>, full: bool) -> Command {
    Command::Help { topic, full }
}
