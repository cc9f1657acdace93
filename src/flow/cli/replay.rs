//! `delta-flow replay`: one node of a run again, or all of the run with the recorded answers of its agents, in a copy of
//! the workspace; and how that compares with the record.
//!
//! What runs is in the flow's directory, and is compared with the files that the run was made from, as when it is resumed.

use super::args::processors;
use super::basis;
use super::check;
use crate::engine::account;
use crate::engine::run_context::{self, RunContext};
use crate::error::{At, Error, Exit, Result, ignore};
use crate::flow::PROGRAM;
use crate::flow::context::store::LARGEST_STORE;
use crate::flow::engine::answered::AnsweredSteps;
use crate::flow::engine::inputs::Inputs;
use crate::flow::engine::{EngineStop, FlowEngine, FlowOptions, Need, RunPlace, SuspendedStep};
use crate::flow::graph::RoutePlan;
use crate::flow::manifest::{self, Flow};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::flow::record::{Lineage, RecordedBasis, RecordedEnd, RecordedEnds, StepId, task_path};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::find;
use crate::runs::inspect::is_live;
use crate::runs::open::{OpenRun, RunStart, first_metadata};
use crate::runs::origin::require_own_run;
use crate::runs::preflight::{check_depth, install_signals};
use crate::runs::workspace_copy::ReplayDir;
use crate::text::amounts::{counted, format_duration};
use crate::text::disguise::printable;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::order;
use crate::text::shorten::in_short;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, print, print_value};
use crate::unix::trees;
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;

/// Runs the command.
pub(crate) fn replay_run(given: &ParsedCommand) -> Result<Exit> {
    check_depth()?;
    let name = given.required_text(0);
    let run = find::find_run(&given.work_dir(), &name)?;
    let id = &run.id;
    if is_live(&run) {
        let message = format!("run {id} is live: it can be replayed when it has ended");
        return Err(Error::new(Exit::TempFail, message));
    }
    require_own_run(&run, given.has("--adopt"))?;
    let past =
        RecordedBasis::read(&run)?.ok_or_else(|| basis::not_of_flow(&run, Some("replay")))?;
    let flow = check::usable(manifest::load_to_run(&past.home))?;
    let changed = past.changes(&flow);
    if !changed.is_empty() && !given.has("--changed") {
        return Err(Error::config(format!(
            "run {id} was made with other files: {}; to replay it with the changed ones: --changed ok",
            changed.join(", ")
        )));
    }
    let start = flow.graph.find(&past.start);
    let start =
        start.ok_or_else(|| Error::config(format!("the flow has no node {} now", past.start)))?;
    let signals = install_signals()?;
    let replay = Replayer {
        given,
        run: &run,
        past: &past,
        flow: &flow,
        plan: RoutePlan::new(&flow.graph, start),
        signals: &signals,
        screen: Screen::new(given.has("--quiet"), false),
    };
    match given.operand_text(1) {
        Some(node) => replay.repeat_step(&replay.find_step(&node)?),
        None => replay.repeat_run(),
    }
}

