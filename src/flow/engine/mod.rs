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
mod tell;
mod finish;
mod begin;
mod agents;
mod history;
mod remember;
mod wait;

use super::context::helper::HelperQuestion;
use super::context::recall::Recall;
use super::graph::choice::{Failure, Payload};
use super::graph::plan::RoutePlan;
use super::graph::router::{Effect, Router, StepIx};
use super::graph::topology::NodeIx;
use super::manifest::{Flow, ResumePolicy};
use super::record::attempt::{LinkedFiles, PreparedAttempt};
use super::record::events::{self, Output};
use super::record::tally::{FinishedRoot, Tally};
use super::view::progress_table::ProgressTable;
use crate::error::{Result, may_fail};
use crate::record::journal::Journal;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::unix::process::{Children, Token};
use crate::unix::procfs::{Signals, Stop};
use crate::unix::terminal::Screen;
use credentials::Credentials;
use inputs::Inputs;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tell::{about, told};

/// How a start of the engine is to behave.
#[allow(clippy::struct_excessive_bools)] // Each is a question of its own.
pub(crate) struct FlowOptions {
    /// So many programs at once.
    pub jobs: usize,
    /// Put before every program.
    pub launch: Vec<String>,
    /// Go on with other inputs after a failure.
    pub keep_going: bool,
    /// Nodes before which the run stops.
    pub pause_before: HashSet<NodeIx>,
    /// Where progress is told.
    pub screen: Screen,
    /// Whether what is told of each task is to be kept.
    pub with_tasks: bool,
    /// How long programs have between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Whether processes that carry this run's calls are this run's, and not those of a directory that
    /// it is a copy of.
    pub is_ours: bool,
    /// Whether the run goes on, rather than being told again.
    pub is_live: bool,
}

/// Where a run is.
pub(crate) struct RunPlace<'e> {
    /// The flow.
    pub flow: &'e Flow,
    /// Its graph, prepared for the start.
    pub plan: &'e RoutePlan<'e>,
    /// Where root tasks work.
    pub workspace: &'e Workspace,
    /// The run.
    pub run: RunDir,
    /// What the ids of its calls begin with.
    pub call_prefix: String,
    /// How deep the run is nested.
    pub depth: u32,
}

/// Why the loop has ended.
#[derive(Debug)]
pub(crate) enum EngineStop {
    /// Nothing is left to do.
    Done,
    /// A signal asked to end.
    Signal(Stop),
    /// Only steps are left before which the run was to stop: these.
    Paused(Vec<String>),
    /// Only steps are left that wait for a person: how to answer, a line for each.
    Waiting(Vec<String>),
    /// Only steps are left that can be resumed later: why, a line for each.
    Later(Vec<String>),
}

/// A root task that has not ended.
struct Root<'e> {
    router: Router<'e>,
}

/// A step, of which root.
type StepKey = (usize, StepIx);

/// An attempt that runs.
struct Active {
    which: StepKey,
    io: PathBuf,
    since: Instant,
    /// Set when it is ended because of this.
    doomed: Option<Failure>,
    /// Nobody wants it any more.
    cancelled: bool,
    /// It is no attempt yet: a program that is asked for what the node's context needs.
    asks: Option<HelperQuestion>,
}

/// An attempt that is prepared and whose beginning waits to be on disk.
struct Waiting {
    active: Active,
    prepared: PreparedAttempt,
    call_id: String,
    task: String,
    node: NodeIx,
    attempt: u32,
    /// Its beginning is on disk.
    is_recorded: bool,
}

/// What is known of the attempts at a step.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    /// So many have failed.
    failed: u32,
    /// The number of the last one that began.
    last: u32,
}

