//! Assertions: what must hold of a trial's result, and whether it does.
//!
//! Pure, but for the assertions `file` and `exec`, which are only described here: the caller knows the
//! trial's workspace and judges them.

use crate::flow::manifest::command::NodeCommand;
use crate::flow::schema::JsonSchema;
use crate::text::answers::values_in;
use crate::text::json;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::time::Duration;

/// What an assertion looks at.
#[derive(Debug)]
pub(crate) enum AssertionKind {
    /// The value at the path is this one.
    Equals(Value),
    /// The text at the path contains this text, or the list this value.
    Contains(Value),
    /// The text at the path fits a pattern: a schema with the one keyword `pattern`.
    Regex(JsonSchema),
    /// The text at the path is JSON, and fits the schema, if there is one.
    IsJson(Option<JsonSchema>),
    /// The value at the path fits a schema.
    Schema(JsonSchema),
    /// The most milliseconds that the trial may take.
    Latency(f64),
    /// The trial cost at most so much.
    Cost(f64),
    /// The most tokens that the trial may use.
    Tokens(f64),
    /// The status by its name, or the exit code.
    Status(Value),
    /// The flow ended at this node.
    ExitNode(String),
    /// There is such a file in the workspace; with a text, the file contains it.
    File { path: String, text: Option<String> },
    /// A program says so.
    Exec {
        command: NodeCommand,
        timeout: Duration,
        /// Its verdict is a JSON object.
        is_json: bool,
    },
}

/// Something that must hold of a trial.
#[derive(Debug)]
pub(crate) struct Assertion {
    pub check: AssertionKind,
    /// A JSON pointer into the output; none or empty: all of it.
    pub path: Option<String>,
    /// Said where it does not hold.
    pub message: Option<String>,
    /// The share in the score; not negative.
    pub weight: f64,
    /// As it was written, for the record and for its digest.
    pub source: Map<String, Value>,
}

/// The result of an assertion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mark {
    /// With its score, 0..=1.
    Holds(f64),
    /// With its score, 0..=1, and the reason.
    Fails(f64, String),
    /// The assertion could not be judged, which says nothing of the target.
    Broken(String),
}

/// A target's result, as far as assertions look at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TargetResult {
    /// A flow's output; a text, where an agent or a command has answered.
    pub output: Value,
    /// `success`, `failure` or `partial`.
    pub status: String,
    pub exit_code: Option<i32>,
    pub exit_node: Option<String>,
    /// The code of a flow's error, or an agent's words.
    pub error: Option<String>,
    pub duration_ms: u64,
    pub cost: Option<f64>,
    pub tokens: Option<u64>,
}

impl Assertion {
    /// The assertion that a case with nothing but an expected output has.
    pub(crate) fn equals(expected: &Value) -> Self {
        let source = serde_json::json!({"type": "equals", "value": expected});
        Self {
            check: AssertionKind::Equals(expected.clone()),
            path: None,
            message: None,
            weight: 1.0,
            source: source.as_object().cloned().unwrap_or_default(),
        }
    }

    /// The implicit first assertion of a case without one about the status.
    pub(crate) fn succeeds() -> Self {
        let source = serde_json::json!({"type": "status", "value": "success"});
        Self {
            check: AssertionKind::Status("success".into()),
            path: None,
            message: None,
            weight: 0.0,
            source: source.as_object().cloned().unwrap_or_default(),
        }
    }

    /// Judges a result; none if that takes a look at the workspace.
    pub(crate) fn judge(&self, result: &TargetResult) -> Option<Mark> {
        let verdict = match &self.check {
            AssertionKind::File { .. } | AssertionKind::Exec { .. } => return None,
            AssertionKind::Latency(most) => at_most(result.duration_ms as f64, *most, "ms"),
            AssertionKind::Cost(most) => match result.cost {
                None => {
                    return Some(Mark::Broken(
                        "the cost is not known: pricing is missing".to_owned(),
                    ));
                }
                Some(cost) => at_most(cost, *most, "in cost"),
            },
            AssertionKind::Tokens(most) => match result.tokens {
                None => return Some(Mark::Broken("the tokens are not known".to_owned())),
                Some(tokens) => at_most(tokens as f64, *most, "tokens"),
            },
            AssertionKind::Status(wanted) => status(result, wanted),
            AssertionKind::ExitNode(wanted) => exit_node(result, wanted),
            AssertionKind::Equals(_)
            | AssertionKind::Contains(_)
            | AssertionKind::Regex(_)
            | AssertionKind::IsJson(_)
            | AssertionKind::Schema(_) => self.judge_output(&result.output),
        };
        Some(match verdict {
            Ok(()) => Mark::Holds(1.0),
            Err(why) => Mark::Fails(0.0, self.reason(why)),
        })
    }

