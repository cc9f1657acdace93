//! Old runs, removed: which may go, and how one goes.
//!
//! Prints nothing. A run that another one has started is removed only when that one has ended, too: until
//! then it may be asked for its result, and would do its work a second time.
//!
//! Architecture invariant: a kill between any two steps leaves a run that has ended and can be shown and removed, or
//! no run.

use super::inspect::read_summary;
use super::origin::foreign_reason;
use super::survey::{Found, FoundRun, REMOVED, visit_runs};
use crate::error::{At, Error, Result};
use crate::file_states::store::{Store, Use};
use crate::record::journal::Journal;
use crate::record::metadata::{self, Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::spending;
use crate::record::state::{self, Reading};
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::order::sort_by;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::origin::ORIGIN;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use crate::unix::trees::{check_removable, remove_all, room_of};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Files that stay with the journal.
const KEPT: [&str; 4] = ["journal.jsonl", "metadata.json", ORIGIN, spending::FILE];

/// No engine nests deeper by default, and no cycle of forged parents is followed longer.
const DEEPEST: usize = 64;

/// Which runs go, and how much of them.
#[derive(Debug)]
pub(crate) struct PruneRules {
    /// Latest end of a run that goes. None: only the named runs go, and those that they have started, however they ended.
    pub ended_before: Option<Timestamp>,
    /// Empty: however they ended.
    pub statuses: Vec<Status>,
    pub named: Vec<RunDir>,
    pub keep_journal: bool,
}

/// The runs to remove.
#[derive(Debug, Default)]
pub(crate) struct PrunePlan {
    /// Runs, each after those that it has started.
    pub runs: Vec<RunDir>,
    pub kept: KeptRuns,
    /// The remains of runs whose removal was interrupted.
    remains: Vec<PathBuf>,
}

/// Numbers of runs that stay for other reasons than the rules.
#[derive(Debug, Default)]
pub(crate) struct KeptRuns {
    /// Live, interrupted or waiting, or with a journal that cannot be read.
    pub unfinished: usize,
    pub foreign: usize,
    /// Part of a run that has not ended.
    pub needed: usize,
    /// Part of a run that is nowhere below the directories.
    pub parentless: usize,
}

/// A run that is one's own.
struct Member {
    run: RunDir,
    parent: Option<String>,
    status: Status,
    /// None: it has not ended.
    ended_at: Option<Timestamp>,
}

/// All runs that are one's own. Each is judged once, however many are called the same.
struct Family<'m> {
    members: &'m [Member],
    rules: &'m PruneRules,
    /// By workspace and name.
    by_place: HashMap<(Option<&'m Path>, &'m str), usize>,
    by_name: HashMap<&'m str, Vec<usize>>,
    judged: Vec<Option<Fate>>,
    judged_names: HashMap<&'m str, Fate>,
}

/// The fate of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Removed, after those that it has started; the number of runs around it.
    Goes(usize),
    Unfinished,
    /// The rules keep it.
    Excepted,
    Needed,
    Parentless,
}

/// The workspace in which the removal of a run was interrupted when it had no name any more, if that is so.
pub(crate) fn workspace_of_remains(work_dir: &Path, run: &str) -> Option<PathBuf> {
    let path = if run.contains('/') {
        PathBuf::from(run)
    } else {
        Workspace::at(work_dir).ok()?.control.join(run)
    };
    let name = format!("{REMOVED}{}", path.file_name()?.to_str()?);
    let remains = path.with_file_name(name).symlink_metadata().ok()?;
    let root = path.parent()?.parent()?;
    root.canonicalize().ok().filter(|_| remains.is_dir())
}

