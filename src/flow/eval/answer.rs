//! The reading of what the program of a trial printed: the result of an agent's run, of a flow's, or of a
//! command.

use super::assertion::TargetResult;
use super::record::TrialEnd;
use super::suite::Target;
use super::verdict::{EvaluationLimits, TargetEnd, not_measured, of_command, of_run};
use crate::error::{At, Result};
use crate::flow::engine::printed_run::PrintedRun;
use crate::record::metadata::{self, Status};
use crate::record::spending;
use crate::text::json;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{Ended, Outcome};
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// The end of a trial's program, and its result if there is one to judge.
pub(super) struct TargetOutcome {
    pub end: TargetEnd,
    /// In a word.
    pub stop_reason: String,
    pub result: TargetResult,
    /// The words of its program about its end, for people.
    pub message: Option<String>,
}

impl TargetOutcome {
    /// An end; `answered` is the reason of one with an answer.
    pub(super) fn of(
        end: TargetEnd,
        answered: &str,
        result: TargetResult,
        message: Option<String>,
    ) -> Self {
        let stop_reason = match &end {
            TargetEnd::Answered | TargetEnd::Open => answered,
            TargetEnd::Failed(why)
            | TargetEnd::NotMeasured(why)
            | TargetEnd::Misconfigured(why) => why,
        };
        Self {
            stop_reason: stop_reason.to_owned(),
            end,
            result,
            message,
        }
    }
}

/// Reads what came of a trial. `run` is the directory of its run in its workspace, for an agent and a flow.
pub(super) fn read_answer(
    target: &Target,
    outcome: &Outcome,
    io: &Path,
    run: &Path,
    limits: EvaluationLimits,
) -> Result<TargetOutcome> {
    let path = io.join("stdout.log");
    let file = File::open(&path).at("read", &path)?;
    let printed = files::read_limited(file, LARGEST_INPUT).at("read", &path)?;
    let mut answer = match target {
        Target::Command(_) => of_program(&printed, outcome.how),
        Target::Agent { .. } | Target::Flow => {
            of_printed_run(target, &printed, outcome.how, run, limits)
        }
    };
    if let Ended::Exited(code) = outcome.how {
        answer.result.exit_code = Some(code);
    }
    answer.result.duration_ms = outcome.duration.as_millis() as u64;
    Ok(answer)
}

/// A command's output is a text, without the line break at its end.
fn of_program(printed: &[u8], how: Ended) -> TargetOutcome {
    let text = String::from_utf8_lossy(printed);
    let status = match how {
        Ended::Exited(0) => "success",
        _ => "failure",
    };
    let result = TargetResult {
        output: text.strip_suffix('\n').unwrap_or(&text).into(),
        status: status.to_owned(),
        ..TargetResult::default()
    };
    TargetOutcome::of(of_command(how), status, result, None)
}

fn of_printed_run(
    target: &Target,
    printed: &[u8],
    how: Ended,
    run: &Path,
    limits: EvaluationLimits,
) -> TargetOutcome {
    let is_agent = matches!(target, Target::Agent { .. });
    let mut printed: PrintedRun = json::read_or_default(printed);
    if is_agent
        && printed.status.is_none()
        && let Some(before) = metadata::read(run).filter(|it| it.status == Status::Failed)
    {
        // It had ended before this engine was there, and is not begun again.
        printed.stop_reason = before.stop_reason;
    }
    let message = printed.error_message();
    let reason = printed.stop_reason.unwrap_or_default();
    let status = printed.status.unwrap_or_default();
    let reasons: Vec<&str> = printed
        .agent_stop_reasons
        .iter()
        .map(String::as_str)
        .chain([&*reason])
        .collect();
    let mut end = of_run(how, &reasons, limits);
    let has_ended = ["COMPLETED", "success", "failure", "partial"].contains(&&*status);
    if end == TargetEnd::Answered && !has_ended {
        end = not_measured("error");
    }
    let answered = if is_agent { &reason } else { &status };
    let output = printed
        .output
        .as_ref()
        .and_then(|output| serde_json::from_str(output.get()).ok());
    let result = TargetResult {
        output: printed
            .result
            .map_or(output.unwrap_or(Value::Null), Value::String),
        status: if is_agent { "success" } else { &status }.to_owned(),
        exit_node: printed.exit_node,
        error: printed.error.map(|error| match error.code {
            Some(code) => format!("{code}: {}", error.message),
            None => error.message,
        }),
        ..TargetResult::default()
    };
    TargetOutcome::of(end, answered, result, message)
}

/// The figures of a trial's end that the ledger of its run has: what the run and all below it spent.
pub(super) fn read_spending(run: &Path) -> TrialEnd {
    let Ok(Some(tally)) = spending::read_tally(&run.join(spending::FILE)) else {
        return TrialEnd::default();
    };
    let all = tally.all();
    TrialEnd {
        // Without a price nothing is known of the cost.
        cost: Some(all.cost()).filter(|cost| *cost > 0.0),
        tokens: Some(all.tokens()),
        tokens_estimated: Some(tally.estimated_tokens()).filter(|it| *it > 0),
        retries: tally.retries,
        models: tally.models,
        ..TrialEnd::default()
    }
}
