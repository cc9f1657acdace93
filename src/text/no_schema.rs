//! The JSON Schema of a build without the feature `flow`: there is none.

/// A schema that there cannot be.
#[derive(Clone, Debug)]
pub(crate) enum JsonSchema {}

impl JsonSchema {
    pub(crate) fn parse(_document: &[u8]) -> Result<Self, String> {
        Err(
            "this delta was built without its feature \"flow\", which checks answers against \
             schemas; check the answer with a command: accept"
                .to_owned(),
        )
    }

    pub(crate) fn mismatches(&self, _value: &serde_json::Value) -> Vec<String> {
        match *self {}
    }
}
