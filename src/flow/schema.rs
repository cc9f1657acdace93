//! JSON Schema: a schema compiles once, and says of a value everything that is wrong with it.
//!
//! The one file that knows the library. Nothing is fetched: a schema that refers to another file or
//! host is refused. Unaware of flows.

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
        if let Some(length) = longest_pattern(&source).filter(|length| *length > PATTERN_LENGTH) {
            return Err(format!(
                "a pattern of {length} bytes is too long; the limit is {PATTERN_LENGTH}"
            ));
        }
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
            Err(error) => Err(refusal(&error)),
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
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(source: Value) -> Schema {
        Schema::compile(source).unwrap()
    }

    #[test]
    fn every_mismatch_is_told_with_its_path() {
        let schema = schema(json!({
            "type": "object",
            "required": ["a"],
            "properties": {"b": {"items": {"type": "integer"}}},
        }));
        assert!(schema.admits(&json!({"a": 1, "b": [1, 2]})));
        assert_eq!(schema.mismatches(&json!({"a": 1})), []);
        let wrong = schema.mismatches(&json!({"b": [1, "x", null]}));
        let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "\"a\" is a required property",
                "/b/1: \"x\" is not of type \"integer\"",
                "/b/2: null is not of type \"integer\"",
            ]
        );
    }

    #[test]
    fn little_is_said_of_a_large_value_and_of_many_mismatches() {
        let numbers = schema(json!({"type": "array", "items": {"type": "integer"}}));
        let text = "ä".repeat(1 << 20);
        let wrong = numbers.mismatches(&json!(text));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].message.len() < 600, "{}", wrong[0].message.len());
        let many = json!(vec!["x"; 100_000]);
        assert_eq!(numbers.mismatches(&many).len(), MOST_MISMATCHES);
    }

    #[test]
    fn the_draft_is_2020_12_unless_the_schema_says_otherwise() {
        let tuple = json!({"prefixItems": [{"type": "integer"}]});
        assert!(!schema(tuple.clone()).admits(&json!(["x"])));
        let mut old = tuple;
        old["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        assert!(schema(old).admits(&json!(["x"])));
    }

    #[test]
    fn what_refers_elsewhere_is_refused() {
        for uri in [
            "https://example.com/a.json",
            "http://127.0.0.1:1/a",
            "file:///etc/passwd",
            "other.json",
            "../schemas/other.json#/x",
            "urn:isbn:1",
        ] {
            for keyword in ["$ref", "$dynamicRef"] {
                let why = Schema::compile(json!({keyword: uri})).unwrap_err();
                assert!(why.contains("nothing is fetched"), "{keyword} {uri}: {why}");
            }
        }
        let meta = json!({"$schema": "https://example.com/meta"});
        let why = Schema::compile(meta).unwrap_err();
        assert!(why.contains("https://example.com/meta"), "{why}");
        let within = json!({
            "$id": "https://example.com/a.json",
            "$defs": {"b": {"$id": "b.json", "type": "string"}},
            "$ref": "b.json",
        });
        assert!(schema(within).admits(&json!("x")));
    }

    #[test]
    fn a_schema_that_leads_to_itself_comes_to_an_end() {
        for endless in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
            json!({"not": {"$ref": "#"}}),
        ] {
            let endless = schema(endless);
            let value = json!({"a": 1});
            assert_eq!(
                endless.admits(&value),
                endless.mismatches(&value).is_empty()
            );
        }
    }

    #[test]
    fn a_pattern_that_goes_back_for_ever_is_given_up() {
        let slow = schema(json!({"pattern": "^(?=(a+)+$)(a|a)*\\1b$"}));
        assert!(!slow.admits(&json!("a".repeat(2000))));
    }

    #[test]
    fn huge_patterns_are_refused() {
        for pattern in ["(a{1000}){1000}".to_owned(), "a".repeat(10 << 20)] {
            assert!(Schema::compile(json!({"pattern": pattern})).is_err());
            assert!(Schema::compile(json!({"patternProperties": {pattern: {}}})).is_err());
        }
    }
}
