//! What an evaluation prints: a table, JSON, JSON lines, `JUnit` XML, TAP.
//!
//! Unaware of where it goes. Names of suites, settings and cases, reasons and outputs come from others: none of them can control a
//! terminal or end a string early.

mod words;
mod conclusions;
mod cases;
pub(crate) mod junit;
pub(crate) mod text;
pub(crate) mod tap;

use crate::flow::eval::summary::Summary;
use crate::flow::eval::trial::Trial;
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::text::json::{self, Object};
use serde::Serialize;

/// The result of an evaluation as one JSON object and a newline.
pub(crate) fn json(suites: &[Summary]) -> String {
    #[derive(Serialize)]
    struct ResultFile<'s> {
        schema_version: &'static str,
        suites: &'s [Summary],
    }
    let mut text = json::text(&ResultFile {
        schema_version: SCHEMA_VERSION,
        suites,
    });
    text.push('\n');
    text
}

/// A trial of a suite as one line of JSON with its newline.
pub(crate) fn jsonl(suite: &str, trial: &Trial) -> String {
    let mut out = Vec::new();
    let assertions = trial.assertions.as_ref().map_or("[]", |list| list.get());
    let mut object = Object::begin(&mut out);
    object
        .put("case", &trial.case)
        .put("setting", &trial.setting)
        .put("trial", &trial.number)
        .put("status", trial.outcome.name())
        .put("stop_reason", &trial.stop_reason)
        .put("score", &trial.score)
        .raw("assertions", assertions.as_bytes())
        .put("run_id", &trial.run_id)
        .put("workspace", &trial.workspace)
        .put("cost", &trial.cost)
        .put("duration_ms", &trial.duration_ms)
        .put("models", &trial.models)
        .put("tokens", &trial.tokens)
        .put("retries", &trial.retries)
        .put("seed", &trial.seed)
        .put("suite", suite);
    object.end();
    out.push(b'\n');
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
