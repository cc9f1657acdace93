//! The running of trials: begin what is missing, wait for any that ends, judge it, again.
//!
//! One thread, one blocking wait, many children, as the engine of flows. Unaware of statistics.
//!
//! Architecture invariant: a trial's program starts only after its `TRIAL_START` is on disk, in a
//! workspace that was made for it, and nothing whose end was measured is ever run again.

mod workspace;
mod target;

use super::answer::{TargetOutcome, digest_output, read_answer, read_spending};
use super::assertion::{AssertionKind, Mark, TargetResult, score_of};
use super::grader::{describe_trial, look_at_file, read_mark};
use super::naming::{PlannedTrial, seed_of};
use super::record::{
    self, ANSWERED, EvaluationRecord, Grade, RESULT, TrialEnd, TrialResult, TrialStart,
};
use super::suite::{Case, Setting, Suite};
use super::trial::TrialOutcome;
use super::verdict::{EvaluationLimits, NO_BUDGET, NO_TIME, TargetEnd};
use crate::config::pricing::Budget;
use crate::error::{At, Error, Result, may_fail, reason};
use crate::flow::manifest::fill;
use crate::flow::record::attempt::{MOST_OUTPUT, reference};
use crate::record::execution::{self, ExecutionRecord, Stdin};
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, Ledger};
use crate::record::workspace::Workspace;
use crate::text::ids::hex;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{self, Children, Command, Ended, SpawnError, Token, Variable, Woken};
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::{Screen, Tone, printable, time};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So many trials in a row that say the same of the configuration stop the evaluation.
const MOST_MISCONFIGURED: usize = 3;

/// A suite with the trials that are planned.
pub(crate) struct PlannedSuite<'s> {
    pub suite: &'s Suite,
    /// Of each case under each setting.
    pub trials: u32,
    pub planned: Vec<PlannedTrial>,
    /// The indices of the cases and the settings that are chosen.
    pub cases: Vec<usize>,
    pub settings: Vec<usize>,
    /// The digest of what each case gives its trials, by its index; empty if it is not chosen.
    pub digests: Vec<String>,
    /// The digest of what judges each case, by its index.
    pub gradings: Vec<String>,
    /// The agent's directory or name, if the target is one.
    pub agent: Option<String>,
    /// The agent takes a seed.
    pub is_seeded: bool,
}

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
    pub call_prefix: String,
    /// How deep it is nested.
    pub depth: u32,
}

/// How an evaluation is to behave.
pub(crate) struct EvaluationOptions {
    /// So many trials at once.
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
    /// Somebody else wrote the journal.
    JournalChanged,
}

/// A trial, by the indices of its suite and in its plan.
type TrialIx = (usize, usize);

#[derive(Clone, Copy, Debug)]
enum Job {
    Run(TrialIx),
    Judge(TrialIx),
}

/// An answer that is being judged.
struct Judging {
    trial: TrialIx,
    result: TargetResult,
    stop_reason: String,
    workspace: PathBuf,
    marks: Vec<Mark>,
}

enum Work {
    Target {
        execution_ref: String,
        call_id: String,
    },
    Grader {
        judging: Box<Judging>,
        call_id: String,
    },
}

