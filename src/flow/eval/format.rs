//! The forms in which the results of an evaluation are printed.

/// The form in which results of an evaluation are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EvalFormat {
    /// A table.
    #[default]
    Text,
    /// One object.
    Json,
    /// An object for each trial.
    Jsonl,
    Junit,
    Tap,
}

impl EvalFormat {
    /// In the order of the manual.
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("text", Self::Text),
        ("json", Self::Json),
        ("jsonl", Self::Jsonl),
        ("junit", Self::Junit),
        ("tap", Self::Tap),
    ];

    pub(crate) fn is_json(self) -> bool {
        self == Self::Json
    }
}
