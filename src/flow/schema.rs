//! JSON Schema: a schema compiles once, and says of a value everything that is wrong with it.
//!
//! The one file that knows the library. Nothing is fetched: a schema that refers to another file or
//! host is refused. Unaware of flows.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::fmt::{self, Write};

/// The most that is said about one value.
const MOST_MISMATCHES: usize = 50;

/// Characters of one message; it quotes the value, which may be large.
const MOST_TEXT: usize = 500;

/// Bytes that a compiled pattern may take, and steps that matching it may go back.
const PATTERN_SIZE: usize = 4 << 20;
const PATTERN_STEPS: usize = 1_000_000;

/// A schema, compiled.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The schema as it was written, for whoever must answer in it.
    pub source: Value,
    validator: Validator,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
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
    pub fn compile(source: Value) -> Result<Self, String> {
        let patterns = PatternOptions::fancy_regex()
            .size_limit(PATTERN_SIZE)
            .dfa_size_limit(PATTERN_SIZE)
            .backtrack_limit(PATTERN_STEPS);
        let built = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .build(&source);
        match built {
            Ok(validator) => Ok(Self { source, validator }),
            Err(error) => {
                let path = error.instance_path().to_string();
                let message = cut(&error);
                Err(Mismatch { path, message }.to_string())
            }
        }
    }

    /// Whether a value fits.
    #[must_use]
    pub fn admits(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// What does not fit in a value; nothing if it does.
    #[must_use]
    pub fn mismatches(&self, value: &Value) -> Vec<Mismatch> {
        let errors = self.validator.iter_errors(value).take(MOST_MISMATCHES);
        let told = errors.map(|error| Mismatch {
            path: error.instance_path().to_string(),
            message: cut(&error),
        });
        told.collect()
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
