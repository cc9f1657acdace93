//! `delta-flow run`: which run is meant, its beginning and its end.
//!
//! Unaware of nodes. The same command line resumes what it began.

use super::args::FlowRunArgs as Wanted;
use super::basis::{self, RecordedBasis, RunBasis, RunInput};
use super::check;
use super::result::{RunEnding, tell};
use crate::engine::run_context::{self, RunContext};
use crate::error::{Error, Exit, Result, may_fail};
use crate::flow::PROGRAM;
use crate::flow::engine::inputs::Inputs;
use crate::flow::engine::{EngineStop, FlowEngine, FlowOptions, RunPlace};
use crate::flow::graph::plan::RoutePlan;
use crate::flow::manifest::{self, Flow};
use crate::flow::record::tally::Tally;
use crate::record::event::{Event, VERSION};
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::{self, Tail};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::workspace::{DecisionLock, Workspace};
use crate::runs::find;
use crate::runs::inspect::{RunSnapshot, inspect_run};
use crate::runs::launch::start_event;
use crate::runs::preflight::{check_depth, install_signals, parent_call, parent_run};
use crate::runs::resume::{check_host, end_leftovers, journal_notes};
use crate::text::ids::RunId;
use crate::text::options::format::OutputFormat;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::procfs::{self, Signals};
use crate::unix::terminal::{Screen, Tone};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Runs the command.
pub(crate) fn run(wanted: &Wanted) -> Result<Exit> {
    check_depth()?;
    let loaded = manifest::load_to_run(&wanted.dir);
    check::tell(&loaded.problems, wanted.format);
    let Some(flow) = loaded.flow else {
        if wanted.format == OutputFormat::Json {
            check::print_errors(&loaded.problems)?;
        }
        return Ok(Exit::Config);
    };
    let signals = install_signals()?;
    let basis = basis::basis(&flow, wanted, &signals)?;
    let pause_before = pauses(&flow, wanted)?;
    let plan = RoutePlan::new(&flow.graph, basis.start);
    if wanted.dry_run {
        return basis::dry_run(&flow, &plan, wanted);
    }
    let workspace = Workspace::at(wanted.work_dir.as_deref().unwrap_or(Path::new(".")))?;
    workspace.check_layout()?;
    workspace.check_writable()?;
    let command = RunCommand {
        wanted,
        flow: &flow,
        plan: &plan,
        workspace: &workspace,
        signals: &signals,
        screen: Screen::new(wanted.quiet, false),
        basis,
        pause_before,
    };
    command.decide()
}

/// All is known but the run.
struct RunCommand<'c> {
    wanted: &'c Wanted,
    flow: &'c Flow,
    plan: &'c RoutePlan<'c>,
    workspace: &'c Workspace,
    signals: &'c Signals,
    screen: Screen,
    basis: RunBasis,
    pause_before: HashSet<usize>,
}

