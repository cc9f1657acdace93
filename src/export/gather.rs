//! Reads a run and the runs that it has started from their journals and records.

mod line_parts;
mod flow_steps;

use super::recorded::{ExportedAnswer, ExportedCall, ExportedStep, RecordedRun, What};
use super::records::{read_head, read_invocation};
use crate::error::Result;
use crate::record::event::{EventKind, Line, ReadUsage};
use crate::record::reader::{JournalReader, Stopped, read_event};
use crate::record::run_dir::RunDir;
use crate::record::subruns::{OpenActions, RunTree, StartedRun};
use crate::record::{invocations, legacy, metadata};
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::view::shown_answers::{NOT_SHOWN, ShownAnswers};
use line_parts::{
    agent_of, attachments_of, calls_of, end_of, reasoning_of, result_of, text_of, unique_id,
};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// How many runs around a run are looked for.
const FARTHEST: usize = 16;

/// Reads a run.
///
/// # Errors
/// Its journal cannot be read, or is not a journal.
pub(crate) fn read_run(run: &RunDir) -> Result<RecordedRun> {
    let mut tree = ExportedRuns {
        family: RunTree::around(run),
        seen: HashSet::from([run.path.clone()]),
        names: HashSet::new(),
    };
    let (root, traceparent) = outermost(run);
    let mut recorded = gather_run(run, &root, &mut tree)?;
    recorded.traceparent = traceparent.or(recorded.traceparent);
    Ok(recorded)
}

/// All runs that are exported together.
struct ExportedRuns {
    family: RunTree,
    /// Directories of runs.
    seen: HashSet<PathBuf>,
    /// The runs' ids as they are exported.
    names: HashSet<String>,
}

impl ExportedRuns {
    /// A run's own name, unless another one has it.
    fn name(&mut self, id: &RunId) -> String {
        let mut name = id.to_string();
        let mut count = 1;
        while !self.names.insert(name.clone()) {
            count += 1;
            name = format!("{id}~{count}");
        }
        name
    }
}

/// The name of the outermost run around a run, and the span that that one is a part of. A parent is looked
/// for in the same workspace, and in the directories around it.
fn outermost(run: &RunDir) -> (String, Option<String>) {
    let mut at = run.clone();
    for _ in 0..FARTHEST {
        let Some(parent) = metadata::read(&at.path).and_then(|it| it.parent_run_id) else {
            break;
        };
        let Ok(id) = RunId::parse(&parent) else { break };
        let around = at.workspace().into_iter().flat_map(|it| it.ancestors());
        let mut dirs = around.map(|dir| dir.join(".delta").join(id.as_str()));
        let Some(path) = dirs.find(|path| path.is_dir() && *path != at.path) else {
            return (parent, None);
        };
        at = RunDir { id, path };
    }
    let first = crate::unix::files::read_line(&at.journal());
    let traceparent = first.and_then(|line| {
        let line = read_event(line.as_bytes(), 0).ok()?;
        line.traceparent.as_deref().map(str::to_owned)
    });
    (at.id.to_string(), traceparent)
}

fn gather_run(run: &RunDir, root: &str, tree: &mut ExportedRuns) -> Result<RecordedRun> {
    let mut gathering = Gathering {
        run,
        open: OpenActions::default(),
        shown: ShownAnswers::default(),
        child_at: HashMap::new(),
        referenced: HashSet::new(),
        unsaid: None,
        out: RecordedRun {
            id: tree.name(&run.id),
            root: root.to_owned(),
            ..RecordedRun::default()
        },
    };
    let mut lines = JournalReader::open(&run.journal())?;
    while let Stopped::AtDamage(damage) = lines.read_while(|_, line| {
        gathering.event(line, tree);
        Ok(true)
    })? {
        gathering.out.damaged.push((run.journal(), damage));
    }
    let left = tree.family.of_open(&mut gathering.open, run);
    gathering.children(left, tree, None);
    gathering.requests()?;
    Ok(gathering.out)
}

