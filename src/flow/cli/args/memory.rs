//! The command line of `delta-flow memory`.

use super::help;
use crate::cli::args::{Arg, Format, format_value, next, path, unexpected, usage, wrong};
use crate::error::{Error, Result};
use crate::flow::manifest::memory::StoreName;
use lexopt::{Parser, ValueExt};
use std::path::PathBuf;

/// What `memory` is to do.
#[derive(Debug)]
pub(crate) struct MemoryArgs {
    /// Which store is meant.
    pub store: StoreName,
    /// The flow's directory.
    pub dir: PathBuf,
    /// The workspace.
    pub work_dir: PathBuf,
    /// Of an item that is added, or of which one is enough to be listed.
    pub tags: Vec<String>,
    /// What is to be done with it.
    pub what: MemoryAction,
}

/// To do with a store.
#[derive(Debug)]
pub(crate) enum MemoryAction {
    /// An item is added: this text.
    AddText(String),
    /// An item is added: the JSON value in a file, or `-`.
    AddFile(String),
    /// Its items are listed.
    List(Format),
}

const WORDS: [&str; 2] = ["add", "list"];
const OPTIONS: [&str; 6] = ["message", "input", "tag", "work-dir", "format", "help"];

/// Reads what follows `memory`.
pub(super) fn parse(parser: &mut Parser) -> Result<super::FlowCommand> {
    let mut words: Vec<String> = Vec::new();
    let (mut tags, mut format, mut work_dir) = (Vec::new(), None, PathBuf::from("."));
    let (mut message, mut input) = (None, None);
    let text = |parser: &mut Parser| -> Result<String> {
        let value = parser.value().map_err(|e| wrong(&e))?;
        value.string().map_err(|e| wrong(&e))
    };
    while let Some(arg) = next(parser)? {
        match arg {
            Arg::Short('h') => return Ok(help(Some("memory"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("memory"), true)),
            ref arg if arg.is(Some('m'), "message") => message = Some(text(parser)?),
            ref arg if arg.is(Some('i'), "input") => input = Some(text(parser)?),
            ref arg if arg.is(None, "tag") => tags.push(text(parser)?),
            ref arg if arg.is(Some('w'), "work-dir") => work_dir = path(parser)?,
            ref arg if arg.is(None, "format") => format = Some(format_value(parser)?),
            Arg::Value(value) if words.len() < 3 => {
                words.push(value.string().map_err(|e| wrong(&e))?);
            }
            other => return Err(unexpected(&other, &OPTIONS)),
        }
    }
    let mut words = words.into_iter();
    let verb = words.next().unwrap_or_default();
    let store = store(words.next().as_deref(), &verb)?;
    let what = match (verb.as_str(), message, input, format) {
        ("add", Some(text), None, None) => MemoryAction::AddText(text),
        ("add", None, Some(file), None) => MemoryAction::AddFile(file),
        ("add", _, _, Some(_)) => return Err(Error::usage("memory add: takes no --format")),
        ("add", ..) => {
            let message = "memory add: give either -m TEXT or -i FILE";
            return Err(Error::usage(message));
        }
        (_, None, None, format) => MemoryAction::List(format.unwrap_or_default()),
        _ => return Err(Error::usage("memory list: takes neither -m nor -i")),
    };
    Ok(super::FlowCommand::Memory(MemoryArgs {
        store,
        dir: words
            .next()
            .map_or_else(|| PathBuf::from("."), PathBuf::from),
        work_dir,
        tags,
        what,
    }))
}

fn store(given: Option<&str>, verb: &str) -> Result<StoreName> {
    if !WORDS.contains(&verb) {
        return Err(usage(
            "memory: the first word is add or list, not",
            &WORDS,
            verb,
        ));
    }
    // What tasks remember is what their nodes brought, and nothing else.
    let stores = &StoreName::NAMES[usize::from(verb == "add")..];
    let names: Vec<&str> = stores.iter().map(|(name, _)| *name).collect();
    let found = stores.iter().find(|(name, _)| Some(*name) == given);
    let wrong = || match given {
        Some(given) => usage(&format!("memory {verb}: no such store"), &names, given),
        None => Error::usage(format!("memory {verb}: name a store: {}", names.join(", "))),
    };
    found.map(|(_, which)| *which).ok_or_else(wrong)
}
