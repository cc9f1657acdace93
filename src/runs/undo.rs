//! Files of a workspace put back to what they were before an iteration of a run, or after one.
//!
//! Architecture invariant: what is there is in a state before anything changes. Killed at any point, the same command goes on.

use super::find::{newest_conversation, open_workspace};
use super::inspect::{inspect_run, is_live};
use super::open::take_over;
use super::origin::require_own_run;
use crate::engine::inbox;
use crate::error::{Error, Exit, Result, ignore};
use crate::file_states::put_back::{Plan, States};
use crate::file_states::snapshot::{Order, Taken, take};
use crate::file_states::step::states_of;
use crate::file_states::store::{Store, TAKEN_OUT, Use, locked};
use crate::record::event::FilesReason;
use crate::record::journal::Journal;
use crate::record::metadata;
use crate::record::reader::tail;
use crate::record::recording::unreadable;
use crate::record::run_dir::RunDir;
use crate::record::state::{self, FileState, FileStates, Reading, Run};
use crate::record::workspace::Workspace;
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::order;
use crate::text::shorten::{MOST_LISTED, list_names};
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::trees::remove_all;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// A state to return to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// The one before the last iteration that changed files.
    Before,
    /// The one after an iteration.
    After(u64),
    /// The one of this number, of any kind.
    Numbered(u64),
}

impl Target {
    /// Reads `N`, an iteration, or `sN`, the number of a state.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('s') {
            Some(number) => number.parse().ok().map(Self::Numbered),
            None => text.parse().ok().map(Self::After),
        }
    }
}

/// What is wanted.
#[derive(Debug)]
pub(crate) struct UndoRequest {
    pub to: Target,
    pub force: bool,
    /// Nothing is changed.
    pub is_preview: bool,
}

/// What was done, or is to be done.
pub(crate) struct Undone {
    /// The files; false: they are removed.
    pub files: BTreeMap<PathBuf, bool>,
    /// Those that could not be changed, with the reasons.
    pub failed: BTreeMap<PathBuf, String>,
    /// The reason why it is not recorded that files have changed.
    pub unrecorded: Option<Error>,
    /// The state that they have, in words.
    pub state: String,
    /// What the model is told of it.
    message: String,
    /// An iteration before it after which files were kept, if none was named.
    pub earlier: Option<u64>,
    /// The number of the state that takes back what the last command has done; none: there was none.
    pub before: Option<u64>,
    /// What no state has, in words; empty: nothing.
    pub left_out: String,
}

/// The newest run of an agent that is no part of another one, of those of which an iteration has changed files.
pub(crate) fn newest_with_changes(work_dir: &Path) -> Result<RunDir> {
    let workspace = open_workspace(work_dir)?;
    let runs = workspace.runs()?;
    let mut all = runs.iter().map(|id| workspace.created_at(id)).collect();
    order::sort(&mut all);
    let mut newest = all.iter().rev().map(|(_, id)| RunDir::of(&workspace, id));
    let is_meant = |run: &RunDir| {
        metadata::read(&run.path).is_some_and(|it| it.is_conversation())
            && states_of(run).is_ok_and(|states| states.has_changes())
    };
    // Of another one, it is said what it lacks.
    newest
        .find(is_meant)
        .map_or_else(|| newest_conversation(work_dir), Ok)
}

