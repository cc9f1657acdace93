//! The forms of a result that `--format` names.

/// A result for people or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// A table for people or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TableFormat {
    #[default]
    Text,
    /// An array of objects.
    Json,
    /// RFC 4180, with names in the first line.
    Csv,
}

impl OutputFormat {
    /// The format for a word that the parser has accepted.
    pub(crate) fn of_word(word: Option<&str>) -> Self {
        match word {
            // One object ends the lines.
            Some("json" | "jsonl") => Self::Json,
            _ => Self::Text,
        }
    }
}

impl TableFormat {
    /// The format for a word that the parser has accepted.
    pub(crate) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("json") => Self::Json,
            Some("csv") => Self::Csv,
            _ => Self::Text,
        }
    }
}
