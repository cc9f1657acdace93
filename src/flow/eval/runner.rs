//! The running of trials: begin what is missing, wait for any that ends, judge it, again.
//!
//! One thread, one blocking wait, many children, as the engine of flows. Unaware of statistics.
//!
//! Architecture invariant: a trial's program starts only after its `TRIAL_START` is on disk, in a
//! workspace that was made for it, and nothing whose end was measured is ever run again.

mod workspace;
mod target;
mod progress;
mod judge;

use super::answer::{TargetOutcome, read_answer, read_spending};
use super::plan::{PlannedSuite, PlannedTrial};
use super::record::{ANSWERED, EvaluationRecord, RESULT, TrialEnd, TrialRecord};
use super::verdict::{AGENT_CHANGED, EvaluationLimits, NO_BUDGET, NO_TIME, TargetEnd};
use crate::config::pricing::Budget;
use crate::engine::account;
use crate::engine::run_context::{self, RunContext};
use crate::error::{At, Error, Result, ignore, reason};
use crate::flow::record::attempt::reference;
use crate::record::event::EvaluationEvent;
use crate::record::execution::{self, ExecutionRecord, Stdin};
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, Ledger};
use crate::record::workspace::Workspace;
use crate::text::digest::sha256;
use crate::text::json::{self, Object};
use crate::text::timestamp::Timestamp;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{self, Children, Command, Outcome, SpawnError, Token, Variable, Woken};
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::Screen;
use crate::unix::trees::LeftOut;
use judge::Judging;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Consecutive configuration failures after which the evaluation stops.
const FAILURES_TO_STOP: usize = 3;

/// A start of an evaluation: where it is, and how it is to behave.
pub(crate) struct EvaluationStart<'e> {
    /// The directory of `evaluations.yaml`.
    pub home: &'e Path,
    pub workspace: &'e Workspace,
    pub run: RunDir,
    /// The ledgers in which trials write what they spend, as their environment names them.
    pub ledgers: String,
    pub budget: Option<Budget>,
    /// The time by which its programs must have ended.
    pub deadline: Option<Timestamp>,
    /// The depth of nesting.
    pub depth: u32,
    /// The number of trials at once.
    pub jobs: usize,
    /// Judge all that is recorded again, and run nothing.
    pub regrade: bool,
    pub screen: Screen,
    /// The name in messages.
    pub program: &'e str,
}

/// The reason why the running of trials has ended.
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

/// A trial of the plan.
#[derive(Clone, Copy)]
struct TrialRef<'e> {
    of: &'e PlannedSuite<'e>,
    plan: &'e PlannedTrial<'e>,
}

/// A program of a trial that runs.
struct TrialProcess<'e> {
    trial: TrialRef<'e>,
    /// The directory of records.
    io: PathBuf,
    call_id: String,
    /// The answer that it grades; none: it gives the answer.
    judging: Option<Judging<'e>>,
    /// Ended because it printed more than may be.
    is_oversized: bool,
}

/// One start of an evaluation.
pub(crate) struct Runner<'e> {
    start: EvaluationStart<'e>,
    /// The time between SIGTERM and SIGKILL.
    grace: Duration,
    pub journal: Journal,
    pub record: EvaluationRecord,
    signals: &'e Signals,
    children: Children<'e>,
    /// To be run, or only to be judged.
    queue: VecDeque<TrialRef<'e>>,
    processes: HashMap<Token, TrialProcess<'e>>,
    ledger: Option<Ledger>,
    /// The end of the seconds of the budget.
    budget_ends: Option<Instant>,
    stop: Option<EvaluationStop>,
    /// The number of trials in a row that said that the configuration is wrong.
    misconfigured: usize,
    /// The warnings that were printed.
    warned: BTreeSet<String>,
    done: usize,
    all: usize,
}

