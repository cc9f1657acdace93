//! `delta replay`: a recorded run again, with the model's recorded answers. Every request is compared
//! with the recorded one.

use crate::cli::agent_names::agent_of_run;
use crate::cli::args::{check_verbosity, settings};
use crate::config::agent::{Agent, ChainSource, Source, StartLimits};
use crate::config::environment::Environment;
use crate::engine::start_options::StartOptions;
use crate::error::{Error, Exit, Result};
use crate::model::replay::Divergence;
use crate::record::reader::readable_lines;
use crate::record::recording::Recording;
use crate::record::workspace::Workspace;
use crate::runs::find::{NEWEST, find_run};
use crate::runs::inspect::{RecordedSettings, is_live};
use crate::runs::launch::Launch;
use crate::runs::origin::require_own_run;
use crate::runs::overrides::load_recorded;
use crate::runs::preflight;
use crate::runs::replay::{Repetition, compare, repeat};
use crate::runs::state_copy::fill;
use crate::runs::workspace_copy::ReplayDir;
use crate::text::amounts::counted;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::text::order::sort_by;
use crate::unix::terminal::{Screen, Tone, print};
use crate::view::effects::EffectList;
use crate::view::request_diff::first;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

pub(crate) fn replay_run(given: &ParsedCommand) -> Result<Exit> {
    check_verbosity(given)?;
    let set = settings(given)?;
    preflight::check_depth()?;
    let signals = preflight::install_signals()?;
    let screen = Screen::new(given.has("--quiet"), given.has("--verbose"));
    let name = given.operand_text(0);
    let run = find_run(&given.work_dir(), name.as_deref().unwrap_or(NEWEST))?;
    if is_live(&run) {
        let id = &run.id;
        return Err(Error::new(
            Exit::TempFail,
            format!("run {id} is live: it can be replayed when it has ended"),
        ));
    }
    require_own_run(&run, given.has("--adopt"))?;
    let recording = Recording::read(&run)?;
    if recording.steps.is_empty() {
        let id = &run.id;
        return Err(Error::failure(format!(
            "run {id} has no answer of a model: there is nothing to replay"
        )));
    }
    let agent = given.path("--agent");
    let (agent, set) = agent_and_overrides(agent.as_deref(), &set, &recording, screen)?;
    let (to, from) = (given.path("--to"), given.path("--from"));
    let place = ReplayDir::make(to.as_deref(), from.as_deref(), screen)?;
    let inherited = recording.inherited_steps.last();
    let before = inherited.map_or(0, |step| step.iteration);
    let root = &place.workspace.root;
    let has_files = from.is_some() || fill(&run, &recording.state()?, before, root, screen)?;
    // The results of tools, hooks and generators are taken from the record.
    let executes_nothing = given.text("--tools").as_deref() == Some("recorded");
    let (environment, _) = Environment::of_agent(&agent, Some(&place.workspace.root))?;
    let workspace = &place.workspace;
    let options = StartOptions {
        screen,
        ..StartOptions::default()
    };
    let launch = Launch {
        agent: &agent,
        workspace,
        environment: &environment,
        signals,
        set: &set,
        options: &options,
        spending: None,
    };
    if !executes_nothing {
        warn_of_effects(&agent, &recording, screen);
    }
    let recording = Rc::new(recording);
    let repetition = if executes_nothing {
        compare(&launch, &recording)?
    } else {
        repeat(&launch, &recording)?
    };
    let exit = print_comparison(&repetition, &recording, &agent, workspace)?;
    if !screen.quiet
        && !executes_nothing
        && let Some(divergence) = &repetition.divergence
    {
        advise(divergence, &agent, has_files, screen);
    }
    place.leave(exit == Exit::Success, screen);
    Ok(exit)
}

/// Names the tools whose effect a repetition has once more.
fn warn_of_effects(agent: &Agent, recording: &Recording, screen: Screen) {
    let mut list = EffectList::default();
    for (_, line) in readable_lines(&recording.journal) {
        list.add(&line);
    }
    let rows = list.into_rows(false).into_iter();
    let done: BTreeSet<String> = rows
        .filter(|row| !row.command.is_empty())
        .map(|row| row.tool_name)
        .collect();
    let has_effect = |name: &&str| {
        let mut tools = agent.tools.iter();
        tools.any(|tool| tool.name == *name && tool.has_effect)
    };
    let again: Vec<&str> = done.iter().map(String::as_str).filter(has_effect).collect();
    if !again.is_empty() {
        let names = again.join(", ");
        let text = format!("tools with an effect run again: {names}");
        screen.progress(&[(Tone::Dim, &text)]);
    }
}

