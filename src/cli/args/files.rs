//! Commands that are about an agent's files and about workspaces of older engines.

use super::{Arg, Command, Format, format_value, help, next, path, unexpected, usage, wrong};
use crate::cli::schemas;
use crate::cli::templates;
use crate::error::{Error, Result};
use lexopt::Parser;
use std::path::PathBuf;

pub(super) fn init(parser: &mut Parser) -> Result<Command> {
    let (mut dir, mut template, mut yes) = (None, None, false);
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('t'), "template") => {
                let name = parser.value().map_err(|e| wrong(&e))?;
                let name = name.to_string_lossy();
                let names = templates::ALL.map(|template| template.name);
                template = templates::ALL.into_iter().find(|t| t.name == name);
                if template.is_none() {
                    return Err(usage("there is no template", &names, &name));
                }
            }
            ref arg if arg.is(Some('y'), "yes") => yes = true,
            Arg::Short('h') => return Ok(help(Some("init"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("init"), true)),
            Arg::Value(value) if value.is_empty() => {
                return Err(Error::usage("an empty path names nothing"));
            }
            Arg::Value(value) if dir.is_none() => dir = Some(PathBuf::from(value)),
            other => return Err(unexpected(&other, &["template", "yes", "help"])),
        }
    }
    let dir = dir.unwrap_or_else(|| PathBuf::from("."));
    Ok(Command::Init { dir, template, yes })
}

pub(super) fn check(parser: &mut Parser) -> Result<Command> {
    let (mut agent, mut format) = (None, Format::Text);
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(None, "format") => format = format_value(parser)?,
            Arg::Short('h') => return Ok(help(Some("check"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("check"), true)),
            Arg::Value(value) if agent.is_none() => agent = Some(PathBuf::from(value)),
            other => return Err(unexpected(&other, &["format", "help"])),
        }
    }
    let agent = agent.unwrap_or_else(|| PathBuf::from("."));
    Ok(Command::Check { agent, format })
}

pub(super) fn schema(parser: &mut Parser) -> Result<Command> {
    let names = schemas::ALL.map(|schema| schema.name);
    let mut found = None;
    while let Some(arg) = next(parser)? {
        match arg {
            Arg::Short('h') => return Ok(help(Some("schema"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("schema"), true)),
            Arg::Value(name) if found.is_none() => {
                let name = name.to_string_lossy();
                found = schemas::ALL.into_iter().find(|schema| schema.name == name);
                if found.is_none() {
                    return Err(usage("there is no schema", &names, &name));
                }
            }
            other => return Err(unexpected(&other, &["help"])),
        }
    }
    let form = format!("schema needs a file: {}", names.join(", "));
    let schema = found.ok_or_else(|| Error::usage(form))?;
    Ok(Command::Schema { schema })
}

pub(super) fn migrate(parser: &mut Parser) -> Result<Command> {
    let mut work_dir = None;
    while let Some(arg) = next(parser)? {
        match arg {
            ref arg if arg.is(Some('w'), "work-dir") => work_dir = Some(path(parser)?),
            Arg::Short('h') => return Ok(help(Some("migrate"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("migrate"), true)),
            other => return Err(unexpected(&other, &["work-dir", "help"])),
        }
    }
    let missing = || Error::usage("migrate needs the workspace: -w DIR");
    Ok(Command::Migrate {
        work_dir: work_dir.ok_or_else(missing)?,
    })
}

pub(super) fn tool(parser: &mut Parser) -> Result<Command> {
    const FORM: &str = "the form is: delta tool expand FILE";
    let mut words = Vec::new();
    while let Some(arg) = next(parser)? {
        match arg {
            Arg::Short('h') => return Ok(help(Some("tool"), false)),
            ref arg if arg.is(None, "help") => return Ok(help(Some("tool"), true)),
            Arg::Value(value) => words.push(value),
            other => return Err(unexpected(&other, &["help"])),
        }
    }
    match words.as_slice() {
        [verb, file] if verb == "expand" => Ok(Command::ToolExpand { file: file.into() }),
        [verb, ..] if verb != "expand" => Err(usage(
            "unknown command",
            &["expand"],
            &verb.to_string_lossy(),
        )),
        _ => Err(Error::usage(FORM)),
    }
}