/// Finds out what the rules remove below directories. Nothing is changed.
///
/// # Errors
/// A directory is not there, or a run that was named is live or came from elsewhere.
pub(crate) fn plan(dirs: &[PathBuf], rules: &PruneRules) -> Result<PrunePlan> {
    let (mut plan, mut members) = (PrunePlan::default(), Vec::new());
    visit_runs(dirs, &mut |found| {
        match found {
            Found::Removed(path) => plan.remains.push(path),
            Found::Run(FoundRun {
                run,
                foreign: Some(reason),
                ..
            }) if rules.named.contains(&run) => {
                let message = format!("run {} came from elsewhere, and stays: {reason}", run.id);
                return Err(Error::failure(message));
            }
            Found::Run(found) if found.foreign.is_some() => plan.kept.foreign += 1,
            Found::Run(FoundRun { run, .. }) => members.push(Member::of(run)),
        }
        Ok(())
    })?;
    let mut family = Family::of(&members, rules);
    let mut going = Vec::new();
    for (at, member) in members.iter().enumerate() {
        match family.judge(at, 0) {
            Fate::Goes(depth) => going.push((depth, &member.run)),
            Fate::Unfinished => plan.kept.unfinished += 1,
            Fate::Excepted => {}
            Fate::Needed => plan.kept.needed += 1,
            Fate::Parentless => plan.kept.parentless += 1,
        }
    }
    sort_by(&mut going, |a, b| (b.0, a.1).cmp(&(a.0, b.1)));
    plan.runs = going.into_iter().map(|(_, run)| run.clone()).collect();
    if rules.ended_before.is_none() {
        plan.kept = KeptRuns::default();
    }
    if rules.ended_before.is_none() {
        for run in &plan.runs {
            if Journal::open(&run.journal())?.is_none() {
                let message = format!("run {} is live: nothing was removed", run.id);
                return Err(Error::failure(message));
            }
        }
    }
    if let Some(run) = rules.named.iter().find(|run| !plan.runs.contains(run)) {
        let shown = run.path.display();
        return Err(Error::failure(format!(
            "{shown} is not in the .delta of a workspace: it stays"
        )));
    }
    Ok(plan)
}

impl Member {
    fn of(run: RunDir) -> Self {
        let (metadata, error) = read_summary(&run);
        let ended_at = end_of(&metadata).filter(|_| error.is_none());
        Self {
            run,
            parent: metadata.parent_run_id,
            status: metadata.status,
            ended_at,
        }
    }
}

impl<'m> Family<'m> {
    fn of(members: &'m [Member], rules: &'m PruneRules) -> Self {
        let (mut by_place, mut by_name) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (at, member) in members.iter().enumerate() {
            let id = member.run.id.as_str();
            by_name.entry(id).or_default().push(at);
            by_place.insert((member.run.workspace(), id), at);
        }
        Self {
            members,
            rules,
            by_place,
            by_name,
            judged: vec![None; members.len()],
            judged_names: HashMap::new(),
        }
    }

    fn judge(&mut self, at: usize, depth: usize) -> Fate {
        if let Some(verdict) = self.judged[at] {
            return verdict;
        }
        // A run that is its own ancestor is kept.
        self.judged[at] = Some(Fate::Needed);
        let verdict = self.verdict(&self.members[at], depth);
        self.judged[at] = Some(verdict);
        verdict
    }

    fn verdict(&mut self, member: &'m Member, depth: usize) -> Fate {
        let rules = self.rules;
        if rules.named.contains(&member.run) {
            return Fate::Goes(0);
        }
        if member.ended_at.is_none() && rules.ended_before.is_some() {
            return Fate::Unfinished;
        }
        let Some(parent) = member.parent.as_deref() else {
            let statuses = &rules.statuses;
            let is_meant = statuses.is_empty() || statuses.contains(&member.status);
            let is_old = rules.ended_before.is_some() && member.ended_at <= rules.ended_before;
            return if is_meant && is_old {
                Fate::Goes(0)
            } else {
                Fate::Excepted
            };
        };
        if depth == DEEPEST {
            return Fate::Needed;
        }
        // Runs in different places may have one name: the one around this workspace, or else all of them.
        let root = member.run.workspace().into_iter();
        let itself = usize::from(parent == member.run.id.as_str());
        let mut dirs = root.flat_map(Path::ancestors).skip(itself);
        let around = dirs.find_map(|root| self.by_place.get(&(Some(root), parent)));
        let of_parents = match around {
            Some(at) => self.judge(*at, depth + 1),
            None => self.judge_name(parent, depth + 1),
        };
        match of_parents {
            Fate::Goes(above) => Fate::Goes(above + 1),
            Fate::Unfinished => Fate::Needed,
            other => other,
        }
    }

