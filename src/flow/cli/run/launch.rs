//! A run of a flow from the decision on: its directory and journal are opened, the engine works on it, and its
//! end is recorded and printed.
//!
//! Unaware of which run a command line means.

use super::{RunCommand, check_record};
use crate::config::pricing::GivenBudget;
use crate::engine::account;
use crate::engine::due::Registration;
use crate::engine::run_context::{self, RunContext, earlier_deadline};
use crate::engine::start_options::StartOptions;
use crate::error::{Error, Exit, Result, ignore};
use crate::flow::PROGRAM;
use crate::flow::cli::args::RunFormat;
use crate::flow::cli::basis::{self, RunInput};
use crate::flow::cli::observe::start_observers;
use crate::flow::cli::result::{RunEnding, print_result};
use crate::flow::cli::retry::RetryPlan;
use crate::flow::engine::inputs::Inputs;
use crate::flow::engine::{EngineStop, FlowEngine, FlowOptions, RunPlace};
use crate::flow::record::tally::Keeping;
use crate::flow::record::{RecordedBasis, add_retry};
use crate::record::metadata::Metadata;
use crate::record::run_dir::RunDir;
use crate::record::workspace::{DecisionLock, RootHold};
use crate::runs::inspect::RunSnapshot;
use crate::runs::launch::{EngineOutcome, record_end};
use crate::runs::open::{OpenRun, RunStart, first_metadata, take_over};
use crate::runs::waiting::{registration, start_words};
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::shorten::in_short;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone};
use serde_json::{Value, json};

