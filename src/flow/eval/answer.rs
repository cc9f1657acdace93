//! What the program of a trial printed, understood: the result of an agent's run, of a flow's, or of a
//! command.

use super::assertion::TargetResult;
use super::suite::Target;
use super::verdict::{EvaluationLimits, TargetEnd, of_command, of_run};
use crate::error::{At, Result};
use crate::record::metadata::{self, Status};
use crate::record::spending;
use crate::text::json;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// The object that `delta run` and `delta flow run` print with `--format json`, as far as it counts here.
#[derive(Deserialize, Default)]
#[serde(default)]
struct PrintedResult {
    status: Option<String>,
    stop_reason: Option<String>,
    /// Of the agents that a flow waits for.
    agent_stop_reasons: Vec<String>,
    result: Option<String>,
    output: Value,
    exit_node: Option<String>,
    error: Option<PrintedError>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PrintedError {
    code: Option<String>,
    message: String,
}

/// The end of a trial's program, and its result if there is one to judge.
pub(super) struct TargetOutcome {
    pub end: TargetEnd,
    /// In a word.
    pub stop_reason: String,
    pub result: TargetResult,
    /// What its program said of its end, for people.
    pub message: Option<String>,
}

/// Reads what came of a trial. `run` is the directory of its run in its workspace, for an agent and a flow.
pub(super) fn read_answer(
    target: &Target,
    outcome: &Outcome,
    (io, run): (&Path, &Path),
    limits: EvaluationLimits,
) -> Result<TargetOutcome> {
    let path = io.join("stdout.log");
    let file = File::open(&path).at("read", &path)?;
    let printed = files::read_limited(file, LARGEST_INPUT).at("read", &path)?;
    let exit_code = match outcome.how {
        Ended::Exited(code) => Some(code),
        Ended::TimedOut | Ended::Interrupted(_) => None,
    };
    let mut answer = match target {
        Target::Command(_) => of_program(&printed, outcome.how),
        Target::Agent { .. } => of_agent(&printed, outcome.how, run, limits),
        Target::Flow => of_flow(&printed, outcome.how, limits),
    };
    answer.result.exit_code = exit_code;
    answer.result.duration_ms = outcome.duration.as_millis() as u64;
    Ok(answer)
}

/// A command's output is a text, without the line break at its end.
fn of_program(printed: &[u8], how: Ended) -> TargetOutcome {
    let text = String::from_utf8_lossy(printed);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let status = match how {
        Ended::Exited(0) => "success",
        _ => "failure",
    };
    let end = of_command(how);
    TargetOutcome {
        stop_reason: reason_of(&end, status),
        end,
        result: TargetResult {
            output: text.into(),
            status: status.to_owned(),
            ..TargetResult::default()
        },
        message: None,
    }
}

fn of_agent(printed: &[u8], how: Ended, run: &Path, limits: EvaluationLimits) -> TargetOutcome {
    let mut printed: PrintedResult = serde_json::from_slice(printed).unwrap_or_default();
    if printed.status.is_none()
        && let Some(before) = metadata::read(run).filter(|it| it.status == Status::Failed)
    {
        // It had ended before this engine was there, and is not begun again.
        printed.stop_reason = before.stop_reason;
    }
    let reason = printed.stop_reason.clone().unwrap_or_default();
    let mut end = of_run(how, &[&reason], limits);
    if end == TargetEnd::Answered && printed.status.as_deref() != Some(Status::Completed.name()) {
        end = TargetEnd::NotMeasured("error".to_owned());
    }
    TargetOutcome {
        stop_reason: reason_of(&end, &reason),
        end,
        message: printed.error.as_ref().map(|error| error.message.clone()),
        result: TargetResult {
            output: printed.result.unwrap_or_default().into(),
            status: "success".to_owned(),
            ..TargetResult::default()
        },
    }
}

fn of_flow(printed: &[u8], how: Ended, limits: EvaluationLimits) -> TargetOutcome {
    let printed: PrintedResult = serde_json::from_slice(printed).unwrap_or_default();
    let reason = printed.stop_reason.clone().unwrap_or_default();
    let own = [reason.as_str()];
    let reasons = printed.agent_stop_reasons.iter().map(String::as_str);
    let reasons: Vec<&str> = reasons.chain(own).collect();
    let status = printed.status.unwrap_or_default();
    let has_ended = ["success", "failure", "partial"].contains(&status.as_str());
    let mut end = of_run(how, &reasons, limits);
    if end == TargetEnd::Answered && !has_ended {
        end = TargetEnd::NotMeasured("error".to_owned());
    }
    let message = printed.error.as_ref().map(|error| error.message.clone());
    let error = printed.error.map(|error| match error.code {
        Some(code) => format!("{code}: {}", error.message),
        None => error.message,
    });
    TargetOutcome {
        stop_reason: reason_of(&end, &status),
        end,
        message,
        result: TargetResult {
            output: printed.output,
            status,
            exit_node: printed.exit_node,
            error,
            ..TargetResult::default()
        },
    }
}

fn reason_of(end: &TargetEnd, answered: &str) -> String {
    match end {
        TargetEnd::Answered | TargetEnd::Open => answered.to_owned(),
        TargetEnd::Failed(reason)
        | TargetEnd::NotMeasured(reason)
        | TargetEnd::Misconfigured(reason) => reason.clone(),
    }
}

/// What a trial's run and all below it spent.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Spending {
    pub cost: Option<f64>,
    pub tokens: Option<u64>,
    /// Attempts to reach the model behind the first of each request.
    pub retries: u32,
    /// The models that have answered, in the order of their first answers.
    pub models: Vec<String>,
}

/// Reads the ledger of a trial's run.
pub(super) fn read_spending(run: &Path) -> Spending {
    let path = run.join(spending::FILE);
    let Ok(Some(tally)) = spending::read_tally(&path) else {
        return Spending::default();
    };
    let all = tally.all();
    let (retries, models) = attempts_in(&path);
    Spending {
        // Without a price nothing is known of the cost.
        cost: Some(all.cost()).filter(|cost| *cost > 0.0),
        tokens: Some(all.tokens()),
        retries,
        models,
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LedgerLine {
    kind: String,
    attempt: u64,
    model: Option<String>,
    tokens: u64,
}

/// How many attempts of a ledger repeat another, and the models that have answered.
fn attempts_in(path: &Path) -> (u32, Vec<String>) {
    let text = files::read_regular(path).unwrap_or_default();
    let (mut retries, mut models) = (0u32, Vec::new());
    for line in text.split(|byte| *byte == b'\n') {
        let line: LedgerLine = serde_json::from_slice(line).unwrap_or_default();
        if line.kind == "reserve" {
            retries = retries.saturating_add(u32::from(line.attempt > 1));
        }
        let answered = line
            .model
            .filter(|_| line.kind == "settle" && line.tokens > 0);
        models.extend(answered.filter(|model| !models.contains(model)));
    }
    (retries, models)
}

/// The digest of an output, by which trials that are identical are found.
pub(super) fn digest_output(output: &Value) -> String {
    crate::text::digest::sha256(json::text(output).as_bytes())
}