impl RunCommand<'_> {
    /// Finds out, under the workspace's lock, which run to start or take up.
    fn decide(self) -> Result<Exit> {
        self.workspace.create()?;
        let lock = self.workspace.lock(self.signals)?;
        self.workspace.clear_unborn()?;
        if let Some(name) = &self.wanted.run_id {
            let id = RunId::parse(name).map_err(Error::usage)?;
            if !self.workspace.run_path(&id).is_dir() {
                return self.begin(&id, lock);
            }
            let found = inspect_run(&RunDir::of(self.workspace, &id))?;
            let Some(past) = self.past(&found)? else {
                return Err(Error::failure(format!(
                    "run {id} is there with another flow or input; choose another --run-id"
                )));
            };
            return match found.metadata.status {
                Status::Running => Err(found.busy()),
                Status::Completed | Status::Failed => self.again(found, &past, lock),
                Status::Interrupted | Status::WaitingForInput => self.take_up(found, &past, lock),
            };
        }
        let newest = self.workspace.newest()?;
        if let Some(id) = &newest {
            self.workspace.mend_latest(id)?;
        }
        let mut left_behind = None;
        for id in find::with_parents(self.workspace, newest) {
            let found = inspect_run(&RunDir::of(self.workspace, &id))?;
            match (self.past(&found)?, found.metadata.status) {
                (Some(_), Status::Running) => return Err(found.busy()),
                (Some(past), Status::Interrupted | Status::WaitingForInput) => {
                    return self.take_up(found, &past, lock);
                }
                (Some(_), Status::Completed | Status::Failed) => break,
                (None, Status::Interrupted | Status::WaitingForInput) if found.is_flow => {
                    let status = found.metadata.status.name();
                    left_behind = Some(format!("starting a new run; run {id} is {status}"));
                }
                (None, _) => {}
            }
        }
        if let Some(message) = left_behind.filter(|_| !self.screen.quiet) {
            self.screen.warn_as(PROGRAM, &message);
        }
        self.begin(&RunId::generate(Timestamp::now()), lock)
    }

    /// What a run was made from, if it is one of this flow with this input.
    fn past(&self, found: &RunSnapshot) -> Result<Option<RecordedBasis>> {
        let past = basis::recorded(&found.run)?;
        Ok(past.filter(|past| past.is_same(&self.basis, self.flow)))
    }

    /// The same command for a run that has an input, if the command line has none.
    fn with_input_of(&mut self, past: &RecordedBasis) {
        if !self.basis.is_said
            && let Some(given) = past.given()
        {
            self.basis.given = given;
        }
    }

    /// Starts a new run.
    fn begin(&self, id: &RunId, lock: DecisionLock) -> Result<Exit> {
        let task = self.task();
        let metadata = self.started(Metadata {
            run_id: id.to_string(),
            workspace_id: self.workspace.id(),
            created_at: Timestamp::now().to_string(),
            initial_message: Some(task.clone()),
            parent_run_id: parent_run(),
            parent_call_id: parent_call(),
            ..Metadata::default()
        });
        let (run, journal) = RunDir::create(self.workspace, id, &metadata, |journal| {
            journal.add(0, &start_event(&metadata, &task, &self.config(), false));
            basis::write(journal, &self.basis, self.flow)
        })?;
        drop(lock);
        let inputs = self.inputs()?;
        self.engine(run, journal, metadata, (inputs, true, true))
    }

    /// Takes up a run that is there.
    fn take_up(
        mut self,
        found: RunSnapshot,
        past: &RecordedBasis,
        lock: DecisionLock,
    ) -> Result<Exit> {
        self.with_input_of(past);
        let Some(mut journal) = Journal::open(&found.run.journal())? else {
            return Err(found.busy());
        };
        check_host(&found, false)?;
        let changed = self.changes(&found, past)?;
        let mut bytes = Vec::new();
        journal.read_into(&mut bytes)?;
        let tail = reader::tail(&bytes);
        if let Tail::Torn(torn) = tail {
            bytes.truncate(bytes.len() - torn as usize);
        }
        // Nothing is changed unless all of it can be read.
        let state = state::read(&bytes, Reading::default())
            .map_err(|e| crate::record::recording::unreadable(&e, journal.path()))?;
        journal.mend(&tail)?;
        let is_ours = state.work_dir.as_deref() == self.workspace.root.to_str()
            && state.run_id.as_deref() == Some(found.run.id.as_str());
        let leftovers = if is_ours { end_leftovers(&state) } else { None };
        let mut metadata = found.metadata;
        metadata.correct(&state);
        journal.continue_after(state.seq);
        let metadata = self.started(metadata);
        let task = metadata.initial_message.clone().unwrap_or_default();
        journal.add(0, &start_event(&metadata, &task, &self.config(), true));
        let mut told = journal_notes(tail, &state);
        told.extend(leftovers);
        if !changed.is_empty() {
            told.push(format!(
                "goes on with changed files: {}",
                changed.join(", ")
            ));
            basis::write(&mut journal, &self.basis, self.flow)?;
        }
        for note in told {
            let level = "WARN";
            journal.add(
                0,
                &Event::SystemMessage {
                    level,
                    content: &note,
                },
            );
            self.screen.warn_as(PROGRAM, &note);
        }
        journal.flush()?;
        metadata.write(&found.run.path)?;
        drop((lock, bytes));
        let inputs = self.inputs()?;
        self.engine(found.run, journal, metadata, (inputs, is_ours, true))
    }

    /// Tells a run that has ended once more.
    fn again(
        mut self,
        found: RunSnapshot,
        past: &RecordedBasis,
        lock: DecisionLock,
    ) -> Result<Exit> {
        self.with_input_of(past);
        let changed = past.changes(self.flow);
        if !changed.is_empty() {
            return Err(Error::config(format!(
                "run {} has ended, with other files: {}; to run the changed ones choose another --run-id",
                found.run.id,
                changed.join(", ")
            )));
        }
        let Some(journal) = Journal::open(&found.run.journal())? else {
            return Err(found.busy());
        };
        drop(lock);
        let metadata = found.metadata;
        self.engine(found.run, journal, metadata, (Inputs::none(), false, false))
    }

    /// Files of the flow that are not what they were when the run began.
    ///
    /// # Errors
    /// There are some, and nobody said that this is meant.
    fn changes(&self, found: &RunSnapshot, past: &RecordedBasis) -> Result<Vec<String>> {
        let changed = past.changes(self.flow);
        if changed.is_empty() || self.wanted.changed_ok {
            return Ok(changed);
        }
        Err(Error::config(format!(
            "run {} was begun with other files: {}; to go on with the changed ones: --changed ok",
            found.run.id,
            changed.join(", ")
        )))
    }

    fn inputs(&self) -> Result<Inputs> {
        match &self.basis.given {
            RunInput::One(input) => Ok(Inputs::one(input.clone())),
            RunInput::Lines(path) => Inputs::lines(path, self.wanted.changed_ok),
        }
    }

    /// What stands for the message of the run.
    fn task(&self) -> String {
        match &self.basis.given {
            RunInput::One(input) => in_short(input, 2000),
            RunInput::Lines(path) => format!("inputs of {}", path.display()),
        }
    }

    fn config(&self) -> Vec<u8> {
        let config = serde_json::json!({
            "name": self.name(),
            "start": self.flow.graph.nodes[self.basis.start].id,
            "launch": self.wanted.launch,
            "jobs": self.wanted.jobs(),
        });
        crate::text::json::text(&config).into_bytes()
    }

    fn name(&self) -> String {
        let name = self.flow.home.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Metadata of a run that this process works on from now on.
    fn started(&self, mut metadata: Metadata) -> Metadata {
        let now = Timestamp::now().to_string();
        metadata.status = Status::Running;
        metadata.agent_name = self.name();
        metadata.start_time.clone_from(&now);
        metadata.updated_at = now;
        (metadata.end_time, metadata.error, metadata.result) = (None, None, None);
        (metadata.stop_reason, metadata.exit_code) = (None, None);
        metadata.agent_home = self.flow.home.to_string_lossy().into_owned();
        metadata.work_dir = self.workspace.root.to_string_lossy().into_owned();
        metadata.pid = std::process::id();
        metadata.hostname = procfs::hostname();
        VERSION.clone_into(&mut metadata.delta_version);
        metadata.flow = Some(basis::described(&self.basis, self.flow));
        metadata
    }

    /// Lets the engine work on a run, and tells how it ended.
    fn engine(
        &self,
        run: RunDir,
        journal: Journal,
        metadata: Metadata,
        (inputs, is_ours, is_live): (Inputs, bool, bool),
    ) -> Result<Exit> {
        if is_live {
            files::make_dirs(&run.io("nodes"))?;
            run.reserve();
            let (id, root) = (&run.id, self.workspace.root.display());
            let text = format!("run {id} in {root}, flow {}", self.name());
            self.screen.progress(&[(Tone::Dim, &text)]);
        }
        let depth = run_context::depth().0;
        let options = FlowOptions {
            jobs: self.wanted.jobs(),
            launch: self.wanted.launch.clone(),
            keep_going: self.wanted.keep_going,
            pause_before: self.pause_before.clone(),
            screen: Screen::new(self.wanted.quiet || !is_live, false),
            with_tasks: self.wanted.format == OutputFormat::Json,
            grace: grace(depth),
            is_ours,
            is_live,
        };
        let place = RunPlace {
            flow: self.flow,
            plan: self.plan,
            workspace: self.workspace,
            run,
            call_prefix: RunContext::call_prefix(),
            depth,
        };
        let many = matches!(self.basis.given, RunInput::Lines(_));
        let mut engine = FlowEngine::new(place, options, journal, self.signals, inputs);
        let stopped = engine.run();
        let (mut journal, tally, run) = engine.into_parts();
        let ending = ending(stopped, &tally, &run);
        let mut metadata = metadata;
        if is_live {
            finish(&mut journal, &mut metadata, &ending, &tally);
        }
        tell(
            self.wanted.format,
            self.screen,
            &ending,
            &tally,
            (&metadata, many),
        )?;
        if is_live {
            run.release_reserve();
            // Until now the run counts as one whose end nobody has been told.
            if journal.is_in_place() {
                may_fail(metadata.write(&run.path));
            }
        }
        Ok(ending.exit)
    }
}

