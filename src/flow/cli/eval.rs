//! `delta eval`: which trials are meant, the run that records them, and the verdict.
//!
//! Unaware of how a trial is run, and of statistics.

use super::args::FlowEvalArgs;
use super::check::CheckedDir;
use super::run::launch::start_config;
use super::verdict::{
    Judged, VerdictOrder, check_baseline, judge, keep_results, print_results, read_baseline,
};
use super::words::baseline_agent;
use crate::config::pricing::GivenBudget;
use crate::engine::account;
use crate::engine::run_context::{self, earlier_deadline};
use crate::error::{Error, Exit, Result, ignore, reason};
use crate::flow::PROGRAM;
use crate::flow::eval::load::needs_flow;
use crate::flow::eval::naming::AgentDir;
use crate::flow::eval::plan::{
    ChosenCase, PlanBasis, PlannedSuite, PlannedTrial, is_chosen, keep_earlier_names, plan_suites,
};
use crate::flow::eval::record::EvaluationRecord;
use crate::flow::eval::revision::{export, split_revision};
use crate::flow::eval::runner::{EvaluationStart, EvaluationStop, Runner};
use crate::flow::eval::suite::{AgentWord, Evaluations, Setting, Suite, Target};
use crate::flow::manifest::Flow;
use crate::record::journal::Journal;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::inspect::inspect_run;
use crate::runs::launch::{EngineOutcome, record_end};
use crate::runs::open::{OpenRun, RunStart, first_metadata};
use crate::runs::origin::{create_own, may_obey_run, require_own_run};
use crate::runs::preflight::{check_depth, heed_deadline, install_signals};
use crate::text::amounts::counted;
use crate::text::digest::sha256;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::yaml;
use crate::unix::files;
use crate::unix::own_program::own_program;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;

/// Runs `delta eval`, and `delta flow eval`.
pub(crate) fn run_evaluation(given: &ParsedCommand) -> Result<Exit> {
    evaluate(&FlowEvalArgs::read(given)?).map_err(Error::of_run)
}

fn evaluate(wanted: &FlowEvalArgs) -> Result<Exit> {
    check_depth()?;
    let signals = install_signals()?;
    heed_deadline(&signals, wanted.deadline)?;
    let find_agent = |word: &AgentWord| find_agent(&signals, word);
    let Some((mut evaluations, flow)) = load(wanted)? else {
        return Ok(wanted.words.as_ref().map_or(Exit::Config, |_| Exit::Usage));
    };
    let mut selection = wanted.selection.clone();
    let (result, baseline) = match wanted.against.as_deref() {
        Some(against) if Path::new(against).exists() && !Path::new(against).is_dir() => {
            (Some(Path::new(against)), None)
        }
        against => (None, against),
    };
    if let Some(against) = baseline {
        let suites = evaluations
            .suites
            .iter_mut()
            .filter(|_| wanted.words.is_none());
        for suite in suites.filter(|it| is_chosen(&selection.suites, &it.name)) {
            add_baseline(suite, against)?;
        }
        if !selection.settings.is_empty() {
            selection.settings.push(against.to_owned());
        }
    }
    let against = result.map(read_baseline).transpose()?;
    let workspace = Workspace::at(&wanted.work_dir)?;
    let root = workspace
        .root
        .canonicalize()
        .unwrap_or_else(|_| workspace.root.clone());
    let basis = PlanBasis {
        evaluations: &evaluations,
        flow: flow.as_ref(),
        root: &root,
        signals: &signals,
        find_agent: &find_agent,
    };
    let is_of_words = wanted.words.is_some() || baseline.is_some();
    let suites = plan_suites(&basis, &selection).map_err(|error| match error.exit {
        Exit::Config if is_of_words => Error::usage(error.message),
        _ => error,
    })?;
    if let Some((path, bytes)) = result.zip(against.as_deref()) {
        for suite in &suites {
            check_baseline(suite, path, bytes)?;
        }
    }
    if wanted.words.is_some() {
        check_judged(&suites)?;
    }
    if wanted.require_higher
        && wanted.against.is_none()
        && let Some(alone) = suites.iter().find(|it| it.settings.len() == 1)
    {
        return Err(Error::usage(format!(
            "--require higher: suite {:?} has one setting, which is compared with nothing; add --against, or a setting",
            alone.suite.name
        )));
    }
    match (&wanted.words, wanted.dry_run) {
        (Some(words), true) => {
            print(yaml::render(&words.clone().into()).as_bytes())?;
            return Ok(Exit::Success);
        }
        (None, true) => return print_plan(&suites),
        (_, false) => {}
    }
    workspace.check_layout()?;
    workspace.check_writable()?;
    let command = EvalCommand {
        wanted,
        home: &evaluations.home,
        workspace: &workspace,
        signals: &signals,
        basis: &basis,
        suites,
        screen: Screen::new(wanted.quiet, false),
    };
    command.evaluate(against.as_deref())
}

/// Loads the suites, and the flow if one of them is about it; none if something is wrong with them, which
/// has been printed.
fn load(wanted: &FlowEvalArgs) -> Result<Option<(Evaluations, Option<Flow>)>> {
    let needs_flow = wanted.words.is_none() && needs_flow(&wanted.dir);
    let mut checked = match &wanted.words {
        Some(words) => CheckedDir::of_words(words.clone()),
        None => CheckedDir::read(&wanted.dir, needs_flow, true),
    };
    let format = if wanted.format.is_json() {
        OutputFormat::Json
    } else {
        OutputFormat::Text
    };
    checked.print_problems(format);
    let evaluations = checked.evaluations.take();
    match evaluations.filter(|_| checked.flow.is_some() || !needs_flow) {
        Some(evaluations) => Ok(Some((evaluations, checked.flow))),
        None => {
            if format == OutputFormat::Json {
                checked.print_errors()?;
            }
            Ok(None)
        }
    }
}

