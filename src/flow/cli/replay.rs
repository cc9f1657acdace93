//! `delta-flow replay`: one node of a run again, or all of the run with the recorded answers of its agents, in a copy of
//! the workspace; and how that compares with the record.
//!
//! What runs is in the flow's directory, and is compared with the files that the run was made from, as when it is resumed.

use super::args::FlowReplayArgs;
use super::basis::{self, RecordedBasis};
use super::check;
use crate::engine::account;
use crate::engine::run_context::{self, RunContext};
use crate::error::{At, Error, Exit, Result, may_fail};
use crate::flow::PROGRAM;
use crate::flow::context::store::LARGEST_STORE;
use crate::flow::engine::answered::AnsweredSteps;
use crate::flow::engine::inputs::Inputs;
use crate::flow::engine::{EngineStop, FlowEngine, FlowOptions, Need, RunPlace, SuspendedStep};
use crate::flow::graph::RoutePlan;
use crate::flow::manifest::{self, Flow, KeptRecords};
use crate::flow::record::tally::{Keeping, SCHEMA_VERSION};
use crate::flow::record::{Lineage, RecordedEnd, RecordedEnds, StepId, task_path};
use crate::record::metadata::Metadata;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::find;
use crate::runs::inspect::is_live;
use crate::runs::open::{OpenRun, RunStart};
use crate::runs::origin::require_own_run;
use crate::runs::preflight::{check_depth, install_signals};
use crate::runs::workspace_copy::ReplayDir;
use crate::text::amounts::{counted, format_duration};
use crate::text::disguise::printable;
use crate::text::options::format::OutputFormat;
use crate::text::shorten::in_short;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, print, print_value};
use crate::unix::trees;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

/// Runs the command.
pub(crate) fn replay_run(wanted: &FlowReplayArgs) -> Result<Exit> {
    check_depth()?;
    let run = find::find_run(&wanted.work_dir, &wanted.run)?;
    let id = &run.id;
    if is_live(&run) {
        let message = format!("run {id} is live: it can be replayed when it has ended");
        return Err(Error::new(Exit::TempFail, message));
    }
    require_own_run(&run, wanted.adopt)?;
    let Some(past) = basis::read_recorded_basis(&run)? else {
        return Err(basis::not_of_flow(&run, "replay", "repeats"));
    };
    let Some(flow) = check::usable(manifest::load_to_run(past.home())) else {
        return Ok(Exit::Config);
    };
    let changed = past.changes(&flow);
    if !changed.is_empty() && !wanted.changed_ok {
        return Err(Error::config(format!(
            "run {id} was made with other files: {}; to replay it with the changed ones: --changed ok",
            changed.join(", ")
        )));
    }
    let Some(start) = flow.graph.find(past.start()) else {
        let start = past.start();
        return Err(Error::config(format!("the flow has no node {start} now")));
    };
    let signals = install_signals()?;
    let replay = Replayer {
        wanted,
        run: &run,
        past: &past,
        flow: &flow,
        plan: RoutePlan::new(&flow.graph, start),
        signals: &signals,
        screen: Screen::new(wanted.quiet, false),
    };
    match &wanted.node {
        Some(node) => replay.repeat_step(&replay.find_step(node)?),
        None => replay.repeat_run(),
    }
}

struct Replayer<'r> {
    wanted: &'r FlowReplayArgs,
    run: &'r RunDir,
    past: &'r RecordedBasis,
    flow: &'r Flow,
    plan: RoutePlan<'r>,
    signals: &'r Signals,
    screen: Screen,
}

