//! As much of JSON Schema 2020-12 as our schemas use. A keyword that is not known here is a failure,
//! so that none is passed over.

use serde_json::Value;

/// Everything that a schema has against a value, each with its place.
pub fn violations(root: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Validator { root }.check(root, value, "", &mut found);
    found
}

struct Validator<'s> {
    root: &'s Value,
}

impl Validator<'_> {
    fn holds(&self, schema: &Value, value: &Value) -> bool {
        let mut found = Vec::new();
        self.check(schema, value, "", &mut found);
        found.is_empty()
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let Value::Object(keywords) = schema else {
            if schema == &Value::Bool(false) {
                found.push(format!("{at}: not allowed"));
            }
            return;
        };
        for (keyword, wanted) in keywords {
            if !self.keyword(keyword, wanted, (schema, value), at, found) {
                found.push(format!("{at}: {keyword} {wanted}"));
            }
        }
    }

    /// Whether a keyword holds. What is wrong further down is added to `found` instead.
    fn keyword(
        &self,
        keyword: &str,
        wanted: &Value,
        (schema, value): (&Value, &Value),
        at: &str,
        found: &mut Vec<String>,
    ) -> bool {
        let list = || wanted.as_array().expect("a list");
        let number = || wanted.as_u64().expect("a number");
        let length = |text: &str| text.chars().count() as u64;
        match keyword {
            "$schema" | "$defs" | "title" | "description" | "default" | "then" | "else"
            | "minContains" | "maxContains" => true,
            "$ref" => {
                let pointer = wanted.as_str().and_then(|name| name.strip_prefix('#'));
                let target = self.root.pointer(pointer.expect("a local reference"));
                self.check(target.expect("a definition"), value, at, found);
                true
            }
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|name| is_of_type(value, name)),
                name => is_of_type(value, name),
            },
            "const" => value == wanted,
            "enum" => list().contains(value),
            "not" => !self.holds(wanted, value),
            "anyOf" => list().iter().any(|one| self.holds(one, value)),
            "oneOf" => list().iter().filter(|one| self.holds(one, value)).count() == 1,
            "if" => {
                let branch = if self.holds(wanted, value) {
                    "then"
                } else {
                    "else"
                };
                if let Some(schema) = schema.get(branch) {
                    self.check(schema, value, at, found);
                }
                true
            }
            "minimum" => value
                .as_f64()
                .is_none_or(|n| n >= wanted.as_f64().expect("a number")),
            "minLength" => value.as_str().is_none_or(|text| length(text) >= number()),
            "minItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 >= number()),
            "pattern" => value
                .as_str()
                .is_none_or(|text| matches(text, wanted.as_str().expect("a pattern"))),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.check(wanted, item, &format!("{at}/{index}"), found);
                }
                true
            }
            "contains" => {
                let items = value.as_array().into_iter().flatten();
                let count = items.filter(|item| self.holds(wanted, item)).count() as u64;
                let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
                count >= limit("minContains").unwrap_or(1)
                    && limit("maxContains").is_none_or(|most| count <= most)
            }
            "required" => {
                let missing = |key: &Value| value.get(key.as_str().expect("a key")).is_none();
                !value.is_object() || !list().iter().any(missing)
            }
            "properties" => {
                for (key, schema) in wanted.as_object().expect("properties") {
                    if let Some(value) = value.get(key) {
                        self.check(schema, value, &format!("{at}/{key}"), found);
                    }
                }
                true
            }
            "additionalProperties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let known = schema.get("properties").and_then(|known| known.get(key));
                    if known.is_none() {
                        self.check(wanted, value, &format!("{at}/{key}"), found);
                    }
                }
                true
            }
            _ => panic!("the keyword {keyword} is not known to the tests"),
        }
    }
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        other => panic!("the type {other} is not known to the tests"),
    }
}

/// The patterns that occur.
fn matches(text: &str, pattern: &str) -> bool {
    let word = |extra: &str| {
        let is_good = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
        (1..=64).contains(&text.len()) && text.chars().all(is_good)
    };
    match pattern {
        "[^A-Za-z]" => text.contains(|c: char| !c.is_ascii_alphabetic()),
        "\\S" => text.contains(|c: char| !c.is_whitespace()),
        "^https?://" => text.starts_with("http://") || text.starts_with("https://"),
        "^[A-Za-z0-9_-]{1,64}$" => word("_-"),
        "^[A-Za-z0-9_.-]{1,64}$" => word("_.-"),
        "^[A-Za-z_][A-Za-z0-9_]*$" | "^[A-Za-z_][A-Za-z0-9_]*\\*?$" => {
            let name = text.strip_suffix('*').unwrap_or(text);
            let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.chars().all(is_good) && name.starts_with(|c: char| !c.is_ascii_digit())
        }
        _ => panic!("the pattern {pattern} is not known to the tests"),
    }
}
