//! Names that become parts of paths: they cannot hold a separator.

use crate::text::timestamp::Timestamp;
use std::fmt::{self, Display};
use std::hash::{BuildHasher, RandomState};

/// A run's name: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot, and not one of the names
/// beside runs in the control plane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunId(String);

/// The files of a control plane that are not runs.
const TAKEN: [&str; 9] = [
    "VERSION",
    "LATEST",
    "lock",
    "origin",
    "context_artifacts",
    "cache",
    "files.git",
    // Of layouts before 1.2.
    "runs",
    "schema_version.txt",
];

impl RunId {
    /// How many characters a name may have.
    pub(crate) const LONGEST: usize = 64;

    /// `YYYYMMDD_HHMMSS_xxxxxx`: the time in UTC and six random hexadecimal digits.
    pub(crate) fn generate(now: Timestamp) -> Self {
        Self(format!("{}_{}", now.id_prefix(), hex(6)))
    }

    /// Takes a name given by a person.
    ///
    /// # Errors
    /// The rule that the name breaks.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let fault = if text.is_empty() {
            "it is empty"
        } else if text.len() > Self::LONGEST {
            "it is longer than 64 characters"
        } else if text.starts_with('.') {
            "it starts with a dot"
        } else if !text.chars().all(allowed) {
            "only letters, digits and ._- are allowed"
        } else if TAKEN.contains(&text) {
            "delta has a file of its own with this name"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(format!(
            "'{}' cannot name a run: {fault}",
            text.escape_debug()
        ))
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Random lower-case hexadecimal digits, at most 16, for names that must not meet by chance: from the system's random
/// numbers, as a generator seeded by the clock gives two processes that start at the same instant the same names.
pub(crate) fn hex(digits: usize) -> String {
    let random = RandomState::new().hash_one(0u8);
    format!("{random:016x}")[..digits].to_owned()
}

/// True for the name of a commit of git: a SHA-1 in lower-case hexadecimal digits.
pub(crate) fn is_hash(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == 40 && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_id_is_a_valid_one() {
        let id = RunId::generate(Timestamp::from_millis(1_760_366_122_123));
        assert!(id.as_str().starts_with("20251013_143522_"));
        assert_eq!(id.as_str().len(), 22);
        assert_eq!(RunId::parse(id.as_str()), Ok(id));
    }

    #[test]
    fn a_name_that_would_leave_the_control_plane_is_refused() {
        for bad in [
            "",
            ".",
            "..",
            ".x",
            "a/b",
            "a\0",
            "LATEST",
            "VERSION",
            "lock",
            "origin",
            "files.git",
            "é",
            &"a".repeat(65),
        ] {
            assert!(RunId::parse(bad).is_err(), "{bad}");
        }
        assert!(RunId::parse(&"a".repeat(64)).is_ok());
        assert!(RunId::parse("job-7.2_b").is_ok());
    }
}