impl Replayer<'_> {
    /// The step at a node that is meant, which has ended.
    fn find_step(&self, node: &str) -> Result<StepId> {
        let graph = &self.flow.graph;
        let Some(found) = graph.find(node) else {
            let known = graph.nodes.iter().map(|node| node.id.as_str());
            return Err(basis::unknown_name("replay", node, known));
        };
        if !self.flow.nodes[found].runs() {
            return Err(Error::usage(format!("{node} runs nothing")));
        }
        let task = self.wanted.task.as_ref();
        let ends = RecordedEnds::read(self.run, None)?;
        let is_meant =
            |step: &&StepId| step.node == node && task.is_none_or(|task| *task == step.task);
        let mut found: Vec<&StepId> = ends.order.iter().filter(is_meant).collect();
        // The same words for any order of their ends: T2 before T10.
        found.sort_by_key(|step| (step.task.len(), &step.task));
        let id = &self.run.id;
        let Some((step, others)) = found.split_first() else {
            let of = task.map_or_else(String::new, |task| format!(" of {task}"));
            let message =
                format!("{node}{of} has not ended in run {id}: there is nothing to compare");
            return Err(Error::failure(message));
        };
        if others.is_empty() {
            return Ok((*step).clone());
        }
        let names = found.iter().map(|step| step.task.as_str()).take(20);
        let names = names.collect::<Vec<_>>().join(", ");
        Err(Error::usage(format!(
            "several tasks were at {node}: {names}; say which with --task"
        )))
    }

    /// Does one step again, with the input and the context that it had.
    fn repeat_step(&self, step: &StepId) -> Result<Exit> {
        let ends = RecordedEnds::read(self.run, step.root())?;
        let context = self.recorded_context(step)?;
        let place = self.copy_workspace()?;
        let (root, id) = (&place.workspace.root, self.run.id.as_str());
        // The runs that agents left there are not those of the copy.
        let below = task_path(Path::new(""), id, Some(&step.task)).join(".delta");
        may_fail(files::remove_dir_below(root, &below));
        let ends = Rc::new(ends);
        let only = Some((step.clone(), context));
        let Some((repeated, open)) = self.repeat(&place.workspace, Rc::clone(&ends), only)? else {
            return Ok(self.ended_by_signal());
        };
        self.tell_of_open(step, &open);
        let (was, is) = (&ends.by_step[step], repeated.by_step.get(step));
        let is_same = is.is_some_and(|is| was.is_same(is));
        match self.wanted.format {
            OutputFormat::Text => print(printable(&step_text(step, was, is)).as_bytes())?,
            OutputFormat::Json => print_value(&step_object(&self.run.id, step, was, is))?,
        }
        place.leave(is_same, self.screen);
        Ok(exit_of(is_same))
    }

    /// Walks the whole run again.
    fn repeat_run(&self) -> Result<Exit> {
        let ends = Rc::new(RecordedEnds::read(self.run, None)?);
        let place = self.copy_workspace()?;
        let tasks = Path::new("tasks").join(self.run.id.as_str());
        // Each task begins in a directory of its own, which is empty.
        may_fail(files::remove_dir_below(&place.workspace.root, &tasks));
        let Some((repeated, _)) = self.repeat(&place.workspace, Rc::clone(&ends), None)? else {
            return Ok(self.ended_by_signal());
        };
        let parted = find_parting(&ends, &repeated);
        let count = ends.order.len();
        match self.wanted.format {
            OutputFormat::Text => {
                let steps = counted(count, "step");
                let text = match parted {
                    None => format!("{steps}, all as recorded\n"),
                    Some(step) => {
                        let (was, is) = (&ends.by_step[step], repeated.by_step.get(step));
                        format!("parts at {}", step_text(step, was, is))
                    }
                };
                print(printable(&text).as_bytes())?;
            }
            OutputFormat::Json => {
                let id = &self.run.id;
                let parted = parted.map(|step| {
                    step_object(id, step, &ends.by_step[step], repeated.by_step.get(step))
                });
                let object = json!({
                    "schema_version": SCHEMA_VERSION,
                    "run_id": id.as_str(),
                    "same": parted.is_none(),
                    "steps": count,
                    "parted_at": parted,
                });
                print_value(&object)?;
            }
        }
        place.leave(parted.is_none(), self.screen);
        Ok(exit_of(parted.is_none()))
    }

    /// Says why a step that was repeated has not ended.
    fn tell_of_open(&self, step: &StepId, open: &[SuspendedStep]) {
        for it in open {
            let (name, id) = (step.shown(), &self.run.id);
            let text = match it.need {
                Need::Answer => format!(
                    "{name} asks a person, and the repetition of a node gets no answers; `delta flow replay {id}` \
                     repeats the whole run with the recorded answers of its agents"
                ),
                _ => format!("{name} was not repeated to its end: {}", it.text),
            };
            self.screen.warn_as(PROGRAM, &text);
        }
    }

    fn copy_workspace(&self) -> Result<ReplayDir> {
        ReplayDir::make(None, self.run.workspace(), self.screen)
    }

    /// The context of a step's last attempt, if there is a record of it.
    fn recorded_context(&self, step: &StepId) -> Result<Option<String>> {
        let lineage = Lineage::read(self.run)?;
        let task = lineage.tasks.get(&step.task);
        let found = task.and_then(|task| task.steps.iter().rfind(|it| it.node == step.node));
        let records = found.and_then(|step| step.records.last());
        let path = records.map(|records| Path::new(records).join("context.json"));
        let Some(path) = path else { return Ok(None) };
        match files::read_text_below(&self.run.path, &path, LARGEST_STORE) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            text => text.map(Some).at("read", &self.run.path.join(path)),
        }
    }

    /// Lets an engine work on a new run of the same name. Returns how its steps ended, and those that wait; none if
    /// a signal ended it.
    fn repeat(
        &self,
        workspace: &Workspace,
        ends: Rc<RecordedEnds>,
        only: Option<(StepId, Option<String>)>,
    ) -> Result<Option<(RecordedEnds, Vec<SuspendedStep>)>> {
        workspace.create()?;
        let roots = ends.roots.clone();
        let OpenRun {
            run,
            journal,
            record,
            ..
        } = self.begin(workspace)?;
        copy_stores(&self.run.path, &run.path)?;
        let is_step = only.is_some();
        let options = FlowOptions {
            jobs: self.wanted.jobs(),
            queue: None,
            records: KeptRecords::All,
            launch: Vec::new(),
            changed_ok: false,
            keep_going: true,
            pause_before: HashSet::new(),
            repeat: Vec::new(),
            screen: Screen::new(self.wanted.quiet || is_step, false),
            with_tasks: false,
            prints_roots: false,
            keeping: Keeping::All,
            grace: run_context::grace(run_context::depth().0),
            answered: Some(AnsweredSteps { ends, only }),
            registration: None,
            is_ours: true,
            is_live: true,
        };
        let place = RunPlace {
            ledgers: account::open_tree(&run, &record, None)?,
            deadline: None,
            flow: self.flow,
            plan: &self.plan,
            workspace,
            has_many_roots: self.past.has_many_roots(),
            run,
            call_prefix: RunContext::call_prefix(),
            depth: run_context::depth().0,
        };
        let inputs = Inputs::known(roots);
        let mut engine = FlowEngine::new(place, options, journal, self.signals, inputs);
        let stopped = engine.run(record)?;
        let (mut journal, _, run) = engine.into_parts();
        journal.flush()?;
        let open = match stopped {
            EngineStop::Signal(_) => return Ok(None),
            EngineStop::Suspended(open) => open,
            EngineStop::Done | EngineStop::JournalChanged => Vec::new(),
        };
        Ok(Some((RecordedEnds::read(&run, None)?, open)))
    }

    /// A new run, as the one that is repeated began.
    fn begin(&self, workspace: &Workspace) -> Result<OpenRun> {
        let id = &self.run.id;
        let metadata = Metadata {
            run_id: id.to_string(),
            workspace_id: workspace.id(),
            created_at: crate::text::timestamp::Timestamp::now().to_string(),
            initial_message: Some(format!("replay of run {id}")),
            ..Metadata::default()
        };
        let start = RunStart {
            workspace,
            signals: self.signals,
            screen: self.screen,
            program: PROGRAM,
            name: self.flow.name(),
            home: &self.flow.home,
            task: None,
            config: b"{}".to_vec(),
            force: false,
            describe: Box::new(|_| {}),
        };
        start.begin(id, metadata, None, |_| Ok(()))
    }

    fn ended_by_signal(&self) -> Exit {
        self.signals.stop().map_or(Exit::Failure, Exit::from)
    }
}