/// One start of the engine on one run.
pub(crate) struct FlowEngine<'e> {
    place: RunPlace<'e>,
    options: FlowOptions,
    journal: Journal,
    signals: &'e Signals,
    children: Children<'e>,
    inputs: Inputs,
    roots: BTreeMap<usize, Root<'e>>,
    ready: VecDeque<StepKey>,
    prepared: VecDeque<Waiting>,
    active: HashMap<Token, Active>,
    tries: HashMap<StepKey, Tries>,
    /// What the run remembers.
    recall: Recall,
    /// Records that are alike.
    alike: LinkedFiles,
    /// Under which name the outputs of steps are to be kept.
    keys: HashMap<StepKey, String>,
    /// The keys of providers.
    provider_keys: Credentials,
    /// Steps that must not begin in this start, and why.
    held: BTreeMap<StepKey, Suspension>,
    /// Steps that were running when an engine died, and must not run again.
    doomed: Vec<StepKey>,
    /// Pauses that are in the journal: the step begins the next time.
    passed: HashSet<StepKey>,
    /// The number of the first root that failed.
    failed: Option<usize>,
    /// What the ended roots came to.
    pub tally: Tally,
    stop: Option<Stop>,
    looked: Instant,
    /// What a person sees of it.
    table: ProgressTable,
}

/// Why a step does not begin, or did not end.
enum Suspension {
    Paused,
    Waiting(String),
    Later(String),
}

impl<'e> FlowEngine<'e> {
    /// Makes ready. The run's directory is there, its journal says that an engine has started.
    pub(crate) fn new(
        place: RunPlace<'e>,
        options: FlowOptions,
        journal: Journal,
        signals: &'e Signals,
        inputs: Inputs,
    ) -> Self {
        let mut children = Children::many(signals);
        children.set_grace(options.grace);
        Self {
            journal,
            signals,
            children,
            inputs,
            roots: BTreeMap::new(),
            ready: VecDeque::new(),
            prepared: VecDeque::new(),
            active: HashMap::new(),
            tries: HashMap::new(),
            recall: Recall::default(),
            alike: LinkedFiles::default(),
            keys: HashMap::new(),
            provider_keys: Credentials::new(place.flow),
            held: BTreeMap::new(),
            doomed: Vec::new(),
            passed: HashSet::new(),
            failed: None,
            tally: Tally::new(),
            stop: None,
            looked: Instant::now(),
            table: ProgressTable::new(options.screen),
            options,
            place,
        }
    }

    /// Works until nothing is left to do, or somebody wants the end. Whatever happens, no program is
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

    /// The journal, for whoever records how it ended, and what the roots came to, be it nothing yet.
    pub(crate) fn into_parts(mut self) -> (Journal, Tally, RunDir) {
        let with_tasks = self.options.with_tasks;
        for (number, root) in self.roots.iter().filter(|_| with_tasks) {
            let so_far = FinishedRoot::of(self.place.plan, *number, &root.router, with_tasks);
            self.tally.add(so_far);
        }
        (self.journal, self.tally, self.place.run)
    }

    fn work(&mut self) -> Result<EngineStop> {
        self.look_back()?;
        loop {
            let began = self.stop.is_none() && self.fill()?;
            self.launch()?;
            self.write_down(false)?;
            if !self.children.is_empty() {
                self.wait()?;
            } else if !began || self.stop.is_some() {
                break;
            }
        }
        self.journal.flush()?;
        Ok(self.stopped())
    }

    fn stopped(&mut self) -> EngineStop {
        if let Some(stop) = self.stop {
            return EngineStop::Signal(stop);
        }
        let (mut paused, mut waiting, mut later) = (Vec::new(), Vec::new(), Vec::new());
        let mut held: Vec<(StepKey, Suspension)> =
            std::mem::take(&mut self.held).into_iter().collect();
        held.sort_by_cached_key(|((number, step), _)| {
            let root = self.roots.get(number);
            (*number, root.and_then(|root| root.router.place_of(*step)))
        });
        let steps: Vec<StepKey> = held.iter().map(|(which, _)| *which).collect();
        for (which, held) in held {
            let Some((task, node)) = self.named(which) else {
                continue;
            };
            match held {
                Suspension::Paused => paused.push(format!("{node} of {task}")),
                Suspension::Waiting(how) => waiting.push(how),
                Suspension::Later(why) => later.push(format!("{node} of {task}: {why}")),
            }
        }
        if !later.is_empty() {
            EngineStop::Later(later)
        } else if !waiting.is_empty() {
            EngineStop::Waiting(waiting)
        } else if paused.is_empty() {
            EngineStop::Done
        } else {
            for which in steps {
                self.record_pause(which);
            }
            EngineStop::Paused(paused)
        }
    }