    /// Why it does not hold, in the assertion's own words if it has any.
    pub(crate) fn reason(&self, why: String) -> String {
        match &self.message {
            Some(message) => format!("{message}: {why}"),
            None => why,
        }
    }

    fn judge_output(&self, output: &Value) -> Result<(), String> {
        let whole = self.path.as_deref().unwrap_or_default();
        let found = value_at(output, whole)?;
        match &self.check {
            AssertionKind::Equals(wanted) => equals(&found, wanted),
            AssertionKind::Contains(wanted) => contains(&found, wanted),
            AssertionKind::Regex(pattern) => {
                match pattern.admits(&Value::String(text_of(&found))) {
                    true => Ok(()),
                    false => Err(format!("{} does not fit the pattern", shown(&found))),
                }
            }
            AssertionKind::IsJson(schema) => {
                let parsed = parsed(&found)?;
                schema
                    .as_ref()
                    .map_or(Ok(()), |schema| fits(&parsed, schema))
            }
            AssertionKind::Schema(schema) => {
                let text = found.as_str().unwrap_or_default();
                let values = values_in(text)
                    .into_iter()
                    .filter_map(|it| serde_json::from_str(it).ok());
                if values
                    .into_iter()
                    .any(|value: Value| fits(&value, schema).is_ok())
                {
                    return Ok(());
                }
                let parsed = parsed(&found).unwrap_or(Cow::Borrowed(&found));
                fits(&parsed, schema)
            }
            _ => Ok(()),
        }
    }

    /// The assertion with its result, as JSONL prints it.
    pub(crate) fn describe(&self, mark: &Mark) -> Value {
        let mut members = Map::new();
        for key in ["type", "path", "value"] {
            if let Some(value) = self.source.get(key) {
                members.insert(key.to_owned(), value.clone());
            }
        }
        let (passed, score, reason) = match mark {
            Mark::Holds(score) => (Some(true), Some(*score), None),
            Mark::Fails(score, why) => (Some(false), Some(*score), Some(why)),
            Mark::Broken(why) => (None, None, Some(why)),
        };
        members.insert("passed".to_owned(), passed.into());
        members.insert("score".to_owned(), score.into());
        if let Some(reason) = reason {
            members.insert("reason".to_owned(), reason.as_str().into());
        }
        Value::Object(members)
    }
}

/// The weighted mean of scores; none if no assertion has a weight.
pub(crate) fn score_of(marks: &[(f64, f64)]) -> Option<f64> {
    let weights: f64 = marks.iter().map(|(weight, _)| weight).sum();
    let sum: f64 = marks.iter().map(|(weight, score)| weight * score).sum();
    (weights > 0.0).then(|| (sum / weights).clamp(0.0, 1.0))
}

/// A value in an output. A path into a text is one into the JSON in it.
fn value_at<'v>(output: &'v Value, path: &str) -> Result<Cow<'v, Value>, String> {
    if path.is_empty() {
        return Ok(Cow::Borrowed(output));
    }
    let missing = || format!("the output has nothing at {path}");
    match parsed(output)? {
        Cow::Borrowed(value) => value.pointer(path).map(Cow::Borrowed).ok_or_else(missing),
        Cow::Owned(mut value) => value
            .pointer_mut(path)
            .map(|found| Cow::Owned(found.take()))
            .ok_or_else(missing),
    }
}

/// The JSON in a text; a value that is not a text is JSON already.
fn parsed(value: &Value) -> Result<Cow<'_, Value>, String> {
    let Value::String(text) = value else {
        return Ok(Cow::Borrowed(value));
    };
    let inside = serde_json::from_str(json::unfenced(text));
    inside
        .map(Cow::Owned)
        .map_err(|_| format!("{} is not JSON", shown(value)))
}

fn equals(found: &Value, wanted: &Value) -> Result<(), String> {
    let is_same = match (found, wanted) {
        // A line break after an answer is not part of it.
        (Value::String(found), Value::String(wanted)) => found.trim() == wanted.trim(),
        (Value::String(_), _) => parsed(found).is_ok_and(|found| is_same(&found, wanted)),
        _ => is_same(found, wanted),
    };
    match is_same {
        true => Ok(()),
        false => Err(format!("{} is not {}", shown(found), shown(wanted))),
    }
}

/// Equal as JSON, numbers by what they say.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => json::is_same_number(a.as_str(), b.as_str()),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| is_same(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => one == other,
    }
}

