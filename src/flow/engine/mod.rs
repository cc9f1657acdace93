//! The loop: begin what is ready, wait for any that ends, route, again.
//!
//! One thread, one blocking wait, many children. What is to be done comes from the routers, one for
//! each root task; what has been done goes into the journal first. Resuming is the same path: the
//! journal's ends are routed again, and the loop goes on from there.
//!
//! Architecture invariant: a program starts only after its `NODE_START` is on disk, and nothing whose
//! `NODE_END` is in the journal is ever run again. All that one wait brings is written at once.

pub(crate) mod credentials;
pub(crate) mod inputs;
mod limits;
mod ready;
mod finish;
mod begin;
pub(crate) mod answered;
mod agents;
mod nested;
mod resume;
mod remember;
mod wait;
mod spent;

use super::context::helper::HelperQuestion;
use super::context::recall::Recall;
use super::graph::choice::Failure;
use super::graph::plan::RoutePlan;
use super::graph::router::{Effect, Router, StepKey, StepRef};
use super::graph::topology::NodeIx;
use super::manifest::{Flow, KeptRecords, ResumePolicy};
use super::record::attempt::PreparedAttempt;
use super::record::events::{self, EventWriter, OwnRun, RootInput};
use super::record::lineage::{Attempts, BegunBefore};
use super::record::replay::Roots;
use super::record::tally::{FinishedRoot, Keeping, Tally};
use super::view::progress_table::ProgressTable;
use crate::error::{Result, may_fail};
use crate::record::execution::LinkedFiles;
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::timestamp::Timestamp;
use crate::unix::process::{Children, Token};
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::{Screen, print_json};
use answered::AnsweredSteps;
use credentials::Credentials;
use inputs::{Inputs, Taken};
use limits::{LimitGroup, Limits};
use ready::ReadySteps;
use spent::SpentRecords;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So many steps for each program that may run are prepared, or held, at the same time.
const AHEAD: usize = 4;

/// How a start of the engine is to behave.
#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
pub(crate) struct FlowOptions {
    /// So many programs at once.
    pub jobs: usize,
    /// Put before every program.
    pub launch: Vec<String>,
    /// So many root tasks at once; none: as many as there is work for.
    pub queue: Option<usize>,
    /// The nodes whose directories of records stay.
    pub records: KeptRecords,
    /// Go on with other inputs after a failure.
    pub keep_going: bool,
    /// Nodes before which the run stops.
    pub pause_before: HashSet<NodeIx>,
    /// Where progress is told.
    pub screen: Screen,
    /// Files of the flow may have changed since the run began.
    pub changed_ok: bool,
    /// Nodes that a retry may repeat although they say `on_resume: fail`; those of a flow within the flow behind the
    /// name of its node and a slash.
    pub repeat: Vec<String>,
    /// The report of each task is to be kept.
    pub with_tasks: bool,
    /// What a root task came to is printed when it ends.
    pub prints_roots: bool,
    /// What is kept of root tasks that have ended.
    pub keeping: Keeping,
    /// How long programs have between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// What is not done, because it is known how it ended.
    pub answered: Option<AnsweredSteps>,
    /// Processes that carry this run's calls are this run's, and not those of a directory that
    /// it is a copy of.
    pub is_ours: bool,
    /// The run goes on; otherwise its result is printed again.
    pub is_live: bool,
}

/// Where a run is.
pub(crate) struct RunPlace<'e> {
    /// The flow.
    pub flow: &'e Flow,
    /// Prepared for the start.
    pub plan: &'e RoutePlan<'e>,
    /// A single root task works in it, all others below it.
    pub workspace: &'e Workspace,
    /// Its inputs are the lines of a file.
    pub has_many_roots: bool,
    /// The run.
    pub run: RunDir,
    /// The beginning of the ids of its calls.
    pub call_prefix: String,
    /// How deep the run is nested.
    pub depth: u32,
    /// The ledgers in which its agents write what they spend, as their environment names them.
    pub ledgers: String,
    /// When its programs are to have ended.
    pub deadline: Option<Timestamp>,
}

