//! Nodes that are flows: a run of `delta flow` for each, whose output and status are the node's.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it.

use super::agents::need_of;
use super::begin::BeginningStep;
use super::finish::AttemptEnd;
use super::{ActiveProgram, FlowEngine};
use crate::error::{At, Result};
use crate::flow::PROGRAM;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::{Failure, FailureCode, Payload};
use crate::flow::record::{ProgramInput, find_failure, program_beside};
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::PathBuf;

/// The object that `delta-flow run --format json` prints.
#[derive(Deserialize, Default)]
#[serde(default)]
struct InnerResult {
    status: Option<String>,
    output: Option<Box<RawValue>>,
    error: Option<InnerError>,
    /// Why it has not ended.
    messages: Vec<String>,
    /// Why it cannot be loaded.
    errors: Vec<InnerProblem>,
}

#[derive(Deserialize)]
struct InnerError {
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    code: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct InnerProblem {
    message: String,
}

impl FlowEngine<'_> {
    /// Prepares the run of a flow within the flow: a new one, or the one that an earlier process began.
    pub(super) fn begin_nested(
        &mut self,
        beginning: &BeginningStep,
        (inner, dir): (&PathBuf, PathBuf),
        context: &AssembledContext,
    ) -> Result<()> {
        let mut argv = self.options.launch.clone();
        argv.push(program_beside(PROGRAM));
        let (inner, work_dir) = (inner.to_string_lossy(), dir.to_string_lossy());
        let (run_id, jobs) = (self.own_run(&beginning.step), self.options.jobs.to_string());
        let words = [
            "run", &inner, "-w", &work_dir, "--run-id", &run_id, "-j", &jobs, "-i", "-",
            "--format", "json", "-q",
        ];
        argv.extend(words.map(str::to_owned));
        if self.options.changed_ok {
            argv.extend(["--changed", "ok"].map(str::to_owned));
        }
        let given = ProgramInput {
            argv,
            dir,
            input: &beginning.input,
            context: Some(&context.text),
            stdin: None,
        };
        self.prepare(beginning, given)
    }

    /// The run of a flow within the flow has come to a stop.
    pub(super) fn end_nested(
        &mut self,
        active: ActiveProgram,
        outcome: &Outcome,
        mut ended: AttemptEnd,
    ) -> Result<()> {
        let path = active.io.join("stdout.log");
        let printed = std::fs::read(&path).at("read", &path)?;
        let printed: InnerResult = serde_json::from_slice(&printed).unwrap_or_default();
        let code = match outcome.how {
            Ended::Exited(code) if active.failure.is_none() => Some(code),
            _ => None,
        };
        if let Some(need) = code.and_then(need_of) {
            let why = printed.why_not_ended(code.unwrap_or_default());
            self.suspend(active.step, need, &why);
            return Ok(());
        }
        let step = active.step;
        let timeout = self.place.flow.nodes[step.node].timeout;
        ended.partial = printed.status.as_deref() == Some("partial");
        let came = ended.partial || printed.status.as_deref() == Some("success");
        let fault = match active.failure {
            Some(failure) => Some(failure),
            None if came && code.is_some() => None,
            None => find_failure(&active.io, outcome, timeout)?,
        };
        let result = match (fault, printed.output, printed.error) {
            (Some(failure), _, Some(error)) if failure.code == FailureCode::Operation => {
                Err(Failure::new(FailureCode::Operation, error.text()))
            }
            (Some(failure), ..) => Err(failure),
            (None, Some(output), _) => Ok(Payload::from(output.get())),
            (None, None, _) => Ok("null".into()),
        };
        self.judge(&step, result, ended)
    }
}

impl InnerResult {
    /// Why the run has not ended, which ended with a code.
    fn why_not_ended(&self, code: i32) -> String {
        let errors = self.errors.iter().map(|it| it.message.as_str());
        let error = self.error.iter().map(|it| it.message.as_str());
        let messages = self.messages.iter().map(String::as_str);
        let all: Vec<&str> = messages.chain(error).chain(errors).collect();
        match all.is_empty() {
            true => format!("its run ended with {code}"),
            false => all.join("\n"),
        }
    }
}

impl InnerError {
    fn text(&self) -> String {
        match (&self.node, &self.code) {
            (Some(node), Some(code)) => format!("{node}: {code}: {}", self.message),
            _ => self.message.clone(),
        }
    }
}
