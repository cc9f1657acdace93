//! The runs that the tools or the nodes of a run have started, found by the parent in their metadata
//! and reported when the call that started them has ended.
//!
//! Unaware of what happened in them. The actions of a run follow each other, so that a span of time shows
//! which one started a run; the nodes of a workflow run at once, and the recorded call shows it. A sub-agent
//! whose workspace is outside that of its parent is found if the command that started it names the place.

mod places;

use crate::record::event::{Line, Recorded};
use crate::record::metadata;
use crate::record::run_dir::RunDir;
use crate::text::ids::RunId;
use crate::text::order::sort_by;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use places::named_in;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How many directories deep a sub-agent's workspace is looked for.
const DEPTH: usize = 5;

/// As many directories are looked at: a workspace may hold a file system's worth of them.
const MOST: usize = 20_000;

/// Runs within runs are read down to this depth; no engine nests deeper by default.
pub(crate) const DEEPEST: usize = 8;

/// Runs that have a parent.
#[derive(Debug)]
struct Subruns {
    list: Vec<Subrun>,
    /// Places in the list, by the parent.
    by_parent: HashMap<String, Vec<usize>>,
    /// Places in the list, by the call and by each call around it.
    by_call: HashMap<String, Vec<usize>>,
    /// The workspaces that have been looked at and have runs.
    places: HashSet<PathBuf>,
    /// Time when they were looked for: later ones are not among them.
    looked_at: Timestamp,
}

#[derive(Debug)]
struct Subrun {
    run: RunDir,
    parent: String,
    /// A call of the parent, or one below it.
    call: Option<String>,
    created_at: Timestamp,
}

impl Subruns {
    /// The runs in a workspace and in the directories below it.
    fn below(workspace: &Path) -> Self {
        let looked_at = Timestamp::now();
        let mut list = Vec::new();
        let mut places = HashSet::new();
        let mut pending = vec![(workspace.to_owned(), 0)];
        let mut left = MOST;
        while let Some((dir, depth)) = pending.pop() {
            let before = list.len();
            children_in(&dir.join(".delta"), &mut list);
            if list.len() > before {
                places.insert(dir.clone());
            }
            if depth == DEPTH {
                continue;
            }
            for dir in directories(&dir) {
                if left == 0 {
                    break;
                }
                left -= 1;
                pending.push((dir, depth + 1));
            }
        }
        let mut children = Self {
            list,
            by_parent: HashMap::new(),
            by_call: HashMap::new(),
            places,
            looked_at,
        };
        children.arrange();
        children
    }

    /// Puts the list in order, and finds out which calls its runs belong to.
    fn arrange(&mut self) {
        sort_by(&mut self.list, |a, b| a.created_at.cmp(&b.created_at));
        (self.by_call, self.by_parent) = (HashMap::new(), HashMap::new());
        for (at, child) in self.list.iter().enumerate() {
            self.by_parent
                .entry(child.parent.clone())
                .or_default()
                .push(at);
            let call = child.call.as_deref().unwrap_or_default();
            let around = call.match_indices('.').map(|(end, _)| &call[..end]);
            for call in around.chain([call]).filter(|call| !call.is_empty()) {
                self.by_call.entry(call.to_owned()).or_default().push(at);
            }
        }
    }

    /// Adds those in a workspace that is somewhere else.
    fn add(&mut self, workspace: &Path) {
        let Ok(workspace) = workspace.canonicalize() else {
            return;
        };
        if !self.places.insert(workspace.clone()) {
            return;
        }
        let mut found = Vec::new();
        children_in(&workspace.join(".delta"), &mut found);
        found.retain(|new| !self.list.iter().any(|old| old.run.path == new.run.path));
        self.list.append(&mut found);
        self.arrange();
    }

    /// The runs that a run's calls, or what these had started, have started, in order.
    fn of_calls(&self, parent: &RunDir, calls: &[String]) -> Vec<RunDir> {
        calls
            .iter()
            .filter_map(|call| self.by_call.get(call))
            .flatten()
            .map(|at| &self.list[*at])
            .filter(|child| child.is_of(parent))
            .map(|child| child.run.clone())
            .collect()
    }

    /// The runs that a run's tools started in a span of time, in order.
    fn between(&self, parent: &RunDir, from: Timestamp, to: Timestamp) -> Vec<RunDir> {
        self.by_parent
            .get(parent.id.as_str())
            .into_iter()
            .flatten()
            .map(|at| &self.list[*at])
            .filter(|child| child.is_of(parent) && (from..=to).contains(&child.created_at))
            .map(|child| child.run.clone())
            .collect()
    }
}

impl Subrun {
    fn is_of(&self, parent: &RunDir) -> bool {
        self.parent == parent.id.as_str() && self.run.path != parent.path
    }
}