/// Why the loop has ended.
#[derive(Debug)]
pub(crate) enum EngineStop {
    Done,
    Signal(Stop),
    /// Somebody else wrote the journal.
    JournalChanged,
    /// Only steps are left that do not go on by themselves: why, the most demanding first. Not empty.
    Suspended(Vec<SuspendedStep>),
}

/// What a step needs before it goes on; the most demanding first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Its agent's files mended.
    Config,
    /// Something decided.
    Decision,
    /// A look at it: the run was to stop before it.
    Look,
    /// A person's answer.
    Answer,
    /// Nothing but time.
    Time,
}

/// Why a step does not begin, or did not end.
#[derive(Debug)]
pub(crate) struct SuspendedStep {
    pub need: Need,
    /// One that is only looked at is named, the others are explained.
    pub text: String,
    /// The stop reason of the step's own run, if it has one.
    pub reason: Option<String>,
}

/// The run of an earlier attempt or step, with which an attempt went on.
struct KeptRun {
    run: OwnRun,
    /// An earlier engine began that attempt, and it has not ended.
    is_open: bool,
}

/// A program that runs.
struct ActiveProgram {
    step: StepRef,
    /// The directory of records.
    io: PathBuf,
    since: Instant,
    /// Why it is being ended.
    failure: Option<Failure>,
    /// Nobody wants it any more.
    cancelled: bool,
    /// Set if it is no attempt yet, but is asked for what the node's context needs.
    asks: Option<HelperQuestion>,
}

/// A program that starts when its beginning is on disk.
struct WaitingProgram {
    active: ActiveProgram,
    prepared: PreparedAttempt,
    call_id: String,
    attempt: u32,
    /// The beginning is on disk.
    is_recorded: bool,
}

