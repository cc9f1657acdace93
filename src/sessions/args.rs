//! The command line of `delta-sessions` as plain data. Nothing is looked up or resolved here.

use super::tables::SESSIONS;
use crate::error::{Error, Result};
use crate::text::options::completion;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line};
use crate::text::options::table::CommandTable;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// The sessions directory, and what to do there.
#[derive(Debug)]
pub(crate) struct SessionsArgs {
    pub dir: PathBuf,
    /// Stamp the directory and all sessions in it as one's own.
    pub adopt: bool,
    pub request: SessionsCommand,
}

#[derive(Debug)]
pub(crate) enum SessionsCommand {
    Help {
        /// None: all commands.
        command: Option<&'static CommandTable>,
        full: bool,
    },
    Version,
    /// The words behind the program's name, as they are typed.
    Complete(Vec<OsString>),
    /// The words of an interpreter.
    Start(Vec<String>),
    Exec(ExecArgs),
    /// The id of a session.
    End(String),
    List,
    Cleanup,
}

/// `exec`.
#[derive(Debug)]
pub(crate) struct ExecArgs {
    /// The id of the session.
    pub id: String,
    /// None: it is on standard input.
    pub text: Option<Vec<u8>>,
    /// None: no limit.
    pub timeout: Option<Duration>,
    /// How much of each stream is printed; 0: all.
    pub max_bytes: u64,
    /// Pass output and exit code through.
    pub raw: bool,
}

/// `--max-bytes`, when it is not given.
const MAX_BYTES: u64 = 30_000;

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
pub(crate) fn parse_args(words: impl IntoIterator<Item = OsString>) -> Result<SessionsArgs> {
    let (mut dir, mut adopt) = (None, false);
    let request = match parse_line(&SESSIONS, words)? {
        CommandLine::Version => SessionsCommand::Version,
        CommandLine::Help { command, full } => SessionsCommand::Help { command, full },
        CommandLine::Raw(completion::COMMAND, words) => SessionsCommand::Complete(words),
        CommandLine::Raw(name, _) => {
            return Err(Error::usage(format!(
                "there is no command '{name}': sessions have no terminal; run commands with 'exec', \
                 and programs that need a terminal as examples/terminal does, in tmux"
            )));
        }
        CommandLine::Command(given) => {
            dir = given.path("--sessions-dir");
            adopt = given.has("--adopt");
            command_of(given)?
        }
    };
    let dir = dir.unwrap_or_else(|| ".sessions".into());
    Ok(SessionsArgs {
        dir,
        adopt,
        request,
    })
}

fn command_of(mut given: ParsedCommand) -> Result<SessionsCommand> {
    let id = given.operand_text(0).unwrap_or_default();
    Ok(match given.command.name {
        "start" => {
            if given.operands.is_empty() {
                given.operands.push("bash".into());
            }
            let words = given.operands.into_iter().map(utf8_text);
            SessionsCommand::Start(words.collect::<Result<_>>()?)
        }
        "exec" => {
            if given.has("--raw") && given.has("--max-bytes") {
                return Err(Error::usage(
                    "--raw prints everything; leave --max-bytes out",
                ));
            }
            let millis = given.number("--timeout-ms").filter(|millis| *millis > 0);
            SessionsCommand::Exec(ExecArgs {
                id,
                timeout: millis.map(Duration::from_millis),
                max_bytes: given.number("--max-bytes").unwrap_or(MAX_BYTES),
                raw: given.has("--raw"),
                text: given.operands.drain(1..).next().map(OsString::into_vec),
            })
        }
        "end" => SessionsCommand::End(id),
        "list" => SessionsCommand::List,
        _ => SessionsCommand::Cleanup,
    })
}

fn utf8_text(word: OsString) -> Result<String> {
    word.into_string()
        .map_err(|word| Error::usage(format!("'{}' is not UTF-8", word.display())))
}
