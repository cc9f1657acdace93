//! The command line of `delta-sessions` as plain data. Nothing is looked up or resolved here.

use crate::error::{Error, Result};
use crate::text::suggestion::nearest;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// What a command line says.
#[derive(Debug)]
pub(crate) struct Args {
    /// The folder of the sessions.
    pub dir: PathBuf,
    /// What is to be done.
    pub request: Request,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Request {
    /// `-h`, or `--help`: the manual.
    Help {
        /// The manual.
        full: bool,
    },
    /// `-V`.
    Version,
    /// What could stand next, for the completion scripts of shells: the words as they are typed.
    Complete(Vec<OsString>),
    /// `start`, with the words of an interpreter.
    Start(Vec<String>),
    /// `exec`.
    Exec(Exec),
    /// `end`, with the name of a session.
    End(String),
    /// `list`.
    List,
    /// `cleanup`.
    Cleanup,
}

/// What `exec` is told.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The name of the session.
    pub id: String,
    /// The text; none: it is on standard input.
    pub text: Option<Vec<u8>>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How much of each stream is shown; 0: all.
    pub max_bytes: u64,
    /// Output and exit code are passed through.
    pub raw: bool,
}

const COMMANDS: [&str; 5] = ["start", "exec", "end", "list", "cleanup"];

/// The options of every command, and behind them those of `exec`.
const OPTIONS: [&str; 6] = [
    "sessions-dir",
    "help",
    "version",
    "timeout-ms",
    "max-bytes",
    "raw",
];

/// How many of [`OPTIONS`] every command takes.
const COMMON: usize = 3;

/// `--max-bytes`, when it is not given.
const MAX_BYTES: u64 = 30_000;

