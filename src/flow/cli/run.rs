//! `delta-flow run`: which run is meant, and what becomes of it.
//!
//! Unaware of nodes. The same command line resumes what it began.

pub(super) mod launch;

use super::args::{FlowRunArgs, RunFormat};
use super::basis::{self, RunBasis};
use super::check;
use super::result::print_error;
use super::retry::plan_retry;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::graph::RoutePlan;
use crate::flow::manifest::{self, Flow};
use crate::flow::record::{RecordedBasis, check_beginnings};
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use crate::record::state::is_set_back;
use crate::record::stop_reason::StopReason;
use crate::record::workspace::{DecisionLock, Workspace};
use crate::runs::decide::{Decision, Naming, Refusal, Wanted, decide};
use crate::runs::find;
use crate::runs::inspect::{RunSnapshot, inspect_run};
use crate::runs::left_behind::left_behind;
use crate::runs::origin::{create_own, require_own_run};
use crate::runs::preflight::{check_depth, heed_deadline, install_signals};
use crate::runs::waiting::register_again;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use crate::unix::unread_stdin::{self, Remedy, is_stdin};
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
    check::print_problems(PROGRAM, &loaded.problems, wanted.format.of_errors());
    let Some(flow) = loaded.flow else {
        if wanted.format == RunFormat::Json {
            check::print_errors(&loaded.problems)?;
        }
        return Ok(Exit::Config);
    };
    let wanted = &wanted.with_defaults(&flow);
    let files = [
        wanted.input.as_deref(),
        wanted.inputs.as_deref().and_then(Path::to_str),
    ];
    let is_read = |path: &str| path == "-" || is_stdin(Path::new(path));
    let remedy = Remedy {
        command: "delta flow run --input -",
        option: "--input -",
    };
    unread_stdin::watch(files.into_iter().flatten().any(is_read), remedy)?;
    let signals = install_signals()?;
    heed_deadline(&signals, wanted.deadline)?;
    let basis = basis::read_basis(&flow, wanted, &signals)?;
    let pause_before = pauses(&flow, wanted)?;
    let plan = RoutePlan::new(&flow.graph, basis.start);
    if wanted.dry_run {
        return basis::print_dry_run(&flow, &plan, wanted);
    }
    let workspace = Workspace::at(&wanted.work_dir)?;
    workspace.check_layout()?;
    workspace.check_writable()?;
    let command = RunCommand {
        pause_before,
        ..RunCommand::new(&flow, wanted, &plan, basis, &workspace, &signals)
    };
    unread_stdin::check()?;
    command.decide()
}

