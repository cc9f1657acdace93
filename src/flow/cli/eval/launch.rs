//! The run that records an evaluation: found, opened, and ended with its verdict.

use crate::config::pricing::GivenBudget;
use crate::engine::account;
use crate::engine::run_context::{self, earlier_deadline};
use crate::error::{Error, Exit, Result, ignore};
use crate::flow::cli::args::FlowEvalArgs;
use crate::flow::cli::run::launch::start_config;
use crate::flow::cli::verdict::{Judged, VerdictOrder, judge, keep_results, print_results};
use crate::flow::eval::plan::{PlannedSuite, keep_earlier_names};
use crate::flow::eval::record::{EvaluationRecord, TrialRecord};
use crate::flow::eval::runner::{EvaluationStart, EvaluationStop, Runner};
use crate::flow::eval::target::PlanBasis;
use crate::record::journal::Journal;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::inspect::inspect_run;
use crate::runs::launch::{EngineOutcome, record_end};
use crate::runs::open::{OpenRun, RunStart, first_metadata};
use crate::runs::origin::{create_own, may_obey_run, require_own_run};
use crate::text::amounts::counted;
use crate::text::digest::sha256;
use crate::text::disguise::printable_line;
use crate::text::ids::RunId;
use crate::text::yaml;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::json;
use std::path::Path;

/// All is known but the run.
pub(super) struct EvalCommand<'c> {
    pub wanted: &'c FlowEvalArgs,
    pub home: &'c Path,
    pub workspace: &'c Workspace,
    pub signals: &'c Signals,
    pub basis: &'c PlanBasis<'c>,
    pub suites: Vec<PlannedSuite<'c>>,
    pub screen: Screen,
}

