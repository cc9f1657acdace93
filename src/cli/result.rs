//! The output at the end of a command: the result on stdout, errors and the next step on stderr.

use crate::cli::agent_names::is_nested;
use crate::cli::args::Common;
use crate::engine::question::Question;
use crate::engine::run_loop::Ending;
use crate::error::{Error, Exit, Result};
use crate::record::feed::{Feed, SCHEMA_VERSION};
use crate::record::metadata::{self, Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::stop_reason::StopReason;
use crate::record::workspace::{Workspace, command_in};
use crate::runs::find::newest_waiting;
use crate::runs::inspect::RunSnapshot;
use crate::runs::overrides::{guarded, option_words};
use crate::runs::result::RunResult;
use crate::text::json::{self, Object};
use crate::text::options::format::OutputFormat;
use crate::text::shell::shell_quoted;
use crate::unix::terminal::{
    Screen, Tone, end_text, print, print_json, stderr_is_terminal, styled_answer,
};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::Path;

/// Prints the result of a command that works on a run, or its error if an object was asked for, and then
/// seals the run.
///
/// A command that is not repeatable makes a new run each time, so that only another command resumes it.
pub(crate) fn print_outcome(
    done: Result<RunResult>,
    common: &Common,
    is_repeatable: bool,
) -> Result<Exit> {
    let printed = done
        .and_then(|result| print_result(result, common, is_repeatable))
        .map_err(Error::of_run);
    if let Err(failed) = &printed
        && common.format == OutputFormat::Json
    {
        print_object(common.options.feed.as_deref(), None, |object| {
            error(object, failed);
        })?;
    }
    printed
}

/// Prints an object, alone or as the last of the lines of a run that a program follows.
fn print_object(
    feed: Option<&Feed>,
    run: Option<(&str, &str)>,
    members: impl FnOnce(&mut Object<'_>),
) -> Result<()> {
    let line = json::line(|object| {
        if feed.is_some() {
            object.put("type", "result");
        }
        members(object);
    });
    let Some(feed) = feed else {
        return print_json(&line);
    };
    feed.begin(run);
    feed.add(&line);
    Ok(())
}

fn print_result(result: RunResult, common: &Common, is_repeatable: bool) -> Result<Exit> {
    let screen = common.options.screen;
    explain(screen, &result, is_repeatable);
    if is_on_stdout(&result) {
        end_text();
    } else if common.format == OutputFormat::Json {
        let metadata = &result.metadata;
        let run = (metadata.run_id.as_str(), metadata.work_dir.as_str());
        let feed = common.options.feed.as_deref();
        print_object(feed, Some(run), |object| describe(object, &result))?;
    } else {
        print_text(&result.ending)?;
    }
    Ok(seal(result, screen, ""))
}

/// Prints what a run has used, which takes reading its journal, after a label, and seals it.
fn seal(result: RunResult, screen: Screen, label: &str) -> Exit {
    let exit = result.ending.exit;
    if !screen.quiet
        && let Some(summary) = result.summary()
    {
        screen.progress(&[(Tone::Dim, &format!("{label}{summary}"))]);
        if !result.changed().is_empty() {
            screen.progress(&[(Tone::Dim, &format!("changed: {}", result.changed()))]);
        }
    }
    result.seal();
    exit
}

/// True if the result arrived on the terminal that stdout is.
fn is_on_stdout(result: &RunResult) -> bool {
    result.is_shown() && std::io::stdout().is_terminal()
}

/// Prints the answer to one message of a conversation, or the reason for its absence, and seals the run.
pub(crate) fn print_answer(result: RunResult, screen: Screen) -> Result<Exit> {
    let ending = &result.ending;
    match ending.status {
        Status::Completed if is_on_stdout(&result) => end_text(),
        Status::Completed => print_text(ending)?,
        Status::WaitingForInput => explain(screen, &result, false),
        _ if ending.exit == Exit::Interrupt => {
            screen.warn("stopped; the next message goes on from here");
        }
        status => {
            let text = format!(
                "{} ({}): {}",
                status.name(),
                ending.stop_reason,
                ending.text
            );
            screen.warn(&text);
        }
    }
    // Of a conversation: all of it.
    Ok(seal(result, screen, "so far: "))
}

/// Prints the result of a run that is complete. A file or a pipe gets what the model said; a terminal, nothing that
/// could change it.
fn print_text(ending: &Ending) -> Result<()> {
    if ending.status != Status::Completed {
        return Ok(());
    }
    let mut text = ending.text.clone();
    if std::io::stdout().is_terminal() {
        text = styled_answer(&text);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    print(text)
}

/// Says on stderr why a run did not complete, and what to do.
fn explain(screen: Screen, result: &RunResult, is_repeatable: bool) {
    let (ending, metadata, run) = (&result.ending, &result.metadata, &result.run);
    if ending.status == Status::Completed {
        return;
    }
    let reason = match ending.status {
        Status::WaitingForInput => String::new(),
        // "ended by SIGINT"
        status if ending.text.ends_with(&ending.stop_reason) => format!("{}: ", status.name()),
        status => format!("{} ({}): ", status.name(), ending.stop_reason),
    };
    screen.warn(&format!("{reason}{}", ending.text));
    let mut command = resume_command(metadata, run);
    if let Some(awaited) = &result.awaited {
        explain_awaited(screen, awaited);
    }
    // Who must answer is not helped by silence.
    if screen.quiet && ending.status != Status::WaitingForInput {
        return;
    }
    match ending.status {
        Status::WaitingForInput => explain_question(screen, command, run, result.question.as_ref()),
        Status::Interrupted => {
            let is = |reason: StopReason| ending.stop_reason == reason.name();
            let before = if is(StopReason::Budget) {
                // Its own words say how the budget is raised.
                "after that "
            } else if is(StopReason::Deadline) {
                "given more time, "
            } else {
                ""
            };
            let hint = if is_repeatable {
                "the same command resumes it, and so does:"
            } else {
                "to resume it:"
            };
            if stderr_is_terminal() && is_newest(run) {
                leave_out_id(&mut command, None);
            }
            screen.warn(&format!("{before}{hint} {}", shell_quoted(&command)));
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

/// Says how a question is answered. `command` continues its run.
fn explain_question(
    screen: Screen,
    mut command: Vec<String>,
    run: &RunDir,
    question: Option<&Question>,
) {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        let mut asks = command.clone();
        if is_newest_waiting(run) {
            leave_out_id(&mut asks, Some("-i"));
        } else {
            asks.push("-i".to_owned());
        }
        screen.warn(&format!(
            "to be asked at this terminal: {}",
            shell_quoted(&asks)
        ));
    }
    name_question(&mut command, question);
    let line = shell_quoted(&command);
    if is_confirmation(question) {
        screen.warn(&format!("to let it run: {line} -m yes"));
        screen.warn(&format!(
            "to refuse, with words for the model: {line} -m WORDS"
        ));
    } else {
        screen.warn(&format!("answer with: {line} -m ANSWER"));
    }
    let file = run.interaction().join("response.txt");
    screen.warn(&format!(
        "or write the answer to {} and run the same command again",
        file.display()
    ));
}

/// Puts another option in the place of the id, where delta finds the run without that.
fn leave_out_id(command: &mut Vec<String>, option: Option<&str>) {
    if let Some(at) = command.iter().position(|word| word == "--run-id") {
        command.splice(at..at + 2, option.map(str::to_owned));
    }
}

/// True for a question of delta's own about a call. A model can ask for a yes, too, but not name what it lets run.
fn is_confirmation(question: Option<&Question>) -> bool {
    question.is_some_and(|question| question.fingerprint.is_some())
}

/// Adds to a command which question it answers.
fn name_question(command: &mut Vec<String>, question: Option<&Question>) {
    let id = question.map(|question| question.request_id.clone());
    if let Some(id) = id.filter(|id| !id.is_empty()) {
        command.extend(["--question".to_owned(), id]);
    }
}

/// Says what to do about the run of a sub-agent that its parent waits for. A flow's says so itself.
fn explain_awaited(screen: Screen, awaited: &RunSnapshot) {
    let run = &awaited.run;
    if awaited.question.is_some() {
        let command = resume_command(&awaited.metadata, run);
        return explain_question(screen, command, run, awaited.question.as_ref());
    }
    if screen.quiet {
        return;
    }
    if let Some(root) = run.workspace() {
        let mut show = command_in(root, &["delta", "log"]);
        show.push(run.id.to_string());
        screen.warn(&format!("the sub-agent's run: {}", shell_quoted(&show)));
    }
}

/// True if `delta continue -i` finds this run.
fn is_newest_waiting(run: &RunDir) -> bool {
    let workspace = run.workspace().and_then(|root| Workspace::at(root).ok());
    let is_part = metadata::read(&run.path).is_some_and(|it| it.parent_run_id.is_some());
    let is_found = |workspace: Workspace| {
        newest_waiting(&workspace).is_ok_and(|id| id.as_ref() == Some(&run.id))
    };
    // This process may still hold it.
    !is_part && (is_newest(run) || workspace.is_some_and(is_found))
}

/// True if `delta continue` resumes this run.
fn is_newest(run: &RunDir) -> bool {
    let workspace = run.workspace().and_then(|root| Workspace::at(root).ok());
    let newest = workspace.and_then(|it| it.newest().ok().flatten());
    newest.as_ref() == Some(&run.id)
}

/// The command that resumes a run, for a person who is where this one was given.
fn resume_command(metadata: &Metadata, run: &RunDir) -> Vec<String> {
    continue_command(metadata, run, command_in)
}

/// The command that resumes a run, with the words by which its workspace is named.
fn continue_command(
    metadata: &Metadata,
    run: &RunDir,
    in_workspace: fn(&Path, &[&str]) -> Vec<String>,
) -> Vec<String> {
    let root = run.workspace().unwrap_or(Path::new(&metadata.work_dir));
    let mut command = in_workspace(root, &["delta", "continue"]);
    command.extend(["--run-id".to_owned(), run.id.to_string()]);
    let home = &metadata.agent_home;
    if is_nested(Path::new(home), root) {
        command.extend(["-a".to_owned(), home.clone()]);
    }
    for (key, value) in guarded(&metadata.set) {
        command.extend(option_words(key, value));
    }
    command
}

/// The members of the object that describes how a run ended.
fn describe(object: &mut Object<'_>, result: &RunResult) {
    let (ending, metadata) = (&result.ending, &result.metadata);
    object
        .put("schema_version", SCHEMA_VERSION)
        .put("run_id", &metadata.run_id)
        .put("status", ending.status.name())
        .put("stop_reason", &ending.stop_reason)
        .put("exit_code", &ending.exit.code());
    match (ending.status, &result.question) {
        (Status::Completed, _) => {
            object.put("result", &ending.text);
        }
        (Status::WaitingForInput, Some(question)) => {
            object.put("interaction", &interaction(question));
        }
        _ => {
            object.put(
                "error",
                &json!({"type": ending.stop_reason, "message": ending.text}),
            );
        }
    }
    if let Some(awaited) = &result.awaited {
        let root = awaited.run.workspace();
        let asked = awaited.question.as_ref().map(interaction);
        object.put(
            "awaits",
            &json!({
                "run_id": awaited.run.id.as_str(),
                "workspace_path": root.map(Path::to_string_lossy),
                "interaction": asked,
                "answer_command": asked.is_some().then(|| answer_command(awaited)),
            }),
        );
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
}

/// The command that answers a run's question.
pub(crate) fn answer_command(asking: &RunSnapshot) -> String {
    let question = asking.question.as_ref();
    let from_anywhere = |root: &Path, command: &[&str]| {
        let place = root.to_string_lossy();
        [command, &["-w", &place]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let mut command = continue_command(&asking.metadata, &asking.run, from_anywhere);
    name_question(&mut command, question);
    let answer = if is_confirmation(question) {
        " -m yes"
    } else {
        " -m ANSWER"
    };
    shell_quoted(&command) + answer
}

/// A question as programs read it.
fn interaction(question: &Question) -> Value {
    json!({
        "request_id": question.request_id,
        "prompt": question.prompt,
        "input_type": question.input_type.name(),
        "sensitive": question.sensitive,
    })
}

/// The members of an object for an error.
fn error(object: &mut Object<'_>, error: &Error) {
    object.members(&json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": null,
        "status": null,
        "stop_reason": null,
        "exit_code": error.exit.code(),
        "error": {"type": error.kind(), "message": error.message},
        "metrics": null,
        "metadata": null,
    }));
}
