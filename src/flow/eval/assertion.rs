//! Assertions: what must hold of a trial's result, and whether it does.
//!
//! Pure, but for the assertions `file` and `exec`, which are only described here: the caller knows the
//! trial's workspace and judges them.

use crate::config::tool::definition::text_of;
use crate::flow::manifest::command::NodeCommand;
use crate::text::answers::values_in;
use crate::text::json;
use crate::text::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::time::Duration;

/// The check that an assertion makes.
#[derive(Debug)]
pub(crate) enum AssertionKind {
    /// The value at the path is one of these.
    Equals(Vec<Value>),
    /// The text at the path contains one of these texts, or the list one of these values.
    Contains(Vec<Value>),
    /// The text at the path fits one of these patterns: schemas with the one keyword `pattern`.
    Regex(Vec<JsonSchema>),
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
        /// The verdict is a JSON object.
        is_json: bool,
    },
}

/// Something that must hold of a trial.
#[derive(Debug)]
pub(crate) struct Assertion {
    pub check: AssertionKind,
    /// It must not hold.
    pub is_negated: bool,
    /// Texts are compared without regard to case; a pattern says so itself.
    pub ignore_case: bool,
    /// A JSON pointer into the output; none or empty: all of it.
    pub path: Option<String>,
    /// Said where it does not hold.
    pub message: Option<String>,
    /// The share in the score; not negative.
    pub weight: f64,
    /// The text as it was written, for the record and for its digest.
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

/// A target's result, as far as assertions look at it. A record has its members; the figures are in the trial's end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TargetResult {
    /// A flow's output; a text, where an agent or a command has answered.
    pub output: Value,
    /// `success`, `failure` or `partial`.
    pub status: String,
    pub exit_code: Option<i32>,
    pub exit_node: Option<String>,
    /// The code of a flow's error, or an agent's words.
    pub error: Option<String>,
    #[serde(skip)]
    pub duration_ms: u64,
    #[serde(skip)]
    pub cost: Option<f64>,
    #[serde(skip)]
    pub tokens: Option<u64>,
}

impl Assertion {
    /// The assertion that a case with nothing but an expected output has.
    pub(crate) fn equals(expected: &Value) -> Self {
        Self::implied(
            "equals",
            expected.clone(),
            AssertionKind::Equals(vec![expected.clone()]),
            1.0,
        )
    }

    /// The implicit first assertion of a case without one about the status.
    pub(crate) fn succeeds() -> Self {
        Self::implied(
            "status",
            "success".into(),
            AssertionKind::Status("success".into()),
            0.0,
        )
    }

    fn implied(kind: &str, value: Value, check: AssertionKind, weight: f64) -> Self {
        Self {
            check,
            is_negated: false,
            ignore_case: false,
            path: None,
            message: None,
            weight,
            source: Map::from_iter([
                ("type".to_owned(), kind.into()),
                ("value".to_owned(), value),
            ]),
        }
    }

    /// Judges a result; none if that takes a look at the workspace.
    pub(crate) fn judge(&self, result: &TargetResult) -> Option<Mark> {
        let unknown = |why: &str| Some(Mark::Broken(why.to_owned()));
        match &self.check {
            AssertionKind::File { .. } | AssertionKind::Exec { .. } => None,
            AssertionKind::Cost(_) if result.cost.is_none() => {
                unknown("the cost is not known: pricing is missing")
            }
            AssertionKind::Tokens(_) if result.tokens.is_none() => {
                unknown("the tokens are not known")
            }
            _ => Some(self.mark(self.holds(result))),
        }
    }