/// Puts files back.
///
/// # Errors
/// A run is live in the workspace, or the run has no such state, or files are in the way: then nothing has been changed.
pub(crate) fn undo(run: &RunDir, wanted: &UndoRequest, signals: &Signals) -> Result<Undone> {
    let workspace = &Workspace::at(run.workspace().unwrap_or(&run.path))?;
    require_own_run(run, false)?;
    let _lock = workspace.lock(signals, None)?;
    let mut keeper = Keeper::of(run, workspace, signals)?;
    let opened = Store::open(workspace, Use::Shared)?;
    let Some(store) = opened.filter(|_| !keeper.states.all.is_empty()) else {
        let id = &run.id;
        return Err(Error::failure(format!(
            "run {id} has kept no files; with `files: git` in agent.yaml, a run does"
        )));
    };
    if let Some(iteration) = keeper.states.unstated {
        // The engine has died.
        let taken = taken(&keeper.order, signals)?;
        keeper.add(taken, FilesReason::Iteration, iteration);
    }
    let (from, to) = keeper.choose(wanted.to)?;
    let (last, number) = (keeper.last(), keeper.number());
    let there = taken(&keeper.order, signals)?;
    let states = States {
        from: &from,
        to: &to.commit,
        last: &last,
        now: there.commit.as_ref().unwrap_or(&last),
        own: &keeper.states.own().collect::<Vec<_>>(),
        since: to
            .at
            .map(|at| UNIX_EPOCH + at.minus(TICK).since(Timestamp::from_millis(0))),
    };
    let plan = Plan::make(&store, &workspace.root, &states, wanted.force)?;
    if !plan.in_the_way.is_empty() {
        return Err(in_the_way(&plan));
    }
    let goes_on = plan.files.len() > plan.changes.len();
    // One that somebody has changed files after has nothing to do with it.
    let is_meant = |n: &u64| *n != to.n && (goes_on || there.commit.is_none());
    let first = keeper.first_of_killed().filter(is_meant);
    let mut undone = Undone {
        files: plan.files.clone(),
        failed: BTreeMap::new(),
        unrecorded: None,
        state: in_words(&to, wanted.to),
        message: message(&to, wanted.to),
        earlier: keeper.earlier(&to, wanted.to),
        before: first.or_else(|| {
            if goes_on {
                Some(number)
            } else {
                keeper.states.before_undo()
            }
        }),
        left_out: there.left_out.clone(),
    };
    let why = if goes_on {
        FilesReason::Undo
    } else {
        FilesReason::Outside
    };
    keeper.add(there, why, keeper.iteration);
    if wanted.is_preview || undone.files.is_empty() {
        return Ok(undone);
    }
    keeper.put_back(&plan, &store, &to.commit, first, &mut undone)?;
    Ok(undone)
}

/// How much the clock of a file system may lag behind.
const TICK: Duration = Duration::from_millis(20);

/// Takes states of a run that this process owns.
struct Keeper<'k> {
    run: &'k RunDir,
    signals: &'k Signals,
    journal: Journal,
    states: FileStates,
    order: Order,
    iteration: u64,
    workspace: &'k Workspace,
}

impl<'k> Keeper<'k> {
    /// For a run of a workspace in which none can begin.
    fn of(run: &'k RunDir, workspace: &'k Workspace, signals: &'k Signals) -> Result<Self> {
        for id in workspace.runs()? {
            if is_live(&RunDir::of(workspace, &id)) {
                let text = format!("run {id} is live; files are put back when it has ended");
                return Err(Error::new(Exit::TempFail, text));
            }
        }
        let (mut journal, mut record) = take_over(&mut inspect_run(run)?)?;
        journal.mend_tail(&tail(&record))?;
        journal.read_into(&mut record)?;
        let mut state = state::read(&record, Reading::all(false))
            .map_err(|error| unreadable(&error, &run.journal()))?;
        journal.continue_after(state.seq);
        Ok(Self {
            run,
            signals,
            journal,
            order: order(run, &state, &workspace.root),
            iteration: state.iterations,
            states: std::mem::take(&mut state.file_states),
            workspace,
        })
    }

    fn number(&self) -> u64 {
        self.states.all.last().map_or(0, |last| last.n)
    }

    /// The commit of the last state.
    fn last(&self) -> String {
        self.order.last.clone().unwrap_or_default()
    }

    /// The commit of the state from which files are put back, and the state to return to.
    fn choose(&self, to: Target) -> Result<(String, FileState)> {
        let all = &self.states.all;
        let last = |to| all.last().zip(to);
        let pair = match to {
            Target::After(iteration) if iteration > self.iteration => None,
            Target::After(iteration) => last(self.states.after(iteration)),
            Target::Numbered(n) => last(all.iter().rfind(|state| state.n == n)),
            Target::Before => {
                let mut pairs = all.windows(2).rev();
                let found = pairs.find(|pair| pair[1].why == FilesReason::Iteration);
                found.map(|pair| (&pair[1], &pair[0]))
            }
        };
        let lack = || {
            let (id, first) = (&self.run.id, all.first().map_or(0, |it| it.iteration));
            Error::failure(match to {
                Target::After(n) => {
                    let last = self.iteration;
                    format!(
                        "run {id} has no files after iteration {n}: it has kept those after {first} to {last}"
                    )
                }
                Target::Numbered(n) => {
                    let last = self.number();
                    format!("run {id} has no state s{n} of its files: its states are s1 to s{last}")
                }
                Target::Before => {
                    format!(
                        "no iteration of run {id} has changed files; name a run of which one has"
                    )
                }
            })
        };
        let (from, to) = pair.ok_or_else(lack)?;
        Ok((from.commit.clone(), to.clone()))
    }

