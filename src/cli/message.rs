//! The agent and the message of a command line: `[@NAME] TASK…`, `-a`, `-m` and `-f`.
//!
//! Plain data. No file is read and no name is looked up.

use crate::error::{Error, Result};
use crate::runs::task::GivenPart;
use crate::text::options::parse::{Given, ParsedCommand};
use std::path::PathBuf;

/// The agent that a command line names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenAgent {
    /// `@NAME`, or a directory.
    Word(PathBuf),
    /// None: the agent of the person.
    Usual,
    /// None, and no task either: the agent in the current directory.
    Here,
}

/// The agent, and whether the first operand names it.
pub(super) fn given_agent(given: &ParsedCommand) -> Result<(GivenAgent, bool)> {
    let first = given.first_before_dashes().and_then(|word| word.to_str());
    let named = first.filter(|word| word.starts_with('@'));
    match (given.path("--agent"), named) {
        (Some(agent), Some(name)) => Err(Error::usage(format!(
            "two agents: -a {} and {name}; behind -- everything is the task",
            agent.display()
        ))),
        (Some(agent), None) => Ok((GivenAgent::Word(agent), false)),
        (None, Some(name)) => Ok((GivenAgent::Word(name.into()), true)),
        (None, None) => Ok((GivenAgent::Usual, false)),
    }
}

/// A text that says something.
fn said(text: String, what: &str, says_nothing: fn(&str) -> bool) -> Result<GivenPart> {
    if says_nothing(&text) {
        Err(Error::usage(format!("the {what} is empty")))
    } else {
        Ok(GivenPart::Text(text))
    }
}

/// The parts of the message in their order. The operands from `first` on are one, joined by spaces; of them a `-` before
/// `--` is the standard input.
pub(super) fn message_parts(given: &ParsedCommand, first: usize) -> Result<Vec<GivenPart>> {
    let operands = given.operand_texts();
    let is_stdin = |at: usize| operands[at] == "-" && at < given.count_before_dashes();
    let words: Vec<usize> = (first..operands.len())
        .filter(|at| !is_stdin(*at))
        .collect();
    let mut parts = Vec::new();
    for word in given.in_order(&["--message", "--file"]) {
        parts.push(match word {
            Given::Option("--message", text) if text == "-" => GivenPart::Stdin,
            Given::Option("--message", text) => said(
                text.to_string_lossy().into_owned(),
                "message given with -m",
                str::is_empty,
            )?,
            Given::Option(_, file) if file == "-" => {
                return Err(Error::usage("-f: for the standard input it is -m -"));
            }
            Given::Option(_, file) => GivenPart::File(file.into()),
            Given::Operand(at) if at >= first && is_stdin(at) => GivenPart::Stdin,
            Given::Operand(at) if words.first() == Some(&at) => {
                let words: Vec<&str> = words.iter().map(|at| operands[*at].as_str()).collect();
                said(words.join(" "), "task", |it| it.trim().is_empty())?
            }
            Given::Operand(_) => continue,
        });
    }
    if parts
        .iter()
        .filter(|part| **part == GivenPart::Stdin)
        .count()
        > 1
    {
        return Err(Error::usage(
            "-m - is given twice, and stdin has only one text",
        ));
    }
    Ok(parts)
}
