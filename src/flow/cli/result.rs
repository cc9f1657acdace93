//! The end of a start of the engine, and its report.
//!
//! Unaware of the loop.

use super::args::RunFormat;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::engine::{EngineStop, Need, SuspendedStep};
use crate::flow::graph::router::FlowStatus as Came;
use crate::flow::record::tally::{SCHEMA_VERSION, Tally};
use crate::record::metadata::{Metadata, Status};
use crate::record::stop_reason::StopReason;
use crate::text::json;
use crate::unix::terminal::{Screen, print_json, print_value};
use serde_json::json;

/// The end of a start of the engine.
#[derive(Clone, Debug)]
pub(crate) struct RunEnding {
    /// The run's status from now on.
    pub status: Status,
    /// The reason in one word.
    pub reason: &'static str,
    /// The exit code.
    pub exit: Exit,
    /// Printed beside the result.
    said: Vec<String>,
    /// The stop reasons of the agents' runs that it waits for.
    agents: Vec<String>,
}

impl RunEnding {
    /// The ending for a stop of the loop.
    pub(crate) fn of(stopped: EngineStop, tally: &Tally) -> Self {
        let of_reason = |reason: StopReason| (reason.status(), reason.name(), reason.exit());
        let mut agents = Vec::new();
        let ((status, reason, exit), said) = match stopped {
            EngineStop::Done => {
                let came = tally.status();
                let (status, exit) = match came {
                    Came::Success => (Status::Completed, Exit::Success),
                    Came::Partial => (Status::Completed, Exit::Partial),
                    Came::Failure => (Status::Failed, Exit::Failure),
                };
                ((status, came.name(), exit), Vec::from_iter(tally.reason()))
            }
            EngineStop::Signal(stop) => {
                let ending = (Status::Interrupted, stop.name(), stop.into());
                (ending, vec![format!("ended by {}", stop.name())])
            }
            EngineStop::JournalChanged => {
                let said = "the journal was changed by another program while the run was live; look at it, \
                            then resume the run";
                (of_reason(StopReason::JournalChanged), vec![said.to_owned()])
            }
            EngineStop::Suspended(open) => {
                let ending = match open.first().map_or(Need::Time, |it| it.need) {
                    Need::Config => (Status::Interrupted, "agent", Exit::Config),
                    Need::Decision => (Status::Interrupted, "agent", Exit::Undecided),
                    Need::Paused => (Status::Interrupted, "paused", Exit::Undecided),
                    Need::Answer => (Status::WaitingForInput, "ask_human", Exit::Waiting),
                    Need::Time if open.iter().all(|it| it.due_at.is_some()) => {
                        of_reason(StopReason::Deferred)
                    }
                    Need::Time => (Status::Interrupted, "agent", Exit::TempFail),
                };
                agents.extend(open.iter().filter_map(|it| it.reason.clone()));
                (ending, explain(open))
            }
        };
        Self {
            status,
            reason,
            exit,
            said,
            agents,
        }
    }

    /// The ending for an error: the same command goes on when the cause is mended.
    pub(crate) fn broken(error: Error) -> Self {
        let (reason, exit) = match error.exit {
            exit @ (Exit::Usage | Exit::Config) => ("input", exit),
            exit if error.is_damage => ("io_error", exit),
            _ if error.disk_full => ("disk_full", Exit::TempFail),
            _ => ("io_error", Exit::TempFail),
        };
        Self {
            status: Status::Interrupted,
            reason,
            exit,
            said: vec![error.message],
            agents: Vec::new(),
        }
    }

    /// The result in short, or what went wrong.
    pub(crate) fn text(&self, tally: &Tally) -> String {
        match self.status {
            Status::Completed => tally.summary(),
            _ => self.said.join("\n"),
        }
    }
}

/// The words about steps that do not go on by themselves; those that are only to be looked at come in one.
fn explain(open: Vec<SuspendedStep>) -> Vec<String> {
    let (paused, others): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|it| it.need == Need::Paused);
    let mut said = Vec::new();
    if !paused.is_empty() {
        let names: Vec<String> = paused.into_iter().map(|it| it.text).collect();
        said.push(format!(
            "paused before {}; look at it with `delta flow show`; the same command continues past it",
            names.join(", ")
        ));
    }
    let all = others.into_iter().map(|it| it.text);
    all.chain(said).collect()
}

/// Prints the result on stdout, and errors with the way out on stderr.
pub(crate) fn print_result(
    format: RunFormat,
    screen: Screen,
    ending: &RunEnding,
    tally: &Tally,
    metadata: &Metadata,
    many: bool,
) -> Result<()> {
    for said in &ending.said {
        let is_said = said.starts_with(ending.reason);
        if is_said || ending.status == Status::WaitingForInput {
            screen.warn_as(PROGRAM, said);
        } else {
            screen.warn_as(PROGRAM, &format!("{}: {said}", ending.reason));
        }
    }
    let resumable = matches!(ending.status, Status::Interrupted | Status::WaitingForInput);
    if resumable && !screen.quiet {
        let is_deadline = ending.reason == StopReason::Deadline.name();
        let before = if is_deadline { "given more time, " } else { "" };
        let text = format!("{before}the same command resumes the run");
        screen.warn_as(PROGRAM, &text);
    }
    match format {
        RunFormat::Json => print_json(result_object(ending, tally, metadata, many)),
        // Each was printed when it ended.
        RunFormat::Jsonl => Ok(()),
        RunFormat::Text if resumable => Ok(()),
        RunFormat::Text => {
            let (first, rest) = tally.outputs(many);
            print_json(first)?;
            print_json(&rest)
        }
    }
}

/// Prints an error of a command that has no run as an object.
pub(crate) fn print_error(error: &Error) -> Result<()> {
    let object = json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": null,
        "status": null,
        "stop_reason": null,
        "exit_code": error.exit.code(),
        "error": {"type": error.kind(), "message": error.message},
    });
    print_value(&object)
}

fn result_object(ending: &RunEnding, tally: &Tally, metadata: &Metadata, many: bool) -> Vec<u8> {
    json::line(|object| {
        object
            .put("schema_version", SCHEMA_VERSION)
            .put("run_id", &metadata.run_id);
        let status = match ending.status {
            Status::Completed | Status::Failed => None,
            Status::WaitingForInput => Some("waiting_for_input"),
            Status::Running | Status::Interrupted => Some("interrupted"),
        };
        tally.write(object, many, status);
        object
            .put("stop_reason", ending.reason)
            .put("exit_code", &ending.exit.code())
            .put("messages", &ending.said);
        if !ending.agents.is_empty() {
            object.put("agent_stop_reasons", &ending.agents);
        }
        let duration = metadata.running_time().as_millis() as u64;
        object.object("metrics", |metrics| {
            tally.write_counts(metrics);
            metrics
                .put("duration_ms", &duration)
                .put("start_time", &metadata.start_time)
                .put("end_time", &metadata.end_time);
        });
    })
}
