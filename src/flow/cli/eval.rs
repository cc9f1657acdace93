//! `delta-flow eval`: which trials are meant, the run that records them, and the verdict.
//!
//! Unaware of how a trial is run, and of statistics.

use super::args::FlowEvalArgs;
use super::check;
use super::verdict::{Judged, print_results};
use crate::config::pricing::GivenBudget;
use crate::engine::account;
use crate::engine::run_context::{self, earlier_deadline};
use crate::error::{Error, Exit, Result, may_fail};
use crate::flow::PROGRAM;
use crate::flow::eval::load::{load_evaluations, needs_flow};
use crate::flow::eval::plan::{PlanBasis, PlanSelection, PlannedSuite, plan_suites};
use crate::flow::eval::record::EvaluationRecord;
use crate::flow::eval::runner::{EvaluationOptions, EvaluationPlace, EvaluationStop, Runner};
use crate::flow::eval::suite::Evaluations;
use crate::flow::manifest::{self, Flow};
use crate::flow::record::program_beside;
use crate::record::journal::Journal;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::inspect::inspect_run;
use crate::runs::launch::{EngineOutcome, record_end};
use crate::runs::open::{OpenRun, RunStart, first_metadata};
use crate::runs::origin::{require_own, require_own_run};
use crate::runs::preflight::{check_depth, heed_deadline, install_signals};
use crate::text::amounts::counted;
use crate::text::digest::sha256;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Runs the command.
pub(crate) fn run_evaluation(wanted: &FlowEvalArgs) -> Result<Exit> {
    check_depth()?;
    let Some((evaluations, flow)) = load(wanted)? else {
        return Ok(Exit::Config);
    };
    let against = wanted
        .against
        .as_deref()
        .map(super::verdict::read_baseline)
        .transpose()?;
    let signals = install_signals()?;
    heed_deadline(&signals, wanted.deadline)?;
    let workspace = Workspace::at(&wanted.work_dir)?;
    let root = workspace
        .root
        .canonicalize()
        .unwrap_or_else(|_| workspace.root.clone());
    let basis = PlanBasis {
        evaluations: &evaluations,
        flow: flow.as_ref(),
        root: &root,
        find_agent: &find_agent,
    };
    let suites = plan_suites(&basis, &selection(wanted))?;
    if let Some(earlier) = wanted.against.as_deref().zip(against.as_deref()) {
        for suite in &suites {
            super::verdict::check_baseline(suite, earlier)?;
        }
    }
    if wanted.dry_run {
        return print_plan(&suites);
    }
    workspace.check_layout()?;
    workspace.check_writable()?;
    let command = EvalCommand {
        wanted,
        home: &evaluations.home,
        workspace: &workspace,
        signals: &signals,
        suites: &suites,
        screen: Screen::new(wanted.quiet, false),
    };
    command.evaluate(against.as_deref())
}

/// Loads the suites, and the flow if one of them is about it; none if something is wrong with them, which
/// has been printed.
fn load(wanted: &FlowEvalArgs) -> Result<Option<(Evaluations, Option<Flow>)>> {
    let mut problems = Vec::new();
    let mut flow = None;
    let needs_flow = needs_flow(&wanted.dir);
    if needs_flow {
        let loaded = manifest::load_to_run(&wanted.dir);
        problems = loaded.problems;
        flow = loaded.flow;
    }
    let loaded = load_evaluations(&wanted.dir, flow.as_ref());
    problems.extend(loaded.problems);
    let format = match wanted.format.is_json() {
        true => OutputFormat::Json,
        false => OutputFormat::Text,
    };
    check::print_problems(&problems, format);
    match loaded.evaluations.filter(|_| flow.is_some() || !needs_flow) {
        Some(evaluations) => Ok(Some((evaluations, flow))),
        None => {
            if format == OutputFormat::Json {
                check::print_errors(&problems)?;
            }
            Ok(None)
        }
    }
}

