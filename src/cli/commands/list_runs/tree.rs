//! Runs below those that have started them.
//!
//! Runs of one workspace are in the list anyway. Those of a flow's tasks are in directories of their own
//! and are searched for there.

use super::{ListedRun, Row, RunSummary};
use crate::cli::args::ListRunsArgs;
use crate::record::metadata::{self, Metadata};
use crate::record::run_dir::RunDir;
use crate::record::subruns::{DEEPEST, RunTree};
use crate::record::workspace::Workspace;
use crate::runs::inspect;
use crate::text::order::sort_by;
use crate::text::timestamp::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The number of runs shown that one run has started.
const MOST: usize = 20;

/// The lines of the table for these entries, the newest first.
pub(super) fn rows(entries: &[ListedRun], options: &ListRunsArgs) -> Vec<Row> {
    let mut places: BTreeMap<&Path, WorkspaceRuns<'_>> = BTreeMap::new();
    for entry in entries {
        let root = entry.workspace.root.as_path();
        let place = places.entry(root).or_default();
        place.since.insert(entry.run.id.as_str(), entry.created_at);
        if entry.metadata.flow.is_some() && place.tasks.is_none() {
            place.tasks = Some(RunTree::below(&root.join("tasks")));
        }
    }
    let mut outermost = Vec::new();
    for entry in entries {
        let place = places.entry(entry.workspace.root.as_path()).or_default();
        let named = entry.metadata.parent_run_id.as_deref();
        // A parent is older, so that no run is within itself.
        let parent = named.filter(|id| {
            let since = place.since.get(id);
            since.is_some_and(|since| *since < entry.created_at)
        });
        match parent {
            Some(parent) => place.by_parent.entry(parent).or_default().push(entry),
            None => outermost.push(entry),
        }
    }
    let mut rows = Vec::new();
    for entry in outermost {
        let place = places.entry(entry.workspace.root.as_path()).or_default();
        let mut tree = Tree {
            workspace: &entry.workspace,
            place,
            options,
            rows: &mut rows,
        };
        tree.run(&entry.run, entry.metadata.clone(), 0);
    }
    rows
}

/// The runs of a workspace.
#[derive(Default)]
struct WorkspaceRuns<'t> {
    /// Since when there are the runs that are in the list.
    since: HashMap<&'t str, Option<Timestamp>>,
    /// Runs that other runs have started.
    by_parent: HashMap<&'t str, Vec<&'t ListedRun>>,
    /// Runs in the directories of tasks, if there are flows.
    tasks: Option<RunTree>,
}

struct Tree<'t, 'p> {
    workspace: &'t Workspace,
    place: &'p mut WorkspaceRuns<'t>,
    options: &'t ListRunsArgs,
    rows: &'p mut Vec<Row>,
}

impl Tree<'_, '_> {
    /// Adds a run, and those that it has started. Returns the tokens of all of them.
    fn run(&mut self, run: &RunDir, metadata: Metadata, depth: usize) -> u64 {
        let place = self.rows.len();
        let is_flow = metadata.flow.is_some();
        let own = metadata.usage.total_tokens;
        self.rows.push(Row {
            name: format!("{:indent$}{}", "", metadata.run_id, indent = 2 * depth),
            place: self.workspace.id(),
            iterations: if is_flow {
                "-".to_owned()
            } else {
                metadata.iterations.to_string()
            },
            tokens: own,
            run: Some(RunSummary::of(&metadata)),
        });
        let mut all = own;
        let mut left = 0;
        if depth < DEEPEST {
            for (count, (child, metadata)) in self.children(run).into_iter().enumerate() {
                if count < MOST {
                    all += self.run(&child, metadata, depth + 1);
                } else {
                    all += metadata.usage.total_tokens;
                    left += 1;
                }
            }
        }
        if left > 0 {
            let indent = 2 * (depth + 1);
            self.rows.push(Row {
                name: format!("{:indent$}… and {left} more", ""),
                place: String::new(),
                iterations: String::new(),
                tokens: 0,
                run: None,
            });
        }
        if is_flow {
            self.rows[place].tokens = all;
        }
        all
    }

    /// The runs that a run has started, the newest first.
    fn children(&mut self, run: &RunDir) -> Vec<(RunDir, Metadata)> {
        let is_own = run.workspace() == Some(&self.workspace.root);
        let own = self.place.by_parent.get(run.id.as_str()).filter(|_| is_own);
        let mut found: Vec<(RunDir, Metadata)> = own
            .into_iter()
            .flatten()
            .map(|entry| (entry.run.clone(), entry.metadata.clone()))
            .collect();
        let tasks = self.place.tasks.as_mut().map(|tasks| tasks.of_run(run));
        for run in tasks.into_iter().flatten() {
            // Of the many that are not shown, what the file says is enough.
            let metadata = if found.len() < MOST {
                Some(inspect::read_summary(&run).0)
            } else {
                metadata::read(&run.path)
            };
            found.extend(
                metadata
                    .filter(|metadata| self.options.selects_run(metadata))
                    .map(|metadata| (run, metadata)),
            );
        }
        sort_by(&mut found, |a, b| b.1.created_at.cmp(&a.1.created_at));
        found
    }
}