/// The agent that the run had, or another one, without what would end a repetition early.
fn agent_and_overrides(
    given: Option<&Path>,
    set: &[(String, String)],
    recording: &Recording,
    screen: Screen,
) -> Result<(Agent, Map<String, Value>)> {
    let state = recording.state()?;
    let run = &recording.run;
    let recorded = (run.id.as_str(), &*state.start.agent_home);
    // A run in no workspace may have come with an agent beside its records.
    let around = Workspace::at(run.workspace().unwrap_or(&run.path))?;
    let dir = agent_of_run(given, recorded, &around)?;
    let recorded = RecordedSettings {
        id: &recording.run.id,
        set: &state.start.set(),
        journal: recording.source(),
    };
    let (mut agent, set) = load_recorded(&dir, recorded, set, screen)?;
    if agent.llm.command.is_none() && (agent.llm.model.is_none() || agent.llm.is_from_environment) {
        // What the environment says today is not what the requests were made with.
        agent.llm.model = state.asked_model().or(agent.llm.model);
    }
    // The forms of requests are compared, wherever they would go today.
    agent.llm.keep_recorded_api();
    agent.limits = StartLimits::default();
    agent.llm.max_retries = 0;
    // The record decides when a conversation is shortened, and which model is asked.
    agent.compact = None;
    agent.llm.chain = ChainSource::CommandLine;
    let others = agent.llm.fallback.iter_mut().map(|it| &mut it.llm.window);
    for window in others.chain([&mut agent.llm.window]) {
        *window = Some(0);
    }
    // What can be repeated need not be durable.
    agent.sync = false;
    Ok((agent, set))
}

/// Prints on stdout how the repetition compares.
fn print_comparison(
    repetition: &Repetition,
    recording: &Recording,
    agent: &Agent,
    workspace: &Workspace,
) -> Result<Exit> {
    let total = recording.steps.len();
    if let Some(divergence) = &repetition.divergence {
        let moved = moved_paths(recording, agent, workspace)?;
        print(described(divergence, &moved))?;
        return Ok(Exit::Failure);
    }
    let Some(ending) = &repetition.ending else {
        let requests = counted(total, "request");
        print(format!("identical: {requests}\n"))?;
        return Ok(Exit::Success);
    };
    let given = repetition.given;
    let exit = match ending.exit {
        Exit::Interrupt | Exit::Terminate | Exit::Hangup => ending.exit,
        _ => Exit::Failure,
    };
    Err(Error::new(
        exit,
        format!(
            "the repetition ended after {given} of {total} answers: {} ({}): {}",
            ending.status.name(),
            ending.stop_reason,
            ending.text
        ),
    ))
}

/// Says how a divergence is avoided that comes from other files than the recorded run had, or from programs that ran again.
fn advise(divergence: &Divergence, agent: &Agent, has_files: bool, screen: Screen) {
    let Some(difference) = first(&divergence.recorded, &divergence.rebuilt) else {
        return;
    };
    let place = difference.place;
    let is_in = |words: [&str; 2]| words.iter().any(|word| place.contains(word));
    // A block of context.yaml; the result of a tool.
    let (is_block, is_conversation) = (
        is_in(["system", "instructions"]),
        is_in(["messages[", "input["]),
    );
    let is_result = divergence.iteration > 1 && is_conversation && !is_block;
    if (is_block || is_result) && !has_files {
        screen.warn(
            "the replay began in an empty workspace: --from DIR begins with a copy of DIR, which must hold what \
             was there when the recorded run began",
        );
    }
    let is_made = |source: &Source| matches!(source, Source::Computed(_));
    if is_result || is_block && agent.context.sources.iter().any(is_made) {
        screen.warn(
            "--tools recorded runs no tool and no generator of a block, and takes their results from the record",
        );
    }
}

/// The places that a run knows, in the recorded run and here; the longest first.
fn moved_paths(
    recording: &Recording,
    agent: &Agent,
    workspace: &Workspace,
) -> Result<Vec<(String, String)>> {
    let state = recording.state()?;
    let now = [workspace.root.as_path(), agent.home.as_path()];
    let then = [state.start.work_dir.get(), state.start.agent_home.get()];
    let mut pairs: Vec<(String, String)> = then
        .into_iter()
        .zip(now)
        .filter_map(|(then, now)| Some((then?.to_owned(), now.to_string_lossy().into_owned())))
        .filter(|(then, now)| !then.is_empty() && then != now)
        .collect();
    sort_by(&mut pairs, |(a, _), (b, _)| b.len().cmp(&a.len()));
    Ok(pairs)
}

fn described(divergence: &Divergence, moved: &[(String, String)]) -> String {
    let Divergence {
        iteration,
        recorded,
        rebuilt,
    } = divergence;
    let mut out = format!("diverged at iteration {iteration}");
    if let Some(found) = first(recorded, rebuilt) {
        out.push_str(&format!(
            ", {}\n  recorded: {}\n  replayed: {}\n",
            found.place, found.left, found.right
        ));
    }
    let inner = |path: &str| {
        let quoted = json::text(path);
        quoted[1..quoted.len() - 1].to_owned()
    };
    let mut translated = String::from_utf8_lossy(recorded).into_owned();
    let mut used = Vec::new();
    for (then, now) in moved {
        let changed = translated.replace(&inner(then), &inner(now));
        if changed != translated {
            used.push(format!("{then} is {now} here"));
        }
        translated = changed;
    }
    if translated.as_bytes() == rebuilt.as_slice() {
        out.push_str(&format!(
            "the only difference is in paths: {}; tools that print no absolute paths \
             replay anywhere\n",
            used.join(", ")
        ));
    }
    out
}