struct Gathering<'r> {
    run: &'r RunDir,
    open: OpenActions,
    shown: ShownAnswers,
    /// The index of a run among the children, by its directory.
    child_at: HashMap<PathBuf, usize>,
    /// Invocations that an answer names.
    referenced: HashSet<String>,
    /// The task of an old start without a message yet.
    unsaid: Option<String>,
    out: RecordedRun,
}

impl Gathering<'_> {
    fn event(&mut self, line: &Line<'_>, tree: &mut ExportedRuns) {
        let at = line.time();
        self.out.began = self.out.began.or(at);
        self.out.ended = at.or(self.out.ended);
        let started = tree.family.of_event(&mut self.open, self.run, line);
        if line.kind != EventKind::HookAudit {
            // Something has happened since.
            self.out.end = None;
        }
        match line.kind {
            EventKind::EngineStart => self.start(line),
            EventKind::UserMessage => {
                self.unsaid = None;
                let text = line.content.map_or_else(String::new, text_of);
                self.push(at, What::User(text));
                let attachments = attachments_of(line, self.run);
                if let Some(step) = self.out.steps.last_mut() {
                    step.attachments = attachments;
                }
            }
            EventKind::Thought => self.thought(line),
            EventKind::Compaction if line.summary.is_some() => self.thought(line),
            EventKind::Compaction => self.note(line, line.compaction(), &[]),
            EventKind::ActionRequest => self.request(line),
            EventKind::ActionResult => self.result(line),
            EventKind::Acceptance => self.acceptance(line),
            EventKind::HumanInputRequest => {
                self.shown.note_question(line);
                let prompt = line.prompt.as_deref().unwrap_or_default();
                self.note(line, prompt.to_owned(), &["action_id", "request_id"]);
            }
            EventKind::HumanInputReceived => {
                let text = line.response.as_deref().unwrap_or_default();
                let shown = self.shown.has_answer(line);
                let text = if shown { text } else { NOT_SHOWN };
                self.note(line, text.to_owned(), &["action_id", "request_id"]);
            }
            EventKind::SystemMessage => {
                let text = line.content.map_or_else(String::new, text_of);
                self.note(line, text, &["level"]);
            }
            EventKind::AttachmentsLeftOut => self.note(line, line.attachments_left_out(), &[]),
            EventKind::ModelChanged => {
                let from = line.from.as_deref().unwrap_or_default();
                let text = format!("the model changes from {from} to {}", line.changed_to());
                self.note(line, text, &[]);
            }
            EventKind::Error => {
                let text = line.error_message.as_deref().or(line.message.as_deref());
                self.note(
                    line,
                    text.unwrap_or_default().to_owned(),
                    &["node_id", "task_id"],
                );
            }
            EventKind::EngineEnd => self.out.end = Some(end_of(line)),
            EventKind::Flow(event) => self.flow_event(event, line),
            _ => {}
        }
        self.children(started, tree, line.action_id.as_deref());
    }

    fn push(&mut self, at: Option<Timestamp>, what: What) {
        self.out.steps.push(ExportedStep {
            at,
            is_copied: false,
            what,
            attachments: Vec::new(),
        });
    }

    fn push_note(
        &mut self,
        at: Option<Timestamp>,
        text: String,
        is_told: bool,
        extra: Map<String, Value>,
    ) {
        let what = What::System {
            text,
            is_told,
            extra,
        };
        self.push(at, what);
    }

    /// A step of the engine's, with some fields of its event.
    fn note(&mut self, line: &Line<'_>, text: String, fields: &[&str]) {
        let mut extra = Map::new();
        extra.insert("event".to_owned(), line.kind.name().into());
        for field in fields {
            let value = match *field {
                "action_id" => &line.action_id,
                "request_id" => &line.request_id,
                "level" => &line.level,
                "node_id" => &line.node_id,
                "task_id" => &line.task_id,
                _ => &None,
            };
            if let Some(value) = value {
                extra.insert((*field).to_owned(), value.as_ref().into());
            }
        }
        self.push_note(line.time(), text, false, extra);
    }

    fn start(&mut self, line: &Line<'_>) {
        let fork = line.forked_from.as_ref().map(|it| it.run_id.clone());
        if fork.is_some() && fork != self.out.forked_from {
            // What comes before was another run.
            for step in &mut self.out.steps {
                step.is_copied = true;
            }
            self.out.began = line.time().or(self.out.began);
            self.out.traceparent = None;
        }
        let out = &mut self.out;
        out.forked_from = fork.or(out.forked_from.take());
        let task = line.task.filter(|json| json.get().starts_with('"'));
        if line.call_id.is_none() && out.steps.is_empty() {
            // Older engines record it nowhere else.
            self.unsaid = task.map(text_of);
        }
        if let Some(parent) = &line.parent_run_id {
            let call = line.parent_call_id.as_deref().map(str::to_owned);
            out.parent = Some((parent.to_string(), call));
        }
        let text = |from: &Option<std::borrow::Cow<'_, str>>| from.as_deref().map(str::to_owned);
        out.traceparent = out.traceparent.take().or_else(|| text(&line.traceparent));
        out.hostname = text(&line.hostname).or(out.hostname.take());
        out.delta_version = text(&line.delta_version).or(out.delta_version.take());
        let config = line
            .config
            .and_then(|it| serde_json::from_str(it.get()).ok());
        out.agent = agent_of(&config.unwrap_or_default(), text(&line.agent_home));
    }

    fn thought(&mut self, line: &Line<'_>) {
        if let Some(task) = self.unsaid.take() {
            self.push(line.time(), What::User(task));
        }
        let name = line.llm_invocation_ref.as_deref();
        let name = name.and_then(|it| it.strip_prefix("io/invocations/"));
        let invocation = name.map(|name| {
            self.referenced.insert(name.to_owned());
            read_invocation(self.run, name)
        });
        let text = line.content.map(text_of).filter(|it| !it.is_empty());
        let text = text.filter(|_| line.content.is_some_and(|it| it.get() != "null"));
        let summary = line.summary.as_deref().map(str::to_owned);
        let answer = ExportedAnswer {
            seq: line.seq.unwrap_or(self.out.steps.len() as u64),
            is_compaction: line.kind == EventKind::Compaction,
            text: text.or(summary),
            reasoning: reasoning_of(line),
            model: invocation.as_ref().and_then(|it| it.model.clone()),
            finish_reason: line.finish_reason.as_ref().map(|it| it.name().to_owned()),
            usage: line.usage.map(ReadUsage::tokens),
            invocation,
            llm: self.out.agent.llm.clone(),
            pricing: self.out.agent.pricing,
            calls: calls_of(line),
        };
        self.push(line.time(), What::Answer(Box::new(answer)));
    }

    /// The calls of the newest answer.
    fn last_calls(&mut self) -> Option<&mut Vec<ExportedCall>> {
        self.out
            .steps
            .iter_mut()
            .rev()
            .find_map(|step| match &mut step.what {
                What::Answer(answer) => Some(&mut answer.calls),
                _ => None,
            })
    }

    fn request(&mut self, line: &Line<'_>) {
        let seq = line.seq.unwrap_or_default();
        let id = line.action_id.as_deref().unwrap_or_default();
        let Some(calls) = self.last_calls() else {
            return;
        };
        let place = calls
            .iter()
            .position(|call| call.action_id == id && call.result.is_none());
        let place = place.or_else(|| {
            let old = legacy::call(line, seq)?;
            calls.push(ExportedCall {
                id: unique_id(calls, &old.id),
                action_id: old.id.into_owned(),
                name: old.name.into_owned(),
                arguments: serde_json::from_str(&old.arguments).unwrap_or_default(),
                ..ExportedCall::default()
            });
            Some(calls.len() - 1)
        });
        if let Some(call) = place.map(|place| &mut calls[place]) {
            call.call_id = line.call_id.as_deref().map(str::to_owned);
            call.began = call.began.or_else(|| line.time());
        }
    }

    fn result(&mut self, line: &Line<'_>) {
        let text = match self.shown.has_result(line) {
            true => line.observation_content.map_or_else(String::new, text_of),
            false => NOT_SHOWN.to_owned(),
        };
        let attachments = attachments_of(line, self.run);
        let id = line.action_id.as_deref().unwrap_or_default();
        let calls = self.last_calls().into_iter().flatten();
        let mut open = calls.filter(|call| call.result.is_none());
        if let Some(call) = open.find(|call| call.action_id == id) {
            call.result = Some(result_of(line, text));
            if let Some(result) = &mut call.result {
                result.attachments = attachments;
            }
        }
    }

    fn acceptance(&mut self, line: &Line<'_>) {
        let what = line.what.as_deref().unwrap_or_default();
        let refusal = line.content.map(text_of);
        let extra = json!({
            "event": line.kind.name(),
            "what": what,
            "exit_code": line.exit_code,
            "thought_seq": line.thought_seq,
        });
        let text = match &refusal {
            Some(text) => text.clone(),
            None if line.exit_code == Some(0) => format!("{what}: accepted"),
            None => format!("{what}: could not be run"),
        };
        let Value::Object(extra) = extra else { return };
        self.push_note(line.time(), text, refusal.is_some(), extra);
    }

    /// Takes in runs that have been started, each at the call that did so: the one that its record names, or
    /// else the action that has ended now.
    fn children(&mut self, runs: Vec<StartedRun>, tree: &mut ExportedRuns, ended: Option<&str>) {
        for StartedRun { run, node, .. } in runs {
            let Some(place) = self.child(&run, tree) else {
                continue;
            };
            let named = self.out.children[place].parent.as_ref();
            let named = named.and_then(|(_, call)| call.clone());
            let is_it = |call: &ExportedCall| match (&call.call_id, &named) {
                (Some(own), Some(named)) => {
                    let rest = named.strip_prefix(own.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                }
                _ => ended == Some(&call.action_id) || node.as_deref() == Some(&call.name),
            };
            let steps = self.out.steps.iter_mut().rev();
            let mut calls = steps.filter_map(|step| match &mut step.what {
                What::Answer(answer) => answer.calls.iter_mut().find(|call| is_it(call)),
                What::Node(calls) => calls.iter_mut().find(|call| is_it(call)),
                _ => None,
            });
            if let Some(call) = calls.next()
                && !call.started.contains(&place)
            {
                call.started.push(place);
            }
        }
    }

    /// The index of a run among the children. None if it cannot be read, or is part of another one.
    fn child(&mut self, run: &RunDir, tree: &mut ExportedRuns) -> Option<usize> {
        if let Some(place) = self.child_at.get(&run.path) {
            return Some(*place);
        }
        if tree.seen.contains(&run.path) || !tree.family.enter(run) {
            return None;
        }
        tree.seen.insert(run.path.clone());
        let child = gather_run(run, &self.out.root, tree);
        tree.family.leave();
        let mut child = child.ok().filter(|child| !child.steps.is_empty())?;
        self.out.damaged.append(&mut child.damaged);
        self.out.children.push(child);
        let place = self.out.children.len() - 1;
        self.child_at.insert(run.path.clone(), place);
        Some(place)
    }

    /// The head of the first request, and the requests without an answer.
    fn requests(&mut self) -> Result<()> {
        let names = invocations::in_order(&self.run.io("invocations"))?;
        let heads = names.first().and_then(|name| read_head(self.run, name));
        self.out.head = heads.unwrap_or_default();
        let left = names.iter().filter(|name| !self.referenced.contains(*name));
        self.out.unanswered = left.map(|name| read_invocation(self.run, name)).collect();
        Ok(())
    }
}