impl<'e> Runner<'e> {
    /// The run's directory is there, and its journal says that an engine has started.
    pub(crate) fn new(
        start: EvaluationStart<'e>,
        suites: &'e [PlannedSuite<'e>],
        journal: Journal,
        mut record: EvaluationRecord,
        signals: &'e Signals,
    ) -> Self {
        let mut children = Children::with_pidfds(signals);
        let grace = run_context::grace(start.depth);
        children.set_grace(grace);
        let mut queue: VecDeque<TrialRef<'e>> = suites
            .iter()
            .flat_map(|of| of.planned.iter().map(move |plan| TrialRef { of, plan }))
            .collect();
        let all = queue.len();
        queue.retain(|trial| {
            let found = trial.record(&mut record);
            if start.regrade {
                found.is_answered()
            } else {
                !found.is_measured() || found.needs_grade(&trial.plan.chosen.grading)
            }
        });
        Self {
            budget_ends: account::end_of_last(&start.ledgers),
            start,
            grace,
            journal,
            record,
            signals,
            children,
            done: all - queue.len(),
            all,
            queue,
            processes: HashMap::new(),
            ledger: None,
            stop: None,
            misconfigured: 0,
            warned: BTreeSet::new(),
        }
    }

    /// Works until nothing is left to do, or something asks for the end. No program is ever
    /// left running.
    pub(crate) fn run(&mut self) -> Result<EvaluationStop> {
        process::end_all_leftovers(&self.record.last_calls());
        if let Err(error) = self.work() {
            self.interrupt_all();
            while !self.children.is_empty() && self.children.wait(None).is_ok() {}
            ignore(self.journal.flush());
            return Err(error);
        }
        self.journal.sync()?;
        if self.journal.was_changed() {
            return Ok(EvaluationStop::JournalChanged);
        }
        Ok(self.stop.take().unwrap_or(EvaluationStop::Done))
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
        while self.processes.len() < self.start.jobs.max(1) {
            if let Some(stop) = self.signals.stop() {
                self.give_up(stop);
            }
            if self.stop.is_some() || self.journal.was_changed() {
                return Ok(());
            }
            let Some(trial) = self.queue.pop_front() else {
                return Ok(());
            };
            if trial.record(&mut self.record).is_measured() {
                self.judge_recorded(trial)?;
            } else if self.has_spent_all()? {
                self.stop = Some(EvaluationStop::Limit(NO_BUDGET));
            } else {
                self.begin(trial)?;
            }
        }
        Ok(())
    }

    fn give_up(&mut self, stop: Stop) {
        self.stop.get_or_insert(match stop {
            Stop::Deadline => EvaluationStop::Limit(NO_TIME),
            Stop::Interrupt | Stop::Terminate | Stop::Hangup => EvaluationStop::Signal(stop),
        });
    }

    /// The budget of the evaluation is spent.
    fn has_spent_all(&mut self) -> Result<bool> {
        let Some(budget) = self.start.budget.filter(Budget::has_limit) else {
            return Ok(false);
        };
        let path = self.start.run.path.join(spending::FILE);
        let ledger = match &mut self.ledger {
            Some(ledger) => ledger,
            none => none.insert(Ledger::open(&path, true)?),
        };
        ledger.lock(self.signals, self.budget_ends, false)?;
        ledger.release();
        // What trials have reserved may turn out to be less: the next one waits for that itself.
        let spent = ledger.tally().all_but_pending();
        Ok(budget.tokens.is_some_and(|limit| spent.tokens() >= limit)
            || budget.cost.is_some_and(|limit| spent.reaches_cost(limit))
            || self.is_out_of_time())
    }

    /// The seconds of the budget are over.
    fn is_out_of_time(&self) -> bool {
        self.budget_ends.is_some_and(|end| end <= Instant::now())
    }

    fn dir(&self, trial: TrialRef<'_>) -> PathBuf {
        self.start.workspace.root.join(&trial.plan.place)
    }

    /// A new directory of records of a trial.
    fn make_records(&self, trial: TrialRef<'_>, kind: &str) -> Result<PathBuf> {
        let parent = Path::new("io/trials").join(trial.suite());
        let parent = files::make_dirs_below(&self.start.run.path, &parent)?;
        Ok(parent.join(files::make_unique_dir(
            &parent,
            &format!("{}{kind}", trial.plan.name),
        )?))
    }

    /// Begins a trial, or goes on with the run that it began.
    fn begin(&mut self, trial: TrialRef<'e>) -> Result<()> {
        let TrialRef { of, plan } = trial;
        let dir = self.dir(trial);
        let attempts = trial.record(&mut self.record).starts;
        // What has answered with other files is not resumed.
        let last = trial.record(&mut self.record).end.as_ref();
        let is_of_others = last.is_some_and(|end| end.stop_reason == AGENT_CHANGED);
        let goes_on = attempts > 0 && !is_of_others && target::is_resumable(&of.suite.target);
        if !(goes_on && dir.is_dir()) {
            let (root, template) = (&self.start.workspace.root, &plan.chosen.case.template);
            let (place, template) = (plan.place.as_ref(), template.as_deref());
            for LeftOut { path, why } in workspace::make(root, place, template, attempts > 0)? {
                let path = path.display();
                self.warn_once(format!("{path} is {why} and has not been copied"));
            }
        }
        let io = self.make_records(trial, "")?;
        let program = target::command(trial, self.start.home, &dir);
        let stdin = Stdin::Bytes(program.stdin.as_bytes());
        let record = execution::begin_record(&io, &program.argv, stdin, None)?;
        let process = TrialProcess {
            trial,
            call_id: RunContext::new_call_id(),
            judging: None,
            is_oversized: false,
            io,
        };
        self.journal.add_line(EvaluationEvent::TrialStart, |line| {
            line.put("suite", trial.suite())
                .put("trial", &plan.name)
                .put("case", &plan.chosen.case.id)
                .put("setting", &plan.setting.name)
                .put("number", &plan.number)
                .put("attempt", &attempts.saturating_add(1))
                .put("seed", &plan.seed)
                .put("workspace", &plan.place)
                .put("call_id", &process.call_id)
                .put("resolved_command", &record.command)
                .put(
                    "execution_ref",
                    &reference(&self.start.run.path, &process.io),
                );
        });
        self.journal.sync()?;
        trial
            .record(&mut self.record)
            .begin(process.call_id.clone());
        if self.journal.was_changed() {
            return Ok(());
        }
        let (argv, timeout) = (&program.argv, of.suite.timeout);
        match self.launch(process, argv, program.env, record, timeout) {
            None => Ok(()),
            Some((process, error)) => {
                let answer = target::not_started(error.message(&argv[0]));
                self.end_target(trial, &process.io, answer, TrialEnd::default())
            }
        }
    }

    /// Starts a program of a trial in its workspace. Returns why it cannot be started, if so.
    fn launch(
        &mut self,
        process: TrialProcess<'e>,
        argv: &[String],
        own: Vec<Variable>,
        record: ExecutionRecord,
        timeout: Option<Duration>,
    ) -> Option<(TrialProcess<'e>, SpawnError)> {
        let dir = &self.dir(process.trial);
        let mut env = target::environment(&self.start, dir);
        env.extend(own);
        let spawned = self.children.spawn(Command {
            argv,
            dir,
            env: &env,
            call_id: &process.call_id,
            stdin: record.stdin,
            stdout: record.stdout,
            stderr: record.stderr,
            timeout,
        });
        match spawned {
            Ok(token) => {
                self.processes.insert(token, process);
                None
            }
            Err(error) => Some((process, error)),
        }
    }

    fn wait(&mut self) -> Result<()> {
        /// The time between two looks at how much programs have printed.
        const PERIOD: Duration = Duration::from_secs(1);
        let next = Instant::now() + PERIOD;
        let until = self
            .budget_ends
            .filter(|_| self.stop.is_none())
            .map_or(next, |end| end.min(next));
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
                if self.stop.is_none() && self.is_out_of_time() {
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
                self.children.interrupt(*token, self.grace);
            }
        }
    }

    fn interrupt_all(&mut self) {
        let tokens: Vec<Token> = self.processes.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.grace);
    }

    fn end(&mut self, process: TrialProcess<'e>, outcome: &Outcome) -> Result<()> {
        let TrialProcess { trial, io, .. } = process;
        execution::end_record(&io, outcome.how.code(), outcome.duration, None)?;
        // What it has left running could change what is judged.
        process::end_leftovers(&process.call_id);
        if let Some(judging) = process.judging {
            return self.end_grader(judging, &io, outcome);
        }
        let run = self.dir(trial).join(".delta").join(&trial.plan.name);
        // The limits of the evaluation that trials may have met.
        let limits = EvaluationLimits {
            budget: self.has_spent_all()?,
            deadline: self.start.deadline.is_some(),
        };
        let mut answer = if process.is_oversized {
            target::oversized()
        } else {
            read_answer(&trial.of.suite.target, outcome, &io, &run, limits)?
        };
        let spent = read_spending(&run);
        (answer.result.cost, answer.result.tokens) = (spent.cost, spent.tokens);
        if !matches!(answer.end, TargetEnd::Open) && !trial.plan.target.is_unchanged(self.signals) {
            self.stop
                .get_or_insert(EvaluationStop::Limit(AGENT_CHANGED));
            answer = target::agent_changed();
        }
        self.end_target(trial, &io, answer, spent)
    }

    /// Records the end of a trial's program, and begins to judge its answer. `spent` has what its ledger says.
    fn end_target(
        &mut self,
        trial: TrialRef<'e>,
        io: &Path,
        answer: TargetOutcome,
        spent: TrialEnd,
    ) -> Result<()> {
        let TargetOutcome { result, .. } = answer;
        let status = match answer.end {
            TargetEnd::Open => return Ok(()),
            TargetEnd::Answered => ANSWERED,
            TargetEnd::Failed(_) => "failed",
            TargetEnd::NotMeasured(_) | TargetEnd::Misconfigured(_) => "not_measured",
        };
        let is_answered = status == ANSWERED;
        if is_answered {
            let path = io.join(RESULT);
            files::write(&path, json::text(&result).as_bytes())?;
            files::open_regular(&path)?.sync_data().at("sync", &path)?;
        }
        let end = TrialEnd {
            status: status.to_owned(),
            stop_reason: answer.stop_reason,
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            // By which trials that are identical are found.
            output_sha256: is_answered.then(|| sha256(json::text(&result.output).as_bytes())),
            execution_ref: reference(&self.start.run.path, io).into_owned(),
            ..spent
        };
        self.journal.add_line(EvaluationEvent::TrialEnd, |line| {
            trial.put_names(line).members(&end);
        });
        self.journal.sync()?;
        let why = answer.message.as_deref();
        match answer.end {
            TargetEnd::Misconfigured(_) => self.misconfigured += 1,
            _ => self.misconfigured = 0,
        }
        if self.misconfigured >= FAILURES_TO_STOP {
            let last = why.unwrap_or(&end.stop_reason).to_owned();
            self.stop.get_or_insert(EvaluationStop::Misconfigured(last));
        }
        let reason = end.stop_reason.clone();
        trial.record(&mut self.record).end = Some(end);
        if is_answered {
            return self.judge(Judging::of(trial, result));
        }
        self.print_end(trial, status, &reason, why);
        Ok(())
    }
}

impl<'e> TrialRef<'e> {
    fn suite(self) -> &'e str {
        &self.of.suite.name
    }

    fn record(self, record: &mut EvaluationRecord) -> &mut TrialRecord {
        record.trial(self.suite(), &self.plan.name)
    }

    /// Puts the names by which events know a trial.
    fn put_names<'l, 'o>(self, line: &'l mut Object<'o>) -> &'l mut Object<'o> {
        line.put("suite", self.suite())
            .put("trial", &self.plan.name)
    }
}
