//! The loop: begin what is ready, wait for any that ends, route, again.
//!
//! One thread, one blocking wait, many children. What is to do comes from the routers, one for
//! each root task; what is done goes into the journal first. Resuming is the same path: the
//! journal's ends are routed again, and the loop goes on from there.
//!
//! Architecture invariant: a program starts only after its `NODE_START` is on disk, and nothing whose
//! `NODE_END` is in the journal is ever run again. All that one wait brings is written at once.

pub(crate) mod credentials;
pub(crate) mod inputs;
mod spent;
pub(crate) mod answered;
mod attempt_runs;
pub(crate) mod programs;
mod queue;
mod roots;
mod remember;
pub(crate) mod printed_run;
mod agents;
mod nested;
mod finish;
mod deferred;
mod begin;
mod wait;
mod resume;

use super::PROGRAM;
use super::context::recall::Recall;
use super::graph::plan::RoutePlan;
use super::graph::router::{Router, StepRef};
use super::graph::topology::NodeIx;
use super::graph::{Failure, Payload};
use super::manifest::{Flow, KeptRecords, ResumePolicy};
use super::record::events::{self, EventWriter, RootInput};
use super::record::replay::Roots;
use super::record::tally::{FinishedRoot, Keeping, Tally};
use super::record::{self, RecordedRoot, StepId, edge_told};
use super::view::progress_table::ProgressTable;
use crate::engine::due::{Registration, not_registered};
use crate::error::{Exit, Result, ignore};
use crate::record::engine_log::Level;
use crate::record::event::EventKind;
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::order;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::{Screen, print_json};
use answered::AnsweredSteps;
use attempt_runs::AttemptState;
use inputs::{Inputs, Taken};
use programs::Programs;
use queue::Queue;
use roots::RootTasks;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The steps that are prepared, or held, for each program that may run.
const AHEAD: usize = 4;

/// The options of one start of the engine.
#[derive(Default)]
pub(crate) struct FlowOptions {
    /// The most programs at once.
    pub jobs: usize,
    /// Put before every program.
    pub launch: Vec<String>,
    /// The most root tasks at once; none: as many as there is work for.
    pub queue: Option<usize>,
    /// The nodes whose directories of records stay.
    pub records: KeptRecords,
    /// Go on with other inputs after a failure.
    pub keep_going: bool,
    /// Nodes before which the run stops.
    pub pause_before: HashSet<NodeIx>,
    /// The screen on which progress is printed.
    pub screen: Screen,
    /// Files of the flow may have changed since the run began.
    pub changed_ok: bool,
    /// Nodes that a retry may repeat although they say `on_resume: fail`; those of a flow within the flow after the
    /// name of its node and a slash.
    pub repeat: Vec<String>,
    /// The report of each task is kept.
    pub with_tasks: bool,
    /// The result of a root task is printed when it ends.
    pub prints_roots: bool,
    /// The parts of root tasks that are kept when they have ended.
    pub keeping: Keeping,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Steps that are not done, because a record has their ends.
    pub answered: Option<AnsweredSteps>,
    /// Processes that carry this run's calls are this run's, and not those of a directory that
    /// it is a copy of.
    pub is_ours: bool,
    /// The run goes on; otherwise its result is printed again.
    pub is_live: bool,
    /// The run's place among those that wait for a time; none: it is not registered.
    pub registration: Option<Registration>,
}

/// The place of a run.
pub(crate) struct RunPlace<'e> {
    /// The flow.
    pub flow: &'e Flow,
    /// Prepared for the start.
    pub plan: &'e RoutePlan<'e>,
    /// A single root task works in it, all others below it.
    pub workspace: &'e Workspace,
    /// Inputs are the lines of a file.
    pub has_many_roots: bool,
    /// The run.
    pub run: RunDir,
    /// The beginning of the ids of its calls.
    pub call_prefix: String,
    /// The depth of nesting.
    pub depth: u32,
    /// The ledgers in which its agents write what they spend, as their environment names them.
    pub ledgers: String,
    /// The time by which its programs must have ended.
    pub deadline: Option<Timestamp>,
}