fn selection(wanted: &FlowEvalArgs) -> PlanSelection {
    PlanSelection {
        suites: wanted.suites.clone(),
        tags: wanted.tags.clone(),
        cases: wanted.cases.clone(),
        settings: wanted.settings.clone(),
        trials: wanted.trials,
    }
}

/// The directory of an agent, which `delta` finds by a name.
fn find_agent(word: &str) -> Result<PathBuf> {
    let found = match word.starts_with('@') {
        false => PathBuf::from(word),
        true => {
            let asked = std::process::Command::new(program_beside("delta"))
                .args(["check", "--format", "json", word])
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output();
            let printed = asked.map_err(|e| {
                Error::failure(format!("cannot run delta: {}", crate::error::reason(&e)))
            })?;
            let printed: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
            match printed.get("home").and_then(Value::as_str) {
                Some(home) => home.into(),
                None => return Err(Error::config(format!("there is no agent {word}"))),
            }
        }
    };
    Ok(found.canonicalize().unwrap_or(found))
}

/// Prints how many trials would be run, and runs nothing.
fn print_plan(suites: &[PlannedSuite<'_>]) -> Result<Exit> {
    let mut out = String::new();
    for planned in suites {
        let suite = planned.suite;
        let cases = counted(planned.cases.len(), "case");
        let settings = counted(planned.settings.len(), "setting");
        let trials = counted(planned.planned.len(), "trial");
        let name = &suite.name;
        let target = suite.target.describe();
        out.push_str(&format!(
            "{name}: {target}, {cases}, {settings}, {trials}\n"
        ));
    }
    print(out.as_bytes())?;
    Ok(Exit::Success)
}

/// All is known but the run.
struct EvalCommand<'c> {
    wanted: &'c FlowEvalArgs,
    home: &'c Path,
    workspace: &'c Workspace,
    signals: &'c Signals,
    suites: &'c [PlannedSuite<'c>],
    screen: Screen,
}

