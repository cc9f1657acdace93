//! The output at the end of a command: the result on stdout, errors and the next step on stderr.

use crate::cli::args::Common;
use crate::config::tool::bind::shell_quoted;
use crate::engine::question::Question;
use crate::engine::run_loop::Ending;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::overrides::{is_guarded, is_inside};
use crate::runs::result::RunResult;
use crate::text::json::{self, Object};
use crate::text::options::format::OutputFormat;
use crate::unix::terminal::{Screen, Tone, print, printable};
use serde_json::json;
use std::io::IsTerminal;
use std::path::Path;

/// The version of the JSON object.
const SCHEMA_VERSION: &str = "2.0";

/// Prints the result of a command that works on a run, or its error if an object was asked for, and then
/// seals the run.
pub(crate) fn print_outcome(done: Result<RunResult>, common: &Common) -> Result<Exit> {
    let screen = Screen::new(common.quiet, common.verbose);
    let printed = done.and_then(|result| print_result(result, common.format, screen));
    print_error_object(printed, common.format)
}

/// Prints the error of a command that works on a run as an object, if one was asked for.
pub(crate) fn print_error_object(done: Result<Exit>, format: OutputFormat) -> Result<Exit> {
    let done = done.map_err(Error::of_run);
    if let Err(failed) = &done
        && format == OutputFormat::Json
    {
        error(failed)?;
    }
    done
}

fn print_result(result: RunResult, format: OutputFormat, screen: Screen) -> Result<Exit> {
    let (ending, metadata) = (&result.ending, &result.metadata);
    explain(screen, ending, metadata, &result.run);
    print_ending(format, ending, metadata, result.question.as_ref())?;
    if let Some(summary) = result.summary() {
        screen.progress(&[(Tone::Dim, &summary)]);
    }
    let exit = ending.exit;
    result.seal();
    Ok(exit)
}

/// Prints how a run ended. `question` is the one that is open.
fn print_ending(
    format: OutputFormat,
    ending: &Ending,
    metadata: &Metadata,
    question: Option<&Question>,
) -> Result<()> {
    match format {
        OutputFormat::Json => print(&object(ending, metadata, question)),
        OutputFormat::Text if ending.status == Status::Completed => {
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
        OutputFormat::Text => Ok(()),
    }
}

/// Says on stderr why a run did not complete, and what to do.
fn explain(screen: Screen, ending: &Ending, metadata: &Metadata, run: &RunDir) {
    if ending.status == Status::Completed {
        return;
    }
    let reason = match ending.status {
        Status::WaitingForInput => String::new(),
        status => format!("{} ({}): ", status.name(), ending.stop_reason),
    };
    screen.warn(&format!("{reason}{}", ending.text));
    let mut command = continue_command(metadata, run);
    // Who must answer is not helped by silence.
    if screen.quiet && ending.status != Status::WaitingForInput {
        return;
    }
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
                "to send another message: {} MESSAGE",
                shell_quoted(&command)
            ));
        }
        Status::Completed | Status::Running => {}
    }
}

/// The command that resumes a run from any directory.
fn continue_command(metadata: &Metadata, run: &RunDir) -> Vec<String> {
    let root = run.workspace().unwrap_or(Path::new(&metadata.work_dir));
    let root_text = root.to_string_lossy();
    let mut command = [
        "delta",
        "continue",
        "-w",
        &root_text,
        "--run-id",
        run.id.as_str(),
    ]
    .map(str::to_owned)
    .to_vec();
    let home = &metadata.agent_home;
    if Workspace::at(root).is_ok_and(|workspace| is_inside(Path::new(home), &workspace)) {
        command.extend(["-a".to_owned(), home.clone()]);
    }
    for (key, value) in metadata.set.iter().filter(|(key, _)| is_guarded(key)) {
        command.extend(["--set".to_owned(), format!("{key}={}", json::text(value))]);
    }
    command
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
    let duration = metadata.running_time().as_millis() as u64;
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

/// Prints an error as an object.
fn error(error: &Error) -> Result<()> {
    let object = json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": null,
        "status": null,
        "stop_reason": null,
        "exit_code": error.exit.code(),
        "error": {"type": error.kind(), "message": error.message},
        "metrics": null,
        "metadata": null,
    });
    print(format!("{}\n", json::text(&object)).as_bytes())
}