/// Gives the repetition what the stores held when the run began.
fn copy_stores(from: &Path, to: &Path) -> Result<()> {
    let stores = from.join("memory");
    if stores.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        trees::copy_tree(&stores, &to.join("memory"), &[])?;
    }
    Ok(())
}

fn exit_of(is_same: bool) -> Exit {
    match is_same {
        true => Exit::Success,
        false => Exit::Failure,
    }
}

/// The first step, in the order of the record, that ended in another way, or not at all. What became of tasks that lost
/// a race depends on time.
fn find_parting<'e>(recorded: &'e RecordedEnds, repeated: &RecordedEnds) -> Option<&'e StepId> {
    recorded.order.iter().find(|step| {
        let is_loser = [recorded, repeated]
            .iter()
            .any(|ends| ends.cancelled.contains(&step.task));
        match repeated.by_step.get(step) {
            Some(end) => !recorded.by_step[step].is_same(end),
            None => !is_loser,
        }
    })
}

/// The comparison of two ends of a step.
fn step_text(step: &StepId, was: &RecordedEnd, is: Option<&RecordedEnd>) -> String {
    const SHOWN: usize = 2000;
    let name = step.shown();
    let Some(is) = is else {
        return format!("{name}: it was not reached again, or did not end\n");
    };
    let times = format!(
        "{}, then {}",
        format_duration(was.duration),
        format_duration(is.duration)
    );
    if was.is_same(is) {
        return format!("{name}: {}, as recorded; {times}\n", is.status());
    }
    let describe = |end: &RecordedEnd| match &end.outcome {
        Ok(output) => in_short(output.as_deref().unwrap_or("the input, as it is"), SHOWN),
        Err(failure) => format!(
            "{}: {}",
            failure.code.name(),
            in_short(&failure.message, SHOWN)
        ),
    };
    let what = match was.status() == is.status() {
        true => format!("{}, but not as recorded", is.status()),
        false => format!("{}, then {}", was.status(), is.status()),
    };
    format!(
        "{name}: {what}; {times}\n- {}\n+ {}\n",
        describe(was),
        describe(is)
    )
}

fn step_object(
    run: &crate::text::ids::RunId,
    step: &StepId,
    was: &RecordedEnd,
    is: Option<&RecordedEnd>,
) -> Value {
    let end = |end: &RecordedEnd| {
        let output = end
            .output()
            .and_then(|text| serde_json::from_str::<Value>(text).ok());
        let error = end.outcome.as_ref().err();
        json!({
            "status": end.status(),
            "output": output,
            "error": error.map(|it| json!({"code": it.code.name(), "message": &*it.message})),
            "duration_ms": end.duration.as_millis() as u64,
        })
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": run.as_str(),
        "task_id": step.task,
        "node_id": step.node,
        "same": is.is_some_and(|is| was.is_same(is)),
        "recorded": end(was),
        "replayed": is.map(end),
    })
}
