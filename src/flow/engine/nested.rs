//! Nodes that are flows: a run of `delta flow` for each, whose output and status are the node's.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it, and a retry of
//! the step goes on with it.

use super::agents::ChildRunEnd;
use super::printed_run::{PrintedError, PrintedRun};
use super::programs::{ActiveProgram, BeginningStep};
use super::{FlowEngine, Need, SuspendedStep};
use crate::error::Result;
use crate::flow::graph::{Failure, FailureCode, Payload};
use crate::flow::record::{OwnRun, RecordedBasis, Retries};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::shell::shell_quoted;
use crate::unix::own_program::own_program;
use crate::unix::process::{Ended, Outcome};
use std::path::Path;

/// The start of the run of a flow within the flow.
struct InnerStart {
    run_id: String,
    /// The run of an earlier step.
    own_run: Option<OwnRun>,
    /// The steps that failed in it are done again.
    retries: bool,
}

impl FlowEngine<'_> {
    /// The command of the run of a flow within the flow: of a new one, or of the one that an earlier start began, which is
    /// returned, too.
    pub(super) fn begin_nested(
        &self,
        beginning: &BeginningStep,
        inner: &Path,
        dir: &Path,
    ) -> Result<(Vec<String>, Option<OwnRun>)> {
        let (start, options) = (self.inner_start(beginning, dir)?, &self.options);
        let (inner, work_dir) = (inner.to_string_lossy(), dir.to_string_lossy());
        let jobs = options.jobs.to_string();
        let words = [
            "flow",
            "run",
            &inner,
            "-w",
            &work_dir,
            "--run-id",
            &start.run_id,
            "-j",
            &jobs,
        ]
        .into_iter()
        .chain(["-i", "-", "--format", "json", "-q"]);
        let mut argv = vec![own_program()];
        argv.extend(words.map(str::to_owned));
        if !options.launch.is_empty() {
            // Routing stays here; the prefix is for the programs inside.
            argv.extend(["--launch".to_owned(), shell_quoted(&options.launch)]);
        }
        if options.changed_ok {
            argv.extend(["--changed", "ok"].map(str::to_owned));
        }
        if start.retries {
            argv.push("--retry".to_owned());
            let within = format!("{}/", self.place.node_id(&beginning.step));
            let repeat = options
                .repeat
                .iter()
                .filter_map(|name| name.strip_prefix(&within));
            argv.extend(repeat.flat_map(|name| ["--repeat".to_owned(), name.to_owned()]));
        }
        Ok((argv, start.own_run))
    }

    /// The run that a step is: a new one, or, where the node's `retries` or a retry of this run begin the step again with
    /// the input that it had, the one that failed. Of that only what failed inside is done again, and once each time:
    /// the journal has its number before it begins.
    fn inner_start(&self, beginning: &BeginningStep, dir: &Path) -> Result<InnerStart> {
        let step = &beginning.step;
        let new = InnerStart {
            run_id: self.own_run(step),
            own_run: None,
            retries: false,
        };
        let kept = self.attempts.own_runs.get(&step.key);
        let id = kept.map(|kept| kept.run.id.clone());
        let Some(id) = id.or_else(|| self.run_before(step)) else {
            return Ok(new);
        };
        let run = RunDir::of(&Workspace::at(dir)?, &id);
        if !run.journal().is_file() {
            return Ok(new);
        }
        let inner = Retries::read(&run.journal())?;
        let retries = match kept.filter(|kept| kept.is_open) {
            Some(kept) => kept.run.retries,
            None => {
                let past = RecordedBasis::read(&run)?;
                let is_same = past.is_some_and(|past| past.is_given(&beginning.input));
                if !is_same || !inner.is_unfinished() {
                    return Ok(new);
                }
                inner.count + u64::from(inner.has_ended)
            }
        };
        Ok(InnerStart {
            run_id: id.to_string(),
            retries: inner.count < retries,
            own_run: Some(OwnRun { id, retries }),
        })
    }

    /// The end of the run of a flow within the flow that has stopped, and whether it is partial.
    pub(super) fn end_nested(
        &self,
        active: &ActiveProgram,
        outcome: &Outcome,
    ) -> Result<(ChildRunEnd, bool)> {
        let step = &active.step;
        let printed = PrintedRun::read(&active.io)?;
        if let Some((need, code)) = active.need(outcome) {
            let mut why = printed.why_not_ended(code);
            if need == Need::Decision {
                // As the command line of this run has it.
                let node = self.place.node_id(step);
                why = why.replace("--repeat ", &format!("--repeat {node}/"));
            }
            let suspended = SuspendedStep {
                due_at: self.due_at(step),
                ..SuspendedStep::new(need, why)
            };
            return Ok((ChildRunEnd::Suspended(suspended), false));
        }
        let status = printed.status.as_deref();
        let is_partial = status == Some("partial");
        let is_by_itself = active.failure.is_none() && matches!(outcome.how, Ended::Exited(_));
        let failure = if is_by_itself && (is_partial || status == Some("success")) {
            None
        } else {
            active.find_failure(outcome, self.place.flow.nodes[step.node].timeout)?
        };
        let result = match (failure, printed.output, printed.error) {
            (Some(failure), _, Some(error)) if failure.code == FailureCode::Operation => {
                Err(Failure::operation(error.text()))
            }
            (Some(failure), ..) => Err(failure),
            (None, Some(output), _) => Ok(Payload::from(output.get())),
            (None, None, _) => Ok("null".into()),
        };
        Ok((ChildRunEnd::Ended(result), is_partial))
    }
}

impl PrintedRun {
    /// The reason why the run has not ended, which ended with a code.
    fn why_not_ended(&self, code: i32) -> String {
        let errors = self.error.iter().chain(&self.errors).map(|it| &*it.message);
        let all: Vec<&str> = self
            .messages
            .iter()
            .map(String::as_str)
            .chain(errors)
            .collect();
        if all.is_empty() {
            format!("its run ended with {code}")
        } else {
            all.join("\n")
        }
    }
}

impl PrintedError {
    fn text(&self) -> String {
        match (&self.node, &self.code) {
            (Some(node), Some(code)) => format!("{node}: {code}: {}", self.message),
            _ => self.message.clone(),
        }
    }
}
