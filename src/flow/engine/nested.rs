//! Nodes that are flows: a run of `delta flow` for each, whose output and status are the node's.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it, and a retry of
//! the step goes on with it.

use super::agents::ChildRunEnd;
use super::attempt_runs::AttemptState;
use super::prepare::BeginningStep;
use super::programs::ActiveProgram;
use super::{FlowOptions, Need, RunPlace, SuspendedStep};
use crate::error::{At, Result};
use crate::flow::PROGRAM;
use crate::flow::graph::{Failure, FailureCode, Payload};
use crate::flow::record::{InnerStanding, OwnRun, find_failure, program_beside};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::shell::shell_quoted;
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::Path;

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
    /// The steps that failed in it are done again.
    retries: bool,
}

/// The command of the run of a flow within the flow: of a new one, or of the one that an earlier start began, which is
/// returned, too.
pub(super) fn begin_nested(
    (place, options): (&RunPlace<'_>, &FlowOptions),
    attempts: &AttemptState,
    beginning: &BeginningStep,
    (inner, dir): (&Path, &Path),
) -> Result<(Vec<String>, Option<OwnRun>)> {
    let start = inner_start(place, attempts, beginning, dir)?;
    let mut argv = vec![program_beside(PROGRAM)];
    let (inner, work_dir) = (inner.to_string_lossy(), dir.to_string_lossy());
    let jobs = options.jobs.to_string();
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
    if !options.launch.is_empty() {
        // Routing stays here; the prefix is for the programs inside.
        argv.push("--launch".to_owned());
        argv.push(shell_quoted(&options.launch));
    }
    if options.changed_ok {
        argv.extend(["--changed", "ok"].map(str::to_owned));
    }
    if start.retries {
        argv.push("--retry".to_owned());
        let within = format!("{}/", place.node_id(&beginning.step));
        let repeat = options.repeat.iter();
        let repeat = repeat.filter_map(|name| name.strip_prefix(&within));
        argv.extend(repeat.flat_map(|name| ["--repeat".to_owned(), name.to_owned()]));
    }
    Ok((argv, start.own_run))
}

/// The run that a step is: a new one, or, where the node's `retries` or a retry of this run begin the step again with
/// the input that it had, the one that failed. Of that only what failed inside is done again, and once each time:
/// the journal has its number before it begins.
fn inner_start(
    place: &RunPlace<'_>,
    attempts: &AttemptState,
    beginning: &BeginningStep,
    dir: &Path,
) -> Result<InnerStart> {
    let step = &beginning.step;
    let new = InnerStart {
        run_id: attempts.own_run(place, step),
        own_run: None,
        retries: false,
    };
    let kept = attempts.own_runs.get(&step.key);
    let Some(id) = kept
        .map(|kept| kept.run.id.clone())
        .or(attempts.run_before(place, step))
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

/// The end of the run of a flow within the flow that has stopped, and whether it is partial.
pub(super) fn end_nested(
    (place, attempts): (&RunPlace<'_>, &AttemptState),
    active: &ActiveProgram,
    outcome: &Outcome,
) -> Result<(ChildRunEnd, bool)> {
    let path = active.io.join("stdout.log");
    let printed = std::fs::read(&path).at("read", &path)?;
    let printed: InnerResult = serde_json::from_slice(&printed).unwrap_or_default();
    let code = match outcome.how {
        Ended::Exited(code) if active.failure.is_none() => Some(code),
        _ => None,
    };
    if let Some(need) = code.and_then(Need::of_exit) {
        let mut why = printed.why_not_ended(code.unwrap_or_default());
        if need == Need::Decision {
            // As the command line of this run has it.
            let node = place.node_id(&active.step);
            why = why.replace("--repeat ", &format!("--repeat {node}/"));
        }
        let suspended = SuspendedStep {
            due_at: attempts.due_at(place, &active.step),
            ..SuspendedStep::new(need, why)
        };
        return Ok((ChildRunEnd::Suspended(suspended), false));
    }
    let timeout = place.flow.nodes[active.step.node].timeout;
    let is_partial = printed.status.as_deref() == Some("partial");
    let came = is_partial || printed.status.as_deref() == Some("success");
    let fault = match &active.failure {
        Some(failure) => Some(failure.clone()),
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
    Ok((ChildRunEnd::Ended(result), is_partial))
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