/// The open work of a run that may have started other runs.
#[derive(Debug, Default)]
pub(crate) struct OpenActions {
    action: Option<OpenAction>,
    /// In a workflow: steps that have not ended, by task and node.
    steps: BTreeMap<(String, String), StepAttempts>,
}

/// An action without a result.
#[derive(Debug)]
struct OpenAction {
    id: String,
    since: Option<Timestamp>,
    /// Where else than in the workspace it may have started runs.
    elsewhere: Vec<PathBuf>,
}

/// A run that another one has started.
#[derive(Clone, Debug)]
pub(crate) struct StartedRun {
    /// The run.
    pub run: RunDir,
    /// The node of a workflow that started it; none if it was an action.
    pub node: Option<String>,
    /// The task that was at the node.
    pub task: Option<String>,
}

/// A step of a workflow, by task and node, and the attempts at it.
type OpenStep = ((String, String), StepAttempts);

/// The attempts at a node.
#[derive(Debug, Default)]
struct StepAttempts {
    calls: Vec<String>,
    elsewhere: Vec<PathBuf>,
}

impl OpenActions {
    fn begins(&mut self, run: &RunDir, line: &Line<'_>) {
        let root = || run.workspace().unwrap_or(&run.path);
        match &line.event {
            Recorded::ActionRequest(request) => {
                let id = &*line.action_id;
                // One that is begun again may have started its run the first time.
                let before = self.action.take().filter(|it| it.id == id);
                self.action = Some(OpenAction {
                    id: id.to_owned(),
                    since: before.and_then(|it| it.since).or_else(|| line.time()),
                    elsewhere: named_in(&request.resolved_command, root()),
                });
            }
            Recorded::NodeStart(start) => {
                if let (Some(key), Some(call)) = (line.step(), start.call_id.owned()) {
                    let step = self.steps.entry(key).or_default();
                    step.calls.push(call);
                    let elsewhere = named_in(&start.resolved_command, root());
                    step.elsewhere.extend(elsewhere);
                }
            }
            _ => {}
        }
    }

    /// Takes note of an event. What ends with it is not looked for.
    pub(crate) fn follow(&mut self, run: &RunDir, line: &Line<'_>) {
        self.begins(run, line);
        self.ending(line);
    }