fn contains(found: &Value, wanted: &Value) -> Result<(), String> {
    let is_in = match (found, wanted) {
        (Value::Array(items), _) => items.iter().any(|item| is_same(item, wanted)),
        (_, Value::String(text)) => text_of(found).contains(text.as_str()),
        _ => text_of(found).contains(&json::text(wanted)),
    };
    match is_in {
        true => Ok(()),
        false => Err(format!(
            "{} does not contain {}",
            shown(found),
            shown(wanted)
        )),
    }
}

fn fits(value: &Value, schema: &JsonSchema) -> Result<(), String> {
    if schema.admits(value) {
        return Ok(());
    }
    let mismatches = schema.mismatches(value);
    let all: Vec<String> = mismatches.iter().take(5).map(ToString::to_string).collect();
    Err(all.join("; "))
}

fn at_most(found: f64, most: f64, unit: &str) -> Result<(), String> {
    match found <= most {
        true => Ok(()),
        false => Err(format!("{found} {unit}, and at most {most} was asserted")),
    }
}

fn status(result: &TargetResult, wanted: &Value) -> Result<(), String> {
    let is_so = match wanted {
        Value::String(name) => *name == result.status,
        code => code.as_i64() == result.exit_code.map(i64::from),
    };
    if is_so {
        return Ok(());
    }
    let code = result
        .exit_code
        .map_or_else(String::new, |code| format!(", exit code {code}"));
    let why = result
        .error
        .as_ref()
        .map_or_else(String::new, |error| format!(": {error}"));
    Err(format!("status {}{code}{why}", result.status))
}

fn exit_node(result: &TargetResult, wanted: &str) -> Result<(), String> {
    match result.exit_node.as_deref() {
        Some(node) if node == wanted => Ok(()),
        Some(node) => Err(format!("ended at {node}, not at {wanted}")),
        None => Err(format!("ended at no exit, and not at {wanted}")),
    }
}

/// A value as a text: a string as it is, anything else as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => json::text(other),
    }
}

/// A value in a message, in short.
fn shown(value: &Value) -> String {
    crate::text::shorten::in_short(&json::text(value), 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(check: AssertionKind, path: Option<&str>, output: &Value) -> bool {
        let assertion = Assertion {
            check,
            path: path.map(str::to_owned),
            message: None,
            weight: 1.0,
            source: Map::new(),
        };
        let result = TargetResult {
            output: output.clone(),
            ..TargetResult::default()
        };
        matches!(assertion.judge(&result), Some(Mark::Holds(_)))
    }

    #[test]
    fn a_text_equals_what_it_says_and_numbers_what_they_are() {
        let equals = |wanted: Value, path, output: Value| {
            holds(AssertionKind::Equals(wanted), path, &output)
        };
        assert!(equals(json!("4"), None, json!("4\n")));
        assert!(!equals(json!("4"), None, json!("42")));
        assert!(equals(json!(4), None, json!("4.0")));
        assert!(equals(
            json!({"a": [1]}),
            None,
            json!("```json\n{\"a\":[1.0]}\n```")
        ));
        assert!(!equals(json!({"a": [1]}), None, json!({"a": [1], "b": 2})));
        assert!(equals(json!(null), None, json!("null")));
        assert!(!equals(json!(null), None, json!("")));
        let exact = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for (a, b, is_same) in [
            ("9007199254740993", "9007199254740992", false),
            (
                "[25000000000000000000001]",
                "[25000000000000000000001.0]",
                true,
            ),
            ("0.1", "0.1000000000000000055", false),
            ("-1e2", "-100", true),
            ("0.0", "-0", true),
            ("1e99999999999999999999999999999999999999999", "1", false),
        ] {
            assert_eq!(equals(exact(a), None, exact(b)), is_same, "{a} {b}");
            assert_eq!(equals(exact(a), None, json!(b)), is_same, "{a} in a text");
        }
        assert!(equals(json!("x"), Some("/a/0"), json!("{\"a\":[\"x\"]}")));
        assert!(!equals(json!("x"), Some("/a/1"), json!({"a": ["x"]})));
        assert!(!equals(json!("x"), Some("/a"), json!("no JSON")));
    }

    #[test]
    fn a_list_contains_an_item_and_a_text_a_part() {
        let contains =
            |wanted: Value, output: Value| holds(AssertionKind::Contains(wanted), None, &output);
        assert!(contains(json!("ell"), json!("hello")));
        assert!(!contains(json!("ell"), json!(["hello"])));
        assert!(contains(json!(2), json!([1, 2])));
    }

    #[test]
    fn scores_are_weighted_and_weights_of_nothing_give_none() {
        assert_eq!(score_of(&[(1.0, 1.0), (3.0, 0.0)]), Some(0.25));
        assert_eq!(score_of(&[(0.0, 1.0)]), None);
    }
}
