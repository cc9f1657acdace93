//! What an earlier process did, read from the journal and routed again.
//!
//! Only ends count. What was told of tasks, ways and merges follows from them; what is missing of it,
//! because the process died between two lines, is told now.

use super::finish::{AttemptEnd, told_denial};
use super::tell::{about, told};
use super::{FlowEngine, StepKey, Tries};
use crate::error::{At, Error, Result};
use crate::flow::graph::choice::{Failure, FailureCode, Payload, choose};
use crate::flow::graph::router::{Effect, Router, StepOutcome};
use crate::flow::graph::topology::{EdgeIx, Graph, NodeIx};
use crate::flow::manifest::ResumePolicy;
use crate::flow::record::events::{FlowLine, edge_name, read_back};
use crate::record::event::EventKind;
use crate::text::timestamp::Timestamp;
use crate::unix::process;
use crate::unix::terminal::{Screen, counted};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};

/// How the journal names a step.
type Name = (String, NodeIx, Option<EdgeIx>);

/// What is being read back.
#[derive(Default)]
struct Lineage {
    /// Steps without an end.
    open: HashMap<Name, StepKey>,
    begun: HashMap<Name, Begun>,
    /// Pauses whose start has no end yet: they have not been told.
    pausing: Vec<Name>,
    /// What routers have told and the journal has not yet.
    untold: BTreeMap<usize, (String, usize, Effect)>,
    by_key: HashMap<String, usize>,
    counter: usize,
    roots: usize,
    /// What the inputs of the roots can be told by.
    inputs: HashMap<usize, u64>,
    /// Items that stand in the files of stores.
    remembered: HashSet<String>,
}

/// An attempt without an end.
#[derive(Default)]
struct Begun {
    call_id: Option<String>,
    tries: Tries,
    paused: bool,
    /// Whether the last attempt is without an end.
    running: bool,
    /// Its directory of records, and those of its calls of tools that have been told.
    io: Option<String>,
    told: Vec<String>,
}