    fn holds(&self, result: &TargetResult) -> Result<(), String> {
        let found = || value_at(&result.output, self.path.as_deref().unwrap_or(""));
        let at_most = |found: f64, most: f64, unit: &str| {
            ensure(found <= most, || {
                format!("{found} {unit}, and at most {most} was asserted")
            })
        };
        match &self.check {
            AssertionKind::File { .. } | AssertionKind::Exec { .. } => Ok(()),
            AssertionKind::Latency(most) => at_most(result.duration_ms as f64, *most, "ms"),
            AssertionKind::Cost(most) => at_most(result.cost.unwrap_or(0.0), *most, "in cost"),
            AssertionKind::Tokens(most) => {
                at_most(result.tokens.unwrap_or(0) as f64, *most, "tokens")
            }
            AssertionKind::Status(wanted) => status(result, wanted),
            AssertionKind::ExitNode(wanted) => exit_node(result, wanted),
            AssertionKind::Equals(wanted) => {
                let found = found()?;
                one_of(wanted, |it| equals(&found, it, self.ignore_case))
            }
            AssertionKind::Contains(wanted) => {
                let found = found()?;
                one_of(wanted, |it| contains(&found, it, self.ignore_case))
            }
            AssertionKind::Regex(patterns) => {
                let found = found()?;
                one_of(patterns, |pattern| {
                    ensure(pattern.admits(&text_of(&found).into()), || {
                        format!("{} does not fit the pattern", shown(&found))
                    })
                })
            }
            AssertionKind::IsJson(schema) => {
                let found = found()?;
                let value = parsed(&found)?;
                schema
                    .as_ref()
                    .map_or(Ok(()), |schema| fits(&value, schema))
            }
            AssertionKind::Schema(schema) => {
                let found = found()?;
                let mut values = values_in(found.as_str().unwrap_or("")).into_iter();
                let admits = |value: &str| {
                    let value: Option<Value> = serde_json::from_str(value).ok();
                    value.is_some_and(|value| schema.admits(&value))
                };
                if values.any(admits) {
                    return Ok(());
                }
                fits(&parsed(&found).unwrap_or(Cow::Borrowed(&found)), schema)
            }
        }
    }

    /// The mark of a check that says no more than why it does not hold.
    pub(crate) fn mark(&self, verdict: Result<(), String>) -> Mark {
        match verdict {
            Ok(()) => Mark::Holds(1.0),
            Err(why) => Mark::Fails(0.0, self.reason(why)),
        }
    }

    /// The mark of the assertion as a whole, `not` included, given that of its check.
    pub(crate) fn turned(&self, mark: Mark) -> Mark {
        match mark {
            Mark::Holds(score) if self.is_negated => {
                let kind = self.source.get("type").and_then(Value::as_str);
                let why = format!("{} holds, and must not", kind.unwrap_or_default());
                Mark::Fails(1.0 - score, self.reason(why))
            }
            Mark::Fails(score, _) if self.is_negated => Mark::Holds(1.0 - score),
            mark => mark,
        }
    }

    /// The reason why it does not hold, in the assertion's own words if it has any.
    pub(crate) fn reason(&self, why: String) -> String {
        match &self.message {
            Some(message) => format!("{message}: {why}"),
            None => why,
        }
    }

