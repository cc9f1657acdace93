//! What one run remembers.
//!
//! Three things: what the stores held when the run began, which is copied into the run's directory, so that
//! a later start finds the same; what its steps produced, each noted with the router, so that a
//! step finds only what precedes it; and what is still to be written to the files of stores.
//!
//! Unaware of the journal. Only the first of the three is ever read from a file of its own: the others follow
//! from the ends of steps.

use super::item::{self, Kept, MemoryItem};
use super::store::{LARGEST_STORE, StoreFile, parse_items};
use crate::error::{At, Result};
use crate::flow::graph::{Failure, FailureCode, Note, Payload, StepRef};
use crate::flow::manifest::{Flow, Profile, ProfileSource, Remember, StoreName, sha256};
use crate::record::event::Recorded;
use crate::record::reader::read_event;
use crate::record::run_dir::RunDir;
use crate::text::order;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::Signals;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The memory of a run.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    /// The beginning of the ids of its items.
    key: String,
    /// Which stores any node sees.
    seen: [bool; 3],
    files: [Option<StoreFile>; 3],
    /// Items that were there when the run began, the newest first.
    before: Vec<Kept>,
    /// The reason why a store cannot be read.
    unreadable: [Option<String>; 3],
    /// Items that steps brought, by their root and their note.
    brought: HashMap<usize, Vec<Vec<Kept>>>,
    owed: Vec<Kept>,
}

impl Recall {
    /// Nothing yet. `root` is the workspace.
    pub(crate) fn new(flow: &Flow, root: &Path, run: &RunDir) -> Result<Self> {
        let mut seen = [false; 3];
        for (ix, node) in flow.nodes.iter().enumerate() {
            if node.runs() {
                let profile = flow.profile(ix);
                let sources = profile.iter().flat_map(|it| it.sources.iter());
                sources.for_each(|source| seen[source.store as usize] = true);
            }
        }
        let writes = |which| {
            let mut all = flow.nodes.iter().flat_map(|node| &node.remember);
            which == StoreName::Task || all.any(|it| it.store == which)
        };
        let file = |(_, which)| super::store_file(flow, which, root).filter(|_| writes(which));
        let mut new = Self {
            seen,
            files: StoreName::ALL.map(file),
            ..Self::default()
        };
        if new.is_needed() {
            new.key = run_key(&run.journal())?;
        }
        Ok(new)
    }

    /// Nothing is appended to the files of stores.
    pub(crate) fn leave_stores(&mut self) {
        self.files = [const { None }; 3];
    }

    fn is_needed(&self) -> bool {
        self.seen.contains(&true) || self.files.iter().any(Option::is_some)
    }

    /// Looks what the stores hold, or held when the run began, and whether they can be appended to.
    pub(crate) fn begin(
        &mut self,
        flow: &Flow,
        root: &Path,
        run: &RunDir,
        signals: &Signals,
    ) -> Result<()> {
        for store in self.files.iter().flatten() {
            store.make(signals)?;
        }
        let mut before: Vec<Kept> = Vec::new();
        for which in [StoreName::Project, StoreName::Global] {
            let Some(store) =
                super::store_file(flow, which, root).filter(|_| self.seen[which as usize])
            else {
                continue;
            };
            match read_copy(&store, &run.path, which, signals) {
                Ok(items) => before.extend(items.into_iter().map(|item| (which, item))),
                Err(error) if error.disk_full || signals.stop().is_some() => return Err(error),
                Err(error) => self.unreadable[which as usize] = Some(error.message),
            }
        }
        // Its own are what its steps brought, also if the copy was made late.
        let own = format!("{}/", self.key);
        before.retain(|(_, item)| !item.id.starts_with(&own));
        before.reverse();
        // Those of one time stay as they are: the last line first.
        order::sort_by_key(&mut before, |(_, item)| std::cmp::Reverse(item.timestamp));
        self.before = before;
        Ok(())
    }

    /// Adds the output of a step. Returns the note for the steps after it.
    pub(crate) fn note(
        &mut self,
        flow: &Flow,
        step: &StepRef,
        output: &Payload,
        timestamp: Timestamp,
    ) -> Option<Note> {
        if !self.is_needed() {
            return None;
        }
        let node = &flow.graph.nodes[step.node].id;
        let id = self.id(flow, step);
        let item = |id: String, tags: Vec<String>, content: Payload| MemoryItem {
            id,
            timestamp,
            tags,
            content,
            task_id: Some(step.task.to_string()),
            node_id: Some(node.clone()),
        };
        let own = item(id.clone(), vec![node.clone()], output.clone());
        let mut all = vec![(StoreName::Task, own)];
        for (number, remember) in flow.nodes[step.node].remember.iter().enumerate() {
            if let Some(content) = select_part(remember, output).filter(|it| &**it != "null") {
                let id = format!("{id}#{number}");
                all.push((remember.store, item(id, remember.tags.clone(), content)));
            }
        }
        let is_owed = |(which, _): &&Kept| self.files[*which as usize].is_some();
        self.owed.extend(all.iter().filter(is_owed).cloned());
        all.retain(|(which, _)| self.seen[*which as usize]);
        if all.is_empty() {
            return None;
        }
        let brought = self.brought.entry(step.key.root).or_default();
        brought.push(all);
        Some(brought.len() - 1)
    }