impl FlowEngine<'_> {
    /// Brings everything to where the journal leaves it.
    pub(super) fn look_back(&mut self) -> Result<()> {
        let mut past = Lineage::default();
        self.begin_recall()?;
        let path = self.journal.path().to_owned();
        let mut reader = BufReader::new(File::open(&path).at("read", &path)?);
        let mut text = String::new();
        let mut number = 0;
        loop {
            text.clear();
            number += 1;
            if reader.read_line(&mut text).at("read", &path)? == 0 {
                break;
            }
            if text.trim().is_empty() {
                continue;
            }
            let line: FlowLine<'_> = serde_json::from_str(&text).map_err(|error| {
                let words = crate::text::json::parser_words(&error);
                let path = path.display();
                Error::failure(format!("{path}:{number}: damaged: {words}"))
            })?;
            self.replay(&mut past, &line).map_err(|error| Error {
                message: format!("{}:{number}: {}", path.display(), error.message),
                ..error
            })?;
        }
        self.recall.has_told(&past.remembered);
        self.write_down(true)?;
        self.inputs.pass_over(past.roots, |number, input| {
            past.inputs
                .get(&number)
                .is_none_or(|was| *was == mark(input))
        })?;
        self.go_on_from(past)
    }

    fn replay(&mut self, past: &mut Lineage, line: &FlowLine<'_>) -> Result<()> {
        let task = line.task_id.as_deref().unwrap_or_default();
        match &*line.kind {
            "TASK_CREATED" => {
                if line.parent_id.is_none() {
                    self.replay_root(past, task, line)?;
                }
                past.heard(&format!("C {task}"));
            }
            "TASK_END" => {
                past.heard(&format!("E {task}"));
                if let Some(number) = root_number(task) {
                    // It is the last thing that is told of a root.
                    self.harvest(number);
                }
            }
            "ROUTE" => past.heard(&format!(
                "R {task} {}",
                line.node_id.as_deref().unwrap_or_default()
            )),
            "MERGE" => past.heard(&format!(
                "M {task} {}",
                line.node_id.as_deref().unwrap_or_default()
            )),
            "NODE_START" => {
                if let Some(name) = self.name_of(past, line) {
                    let begun = past.begun.entry(name).or_default();
                    begun.call_id = line.call_id.as_ref().map(ToString::to_string);
                    begun.tries.last = line.attempt;
                    begun.running = true;
                    begun.io = line.execution_ref.as_ref().map(ToString::to_string);
                    begun.told.clear();
                }
            }
            "ERROR" if line.node_id.is_some() => {
                if let Some(name) = self.name_of(past, line) {
                    let begun = past.begun.entry(name).or_default();
                    begun.tries.failed += 1;
                    begun.running = false;
                }
            }
            "TOOL" => {
                if let (Some(name), Some(path)) = (self.name_of(past, line), &line.execution_ref) {
                    let begun = past.begun.entry(name).or_default();
                    begun.told.push(path.to_string());
                }
            }
            "POLICY" => {
                if let (Some(name), Some(path)) = (self.name_of(past, line), &line.execution_ref) {
                    let begun = past.begun.entry(name).or_default();
                    begun.told.push(told_denial(path));
                }
            }
            "SYSTEM_MESSAGE" if line.paused => {
                past.pausing.extend(self.name_of(past, line));
            }
            "ENGINE_END" => {
                for name in std::mem::take(&mut past.pausing) {
                    past.begun.entry(name).or_default().paused = true;
                }
            }
            "NODE_END" => self.replay_end(past, line)?,
            "MEMORY" => past
                .remembered
                .extend(line.item_id.as_ref().map(ToString::to_string)),
            _ => {}
        }
        Ok(())
    }

    fn replay_root(&mut self, past: &mut Lineage, task: &str, line: &FlowLine<'_>) -> Result<()> {
        let run = &self.place.run.path;
        let input = read_back(run, line.input, line.input_ref.as_deref())?;
        let input = input.ok_or_else(|| Error::failure(format!("{task} has no input")))?;
        let number = root_number(task);
        let number = number.ok_or_else(|| Error::failure(format!("{task} is no root task")))?;
        past.roots = past.roots.max(number);
        past.inputs.insert(number, mark(&input));
        self.add_root(number, task, input);
        self.listen(past, number);
        Ok(())
    }

    /// The name of the open step that a line is about.
    fn name_of(&self, past: &Lineage, line: &FlowLine<'_>) -> Option<Name> {
        let graph = &self.place.flow.graph;
        let task = line.task_id.as_deref()?;
        let node = graph.find(line.node_id.as_deref()?)?;
        let alone = (task.to_owned(), node, None);
        if past.open.contains_key(&alone) {
            return Some(alone);
        }
        graph.incoming(node).iter().find_map(|edge| {
            let same = line.edge.as_deref();
            if same.is_some_and(|name| name != edge_name(graph, *edge)) {
                return None;
            }
            let name = (task.to_owned(), node, Some(*edge));
            past.open.contains_key(&name).then_some(name)
        })
    }

    fn replay_end(&mut self, past: &mut Lineage, line: &FlowLine<'_>) -> Result<()> {
        let Some(name) = self.name_of(past, line) else {
            // A step that was cancelled as it ended.
            return Ok(());
        };
        let Some(which) = past.open.remove(&name) else {
            return Ok(());
        };
        past.begun.remove(&name);
        let run = &self.place.run.path;
        let Some(root) = self.roots.get_mut(&which.0) else {
            return Ok(());
        };
        let outcome = if line.status.as_deref() == Some("success") {
            let output = read_back(run, line.output, line.output_ref.as_deref())?
                .or_else(|| root.router.identity(which.1));
            let output: Payload = output.unwrap_or_else(|| "null".into());
            match choose(&self.place.flow.graph, name.1, &output) {
                Ok(choice) => StepOutcome::Success(output, choice),
                Err(failure) => StepOutcome::Failure(failure),
            }
        } else {
            StepOutcome::Failure(line.failure())
        };
        let note = match (&outcome, about(&root.router, which.1)) {
            (StepOutcome::Success(output, _), Some(step)) => {
                let time = Timestamp::parse(&line.timestamp).unwrap_or(Timestamp::from_millis(0));
                let place = (which.0, step);
                self.recall.note(self.place.flow, place, output, time)
            }
            _ => None,
        };
        root.router.ended_with(which.1, outcome, note);
        self.listen(past, which.0);
        Ok(())
    }

    /// Takes from a router what it tells and wants.
    fn listen(&mut self, past: &mut Lineage, number: usize) {
        let graph = &self.place.flow.graph;
        while let Some(root) = self.roots.get_mut(&number) {
            let Some(effect) = root.router.next_effect() else {
                break;
            };
            match effect {
                Effect::Start(step) => {
                    if let Some(at) = about(&root.router, step) {
                        let name = (at.task.to_owned(), at.node, at.edge);
                        past.open.insert(name, (number, step));
                    }
                }
                Effect::Cancel(step) => past.open.retain(|_, which| *which != (number, step)),
                other => past.told(key(graph, &root.router, &other), number, other),
            }
        }
    }

    /// What is left open, and what was not told any more.
    fn go_on_from(&mut self, past: Lineage) -> Result<()> {
        let graph = &self.place.flow.graph;
        for (_, (_, number, effect)) in past.untold {
            if let Some(root) = self.roots.get(&number) {
                told(&mut self.journal, graph, &root.router, &effect, None);
            }
        }
        let mut open: Vec<(Name, StepKey)> = past.open.into_iter().collect();
        open.sort_by_key(|(_, which)| *which);
        let mut begun = past.begun;
        let mut dead = Vec::new();
        for (name, which) in open {
            let begun = begun.remove(&name).unwrap_or_default();
            if let Some(io) = begun.io.as_ref().filter(|_| begun.running) {
                let io = self.place.run.path.join(io);
                self.tell_tools(which, &io, &begun.told)?;
            }
            if let Some(call_id) = begun.call_id.filter(|_| begun.running) {
                dead.push(call_id);
                if self.place.flow.nodes[name.1].on_resume == ResumePolicy::Fail
                    && !self.is_conversation(name.1)
                {
                    self.doomed.push(which);
                    continue;
                }
            }
            if begun.tries.last > 0 {
                self.set_tries(which, begun.tries);
            }
            if begun.paused {
                self.passed.insert(which);
            }
            self.ready.push_back(which);
        }
        if self.recall.asks(self.place.flow) {
            dead.push(self.calls_of_helpers());
        }
        self.end_leftovers(&dead)?;
        for number in self.roots.keys().copied().collect::<Vec<_>>() {
            self.harvest(number);
        }
        for which in std::mem::take(&mut self.doomed) {
            let message = "the engine was stopped while it ran, and on_resume: fail is set";
            let failure = Failure::new(FailureCode::Operation, message);
            self.finish(which, Err(failure), AttemptEnd::default())?;
        }
        Ok(())
    }

    /// Ends what is left of programs whose engine died.
    fn end_leftovers(&mut self, calls: &[String]) -> Result<()> {
        if !self.options.is_ours || calls.is_empty() {
            return Ok(());
        }
        let count: usize = process::end_all_leftovers(calls);
        if count > 0 {
            let processes = counted(count, "process");
            let text = format!("ended {processes} that an engine that died had left");
            let screen: Screen = self.options.screen;
            screen.warn_as(super::super::PROGRAM, &text);
            self.journal.add_line(&EventKind::SystemMessage, |line| {
                line.put("level", "WARN").put("content", &text);
            });
            self.journal.flush()?;
        }
        Ok(())
    }
}