    /// The assertion with its result, as JSONL prints it.
    pub(crate) fn describe(&self, mark: &Mark) -> Value {
        let (passed, reason) = match mark {
            Mark::Holds(_) => (Some(true), None),
            Mark::Fails(_, why) => (Some(false), Some(why)),
            Mark::Broken(why) => (None, Some(why)),
        };
        let mut members = Map::new();
        for key in ["type", "not", "path", "value", "value_in", "ignore_case"] {
            members.extend(
                self.source
                    .get_key_value(key)
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
        }
        members.insert("passed".to_owned(), passed.into());
        members.insert("score".to_owned(), mark.score().into());
        members.extend(reason.map(|why| ("reason".to_owned(), why.as_str().into())));
        Value::Object(members)
    }
}

impl Mark {
    pub(crate) fn score(&self) -> Option<f64> {
        match self {
            Self::Holds(score) | Self::Fails(score, _) => Some(*score),
            Self::Broken(_) => None,
        }
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
    let found = match parsed(output)? {
        Cow::Borrowed(value) => value.pointer(path).map(Cow::Borrowed),
        Cow::Owned(mut value) => value.pointer_mut(path).map(|it| Cow::Owned(it.take())),
    };
    found.ok_or_else(|| format!("the output has nothing at {path}"))
}

/// The JSON in a text; a value that is not a text is JSON already.
fn parsed(value: &Value) -> Result<Cow<'_, Value>, String> {
    let Value::String(text) = value else {
        return Ok(Cow::Borrowed(value));
    };
    serde_json::from_str(json::unfenced(text))
        .map(Cow::Owned)
        .map_err(|_| format!("{} is not JSON", shown(value)))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// Holds if one of several does; the reason is that of the last one.
fn one_of<T>(all: &[T], holds: impl Fn(&T) -> Result<(), String>) -> Result<(), String> {
    let mut last = Ok(());
    for one in all {
        last = holds(one);
        if last.is_ok() {
            return Ok(());
        }
    }
    last.map_err(|why| match all.len() {
        0 | 1 => why,
        others => format!("{why}, nor is it any of the other {}", others - 1),
    })
}

/// A text as it is compared.
fn folded(text: &str, ignore_case: bool) -> Cow<'_, str> {
    if ignore_case {
        text.to_lowercase().into()
    } else {
        text.into()
    }
}

fn equals(found: &Value, wanted: &Value, ignore_case: bool) -> Result<(), String> {
    let is_same = |found: &Value| is_same(found, wanted, ignore_case);
    let is_equal = match (found, wanted) {
        // A line break after an answer is not part of it.
        (Value::String(found), Value::String(wanted)) => {
            folded(found.trim(), ignore_case) == folded(wanted.trim(), ignore_case)
        }
        (Value::String(_), _) => parsed(found).is_ok_and(|found| is_same(&found)),
        _ => is_same(found),
    };
    ensure(is_equal, || {
        format!("{} is not {}", shown(found), shown(wanted))
    })
}

/// Equal as JSON, numbers by what they say.
fn is_same(one: &Value, other: &Value, ignore_case: bool) -> bool {
    let is_same = |a: &Value, b: &Value| is_same(a, b, ignore_case);
    match (one, other) {
        (Value::String(a), Value::String(b)) => folded(a, ignore_case) == folded(b, ignore_case),
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

fn contains(found: &Value, wanted: &Value, ignore_case: bool) -> Result<(), String> {
    let is_in = match found {
        Value::Array(items) => items.iter().any(|item| is_same(item, wanted, ignore_case)),
        _ => folded(&text_of(found), ignore_case).contains(&*folded(&text_of(wanted), ignore_case)),
    };
    ensure(is_in, || {
        format!("{} does not contain {}", shown(found), shown(wanted))
    })
}

fn fits(value: &Value, schema: &JsonSchema) -> Result<(), String> {
    ensure(schema.admits(value), || {
        let all: Vec<String> = schema
            .mismatches(value)
            .iter()
            .take(5)
            .map(ToString::to_string)
            .collect();
        all.join("; ")
    })
}

fn status(result: &TargetResult, wanted: &Value) -> Result<(), String> {
    let is_so = match wanted {
        Value::String(name) => *name == result.status,
        code => code.as_i64() == result.exit_code.map(i64::from),
    };
    ensure(is_so, || {
        let mut why = format!("status {}", result.status);
        if let Some(code) = result.exit_code {
            why.push_str(&format!(", exit code {code}"));
        }
        if let Some(error) = &result.error {
            why.push_str(&format!(": {error}"));
        }
        why
    })
}

fn exit_node(result: &TargetResult, wanted: &str) -> Result<(), String> {
    match result.exit_node.as_deref() {
        Some(node) => ensure(node == wanted, || {
            format!("ended at {node}, not at {wanted}")
        }),
        None => Err(format!("ended at no exit, and not at {wanted}")),
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
            is_negated: false,
            ignore_case: false,
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
            holds(AssertionKind::Equals(vec![wanted]), path, &output)
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
        let contains = |wanted: Value, output: Value| {
            holds(AssertionKind::Contains(vec![wanted]), None, &output)
        };
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