    fn id(&self, flow: &Flow, step: &StepRef) -> String {
        let graph = &flow.graph;
        let name = |node: usize| &graph.nodes[node].id;
        let way = step.edge.filter(|_| graph.incoming(step.node).len() > 1);
        let from = way.map_or_else(String::new, |edge| {
            format!("<{}", name(graph.edges[edge].from))
        });
        format!("{}/{}/{}{from}", self.key, step.task, name(step.node))
    }

    /// Lets go of what a root's steps brought.
    pub(crate) fn forget(&mut self, root: usize) {
        self.brought.remove(&root);
    }

    /// The items that a step with these notes may be given, the newest first.
    ///
    /// # Errors
    /// A store cannot be read.
    pub(crate) fn candidates(
        &self,
        flow: &Flow,
        profile: &Profile,
        root: usize,
        notes: &[Note],
    ) -> std::result::Result<Vec<&Kept>, String> {
        for source in &profile.sources {
            if let Some(why) = &self.unreadable[source.store as usize] {
                return Err(why.clone());
            }
        }
        let most = |(_, which)| flow.memory.store(which).max_items.unwrap_or(u64::MAX);
        let mut left: [u64; 3] = StoreName::ALL.map(most);
        let is_wanted = |source: &ProfileSource, (which, item): &&Kept| {
            source.store == *which
                && (source.tags.is_empty() || source.tags.iter().any(|tag| item.tags.contains(tag)))
        };
        let of_root = self.brought.get(&root).map_or(&[][..], Vec::as_slice);
        let brought = notes.iter().filter_map(|note| of_root.get(*note));
        let newest_first = brought
            .flat_map(|kept| kept.iter().rev())
            .chain(&self.before);
        let kept = newest_first.filter(|(which, _)| {
            let left = &mut left[*which as usize];
            let has_room = *left > 0;
            *left = left.saturating_sub(1);
            has_room
        });
        let wanted = kept.filter(|kept| profile.sources.iter().any(|it| is_wanted(it, kept)));
        Ok(wanted.collect())
    }

    /// Items that the files of stores lack.
    pub(crate) fn owed(&self) -> &[Kept] {
        &self.owed
    }

    /// The files have these: a process that died has appended them.
    pub(crate) fn forget_stored(&mut self, ids: &HashSet<String>) {
        self.owed.retain(|(_, item)| !ids.contains(&item.id));
    }

    /// Appends what is owed. `once`: some of it may be there.
    pub(crate) fn pay(&mut self, once: bool, signals: &Signals) -> Result<Vec<Kept>> {
        for (_, which) in StoreName::ALL {
            let Some(store) = &self.files[which as usize] else {
                continue;
            };
            let of_store = self.owed.iter().filter(|(other, _)| *other == which);
            let items: Vec<MemoryItem> = of_store.map(|(_, item)| item.clone()).collect();
            if !items.is_empty() {
                store.append(&items, once, signals)?;
            }
        }
        Ok(std::mem::take(&mut self.owed))
    }
}

/// A name of a run that is unique in every store: another run may have the same id.
fn run_key(journal: &Path) -> Result<String> {
    let file = File::open(journal).at("read", journal)?;
    let mut line = Vec::new();
    BufReader::new(file)
        .read_until(b'\n', &mut line)
        .at("read", journal)?;
    // The line may have been edited.
    let name = read_event(&line, 0)
        .ok()
        .and_then(|line| match &line.event {
            Recorded::EngineStart(start) => Some(format!(
                "{}\n{}\n{}",
                start.run_id.get()?,
                line.timestamp.get()?,
                start.call_id.get()?
            )),
            _ => None,
        });
    let key = name.map_or(line, String::into_bytes);
    Ok(sha256(&key)[..16].to_owned())
}

/// The items that a store held when the run began.
fn read_copy(
    store: &StoreFile,
    run: &Path,
    which: StoreName,
    signals: &Signals,
) -> Result<Vec<MemoryItem>> {
    let dir = Path::new("memory");
    let below = dir.join(format!("{}.jsonl", which.name()));
    let copy = run.join(&below);
    let kept = files::read_below(run, &below, LARGEST_STORE).if_there();
    if let Some(bytes) = kept.at("read", &copy)? {
        return parse_items(&bytes, &copy);
    }
    let items = store.items(signals)?;
    files::make_dirs_below(run, dir)?;
    files::replace(&copy, &item::item_lines(&items))?;
    Ok(items)
}

/// The part of an output to remember, if there is one, as it was written. `null` means nothing.
fn select_part(remember: &Remember, output: &Payload) -> Option<Payload> {
    let mut json: &str = output;
    for escaped in remember.pointer.split('/').skip(1) {
        // RFC 6901.
        let token = escaped.replace("~1", "/").replace("~0", "~");
        json = if json.starts_with('{') {
            let members: HashMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            members.get(&token)?.get()
        } else {
            let is_index = token == "0" || !token.starts_with(['0', '+']);
            let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            items
                .get(token.parse::<usize>().ok().filter(|_| is_index)?)?
                .get()
        };
    }
    Some(json.into())
}

/// The failure of an output that lacks something to remember.
pub(crate) fn find_lacking(remember: &[Remember], output: &Payload) -> Option<Failure> {
    let lacking = remember
        .iter()
        .find(|it| select_part(it, output).is_none())?;
    let (store, pointer) = (lacking.store.name(), &lacking.pointer);
    let message = format!("it has no {pointer}, which the {store} store is to remember");
    Some(Failure::new(FailureCode::SchemaOut, message))
}