    /// The last iteration before a state after which files were kept; none if the state was named.
    fn earlier(&self, than: &FileState, wanted: Target) -> Option<u64> {
        let is_meant = |state: &&FileState| state.why.is_own() && state.iteration < than.iteration;
        let found = self.states.all.iter().rfind(is_meant);
        found
            .filter(|_| matches!(wanted, Target::Before))
            .map(|state| state.iteration)
    }

    /// The number of the state that a killed command took first, if nothing but files put back has followed.
    fn first_of_killed(&self) -> Option<u64> {
        let names = files::names(&self.workspace.control.join(TAKEN_OUT)).ok()?;
        let mut newest = self.states.all.iter().rev();
        let found = newest.find(|it| it.why != FilesReason::Undo || names.contains(&it.commit))?;
        names.contains(&found.commit).then_some(found.n)
    }

    /// Adds a state that differs from the last one. It waits to be recorded.
    fn add(&mut self, taken: Taken, why: FilesReason, iteration: u64) {
        let Taken {
            commit: Some(commit),
            changes,
            ..
        } = taken
        else {
            return;
        };
        let n = self.number() + 1;
        let event = changes.event(n, why, &commit);
        self.journal.add(iteration, &event);
        self.order.last = Some(commit.clone());
        self.states.all.push(FileState {
            n,
            why,
            iteration,
            commit,
            at: None,
        });
    }

    /// Tells the model which of the files were put back, if any were. Names are JSON strings, so that none is read as words
    /// of the person.
    fn tell(
        &self,
        number: u64,
        undone: &Undone,
        is_meant: impl Fn(&PathBuf) -> bool,
    ) -> Result<()> {
        let files = undone.files.iter().filter(|(path, _)| is_meant(path));
        let (there, removed): (Vec<_>, Vec<_>) = files.partition(|(_, is_there)| **is_there);
        let mut text = undone.message.clone();
        for (what, files) in [("As they were then", &there), ("Removed", &removed)] {
            let paths = files.iter().map(|(path, _)| path.to_string_lossy());
            let names = paths.map(|path| json::text(&path));
            if !files.is_empty() {
                text += &format!(" {what}: {}.", list_names(names));
            }
        }
        if there.len() + removed.len() == 0 {
            return Ok(());
        }
        inbox::put(self.run, &format!("undo_{number}"), &text).map(drop)
    }

    /// Changes the files, tells the model and records what has changed. `first`: as in [`Self::carry_out`].
    fn put_back(
        &mut self,
        plan: &Plan,
        store: &Store,
        to: &str,
        first: Option<u64>,
        undone: &mut Undone,
    ) -> Result<()> {
        self.workspace.raise_layout()?;
        let Some(_held) = inbox::hold(self.run)? else {
            let text = format!("another process writes to run {}; try again", self.run.id);
            return Err(Error::new(Exit::TempFail, text));
        };
        // What a killed command has put back is told before the journal says that it is as it is.
        let changes = |path: &PathBuf| plan.changes.contains_key(path);
        self.tell(self.number(), undone, |path| !changes(path))?;
        self.journal.sync()?;
        if plan.changes.is_empty() {
            return Ok(());
        }
        undone.failed = self.carry_out(plan, store, to, first)?;
        let failed = &undone.failed;
        undone.files.retain(|path, _| !failed.contains_key(path));
        // The same name again if this process is killed before it has recorded the state.
        let told = self.tell(self.number() + 1, undone, changes);
        let recorded = told.and_then(|()| taken(&self.order, self.signals));
        let recorded = recorded.map(|taken| self.add(taken, FilesReason::Undo, self.iteration));
        undone.unrecorded = recorded.and_then(|()| self.journal.sync()).err();
        undone.before = first.or_else(|| self.states.before_undo());
        Ok(())
    }