impl<'e> RunPlace<'e> {
    fn node_id(&self, step: &StepRef) -> &'e str {
        &self.flow.graph.nodes[step.node].id
    }

    /// The name of a step in journals.
    fn step_id(&self, step: &StepRef) -> StepId {
        StepId {
            task: step.task.to_string(),
            node: self.node_id(step).to_owned(),
            edge: edge_told(&self.flow.graph, step),
        }
    }

    /// The directory in which a task works, made if it is missing.
    fn task_dir(&self, step: &StepRef) -> Result<PathBuf> {
        let (dir, root) = (self.task_path(step), &self.workspace.root);
        match dir.strip_prefix(root) {
            Ok(below) if dir != *root => files::make_usual_dirs_below(root, below),
            _ => Ok(dir),
        }
    }

    /// A single root works in the workspace; every other task has a directory of its own.
    fn task_path(&self, step: &StepRef) -> PathBuf {
        let is_alone = step.is_root && !self.has_many_roots;
        let task = (!is_alone).then_some(&*step.task);
        record::task_path(&self.workspace.root, self.run.id.as_str(), task)
    }
}

/// The result of a step.
type StepResult<T = Payload> = std::result::Result<T, Failure>;

/// The reason why the loop has ended.
#[derive(Debug)]
pub(crate) enum EngineStop {
    Done,
    Signal(Stop),
    /// Another process wrote the journal.
    JournalChanged,
    /// Only steps are left that do not go on by themselves: why, the most demanding first. Not empty.
    Suspended(Vec<SuspendedStep>),
}

/// The need of a step before it goes on; the most demanding first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Mended files of its agent.
    Config,
    /// Something decided.
    Decision,
    /// A look at it: the run was to stop before it.
    Paused,
    /// A person's answer.
    Answer,
    /// Nothing but time.
    Time,
}

impl Need {
    /// The need of a node's own run that ended with a code; none if the code ends the step. A run that can be resumed
    /// has not failed, and one that a signal ended can.
    fn of_exit(code: i32) -> Option<Self> {
        /// The codes that shells and the engine have for signals.
        const SIGNALS: std::ops::RangeInclusive<i32> = 129..=192;
        let is = |exit: Exit| code == exit as i32;
        match code {
            _ if is(Exit::Config) => Some(Self::Config),
            _ if is(Exit::Undecided) => Some(Self::Decision),
            _ if is(Exit::Waiting) => Some(Self::Answer),
            _ if is(Exit::TempFail) || SIGNALS.contains(&code) => Some(Self::Time),
            _ => None,
        }
    }
}

/// The reason why a step does not begin, or did not end.
#[derive(Debug)]
pub(crate) struct SuspendedStep {
    pub need: Need,
    /// One that is only looked at is named, the others are explained.
    pub text: String,
    /// The stop reason of the step's own run, if it has one.
    pub reason: Option<String>,
    /// The time when it goes on, if it waits for one.
    pub due_at: Option<Timestamp>,
}

impl SuspendedStep {
    fn new(need: Need, text: String) -> Self {
        Self {
            need,
            text,
            reason: None,
            due_at: None,
        }
    }

    fn until(due_at: Timestamp, text: String) -> Self {
        Self {
            due_at: Some(due_at),
            ..Self::new(Need::Time, text)
        }
    }

    /// Puts the name of the step into the text.
    fn named(self, name: &str) -> Self {
        let why = &self.text;
        let text = match self.need {
            Need::Paused => name.to_owned(),
            Need::Answer => format!("{name} asks: {why}"),
            Need::Config | Need::Decision | Need::Time => format!("{name}: {why}"),
        };
        Self { text, ..self }
    }
}

/// One start of the engine on one run.
pub(crate) struct FlowEngine<'e> {
    place: RunPlace<'e>,
    options: FlowOptions,
    events: EventWriter<'e>,
    roots: RootTasks<'e>,
    queue: Queue,
    programs: Programs<'e>,
    attempts: AttemptState,
    /// The items of which contexts are made.
    context: Recall,
    table: ProgressTable,
}