    /// The verdict on all runs of a name: the first that lets one of them stay.
    fn judge_name(&mut self, name: &'m str, depth: usize) -> Fate {
        if let Some(verdict) = self.judged_names.get(name) {
            return *verdict;
        }
        self.judged_names.insert(name, Fate::Needed);
        let mut found = Fate::Parentless;
        for at in self.by_name.get(name).cloned().into_iter().flatten() {
            found = self.judge(at, depth);
            if !matches!(found, Fate::Goes(_)) {
                break;
            }
        }
        self.judged_names.insert(name, found);
        found
    }
}

/// End of a run, if it has ended.
fn end_of(metadata: &Metadata) -> Option<Timestamp> {
    let end = metadata.end_time.as_deref().and_then(Timestamp::parse);
    end.filter(|_| metadata.has_ended())
}

impl PruneRules {
    /// Bytes of the disk that a run's removal gives back.
    pub(crate) fn room(&self, run: &RunDir) -> u64 {
        let entries = fs::read_dir(&run.path).into_iter().flatten().flatten();
        let going = entries.filter(|entry| {
            let is_kept = KEPT.iter().any(|kept| entry.file_name() == *kept);
            !(self.keep_journal && is_kept)
        });
        going.map(|entry| room_of(&entry.path())).sum()
    }

    /// Removes a run, if it is still as it was when the plan was made. Returns whether it was.
    ///
    /// # Errors
    /// A signal came, or something cannot be removed.
    pub(crate) fn remove(&self, run: &RunDir, signals: &Signals) -> Result<bool> {
        let Some(root) = run.workspace() else {
            return Ok(false);
        };
        let workspace = Workspace::at(root)?;
        let lock = workspace.lock(signals, None)?;
        let is_own = |dir: &Path| Ok::<_, Error>(foreign_reason(dir)?.is_none());
        if !run.path.is_dir() || !is_own(&workspace.control)? || !is_own(&run.path)? {
            return Ok(false);
        }
        let Some(journal) = Journal::open(&run.journal())? else {
            return Ok(false);
        };
        if let Some(before) = self.ended_before
            && end_in(run, &journal)?.is_none_or(|end| end > before)
        {
            return Ok(false);
        }
        check_removable(&run.path)?;
        let removed = workspace.control.join(format!("{REMOVED}{}", run.id));
        check_removable(&removed)?;
        for name in files::names(&run.path)? {
            if !KEPT.contains(&name.as_str()) {
                remove_all(&run.path.join(name))?;
            }
        }
        if self.keep_journal {
            return Ok(true);
        }
        remove_all(&removed)?;
        fs::rename(&run.path, &removed).at("remove", &run.path)?;
        match workspace.newest()? {
            Some(newest) => workspace.mend_latest(&newest)?,
            None => files::remove(&workspace.control.join("LATEST"))?,
        }
        drop(lock);
        remove_all(&removed).map(|()| true)
    }
}

impl PrunePlan {
    /// Removes what a killed process left of runs that it was removing.
    pub(crate) fn remove_remains(&self) {
        for path in &self.remains {
            if let Err(error) = check_removable(path).and_then(|()| remove_all(path)) {
                Screen::new(false, false).warn(&format!("warning: {error}"));
            }
        }
    }
}

/// Removes the files of the steps of these runs, and of those that a killed process has removed. Returns how many bytes that
/// gives back.
///
/// # Errors
/// States are being taken all the time, git fails, or the store is not to be used.
pub(crate) fn sweep_states(root: &Path, removed: &[RunId]) -> Result<u64> {
    let workspace = Workspace::at(root)?;
    let Some(store) = Store::open(&workspace, Use::Alone)? else {
        return Ok(0);
    };
    let before = room_of(&store.path);
    store.sweep(&workspace, removed)?;
    Ok(before.saturating_sub(room_of(&store.path)))
}

/// End of a run without an engine by its journal, if it was also reported.
fn end_in(run: &RunDir, journal: &Journal) -> Result<Option<Timestamp>> {
    let mut bytes = Vec::new();
    journal.read_into(&mut bytes)?;
    let Ok(state) = state::read(&bytes, Reading::all(false)) else {
        return Ok(None);
    };
    let recorded = metadata::read_or_empty(&run.path);
    if recorded.status == Status::Running {
        return Ok(None);
    }
    let mut metadata = recorded;
    metadata.correct(&state);
    Ok(end_of(&metadata))
}
