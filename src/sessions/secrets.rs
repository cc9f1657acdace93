//! The engine's API keys, which no file of a session may hold.
//!
//! Unaware of sessions and shells, but for the forms in which a shell prints a variable.

use memchr::memmem::find_iter;
use std::env;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The variables that hold a key, which no session sees.
pub(crate) const KEY_NAMES: [&str; 4] = [
    "DELTA_API_KEY",
    "DELTA_PROVIDER_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
];

/// Replaces a key in a file.
const REDACTED: &[u8] = b"REDACTED_API_KEY";

/// The values of the variables that hold a key, as far as they are secret.
#[derive(Debug)]
pub(crate) struct ApiKeys(Vec<Vec<u8>>);

impl ApiKeys {
    pub(crate) fn from_environment() -> Self {
        let values = KEY_NAMES.iter().filter_map(env::var_os);
        let keys = values.map(|value| value.into_vec().trim_ascii().to_vec());
        Self(keys.filter(|key| is_secret(key)).collect())
    }

    /// The variables that no session inherits from this process: those that hold a key, under any name.
    pub(crate) fn variable_names(&self) -> Vec<String> {
        let copies = env::vars_os().filter(|(_, value)| self.occur_in(value.as_bytes()));
        let copies = copies.filter_map(|(name, _)| name.into_string().ok());
        KEY_NAMES
            .map(str::to_owned)
            .into_iter()
            .chain(copies)
            .collect()
    }

    fn occur_in(&self, bytes: &[u8]) -> bool {
        self.0
            .iter()
            .any(|key| find_iter(bytes, key).next().is_some())
    }

    /// A text without its keys; `None` if it has none.
    pub(crate) fn redact(&self, text: &[u8]) -> Option<Vec<u8>> {
        self.occur_in(text).then(|| {
            let mut text = text.to_vec();
            for key in &self.0 {
                text = replace_all(&text, key);
            }
            text
        })
    }

    /// The variables that a shell printed, without those whose value is a key, and with the keys in others
    /// redacted. `None` if it has none.
    pub(crate) fn redact_variables(&self, printed: &[u8]) -> Option<Vec<u8>> {
        let is_copy = |line: &[u8]| {
            let mut parts = line.trim_ascii_end().splitn(2, |byte| *byte == b'=');
            let value = parts.nth(1).unwrap_or_default();
            let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
            let value = quoted(b"\"").or_else(|| quoted(b"'")).unwrap_or(value);
            self.0.iter().any(|key| key == value)
        };
        self.occur_in(printed).then(|| {
            let lines = printed.split_inclusive(|byte| *byte == b'\n');
            let kept: Vec<u8> = lines
                .filter(|line| !is_copy(line))
                .flatten()
                .copied()
                .collect();
            self.redact(&kept).unwrap_or(kept)
        })
    }
}

/// Whether a key is one, and not a word that stands in for it where a local server wants any: such a
/// word may occur in every text.
fn is_secret(key: &[u8]) -> bool {
    let looks_random = key.starts_with(b"sk-") || key.iter().any(u8::is_ascii_digit);
    key.len() >= 16 || key.len() >= 8 && looks_random
}

fn replace_all(text: &[u8], key: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut end = 0;
    for at in find_iter(text, key) {
        replaced.extend_from_slice(&text[end..at]);
        replaced.extend_from_slice(REDACTED);
        end = at + key.len();
    }
    replaced.extend_from_slice(&text[end..]);
    replaced
}