/// Options as far as they have been read.
#[derive(Default)]
struct Options {
    dir: Option<PathBuf>,
    timeout: Option<Duration>,
    max_bytes: Option<u64>,
    raw: bool,
    /// What `-h` and the like ask for instead.
    instead: Option<Request>,
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args> {
    let mut parser = Parser::from_args(args);
    let mut options = Options::default();
    let command = read_options(&mut parser, &mut options, false)?;
    let request = match (options.instead.take(), command) {
        (Some(request), _) => request,
        (None, None) => {
            let commands = COMMANDS.join(", ");
            return Err(Error::usage(format!("say what to do: {commands}")));
        }
        (None, Some(command)) => {
            let command = text(command)?;
            if command == crate::cli::completion::COMMAND {
                let words = parser.raw_args().map_err(|e| usage(&e))?.collect();
                let request = Request::Complete(words);
                let dir = PathBuf::new();
                return Ok(Args { dir, request });
            }
            if !COMMANDS.contains(&&*command) {
                return Err(unknown("command", &command, "", &COMMANDS));
            }
            let first = read_options(&mut parser, &mut options, command == "exec")?;
            match options.instead.take() {
                Some(request) => request,
                // What stands behind the first word is data: it may come from a model.
                None => {
                    let rest: Vec<OsString> = parser.raw_args().map_err(|e| usage(&e))?.collect();
                    operands(&command, first, rest, &options)?
                }
            }
        }
    };
    let dir = options.dir.unwrap_or_else(|| ".sessions".into());
    Ok(Args { dir, request })
}

/// Reads options up to the first word that is none.
fn read_options(
    parser: &mut Parser,
    options: &mut Options,
    is_exec: bool,
) -> Result<Option<OsString>> {
    while let Some(arg) = parser.next().map_err(|e| usage(&e))? {
        let option = match arg {
            Arg::Value(word) => return Ok(Some(word)),
            Arg::Short(letter) => format!("-{letter}"),
            Arg::Long(name) => format!("--{name}"),
        };
        match &*option {
            "-h" => options.instead = Some(Request::Help { full: false }),
            "--help" => options.instead = Some(Request::Help { full: true }),
            "-V" | "--version" => options.instead = Some(Request::Version),
            "--sessions-dir" => {
                let dir: PathBuf = parser.value().map_err(|e| usage(&e))?.into();
                if dir.as_os_str().is_empty() {
                    return Err(Error::usage("--sessions-dir needs the name of a folder"));
                }
                options.dir = Some(dir);
            }
            "--timeout-ms" if is_exec => {
                let millis = number(&option, parser)?;
                options.timeout = (millis > 0).then(|| Duration::from_millis(millis));
            }
            "--max-bytes" if is_exec => options.max_bytes = Some(number(&option, parser)?),
            "--raw" if is_exec => options.raw = true,
            _ => {
                let known = if is_exec {
                    &OPTIONS[..]
                } else {
                    &OPTIONS[..COMMON]
                };
                return Err(unknown("option", &option, "--", known));
            }
        }
        if options.instead.is_some() {
            return Ok(None);
        }
    }
    Ok(None)
}

fn operands(
    command: &str,
    first: Option<OsString>,
    mut rest: Vec<OsString>,
    options: &Options,
) -> Result<Request> {
    match command {
        "start" => {
            let first = first.unwrap_or_else(|| "bash".into());
            let words = [first].into_iter().chain(rest).map(text);
            Ok(Request::Start(words.collect::<Result<_>>()?))
        }
        "exec" => {
            let id = id(command, first)?;
            if rest.len() > 1 && rest[0] == "--" {
                rest.remove(0);
            }
            if rest.len() > 1 {
                let message = "exec takes one TEXT: quote it, or give it on standard input; \
                               options stand before ID";
                return Err(Error::usage(message));
            }
            if options.raw && options.max_bytes.is_some() {
                return Err(Error::usage(
                    "--raw shows everything; leave --max-bytes out",
                ));
            }
            Ok(Request::Exec(Exec {
                id,
                text: rest.pop().map(OsString::into_vec),
                timeout: options.timeout,
                max_bytes: options.max_bytes.unwrap_or(MAX_BYTES),
                raw: options.raw,
            }))
        }
        "end" => {
            let id = id(command, first)?;
            no_more(command, rest.first())?;
            Ok(Request::End(id))
        }
        _ => {
            no_more(command, first.as_ref().or(rest.first()))?;
            Ok(if command == "list" {
                Request::List
            } else {
                Request::Cleanup
            })
        }
    }
}

fn id(command: &str, word: Option<OsString>) -> Result<String> {
    let message = || format!("{command} needs the id of a session; `list` shows them");
    text(word.ok_or_else(|| Error::usage(message()))?)
}

fn no_more(command: &str, word: Option<&OsString>) -> Result<()> {
    let message = |word: &OsString| {
        let word = word.to_string_lossy();
        format!(
            "{command}: '{}' is one word too many; options stand before",
            word.escape_debug()
        )
    };
    word.map_or(Ok(()), |word| Err(Error::usage(message(word))))
}

fn number(option: &str, parser: &mut Parser) -> Result<u64> {
    let value = parser.value().map_err(|e| usage(&e))?;
    let value = value.to_string_lossy();
    value.parse().map_err(|_| {
        Error::usage(format!(
            "{option} takes a whole number, not '{}'",
            value.escape_debug()
        ))
    })
}

fn text(word: OsString) -> Result<String> {
    word.into_string()
        .map_err(|word| Error::usage(format!("'{}' is not UTF-8", word.display())))
}

fn usage(error: &lexopt::Error) -> Error {
    Error::usage(error.to_string())
}

fn unknown(what: &str, word: &str, prefix: &str, known: &[&'static str]) -> Error {
    let shown = word.escape_debug();
    let near = nearest(word.trim_start_matches('-'), known.iter().copied());
    Error::usage(match near {
        Some(near) => format!("unknown {what} '{shown}': did you mean '{prefix}{near}'?"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("{prefix}{name}")).collect();
            format!("unknown {what} '{shown}': there are {}", known.join(", "))
        }
    })
}