impl Lineage {
    /// A router tells something that the journal is expected to have.
    fn told(&mut self, key: String, root: usize, effect: Effect) {
        self.counter += 1;
        self.by_key.insert(key.clone(), self.counter);
        self.untold.insert(self.counter, (key, root, effect));
    }

    /// The journal has it.
    fn heard(&mut self, key: &str) {
        if let Some(counter) = self.by_key.remove(key) {
            self.untold.remove(&counter);
        }
    }
}

/// What an input can be told by within one process.
fn mark(input: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    hasher.finish()
}

/// The number in the id of a root task.
fn root_number(id: &str) -> Option<usize> {
    id.strip_prefix('T')?
        .parse()
        .ok()
        .filter(|number| *number > 0)
}

/// What names a thing that a router tells.
fn key(graph: &Graph, router: &Router<'_>, effect: &Effect) -> String {
    let id = |node: NodeIx| &graph.nodes[node].id;
    match effect {
        Effect::Created(task) => format!("C {}", router.id(*task)),
        Effect::Ended(task) => format!("E {}", router.id(*task)),
        Effect::Routed(task, node, _) => format!("R {} {}", router.id(*task), id(*node)),
        Effect::Merging(step) | Effect::Start(step) | Effect::Cancel(step) => {
            router.get(*step).map_or_else(String::new, |step| {
                format!("M {} {}", router.id(step.task), id(step.node))
            })
        }
    }
}
