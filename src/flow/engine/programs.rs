//! The programs of a start of the engine: those that are prepared, whose beginnings are in the journal, those that run, and
//! what they leave.
//!
//! Unaware of routing.

use super::attempt_runs::KeptRun;
use super::credentials::Credentials;
use super::spent::SpentRecords;
use super::{FlowEngine, FlowOptions, RunPlace};
use crate::config::environment::DEPTH;
use crate::engine::run_context::{DEADLINE, ENGINE_PID, LEDGERS};
use crate::error::Result;
use crate::flow::graph::{Failure, NodeIx, Payload, StepKey, StepRef};
use crate::flow::manifest::PayloadForm;
use crate::flow::record::attempt::{self, PreparedAttempt, find_failure, too_much};
use crate::flow::record::{NodeStart, OwnRun, ProgramInput};
use crate::record::execution::LinkedFiles;
use crate::record::run_dir::RunDir;
use crate::text::ids::hex;
use crate::text::timestamp::Timestamp;
use crate::unix::files::LARGEST_INPUT;
use crate::unix::process::{Children, Outcome, Token, Variable};
use crate::unix::signals::{Signals, Stop};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A program that runs.
pub(super) struct ActiveProgram {
    pub step: StepRef,
    /// The directory of records.
    pub io: PathBuf,
    pub since: Instant,
    /// The reason why it is being ended.
    pub failure: Option<Failure>,
    /// The step was cancelled.
    pub cancelled: bool,
    /// Of its processes.
    pub call_id: String,
    /// A look at what the step has begun, which is no attempt.
    pub look: Option<StepLook>,
}

impl ActiveProgram {
    /// The failure of a program that has ended, if it has failed.
    pub(super) fn find_failure(
        &self,
        outcome: &Outcome,
        timeout: Option<Duration>,
    ) -> Result<Option<Failure>> {
        match &self.failure {
            Some(failure) => Ok(Some(failure.clone())),
            None => find_failure(&self.io, outcome, timeout),
        }
    }
}

/// A look at what a step has begun.
#[derive(Clone, Debug)]
pub(super) struct StepLook {
    pub handle: String,
    pub is_last: bool,
}

/// A program that starts when its beginning is on disk.
pub(super) struct WaitingProgram {
    pub active: ActiveProgram,
    pub prepared: PreparedAttempt,
    pub attempt: u32,
    /// The beginning is on disk.
    pub is_recorded: bool,
}

pub(super) struct Programs<'e> {
    pub signals: &'e Signals,
    /// The signal that ends this start.
    pub stop: Option<Stop>,
    pub children: Children<'e>,
    pub prepared: VecDeque<WaitingProgram>,
    pub active: HashMap<Token, ActiveProgram>,
    pub linked: LinkedFiles,
    pub credentials: Credentials,
    /// Directories of records that do not stay.
    pub spent: SpentRecords,
    /// The time of the last look at how much programs have printed.
    pub looked: Instant,
    grace: Duration,
}

impl<'e> Programs<'e> {
    pub(super) fn new(place: &RunPlace<'_>, options: &FlowOptions, signals: &'e Signals) -> Self {
        let mut children = Children::with_pidfds(signals);
        children.set_grace(options.grace);
        Self {
            signals,
            stop: None,
            children,
            prepared: VecDeque::new(),
            active: HashMap::new(),
            linked: LinkedFiles::default(),
            credentials: Credentials::new(place.flow),
            spent: SpentRecords::new(options),
            looked: Instant::now(),
            grace: options.grace,
        }
    }

    pub(super) fn at_work(&self) -> usize {
        self.active.len() + self.prepared.len()
    }

    /// The node of each program that runs or is about to.
    pub(super) fn nodes_at_work(&self) -> impl Iterator<Item = NodeIx> {
        let active = self.active.values();
        let prepared = self.prepared.iter().map(|waiting| &waiting.active);
        active.chain(prepared).map(|active| active.step.node)
    }

    /// Takes in a signal that has come. Returns whether one has.
    pub(super) fn take_stop(&mut self) -> bool {
        self.stop = self.signals.stop();
        self.stop.is_some()
    }

    pub(super) fn cancel(&mut self, key: StepKey) {
        self.spent.forget(key);
        self.prepared.retain(|it| it.active.step.key != key);
        if let Some((token, active)) = self.active.iter_mut().find(|(_, it)| it.step.key == key) {
            active.cancelled = true;
            self.children.interrupt(*token, self.grace);
        }
    }

