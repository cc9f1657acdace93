//! What a command tells at its end: the result on stdout, what went wrong and the way on on stderr.

use crate::cli::args::Format;
use crate::config::tool::bind::shell_quoted;
use crate::engine::question::Question;
use crate::engine::run_loop::Ending;
use crate::error::{Error, Result};
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::state;
use crate::text::json::{self, Object};
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::{Screen, print, printable};
use serde_json::json;
use std::io::IsTerminal;

/// The version of the JSON object.
const SCHEMA_VERSION: &str = "2.0";

/// Tells how a run ended. `question` is the one that is open.
pub(crate) fn ending(
    format: Format,
    ending: &Ending,
    metadata: &Metadata,
    question: Option<&Question>,
) -> Result<()> {
    match format {
        Format::Json => print(&object(ending, metadata, question)),
        Format::Text if ending.status == Status::Completed => {
            let newline = if ending.text.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            // A file or a pipe gets what the model said; a terminal, nothing that could change it.
            let text = if std::io::stdout().is_terminal() {
                printable(&ending.text)
            } else {
                ending.text.clone()
            };
            print(format!("{text}{newline}").as_bytes())
        }
        Format::Text => Ok(()),
    }
}

/// Says on stderr why a run did not complete, and what to do.
pub(crate) fn explain(screen: Screen, ending: &Ending, metadata: &Metadata, run: &RunDir) {
    if ending.status == Status::Completed {
        return;
    }
    let reason = match ending.status {
        Status::WaitingForInput => String::new(),
        status => format!("{} ({}): ", status.name(), ending.stop_reason),
    };
    screen.warn(&format!("{reason}{}", ending.text));
    if screen.quiet {
        return;
    }
    let mut command: Vec<String> = [
        "delta",
        "continue",
        "-w",
        &metadata.work_dir,
        "--run-id",
        run.id.as_str(),
    ]
    .map(str::to_owned)
    .to_vec();
    match ending.status {
        Status::WaitingForInput => {
            let line = shell_quoted(&command);
            screen.warn(&format!("answer with: {line} -m ANSWER"));
            let file = run.interaction().join("response.txt");
            screen.warn(&format!(
                "or write the answer to {} and run the same command again",
                file.display()
            ));
        }
        Status::Interrupted => {
            screen.warn(&format!(
                "the same command resumes it, and so does: {}",
                shell_quoted(&command)
            ));
        }
        Status::Failed => {
            command.push("-m".to_owned());
            screen.warn(&format!(
                "to go on with another message: {} MESSAGE",
                shell_quoted(&command)
            ));
        }
        Status::Completed | Status::Running => {}
    }
}

fn object(ending: &Ending, metadata: &Metadata, question: Option<&Question>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("schema_version", SCHEMA_VERSION)
        .put("run_id", &metadata.run_id)
        .put("status", ending.status.name())
        .put("stop_reason", &ending.stop_reason)
        .put("exit_code", &ending.exit.code());
    match (ending.status, question) {
        (Status::Completed, _) => {
            object.put("result", &ending.text);
        }
        (Status::WaitingForInput, Some(question)) => {
            object.put(
                "interaction",
                &json!({"prompt": question.prompt, "input_type": question.input_type, "sensitive": question.sensitive}),
            );
        }
        _ => {
            object.put(
                "error",
                &json!({"type": ending.stop_reason, "message": ending.text}),
            );
        }
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
    object
        .put(
            "metrics",
            &json!({
                "iterations": metadata.iterations,
                "duration_ms": duration,
                "start_time": metadata.start_time,
                "end_time": metadata.end_time,
                "usage": metadata.usage,
            }),
        )
        .put(
            "metadata",
            &json!({"agent_name": metadata.agent_name, "workspace_path": metadata.work_dir}),
        );
    object.end();
    out.push(b'\n');
    out
}

/// Tells of an error as an object, for a command that was to print one.
pub(crate) fn error(error: &Error) -> Result<()> {
    use crate::error::Exit;
    let kind = match error.exit {
        Exit::Usage => "usage",
        Exit::Config => "config",
        _ if error.disk_full => "disk_full",
        Exit::TempFail => "busy",
        Exit::Interrupt | Exit::Terminate | Exit::Hangup => "interrupted",
        _ => "failure",
    };
    let object = json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": null,
        "status": null,
        "stop_reason": null,
        "exit_code": error.exit.code(),
        "error": {"type": kind, "message": error.message},
        "metrics": null,
        "metadata": null,
    });
    print(format!("{}\n", json::text(&object)).as_bytes())
}

/// The question that a run waits for.
pub(crate) fn open_question(run: &state::Run<'_>) -> Option<Question> {
    let calls = &run.last_thought()?.calls;
    let asked = calls
        .iter()
        .filter(|call| call.result.is_none())
        .find_map(|call| call.question.as_ref())?;
    asked.response.is_none().then(|| Question {
        request_id: asked.request_id.to_string(),
        prompt: asked.prompt.to_string(),
        input_type: asked.input_type.to_string(),
        sensitive: asked.sensitive,
    })
}
