//! `delta fork`: a new run that begins with the first iterations of another one, which stays as it is.

use crate::cli::agent_names::{agent_of_run, has_name};
use crate::cli::args::{ForkArgs, fork_args};
use crate::cli::commands::run::{asking_options, watch_stdin};
use crate::cli::result;
use crate::engine::account::SpendingRules;
use crate::error::{Error, Exit, Result};
use crate::record::event::ForkedFrom;
use crate::record::metadata::Metadata;
use crate::record::recording::{Beginning, Recording, unreadable};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Run};
use crate::record::workspace::Workspace;
use crate::runs::allowed_hosts::open_hosts;
use crate::runs::find::{NEWEST, find_run};
use crate::runs::inspect::RecordedSettings;
use crate::runs::launch::Launch;
use crate::runs::open::{Inherited, OpenRun};
use crate::runs::origin::require_own_run;
use crate::runs::overrides::load_recorded;
use crate::runs::preflight;
use crate::runs::result::RunResult;
use crate::runs::state_copy::{CopyPlace, keep, return_copy};
use crate::runs::task::{GivenMessage, Task};
use crate::runs::workspace_copy::{Unfinished, copy_files, refuse_unless_empty};
use crate::text::disguise::printable_line;
use crate::text::ids::RunId;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::Timestamp;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone};
use crate::unix::unread_stdin;
use std::path::Path;

pub(crate) fn fork_run(given: &ParsedCommand) -> Result<Exit> {
    let fork = &fork_args(given)?;
    let done = try_run(fork);
    unread_stdin::warn();
    result::print_outcome(done, &fork.common, false)
}

fn try_run(fork: &ForkArgs) -> Result<RunResult> {
    watch_stdin(&fork.common, "delta fork -m -")?;
    preflight::check_depth()?;
    let signals = preflight::install_signals()?;
    let common = &fork.common;
    preflight::heed_deadline(&signals, common.deadline)?;
    let options = &common.options;
    let screen = options.screen;
    let message = Task::read(&common.message, &signals)?
        .map(|message| message.message())
        .transpose()?;
    let (parent, here) = find_parent(fork)?;
    let recording = Recording::read(&parent)?;
    let whole = recording.state()?;
    let beginning = beginning(&recording, fork, message.is_some())?;
    let id = parent.id.as_str();
    let recorded = (id, &*whole.start.agent_home);
    let home = agent_of_run(fork.agent.as_deref(), recorded, &here)?;
    let recorded = RecordedSettings {
        id: &parent.id,
        set: &whole.start.set(),
        journal: recording.source(),
    };
    let (mut agent, set) = load_recorded(&home, recorded, &options.set, screen)?;
    let options = &asking_options(common, &agent, has_name(&home));
    // Report what the environment lacks before anything is created.
    let mut environment = preflight::read_environment(&mut agent, Some(&here), screen)?;
    let rules = SpendingRules::of(&agent, options.budget)?;
    open_hosts(&agent, &mut environment, &options.doors, screen)?;
    unread_stdin::check()?;
    let mut unfinished = None;
    let workspace = match &fork.to {
        Some(to) => {
            let (workspace, copy) = copy_workspace(&parent, &whole, fork, to, &signals)?;
            unfinished = Some(copy);
            environment = preflight::read_environment(&mut agent, Some(&workspace), screen)?;
            environment.allow_hosts(&options.doors);
            workspace
        }
        None => {
            if !whole.file_states.all.is_empty() {
                let text = "the files are as they are now; with --to DIR, the fork has those of its last iteration";
                screen.progress(&[(Tone::Dim, text)]);
            }
            here
        }
    };
    let launch = Launch {
        agent: &agent,
        workspace: &workspace,
        environment: &environment,
        signals,
        set: &set,
        options,
        spending: Some(rules),
    };
    let from = Parent {
        run: &parent,
        whole: &whole,
        beginning: &beginning,
    };
    let open = begin(&launch, &from, fork, message)?;
    if let Some(copy) = unfinished {
        copy.keep();
    }
    launch.run_engine(open, None, None)
}

/// The run to fork, and its workspace.
fn find_parent(fork: &ForkArgs) -> Result<(RunDir, Workspace)> {
    let work_dir = fork.common.work_dir.as_deref().unwrap_or(Path::new("."));
    let parent = find_run(work_dir, fork.run.as_deref().unwrap_or(NEWEST))?;
    let Some(root) = parent.workspace() else {
        let path = parent.path.display();
        return Err(Error::failure(format!(
            "{path} is in no workspace: copy it to .delta/{} in one, and fork it there",
            parent.id
        )));
    };
    let here = Workspace::at(root)?;
    here.check_layout()?;
    require_own_run(&parent, fork.common.adopt)?;
    Ok((parent, here))
}

