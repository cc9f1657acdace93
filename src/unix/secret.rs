//! A key, or another value that only the one it is for may see.

use crate::text::redaction::{self, is_secret};
use crate::unix::process::Variable;
use std::fmt;
use std::path::Path;

/// The variable with which a run of an agent gets the key for the endpoint in the agent's files.
pub(crate) const GIVEN_KEY: &str = "DELTA_PROVIDER_KEY";

/// An API key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn of(text: String) -> Self {
        Self(text)
    }

    /// A key from somewhere else than the variables that hold one; none if it is empty, or has characters
    /// that no key can have.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_key = !text.is_empty() && ureq::http::HeaderValue::from_str(text).is_ok();
        is_key.then(|| Self(text.to_owned()))
    }

    /// The value of a variable that only one program is to have. A path that is there is no secret.
    pub(crate) fn of_variable(value: &str) -> Option<Self> {
        let value = value.trim();
        let is_path = value.starts_with('/') && Path::new(value).exists();
        (!value.is_empty() && !is_path).then(|| Self(value.to_owned()))
    }

    /// The variable with which a run of an agent gets it for the endpoint in the agent's files.
    pub(crate) fn given(&self) -> Variable {
        (GIVEN_KEY.to_owned(), Some(self.0.clone()))
    }

    /// The key itself, for the header in which it is sent.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Takes the key out of something that came from outside. True if it was in there.
    pub(crate) fn redact(&self, bytes: &mut Vec<u8>) -> bool {
        if is_secret(&self.0)
            && let Some(clean) = redaction::redact(bytes, &self.0)
        {
            *bytes = clean;
            return true;
        }
        false
    }

    /// The place of a text's end that may be the beginning of the key.
    pub(crate) fn unended(&self, text: &str) -> Option<usize> {
        redaction::unended(text.as_bytes(), &self.0).filter(|_| is_secret(&self.0))
    }

    /// Takes the key out of a text.
    pub(crate) fn redact_text(&self, text: &mut String) -> bool {
        let mut bytes = std::mem::take(text).into_bytes();
        let found = self.redact(&mut bytes);
        *text = String::from_utf8_lossy(&bytes).into_owned();
        found
    }

    /// The bytes of the key in the longest of its spellings.
    pub(crate) fn longest(&self) -> usize {
        self.0.len() * redaction::LONGEST_CHARACTER
    }
}

/// The reason why a text cannot be sent as a key.
pub(crate) fn key_objection(key: &str) -> Option<String> {
    const QUOTES: &str = "'\"`‘’‚“”„«»";
    let is_quoted = |text: &str| {
        text.starts_with(|c| QUOTES.contains(c)) && text.ends_with(|c| QUOTES.contains(c))
    };
    if is_quoted(key.trim()) {
        return Some("it has quotes around it; omit them".to_owned());
    }
    if key.trim() != key {
        return Some("it has blanks or line breaks around it; omit them".to_owned());
    }
    let is_sendable = |c: char| matches!(c, ' '..='~');
    let (at, wrong) = key.chars().enumerate().find(|(_, c)| !is_sendable(*c))?;
    let (number, shown) = (at + 1, wrong.escape_unicode());
    Some(format!(
        "character {number} is '{shown}', which no header can carry"
    ))
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
