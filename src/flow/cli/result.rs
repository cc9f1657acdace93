//! The end of a start of the engine, and its report.
//!
//! Unaware of the loop.

use super::run_format::RunFormat;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::engine::{EngineStop, Need, SuspendedStep};
use crate::flow::graph::router::FlowStatus as Came;
use crate::flow::record::tally::{SCHEMA_VERSION, Tally};
use crate::record::metadata::{Metadata, Status};
use crate::record::stop_reason::StopReason;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::{Screen, print_json, print_value};
use serde_json::json;

/// How a start of the engine ended.
#[derive(Clone, Debug)]
pub(crate) struct RunEnding {
    /// The run's status from now on.
    pub status: Status,
    /// Why, in one word.
    pub reason: String,
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
        let ending = |status, reason: &str, exit, said| Self {
            status,
            reason: reason.to_owned(),
            exit,
            said,
            agents: Vec::new(),
        };
        match stopped {
            EngineStop::Done => {
                let said = tally.reason().into_iter().collect();
                let came = tally.status();
                let (status, exit) = match came {
                    Came::Success => (Status::Completed, Exit::Success),
                    Came::Partial => (Status::Completed, Exit::Partial),
                    Came::Failure => (Status::Failed, Exit::Failure),
                };
                ending(status, came.name(), exit, said)
            }
            EngineStop::Signal(stop) => {
                let said = vec![format!("ended by {}", stop.name())];
                ending(Status::Interrupted, stop.name(), stop.into(), said)
            }
            EngineStop::JournalChanged => {
                let reason = StopReason::JournalChanged;
                let said = "the journal was changed by another program while the run was live; look at it, \
                            then resume the run";
                ending(
                    reason.status(),
                    reason.name(),
                    reason.exit(),
                    vec![said.to_owned()],
                )
            }
            EngineStop::Suspended(open) => {
                let (status, reason, exit) = match open.first().map_or(Need::Time, |it| it.need) {
                    Need::Config => (Status::Interrupted, "agent", Exit::Config),
                    Need::Decision => (Status::Interrupted, "agent", Exit::Undecided),
                    Need::Look => (Status::Interrupted, "paused", Exit::Undecided),
                    Need::Answer => (Status::WaitingForInput, "ask_human", Exit::Waiting),
                    Need::Time if open.iter().all(|it| it.due_at.is_some()) => {
                        let reason = StopReason::Deferred;
                        (reason.status(), reason.name(), reason.exit())
                    }
                    Need::Time => (Status::Interrupted, "agent", Exit::TempFail),
                };
                let reasons = open.iter().filter_map(|it| it.reason.clone());
                Self {
                    agents: reasons.collect(),
                    ..ending(status, reason, exit, explain(open))
                }
            }
        }
    }

    /// The ending for an error: the same command goes on when the cause is mended.
    pub(crate) fn broken(error: Error) -> Self {
        let reason = match error.exit {
            Exit::Usage | Exit::Config => "input",
            _ if error.disk_full => "disk_full",
            _ => "io_error",
        };
        Self {
            status: Status::Interrupted,
            reason: reason.to_owned(),
            exit: match error.exit {
                exit @ (Exit::Usage | Exit::Config) => exit,
                exit if error.is_damage => exit,
                _ => Exit::TempFail,
            },
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

/// What is said of steps that do not go on by themselves; of all that are only to be looked at, once.
fn explain(open: Vec<SuspendedStep>) -> Vec<String> {
    let (paused, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|it| it.need == Need::Look);
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

/// Prints the result on stdout, and what went wrong with the way out on stderr.
pub(crate) fn print_result(
    format: RunFormat,
    screen: Screen,
    ending: &RunEnding,
    tally: &Tally,
    (metadata, many): (&Metadata, bool),
) -> Result<()> {
    for said in &ending.said {
        let reason = match ending.status {
            Status::WaitingForInput => String::new(),
            _ if said.starts_with(&ending.reason) => String::new(),
            _ => format!("{}: ", ending.reason),
        };
        screen.warn_as(PROGRAM, &format!("{reason}{said}"));
    }
    let resumable = matches!(ending.status, Status::Interrupted | Status::WaitingForInput);
    if resumable && !screen.quiet {
        let before = match ending.reason == StopReason::Deadline.name() {
            true => "given more time, ",
            false => "",
        };
        screen.warn_as(
            PROGRAM,
            &format!("{before}the same command resumes the run"),
        );
    }
    match format {
        RunFormat::Json => print_json(&result_object(ending, tally, metadata, many)),
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
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("schema_version", SCHEMA_VERSION)
        .put("run_id", &metadata.run_id);
    let status = match ending.status {
        Status::Completed | Status::Failed => None,
        Status::WaitingForInput => Some("waiting_for_input"),
        Status::Running | Status::Interrupted => Some("interrupted"),
    };
    tally.write(&mut object, many, status);
    object
        .put("stop_reason", &ending.reason)
        .put("exit_code", &ending.exit.code())
        .put("messages", &ending.said);
    if !ending.agents.is_empty() {
        object.put("agent_stop_reasons", &ending.agents);
    }
    let times = [
        Some(metadata.start_time.as_str()),
        metadata.end_time.as_deref(),
    ];
    let [start, end] = times.map(|time| time.and_then(Timestamp::parse));
    let duration = match (start, end) {
        (Some(start), Some(end)) => end.since(start).as_millis() as u64,
        _ => 0,
    };
    let mut metrics = Object::begin(object.nest("metrics"));
    tally.write_counts(&mut metrics);
    metrics
        .put("duration_ms", &duration)
        .put("start_time", &metadata.start_time)
        .put("end_time", &metadata.end_time);
    metrics.end();
    object.end();
    out.push(b'\n');
    out
}