    /// Ends programs that print more than the limit.
    pub(super) fn end_oversized(&mut self) {
        self.looked = Instant::now();
        for (token, active) in &mut self.active {
            let printed = active
                .io
                .join("stdout.log")
                .metadata()
                .map_or(0, |meta| meta.len());
            if printed > LARGEST_INPUT && active.failure.is_none() {
                active.failure = Some(Failure::operation(too_much(printed)));
                self.children.interrupt(*token, self.grace);
            }
        }
    }

    pub(super) fn interrupt_all(&mut self) {
        let tokens: Vec<Token> = self.active.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.grace);
    }

    /// Ends all programs, and waits for their ends.
    pub(super) fn end_all(&mut self) {
        self.interrupt_all();
        while !self.children.is_empty() && self.children.wait(None).is_ok() {}
    }
}

/// The variables by which a program knows the run that has started it. `home` is the directory of what is run, `dir`
/// that in which the program works.
pub(crate) fn run_variables(
    home: &Path,
    dir: &Path,
    run: &RunDir,
    depth: u32,
    ledgers: &str,
    deadline: Option<Timestamp>,
) -> Vec<Variable> {
    let variables = [
        ("FLOW_HOME", home.to_string_lossy()),
        ("CWD", dir.to_string_lossy()),
        ("DELTA_RUN_ID", run.id.as_str().into()),
        ("DELTA_RUN_DIR", run.path.to_string_lossy()),
        (DEPTH, (depth + 1).to_string().into()),
        (ENGINE_PID, std::process::id().to_string().into()),
        (LEDGERS, ledgers.into()),
    ];
    let deadline = deadline.map(|deadline| (DEADLINE, deadline.to_string().into()));
    variables
        .into_iter()
        .chain(deadline)
        .map(|(name, value)| (name.to_owned(), Some(value.into_owned())))
        .collect()
}

/// A step while it begins.
pub(super) struct BeginningStep {
    pub step: StepRef,
    pub input: Payload,
    pub attempt: u32,
}

impl FlowEngine<'_> {
    /// Makes the files of an attempt and puts its beginning into the journal, with the run of an earlier step that it goes
    /// on with.
    pub(super) fn prepare_attempt(
        &mut self,
        beginning: &BeginningStep,
        given: ProgramInput<'_>,
        own_run: Option<OwnRun>,
    ) -> Result<()> {
        let (node, key) = (self.place.node_id(&beginning.step), beginning.step.key);
        let prepared = self.prepare_records(beginning, node, given)?;
        let call_id = format!("{}{}", self.place.call_prefix, hex(12));
        let start = NodeStart {
            attempt: beginning.attempt,
            call_id: Some(&call_id),
            execution_ref: Some(&prepared.reference),
            command: Some(&prepared.record.command),
            own_run: own_run.as_ref(),
            due_at: None,
        };
        self.events.add_node_start(&beginning.step, start);
        self.attempts.own_runs.remove(&key);
        if let Some(run) = own_run {
            let is_open = false;
            self.attempts.own_runs.insert(key, KeptRun { run, is_open });
        }
        self.attempts.counts.entry(key).or_default().last = beginning.attempt;
        self.await_launch(beginning, prepared, call_id, None);
        Ok(())
    }

    /// Makes the directory of records of a program; its name begins with this one.
    pub(super) fn prepare_records(
        &mut self,
        beginning: &BeginningStep,
        name: &str,
        given: ProgramInput<'_>,
    ) -> Result<PreparedAttempt> {
        let (run, linked) = (&self.place.run.path, &mut self.programs.linked);
        attempt::prepare_attempt(run, &beginning.step.task, name, given, linked)
    }

    /// Queues a program that is to be started.
    pub(super) fn await_launch(
        &mut self,
        beginning: &BeginningStep,
        prepared: PreparedAttempt,
        call_id: String,
        look: Option<StepLook>,
    ) {
        let (programs, step) = (&mut self.programs, &beginning.step);
        programs.spent.note(step.key, &prepared.reference);
        programs.prepared.push_back(WaitingProgram {
            active: ActiveProgram {
                step: step.clone(),
                io: prepared.io.clone(),
                since: Instant::now(),
                failure: None,
                cancelled: false,
                call_id,
                look,
            },
            prepared,
            attempt: beginning.attempt,
            is_recorded: false,
        });
    }
}

/// The string that a payload is, if the form asks for a text and it is one.
pub(super) fn text_of(payload: &Payload, form: PayloadForm) -> Option<String> {
    match form {
        PayloadForm::Text => serde_json::from_str(payload).ok(),
        PayloadForm::Json => None,
    }
}