impl<'e> FlowEngine<'e> {
    /// The run's directory is there, and its journal says that an engine has started.
    pub(crate) fn new(
        place: RunPlace<'e>,
        options: FlowOptions,
        journal: Journal,
        signals: &'e Signals,
        inputs: Inputs,
    ) -> Self {
        let graph = &place.flow.graph;
        Self {
            events: EventWriter { journal, graph },
            roots: RootTasks {
                open: Roots::new(),
                failed: None,
                tally: Tally::new(options.keeping),
                lines: Vec::new(),
            },
            queue: Queue::new(inputs, place.flow),
            programs: Programs::new(&place, &options, signals),
            attempts: AttemptState::default(),
            context: Recall::default(),
            table: ProgressTable::new(options.screen),
            options,
            place,
        }
    }

    /// Works until nothing is left to do, or something asks for the end. No program outlives it, also after an error.
    /// `record` is what the journal holds.
    pub(crate) fn run(&mut self, record: Vec<u8>) -> Result<EngineStop> {
        if self.table.is_on() {
            // Without it Ctrl-Z leaves the table where the shell's prompt comes.
            ignore(self.programs.signals.catch_suspension());
        }
        let done = self.work(record);
        if done.is_err() {
            self.programs.end_all();
            ignore(self.events.journal.flush());
        }
        self.table.close();
        done
    }

    /// The journal, for the record of the end, and the results of the roots, also of those that are not over.
    pub(crate) fn into_parts(mut self) -> (Journal, Tally, RunDir) {
        let with_tasks = self.options.with_tasks;
        for (number, router) in self.roots.open.iter().filter(|_| with_tasks) {
            self.roots.tally.add(FinishedRoot::of(
                self.place.plan,
                *number,
                router,
                with_tasks,
            ));
        }
        (self.events.journal, self.roots.tally, self.place.run)
    }

    fn work(&mut self, record: Vec<u8>) -> Result<EngineStop> {
        self.resume(&record)?;
        drop(record);
        loop {
            let is_ours = !self.events.journal.was_changed();
            let began = is_ours && self.programs.stop.is_none() && self.fill()?;
            if is_ours {
                self.launch_prepared()?;
            }
            self.store_items(false)?;
            self.print_lines()?;
            self.remove_spent();
            let is_awaited = self.queue.next_due().is_some() || self.awaits_inputs();
            let waits = !began && is_awaited && self.programs.stop.is_none();
            if !self.programs.children.is_empty() || (is_ours && waits) {
                self.await_event()?;
            } else if !began || self.programs.stop.is_some() {
                break;
            }
        }
        self.events.journal.flush()?;
        if self.events.journal.was_changed() {
            return Ok(EngineStop::JournalChanged);
        }
        self.print_lines()?;
        self.remove_spent();
        Ok(self.stop_reason())
    }

    fn remove_spent(&mut self) {
        self.programs
            .spent
            .remove(&self.place, &self.events.journal);
    }

    /// Prints the lines about roots that have ended, once their ends are in the journal.
    fn print_lines(&mut self) -> Result<()> {
        if self.roots.lines.is_empty() {
            return Ok(());
        }
        self.events.journal.flush()?;
        if self.events.journal.was_changed() {
            return Ok(());
        }
        self.table.erase();
        print_json(std::mem::take(&mut self.roots.lines))
    }

    fn stop_reason(&mut self) -> EngineStop {
        if let Some(stop) = self.programs.stop {
            return EngineStop::Signal(stop);
        }
        let mut suspended: Vec<_> = std::mem::take(&mut self.queue.suspended)
            .into_values()
            .collect();
        order::sort_by_key(&mut suspended, |(StepRef { key, .. }, why)| {
            let place = self
                .roots
                .open
                .get(&key.root)
                .and_then(|it| it.place_of(key.step));
            (why.need, key.root, place)
        });
        // Recorded with the end of this start, so that a pause that no one has seen is made again.
        for (step, _) in suspended.iter().filter(|(_, it)| it.need == Need::Paused) {
            self.events.add_pause(step);
        }
        if suspended.is_empty() {
            return EngineStop::Done;
        }
        EngineStop::Suspended(suspended.into_iter().map(|(_, why)| why).collect())
    }

