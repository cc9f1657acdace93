//! `delta continue`: resumes a run according to its state.

use super::run::{asking_options, may_ask, warn_of_own_files};
use crate::cli::agent_names::{agent_of_run, has_name};
use crate::cli::args::{Common, ContinueArgs, continue_args};
use crate::cli::commands::run::watch_stdin;
use crate::cli::result;
use crate::engine::account::SpendingRules;
use crate::engine::outbox::Collected;
use crate::engine::question::{self, HumanAnswer, Question};
use crate::engine::start_options::{StartOptions, WaitMode};
use crate::error::{Error, Exit, Result};
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::allowed_hosts::open_hosts;
use crate::runs::decide::{Decision, Naming, Refusal, Wanted, decide};
use crate::runs::find::{find_named, flow_of, newest_waiting, no_runs};
use crate::runs::inspect::{RunSnapshot, inspect_run};
use crate::runs::launch::Launch;
use crate::runs::origin::{require_own, require_own_run};
use crate::runs::overrides::load_recorded;
use crate::runs::preflight::{check_depth, heed_deadline, install_signals, read_environment};
use crate::runs::result::RunResult;
use crate::runs::suspended::{is_suspended, run_state_of};
use crate::runs::task::{GivenMessage, Task};
use crate::runs::waiting::{register_again, start_words};
use crate::text::ids::RunId;
use crate::text::options::parse::ParsedCommand;
use crate::text::shell::shell_quoted;
use crate::unix::terminal::Screen;
use crate::unix::unread_stdin;
use std::path::Path;

pub(crate) fn continue_run(given: &ParsedCommand) -> Result<Exit> {
    let wanted = &continue_args(given)?;
    let done = try_run(wanted);
    unread_stdin::warn();
    result::print_outcome(done, &wanted.common, true)
}

fn try_run(wanted: &ContinueArgs) -> Result<RunResult> {
    let common = &wanted.common;
    watch_stdin(common, "delta continue -m -")?;
    check_depth()?;
    let signals = install_signals()?;
    heed_deadline(&signals, common.deadline)?;
    let options = &common.options;
    let screen = options.screen;
    let message = Task::read(&common.message, &signals)?.map(|it| it.message());
    let mut message = message.transpose()?;
    let workspace = Workspace::at(common.work_dir.as_deref().unwrap_or(Path::new(".")))?;
    workspace.check_layout()?;
    require_own(&workspace, common.adopt)?;
    if !workspace.control.is_dir() {
        return Err(no_runs(&workspace.root));
    }
    let lock = workspace.lock(&signals, None)?;
    let id = find_meant(&workspace, common)?;
    let run = RunDir::of(&workspace, &id);
    require_own_run(&run, common.adopt)?;
    let found = inspect_run(&run)?;
    let stale = wanted.question.as_ref().filter(|id| !is_open(&found, id));
    if let Some(question) = stale {
        let text = message.take().map(|message| message.text);
        if keep_stale_answer(&found, question, text.as_deref(), screen)? {
            return Ok(RunResult::recorded(found));
        }
    }
    let may_ask = may_ask(common, has_name(Path::new(&found.metadata.agent_home)));
    let has_text = message.is_some();
    if !must_resume(wanted, &found, has_text, options.interactive || may_ask)? {
        return Ok(reprint(found, &workspace, options));
    }
    let recorded = (id.as_str(), found.metadata.agent_home.as_str());
    let home = agent_of_run(wanted.agent.as_deref(), recorded, &workspace)?;
    let (mut agent, set) = load_recorded(&home, found.recorded(), &options.set, screen)?;
    agent.show_text(options.has_deltas());
    let options = &asking_options(common, &agent, has_name(&home));
    // A hook reports the questions after all.
    if !must_resume(wanted, &found, has_text, options.interactive)? {
        return Ok(reprint(found, &workspace, options));
    }
    if options.compacts && agent.context.window().is_some() {
        return Err(Error::config(
            "--compact: context.yaml shortens the conversation, too, with max_iterations of its journal; omit one",
        ));
    }
    let mut environment = read_environment(&mut agent, Some(&workspace), screen)?;
    open_hosts(&agent, &mut environment, &options.doors, screen)?;
    warn_of_own_files(&agent, Some(&workspace.root), screen);
    unread_stdin::check()?;
    let launch = Launch {
        spending: Some(SpendingRules::of(&agent, options.budget)?),
        agent: &agent,
        workspace: &workspace,
        environment: &environment,
        signals,
        set: &set,
        options,
    };
    if let Some(question) = found.question.as_ref().filter(|_| !found.has_ended()) {
        let answer = message
            .map(|message| answer_to(question, message, &workspace, &found.run))
            .transpose()?;
        return launch.resume(found, None, answer, lock);
    }
    launch.resume(found, message, None, lock)
}

/// What a run that is not resumed has recorded.
fn reprint(found: RunSnapshot, workspace: &Workspace, options: &StartOptions) -> RunResult {
    let home = Path::new(&found.metadata.agent_home);
    register_again(&found, home, workspace, start_words(options));
    RunResult::recorded(found)
}