impl EvalCommand<'_> {
    fn evaluate(&self, against: Option<&[u8]>) -> Result<Exit> {
        let OpenRun {
            run,
            journal,
            mut metadata,
            record,
            ..
        } = self.open_run()?;
        let ledgers = account::open_tree(&run, &record, self.wanted.budget)?;
        let record = EvaluationRecord::read(&record, journal.path())?;
        let depth = run_context::depth().0;
        let place = EvaluationPlace {
            home: self.home,
            workspace: self.workspace,
            run: run.clone(),
            ledgers,
            budget: self.wanted.budget.map(GivenBudget::of_tree),
            deadline: self.signals.deadline().map(earlier_deadline),
            depth,
        };
        let options = EvaluationOptions {
            jobs: self.wanted.jobs(),
            grace: run_context::grace(depth),
            regrade: self.wanted.regrade,
            screen: self.screen,
        };
        let mut runner = Runner::new(place, options, self.suites, (journal, record), self.signals);
        let stopped = runner.run();
        let (mut journal, mut record) = (runner.journal, runner.record);
        let ended = match stopped {
            Ok(stop) => self.conclude(&stop, &mut journal, &mut record, against),
            Err(error) => Err(error),
        };
        let (status, reason, exit, text) = match &ended {
            Ok(ending) => ending.outcome(),
            Err(error) => {
                let reason = if error.disk_full {
                    "disk_full"
                } else {
                    "io_error"
                };
                (
                    Status::Interrupted,
                    reason.to_owned(),
                    Exit::TempFail,
                    error.message.clone(),
                )
            }
        };
        let outcome = EngineOutcome {
            status,
            reason: &reason,
            exit,
            text,
        };
        record_end(&mut journal, &mut metadata, outcome);
        let ending = ended?;
        ending.print(self.screen)?;
        if journal.is_in_place() {
            may_fail(metadata.write(&run.path));
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
    ) -> Result<EvalEnding> {
        let missing = match stop {
            EvaluationStop::Done => "not_started",
            EvaluationStop::Limit(why) => why,
            EvaluationStop::Signal(_)
            | EvaluationStop::Misconfigured(_)
            | EvaluationStop::JournalChanged => return Ok(EvalEnding::Stopped(stop.clone())),
        };
        let judged = super::verdict::judge(
            self.suites,
            (journal, record),
            (missing, self.wanted.format),
            against,
        )?;
        Ok(EvalEnding::Judged(Box::new(judged)))
    }

    /// The run that records the evaluations of a directory in a workspace: there is one.
    fn run_id(&self) -> Result<RunId> {
        let sum = sha256(self.home.to_string_lossy().as_bytes());
        RunId::parse(&format!("eval-{}", &sum[..12])).map_err(Error::failure)
    }

    fn open_run(&self) -> Result<OpenRun> {
        require_own(self.workspace, self.wanted.adopt)?;
        self.workspace.create()?;
        require_own(self.workspace, self.wanted.adopt)?;
        let lock = self.workspace.lock(self.signals, None)?;
        self.workspace.clear_unborn()?;
        let id = self.run_id()?;
        let open = match self.workspace.run_path(&id).is_dir() {
            true => self.resume(&id)?,
            false => {
                let metadata = first_metadata(&id, self.workspace, &self.task());
                self.start().begin(&id, metadata, None, |_| Ok(()))?
            }
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
                "settings": planned.settings.iter().map(|ix| {
                    let setting = &planned.suite.settings[*ix];
                    json!({"name": setting.name, "set": setting.set})
                }).collect::<Vec<_>>(),
                "threshold": planned.suite.threshold,
            })
        });
        let mut config = json!({
            "name": self.name(),
            "jobs": self.wanted.jobs(),
            "regrade": self.wanted.regrade,
            "suites": suites.collect::<Vec<_>>(),
        });
        if let Some(given) = self.wanted.budget {
            config["budget"] = json!(given.of_tree());
        }
        if let Some(deadline) = self.signals.deadline() {
            config["deadline"] = deadline.to_string().into();
        }
        json::text(&config).into_bytes()
    }

    fn name(&self) -> String {
        let name = self.home.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
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

/// How a start of an evaluation ended.
enum EvalEnding {
    Judged(Box<Judged>),
    Stopped(EvaluationStop),
}

impl EvalEnding {
    /// The run's status, the reason in a word, the exit code, and what is said of it.
    fn outcome(&self) -> (Status, String, Exit, String) {
        match self {
            Self::Judged(judged) => {
                let exit = judged.exit();
                let (status, reason) = match exit {
                    Exit::Success => (Status::Completed, "passed"),
                    Exit::Failure => (Status::Failed, "failed"),
                    _ => (Status::Interrupted, "undecided"),
                };
                (status, reason.to_owned(), exit, judged.in_words())
            }
            Self::Stopped(stop) => {
                let (reason, exit, text) = describe_stop(stop);
                (Status::Interrupted, reason, exit, text)
            }
        }
    }

    fn print(&self, screen: Screen) -> Result<()> {
        match self {
            Self::Judged(judged) => print_results(judged),
            Self::Stopped(stop) => {
                let (reason, _, text) = describe_stop(stop);
                screen.warn_as(PROGRAM, &format!("{reason}: {text}"));
                Ok(())
            }
        }
    }
}

fn describe_stop(stop: &EvaluationStop) -> (String, Exit, String) {
    match stop {
        EvaluationStop::Signal(stop) => (
            stop.name().to_owned(),
            (*stop).into(),
            "interrupted; the same command measures what is missing".to_owned(),
        ),
        EvaluationStop::Misconfigured(why) => (
            "configuration".to_owned(),
            Exit::Undecided,
            format!(
                "three trials in a row could not be measured for a reason that every other would have, so \
                 nothing more was begun: {why}"
            ),
        ),
        EvaluationStop::JournalChanged => (
            "journal_changed".to_owned(),
            Exit::Undecided,
            "the journal was changed by another program while the evaluation was live; look at it, then \
             give the same command again"
                .to_owned(),
        ),
        EvaluationStop::Limit(why) => ((*why).to_owned(), Exit::Undecided, String::new()),
        EvaluationStop::Done => ("done".to_owned(), Exit::Success, String::new()),
    }
}