/// Refuses suites of a command line with a case of which every answer passes.
fn check_judged(suites: &[PlannedSuite<'_>]) -> Result<()> {
    let mut cases = suites.iter().flat_map(|it| &it.cases);
    // What is implied has no weight.
    let is_judged =
        |case: &&Rc<ChosenCase<'_>>| case.case.assertions.iter().any(|it| it.weight > 0.0);
    let Some(case) = cases.find(|case| !is_judged(case)) else {
        return Ok(());
    };
    Err(Error::usage(format!(
        "nothing judges the answer to case {}, of which nothing is expected; name that column or key `expected`, or give \
         --grade COMMAND",
        case.case.id
    )))
}

/// Makes the agent of `--against` the first setting of a suite.
fn add_baseline(suite: &mut Suite, against: &str) -> Result<()> {
    let refused = |why: &str| Err(Error::usage(format!("--against {against}: {why}")));
    let Target::Agent(target) = &suite.target else {
        return refused(
            "there is no such result, and what is measured is no agent of which there is a revision",
        );
    };
    if suite.settings.iter().any(|setting| setting.name == against) {
        return refused("there is a setting of this name; the first one is compared with anyway");
    }
    let first = &suite.settings[0];
    let agent = first.agent.as_ref().unwrap_or(target);
    let Some(word) = baseline_agent(against, &agent.word)? else {
        return refused("it is neither a result nor a directory");
    };
    let baseline = Setting {
        name: against.to_owned(),
        agent: Some(AgentWord {
            word,
            name: against.to_owned(),
        }),
        set: first.set.clone(),
    };
    suite.settings.insert(0, baseline);
    Ok(())
}

/// The directory of an agent: of a name or a file, which `delta` finds, or as it was at a revision.
fn find_agent(signals: &Signals, agent: &AgentWord) -> Result<AgentDir> {
    let word = &agent.word;
    let mut dir = PathBuf::from(word);
    let unknown = || Error::config(format!("there is no agent {}", agent.name));
    if word.starts_with('@') || dir.is_file() {
        let asked = std::process::Command::new(own_program())
            .args(["check", "--format", "json", word])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| Error::failure(format!("cannot run delta: {}", reason(&e))))?;
        let printed: Value = json::read_or_default(&asked.stdout);
        dir = printed["home"].as_str().ok_or_else(unknown)?.into();
    } else if !dir.exists() {
        let (path, revision) = split_revision(word).ok_or_else(unknown)?;
        return export(signals, Path::new(path), revision);
    }
    let dir = dir.canonicalize().unwrap_or(dir);
    Ok(AgentDir {
        today: dir.clone(),
        dir,
    })
}

/// Prints how many trials would be run, and runs nothing.
fn print_plan(suites: &[PlannedSuite<'_>]) -> Result<Exit> {
    let line = |planned: &PlannedSuite<'_>| {
        let (name, target) = (&planned.suite.name, planned.suite.target.describe());
        let cases = counted(planned.cases.len(), "case");
        let settings = counted(planned.settings.len(), "setting");
        let trials = counted(planned.planned.len(), "trial");
        format!("{name}: {target}, {cases}, {settings}, {trials}\n")
    };
    print(suites.iter().map(line).collect::<String>().as_bytes())?;
    Ok(Exit::Success)
}

/// All is known but the run.
struct EvalCommand<'c> {
    wanted: &'c FlowEvalArgs,
    home: &'c Path,
    workspace: &'c Workspace,
    signals: &'c Signals,
    basis: &'c PlanBasis<'c>,
    suites: Vec<PlannedSuite<'c>>,
    screen: Screen,
}

impl EvalCommand<'_> {
    fn evaluate(mut self, against: Option<&[u8]>) -> Result<Exit> {
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
            Some(judged) => print_results(&judged, &self.suites, &run.path)?,
            None => self.screen.warn_as(PROGRAM, &remark),
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

    /// The run with most of the trials that are planned, where there is none of this name: paths are no part of a trial.
    fn earlier_run(&self) -> Result<Option<RunId>> {
        let mut best = (0, None);
        for id in self.workspace.runs()? {
            let run = RunDir::of(self.workspace, &id);
            if !id.as_str().starts_with("eval-") || !may_obey_run(&run, self.wanted.adopt)? {
                continue;
            }
            let journal = files::read_regular(&run.journal());
            let record = EvaluationRecord::read(&journal.unwrap_or_default(), &run.journal());
            let Ok(mut record) = record else { continue };
            let known = self.suites.iter().map(|it| {
                let trials = &record.suite(&it.suite.name).trials;
                let is_known = |plan: &&PlannedTrial<'_>| trials.contains_key(&plan.name);
                it.planned.iter().filter(is_known).count()
            });
            let known: usize = known.sum();
            if known > best.0 {
                best = (known, Some(id));
            }
        }
        Ok(best.1)
    }

    fn open_run(&self) -> Result<OpenRun> {
        create_own(self.workspace, self.wanted.adopt)?;
        let lock = self.workspace.lock(self.signals, None)?;
        self.workspace.clear_unborn()?;
        let mut id = self.run_id()?;
        if !self.workspace.run_path(&id).is_dir() {
            id = self.earlier_run()?.unwrap_or(id);
        }
        let open = if self.workspace.run_path(&id).is_dir() {
            self.resume(&id)?
        } else {
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
            program: PROGRAM,
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

/// The end of a start that has no verdict.
fn interrupted(reason: &'static str, exit: Exit, text: &str) -> EngineOutcome<'static> {
    EngineOutcome {
        status: Status::Interrupted,
        reason,
        exit,
        text: text.to_owned(),
    }
}