/// True: the run is resumed. False: its recorded result is printed again.
fn must_resume(
    wanted: &ContinueArgs,
    found: &RunSnapshot,
    has_text: bool,
    interactive: bool,
) -> Result<bool> {
    let options = &wanted.common.options;
    let asked = Wanted {
        naming: Naming::Continue,
        has_text,
        new: false,
        retry_failed: false,
        interactive,
        attends_calls: options.patience != WaitMode::End,
    };
    if options.patience == WaitMode::GiveUp && !waits_for_calls(found) {
        let id = &found.run.id;
        return Err(Error::usage(format!(
            "--give-up: run {id} waits for no call"
        )));
    }
    match decide(asked, Some(run_state_of(found, true))) {
        Decision::Busy => Err(found.busy()),
        Decision::Reprint if options.compacts => Err(Error::usage(format!(
            "--compact: run {} waits for an answer, and no request would follow",
            found.run.id
        ))),
        Decision::Reprint => Ok(false),
        // The same command once more.
        Decision::Refuse(Refusal::NeedsMessage) if wanted.question.is_some() => Ok(false),
        Decision::Refuse(refusal) => Err(refused(refusal, found)),
        Decision::Begin | Decision::BeginInPlace | Decision::Resume => Ok(true),
    }
}

/// True for a run that waits for calls of its own, and for a live one, which may.
fn waits_for_calls(found: &RunSnapshot) -> bool {
    let is_below = is_suspended(found.metadata.stop_reason.as_deref());
    found.metadata.status == Status::Running || found.metadata.due_at.is_some() && !is_below
}

/// A message as the answer to a question of a run.
fn answer_to(
    question: &Question,
    message: GivenMessage,
    workspace: &Workspace,
    run: &RunDir,
) -> Result<HumanAnswer> {
    if !message.attached.is_empty() && question.is_secret() {
        return Err(Error::usage(
            "-f: the answer to this question is secret, and has no pictures or documents",
        ));
    }
    Ok(HumanAnswer {
        request_id: question.request_id.clone(),
        handed: Collected {
            attachments: message.store(workspace, &run.path)?,
            ..Collected::default()
        },
        text: message.text,
    })
}

/// The run of this name, or the newest one; for a person who wants to be asked, the newest that asks.
fn find_meant(workspace: &Workspace, common: &Common) -> Result<RunId> {
    if let Some(name) = &common.run_id {
        return find_named(workspace, name);
    }
    // A message is for the newest run, whatever another one asks.
    if common.options.interactive
        && common.message.is_empty()
        && let Some(id) = newest_waiting(workspace)?
    {
        return Ok(id);
    }
    let newest = workspace
        .newest()?
        .ok_or_else(|| no_runs(&workspace.root))?;
    workspace.mend_latest(&newest)?;
    let Some(flow) = flow_of(&RunDir::of(workspace, &newest)) else {
        return Ok(newest);
    };
    let root = flow.workspace().unwrap_or(&workspace.root);
    let (shown, id) = (shell_quoted(&[root.to_string_lossy()]), &flow.id);
    let text = format!(
        "the newest run here, {newest}, belongs to flow run {id}: `delta flow answer -w {shown} --run-id {id}` \
         answers its question, and the `delta flow run` that started it resumes it"
    );
    if root == workspace.root {
        let text = format!("{text}; --run-id {newest} means the agent's run alone");
        return Err(Error::usage(text));
    }
    // A task's own directory has no other run.
    common.options.screen.warn(&text);
    Ok(newest)
}

/// True if a run waits for the answer to this question, or if an engine works on it.
fn is_open(found: &RunSnapshot, request_id: &str) -> bool {
    let open = found.question.as_ref().filter(|_| !found.has_ended());
    found.metadata.status == Status::Running || open.is_some_and(|it| it.request_id == request_id)
}

/// Keeps an answer to a question that is not open, unless it is the one that has been recorded. Returns whether
/// another question is open instead.
///
/// # Errors
/// It is another answer, and no question is open.
fn keep_stale_answer(
    found: &RunSnapshot,
    request_id: &str,
    answer: Option<&str>,
    screen: Screen,
) -> Result<bool> {
    let is_other_open = found.question.is_some() && !found.has_ended();
    if found.answer_to(request_id)?.as_deref() == answer {
        return Ok(is_other_open);
    }
    let name = question::keep_unread(&found.run, answer.unwrap_or_default())?;
    let path = found.run.interaction().join(name);
    let text = format!(
        "question {request_id} is not open: the answer is not used; it is in {}",
        path.display()
    );
    if !is_other_open {
        return Err(Error::failure(text));
    }
    screen.warn(&text);
    Ok(true)
}

fn refused(refusal: Refusal, found: &RunSnapshot) -> Error {
    let id = &found.run.id;
    Error::usage(match refusal {
        Refusal::OfFlow => {
            format!("run {id} is a flow's: resume it with the `delta flow run` that started it")
        }
        _ => {
            let status = found.metadata.status.name();
            format!("run {id} is {status}: continue it with a message: -m MESSAGE")
        }
    })
}
