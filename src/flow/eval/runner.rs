//! The running of trials: begin what is missing, wait for any that ends, judge it, again.
//!
//! One thread, one blocking wait, many children, as the engine of flows. Unaware of statistics.
//!
//! Architecture invariant: a trial's program starts only after its `TRIAL_START` is on disk, in a
//! workspace that was made for it, and nothing whose end was measured is ever run again.

mod workspace;
mod target;
mod trial_process;
mod progress;
mod judge;

use super::answer::{Spending, TargetOutcome, digest_output, read_answer, read_spending};
use super::naming::{PlannedTrial, seed_of};
use super::plan::PlannedSuite;
use super::record::{self, ANSWERED, EvaluationRecord, RESULT, TrialEnd, TrialResult, TrialStart};
use super::suite::{Case, Setting};
use super::trial::TrialOutcome;
use super::verdict::{EvaluationLimits, NO_BUDGET, NO_TIME, TargetEnd};
use crate::config::pricing::Budget;
use crate::engine::account;
use crate::engine::run_context::RunContext;
use crate::error::{At, Error, Result, may_fail, reason};
use crate::flow::record::attempt::reference;
use crate::record::execution::{self, Stdin};
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, Ledger};
use crate::record::workspace::Workspace;
use crate::text::ids::hex;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{self, Children, Command, Outcome, Token, Woken};
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::Screen;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial_process::{ProcessRole, TrialProcess};

/// Consecutive configuration failures after which the evaluation stops.
const FAILURES_TO_STOP: usize = 3;

/// Where an evaluation is.
pub(crate) struct EvaluationPlace<'e> {
    /// The directory of `evaluations.yaml`.
    pub home: &'e Path,
    pub workspace: &'e Workspace,
    pub run: RunDir,
    /// The ledgers in which trials write what they spend, as their environment names them.
    pub ledgers: String,
    pub budget: Option<Budget>,
    /// When its programs are to have ended.
    pub deadline: Option<Timestamp>,
    /// How deep it is nested.
    pub depth: u32,
}

/// How an evaluation is to behave.
pub(crate) struct EvaluationOptions {
    /// The number of trials at once.
    pub jobs: usize,
    /// How long programs have between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Judge all that is recorded again, and run nothing.
    pub regrade: bool,
    pub screen: Screen,
}

/// Why the running of trials has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvaluationStop {
    /// Nothing is left to do.
    Done,
    /// The budget is spent, or the deadline near: what is left was not begun.
    Limit(&'static str),
    Signal(Stop),
    /// Trials say that the configuration is wrong: what the last one said.
    Misconfigured(String),
    /// Another program wrote the journal.
    JournalChanged,
}

/// A trial, by the indices of its suite and in its plan.
type TrialIx = (usize, usize);

#[derive(Clone, Copy, Debug)]
enum Job {
    Run(TrialIx),
    Judge(TrialIx),
}

/// One start of an evaluation.
pub(crate) struct Runner<'e> {
    place: EvaluationPlace<'e>,
    options: EvaluationOptions,
    suites: &'e [PlannedSuite<'e>],
    pub journal: Journal,
    pub record: EvaluationRecord,
    signals: &'e Signals,
    children: Children<'e>,
    queue: VecDeque<Job>,
    processes: HashMap<Token, TrialProcess>,
    ledger: Option<Ledger>,
    /// When the seconds of the budget are over.
    budget_ends: Option<Instant>,
    stop: Option<EvaluationStop>,
    /// What the last trials in a row said of the configuration.
    misconfigured: Vec<String>,
    done: usize,
    all: usize,
}

