//! The output of an evaluation: a table, JSON, JSON lines, `JUnit` XML, TAP.
//!
//! Unaware of where it goes. Names of suites, settings and cases, reasons and outputs come from others: none of them can control a
//! terminal or end a string early.

pub(crate) mod words;
mod conclusions;
pub(crate) mod answer;
mod cases;
pub(crate) mod junit;
pub(crate) mod text;
pub(crate) mod tap;
pub(crate) mod page;

use crate::config::tool::definition::text_of;
use crate::flow::eval::assertion::TargetResult;
use crate::flow::eval::suite::Case;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::trial::Trial;
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::record::event::evaluation::result_path;
use crate::text::json::{self, LONGEST_EXCERPT, Object};
use crate::text::shorten::head;
use crate::unix::files::{self, LARGEST_INPUT};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// The result of an evaluation as one JSON object and a newline.
pub(crate) fn json(suites: &[Summary]) -> String {
    #[derive(Serialize)]
    struct ResultFile<'s> {
        schema_version: &'static str,
        suites: &'s [Summary],
    }
    let schema_version = SCHEMA_VERSION;
    json::text(&ResultFile {
        schema_version,
        suites,
    }) + "\n"
}

/// A trial of a suite as one line of JSON with its newline; `run` is the directory of the evaluation's run.
pub(crate) fn jsonl(suite: &str, trial: &Trial, case: &Case, run: &Path) -> String {
    let output = output_of(trial, run);
    line(|object| {
        object.members(trial);
        object
            .put("input", &case.input)
            .put("expected", &case.expected)
            .put("output", &in_part(output))
            .put("suite", suite);
    })
}

fn line(write: impl FnOnce(&mut Object<'_>)) -> String {
    String::from_utf8_lossy(&json::line(write)).into_owned()
}

/// The output of a trial; null without an answer, or if it cannot be read.
fn output_of(trial: &Trial, run: &Path) -> Value {
    let path = trial.execution_ref.as_deref().and_then(result_path);
    let read = path.and_then(|path| files::read_below(run, &path, 2 * LARGEST_INPUT).ok());
    let result: Option<TargetResult> = read.and_then(|bytes| json::read(&bytes));
    result.map_or(Value::Null, |result| result.output)
}

/// The value, or the beginning of its text if that is too long.
fn in_part(value: Value) -> Value {
    let text = text_of(&value);
    match head(&text, LONGEST_EXCERPT) {
        part if part.len() < text.len() => part.into(),
        _ => value,
    }
}

#[cfg(test)]
mod tests;
