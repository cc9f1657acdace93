//! The forms in which the results of an evaluation are printed.

use crate::text::names::named_enum;

named_enum! {
    /// The form in which results of an evaluation are printed.
    #[derive(Default)]
    pub(crate) enum EvalFormat {
        /// A table.
        #[default]
        Text = "text",
        /// One object.
        Json = "json",
        /// An object for each trial.
        Jsonl = "jsonl",
        Junit = "junit",
        Tap = "tap",
    }
}

impl EvalFormat {
    pub(crate) fn is_json(self) -> bool {
        self == Self::Json
    }
}
