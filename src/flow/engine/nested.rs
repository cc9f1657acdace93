//! Nodes that are flows: a run of `delta flow` for each, whose output and status are the node's.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it, and a retry of
//! the step goes on with it.

use super::agents::need_of;
use super::begin::BeginningStep;
use super::finish::AttemptEnd;
use super::{ActiveProgram, FlowEngine, Need};
use crate::config::tool::bind::shell_quoted;
use crate::error::{At, Result};
use crate::flow::PROGRAM;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::{Failure, FailureCode, Payload, StepRef};
use crate::flow::record::{InnerStanding, OwnRun, ProgramInput, find_failure, program_beside};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

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

/// How the run of a flow within the flow is started.
struct InnerStart {
    run_id: String,
    /// It is that of an earlier step.
    own_run: Option<OwnRun>,
    /// What failed in it is to be done again.
    retries: bool,
}

impl FlowEngine<'_> {
    /// Prepares the run of a flow within the flow: a new one, or the one that an earlier process began.
    pub(super) fn begin_nested(
        &mut self,
        beginning: &BeginningStep,
        (inner, dir): (&PathBuf, PathBuf),
        context: &AssembledContext,
    ) -> Result<()> {
        let start = self.inner_start(beginning, &dir)?;
        let mut argv = vec![program_beside(PROGRAM)];
        let (inner, work_dir) = (inner.to_string_lossy(), dir.to_string_lossy());
        let jobs = self.options.jobs.to_string();
        let words = [
            "run",
            &inner,
            "-w",
            &work_dir,
            "--run-id",
            &start.run_id,
            "-j",
            &jobs,
            "-i",
            "-",
            "--format",
            "json",
            "-q",
        ];
        argv.extend(words.map(str::to_owned));
        if !self.options.launch.is_empty() {
            // Routing stays here; the prefix is for the programs inside.
            argv.push("--launch".to_owned());
            argv.push(shell_quoted(&self.options.launch));
        }
        if self.options.changed_ok {
            argv.extend(["--changed", "ok"].map(str::to_owned));
        }
        if start.retries {
            argv.push("--retry".to_owned());
            let within = format!("{}/", self.node_id(&beginning.step));
            let repeat = self.options.repeat.iter();
            let repeat = repeat.filter_map(|name| name.strip_prefix(&within));
            argv.extend(repeat.flat_map(|name| ["--repeat".to_owned(), name.to_owned()]));
        }
        let given = ProgramInput {
            argv,
            dir,
            input: &beginning.input,
            context: Some(&context.text),
            stdin: None,
        };
        self.prepare(beginning, given, start.own_run.as_ref())
    }

    /// The run that a step is: a new one, or, where the node's `retries` or a retry of this run begin the step again with
    /// the input that it had, the one that failed. Of that only what failed inside is done again, and once each time:
    /// which one it is stands in the journal before it begins.
    fn inner_start(&self, beginning: &BeginningStep, dir: &Path) -> Result<InnerStart> {
        let step = &beginning.step;
        let new = InnerStart {
            run_id: self.own_run(step),
            own_run: None,
            retries: false,
        };
        let kept = self.own_runs.get(&step.key);
        let Some(id) = kept
            .map(|kept| kept.run.id.clone())
            .or(self.run_before(step))
        else {
            return Ok(new);
        };
        let run = RunDir::of(&Workspace::at(dir)?, &id);
        let Some(standing) = InnerStanding::read(&run)? else {
            return Ok(new);
        };
        let retries = match kept.filter(|kept| kept.is_open) {
            Some(kept) => kept.run.retries,
            None if !standing.goes_on_with(&beginning.input) => return Ok(new),
            None => standing.retries + u64::from(standing.has_ended),
        };
        Ok(InnerStart {
            run_id: id.to_string(),
            retries: standing.retries < retries,
            own_run: Some(OwnRun { id, retries }),
        })
    }

    /// The run of the attempt before, or of a step before a retry took its end back.
    fn run_before(&self, step: &StepRef) -> Option<RunId> {
        let begun = self.begun_before(step);
        let (times, failed) = match self.failed_attempts(step) {
            0 => {
                let before = begun.filter(|it| it.is_taken_back)?;
                if let Some(own) = &before.own_run {
                    return Some(own.id.clone());
                }
                (before.times - 1, before.failed)
            }
            failed => (begun.map_or(0, |it| it.times), failed - 1),
        };
        RunId::parse(&self.run_name(step, (times, failed))).ok()
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
            let mut why = printed.why_not_ended(code.unwrap_or_default());
            if need == Need::Decision {
                // As the command line of this run has it.
                let node = self.node_id(&active.step);
                why = why.replace("--repeat ", &format!("--repeat {node}/"));
            }
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