/// A program that runs.
struct ActiveProgram {
    trial: TrialIx,
    /// The directory of records.
    io: PathBuf,
    work: Work,
    /// It printed more than may be, and is being ended.
    is_oversized: bool,
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
    active: HashMap<Token, ActiveProgram>,
    ledger: Option<Ledger>,
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
            place,
            options,
            suites,
            journal,
            record,
            signals,
            children,
            queue: VecDeque::new(),
            active: HashMap::new(),
            ledger: None,
            stop: None,
            misconfigured: Vec::new(),
            done: 0,
            all: 0,
        };
        runner.plan();
        runner
    }

    /// Works until nothing is left to do, or something asks for the end. Whatever happens, no program is
    /// left behind.
    pub(crate) fn run(&mut self) -> Result<EvaluationStop> {
        process::end_all_leftovers(&self.record.open_calls());
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
            if self.active.is_empty() {
                return Ok(());
            }
            self.wait()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        while self.active.len() < self.options.jobs.max(1) {
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
        ledger.lock(self.signals, false)?;
        ledger.release();
        let spent = ledger.tally().all();
        let is_over = self.until().is_some_and(|until| until <= Timestamp::now());
        Ok(budget.tokens.is_some_and(|limit| spent.tokens() >= limit)
            || budget.cost.is_some_and(|limit| spent.reaches_cost(limit))
            || is_over)
    }

    /// When the seconds of the budget are over, as its ledger's entry says, which is the last.
    fn until(&self) -> Option<Timestamp> {
        let ledgers: Vec<Value> = serde_json::from_str(&self.place.ledgers).ok()?;
        Timestamp::parse(ledgers.last()?.get("until")?.as_str()?)
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

    fn new_call(&self) -> String {
        format!("{}{}", self.place.call_prefix, hex(12))
    }

    /// A new directory of records of a trial, and its name from the run's directory.
    fn make_records(&self, trial: TrialIx, kind: &str) -> Result<(PathBuf, String)> {
        let (suite, name) = self.names(trial);
        let parent = self.place.run.path.join("io/trials").join(suite);
        files::make_dirs(&parent)?;
        let made = files::make_unique_dir(&parent, &format!("{name}{kind}"))?;
        let io = parent.join(made);
        let name = reference(&self.place.run.path, &io).into_owned();
        Ok((io, name))
    }

    /// Begins a trial, or goes on with the run that it began.
    fn begin(&mut self, trial: TrialIx) -> Result<()> {
        let (suite, name) = self.names(trial);
        let place = self.place_of(trial);
        let dir = self.place.workspace.root.join(&place);
        let attempts = self.record.trial(suite, name).starts;
        let goes_on = attempts > 0 && target::is_resumable(&self.suite(trial).suite.target);
        if !(goes_on && dir.is_dir()) {
            workspace::make(&dir, self.case(trial).template.as_deref(), attempts > 0)?;
        }
        let seed = seed_of(suite, &self.case(trial).id, self.planned(trial).number);
        let (io, execution_ref) = self.make_records(trial, "")?;
        let program = target::command(
            self.suite(trial),
            (self.case(trial), self.setting(trial)),
            (self.place.home, &dir),
            (name, seed),
        );
        let stdin = Stdin::Bytes(program.stdin.as_bytes());
        let record = execution::begin_record(&io, &program.argv, stdin, None)?;
        let call_id = self.new_call();
        let (case, setting, planned) = (self.case(trial), self.setting(trial), self.planned(trial));
        record::add_start(
            &mut self.journal,
            &TrialStart {
                suite,
                trial: name,
                case: &case.id,
                setting: &setting.name,
                number: planned.number,
                attempt: attempts + 1,
                seed,
                workspace: &place,
                call_id: &call_id,
                resolved_command: &record.command,
                execution_ref: &execution_ref,
            },
        );
        self.journal.sync()?;
        self.record.trial(suite, name).begin(call_id.clone());
        if self.journal.was_changed() {
            return Ok(());
        }
        let mut env = self.environment(&dir);
        env.extend(program.env);
        let spawned = self.spawn(
            (&program.argv, &dir, &env),
            &call_id,
            record,
            self.suite(trial).suite.timeout,
        );
        let active = ActiveProgram {
            trial,
            io,
            work: Work::Target {
                execution_ref,
                call_id,
            },
            is_oversized: false,
        };
        match spawned {
            Ok(token) => {
                self.active.insert(token, active);
                Ok(())
            }
            Err(error) => {
                let message = error.message(&program.argv[0]);
                let reason = "configuration".to_owned();
                let answer = TargetOutcome {
                    end: TargetEnd::Misconfigured(reason.clone()),
                    stop_reason: reason,
                    result: TargetResult::default(),
                    message: Some(message),
                };
                self.end_target(active, answer)
            }
        }
    }

    fn spawn(
        &mut self,
        (argv, dir, env): (&[String], &Path, &[Variable]),
        call_id: &str,
        record: ExecutionRecord,
        timeout: Option<Duration>,
    ) -> std::result::Result<Token, SpawnError> {
        self.children.spawn(Command {
            argv,
            dir,
            env,
            call_id,
            stdin: record.stdin,
            stdout: record.stdout,
            stderr: record.stderr,
            timeout,
        })
    }

    /// The variables of programs of a trial.
    fn environment(&self, dir: &Path) -> Vec<Variable> {
        target::environment(&self.place, dir)
    }

    fn wait(&mut self) -> Result<()> {
        /// How often it is looked how much programs have printed.
        const PERIOD: Duration = Duration::from_secs(1);
        let until = Instant::now() + PERIOD;
        let woken = self.children.wait(Some(until)).map_err(|e| {
            let reason = reason(&e);
            Error::failure(format!("cannot wait for programs: {reason}"))
        })?;
        match woken {
            Woken::Ended(token, outcome) => match self.active.remove(&token) {
                Some(active) => self.end(active, outcome),
                None => Ok(()),
            },
            Woken::Suspended => Ok(()),
            Woken::Stopped(stop) => {
                self.give_up(stop);
                let tokens: Vec<Token> = self.active.keys().copied().collect();
                self.children.interrupt_all(&tokens, self.options.grace);
                Ok(())
            }
            Woken::Deadline => {
                self.end_oversized_programs();
                Ok(())
            }
        }
    }

    fn end_oversized_programs(&mut self) {
        for (token, active) in &mut self.active {
            let printed = active.io.join("stdout.log").metadata();
            if printed.map_or(0, |meta| meta.len()) > MOST_OUTPUT && !active.is_oversized {
                active.is_oversized = true;
                self.children.interrupt(*token, self.options.grace);
            }
        }
    }

    fn end_children(&mut self) {
        let tokens: Vec<Token> = self.active.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.options.grace);
        while !self.children.is_empty() {
            if self.children.wait(None).is_err() {
                return;
            }
        }
        may_fail(self.journal.flush());
    }

    fn end(&mut self, active: ActiveProgram, outcome: process::Outcome) -> Result<()> {
        let code = outcome.how.code();
        execution::end_record(&active.io, code, outcome.duration, None)?;
        match active.work {
            Work::Target { ref call_id, .. } => {
                // What it has left running could change what is judged.
                process::end_leftovers(call_id);
                let (_, name) = self.names(active.trial);
                let dir = self.place.workspace.root.join(self.place_of(active.trial));
                let run = dir.join(".delta").join(name);
                let limits = self.limits()?;
                let target = &self.suite(active.trial).suite.target;
                let mut answer = match active.is_oversized {
                    true => target::oversized(),
                    false => read_answer(target, &outcome, (&active.io, &run), limits)?,
                };
                let spent = read_spending(&run);
                (answer.result.cost, answer.result.tokens) = (spent.cost, spent.tokens);
                self.end_target_with(active, answer, spent.retries)
            }
            Work::Grader { judging, call_id } => {
                process::end_leftovers(&call_id);
                self.end_grader(*judging, &active.io, outcome)
            }
        }
    }

    /// The limits of the evaluation that trials may have met.
    fn limits(&mut self) -> Result<EvaluationLimits> {
        Ok(EvaluationLimits {
            budget: self.has_spent_all()?,
            deadline: self.place.deadline.is_some(),
        })
    }

    fn end_target(&mut self, active: ActiveProgram, answer: TargetOutcome) -> Result<()> {
        self.end_target_with(active, answer, 0)
    }

    /// Records the end of a trial's program, and begins to judge its answer.
    fn end_target_with(
        &mut self,
        active: ActiveProgram,
        answer: TargetOutcome,
        retries: u32,
    ) -> Result<()> {
        let Work::Target { execution_ref, .. } = active.work else {
            return Ok(());
        };
        let trial = active.trial;
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
            retries,
            output_sha256: is_answered.then(|| digest_output(&answer.result.output)),
            execution_ref,
        };
        if is_answered {
            let path = active.io.join(RESULT);
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
        if !is_answered {
            self.tell(
                trial,
                status,
                &answer.stop_reason,
                answer.message.as_deref(),
            );
            return Ok(());
        }
        let workspace = self.place.workspace.root.join(self.place_of(trial));
        self.judge(Judging {
            trial,
            result: answer.result,
            stop_reason: answer.stop_reason,
            workspace,
            marks: Vec::new(),
        })
    }

    fn note_configuration(&mut self, said: Option<String>) {
        match said {
            None => self.misconfigured.clear(),
            Some(said) => self.misconfigured.push(said),
        }
        if self.misconfigured.len() >= MOST_MISCONFIGURED
            && let Some(last) = self.misconfigured.last()
        {
            let last = last.clone();
            self.stop.get_or_insert(EvaluationStop::Misconfigured(last));
        }
    }

    /// Judges the answer of a trial that ended before.
    fn judge_recorded(&mut self, trial: TrialIx) -> Result<()> {
        let (suite, name) = self.names(trial);
        let Some(end) = self.record.trial(suite, name).end.clone() else {
            return Ok(());
        };
        // The journal is the engine's own, and yet no path of it leads out of the run.
        let below = Path::new(&end.execution_ref).join(RESULT);
        if !files::is_below(&below) || !below.starts_with("io/trials") {
            let what = format!(
                "TRIAL_END of {name} leads out of the run: {}",
                below.display()
            );
            return Err(Error::damaged(self.journal.path(), what));
        }
        let run = &self.place.run.path;
        let path = run.join(&below);
        let read = files::read_below(run, &below, 2 * MOST_OUTPUT).at("read", &path)?;
        let result: Option<TrialResult> = serde_json::from_slice(&read).ok();
        let Some(result) = result else {
            let shown = path.display();
            return Err(Error::failure(format!(
                "{shown} is not the result of a trial"
            )));
        };
        let workspace = self.place.workspace.root.join(self.place_of(trial));
        self.judge(Judging {
            trial,
            result: result.with(&end),
            stop_reason: end.stop_reason,
            workspace,
            marks: Vec::new(),
        })
    }

    /// Goes on with judging until a program must be waited for, or all is judged.
    fn judge(&mut self, mut judging: Judging) -> Result<()> {
        let case = self.case(judging.trial);
        while let Some(assertion) = case.assertions.get(judging.marks.len()) {
            let mark = match (&assertion.check, assertion.judge(&judging.result)) {
                (_, Some(mark)) => mark,
                (AssertionKind::File { path, text }, None) => {
                    match look_at_file(&judging.workspace, path, text.as_deref()) {
                        Ok(()) => Mark::Holds(1.0),
                        Err(why) => Mark::Fails(0.0, assertion.reason(why)),
                    }
                }
                (_, None) => return self.begin_grader(judging),
            };
            judging.marks.push(mark);
        }
        self.grade(&judging)
    }

    /// Starts the program of the next assertion.
    fn begin_grader(&mut self, mut judging: Judging) -> Result<()> {
        let (trial, case) = (judging.trial, self.case(judging.trial));
        let Some(AssertionKind::Exec { command, timeout }) =
            case.assertions.get(judging.marks.len()).map(|it| &it.check)
        else {
            return Ok(());
        };
        if !judging.workspace.is_dir() {
            let why = format!("{} is not there", judging.workspace.display());
            judging.marks.push(Mark::Broken(why));
            return self.judge(judging);
        }
        let home = self.place.home;
        let mut argv = fill(&self.suite(trial).suite.wrapper, home, &judging.workspace);
        argv.extend(command.argv(home, &judging.workspace));
        let (setting, number) = (&self.setting(trial).name, self.planned(trial).number);
        let told = describe_trial(case, (setting, number), &judging.result, &judging.workspace);
        let (io, _) = self.make_records(trial, ".grader")?;
        let told = json::text(&told);
        let record = execution::begin_record(&io, &argv, Stdin::Bytes(told.as_bytes()), None)?;
        let call_id = self.new_call();
        let env = self.environment(&judging.workspace);
        let dir = judging.workspace.clone();
        let spawned = self.spawn((&argv, &dir, &env), &call_id, record, Some(*timeout));
        match spawned {
            Ok(token) => {
                let active = ActiveProgram {
                    trial,
                    io,
                    work: Work::Grader {
                        judging: Box::new(judging),
                        call_id,
                    },
                    is_oversized: false,
                };
                self.active.insert(token, active);
                Ok(())
            }
            Err(error) => {
                judging.marks.push(Mark::Broken(error.message(&argv[0])));
                self.judge(judging)
            }
        }
    }

    fn end_grader(
        &mut self,
        mut judging: Judging,
        io: &Path,
        outcome: process::Outcome,
    ) -> Result<()> {
        if matches!(outcome.how, Ended::Interrupted(_)) && self.stop.is_some() {
            // The same command judges it again.
            return Ok(());
        }
        let case = self.case(judging.trial);
        if let Some(assertion) = case.assertions.get(judging.marks.len()) {
            judging.marks.push(read_mark(assertion, &outcome, io));
        }
        self.judge(judging)
    }

    /// Records what the assertions made of an answer.
    fn grade(&mut self, judging: &Judging) -> Result<()> {
        let (trial, case) = (judging.trial, self.case(judging.trial));
        let broken = judging.marks.iter().find_map(|mark| match mark {
            Mark::Broken(why) => Some(why.as_str()),
            _ => None,
        });
        let failed = judging.marks.iter().find_map(|mark| match mark {
            Mark::Fails(_, why) => Some(why.as_str()),
            _ => None,
        });
        let (outcome, stop_reason) = match (broken, failed) {
            (Some(_), _) => (TrialOutcome::NotMeasured, "grader"),
            (None, Some(_)) => (TrialOutcome::Failed, "assertion"),
            (None, None) => (TrialOutcome::Passed, judging.stop_reason.as_str()),
        };
        let marks = case.assertions.iter().zip(&judging.marks);
        let told: Vec<Value> = marks.clone().map(|(it, mark)| it.describe(mark)).collect();
        let scores = marks.filter_map(|(assertion, mark)| match mark {
            Mark::Holds(score) | Mark::Fails(score, _) => Some((assertion.weight, *score)),
            Mark::Broken(_) => None,
        });
        let scores: Vec<(f64, f64)> = scores.collect();
        let passed = f64::from(u8::from(outcome == TrialOutcome::Passed));
        let measured = outcome != TrialOutcome::NotMeasured;
        let score = measured.then(|| score_of(&scores).unwrap_or(passed));
        let grade = Grade {
            outcome,
            stop_reason: stop_reason.to_owned(),
            score,
            grading: self.suite(trial).gradings[self.planned(trial).case].clone(),
            assertions: serde_json::value::to_raw_value(&told)
                .map_err(|e| Error::failure(format!("cannot record a grade: {e}")))?,
        };
        let (suite, name) = self.names(trial);
        record::add_grade(&mut self.journal, (suite, name), &grade);
        self.journal.flush()?;
        self.record.trial(suite, name).grade = Some(grade);
        self.tell(trial, outcome.name(), stop_reason, broken.or(failed));
        Ok(())
    }

    /// Reports the end of a trial on stderr.
    fn tell(&mut self, trial: TrialIx, status: &str, reason: &str, why: Option<&str>) {
        self.done += 1;
        let (suite, name) = self.names(trial);
        let took = self
            .record
            .trial(suite, name)
            .end
            .as_ref()
            .map_or(0, |end| end.duration_ms);
        let took = time(Duration::from_millis(took));
        let (case, number) = (&self.case(trial).id, self.planned(trial).number);
        let setting = match self.suite(trial).suite.settings.len() {
            1 => String::new(),
            _ => format!(" {}", self.setting(trial).name),
        };
        let head = format!(
            "[{}/{}] {suite} {case}.{number}{setting} ",
            self.done, self.all
        );
        let told = match why {
            Some(why) => format!(" ({reason}): {}", crate::text::shorten::in_short(why, 200)),
            None if status == reason || reason == "final_answer" || reason == "success" => {
                String::new()
            }
            None => format!(" ({reason})"),
        };
        let tone = match status {
            "passed" => Tone::Said,
            _ => Tone::Bad,
        };
        let status = status.replace('_', " ");
        let rest = printable(&format!("{told}, {took}"));
        self.options.screen.progress(&[
            (Tone::Dim, &printable(&head)),
            (tone, &status),
            (Tone::Dim, &rest),
        ]);
    }
}