/// The nodes before which the run is to stop.
fn pauses(flow: &Flow, wanted: &Wanted) -> Result<HashSet<usize>> {
    let graph = &flow.graph;
    let find = |id: &String| {
        graph.find(id).ok_or_else(|| {
            let known = graph.nodes.iter().map(|node| node.id.as_str());
            basis::unknown("--pause-before", id, known)
        })
    };
    wanted.pause_before.iter().map(find).collect()
}

/// How long programs have before SIGKILL: less than the engine around this one gives this one.
pub(super) fn grace(depth: u32) -> Duration {
    (crate::unix::process::GRACE * 9 / 10) / 2u32.pow(depth.min(8))
}

fn ending(stopped: Result<EngineStop>, tally: &Tally, run: &RunDir) -> RunEnding {
    match stopped {
        Ok(stopped) => RunEnding::of(stopped, tally),
        Err(error) => {
            run.release_reserve();
            RunEnding::broken(error)
        }
    }
}

/// Records how this start ended. A disk without room must not keep the rest from being recorded.
fn finish(journal: &mut Journal, metadata: &mut Metadata, ending: &RunEnding, tally: &Tally) {
    let text = ending.text(tally);
    journal.add(
        0,
        &Event::EngineEnd {
            run_id: &metadata.run_id,
            status: ending.status.name(),
            stop_reason: &ending.reason,
            exit_code: ending.exit.code(),
            final_iteration: 0,
            text: &text,
        },
    );
    may_fail(journal.sync());
    metadata.status = ending.status;
    metadata.stop_reason = Some(ending.reason.clone());
    metadata.exit_code = Some(ending.exit.code());
    metadata.updated_at = Timestamp::now().to_string();
    metadata.end_time = Some(metadata.updated_at.clone());
    (metadata.result, metadata.error) = match ending.status {
        Status::Completed => (Some(text), None),
        _ => (None, Some(text)),
    };
}
