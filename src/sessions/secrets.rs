//! The engine's API keys, which no file of a session may hold.
//!
//! Unaware of sessions and shells, but for the forms in which a shell prints a variable.

use crate::text::redaction::{self, SECRET_NAMES, is_secret};
use std::env;

/// The values of the variables that hold a key, as far as they are secret.
#[derive(Debug)]
pub(crate) struct ApiKeys(Vec<String>);

impl ApiKeys {
    pub(crate) fn from_environment() -> Self {
        let values = SECRET_NAMES.iter().filter_map(|name| env::var(name).ok());
        let keys = values.map(|value| value.trim().to_owned());
        Self(keys.filter(|key| is_secret(key)).collect())
    }

    /// The variables that no session inherits from this process: those that hold a key, under any name.
    pub(crate) fn variable_names(&self) -> Vec<String> {
        let holds_key = |value: &str| self.0.iter().any(|key| value.contains(key.as_str()));
        let copies = env::vars_os()
            .filter(|(_, value)| holds_key(&value.to_string_lossy()))
            .filter_map(|(name, _)| name.into_string().ok());
        let own = SECRET_NAMES.map(str::to_owned).into_iter();
        own.chain(copies).collect()
    }

    /// A text without its keys; `None` if it has none.
    pub(crate) fn redact(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.0.iter().fold(None, |clean, key| {
            redaction::redact(clean.as_deref().unwrap_or(text), key).or(clean)
        })
    }

    /// The variables that a shell printed, without those whose value is a key, and with the keys in others
    /// redacted. `None` if it has none.
    pub(crate) fn redact_variables(&self, printed: &[u8]) -> Option<Vec<u8>> {
        self.redact(printed)?;
        let is_copy = |line: &[u8]| {
            let mut parts = line.trim_ascii_end().splitn(2, |byte| *byte == b'=');
            let value = parts.nth(1).unwrap_or_default();
            let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
            let value = quoted(b"\"").or_else(|| quoted(b"'")).unwrap_or(value);
            self.0.iter().any(|key| key.as_bytes() == value)
        };
        let lines = printed.split_inclusive(|byte| *byte == b'\n');
        let kept: Vec<u8> = lines
            .filter(|line| !is_copy(line))
            .flatten()
            .copied()
            .collect();
        self.redact(&kept).or(Some(kept))
    }
}
