//! Words of the command line, and what is wrong with them.

use super::Format;
use crate::error::{Error, Result};
use crate::text::suggestion::nearest;
use lexopt::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

/// One word of the command line.
pub(crate) enum Arg {
    Short(char),
    Long(String),
    Value(OsString),
}

impl Arg {
    pub(crate) fn is(&self, short: Option<char>, long: &str) -> bool {
        match self {
            Self::Short(letter) => Some(*letter) == short,
            Self::Long(name) => name == long,
            Self::Value(_) => false,
        }
    }
}

pub(crate) fn next(parser: &mut Parser) -> Result<Option<Arg>> {
    let arg = parser.next().map_err(|e| wrong(&e))?;
    Ok(arg.map(|arg| match arg {
        lexopt::Arg::Short(letter) => Arg::Short(letter),
        lexopt::Arg::Long(name) => Arg::Long(name.to_owned()),
        lexopt::Arg::Value(value) => Arg::Value(value),
    }))
}

pub(crate) fn path(parser: &mut Parser) -> Result<PathBuf> {
    let value = parser.value().map_err(|e| wrong(&e))?;
    if value.is_empty() {
        return Err(Error::usage("an empty path names nothing"));
    }
    Ok(PathBuf::from(value))
}

pub(crate) fn format_value(parser: &mut Parser) -> Result<Format> {
    let value = parser.value().map_err(|e| wrong(&e))?;
    match &*value.to_string_lossy() {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        other => Err(usage(
            "--format is text or json, not",
            &["text", "json"],
            other,
        )),
    }
}

/// The library's message, in our form.
pub(crate) fn wrong(error: &lexopt::Error) -> Error {
    Error::usage(error.to_string())
}

pub(crate) fn unexpected(arg: &Arg, options: &[&str]) -> Error {
    match arg {
        Arg::Long(name) => {
            let hint = nearest(name, options.iter().copied());
            let hint = hint.map_or_else(String::new, |near| format!("; did you mean --{near}?"));
            Error::usage(format!("unknown option --{name}{hint}"))
        }
        Arg::Short(letter) => Error::usage(format!("unknown option -{letter}; see --help")),
        Arg::Value(value) => Error::usage(format!(
            "unexpected argument '{}'; see --help",
            value.to_string_lossy()
        )),
    }
}

pub(crate) fn usage(what: &str, words: &[&str], given: &str) -> Error {
    if given.is_empty() {
        return Error::usage(format!("{what}; the commands are {}", words.join(", ")));
    }
    let hint = match nearest(given, words.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("there are {}", words.join(", ")),
    };
    Error::usage(format!("{what} '{given}'; {hint}"))
}
