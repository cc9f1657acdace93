//! The forms in which the result of a run is printed.

use crate::text::names::named_enum;
use crate::text::options::format::OutputFormat;

named_enum! {
    /// The form in which `run` prints a result.
    #[derive(Default)]
    pub(crate) enum RunFormat {
        /// The outputs, when all have ended.
        #[default]
        Text = "text",
        /// One object.
        Json = "json",
        /// An object for each root task, when it ends.
        Jsonl = "jsonl",
    }
}

impl RunFormat {
    /// The format for a word that the parser has accepted.
    pub(crate) fn of_word(word: Option<&str>) -> Self {
        word.and_then(Self::parse).unwrap_or_default()
    }

    /// How errors are printed that keep the run from beginning.
    pub(crate) fn of_errors(self) -> OutputFormat {
        match self {
            Self::Json => OutputFormat::Json,
            Self::Text | Self::Jsonl => OutputFormat::Text,
        }
    }
}
