//! `validate-json`: the hidden command by which `delta` has answers checked against a schema.
//!
//! Unaware of flows. The request is on the standard input, what is wrong with it goes to the standard output,
//! a line each. For an answer that fits it is the place of the value in it, unless that is the first.

use crate::engine::validator::{MISFIT, NO_SCHEMA, ValidationRequest};
use crate::error::{Error, Exit, Result};
use crate::flow::schema::JsonSchema;
use crate::text::answers::values_in;
use crate::text::json;
use crate::unix::terminal::print;
use std::io::Read;

/// Reads one request. The exit code is the verdict.
pub(super) fn answer_request() -> Result<u8> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).map_err(|e| {
        let why = crate::error::reason(&e);
        Error::usage(format!("cannot read the request from stdin: {why}"))
    })?;
    let request: ValidationRequest<'_> = serde_json::from_slice(&bytes).map_err(|e| {
        Error::usage(format!(
            "not a request of delta: {}",
            json::parser_message(&e)
        ))
    })?;
    let (said, code) = match JsonSchema::parse(request.schema.get().as_bytes()) {
        Err(why) => (vec![why], NO_SCHEMA),
        Ok(schema) => request
            .answer
            .map_or((Vec::new(), 0), |answer| judge(&schema, &answer)),
    };
    let lines: String = said.into_iter().map(|line| line + "\n").collect();
    print(lines.as_bytes())?;
    Ok(u8::try_from(code).unwrap_or(Exit::Failure.code()))
}

/// The lines and the code for an answer. Without a value that fits, the faults are those of the first.
fn judge(schema: &JsonSchema, answer: &str) -> (Vec<String>, i32) {
    let mut faults = None;
    for (place, text) in values_in(answer).into_iter().enumerate() {
        let found: Vec<String> = match serde_json::from_str(text) {
            Ok(value) => schema
                .mismatches(&value)
                .iter()
                .map(ToString::to_string)
                .collect(),
            Err(error) => vec![json::parser_message(&error)],
        };
        if found.is_empty() {
            let is_first = place == 0;
            let line = (!is_first).then(|| place.to_string());
            return (line.into_iter().collect(), 0);
        }
        faults.get_or_insert(found);
    }
    let faults = faults.unwrap_or_else(|| {
        let error = json::check(json::unfenced(answer)).err();
        let why = error.map_or_else(String::new, |error| {
            format!(": {}", json::parser_message(&error))
        });
        vec![format!("the answer is not one JSON value{why}")]
    });
    (faults, MISFIT)
}
