//! The values of options and operands, as they are kept.

use super::table::{ValueKind, WORD_ALIASES};
use crate::error::{Error, Result};
use crate::text::ids::RunId;
use crate::text::suggestion::nearest;
use std::ffi::{OsStr, OsString};

/// A value as it is kept: words in the spelling of their table.
pub(super) fn check_value(kind: ValueKind, given: OsString, name: &str) -> Result<OsString> {
    let wrong = |what: &str| {
        let shown = given.to_string_lossy();
        Err(Error::usage(format!(
            "{name}: '{}' is not {what}",
            shown.escape_debug()
        )))
    };
    match kind {
        ValueKind::File | ValueKind::Directory | ValueKind::Workspace if given.is_empty() => {
            Err(Error::usage(format!("{name}: an empty path names nothing")))
        }
        ValueKind::Text | ValueKind::Pair | ValueKind::Run | ValueKind::Other
            if given.to_str().is_none() =>
        {
            Err(Error::usage(format!("{name}: the value is not UTF-8")))
        }
        ValueKind::Pair => match given.to_string_lossy().split_once('=') {
            Some((key, _)) if !key.is_empty() => Ok(given),
            _ => wrong("of the form KEY=VALUE"),
        },
        ValueKind::Number(least) => match lossy(&given).parse::<u64>() {
            Ok(number) if number >= least => Ok(given),
            _ => wrong(&format!("a whole number, {least} or more")),
        },
        ValueKind::RunId => match RunId::parse(&lossy(&given)) {
            Ok(_) => Ok(given),
            Err(error) => Err(Error::usage(format!("{name}: {error}"))),
        },
        ValueKind::Words(words) => check_word(words, &given, &format!("{name}: unknown value")),
        _ => Ok(given),
    }
}

/// The word in the spelling of the table. `what` begins the error message.
pub(super) fn check_word(words: &[&'static str], given: &OsStr, what: &str) -> Result<OsString> {
    let text = lossy(given);
    let alias = WORD_ALIASES.iter().find(|(alias, _)| *alias == text);
    let meant = alias.map_or(text.as_str(), |(_, word)| *word);
    let folded = |word: &str| word.to_lowercase().replace('_', "-");
    let found = words
        .iter()
        .find(|word| folded(word) == folded(meant))
        .ok_or_else(|| unknown_word(what, &text, words))?;
    Ok((*found).into())
}

pub(super) fn lossy(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// A word that is not allowed there.
pub(crate) fn unknown_word(what: &str, given: &str, words: &[&str]) -> Error {
    let hint = match nearest(given, words.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => match words {
            [only] => format!("it is {only}"),
            words => format!("it is one of {}", words.join(", ")),
        },
    };
    Error::usage(format!("{what} '{}'; {hint}", given.escape_debug()))
}