impl EvalCommand<'_> {
    /// Runs what is missing, and prints the verdict.
    pub(super) fn evaluate(mut self, against: Option<&[u8]>) -> Result<Exit> {
        let OpenRun {
            run,
            journal,
            mut metadata,
            record,
            ..
        } = self.open_run()?;
        let ledgers = account::open_tree(&run, &record, self.wanted.budget)?;
        let mut record = EvaluationRecord::read(&record, journal.path())?;
        for planned in &mut self.suites {
            keep_earlier_names(planned, self.basis, &mut record)?;
        }
        let start = EvaluationStart {
            home: self.home,
            workspace: self.workspace,
            run: run.clone(),
            ledgers,
            budget: self.wanted.budget.map(GivenBudget::of_tree),
            deadline: self.signals.deadline().map(earlier_deadline),
            depth: run_context::depth().0,
            jobs: self.wanted.jobs,
            regrade: self.wanted.regrade,
            screen: self.screen,
            program: self.wanted.program,
        };
        let mut runner = Runner::new(start, &self.suites, journal, record, self.signals);
        let stopped = runner.run();
        let (mut journal, mut record) = (runner.journal, runner.record);
        let ended = stopped
            .and_then(|stop| self.conclude(&stop, &mut journal, &mut record, against))
            .and_then(|(outcome, judged)| {
                let kept = judged.as_ref().map(|it| keep_results(it, &run.path));
                kept.transpose().map(|_| (outcome, judged))
            });
        let (outcome, judged) = match ended {
            Ok((outcome, judged)) => (outcome, Ok(judged)),
            Err(error) => {
                let reason = if error.disk_full {
                    "disk_full"
                } else {
                    "io_error"
                };
                let outcome = interrupted(reason, Exit::TempFail, &error.message);
                (outcome, Err(error))
            }
        };
        let exit = outcome.exit;
        let remark = format!("{}: {}", outcome.reason, outcome.text);
        record_end(&mut journal, &mut metadata, outcome);
        match judged? {
            Some(judged) => {
                for note in &judged.notes {
                    self.screen.warn_as(self.wanted.program, note);
                }
                print_results(&judged, &self.suites, &run.path)?;
            }
            None => self.screen.warn_as(self.wanted.program, &remark),
        }
        if journal.is_in_place() {
            ignore(metadata.write(&run.path));
        }
        Ok(exit)
    }

    /// Judges what is recorded, unless the trials were stopped by something that is no verdict.
    fn conclude(
        &self,
        stop: &EvaluationStop,
        journal: &mut Journal,
        record: &mut EvaluationRecord,
        against: Option<&[u8]>,
    ) -> Result<(EngineOutcome<'static>, Option<Judged>)> {
        let missing = match stop {
            EvaluationStop::Done => "not_started",
            EvaluationStop::Limit(why) => *why,
            EvaluationStop::Signal(stop) => {
                let text = "interrupted; the same command measures what is missing";
                return Ok((interrupted(stop.name(), (*stop).into(), text), None));
            }
            EvaluationStop::Misconfigured(why) => {
                let text = format!(
                    "three trials in a row could not be measured for a reason that every other would have, so \
                     nothing more was begun: {why}"
                );
                return Ok((interrupted("configuration", Exit::Undecided, &text), None));
            }
            EvaluationStop::JournalChanged => {
                let text = "the journal was changed by another program while the evaluation was live; look at it, then \
                            give the same command again";
                return Ok((interrupted("journal_changed", Exit::Undecided, text), None));
            }
        };
        let order = VerdictOrder {
            missing,
            format: self.wanted.format,
            against,
            require_higher: self.wanted.require_higher,
        };
        let judged = judge(&self.suites, journal, record, &order)?;
        let exit = judged.exit();
        let (status, reason) = match exit {
            Exit::Success => (Status::Completed, "passed"),
            Exit::Failure => (Status::Failed, "failed"),
            _ => (Status::Interrupted, "undecided"),
        };
        let outcome = EngineOutcome {
            status,
            reason,
            exit,
            text: judged.in_words(),
        };
        Ok((outcome, Some(judged)))
    }

    /// The run that records the evaluations of a directory in a workspace, or those without a file: there is one.
    fn run_id(&self) -> Result<RunId> {
        if self.wanted.words.is_some() {
            return RunId::parse("eval-agents").map_err(Error::failure);
        }
        let sum = sha256(self.home.to_string_lossy().as_bytes());
        RunId::parse(&format!("eval-{}", &sum[..12])).map_err(Error::failure)
    }

    /// The run that has trials of these, where there is one: of this name, or else the one with most of them, because paths are
    /// no part of a trial.
    fn recorded_run(&self) -> Result<Option<RunId>> {
        let own = self.run_id()?;
        if self.workspace.run_path(&own).is_dir() {
            return Ok(Some(own));
        }
        let mut best = (0, None);
        for id in self.workspace.runs()? {
            let run = RunDir::of(self.workspace, &id);
            if !id.as_str().starts_with("eval-") || !may_obey_run(&run, self.wanted.adopt)? {
                continue;
            }
            let Ok(mut record) = read_record(&run) else {
                continue;
            };
            let known = self
                .suites
                .iter()
                .map(|it| count(it, &mut record, |it| it.starts > 0));
            let known: usize = known.sum();
            if known > best.0 {
                best = (known, Some(id));
            }
        }
        Ok(best.1)
    }

    /// Prints how many trials there are and how many of them are recorded, with the file that says the same as the command
    /// line, and runs nothing.
    pub(super) fn print_plan(mut self) -> Result<Exit> {
        let mut record = EvaluationRecord::default();
        if let Some(id) = self.recorded_run()? {
            let run = RunDir::of(self.workspace, &id);
            if !self.wanted.adopt {
                require_own_run(&run, false)?;
            }
            record = read_record(&run)?;
        }
        let mut text = String::new();
        for planned in &mut self.suites {
            keep_earlier_names(planned, self.basis, &mut record)?;
            let (name, target) = (&planned.suite.name, planned.suite.target.describe());
            let cases = counted(planned.cases.len(), "case");
            let settings = counted(planned.settings.len(), "setting");
            let trials = counted(planned.planned.len(), "trial");
            let recorded = count(planned, &mut record, TrialRecord::is_measured);
            let missing = planned.planned.len() - recorded;
            let line = format!(
                "{name}: {target}, {cases}, {settings}, {trials}: {recorded} recorded, {missing} to run"
            );
            let mark = self.wanted.words.as_ref().map_or("", |_| "# ");
            text += &format!("{mark}{}\n", printable_line(&line));
            let all = planned.suite.cases.len();
            if all != planned.cases.len() && self.wanted.words.is_some() {
                let options = "give the same --sample, --split, --case and --tag with it";
                text += &format!(
                    "# The file names all {}: {options}.\n",
                    counted(all, "case")
                );
            }
        }
        if let Some(words) = &self.wanted.words {
            text += &yaml::render(&words.clone().into());
        }
        print(text.as_bytes())?;
        Ok(Exit::Success)
    }

    fn open_run(&self) -> Result<OpenRun> {
        create_own(self.workspace, self.wanted.adopt)?;
        let lock = self.workspace.lock(self.signals, None)?;
        self.workspace.clear_unborn()?;
        let open = if let Some(id) = self.recorded_run()? {
            self.resume(&id)?
        } else {
            let id = self.run_id()?;
            let metadata = first_metadata(&id, self.workspace, &self.task());
            self.start().begin(&id, metadata, None, |_| Ok(()))?
        };
        drop(lock);
        let (id, root) = (&open.run.id, self.workspace.root.display());
        let text = format!("evaluation {id} in {root}, {}", self.task());
        self.screen.progress(&[(Tone::Dim, &text)]);
        Ok(open)
    }

    fn resume(&self, id: &RunId) -> Result<OpenRun> {
        let run = RunDir::of(self.workspace, id);
        require_own_run(&run, self.wanted.adopt)?;
        let found = inspect_run(&run)?;
        if found.metadata.status == Status::Running {
            return Err(found.busy());
        }
        self.start().resume(found, Vec::new(), |_, _| Ok(()))
    }

    /// The text in place of the run's message.
    fn task(&self) -> String {
        let names: Vec<&str> = self
            .suites
            .iter()
            .map(|it| it.suite.name.as_str())
            .collect();
        format!("suites {}", names.join(", "))
    }

    fn config(&self) -> Vec<u8> {
        let suites = self.suites.iter().map(|planned| {
            json!({
                "name": planned.suite.name,
                "target": planned.suite.target.describe(),
                "trials": planned.trials,
                "cases": planned.cases.len(),
                "settings": planned.settings.iter().map(|setting| {
                    json!({"name": setting.name, "set": setting.set})
                }).collect::<Vec<_>>(),
                "threshold": planned.suite.threshold,
            })
        });
        let config = json!({
            "name": self.name(),
            "jobs": self.wanted.jobs,
            "regrade": self.wanted.regrade,
            "suites": suites.collect::<Vec<_>>(),
        });
        start_config(config, self.wanted.budget, self.signals)
    }

    fn name(&self) -> String {
        files::name_of(self.home).into_owned()
    }

    /// This start, for the record.
    fn start(&self) -> RunStart<'_> {
        RunStart {
            workspace: self.workspace,
            signals: self.signals,
            screen: self.screen,
            program: self.wanted.program,
            name: self.name(),
            home: self.home,
            task: Some(self.task()),
            config: self.config(),
            force: false,
            describe: Box::new(|metadata| {
                metadata.flow = Some(json!({"evaluations": self.home.to_string_lossy()}));
            }),
        }
    }
}

/// The record of a run, whose journal may be missing.
fn read_record(run: &RunDir) -> Result<EvaluationRecord> {
    let path = run.journal();
    EvaluationRecord::read(&files::read_regular(&path).unwrap_or_default(), &path)
}

/// How many of the planned trials have such a record.
fn count(
    planned: &PlannedSuite<'_>,
    record: &mut EvaluationRecord,
    is_meant: impl Fn(&TrialRecord) -> bool,
) -> usize {
    let trials = &record.suite(&planned.suite.name).trials;
    let found = planned
        .planned
        .iter()
        .filter_map(|plan| trials.get(&plan.name));
    found.filter(|found| is_meant(found)).count()
}

/// The end of a start that has no verdict.
fn interrupted(reason: &'static str, exit: Exit, text: &str) -> EngineOutcome<'static> {
    EngineOutcome {
        status: Status::Interrupted,
        reason,
        exit,
        text: text.to_owned(),
    }
}
