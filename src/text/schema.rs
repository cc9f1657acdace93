//! JSON Schema: a schema compiles once, and says of a value everything that is wrong with it.
//!
//! The one file that knows the library. Nothing is fetched: a schema that refers to another file or
//! host is refused.

mod references;

use crate::text::json::{self, LARGEST_SCHEMA, parser_message};
use crate::text::shorten::{cut_to_columns, head};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::Value;
use std::fmt::{self, Write};

/// How many mismatches of one value are reported.
const MISMATCHES: usize = 50;

/// Characters of one message; it quotes the value, which may be large.
const MESSAGE_CHARACTERS: usize = 500;

/// Levels of a value of which it is reported where it does not fit a schema that refers to itself: each
/// level multiplies the places to look at.
const EXPLAINED_LEVELS: usize = 12;

/// Bytes that a pattern may take once compiled, and the steps that matching it may go back.
const PATTERN_SIZE: usize = 4 << 20;
const PATTERN_STEPS: usize = 1_000_000;

/// A schema, compiled.
#[derive(Clone, Debug)]
pub(crate) struct JsonSchema {
    /// The schema as it was written, for the program that must conform to it.
    pub source: Value,
    validator: Validator,
    is_recursive: bool,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// JSON pointer into the value; empty: the value itself.
    pub path: String,
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

impl JsonSchema {
    /// Reads a schema document.
    ///
    /// # Errors
    /// It is not a schema: why, with the place in it.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, String> {
        if document.len() > LARGEST_SCHEMA {
            let length = document.len();
            return Err(format!(
                "{length} bytes are too many; the limit is {LARGEST_SCHEMA}"
            ));
        }
        let source = serde_json::from_slice(json::without_mark(document))
            .map_err(|e| format!("not valid JSON: {}", parser_message(&e)))?;
        Self::compile(source)
    }

    /// Compiles a schema: 2020-12 unless its `$schema` says otherwise.
    fn compile(source: Value) -> Result<Self, String> {
        let is_recursive = references::follow_references(&source)?;
        let patterns = PatternOptions::fancy_regex()
            .size_limit(PATTERN_SIZE)
            .dfa_size_limit(PATTERN_SIZE)
            .backtrack_limit(PATTERN_STEPS);
        let built = jsonschema::options()
            .offline()
            // Otherwise only drafts before 2019-09 would check it.
            .should_validate_formats(true)
            .with_pattern_options(patterns)
            .build(&source);
        match built {
            Ok(validator) => Ok(Self {
                source,
                validator,
                is_recursive,
            }),
            Err(error) => Err(describe_error(&error)),
        }
    }

    pub(crate) fn admits(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// Everything that does not fit in a value, at most so much.
    pub(crate) fn mismatches(&self, value: &Value) -> Vec<Mismatch> {
        if self.is_recursive && is_deeper(value, EXPLAINED_LEVELS) {
            if self.admits(value) {
                return Vec::new();
            }
            let message = "it does not fit; it is nested too deep for a schema that refers to itself \
                           to find out where";
            return vec![Mismatch {
                path: String::new(),
                message: message.to_owned(),
            }];
        }
        let errors = self.validator.iter_errors(value).take(MISMATCHES);
        let mismatches = errors.map(|error| Mismatch {
            path: error.instance_path().to_string(),
            message: describe_mismatch(&error),
        });
        mismatches.collect()
    }
}

/// The value has more levels of lists and objects than that.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut below: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => return false,
    };
    levels == 0 || below.any(|value| is_deeper(value, levels - 1))
}

/// Why a document is not a schema, with the place in it.
fn describe_error(error: &ValidationError) -> String {
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            let uri = cut_message(uri);
            return format!(
                "refers to {uri}, and nothing is fetched; copy it into $defs of this file"
            );
        }
        ValidationErrorKind::Referencing(ReferencingError::UnknownSpecification {
            specification,
            ..
        }) => {
            let uri = cut_message(specification);
            return format!(
                "$schema: the draft {uri} is not known; remove it, or write https://json-schema.org/draft/2020-12/schema"
            );
        }
        _ => {}
    }
    let path = error.instance_path().to_string();
    let message = cut_message(error);
    Mismatch { path, message }.to_string()
}

/// What does not fit, with the value, or with its beginning if no room would be left for what is wrong with it.
fn describe_mismatch(error: &ValidationError) -> String {
    let message = cut_message(error);
    if !message.ends_with('…') {
        return message;
    }
    let value = cut_to_columns(&cut_message(error.instance()), VALUE_SHOWN);
    cut_message(&error.masked_with(value))
}

/// Columns of a value that are shown before what is wrong with it.
const VALUE_SHOWN: usize = 80;

/// The beginning of what something says of itself. What comes behind is never made.
fn cut_message(said: &impl fmt::Display) -> String {
    struct Short(String);
    impl Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MESSAGE_CHARACTERS - self.0.len();
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            self.0.push_str(head(text, room));
            self.0.push('…');
            Err(fmt::Error)
        }
    }
    let mut short = Short(String::new());
    crate::error::ignore(write!(short, "{said}"));
    short.0
}

#[cfg(test)]
mod tests;
