//! One check of a final answer: of its schema here, of a command as a process that is started and recorded as a tool's is.
//!
//! Unaware of the journal and of what follows from a verdict.

use super::tool_call::{self, Done};
use crate::config::acceptance::{Acceptance, OutputSchema};
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::{TimedCommand, Tool};
use crate::engine::observation::ends_of;
use crate::engine::run_context::RunContext;
use crate::error::{At, Result};
use crate::text::answers::values_in;
use crate::text::json::{self, parser_message};
use crate::text::schema::JsonSchema;
use crate::text::shell::shell_quoted;
use crate::text::shorten::in_short;
use crate::unix::files;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The variable that names a file with the answer.
const ANSWER: &str = "DELTA_ANSWER";

/// The check of a schema, as it is recorded.
const OUTPUT_SCHEMA: &str = "output_schema";

/// A check that an agent has of its answers.
pub(crate) struct Check<'a> {
    /// The name under which its verdict is recorded.
    pub what: String,
    kind: CheckKind<'a>,
}

enum CheckKind<'a> {
    Schema(&'a OutputSchema),
    Command(&'a TimedCommand),
}

/// The end of a check.
pub(crate) struct Checked {
    pub verdict: CheckVerdict,
    pub exit_code: i32,
    pub duration: Duration,
    /// The execution's directory, from the run's directory, if something was executed.
    pub reference: Option<String>,
    /// The JSON in the answer that a schema has accepted.
    pub value: Option<String>,
}

/// The verdict of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckVerdict {
    Accepted,
    /// The message to the model.
    Refused(String),
    /// The check cannot be run, and why.
    Unable(String),
    /// The check must run again later, and why.
    NotNow(String),
    /// The engine was asked to end.
    Interrupted,
}

/// The checks of an agent, in order.
pub(crate) fn checks<'a>(ctx: &RunContext<'a>) -> Vec<Check<'a>> {
    let acceptance: &'a Acceptance = &ctx.agent.acceptance;
    let schema = acceptance.schema.iter().map(|schema| Check {
        what: OUTPUT_SCHEMA.to_owned(),
        kind: CheckKind::Schema(schema),
    });
    let commands = acceptance.commands.iter().map(|accept| Check {
        what: shell_quoted(&ctx.argv(&accept.command)),
        kind: CheckKind::Command(accept),
    });
    schema.chain(commands).collect()
}

/// The result in an answer: with a schema the JSON value that it has accepted, otherwise the text.
pub(crate) fn result_of(acceptance: &Acceptance, answer: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => json::minified(value),
        None if acceptance.schema.is_some() => {
            let values = values_in(answer);
            json::minified(values.first().copied().unwrap_or(answer))
        }
        None => answer.to_owned(),
    }
}

/// Runs a check to its end. `answer` is the model's text, `result` the result in it.
pub(crate) fn run_check(
    ctx: &RunContext<'_>,
    check: &Check<'_>,
    answer: &str,
    result: &str,
) -> Result<Checked> {
    match check.kind {
        CheckKind::Schema(schema) => check_schema(ctx, &schema.schema, answer),
        CheckKind::Command(accept) => run_command(ctx, accept, &check.what, result),
    }
}

fn check_schema(ctx: &RunContext<'_>, schema: &JsonSchema, answer: &str) -> Result<Checked> {
    let begun = Instant::now();
    let found = fitting_value(schema, answer);
    let refused = |faults: String| -> Result<String> {
        let place = Path::new("an unnamed file");
        let faults = files::in_memory(faults.as_bytes()).at("create", place)?;
        let shown = ctx.agent.max_output_bytes;
        let shown = ends_of(&faults, shown, &ctx.environment.secrets()).at("read", place)?;
        Ok(format!(
            "This answer was not accepted: it does not fit the JSON Schema that it must fit.\n\n\
             {}\n\nAnswer again, with one JSON value and nothing else.",
            shown.text().trim_end_matches('\n')
        ))
    };
    let duration = begun.elapsed();
    let (verdict, value) = match found {
        Ok(value) => (CheckVerdict::Accepted, Some(json::minified(value))),
        Err(faults) => (CheckVerdict::Refused(refused(faults)?), None),
    };
    Ok(Checked {
        exit_code: i32::from(value.is_none()),
        verdict,
        duration,
        reference: None,
        value,
    })
}

/// The first JSON value in an answer that fits a schema.
///
/// # Errors
/// The faults of the first value, a line each.
fn fitting_value<'t>(schema: &JsonSchema, answer: &'t str) -> std::result::Result<&'t str, String> {
    let mut faults = None;
    for text in values_in(answer) {
        let found: Vec<String> = match serde_json::from_str(text) {
            Ok(value) => {
                let mismatches = schema.mismatches(&value);
                mismatches.iter().map(ToString::to_string).collect()
            }
            Err(error) => vec![parser_message(&error)],
        };
        if found.is_empty() {
            return Ok(text);
        }
        faults.get_or_insert(found.join("\n"));
    }
    Err(faults.unwrap_or_else(|| {
        let error = json::check(json::unfenced(answer)).err();
        let why = error.map_or_else(String::new, |error| format!(": {}", parser_message(&error)));
        format!("the answer is not one JSON value{why}")
    }))
}

fn run_command(
    ctx: &RunContext<'_>,
    accept: &TimedCommand,
    what: &str,
    result: &str,
) -> Result<Checked> {
    let mut tool = Tool::fixed("accept", accept.command.clone());
    tool.timeout_ms = accept.timeout_ms;
    tool.is_check = true;
    let bound = BoundCall {
        argv: ctx.argv(&accept.command),
        stdin: Some(result.as_bytes().to_vec()),
        arguments: Value::Null,
    };
    let prepared = tool_call::prepare_call(ctx, &tool, &bound)?;
    let reference = prepared.reference.clone();
    let file = ctx.run.path.join(&reference).join("stdin.txt");
    tool.env = vec![(ANSWER.to_owned(), file.to_string_lossy().into_owned())];
    let call_id = RunContext::own_call_id();
    let done = tool_call::execute(ctx, &tool, prepared, &call_id)?;
    Ok(Checked {
        value: None,
        verdict: verdict(what, &done),
        exit_code: done.exit_code.unwrap_or(126),
        duration: done.duration,
        reference: Some(reference),
    })
}

fn verdict(what: &str, done: &Done) -> CheckVerdict {
    let words = || in_short(&done.observation, 300);
    if done.is_interrupted {
        return CheckVerdict::Interrupted;
    }
    match done.exit_code {
        Some(0) => CheckVerdict::Accepted,
        Some(126 | 127) | None => CheckVerdict::Unable(format!(
            "the answer cannot be checked by `{what}`: {}; when that is mended, the same command \
             asks the check again, and not the model",
            words()
        )),
        Some(75) => CheckVerdict::NotNow(format!(
            "`{what}` cannot check the answer now: {}; the same command asks it again, and not the model",
            words()
        )),
        Some(_) => CheckVerdict::Refused(format!(
            "This answer was not accepted. `{what}` checked it and reported:\n\n{}\n\n\
             Mend what is wrong, then give the final answer again.",
            done.observation.trim_end()
        )),
    }
}
