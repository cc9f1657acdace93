//! `delta replay`: a recorded run again, with the model's recorded answers. Every request is compared
//! with the recorded one.

use crate::cli::agent_names::agent_of_run;
use crate::cli::args::ReplayArgs;
use crate::config::agent::{Agent, Source, StartLimits};
use crate::config::environment::Environment;
use crate::engine::run_loop::{Chain, DeferralMode, Ending, Engine, Options};
use crate::error::{Error, Exit, Result};
use crate::model::ask::Model;
use crate::model::replay::{Divergence, Playback};
use crate::record::attachments::blobs;
use crate::record::event::Event;
use crate::record::metadata::Metadata;
use crate::record::reader::{read_event, split_lines};
use crate::record::recording::{Beginning, RecordedMessage, Recording};
use crate::record::state::{self, Reading};
use crate::record::workspace::Workspace;
use crate::runs::find::{NEWEST, find_run};
use crate::runs::inspect::{RecordedSettings, is_live};
use crate::runs::launch::{Launch, with_fallbacks};
use crate::runs::open::{Inherited, OpenRun};
use crate::runs::origin::require_own_run;
use crate::runs::overrides::load_recorded;
use crate::runs::preflight;
use crate::runs::workspace_copy::ReplayDir;
use crate::text::amounts::counted;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::order::sort_by;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::{Screen, Tone, print};
use crate::view::effects::EffectList;
use crate::view::request_diff::first;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

pub(crate) fn replay_run(wanted: &ReplayArgs) -> Result<Exit> {
    preflight::check_depth()?;
    let signals = preflight::install_signals()?;
    let screen = Screen::new(wanted.quiet, wanted.verbose);
    let run = find_run(&wanted.work_dir, wanted.run.as_deref().unwrap_or(NEWEST))?;
    if is_live(&run) {
        let id = &run.id;
        return Err(Error::new(
            Exit::TempFail,
            format!("run {id} is live: it can be replayed when it has ended"),
        ));
    }
    require_own_run(&run, wanted.adopt)?;
    let recording = Recording::read(&run)?;
    if recording.steps.is_empty() {
        let id = &run.id;
        return Err(Error::failure(format!(
            "run {id} has no answer of a model: there is nothing to replay"
        )));
    }
    let (agent, set) = agent_and_overrides(wanted, &recording, screen)?;
    if !wanted.executes_nothing {
        preflight::check_schema(&agent, &signals)?;
    }
    let place = ReplayDir::make(wanted.to.as_deref(), wanted.from.as_deref(), screen)?;
    let (environment, _) = Environment::of_agent(&agent, Some(&place.workspace.root))?;
    let workspace = &place.workspace;
    let launch = Launch::new(&agent, &set, workspace, &environment, &signals, screen);
    if !wanted.executes_nothing {
        warn_of_effects(&agent, &recording, screen);
    }
    let mut playback = Playback::new(recording, wanted.executes_nothing);
    let ending = repeat(&launch, &mut playback)?;
    let exit = print_comparison(&playback, ending.as_ref(), &agent, workspace)?;
    if !wanted.quiet
        && !wanted.executes_nothing
        && let Some(divergence) = &playback.divergence
    {
        advise(divergence, &agent, wanted.from.is_some(), screen);
    }
    place.leave(exit == Exit::Success, screen);
    Ok(exit)
}

/// Names the tools whose effect a repetition has once more.
fn warn_of_effects(agent: &Agent, recording: &Recording, screen: Screen) {
    let mut list = EffectList::default();
    for (_, line) in split_lines(&recording.journal) {
        if let Ok(line) = read_event(line, 0) {
            list.add(&line);
        }
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
    wanted: &ReplayArgs,
    recording: &Recording,
    screen: Screen,
) -> Result<(Agent, Map<String, Value>)> {
    let state = recording.state()?;
    let run = &recording.run;
    let recorded = (
        run.id.as_str(),
        state.agent_home.as_deref().unwrap_or_default(),
    );
    // A run in no workspace may have come with an agent beside its records.
    let around = Workspace::at(run.workspace().unwrap_or(&run.path))?;
    let dir = agent_of_run(wanted.agent.as_deref(), recorded, &around)?;
    let recorded = RecordedSettings {
        id: &recording.run.id,
        set: &state.set,
        journal: recording.source(),
    };
    let (mut agent, set) = load_recorded(&dir, recorded, &wanted.set, screen)?;
    if agent.llm.command.is_none() && (agent.llm.model.is_none() || agent.llm.is_from_environment) {
        // What the environment says today is not what the requests were made with.
        agent.llm.model = state.asked_model().or(agent.llm.model);
    }
    // The forms of requests are compared, wherever they would go today.
    agent.llm.keep_recorded_api();
    agent.limits = StartLimits::default();
    agent.llm.max_retries = 0;
    // What can be repeated need not be durable.
    agent.sync = false;
    Ok((agent, set))
}

/// Lets the engine run with the recorded answers until none is left. Returns how it ended if it
/// ended before that.
fn repeat(launch: &Launch<'_>, playback: &mut Playback) -> Result<Option<Ending>> {
    let parts = playback.recording().parts.clone();
    let mut open = begin(launch, playback.recording())?;
    let mut target = 0;
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            let from = &playback.recording().run.path;
            for message in &part.messages {
                blobs::copy(from, &open.run.path, message.attachments.iter())?;
                open.journal.add(open.metadata.iterations, &said(message));
            }
            open.journal.flush()?;
        }
        target += part.answers;
        while playback.given() < target {
            let before = playback.given();
            let back = playback.next_return().filter(|back| *back <= target);
            let left = (back.unwrap_or(target) - before) as u64;
            let ending;
            (ending, open) = engine(launch, open, left, playback)?;
            if back == Some(playback.given()) {
                launch.start().begin_again(&mut open);
                open.journal.flush()?;
            }
            // The engine may have been ended by a hook, as in the recorded run, which went on.
            if playback.divergence.is_some() || playback.given() == before {
                return Ok(Some(ending));
            }
        }
    }
    Ok(None)
}