    /// Changes the files, and returns those that could not be. `first`: the number of the state that a killed command took
    /// first.
    fn carry_out(
        &self,
        plan: &Plan,
        store: &Store,
        to: &str,
        first: Option<u64>,
    ) -> Result<BTreeMap<PathBuf, String>> {
        // The git of a killed command has it, too.
        let _lock = locked(&store.path.join("undo.lock"), Use::Alone)?;
        let (now, taken_out) = (self.last(), self.workspace.control.join(TAKEN_OUT));
        let mut all = self.states.all.iter();
        let first = first.and_then(|n| all.find(|state| state.n == n));
        // By its name, the next command finds that state if this one is killed.
        let new = taken_out.join(first.map_or(&now, |state| &state.commit));
        let not = |why: Error| Error {
            message: format!(
                "run {}: nothing was put back: {}; mend that and repeat the command",
                self.run.id, why.message
            ),
            ..why
        };
        remove_all(&taken_out).map_err(not)?;
        files::make_dir(&taken_out).map_err(not)?;
        files::make_dir(&new).map_err(not)?;
        store.bring(&new, Some(&now), to).map_err(not)?;
        // What is written after this is not in the state, or seen.
        let stamps = plan.stamps(&self.workspace.root);
        if taken(&self.order, self.signals)?.commit.is_some() {
            remove_all(&taken_out)?;
            let id = &self.run.id;
            let text =
                format!("run {id}: files are changing, and none was put back; repeat the command");
            return Err(Error::failure(text));
        }
        let failed = plan.carry_out(&self.workspace.root, &new, &stamps);
        // If it stays, the next command removes it.
        ignore(remove_all(&taken_out));
        Ok(failed)
    }
}

/// The state that is ordered.
pub(super) fn taken(order: &Order, signals: &Signals) -> Result<Taken> {
    let why = match (take(signals, order), signals.stop()) {
        (Ok(Some(taken)), _) => return Ok(taken),
        (_, Some(stop)) => return Err(Error::new(stop.into(), stop.name())),
        (Ok(None), None) => Error::failure("its process was ended"),
        (Err(why), None) => why,
    };
    Err(Error {
        message: format!(
            "run {}: the files as they are now cannot be kept: {}; mend that and repeat the command",
            order.run_id, why.message
        ),
        ..why
    })
}

/// An order for the next state of a run, from its record.
pub(super) fn order(run: &RunDir, state: &Run<'_>, root: &Path) -> Order {
    #[derive(Deserialize)]
    struct Wrapped {
        wrapper: Option<Vec<String>>,
    }
    let config = state.start.config();
    let tools: Vec<Wrapped> = config.get("tools").read().unwrap_or_default();
    let wrappers = tools.into_iter().map(|tool| tool.wrapper);
    let wrappers = wrappers.chain([config.get("wrapper").read()]).flatten();
    let root_text = root.to_string_lossy();
    let place = |word: String| {
        word.replace("${CWD}", &root_text)
            .replace("${AGENT_HOME}", &state.start.agent_home)
    };
    Order {
        root: root.to_owned(),
        run_id: run.id.to_string(),
        last: state.file_states.all.last().map(|last| last.commit.clone()),
        subject: format!("[{}] undo", state.iterations),
        wrappers: wrappers
            .map(|words: Vec<String>| words.into_iter().map(place).collect())
            .collect(),
        ..Order::default()
    }
}

/// What a state is, for a person, who is told of the iteration that was named.
fn in_words(state: &FileState, wanted: Target) -> String {
    match wanted {
        Target::Numbered(n) => format!("in state s{n}"),
        Target::After(n) => format!("after iteration {n}"),
        Target::Before => format!("after iteration {}", state.iteration),
    }
}

/// What the model is told of a state. It knows no numbers of states.
fn message(state: &FileState, wanted: Target) -> String {
    let what = match wanted {
        Target::Numbered(_) if !state.why.is_own() => "an earlier state".to_owned(),
        Target::Numbered(_) => format!("their state {}", in_words(state, Target::Before)),
        _ => format!("their state {}", in_words(state, wanted)),
    };
    format!("I have put files back to {what}.")
}

fn in_the_way(plan: &Plan) -> Error {
    let each = plan.in_the_way.iter().take(MOST_LISTED);
    let each =
        each.map(|(path, why)| format!("\n  {}: {why}", printable_line(&path.to_string_lossy())));
    let mut named = each.collect::<Vec<_>>().concat();
    let more = plan.in_the_way.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        named += &format!("\n  and {more} more");
    }
    let way_out = if plan.yields_to_force() {
        "; `delta undo --force` overwrites those that have changed or are older"
    } else {
        "; move them away"
    };
    Error::failure(format!(
        "nothing was put back, because of these files{way_out}:{named}"
    ))
}
