//! One check of a final answer as a process, started and recorded as a tool's is.
//!
//! Unaware of the journal and of what follows from a verdict.

use super::tool_call::{self, Done};
use super::validator;
use crate::config::acceptance::{AcceptCommand, Acceptance, OutputSchema};
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::Tool;
use crate::engine::run_context::RunContext;
use crate::error::Result;
use crate::text::answers::values_in;
use crate::text::json;
use crate::text::shell::shell_quoted;
use crate::text::shorten::in_short;
use serde_json::Value;
use std::time::Duration;

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
    Command(&'a AcceptCommand),
}

/// The end of a check.
pub(crate) struct Checked {
    pub verdict: CheckVerdict,
    pub exit_code: i32,
    pub duration: Duration,
    /// The execution's directory, from the run's directory.
    pub reference: String,
    /// The JSON in the answer that a schema has accepted.
    pub value: Option<String>,
}

/// The verdict of a check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckVerdict {
    Accepted,
    /// With the message to the model.
    Refused(String),
    /// The check cannot be run, and why.
    Unable(String),
    /// The check must run again later, and why.
    Later(String),
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
        Some(value) => json::compact(value),
        None if acceptance.schema.is_some() => {
            let values = values_in(answer);
            json::compact(values.first().copied().unwrap_or(answer))
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
    let (mut tool, argv, stdin) = match check.kind {
        CheckKind::Schema(schema) => {
            let mut tool = Tool::fixed("accept_schema", Vec::new());
            // It is no program of the agent's, and needs nothing of the workspace.
            tool.wrapper = Some(Vec::new());
            tool.is_check = true;
            tool.timeout_ms = Some(validator::TIMEOUT.as_millis() as u64);
            let request = validator::request(&schema.text, Some(answer));
            (tool, validator::argv(), request)
        }
        CheckKind::Command(accept) => {
            let mut tool = Tool::fixed("accept", accept.command.clone());
            tool.timeout_ms = accept.timeout_ms;
            tool.is_check = true;
            let argv = ctx.argv(&accept.command);
            (tool, argv, result.as_bytes().to_vec())
        }
    };
    let bound = BoundCall {
        argv,
        stdin: Some(stdin),
        arguments: Value::Null,
    };
    let prepared = tool_call::prepare_call(ctx, &tool, &bound)?;
    let reference = prepared.reference.clone();
    if let CheckKind::Command(_) = check.kind {
        let file = ctx.run.path.join(&reference).join("stdin.txt");
        let file = file.to_string_lossy().into_owned();
        tool.env = vec![(ANSWER.to_owned(), file)];
    }
    let call_id = RunContext::own_call_id();
    let done = tool_call::run_tool(ctx, &tool, &bound, prepared, &call_id)?;
    let verdict = verdict(check, &done);
    let value = || {
        // The validator prints the place of the value, if that is not the first.
        let place = done.observation.trim().parse::<usize>().unwrap_or(0);
        values_in(answer)
            .get(place)
            .map(|value| json::compact(value))
    };
    let is_taken = verdict == CheckVerdict::Accepted && matches!(check.kind, CheckKind::Schema(_));
    Ok(Checked {
        value: is_taken.then(value).flatten(),
        verdict,
        exit_code: done.exit_code.unwrap_or(126),
        duration: done.duration,
        reference,
    })
}

fn verdict(check: &Check<'_>, done: &Done) -> CheckVerdict {
    let what = &check.what;
    let words = || in_short(&done.observation, 300);
    if done.is_interrupted {
        return CheckVerdict::Interrupted;
    }
    let unable = || {
        CheckVerdict::Unable(format!(
            "the answer cannot be checked by `{what}`: {}; when that is mended, the same command \
             asks the check again, and not the model",
            words()
        ))
    };
    match (&check.kind, done.exit_code) {
        (_, Some(0)) => CheckVerdict::Accepted,
        (CheckKind::Schema(_), Some(validator::MISFIT | 124)) => {
            let said = done.observation.replace("\n[exit code: 1]", "");
            CheckVerdict::Refused(format!(
                "This answer was not accepted: it does not fit the JSON Schema that it must fit.\n\n\
                 {said}\n\nAnswer again, with one JSON value and nothing else."
            ))
        }
        (CheckKind::Schema(_), _) | (_, Some(126 | 127) | None) => unable(),
        (CheckKind::Command(_), Some(75)) => CheckVerdict::Later(format!(
            "`{what}` cannot check the answer now: {}; the same command asks it again, and not the model",
            words()
        )),
        (CheckKind::Command(_), Some(_)) => CheckVerdict::Refused(format!(
            "This answer was not accepted. `{what}` checked it and reported:\n\n{}\n\n\
             Mend what is wrong, then give the final answer again.",
            done.observation.trim_end()
        )),
    }
}