/// Creates the repetition: what the recorded run inherited, and what was said first.
fn begin(launch: &Launch<'_>, recording: &Recording) -> Result<OpenRun> {
    let recorded = recording.state()?;
    let own_name = recorded.run_id.as_deref();
    let id = own_name.and_then(|name| RunId::parse(name).ok());
    let id = id.unwrap_or_else(|| recording.run.id.clone());
    let inherited = &recording.journal[..recording.inherited];
    let before = state::read(inherited, Reading::default())
        .map_err(|e| crate::record::recording::unreadable(&e, &recording.run.journal()))?;
    let mut metadata = Metadata {
        run_id: id.to_string(),
        workspace_id: launch.workspace.id(),
        ..Metadata::default()
    };
    metadata.correct(&before);
    metadata.created_at = Timestamp::now().to_string();
    metadata.initial_message = recorded.first_message.as_deref().map(str::to_owned);
    metadata.forked_from.clone_from(&recorded.forked_from);
    launch.workspace.create()?;
    let beginning = Beginning {
        journal: inherited,
        iterations: before.iterations,
    };
    let inherited = Inherited {
        beginning: &beginning,
        state: &before,
        run: &recording.run.path,
    };
    let _lock = launch.workspace.lock(&launch.signals, None)?;
    launch
        .start()
        .begin(&id, metadata, Some(inherited), |journal| {
            let first = recording.parts.first().map(|part| part.messages.as_slice());
            for message in first.unwrap_or_default() {
                let to = launch.workspace.unborn_dir();
                blobs::copy(&recording.run.path, &to, message.attachments.iter())?;
                journal.add(before.iterations, &said(message));
            }
            Ok(())
        })
}

fn said(message: &RecordedMessage) -> Event<'_> {
    Event::UserMessage {
        content: &message.content,
        attachments: &message.attachments,
    }
}

/// Lets an engine give some answers. Returns how it ended, and the run, which stays open.
fn engine(
    launch: &Launch<'_>,
    open: OpenRun,
    max_iterations: u64,
    playback: &mut Playback,
) -> Result<(Ending, OpenRun)> {
    let options = Options {
        interactive: false,
        max_iterations,
        screen: launch.screen,
        lenient: false,
        is_ours: open.is_ours,
        answer: None,
        checks_answers: launch.checks_answers,
        spending: None,
        compacts: false,
        patience: DeferralMode::End,
        resume_words: Vec::new(),
        registration: None,
        shows_text: false,
        feed: None,
    };
    let ctx = launch.context(&open.run);
    let model = Model::Recorded(playback);
    let agents = with_fallbacks(launch.agent);
    let chain = Chain::new(String::new(), launch.candidates(&ctx, &agents));
    let journal = (open.journal, open.record);
    let ended = Engine::new(&ctx, journal, open.metadata, options, (model, chain))?.run();
    let ending = ended.ending.clone();
    let (metadata, journal) = ended.seal();
    let open = OpenRun {
        run: open.run,
        journal,
        metadata,
        record: Vec::new(),
        is_ours: open.is_ours,
    };
    Ok((ending, open))
}

/// Prints on stdout how the repetition compares.
fn print_comparison(
    playback: &Playback,
    ending: Option<&Ending>,
    agent: &Agent,
    workspace: &Workspace,
) -> Result<Exit> {
    let total = playback.recording().steps.len();
    if let Some(divergence) = &playback.divergence {
        let moved = moved_paths(playback.recording(), agent, workspace)?;
        print(described(divergence, &moved).as_bytes())?;
        return Ok(Exit::Failure);
    }
    let Some(ending) = ending else {
        let requests = counted(total, "request");
        print(format!("identical: {requests}\n").as_bytes())?;
        return Ok(Exit::Success);
    };
    let given = playback.given();
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
    let is_made = |source: &Source| matches!(source, Source::Computed { .. });
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
    let then = [state.work_dir.as_deref(), state.agent_home.as_deref()];
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
