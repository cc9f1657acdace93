//! `validate-json`: the hidden command by which `delta` has answers checked against a schema.
//!
//! Unaware of flows. The request is on the standard input, what is wrong with it goes to the standard output,
//! a line each.

use crate::engine::validator::{MISFIT, NO_SCHEMA, ValidationRequest};
use crate::error::{Error, Exit, Result};
use crate::flow::schema::JsonSchema;
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
        Ok(schema) => match request.answer.map(|answer| faults(&schema, &answer)) {
            None => (Vec::new(), 0),
            Some(faults) if faults.is_empty() => (faults, 0),
            Some(faults) => (faults, MISFIT),
        },
    };
    let lines: String = said.into_iter().map(|line| line + "\n").collect();
    print(lines.as_bytes())?;
    Ok(u8::try_from(code).unwrap_or(Exit::Failure.code()))
}

/// Everything in an answer that does not fit.
fn faults(schema: &JsonSchema, answer: &str) -> Vec<String> {
    let text = json::unfenced(answer);
    let value = json::check(text).and_then(|()| serde_json::from_str(text));
    match value {
        Ok(value) => {
            let mismatches = schema.mismatches(&value).into_iter();
            mismatches.map(|mismatch| mismatch.to_string()).collect()
        }
        Err(error) => {
            let why = json::parser_message(&error);
            vec![format!("the answer is not one JSON value: {why}")]
        }
    }
}