/// Copies a run's workspace, with the files as they were if the record has them. What is returned with it removes the copy
/// again unless it is kept.
fn copy_workspace(
    parent: &RunDir,
    whole: &Run<'_>,
    fork: &ForkArgs,
    to: &Path,
    signals: &Signals,
) -> Result<(Workspace, Unfinished)> {
    let screen = fork.common.options.screen;
    refuse_unless_empty(to)?;
    Workspace::at(to)?.check_writable()?;
    let from = parent.workspace().unwrap_or(&parent.path);
    let copy = copy_files(from, to, screen)?;
    let workspace = Workspace::at(to)?;
    if !fork.files_of_now {
        let place = CopyPlace {
            workspace: &workspace,
            signals,
            screen,
        };
        let left_out = return_copy(parent, whole, fork.at, &place)?;
        say_whose_files(left_out.as_deref(), whole, fork.at, screen);
    }
    Ok((workspace, copy))
}

/// Says what the files of a copied workspace are. `left_out`: of which only those of now are known.
fn say_whose_files(left_out: Option<&str>, whole: &Run<'_>, at: u64, screen: Screen) {
    match left_out {
        Some(others) => {
            let more = if others.is_empty() { "" } else { ", " };
            let text = format!(
                "files as after iteration {at}; as they are now: ignored files{more}{others}"
            );
            screen.progress(&[(Tone::Dim, &printable_line(&text))]);
        }
        None if whole.file_states.all.is_empty() => {}
        None => screen.warn("the record has no files of this iteration: they are as they are now"),
    }
}

/// The run that a new one is made from.
struct Parent<'p> {
    run: &'p RunDir,
    whole: &'p Run<'p>,
    beginning: &'p Beginning<'p>,
}

/// The iterations to begin with, if something can follow them.
fn beginning<'r>(
    recording: &'r Recording,
    fork: &ForkArgs,
    something_is_said: bool,
) -> Result<Beginning<'r>> {
    let (id, at) = (&recording.run.id, fork.at);
    let beginning = Beginning::of(&recording.journal, at).map_err(|why| {
        Error::usage(format!("--at {at}: run {id} cannot be forked there: {why}"))
    })?;
    let is_done = read(beginning.journal, recording)?.has_final_answer();
    if is_done && !something_is_said {
        return Err(Error::usage(format!(
            "--at {at}: iteration {at} of run {id} is a final answer; give the next message with -m MESSAGE"
        )));
    }
    Ok(beginning)
}

fn read<'j>(journal: &'j [u8], recording: &Recording) -> Result<Run<'j>> {
    state::read(journal, Reading::default())
        .map_err(|error| unreadable(&error, &recording.run.journal()))
}

/// Creates the run.
fn begin(
    launch: &Launch<'_>,
    from: &Parent<'_>,
    fork: &ForkArgs,
    message: Option<GivenMessage>,
) -> Result<OpenRun> {
    let beginning = from.beginning;
    let shared = state::read(beginning.journal, Reading::default())
        .map_err(|error| unreadable(&error, &from.run.journal()))?;
    let text = message.as_ref().map(|message| message.text.clone());
    let first = shared.first_message.as_deref().or(text.as_deref());
    let task = first
        .or(from.whole.first_message.as_deref())
        .unwrap_or_default();
    let is_again = shared.first_message.is_some() || message.is_none();
    let said = match beginning.iterations {
        0 if is_again => Some(GivenMessage::first_of(from.run, task.to_owned())),
        _ => message,
    };
    let id = match &fork.common.run_id {
        Some(name) => RunId::parse(name).map_err(Error::usage)?,
        None => RunId::generate(Timestamp::now()),
    };
    let mut metadata = Metadata {
        run_id: id.to_string(),
        workspace_id: launch.workspace.id(),
        parent_run_id: preflight::parent_run(),
        parent_call_id: preflight::parent_call(),
        ..Metadata::default()
    };
    metadata.correct(&shared);
    metadata.created_at = Timestamp::now().to_string();
    metadata.initial_message = Some(task.to_owned());
    metadata.forked_from = Some(ForkedFrom {
        run_id: from.run.id.to_string(),
        iteration: beginning.iterations,
    });
    launch.workspace.create()?;
    let _lock = launch.workspace.lock(&launch.signals, None)?;
    let inherited = Inherited {
        beginning,
        state: &shared,
        run: &from.run.path,
    };
    let open = launch
        .start()
        .begin(&id, metadata, Some(inherited), |journal| {
            let Some(said) = said else {
                return Ok(());
            };
            let staging = launch.workspace.staging_dir();
            said.record(launch.workspace, &staging, journal, beginning.iterations)
        })?;
    if let Err(error) = keep(&open.run, launch.workspace, &shared.file_states) {
        let text = format!("the states of its files are those of the original run alone: {error}");
        launch.options.screen.warn(&printable_line(&text));
    }
    Ok(open)
}
