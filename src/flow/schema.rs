//! JSON Schema: a schema compiles once, and says of a value everything that is wrong with it.
//!
//! The one file that knows the library. Nothing is fetched: a schema that refers to another file or
//! host is refused. Unaware of flows.

mod work;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::Value;
use std::fmt::{self, Write};

/// The most that is said about one value.
const MOST_MISMATCHES: usize = 50;

/// Characters of one message; it quotes the value, which may be large.
const MOST_TEXT: usize = 500;

/// Bytes that a pattern may have, those that it may take once compiled, and the steps that matching
/// it may go back.
const PATTERN_LENGTH: usize = 16 << 10;
const PATTERN_SIZE: usize = 4 << 20;
const PATTERN_STEPS: usize = 1_000_000;

/// A schema, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// The schema as it was written, for whoever must answer in it.
    pub source: Value,
    validator: Validator,
    /// Of a value that is nested deeper than this it is only said that it does not fit.
    deepest: Option<usize>,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// JSON pointer into the value; empty: the value itself.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl Schema {
    /// Reads a schema: 2020-12 unless its `$schema` says otherwise.
    ///
    /// # Errors
    /// What is wrong with it, with the place in it.
    pub(crate) fn compile(source: Value) -> Result<Self, String> {
        if let Some(length) = longest_pattern(&source).filter(|length| *length > PATTERN_LENGTH) {
            return Err(format!(
                "a pattern of {length} bytes is too long; the limit is {PATTERN_LENGTH}"
            ));
        }
        let deepest = work::depth(&source)?;
        let patterns = PatternOptions::fancy_regex()
            .size_limit(PATTERN_SIZE)
            .dfa_size_limit(PATTERN_SIZE)
            .backtrack_limit(PATTERN_STEPS);
        let built = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .build(&source);
        match built {
            Ok(validator) => Ok(Self {
                source,
                validator,
                deepest,
            }),
            Err(error) => Err(refusal(&error)),
        }
    }

    /// Whether a value fits.
    pub(crate) fn admits(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// What does not fit in a value; nothing if it does.
    pub(crate) fn mismatches(&self, value: &Value) -> Vec<Mismatch> {
        if self.deepest.is_some_and(|most| is_deeper(value, most)) {
            if self.admits(value) {
                return Vec::new();
            }
            let message = "it does not fit; it is nested too deep for this schema, which refers to \
                           itself in several ways, to find out where";
            return vec![Mismatch {
                path: String::new(),
                message: message.to_owned(),
            }];
        }
        let errors = self.validator.iter_errors(value).take(MOST_MISMATCHES);
        let told = errors.map(|error| Mismatch {
            path: error.instance_path().to_string(),
            message: cut(&error),
        });
        told.collect()
    }
}

/// Whether there are more levels of lists and objects in a value.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut below: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => return false,
    };
    levels == 0 || below.any(|value| is_deeper(value, levels - 1))
}

/// Why a schema is none, with the place in it.
fn refusal(error: &ValidationError) -> String {
    let elsewhere = match error.kind() {
        ValidationErrorKind::Referencing(
            ReferencingError::Unretrievable { uri, .. }
            | ReferencingError::UnknownSpecification {
                specification: uri, ..
            },
        ) => Some(uri),
        _ => None,
    };
    if let Some(uri) = elsewhere {
        let uri = cut(uri);
        return format!("refers to {uri}, and nothing is fetched; copy it into $defs of this file");
    }
    let path = error.instance_path().to_string();
    let message = cut(error);
    Mismatch { path, message }.to_string()
}

/// The length of the longest regular expression in a schema, and perhaps of data that looks like one.
fn longest_pattern(schema: &Value) -> Option<usize> {
    match schema {
        Value::Object(map) => {
            let keys = |value: &Value| value.as_object()?.keys().map(String::len).max();
            let own = map.get("pattern").and_then(Value::as_str).map(str::len);
            let of_keys = map.get("patternProperties").and_then(keys);
            let below = map.values().filter_map(longest_pattern).max();
            own.max(of_keys).max(below)
        }
        Value::Array(items) => items.iter().filter_map(longest_pattern).max(),
        _ => None,
    }
}

/// The beginning of what something says of itself. What comes behind is never made.
fn cut(said: &impl fmt::Display) -> String {
    struct Short(String);
    impl Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MOST_TEXT - self.0.len();
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            let end = (0..=room).rev().find(|at| text.is_char_boundary(*at));
            self.0.push_str(&text[..end.unwrap_or(0)]);
            self.0.push('…');
            Err(fmt::Error)
        }
    }
    let mut short = Short(String::new());
    crate::error::may_fail(write!(short, "{said}"));
    short.0
}

#[cfg(test)]
mod tests;
