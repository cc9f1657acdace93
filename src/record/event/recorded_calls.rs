//! The calls of an answer as the journal has them, for those who show or compare them.

use super::Line;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A call of a tool in an answer.
#[derive(Deserialize)]
pub(crate) struct RecordedCall<'a> {
    #[serde(borrow, default)]
    pub id: Cow<'a, str>,
    #[serde(borrow)]
    pub function: RecordedFunction<'a>,
}

#[derive(Deserialize)]
pub(crate) struct RecordedFunction<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// A string that holds JSON, or any other value.
    #[serde(borrow)]
    pub arguments: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// The calls of an answer, in order; none if they cannot be read.
    pub(crate) fn calls(&self) -> Vec<RecordedCall<'a>> {
        let calls = self.tool_calls.map(|raw| serde_json::from_str(raw.get()));
        calls.and_then(Result::ok).unwrap_or_default()
    }
}