    /// Begins what can begin, until no more may run at once. New inputs are taken only when nothing of
    /// the old ones is ready. Where much is ready, some more is prepared than may run, so that one sync
    /// of the journal serves for many programs. Returns whether anything has begun.
    fn fill(&mut self) -> Result<bool> {
        let (now, time) = (Instant::now(), Timestamp::now());
        self.queue.release(&self.programs, now, time);
        let jobs = self.options.jobs.max(1);
        if self.programs.at_work() >= jobs {
            return Ok(false);
        }
        let mut since_flush = 0;
        let mut began = false;
        loop {
            let at_work = self.programs.at_work();
            let Some(step) = self.queue.ready.pop_front() else {
                if at_work >= jobs || !self.may_admit() || !self.admit()? {
                    break;
                }
                continue;
            };
            if let Some(group) = self.queue.full_group(step.node, &self.programs) {
                self.queue.hold(step, group);
                continue;
            }
            // Such a step must not be recorded as begun before it is.
            let fails_on_resume = self.place.flow.nodes[step.node].on_resume == ResumePolicy::Fail;
            if at_work >= jobs && (at_work >= jobs * AHEAD || fails_on_resume) {
                self.queue.ready.push_front(step);
                break;
            }
            self.begin_step(step)?;
            began = true;
            since_flush += 1;
            if since_flush == 1024 {
                self.events.journal.flush()?;
                since_flush = 0;
            }
            if since_flush % 64 == 0 && self.programs.take_stop() {
                break;
            }
        }
        Ok(began)
    }

    /// Another input may be taken: not after a failure, and not while many steps are held, so that inputs
    /// are not read faster than they can be worked on.
    fn may_admit(&self) -> bool {
        let has_room = |most: usize| self.roots.open.len() < most;
        self.roots.failed.is_none()
            && self.options.queue.is_none_or(has_room)
            && self.queue.held() < self.options.jobs.max(1) * AHEAD
    }

    /// More inputs may come, and would be taken at once.
    fn awaits_inputs(&self) -> bool {
        self.queue.inputs.is_open() && self.may_admit()
    }

    /// Takes the next input. Returns whether there was one.
    fn admit(&mut self) -> Result<bool> {
        if self.programs.take_stop() {
            return Ok(false);
        }
        let Taken::Input(taken) = self.queue.inputs.take()? else {
            return Ok(false);
        };
        let RecordedRoot {
            number,
            input,
            fault,
        } = taken;
        let kept = events::keep_text(&self.place.run.path, &events::input_name(number), &input)?;
        self.roots
            .open
            .insert(number, Router::new(self.place.plan, number, input));
        self.queue
            .faults
            .extend(fault.iter().cloned().map(|it| (number, it)));
        self.drain_router(number, Some(&RootInput { kept, fault }))?;
        Ok(true)
    }

    /// Prints a line of progress about a step: how it ended, and, if that is bad, why.
    fn report_step(&mut self, step: &StepRef, why: Option<&str>, how: &str) {
        let node = self.place.node_id(step);
        self.table
            .print_step(&step.task, node, how, why.map_or(Ok(()), Err));
    }

    /// Lets a step wait, and registers the run if it waits for a time.
    fn suspend(&mut self, step: StepRef, why: SuspendedStep) {
        let due_at = self.queue.suspend(&self.place, step, why);
        if let Some((due_at, registration)) = due_at.zip(self.options.registration.as_ref())
            && let Err(why) = registration.put(due_at)
        {
            self.options.registration = None;
            self.warn(&not_registered(&why));
        }
    }

    /// Prints a warning, and records it.
    fn warn(&mut self, text: &str) {
        self.options.screen.warn_as(PROGRAM, text);
        let journal = &mut self.events.journal;
        journal.add_line(EventKind::SystemMessage, |line| {
            line.put("level", &Level::Warn).put("content", text);
        });
    }
}
