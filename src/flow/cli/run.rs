//! `delta-flow run`: which run is meant, its beginning and its end.
//!
//! Unaware of nodes. The same command line resumes what it began.

use super::args::FlowRunArgs;
use super::basis::{self, RecordedBasis, RunBasis, RunInput};
use super::check;
use super::observe::start_observers;
use super::result::{RunEnding, print_error, print_result};
use super::retry::{RetryPlan, plan_retry};
use super::run_format::RunFormat;
use crate::engine::account;
use crate::engine::run_context::{self, RunContext, earlier_deadline};
use crate::error::{Error, Exit, Result, may_fail};
use crate::flow::PROGRAM;
use crate::flow::engine::inputs::Inputs;
use crate::flow::engine::{EngineStop, FlowEngine, FlowOptions, RunPlace};
use crate::flow::graph::RoutePlan;
use crate::flow::manifest::{self, Flow};
use crate::flow::record::tally::Tally;
use crate::flow::record::{add_retry, check_beginnings};
use crate::record::event::Event;
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::workspace::{DecisionLock, RootHold, Workspace};
use crate::runs::decide::{Decision, Naming, Refusal, Wanted, decide};
use crate::runs::find;
use crate::runs::inspect::{RunSnapshot, inspect_run};
use crate::runs::launch::{start_event, start_metadata};
use crate::runs::origin::{require_own, require_own_run};
use crate::runs::preflight::{
    check_depth, heed_deadline, install_signals, parent_call, parent_run,
};
use crate::runs::resume::{Reopened, reopen, warning};
use crate::text::ids::RunId;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone};
use std::collections::HashSet;
use std::path::Path;

/// Runs the command. An error is printed as an object, if one was asked for.
pub(crate) fn run_flow(wanted: &FlowRunArgs) -> Result<Exit> {
    let done = try_run(wanted).map_err(Error::of_run);
    if let Err(error) = &done
        && wanted.format == RunFormat::Json
    {
        print_error(error)?;
    }
    done
}

fn try_run(wanted: &FlowRunArgs) -> Result<Exit> {
    check_depth()?;
    let loaded = manifest::load_to_run(&wanted.dir);
    check::print_problems(&loaded.problems, wanted.format.of_errors());
    let Some(flow) = loaded.flow else {
        if wanted.format == RunFormat::Json {
            check::print_errors(&loaded.problems)?;
        }
        return Ok(Exit::Config);
    };
    let wanted = &wanted.with_defaults(&flow);
    let signals = install_signals()?;
    heed_deadline(&signals, wanted.deadline)?;
    let basis = basis::read_basis(&flow, wanted, &signals)?;
    let pause_before = pauses(&flow, wanted)?;
    let plan = RoutePlan::new(&flow.graph, basis.start);
    if wanted.dry_run {
        return basis::print_dry_run(&flow, &plan, wanted);
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
        is_typed: false,
    };
    command.decide()
}

/// Goes on with the run that the command line names, or begins it: a line was added to the file of its inputs. What became
/// of the last input is printed.
pub(super) fn run_typed(
    flow: &Flow,
    wanted: &FlowRunArgs,
    basis: RunBasis,
    (workspace, signals): (&Workspace, &Signals),
) -> Result<Exit> {
    let plan = RoutePlan::new(&flow.graph, basis.start);
    let command = RunCommand {
        wanted,
        flow,
        plan: &plan,
        workspace,
        signals,
        screen: Screen::new(wanted.quiet, false),
        basis,
        pause_before: HashSet::new(),
        is_typed: true,
    };
    let lock = workspace.lock(signals)?;
    workspace.clear_unborn()?;
    let id = RunId::parse(wanted.run_id.as_deref().unwrap_or_default()).map_err(Error::usage)?;
    if !workspace.run_path(&id).is_dir() {
        return command.begin(&id, lock);
    }
    let found = inspect_run(&RunDir::of(workspace, &id))?;
    require_own_run(&found.run, false)?;
    match command.past(&found.run)? {
        _ if found.metadata.status == Status::Running => Err(found.busy()),
        Some(past) => command.resume(found, &past, lock, None),
        None => Err(Error::failure(format!(
            "run {id} exists with another flow, input or start; choose another --run-id"
        ))),
    }
}

/// All is known but the run.
struct RunCommand<'c> {
    wanted: &'c FlowRunArgs,
    flow: &'c Flow,
    plan: &'c RoutePlan<'c>,
    workspace: &'c Workspace,
    signals: &'c Signals,
    screen: Screen,
    basis: RunBasis,
    pause_before: HashSet<usize>,
    /// Only the last of its inputs is of interest.
    is_typed: bool,
}