    /// Records before which step the run stops. It is recorded with the end of this start, so that a
    /// pause that nobody has been told of is made again.
    fn record_pause(&mut self, which: StepKey) {
        let graph = &self.place.flow.graph;
        if let Some(root) = self.roots.get(&which.0)
            && let Some(step) = about(&root.router, which.1)
        {
            events::paused(&mut self.journal, graph, step);
        }
    }

    /// Begins what can begin, until no more may run at once. New inputs are taken only when nothing of
    /// the old ones is ready. Where much is ready, some more is prepared than may run, so that one sync
    /// of the journal serves for many programs. Returns whether anything has begun.
    fn fill(&mut self) -> Result<bool> {
        const AHEAD: usize = 4;
        let jobs = self.options.jobs.max(1);
        if self.active.len() + self.prepared.len() >= jobs {
            return Ok(false);
        }
        let mut began = false;
        let mut since_flush = 0;
        loop {
            let at_work = self.active.len() + self.prepared.len();
            let Some(which) = self.ready.pop_front() else {
                if at_work >= jobs || self.failed.is_some() || !self.admit()? {
                    break;
                }
                continue;
            };
            let may_wait = at_work < jobs * AHEAD && !self.fails_on_resume(which);
            if at_work >= jobs && !may_wait {
                self.ready.push_front(which);
                break;
            }
            self.begin(which)?;
            began = true;
            since_flush += 1;
            if since_flush == 1024 {
                self.journal.flush()?;
                since_flush = 0;
            }
            if since_flush % 64 == 0 && self.signals.stop().is_some() {
                self.stop = self.signals.stop();
                break;
            }
        }
        Ok(began)
    }

    /// Whether a step must not be recorded as begun before it is.
    fn fails_on_resume(&self, (number, step): StepKey) -> bool {
        let step = self.roots.get(&number).and_then(|it| it.router.get(step));
        step.is_some_and(|it| self.place.flow.nodes[it.node].on_resume == ResumePolicy::Fail)
    }

    /// Takes the next input. Whether there was one.
    fn admit(&mut self) -> Result<bool> {
        self.stop = self.signals.stop();
        if self.stop.is_some() {
            return Ok(false);
        }
        let Some((number, input)) = self.inputs.take()? else {
            return Ok(false);
        };
        let id = format!("T{number}");
        let name = events::input_name(number);
        let kept = events::kept(&self.place.run.path, &name, &input)?;
        self.add_root(number, &id, input);
        self.drain(number, Some(&kept));
        Ok(true)
    }

    fn add_root(&mut self, number: usize, id: &str, input: Payload) {
        let router = Router::new(self.place.plan, id, number - 1, input);
        self.roots.insert(number, Root { router });
    }

    /// Does what a router wants. `input` is what a new root was given.
    fn drain(&mut self, number: usize, input: Option<&Output>) {
        let graph = &self.place.flow.graph;
        loop {
            let Some(root) = self.roots.get_mut(&number) else {
                return;
            };
            let Some(effect) = root.router.next_effect() else {
                break;
            };
            match effect {
                Effect::Start(step) => self.ready.push_back((number, step)),
                Effect::Cancel(step) => self.cancel((number, step)),
                other => told(&mut self.journal, graph, &root.router, &other, input),
            }
        }
        self.harvest(number);
    }

    /// A root that is over makes room for others.
    fn harvest(&mut self, number: usize) {
        let over = self
            .roots
            .get(&number)
            .is_some_and(|it| it.router.is_over());
        if !over {
            return;
        }
        if let Some(root) = self.roots.remove(&number) {
            self.recall.forget(number);
            let finished = FinishedRoot::of(
                self.place.plan,
                number,
                &root.router,
                self.options.with_tasks,
            );
            if finished.failed() && !self.options.keep_going {
                self.give_up_after(number);
            }
            self.tally.add(finished);
        }
    }

    /// The ids of a step's task and node.
    fn named(&self, (number, step): StepKey) -> Option<(&str, &str)> {
        let router = &self.roots.get(&number)?.router;
        let step = router.get(step)?;
        let node = &self.place.flow.graph.nodes[step.node].id;
        Some((router.id(step.task), node))
    }
}