/// Goes on with the run that the command line names, or begins it: a line was added to the file of its inputs. The result
/// of the last input is printed.
pub(super) fn run_typed(
    flow: &Flow,
    wanted: &FlowRunArgs,
    basis: RunBasis,
    workspace: &Workspace,
    signals: &Signals,
) -> Result<Exit> {
    let plan = RoutePlan::new(&flow.graph, basis.start);
    let command = RunCommand {
        is_typed: true,
        ..RunCommand::new(flow, wanted, &plan, basis, workspace, signals)
    };
    command.decide()
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

impl<'c> RunCommand<'c> {
    fn new(
        flow: &'c Flow,
        wanted: &'c FlowRunArgs,
        plan: &'c RoutePlan<'c>,
        basis: RunBasis,
        workspace: &'c Workspace,
        signals: &'c Signals,
    ) -> Self {
        Self {
            wanted,
            flow,
            plan,
            workspace,
            signals,
            screen: Screen::new(wanted.quiet, false),
            basis,
            pause_before: HashSet::new(),
            is_typed: false,
        }
    }

    /// Decides, under the workspace's lock, which run to begin or resume.
    fn decide(self) -> Result<Exit> {
        create_own(self.workspace, self.wanted.adopt)?;
        let lock = self.workspace.lock(self.signals, None)?;
        self.workspace.clear_unborn()?;
        let (naming, found) = self.find()?;
        if let Some(found) = &found {
            require_own_run(&found.run, self.wanted.adopt)?;
        }
        let past = match &found {
            Some(found) => self.past(&found.run, found.source())?,
            None => None,
        };
        if self.is_typed {
            return self.follow_typed(found, past, lock);
        }
        if self.wanted.retry {
            return self.retry(found, past, lock);
        }
        let wanted = Wanted {
            naming,
            has_text: true,
            new: false,
            retry_failed: false,
            // The node's own run finds out if a question has been answered.
            interactive: true,
            attends_calls: false,
        };
        let state = found.as_ref().map(|found| found.state(past.is_some()));
        match (decide(wanted, state), found, past) {
            (Decision::Busy, Some(found), _) => Err(found.busy()),
            (Decision::Resume, Some(found), Some(_)) if is_early(&found) => self.wait(&found),
            (Decision::Resume, Some(found), Some(past)) => self.resume(found, &past, lock, None),
            (Decision::Reprint | Decision::Refuse(Refusal::Failed), Some(found), Some(past)) => {
                self.reprint(found, &past, lock)
            }
            (Decision::Refuse(_), Some(found), _) => Err(other_run(&found)),
            _ => {
                if !self.screen.quiet {
                    for note in left_behind(self.workspace)? {
                        self.screen.warn_as(PROGRAM, &note);
                    }
                }
                let generated = || RunId::generate(Timestamp::now());
                let id = self.wanted.run_id.clone().unwrap_or_else(generated);
                self.begin(&id, lock)
            }
        }
    }

    /// Begins nothing of a run that only waits for a time which has not come.
    fn wait(&self, found: &RunSnapshot) -> Result<Exit> {
        register_again(found, &self.flow.home, self.workspace, self.start_words());
        let said = [&found.metadata.due_at, &found.metadata.error];
        let [due_at, why] = said.map(|it| it.as_deref().unwrap_or_default());
        let text = format!("run {} waits until {due_at}: {why}", found.run.id);
        Err(Error::new(Exit::TempFail, text))
    }

    /// Begins the run whose inputs are typed, or goes on with it, also if it has ended.
    fn follow_typed(
        self,
        found: Option<RunSnapshot>,
        past: Option<RecordedBasis>,
        lock: DecisionLock,
    ) -> Result<Exit> {
        match (found, past, &self.wanted.run_id) {
            (None, _, Some(id)) => self.begin(id, lock),
            (Some(found), ..) if found.metadata.status == Status::Running => Err(found.busy()),
            (Some(found), Some(past), _) => self.resume(found, &past, lock, None),
            (found, ..) => Err(Error::failure(format!(
                "run {} exists with another flow, input or start; choose another --run-id",
                found.map_or_else(String::new, |found| found.run.id.to_string())
            ))),
        }
    }

    /// The run that the command line means: the one that it names, or the newest one of this flow with
    /// this input.
    fn find(&self) -> Result<(Naming, Option<RunSnapshot>)> {
        if let Some(id) = &self.wanted.run_id {
            let is_there = self.workspace.run_path(id).is_dir();
            let found = is_there.then(|| inspect_run(&RunDir::of(self.workspace, id)));
            return Ok((Naming::ById, found.transpose()?));
        }
        if let Some(newest) = self.workspace.newest()? {
            self.workspace.mend_latest(&newest)?;
        }
        let home = self.flow.home.to_string_lossy();
        let is_meant = |run: &RunDir, journal: JournalSource<'_>, metadata: &Metadata| {
            Ok(metadata.agent_home == home && self.past(run, journal)?.is_some())
        };
        Ok((
            Naming::ByText,
            find::newest_where(self.workspace, is_meant)?,
        ))
    }

    /// The basis of a run, if it is one of this flow with this input.
    fn past(&self, run: &RunDir, journal: JournalSource<'_>) -> Result<Option<RecordedBasis>> {
        let past = RecordedBasis::read_in(run, journal)?;
        Ok(past.filter(|past| basis::is_same(past, &self.basis, self.flow)))
    }

    /// Goes on with a run that ended without success, as an earlier retry of it does.
    fn retry(
        self,
        found: Option<RunSnapshot>,
        past: Option<RecordedBasis>,
        lock: DecisionLock,
    ) -> Result<Exit> {
        let (found, past) = match (found, past) {
            (Some(found), Some(past)) => (found, past),
            (Some(found), None) => return Err(other_run(&found)),
            (None, _) => {
                let message =
                    "--retry: there is no run of this flow and input here; see `delta list-runs`";
                return Err(Error::usage(message));
            }
        };
        if found.metadata.status == Status::Running {
            return Err(found.busy());
        }
        for name in &self.wanted.repeat {
            check_repeated(self.flow, name)?;
        }
        check_record(&found, &past)?;
        let Some(again) = plan_retry(&found, self.flow, self.plan)? else {
            return self.resume(found, &past, lock, None);
        };
        if again.failed.is_empty() {
            return self.reprint(found, &past, lock);
        }
        again.check_repeats(self.flow, &self.wanted.repeat)?;
        self.resume(found, &past, lock, Some(again))
    }
}

/// True for a run that only waits for a time which has not come. A clock that has been set back puts no look off.
fn is_early(found: &RunSnapshot) -> bool {
    let (metadata, now) = (&found.metadata, Timestamp::now());
    let only_waits = metadata.stop_reason.as_deref() == Some(StopReason::Deferred.name());
    let due_at = metadata.due_at.as_deref().and_then(Timestamp::parse);
    let updated_at = Timestamp::parse(&metadata.updated_at);
    let is_set_back = updated_at.is_some_and(|updated_at| is_set_back(now, updated_at));
    due_at.is_some_and(|due_at| only_waits && now < due_at) && !is_set_back
}

/// The nodes before which the run is to stop.
fn pauses(flow: &Flow, wanted: &FlowRunArgs) -> Result<HashSet<usize>> {
    let find = |id: &String| basis::find_node(flow, "--pause-before", id);
    wanted.pause_before.iter().map(find).collect()
}

/// Checks that `--repeat` names a node, or one of a flow within the flow after the name of its node and a slash.
fn check_repeated(flow: &Flow, name: &str) -> Result<()> {
    let Some((node, rest)) = name.split_once('/') else {
        return basis::find_node(flow, "--repeat", name).map(drop);
    };
    let node = basis::find_node(flow, "--repeat", node)?;
    let inner = flow.nodes[node].flow.as_deref().map(manifest::load_to_run);
    match inner.and_then(|loaded| loaded.flow) {
        Some(inner) => check_repeated(&inner, rest),
        None => Err(Error::usage(format!(
            "--repeat {name}: node {} is no flow",
            flow.graph.nodes[node].id
        ))),
    }
}

/// Refuses a run whose record lacks the beginning of a task.
fn check_record(found: &RunSnapshot, past: &RecordedBasis) -> Result<()> {
    let must_begin = found.has_ended() && !past.has_many_roots();
    check_beginnings(&found.source(), must_begin)
}

fn other_run(found: &RunSnapshot) -> Error {
    Error::failure(format!(
        "run {} exists with another flow or input; choose another --run-id",
        found.run.id
    ))
}