impl RunCommand<'_> {
    /// Decides, under the workspace's lock, which run to begin or resume.
    fn decide(self) -> Result<Exit> {
        require_own(self.workspace, self.wanted.adopt)?;
        self.workspace.create()?;
        require_own(self.workspace, self.wanted.adopt)?;
        let lock = self.workspace.lock(self.signals)?;
        self.workspace.clear_unborn()?;
        let (naming, found) = self.find()?;
        if let Some(found) = &found {
            require_own_run(&found.run, self.wanted.adopt)?;
        }
        let past = found.as_ref().map(|found| self.past(&found.run));
        let past = past.transpose()?.flatten();
        if self.wanted.retry {
            return self.retry(found, past, lock);
        }
        let wanted = Wanted {
            naming,
            has_text: true,
            new: false,
            retry_failed: false,
            // Whether a question has been answered is for the node's own run to find out.
            interactive: true,
        };
        let standing = found.as_ref().map(|found| found.standing(past.is_some()));
        match (decide(wanted, standing), found, past) {
            (Decision::Busy, Some(found), _) => Err(found.busy()),
            (Decision::Resume, Some(found), Some(past)) => self.resume(found, &past, lock, None),
            (Decision::Retell | Decision::Refuse(Refusal::Failed), Some(found), Some(past)) => {
                self.reprint(found, &past, lock)
            }
            (Decision::Refuse(_), Some(found), _) => Err(other_run(&found)),
            _ => {
                if !self.screen.quiet {
                    for note in find::left_behind(self.workspace)? {
                        self.screen.warn_as(PROGRAM, &note);
                    }
                }
                let name = self.wanted.run_id.as_deref().map(RunId::parse).transpose();
                let id = name.map_err(Error::usage)?;
                self.begin(
                    &id.unwrap_or_else(|| RunId::generate(Timestamp::now())),
                    lock,
                )
            }
        }
    }

    /// The run that the command line means: the one that it names, or the newest one of this flow with
    /// this input.
    fn find(&self) -> Result<(Naming, Option<RunSnapshot>)> {
        if let Some(name) = &self.wanted.run_id {
            let id = RunId::parse(name).map_err(Error::usage)?;
            let is_there = self.workspace.run_path(&id).is_dir();
            let found = is_there.then(|| inspect_run(&RunDir::of(self.workspace, &id)));
            return Ok((Naming::ById, found.transpose()?));
        }
        if let Some(newest) = self.workspace.newest()? {
            self.workspace.mend_latest(&newest)?;
        }
        let home = self.flow.home.to_string_lossy();
        let is_meant = |run: &RunDir, metadata: &Metadata| {
            Ok(metadata.agent_home == home && self.past(run)?.is_some())
        };
        Ok((
            Naming::ByText,
            find::newest_where(self.workspace, is_meant)?,
        ))
    }

    /// The basis of a run, if it is one of this flow with this input.
    fn past(&self, run: &RunDir) -> Result<Option<RecordedBasis>> {
        let past = basis::read_recorded_basis(run)?;
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

    /// Keeps other runs out of the directory that a single root task works in, until this process ends.
    ///
    /// # Errors
    /// The run of another flow works there, and it is none that this one is part of.
    fn hold_root(&self, id: &RunId) -> Result<Option<RootHold>> {
        if self.basis.given.has_many_roots() {
            return Ok(None);
        }
        let holder = match self.workspace.hold_root(id)? {
            Ok(hold) => return Ok(Some(hold)),
            Err(holder) => holder,
        };
        let outer = account::outer_runs()?;
        if let Some(holder) = &holder
            && outer.contains(&self.workspace.run_path(holder))
        {
            return Ok(None);
        }
        let holder = holder.map_or_else(|| "another run".to_owned(), |id| format!("run {id}"));
        let root = self.workspace.root.display();
        Err(Error::new(
            Exit::TempFail,
            format!(
                "{holder} works in {root}, and two flows would overwrite each other's files; wait until it has \
                 ended, or give this one another directory with -w"
            ),
        ))
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
        let _hold = self.hold_root(id)?;
        let (run, journal) = RunDir::create(self.workspace, id, &metadata, |journal| {
            journal.add(0, &start_event(&metadata, &task, &self.config(), false));
            basis::record_basis(journal, &self.basis, self.flow)
        })?;
        drop(lock);
        let inputs = self.inputs(&run)?;
        self.run_engine(run, journal, metadata, inputs, true, true)
    }

    /// Resumes a run, or, with a plan, retries it.
    fn resume(
        mut self,
        found: RunSnapshot,
        past: &RecordedBasis,
        lock: DecisionLock,
        again: Option<RetryPlan>,
    ) -> Result<Exit> {
        self.with_input_of(past);
        check_record(&found, past)?;
        let changed = self.changes(&found, past)?;
        let _hold = self.hold_root(&found.run.id)?;
        let Reopened {
            run,
            mut journal,
            metadata,
            is_ours,
            mut notes,
            ..
        } = reopen(found, self.workspace, false, self.signals)?;
        let metadata = self.started(metadata);
        let task = metadata.initial_message.clone().unwrap_or_default();
        journal.add(0, &start_event(&metadata, &task, &self.config(), true));
        if let Some(again) = &again {
            add_retry(&mut journal, &again.failed);
            notes.extend(again.told_behind());
        }
        if !changed.is_empty() {
            notes.push(format!(
                "resuming with changed files: {}",
                changed.join(", ")
            ));
            basis::record_basis(&mut journal, &self.basis, self.flow)?;
        }
        for note in &notes {
            journal.add(0, &warning(note));
            self.screen.warn_as(PROGRAM, note);
        }
        match again {
            Some(_) => journal.sync()?,
            None => journal.flush()?,
        }
        metadata.write(&run.path)?;
        drop(lock);
        let inputs = self.inputs(&run)?;
        self.run_engine(run, journal, metadata, inputs, is_ours, true)
    }

    /// Goes on with a run that ended without success, as an earlier retry of it does.
    fn retry(
        self,
        found: Option<RunSnapshot>,
        past: Option<RecordedBasis>,
        lock: DecisionLock,
    ) -> Result<Exit> {
        let Some(found) = found else {
            return Err(Error::usage(
                "--retry: there is no run of this flow and input here; see `delta list-runs`",
            ));
        };
        let Some(past) = past else {
            return Err(other_run(&found));
        };
        if found.metadata.status == Status::Running {
            return Err(found.busy());
        }
        for name in &self.wanted.repeat {
            check_repeated(self.flow, name)?;
        }
        check_record(&found, &past)?;
        let Some(again) = plan_retry(&found.run, self.flow, self.plan)? else {
            return self.resume(found, &past, lock, None);
        };
        if again.failed.is_empty() {
            return self.reprint(found, &past, lock);
        }
        again.check_repeats(self.flow, &self.wanted.repeat)?;
        self.resume(found, &past, lock, Some(again))
    }

    /// Prints the result of a run that has ended again.
    fn reprint(
        mut self,
        found: RunSnapshot,
        past: &RecordedBasis,
        lock: DecisionLock,
    ) -> Result<Exit> {
        self.with_input_of(past);
        check_record(&found, past)?;
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
        let inputs = Inputs::one(None);
        self.run_engine(found.run, journal, metadata, inputs, false, false)
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
            "run {} was begun with other files: {}; to resume with the changed ones: --changed ok",
            found.run.id,
            changed.join(", ")
        )))
    }

    fn inputs(&self, run: &RunDir) -> Result<Inputs> {
        let inputs = match &self.basis.given {
            RunInput::One(input) => Inputs::one(Some(input.clone())),
            RunInput::Lines(path) => Inputs::lines(path)?,
            RunInput::Stream(source) => Inputs::streamed(&run.path, source.as_ref())?,
        };
        Ok(inputs
            .failing_bad_lines(self.wanted.keep_going)
            .comparing(!self.wanted.changed_ok))
    }

    /// The text that stands for the message of the run.
    fn task(&self) -> String {
        match &self.basis.given {
            RunInput::One(input) => in_short(input, 2000),
            RunInput::Lines(path) => format!("inputs of {}", path.display()),
            RunInput::Stream(_) => "inputs of a pipe".to_owned(),
        }
    }

    fn config(&self) -> Vec<u8> {
        let mut config = serde_json::json!({
            "name": self.name(),
            "start": self.flow.graph.nodes[self.basis.start].id,
            "launch": self.wanted.launch(),
            "jobs": self.wanted.jobs(),
            "records": self.wanted.records.unwrap_or_default().name(),
        });
        if let Some(given) = self.wanted.budget {
            config["budget"] = serde_json::json!(given.of_tree());
        }
        if let Some(deadline) = self.signals.deadline() {
            config["deadline"] = deadline.to_string().into();
        }
        crate::text::json::text(&config).into_bytes()
    }

    fn name(&self) -> String {
        let name = self.flow.home.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Metadata of a run that this process works on from now on.
    fn started(&self, mut metadata: Metadata) -> Metadata {
        start_metadata(&mut metadata, &self.name(), &self.flow.home, self.workspace);
        metadata.flow = Some(basis::describe_basis(&self.basis, self.flow));
        metadata
    }

    /// Lets the engine work on a run, and prints how it ended.
    fn run_engine(
        &self,
        run: RunDir,
        journal: Journal,
        metadata: Metadata,
        inputs: Inputs,
        is_ours: bool,
        is_live: bool,
    ) -> Result<Exit> {
        if is_live {
            files::make_dirs(&run.io("nodes"))?;
            run.reserve();
            let (id, root) = (&run.id, self.workspace.root.display());
            let text = format!("run {id} in {root}, flow {}", self.name());
            self.screen.progress(&[(Tone::Dim, &text)]);
            start_observers(self.flow, &run, &self.workspace.root, self.screen);
        }
        let depth = run_context::depth().0;
        let many = self.basis.given.has_many_roots();
        let options = FlowOptions {
            jobs: self.wanted.jobs(),
            launch: self.wanted.launch().to_vec(),
            queue: self.flow.scheduling.queue,
            records: self.wanted.records.unwrap_or_default(),
            keep_going: self.wanted.keep_going,
            changed_ok: self.wanted.changed_ok,
            pause_before: self.pause_before.clone(),
            repeat: self.wanted.repeat.clone(),
            screen: Screen::new(self.wanted.quiet || !is_live, false),
            with_tasks: self.wanted.format == RunFormat::Json,
            prints_roots: self.wanted.format == RunFormat::Jsonl,
            grace: run_context::grace(depth),
            answered: None,
            is_ours,
            is_live,
        };
        let ledgers = match is_live {
            true => account::open_tree(&run, journal.path(), self.wanted.budget)?,
            false => String::new(),
        };
        let place = RunPlace {
            ledgers,
            deadline: self.signals.deadline().map(earlier_deadline),
            flow: self.flow,
            plan: self.plan,
            workspace: self.workspace,
            has_many_roots: many,
            run,
            call_prefix: RunContext::call_prefix(),
            depth,
        };
        let mut engine = FlowEngine::new(place, options, journal, self.signals, inputs);
        let stopped = engine.run();
        let (mut journal, mut tally, run) = engine.into_parts();
        if self.is_typed {
            tally.keep_last();
        }
        let ending = ending(stopped, &tally, &run);
        let mut metadata = metadata;
        if is_live {
            finish(&mut journal, &mut metadata, &ending, &tally);
        }
        print_result(
            self.wanted.format,
            self.screen,
            &ending,
            &tally,
            (&metadata, many && !self.is_typed),
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
fn pauses(flow: &Flow, wanted: &FlowRunArgs) -> Result<HashSet<usize>> {
    let find = |id: &String| find_node(flow, "--pause-before", id);
    wanted.pause_before.iter().map(find).collect()
}

/// Checks that `--repeat` names a node, or one of a flow within the flow behind the name of its node and a slash.
fn check_repeated(flow: &Flow, name: &str) -> Result<()> {
    let Some((node, rest)) = name.split_once('/') else {
        return find_node(flow, "--repeat", name).map(|_| ());
    };
    let node = find_node(flow, "--repeat", node)?;
    let inner = flow.nodes[node].flow.as_deref().map(manifest::load_to_run);
    match inner.and_then(|loaded| loaded.flow) {
        Some(inner) => check_repeated(&inner, rest),
        None => Err(Error::usage(format!(
            "--repeat {name}: node {} is no flow",
            flow.graph.nodes[node].id
        ))),
    }
}

/// The node that an option names.
fn find_node(flow: &Flow, option: &str, id: &str) -> Result<usize> {
    let graph = &flow.graph;
    graph.find(id).ok_or_else(|| {
        let known = graph.nodes.iter().map(|node| node.id.as_str());
        basis::unknown_name(option, id, known)
    })
}

/// Refuses a run whose record lacks the beginning of a task.
fn check_record(found: &RunSnapshot, past: &RecordedBasis) -> Result<()> {
    let must_begin = found.has_ended() && !past.has_many_roots();
    check_beginnings(&found.run.journal(), must_begin)
}

fn other_run(found: &RunSnapshot) -> Error {
    Error::failure(format!(
        "run {} exists with another flow or input; choose another --run-id",
        found.run.id
    ))
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
    metadata.end(ending.status, &ending.reason, ending.exit, text);
}