impl<'e> Runner<'e> {
    /// The run's directory is there, and its journal says that an engine has started.
    pub(crate) fn new(
        place: EvaluationPlace<'e>,
        options: EvaluationOptions,
        suites: &'e [PlannedSuite<'e>],
        (journal, record): (Journal, EvaluationRecord),
        signals: &'e Signals,
    ) -> Self {
        let mut children = Children::with_pidfds(signals);
        children.set_grace(options.grace);
        let mut runner = Self {
            budget_ends: account::end_of_last(&place.ledgers),
            place,
            options,
            suites,
            journal,
            record,
            signals,
            children,
            queue: VecDeque::new(),
            processes: HashMap::new(),
            ledger: None,
            stop: None,
            misconfigured: Vec::new(),
            done: 0,
            all: 0,
        };
        runner.plan();
        runner
    }

    /// Works until nothing is left to do, or something asks for the end. No program is ever
    /// left running.
    pub(crate) fn run(&mut self) -> Result<EvaluationStop> {
        process::end_all_leftovers(&self.record.last_calls());
        let done = self.work();
        if done.is_err() {
            self.end_children();
        }
        done?;
        self.journal.sync()?;
        if self.journal.was_changed() {
            return Ok(EvaluationStop::JournalChanged);
        }
        Ok(self.stop.clone().unwrap_or(EvaluationStop::Done))
    }

    fn plan(&mut self) {
        for (suite_ix, suite) in self.suites.iter().enumerate() {
            for (trial_ix, planned) in suite.planned.iter().enumerate() {
                let trial = self.record.trial(&suite.suite.name, &planned.name);
                let ix = (suite_ix, trial_ix);
                self.all += 1;
                let is_answered = trial.end.as_ref().is_some_and(|end| end.status == ANSWERED);
                if self.options.regrade {
                    self.queue.extend(is_answered.then_some(Job::Judge(ix)));
                } else if !trial.is_measured() {
                    self.queue.push_back(Job::Run(ix));
                } else if trial.needs_grade(&suite.gradings[planned.case]) {
                    self.queue.push_back(Job::Judge(ix));
                }
            }
        }
        self.done = self.all - self.queue.len();
    }

    fn work(&mut self) -> Result<()> {
        loop {
            self.fill()?;
            if self.processes.is_empty() {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        while self.processes.len() < self.options.jobs.max(1) {
            if let Some(stop) = self.signals.stop() {
                self.give_up(stop);
            }
            if self.stop.is_some() || self.journal.was_changed() {
                return Ok(());
            }
            match self.queue.pop_front() {
                None => return Ok(()),
                Some(Job::Judge(trial)) => self.judge_recorded(trial)?,
                Some(Job::Run(_)) if self.has_spent_all()? => {
                    self.stop = Some(EvaluationStop::Limit(NO_BUDGET));
                }
                Some(Job::Run(trial)) => self.begin(trial)?,
            }
        }
        Ok(())
    }

    fn give_up(&mut self, stop: Stop) {
        let why = match stop {
            Stop::Deadline => EvaluationStop::Limit(NO_TIME),
            Stop::Interrupt | Stop::Terminate | Stop::Hangup => EvaluationStop::Signal(stop),
        };
        self.stop.get_or_insert(why);
    }

    /// The budget of the evaluation is spent.
    fn has_spent_all(&mut self) -> Result<bool> {
        let Some(budget) = self.place.budget.filter(Budget::has_limit) else {
            return Ok(false);
        };
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => Ledger::open(&self.place.run.path.join(spending::FILE), true)?,
        };
        let ledger = self.ledger.insert(ledger);
        ledger.lock(self.signals, self.budget_ends, false)?;
        ledger.release();
        // What trials have reserved may turn out to be less: the next one waits for that itself.
        let spent = ledger.tally().all_but_pending();
        let is_over = self.time_left() == Some(Duration::ZERO);
        Ok(budget.tokens.is_some_and(|limit| spent.tokens() >= limit)
            || budget.cost.is_some_and(|limit| spent.reaches_cost(limit))
            || is_over)
    }

    /// What is left of the seconds of the budget.
    fn time_left(&self) -> Option<Duration> {
        Some(self.budget_ends?.saturating_duration_since(Instant::now()))
    }

    fn suite(&self, trial: TrialIx) -> &'e PlannedSuite<'e> {
        &self.suites[trial.0]
    }

    fn planned(&self, trial: TrialIx) -> &'e PlannedTrial {
        &self.suites[trial.0].planned[trial.1]
    }

    fn case(&self, trial: TrialIx) -> &'e Case {
        &self.suite(trial).suite.cases[self.planned(trial).case]
    }

    fn setting(&self, trial: TrialIx) -> &'e Setting {
        &self.suite(trial).suite.settings[self.planned(trial).setting]
    }

    /// The names by which events know a trial.
    fn names(&self, trial: TrialIx) -> (&'e str, &'e str) {
        (&self.suite(trial).suite.name, &self.planned(trial).name)
    }

    /// A trial's workspace, from the evaluation's.
    fn place_of(&self, trial: TrialIx) -> String {
        let (suite, name) = self.names(trial);
        format!("eval/{suite}/{name}")
    }

    /// A call within that of the trial: with that one, which the journal has, it is found again.
    fn new_grader_call(&mut self, trial: TrialIx) -> String {
        let (suite, name) = self.names(trial);
        match &self.record.trial(suite, name).last_call {
            Some(around) => format!("{around}.{}", hex(12)),
            None => RunContext::new_call_id(),
        }
    }

    fn workspace_of(&self, trial: TrialIx) -> PathBuf {
        self.place.workspace.root.join(self.place_of(trial))
    }

    /// A new directory of records of a trial.
    fn make_records(&self, trial: TrialIx, kind: &str) -> Result<PathBuf> {
        let (suite, name) = self.names(trial);
        let parent = Path::new("io/trials").join(suite);
        let parent = files::make_dirs_below(&self.place.run.path, &parent)?;
        let made = files::make_unique_dir(&parent, &format!("{name}{kind}"))?;
        Ok(parent.join(made))
    }

    /// Begins a trial, or goes on with the run that it began.
    fn begin(&mut self, trial: TrialIx) -> Result<()> {
        let (suite, name) = self.names(trial);
        let (case, setting, planned) = (self.case(trial), self.setting(trial), self.planned(trial));
        let place = self.place_of(trial);
        let dir = self.place.workspace.root.join(&place);
        let attempts = self.record.trial(suite, name).starts;
        let goes_on = attempts > 0 && target::is_resumable(&self.suite(trial).suite.target);
        if !(goes_on && dir.is_dir()) {
            workspace::make(
                &self.place.workspace.root,
                place.as_ref(),
                case.template.as_deref(),
                attempts > 0,
            )?;
        }
        let seed = seed_of(suite, &case.id, planned.number);
        let io = self.make_records(trial, "")?;
        let program = target::command(
            self.suite(trial),
            (case, setting),
            (self.place.home, &dir),
            (name, seed),
        );
        let stdin = Stdin::Bytes(program.stdin.as_bytes());
        let record = execution::begin_record(&io, &program.argv, stdin, None)?;
        let call_id = RunContext::new_call_id();
        record::add_start(
            &mut self.journal,
            &TrialStart {
                suite,
                trial: name,
                case: &case.id,
                setting: &setting.name,
                number: planned.number,
                attempt: attempts.saturating_add(1),
                seed,
                workspace: &place,
                call_id: &call_id,
                resolved_command: &record.command,
                execution_ref: &reference(&self.place.run.path, &io),
            },
        );
        self.journal.sync()?;
        self.record.trial(suite, name).begin(call_id.clone());
        if self.journal.was_changed() {
            return Ok(());
        }
        let mut env = target::environment(&self.place, &dir);
        env.extend(program.env);
        let spawned = self.children.spawn(Command {
            argv: &program.argv,
            dir: &dir,
            env: &env,
            call_id: &call_id,
            stdin: record.stdin,
            stdout: record.stdout,
            stderr: record.stderr,
            timeout: self.suite(trial).suite.timeout,
        });
        match spawned {
            Ok(token) => {
                let process = TrialProcess::new(trial, io, call_id, ProcessRole::Target);
                self.processes.insert(token, process);
                Ok(())
            }
            Err(error) => {
                let message = error.message(&program.argv[0]);
                self.end_target(
                    trial,
                    &io,
                    target::not_started(message),
                    Spending::default(),
                )
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        /// How often it is looked how much programs have printed.
        const PERIOD: Duration = Duration::from_secs(1);
        let left = self.time_left().filter(|_| self.stop.is_none());
        let until = Instant::now() + left.map_or(PERIOD, |left| left.min(PERIOD));
        let cannot_wait = |e| Error::failure(format!("cannot wait for programs: {}", reason(&e)));
        match self.children.wait(Some(until)).map_err(cannot_wait)? {
            Woken::Ended(token, outcome) => {
                if let Some(process) = self.processes.remove(&token) {
                    self.end(process, &outcome)?;
                }
            }
            Woken::Suspended => {}
            Woken::Stopped(stop) => {
                self.give_up(stop);
                self.interrupt_all();
            }
            Woken::Deadline => {
                self.end_oversized_programs();
                if self.stop.is_none() && self.time_left() == Some(Duration::ZERO) {
                    self.stop = Some(EvaluationStop::Limit(NO_BUDGET));
                    self.interrupt_all();
                }
            }
        }
        Ok(())
    }

    fn end_oversized_programs(&mut self) {
        for (token, process) in &mut self.processes {
            let printed = process.io.join("stdout.log").metadata();
            if printed.map_or(0, |meta| meta.len()) > LARGEST_INPUT && !process.is_oversized {
                process.is_oversized = true;
                self.children.interrupt(*token, self.options.grace);
            }
        }
    }

    fn interrupt_all(&mut self) {
        let tokens: Vec<Token> = self.processes.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.options.grace);
    }

    fn end_children(&mut self) {
        self.interrupt_all();
        while !self.children.is_empty() {
            if self.children.wait(None).is_err() {
                return;
            }
        }
        may_fail(self.journal.flush());
    }

    fn end(&mut self, process: TrialProcess, outcome: &Outcome) -> Result<()> {
        let TrialProcess { trial, io, .. } = process;
        execution::end_record(&io, outcome.how.code(), outcome.duration, None)?;
        // What it has left running could change what is judged.
        process::end_leftovers(&process.call_id);
        if let ProcessRole::Grader(judging) = process.role {
            return self.end_grader(*judging, &io, outcome);
        }
        let run = self
            .workspace_of(trial)
            .join(".delta")
            .join(self.names(trial).1);
        let limits = self.limits()?;
        let target = &self.suite(trial).suite.target;
        let mut answer = match process.is_oversized {
            true => target::oversized(),
            false => read_answer(target, outcome, (&io, &run), limits)?,
        };
        let spent = read_spending(&run);
        (answer.result.cost, answer.result.tokens) = (spent.cost, spent.tokens);
        self.end_target(trial, &io, answer, spent)
    }

    /// The limits of the evaluation that trials may have met.
    fn limits(&mut self) -> Result<EvaluationLimits> {
        Ok(EvaluationLimits {
            budget: self.has_spent_all()?,
            deadline: self.place.deadline.is_some(),
        })
    }

    /// Records the end of a trial's program, and begins to judge its answer.
    fn end_target(
        &mut self,
        trial: TrialIx,
        io: &Path,
        answer: TargetOutcome,
        spent: Spending,
    ) -> Result<()> {
        let (status, is_config) = match &answer.end {
            TargetEnd::Open => return Ok(()),
            TargetEnd::Answered => (ANSWERED, false),
            TargetEnd::Failed(_) => (TrialOutcome::Failed.name(), false),
            TargetEnd::NotMeasured(_) => (TrialOutcome::NotMeasured.name(), false),
            TargetEnd::Misconfigured(_) => (TrialOutcome::NotMeasured.name(), true),
        };
        let is_answered = answer.end == TargetEnd::Answered;
        let end = TrialEnd {
            status: status.to_owned(),
            stop_reason: answer.stop_reason.clone(),
            exit_code: answer.result.exit_code,
            duration_ms: answer.result.duration_ms,
            cost: answer.result.cost,
            tokens: answer.result.tokens,
            retries: spent.retries,
            models: spent.models,
            output_sha256: is_answered.then(|| digest_output(&answer.result.output)),
            execution_ref: reference(&self.place.run.path, io).into_owned(),
        };
        if is_answered {
            let path = io.join(RESULT);
            let text = json::text(&TrialResult::of(&answer.result));
            files::write(&path, text.as_bytes())?;
            let written = files::open_regular(&path)?;
            written.sync_data().at("sync", &path)?;
        }
        let (suite, name) = self.names(trial);
        record::add_end(&mut self.journal, (suite, name), &end);
        self.journal.sync()?;
        self.record.trial(suite, name).end(end);
        self.note_configuration(is_config.then(|| {
            answer
                .message
                .clone()
                .unwrap_or_else(|| answer.stop_reason.clone())
        }));
        match is_answered {
            true => self.judge_answer(trial, answer.result, answer.stop_reason),
            false => {
                let why = answer.message.as_deref();
                self.print_end(trial, status, &answer.stop_reason, why);
                Ok(())
            }
        }
    }

    fn note_configuration(&mut self, said: Option<String>) {
        match said {
            None => self.misconfigured.clear(),
            Some(said) => self.misconfigured.push(said),
        }
        if self.misconfigured.len() >= FAILURES_TO_STOP
            && let Some(last) = self.misconfigured.last()
        {
            let last = last.clone();
            self.stop.get_or_insert(EvaluationStop::Misconfigured(last));
        }
    }
}