struct Replayer<'r> {
    given: &'r ParsedCommand,
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
        let found = basis::find_node(self.flow, "replay", node)?;
        if !self.flow.nodes[found].runs() {
            return Err(Error::usage(format!("{node} runs nothing")));
        }
        let task = self.given.text("--task");
        let ends = RecordedEnds::read(self.run, None)?;
        let is_meant =
            |step: &&StepId| step.node == node && task.as_ref().is_none_or(|it| *it == step.task);
        let mut found: Vec<&StepId> = ends.order.iter().filter(is_meant).collect();
        // The same words for any order of their ends: T2 before T10.
        order::sort_by_key(&mut found, |step| (step.task.len(), &step.task));
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
        let names: Vec<&str> = found.iter().map(|it| it.task.as_str()).take(20).collect();
        Err(Error::usage(format!(
            "several tasks were at {node}: {}; say which with --task",
            names.join(", ")
        )))
    }

    /// Does one step again, with the input and the context that it had.
    fn repeat_step(&self, step: &StepId) -> Result<Exit> {
        let ends = Rc::new(RecordedEnds::read(self.run, step.root())?);
        let context = self.recorded_context(step)?;
        let id = self.run.id.as_str();
        // The runs that agents left there are not those of the copy.
        let below = task_path(Path::new(""), id, Some(&step.task)).join(".delta");
        let place = self.copy_workspace(&below)?;
        let only = Some((step.clone(), context));
        let Some((repeated, open)) = self.repeat(&place.workspace, &ends, only)? else {
            return Ok(self.ended_by_signal());
        };
        self.explain_open(step, &open);
        let compared = ComparedStep::of(step, &ends, &repeated);
        match self.given.format() {
            OutputFormat::Text => print(printable(&compared.text()).as_bytes())?,
            OutputFormat::Json => print_value(&compared.object(id))?,
        }
        Ok(self.leave(&place, compared.is_same()))
    }

    /// Walks the whole run again.
    fn repeat_run(&self) -> Result<Exit> {
        let ends = Rc::new(RecordedEnds::read(self.run, None)?);
        let id = self.run.id.as_str();
        // Each task begins in a directory of its own, which is empty.
        let place = self.copy_workspace(&Path::new("tasks").join(id))?;
        let Some((repeated, _)) = self.repeat(&place.workspace, &ends, None)? else {
            return Ok(self.ended_by_signal());
        };
        let parted =
            find_parting(&ends, &repeated).map(|step| ComparedStep::of(step, &ends, &repeated));
        let count = ends.order.len();
        match self.given.format() {
            OutputFormat::Text => {
                let text = match &parted {
                    None => format!("{}, all as recorded\n", counted(count, "step")),
                    Some(parted) => format!("parts at {}", parted.text()),
                };
                print(printable(&text).as_bytes())?;
            }
            OutputFormat::Json => print_value(&json!({
                "schema_version": SCHEMA_VERSION,
                "run_id": id,
                "same": parted.is_none(),
                "steps": count,
                "parted_at": parted.as_ref().map(|parted| parted.object(id)),
            }))?,
        }
        Ok(self.leave(&place, parted.is_none()))
    }

    /// Keeps the repetition for inspection if it differs.
    fn leave(&self, place: &ReplayDir, is_same: bool) -> Exit {
        place.leave(is_same, self.screen);
        if is_same {
            Exit::Success
        } else {
            Exit::Failure
        }
    }

    /// Says why a step that was repeated has not ended.
    fn explain_open(&self, step: &StepId, open: &[SuspendedStep]) {
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

    /// A copy of the workspace without one of its directories.
    fn copy_workspace(&self, without: &Path) -> Result<ReplayDir> {
        let place = ReplayDir::make(None, self.run.workspace(), self.screen)?;
        ignore(files::remove_dir_below(&place.workspace.root, without));
        Ok(place)
    }

    /// The context of a step's last attempt, if there is a record of it.
    fn recorded_context(&self, step: &StepId) -> Result<Option<String>> {
        let lineage = Lineage::read(self.run)?;
        let task = lineage.tasks.get(&step.task);
        let found = task.and_then(|task| task.steps.iter().rfind(|it| it.node == step.node));
        let records = found.and_then(|step| step.records.last());
        let path = records.map(|records| Path::new(records).join("context.json"));
        let Some(path) = path else { return Ok(None) };
        let text = files::read_text_below(&self.run.path, &path, LARGEST_STORE).if_there();
        text.at("read", &self.run.path.join(path))
    }

    /// Lets an engine work on a new run of the same name. Returns how its steps ended, and those that wait; none if
    /// a signal ended it.
    fn repeat(
        &self,
        workspace: &Workspace,
        ends: &Rc<RecordedEnds>,
        only: Option<(StepId, Option<String>)>,
    ) -> Result<Option<(RecordedEnds, Vec<SuspendedStep>)>> {
        workspace.create()?;
        let OpenRun {
            run,
            journal,
            record,
            ..
        } = self.begin(workspace)?;
        copy_stores(&self.run.path, &run.path)?;
        let is_quiet = self.screen.quiet || only.is_some();
        let options = FlowOptions {
            jobs: self.given.number("--jobs").unwrap_or_else(processors),
            keep_going: true,
            screen: Screen::new(is_quiet, false),
            grace: run_context::grace(run_context::depth().0),
            answered: Some(AnsweredSteps {
                ends: Rc::clone(ends),
                only,
            }),
            is_ours: true,
            is_live: true,
            ..FlowOptions::default()
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
        let inputs = Inputs::known(ends.roots.clone());
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
        let metadata = first_metadata(id, workspace, &format!("replay of run {id}"));
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
struct ComparedStep<'c> {
    step: &'c StepId,
    was: &'c RecordedEnd,
    /// None: it was not reached again, or did not end.
    is: Option<&'c RecordedEnd>,
}

impl<'c> ComparedStep<'c> {
    fn of(step: &'c StepId, recorded: &'c RecordedEnds, repeated: &'c RecordedEnds) -> Self {
        Self {
            step,
            was: &recorded.by_step[step],
            is: repeated.by_step.get(step),
        }
    }

    fn is_same(&self) -> bool {
        self.is.is_some_and(|is| self.was.is_same(is))
    }

    fn text(&self) -> String {
        const SHOWN: usize = 2000;
        let (name, was) = (self.step.shown(), self.was);
        let Some(is) = self.is else {
            return format!("{name}: it was not reached again, or did not end\n");
        };
        let [before, then] = [was, is].map(|end| format_duration(end.duration));
        let status = is.status();
        if was.is_same(is) {
            return format!("{name}: {status}, as recorded; {before}, then {then}\n");
        }
        let [removed, added] = [was, is].map(|end| match &end.outcome {
            Ok(output) => in_short(output.as_deref().unwrap_or("the input, as it is"), SHOWN),
            Err(failure) => {
                let message = in_short(&failure.message, SHOWN);
                format!("{}: {message}", failure.code.name())
            }
        });
        let what = match was.status() {
            same if same == status => format!("{status}, but not as recorded"),
            other => format!("{other}, then {status}"),
        };
        format!("{name}: {what}; {before}, then {then}\n- {removed}\n+ {added}\n")
    }

    fn object(&self, run: &str) -> Value {
        let end = |end: &RecordedEnd| {
            let text = end.outcome.as_ref().ok().and_then(Option::as_deref);
            let output = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
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
            "run_id": run,
            "task_id": self.step.task,
            "node_id": self.step.node,
            "same": self.is_same(),
            "recorded": end(self.was),
            "replayed": self.is.map(end),
        })
    }
}
