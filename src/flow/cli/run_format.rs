//! The forms in which the result of a run is printed.

use crate::text::options::format::OutputFormat;

/// The form in which `run` prints a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunFormat {
    /// The outputs, when all have ended.
    #[default]
    Text,
    /// One object.
    Json,
    /// An object for each root task, when it ends.
    Jsonl,
}

impl RunFormat {
    /// In the order of the manual.
    pub(crate) const ALL: [(&'static str, Self); 3] = [
        ("text", Self::Text),
        ("json", Self::Json),
        ("jsonl", Self::Jsonl),
    ];

    /// The format for a word that the parser has accepted.
    pub(crate) fn of_word(word: Option<&str>) -> Self {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(name, _)| word == Some(name));
        found.map(|(_, format)| format).unwrap_or_default()
    }

    /// How errors are printed that keep the run from beginning.
    pub(crate) fn of_errors(self) -> OutputFormat {
        match self {
            Self::Json => OutputFormat::Json,
            Self::Text | Self::Jsonl => OutputFormat::Text,
        }
    }
}