impl RunCommand<'_> {
    /// Starts a new run.
    pub(super) fn begin(&self, id: &RunId, lock: DecisionLock) -> Result<Exit> {
        let metadata = first_metadata(id, self.workspace, &self.task());
        let _hold = self.hold_root(id)?;
        let open = self.start().begin(id, metadata, None, |journal| {
            basis::record_basis(journal, &self.basis, self.flow)
        })?;
        drop(lock);
        let inputs = self.inputs(&open.run)?;
        self.run_engine(open, inputs, true)
    }

    /// Resumes a run, or, with a plan, retries it.
    pub(super) fn resume(
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
        let mut remarks: Vec<String> = again.iter().filter_map(RetryPlan::remark).collect();
        if !changed.is_empty() {
            remarks.push(format!(
                "resuming with changed files: {}",
                changed.join(", ")
            ));
        }
        let open = self.start().resume(found, remarks, |journal, _| {
            if let Some(again) = &again {
                add_retry(journal, &again.failed);
            }
            if !changed.is_empty() {
                basis::record_basis(journal, &self.basis, self.flow)?;
            }
            // No step may be done again before the retry is on disk.
            again.as_ref().map_or(Ok(()), |_| journal.sync())
        })?;
        drop(lock);
        let inputs = self.inputs(&open.run)?;
        self.run_engine(open, inputs, true)
    }

    /// Prints the result of a run that has ended again.
    pub(super) fn reprint(
        mut self,
        mut found: RunSnapshot,
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
        let (journal, record) = take_over(&mut found)?;
        drop(lock);
        let open = OpenRun {
            run: found.run,
            journal,
            metadata: found.metadata,
            record,
            is_ours: false,
        };
        self.run_engine(open, Inputs::one(None), false)
    }

    /// Takes over the input of a run, if the command line has none.
    fn with_input_of(&mut self, past: &RecordedBasis) {
        if !self.basis.is_said
            && let Some(given) = basis::recorded_input(past)
        {
            self.basis.given = given;
        }
    }

    /// Keeps other runs out of the directory that a single root task works in, until this process ends.
    ///
    /// # Errors
    /// The run of another flow works there, and this one is not part of it.
    fn hold_root(&self, id: &RunId) -> Result<Option<RootHold>> {
        if self.basis.given.has_many_roots() {
            return Ok(None);
        }
        let workspace = self.workspace;
        let holder = || workspace.root_holder();
        // Even if that one has died a moment ago: this run ends, too, and must not block its next start.
        let outer = account::outer_runs()?;
        if holder().is_some_and(|it| outer.contains(&workspace.run_path(&it))) {
            return Ok(None);
        }
        if let Some(hold) = workspace.hold_root(id)? {
            return Ok(Some(hold));
        }
        let holder = holder().map_or_else(|| "another run".to_owned(), |id| format!("run {id}"));
        let root = self.workspace.root.display();
        Err(Error::new(
            Exit::TempFail,
            format!(
                "{holder} works in {root}, and two flows would overwrite each other's files; wait until it has \
                 ended, or give this one another directory with -w"
            ),
        ))
    }

    /// Files of the flow that are not what they were when the run began.
    ///
    /// # Errors
    /// There are some, and `--changed ok` is missing.
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
        let mut inputs = match &self.basis.given {
            RunInput::One(input) => Inputs::one(Some(input.clone())),
            RunInput::Lines(path) => Inputs::lines(path)?,
            RunInput::Stream(source) => Inputs::streamed(&run.path, source.as_ref())?,
        };
        inputs.bad_lines_fail = self.wanted.keep_going;
        inputs.compares = !self.wanted.changed_ok;
        Ok(inputs)
    }

    /// The text in place of the run's message.
    fn task(&self) -> String {
        match &self.basis.given {
            RunInput::One(input) => in_short(input, 2000),
            RunInput::Lines(path) => format!("inputs of {}", path.display()),
            RunInput::Stream(_) => "inputs of a pipe".to_owned(),
        }
    }

    fn config(&self) -> Vec<u8> {
        let config = json!({
            "name": self.flow.name(),
            "start": self.flow.graph.nodes[self.basis.start].id,
            "launch": self.wanted.launch(),
            "jobs": self.wanted.jobs(),
            "records": self.wanted.records.unwrap_or_default().name(),
        });
        start_config(config, self.wanted.budget, self.signals)
    }

    /// This start, for the record.
    fn start(&self) -> RunStart<'_> {
        RunStart {
            workspace: self.workspace,
            signals: self.signals,
            screen: self.screen,
            program: PROGRAM,
            name: self.flow.name(),
            home: &self.flow.home,
            task: None,
            config: self.config(),
            force: false,
            describe: Box::new(|metadata| {
                metadata.flow = Some(basis::describe_basis(&self.basis, self.flow));
            }),
        }
    }

    /// Lets the engine work on a run, and prints how it ended. One that `is_live` goes on; otherwise its result is
    /// printed again.
    fn run_engine(&self, open: OpenRun, inputs: Inputs, is_live: bool) -> Result<Exit> {
        let OpenRun {
            run,
            journal,
            mut metadata,
            record,
            is_ours,
        } = open;
        if is_live {
            self.announce(&run);
        }
        let reserve = is_live.then(|| run.reserve());
        let place = self.place(run, &record, is_live)?;
        let options = FlowOptions {
            registration: self.registration(&metadata).filter(|_| is_live),
            ..self.options(is_ours, is_live)
        };
        if let Some(registration) = &options.registration {
            registration.note_start();
        }
        let mut engine = FlowEngine::new(place, options, journal, self.signals, inputs);
        let stopped = engine.run(record);
        // The room for what follows on a full disk.
        drop(reserve);
        let (mut journal, mut tally, run) = engine.into_parts();
        if self.is_typed {
            tally.keep_last();
        }
        let due_at = match &stopped {
            Ok(EngineStop::Suspended(open)) => open.iter().filter_map(|it| it.due_at).min(),
            _ => None,
        };
        let ending = stopped.map_or_else(RunEnding::broken, |it| RunEnding::of(it, &tally));
        if is_live {
            metadata.due_at = due_at.map(|due_at| due_at.to_string());
            if let Some(place) = self.registration(&metadata) {
                match due_at {
                    // It has been registered, or was said to be not.
                    Some(due_at) => ignore(place.put(due_at)),
                    None => ignore(place.note_end(ending.status, ending.exit)),
                }
            }
            let outcome = EngineOutcome {
                status: ending.status,
                reason: ending.reason,
                exit: ending.exit,
                text: ending.text(&tally),
            };
            record_end(&mut journal, &mut metadata, outcome);
        }
        let has_many = self.basis.given.has_many_roots() && !self.is_typed;
        let format = self.wanted.format;
        print_result(format, self.screen, &ending, &tally, &metadata, has_many)?;
        // Until now the run's end counts as unreported.
        if is_live && journal.is_in_place() {
            ignore(metadata.write(&run.path));
        }
        Ok(ending.exit)
    }

    /// The run's place in the registry of those that wait.
    fn registration(&self, metadata: &Metadata) -> Option<Registration> {
        registration(
            metadata,
            &self.flow.home,
            self.workspace,
            self.start_words(),
        )
    }

    /// The words of another start that follows this one.
    pub(super) fn start_words(&self) -> Vec<String> {
        let mut words = start_words(&StartOptions {
            budget: self.wanted.budget,
            ..StartOptions::default()
        });
        if let Some(node) = &self.wanted.start {
            words.extend(["--start".to_owned(), node.clone()]);
        }
        words.extend(self.wanted.keep_going.then(|| "--keep-going".to_owned()));
        words
    }

    /// Prints which run goes on, and starts its observers.
    fn announce(&self, run: &RunDir) {
        let root = self.workspace.root.display();
        let text = format!("run {} in {root}, flow {}", run.id, self.flow.name());
        self.screen.progress(&[(Tone::Dim, &text)]);
        start_observers(self.flow, run, &self.workspace.root, self.screen);
    }

    /// The roots to keep after their end, so that the result can be printed.
    fn keeping(&self) -> Keeping {
        let is_single = self.is_typed || !self.basis.given.has_many_roots();
        match (self.wanted.format, self.wanted.keep_going) {
            _ if is_single => Keeping::All,
            (RunFormat::Json, _) => Keeping::All,
            (RunFormat::Text, _) => Keeping::Outputs,
            (RunFormat::Jsonl, false) => Keeping::BehindOpen,
            (RunFormat::Jsonl, true) => Keeping::Sums,
        }
    }

    fn options(&self, is_ours: bool, is_live: bool) -> FlowOptions {
        FlowOptions {
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
            keeping: self.keeping(),
            grace: run_context::grace(run_context::depth().0),
            is_ours,
            is_live,
            ..FlowOptions::default()
        }
    }

    fn place(&self, run: RunDir, record: &[u8], is_live: bool) -> Result<RunPlace<'_>> {
        let ledgers = if is_live {
            account::open_tree(&run, record, self.wanted.budget)?
        } else {
            String::new()
        };
        Ok(RunPlace {
            ledgers,
            deadline: self.signals.deadline().map(earlier_deadline),
            flow: self.flow,
            plan: self.plan,
            workspace: self.workspace,
            has_many_roots: self.basis.given.has_many_roots(),
            run,
            call_prefix: RunContext::call_prefix(),
            depth: run_context::depth().0,
        })
    }
}

/// The configuration of a start, for the record, with its limits.
pub(crate) fn start_config(
    mut config: Value,
    budget: Option<GivenBudget>,
    signals: &Signals,
) -> Vec<u8> {
    if let Some(given) = budget {
        config["budget"] = given.of_tree().record_keys().into();
    }
    if let Some(deadline) = signals.deadline() {
        config["deadline"] = deadline.to_string().into();
    }
    json::text(&config).into_bytes()
}