/// One start of the engine on one run.
pub(crate) struct FlowEngine<'e> {
    place: RunPlace<'e>,
    options: FlowOptions,
    events: EventWriter<'e>,
    signals: &'e Signals,
    children: Children<'e>,
    inputs: Inputs,
    /// Why roots fail at their start, by their numbers.
    faults: HashMap<usize, String>,
    roots: Roots<'e>,
    ready: ReadySteps,
    limits: Limits,
    prepared: VecDeque<WaitingProgram>,
    active: HashMap<Token, ActiveProgram>,
    attempts: HashMap<StepKey, Attempts>,
    /// What was before steps that a retry begins anew, by task and node.
    begun_before: HashMap<(String, String), BegunBefore>,
    /// The runs that the last attempts of steps went on with.
    own_runs: HashMap<StepKey, KeptRun>,
    /// Directories of records that are not to stay.
    spent: SpentRecords,
    /// Under which name the outputs of steps are to be kept.
    cache_keys: HashMap<StepKey, String>,
    recall: Recall,
    linked: LinkedFiles,
    credentials: Credentials,
    suspended: BTreeMap<StepKey, (StepRef, SuspendedStep)>,
    /// The number of the first root that failed.
    failed: Option<usize>,
    tally: Tally,
    /// Lines about roots that have ended; printed when the journal has these.
    lines: Vec<u8>,
    stop: Option<Stop>,
    /// When it was last looked how much programs have printed.
    looked: Instant,
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
        let mut children = Children::with_pidfds(signals);
        children.set_grace(options.grace);
        let graph = &place.flow.graph;
        Self {
            events: EventWriter { journal, graph },
            signals,
            children,
            inputs,
            faults: HashMap::new(),
            roots: Roots::new(),
            ready: ReadySteps::default(),
            limits: Limits::new(place.flow),
            prepared: VecDeque::new(),
            active: HashMap::new(),
            attempts: HashMap::new(),
            begun_before: HashMap::new(),
            own_runs: HashMap::new(),
            spent: SpentRecords::default(),
            cache_keys: HashMap::new(),
            recall: Recall::default(),
            linked: LinkedFiles::default(),
            credentials: Credentials::new(place.flow),
            suspended: BTreeMap::new(),
            failed: None,
            tally: Tally::new(options.keeping),
            lines: Vec::new(),
            stop: None,
            looked: Instant::now(),
            table: ProgressTable::new(options.screen),
            options,
            place,
        }
    }

    /// Works until nothing is left to do, or something asks for the end. Whatever happens, no program is
    /// left behind.
    pub(crate) fn run(&mut self) -> Result<EngineStop> {
        if self.table.is_on() {
            // Without it Ctrl-Z leaves the table where the shell's prompt comes.
            may_fail(self.signals.catch_suspension());
        }
        let done = self.work();
        if done.is_err() {
            self.end_children();
        }
        self.table.close();
        done
    }

    /// The journal, for the record of the end, and what the roots came to, even if nothing yet.
    pub(crate) fn into_parts(mut self) -> (Journal, Tally, RunDir) {
        let with_tasks = self.options.with_tasks;
        for (number, router) in self.roots.iter().filter(|_| with_tasks) {
            let so_far = FinishedRoot::of(self.place.plan, *number, router, with_tasks);
            self.tally.add(so_far);
        }
        (self.events.journal, self.tally, self.place.run)
    }

    fn work(&mut self) -> Result<EngineStop> {
        self.resume()?;
        loop {
            let is_ours = !self.events.journal.was_changed();
            let began = is_ours && self.stop.is_none() && self.fill()?;
            if is_ours {
                self.launch()?;
            }
            self.store_items(false)?;
            self.print_lines()?;
            self.remove_spent();
            let is_awaited = self.ready.next_due().is_some() || self.awaits_inputs();
            let waits = !began && is_awaited && self.stop.is_none();
            if !self.children.is_empty() || (is_ours && waits) {
                self.wait()?;
            } else if !began || self.stop.is_some() {
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

    /// Prints what roots came to that have ended, once that is in the journal.
    fn print_lines(&mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        self.events.journal.flush()?;
        if self.events.journal.was_changed() {
            return Ok(());
        }
        self.table.erase();
        print_json(&std::mem::take(&mut self.lines))
    }

    fn stop_reason(&mut self) -> EngineStop {
        if let Some(stop) = self.stop {
            return EngineStop::Signal(stop);
        }
        let mut suspended: Vec<_> = std::mem::take(&mut self.suspended).into_values().collect();
        suspended.sort_by_cached_key(|(StepRef { key, .. }, why)| {
            let router = self.roots.get(&key.root);
            (
                why.need,
                key.root,
                router.and_then(|it| it.place_of(key.step)),
            )
        });
        // Recorded with the end of this start, so that a pause that nobody has seen is made again.
        for (step, _) in suspended.iter().filter(|(_, it)| it.need == Need::Look) {
            self.events.add_pause(step);
        }
        match suspended.is_empty() {
            true => EngineStop::Done,
            false => EngineStop::Suspended(suspended.into_iter().map(|(_, why)| why).collect()),
        }
    }

    /// Begins what can begin, until no more may run at once. New inputs are taken only when nothing of
    /// the old ones is ready. Where much is ready, some more is prepared than may run, so that one sync
    /// of the journal serves for many programs. Returns whether anything has begun.
    fn fill(&mut self) -> Result<bool> {
        self.ready.release(Instant::now());
        self.release_held();
        let jobs = self.options.jobs.max(1);
        if self.active.len() + self.prepared.len() >= jobs {
            return Ok(false);
        }
        let mut since_flush = 0;
        let mut began = false;
        loop {
            let at_work = self.active.len() + self.prepared.len();
            let Some(step) = self.ready.pop() else {
                if at_work >= jobs || !self.may_admit() || !self.admit()? {
                    break;
                }
                continue;
            };
            if let Some(group) = self.full_group(step.node) {
                self.ready.hold(step, group);
                continue;
            }
            // Such a step must not be recorded as begun before it is.
            let fails_on_resume = self.place.flow.nodes[step.node].on_resume == ResumePolicy::Fail;
            if at_work >= jobs && (at_work >= jobs * AHEAD || fails_on_resume) {
                self.ready.push_front(step);
                break;
            }
            self.begin(step)?;
            began = true;
            since_flush += 1;
            if since_flush == 1024 {
                self.events.journal.flush()?;
                since_flush = 0;
            }
            if since_flush % 64 == 0 && self.signals.stop().is_some() {
                self.stop = self.signals.stop();
                break;
            }
        }
        Ok(began)
    }

    /// Another input may be taken: not behind a failure, and not while many steps are held, so that inputs
    /// are not read faster than they can be worked on.
    fn may_admit(&self) -> bool {
        let has_room = |most: usize| self.roots.len() < most;
        self.failed.is_none()
            && self.options.queue.is_none_or(has_room)
            && self.ready.held() < self.options.jobs.max(1) * AHEAD
    }

    /// More inputs may come, and would be taken at once.
    fn awaits_inputs(&self) -> bool {
        self.inputs.is_open() && self.may_admit()
    }

    /// Makes as many steps ready as the limits that hold them have room for.
    fn release_held(&mut self) {
        for group in self.ready.holding() {
            let room = self.limits.room(group, self.nodes_at_work());
            self.ready.release_held(group, room);
        }
    }

    /// A limit that leaves no room for a step at a node.
    fn full_group(&self, node: NodeIx) -> Option<LimitGroup> {
        let mut groups = self.limits.groups_of(node).iter().copied();
        groups.find(|group| self.limits.room(*group, self.nodes_at_work()) == 0)
    }

    /// The node of each program that runs or is about to.
    fn nodes_at_work(&self) -> impl Iterator<Item = NodeIx> {
        let active = self.active.values();
        let prepared = self.prepared.iter().map(|waiting| &waiting.active);
        active.chain(prepared).map(|active| active.step.node)
    }

    /// Takes the next input. Returns whether there was one.
    fn admit(&mut self) -> Result<bool> {
        self.stop = self.signals.stop();
        if self.stop.is_some() {
            return Ok(false);
        }
        let Taken::Input(taken) = self.inputs.take()? else {
            return Ok(false);
        };
        let (run, number) = (&self.place.run.path, taken.number);
        let kept = events::keep_text(run, &events::input_name(number), &taken.payload)?;
        let router = Router::new(self.place.plan, number, taken.payload);
        self.roots.insert(number, router);
        if let Some(fault) = &taken.fault {
            self.faults.insert(number, fault.clone());
        }
        let fault = taken.fault;
        self.drain(number, Some(&RootInput { kept, fault }))?;
        Ok(true)
    }

    /// Does what a router wants. `input` is what a new root was given.
    fn drain(&mut self, number: usize, input: Option<&RootInput>) -> Result<()> {
        while let Some(router) = self.roots.get_mut(&number)
            && let Some(effect) = router.next_effect()
        {
            match effect {
                Effect::Start(step) => self.ready.push_back(step),
                Effect::Cancel(key) => self.cancel(key),
                Effect::Won(..) => {
                    self.events.add_effect(router, &effect, input);
                    self.events.journal.sync()?;
                }
                report => self.events.add_effect(router, &report, input),
            }
        }
        self.harvest(number);
        Ok(())
    }

    /// A root that is over makes room for others.
    fn harvest(&mut self, number: usize) {
        let router = self.roots.get(&number).filter(|router| router.is_over());
        let Some(router) = router else { return };
        let with_tasks = self.options.with_tasks;
        let finished = FinishedRoot::of(self.place.plan, number, router, with_tasks);
        if finished.succeeded() {
            self.remove_empty_dirs(router);
        }
        self.roots.remove(&number);
        self.faults.remove(&number);
        self.recall.forget(number);
        if self.options.prints_roots {
            let run_id = self.place.run.id.as_str();
            self.lines.extend_from_slice(&finished.line(run_id));
        }
        if finished.failed() && !self.options.keep_going {
            self.give_up_after(number);
        }
        self.tally.add(finished);
    }

    /// The router of a step that is still wanted.
    fn router(&self, key: StepKey) -> Option<&Router<'e>> {
        let router = self.roots.get(&key.root);
        router.filter(|router| router.is_wanted(key.step))
    }

    fn node_id(&self, step: &StepRef) -> &'e str {
        &self.place.flow.graph.nodes[step.node].id
    }

    fn suspend(&mut self, step: StepRef, need: Need, why: &str) {
        let name = format!("{} of {}", self.node_id(&step), step.task);
        let text = match need {
            Need::Look => name,
            Need::Answer => format!("{name} asks: {why}"),
            Need::Config | Need::Decision | Need::Time => format!("{name}: {why}"),
        };
        let reason = None;
        let why = SuspendedStep { need, text, reason };
        self.suspended.insert(step.key, (step, why));
    }
}