    /// The steps that end with an event.
    fn ending(&mut self, line: &Line<'_>) -> Vec<OpenStep> {
        match line.event {
            // Of attempts that follow an error, each has runs of its own.
            Recorded::NodeEnd(_) | Recorded::Error(_) => line
                .step()
                .and_then(|key| self.steps.remove_entry(&key))
                .into_iter()
                .collect(),
            Recorded::TaskEnd(_) => {
                let task = &*line.task_id;
                let first = (task.to_owned(), String::new());
                let keys: Vec<_> = self
                    .steps
                    .range(first..)
                    .map(|(key, _)| key.clone())
                    .take_while(|key| key.0 == task)
                    .collect();
                keys.iter()
                    .filter_map(|key| self.steps.remove_entry(key))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Takes out all steps that have not ended.
    fn open(&mut self) -> Vec<OpenStep> {
        std::mem::take(&mut self.steps).into_iter().collect()
    }
}

/// The runs in a workspace that others have started. They are looked for when one is asked for, and again
/// for what ended later.
#[derive(Debug)]
pub(crate) struct RunTree {
    root: PathBuf,
    found: Option<Subruns>,
    /// The directories of the runs that are being read, each started by the one before.
    within: Vec<PathBuf>,
}

impl RunTree {
    /// The runs of a workspace.
    pub(crate) fn below(workspace: &Path) -> Self {
        Self {
            root: workspace.to_owned(),
            found: None,
            within: Vec::new(),
        }
    }

    /// The runs that a run has started, to be read with it.
    pub(crate) fn around(run: &RunDir) -> Self {
        Self {
            within: vec![run.path.clone()],
            ..Self::below(run.workspace().unwrap_or(&run.path))
        }
    }

    /// Enters a run that the one being read has started. False if it is nested too deep, or within itself.
    pub(crate) fn enter(&mut self, run: &RunDir) -> bool {
        let may_enter = self.within.len() <= DEEPEST && !self.within.contains(&run.path);
        if may_enter {
            self.within.push(run.path.clone());
        }
        may_enter
    }

    /// Leaves the run that was entered last.
    pub(crate) fn leave(&mut self) {
        self.within.pop();
    }

    /// True if the run being read was started by another one that is.
    pub(crate) fn is_nested(&self) -> bool {
        self.within.len() > 1
    }

    /// Takes note of an event, and returns the runs that have been started by what ends with it.
    pub(crate) fn of_event(
        &mut self,
        underway: &mut OpenActions,
        run: &RunDir,
        line: &Line<'_>,
    ) -> Vec<StartedRun> {
        underway.begins(run, line);
        if let Recorded::ActionResult(result) = &line.event {
            return self.of_result(underway, run, line, result.duration_ms);
        }
        let steps = underway.ending(line);
        self.of_steps(steps, run, line.time())
    }

    /// The runs in a run's workspace, and below, that it has started, in order.
    pub(crate) fn of_run(&mut self, run: &RunDir) -> Vec<RunDir> {
        let root = run.workspace().unwrap_or(&run.path).to_owned();
        let found = self
            .found
            .take()
            .unwrap_or_else(|| Subruns::below(&self.root));
        let children = self.found.insert(found);
        let found = children
            .by_parent
            .get(run.id.as_str())
            .into_iter()
            .flatten()
            .map(|at| &children.list[*at]);
        // Two runs in different places may have one name.
        found
            .filter(|child| child.is_of(run) && child.run.path.starts_with(&root))
            .map(|child| child.run.clone())
            .collect()
    }

    /// The runs that have been started by what has not ended.
    pub(crate) fn of_open(&mut self, underway: &mut OpenActions, run: &RunDir) -> Vec<StartedRun> {
        let now = Timestamp::now();
        let mut runs = self.of_steps(underway.open(), run, Some(now));
        if let Some(action) = underway.action.take()
            && let Some(since) = action.since
        {
            let children = self.children(now, &action.elsewhere);
            runs.extend(children.between(run, since, now).into_iter().map(by_action));
        }
        runs
    }

    fn of_result(
        &mut self,
        underway: &mut OpenActions,
        run: &RunDir,
        line: &Line<'_>,
        duration_ms: Option<u64>,
    ) -> Vec<StartedRun> {
        let id = line.action_id.get();
        let action = underway.action.take_if(|it| Some(it.id.as_str()) == id);
        let (Some(to), true) = (line.time(), line.execution_ref.is_some()) else {
            return Vec::new();
        };
        let took = duration_ms.unwrap_or(0);
        let began = || Timestamp::from_millis(to.millis().saturating_sub(took));
        let (from, elsewhere) = match action {
            Some(action) => (action.since.unwrap_or_else(began), action.elsewhere),
            None => (began(), Vec::new()),
        };
        self.children(to, &elsewhere)
            .between(run, from, to)
            .into_iter()
            .map(by_action)
            .collect()
    }

    fn of_steps(
        &mut self,
        steps: Vec<OpenStep>,
        run: &RunDir,
        to: Option<Timestamp>,
    ) -> Vec<StartedRun> {
        let mut runs = Vec::new();
        for ((task, node), step) in steps {
            let to = to.unwrap_or_else(Timestamp::now);
            let found = self
                .children(to, &step.elsewhere)
                .of_calls(run, &step.calls)
                .into_iter();
            runs.extend(found.map(|run| StartedRun {
                run,
                node: Some(node.clone()),
                task: Some(task.clone()),
            }));
        }
        runs
    }

    /// All that had been started by a time.
    fn children(&mut self, by: Timestamp, elsewhere: &[PathBuf]) -> &Subruns {
        let mut found = self
            .found
            .take()
            .filter(|found| by < found.looked_at)
            .unwrap_or_else(|| Subruns::below(&self.root));
        for place in elsewhere {
            found.add(place);
        }
        self.found.insert(found)
    }
}

/// The run of this name that a call of a run has started.
pub(crate) fn find_started(
    parent: &RunDir,
    call: &str,
    command: &str,
    id: &RunId,
) -> Option<RunDir> {
    let root = parent.workspace()?;
    named_in(command, root)
        .into_iter()
        .chain([root.to_owned()])
        .map(|workspace| RunDir {
            id: id.clone(),
            path: workspace.join(".delta").join(id.as_str()),
        })
        .find(|run| run.path.is_dir())
        .or_else(|| {
            Subruns::below(root)
                .of_calls(parent, &[call.to_owned()])
                .into_iter()
                .find(|run| run.id == *id)
        })
}

fn by_action(run: RunDir) -> StartedRun {
    StartedRun {
        run,
        node: None,
        task: None,
    }
}

/// The directories in a directory: no links, and none whose name begins with a dot.
fn directories(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

fn children_in(control: &Path, list: &mut Vec<Subrun>) {
    for path in directories(control) {
        let name = files::name_of(&path);
        let Ok(id) = RunId::parse(&name) else {
            continue;
        };
        let Some(metadata) = metadata::read(&path) else {
            continue;
        };
        let created_at = Timestamp::parse(&metadata.created_at);
        if let (Some(parent), Some(created_at)) = (metadata.parent_run_id, created_at) {
            let run = RunDir { id, path };
            let call = metadata.parent_call_id;
            list.push(Subrun {
                run,
                parent,
                call,
                created_at,
            });
        }
    }
}
