//! Reads a run and the runs that it has started from their journals and records.

mod line_parts;
mod flow_steps;

use super::content::Content;
use super::recorded::{CallResult, ExportedAnswer, ExportedCall, ExportedStep, RecordedRun, What};
use super::records::{read_head, read_invocation};
use crate::error::Result;
use crate::record::event::recorded::{
    Acceptance, ActionRequest, ActionResult, Compaction, EngineStart, Thought,
};
use crate::record::event::{EventTrait, Line, ReadUsage, Recorded, Text};
use crate::record::history::{History, NOT_SHOWN};
use crate::record::reader::{JournalReader, Stopped, read_event};
use crate::record::run_dir::RunDir;
use crate::record::subruns::{OpenActions, RunTree, StartedRun};
use crate::record::{invocations, legacy, metadata};
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use line_parts::{agent_of, calls_of, end_of, reasoning_of, unique_id};
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
        let Some(path) = at
            .workspace()
            .into_iter()
            .flat_map(|it| it.ancestors())
            .map(|dir| dir.join(".delta").join(id.as_str()))
            .find(|path| path.is_dir() && *path != at.path)
        else {
            return (parent, None);
        };
        at = RunDir { id, path };
    }
    let traceparent =
        crate::unix::files::read_line(&at.journal()).and_then(|line| {
            match read_event(line.as_bytes(), 0).ok()?.event {
                Recorded::EngineStart(start) => start.traceparent.owned(),
                _ => None,
            }
        });
    (at.id.to_string(), traceparent)
}

fn gather_run(run: &RunDir, root: &str, tree: &mut ExportedRuns) -> Result<RecordedRun> {
    let mut gathering = Gathering {
        run,
        open: OpenActions::default(),
        history: History::default(),
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
    while let Stopped::AtDamage(damage) = lines.read_while(|line| {
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
    history: History,
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
        if !matches!(line.event, Recorded::HookAudit(_)) {
            // Something has happened since.
            self.out.end = None;
        }
        self.history.add(line);
        match &line.event {
            Recorded::EngineStart(start) => self.start(line, start),
            Recorded::UserMessage(message) => {
                self.unsaid = None;
                let text = message.content.text().into_owned();
                self.push(at, What::User(Content::of(text, line, self.run)));
            }
            Recorded::Thought(thought) => self.thought(line, thought),
            Recorded::Compaction(event) if event.summary.is_some() => self.summary(line, event),
            Recorded::ActionRequest(request) => self.request(line, request),
            Recorded::ActionResult(result) => self.result(line, result),
            Recorded::Acceptance(check) => self.acceptance(line, check),
            Recorded::HumanInputRequest(question) => {
                let ids = [("request_id", &question.request_id)];
                self.note(line, question.prompt.to_string(), &ids);
            }
            Recorded::HumanInputReceived(answer) => {
                let text = self.history.answer(answer).unwrap_or(NOT_SHOWN).to_owned();
                self.note(line, text, &[("request_id", &answer.request_id)]);
            }
            Recorded::SystemMessage(note) => {
                let text = note.content.text().into_owned();
                self.note(line, text, &[("level", &note.level)]);
            }
            Recorded::ModelChanged(change) => {
                let (from, to) = (&*change.from, &*change.to);
                let text = format!("the model changes from {from} to {to}");
                self.note(line, text, &[]);
            }
            Recorded::Error(error) => {
                let text = error
                    .error_message
                    .owned()
                    .or_else(|| error.message.owned());
                let step = [("node_id", &line.node_id), ("task_id", &line.task_id)];
                self.note(line, text.unwrap_or_default(), &step);
            }
            Recorded::EngineEnd(end) => self.out.end = Some(end_of(end)),
            _ => match line.note() {
                Some(text) if !line.kind.is(EventTrait::OfAnswer) => self.note(line, text, &[]),
                _ => self.flow_event(line),
            },
        }
        self.children(started, tree, line.action_id.get());
    }

    fn push(&mut self, at: Option<Timestamp>, what: What) {
        self.out.steps.push(ExportedStep {
            at,
            is_copied: false,
            what,
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

    /// A step of the engine's, with some members of its event.
    fn note(&mut self, line: &Line<'_>, text: String, members: &[(&str, &Text<'_>)]) {
        let mut extra = Map::new();
        extra.insert("event".to_owned(), line.kind.name().into());
        let is_person = matches!(
            line.event,
            Recorded::HumanInputRequest(_) | Recorded::HumanInputReceived(_)
        );
        let call = [("action_id", &line.place.action_id)];
        for (name, value) in call.iter().filter(|_| is_person).chain(members) {
            if let Some(value) = value.owned() {
                extra.insert((*name).to_owned(), value.into());
            }
        }
        self.push_note(line.time(), text, false, extra);
    }

    fn start(&mut self, line: &Line<'_>, start: &EngineStart<'_>) {
        let fork = start.forked_from.as_ref().map(|it| it.run_id.clone());
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
        if !start.call_id.is_some() && out.steps.is_empty() {
            // Older engines record it nowhere else.
            self.unsaid = start.task.read();
        }
        if let Some(parent) = start.parent_run_id.owned() {
            out.parent = Some((parent, start.parent_call_id.owned()));
        }
        out.traceparent = out.traceparent.take().or(start.traceparent.owned());
        out.hostname = start.hostname.owned().or(out.hostname.take());
        out.delta_version = start.delta_version.owned().or(out.delta_version.take());
        out.agent = agent_of(&start.config(), start.agent_home.owned());
    }

    fn thought(&mut self, line: &Line<'_>, thought: &Thought<'_>) {
        if let Some(task) = self.unsaid.take() {
            self.push(line.time(), What::User(task.into()));
        }
        let text = thought.content.text();
        let answer = ExportedAnswer {
            text: (!text.is_empty()).then(|| text.into_owned()),
            reasoning: reasoning_of(thought),
            finish_reason: thought
                .finish_reason
                .as_ref()
                .map(|it| it.name().to_owned()),
            calls: calls_of(thought),
            ..self.answer(line, &thought.llm_invocation_ref, thought.usage)
        };
        self.push(line.time(), What::Answer(Box::new(answer)));
    }

    fn summary(&mut self, line: &Line<'_>, event: &Compaction<'_>) {
        let answer = ExportedAnswer {
            is_summary: true,
            text: event.summary.owned(),
            ..self.answer(line, &event.llm_invocation_ref, event.usage)
        };
        self.push(line.time(), What::Answer(Box::new(answer)));
    }

    /// An answer of the model, without what it says.
    fn answer(
        &mut self,
        line: &Line<'_>,
        reference: &Text<'_>,
        usage: Option<ReadUsage>,
    ) -> ExportedAnswer {
        let name = reference.strip_prefix("io/invocations/");
        let invocation = name.map(|name| {
            self.referenced.insert(name.to_owned());
            read_invocation(self.run, name)
        });
        ExportedAnswer {
            seq: line.seq.unwrap_or(self.out.steps.len() as u64),
            usage: usage.map(ReadUsage::tokens),
            invocation,
            llm: self.out.agent.llm.clone(),
            pricing: self.out.agent.pricing,
            ..ExportedAnswer::default()
        }
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

    fn request(&mut self, line: &Line<'_>, request: &ActionRequest<'_>) {
        let seq = line.seq.unwrap_or_default();
        let id = &*line.action_id;
        let Some(calls) = self.last_calls() else {
            return;
        };
        let place = calls
            .iter()
            .position(|call| call.action_id == id && call.result.is_none())
            .or_else(|| {
                let old = legacy::call(line, seq)?;
                calls.push(ExportedCall {
                    id: unique_id(calls, &old.id),
                    action_id: old.id.into_owned(),
                    name: old.name.into_owned(),
                    arguments: json::read_or_default(&*old.arguments),
                    ..ExportedCall::default()
                });
                Some(calls.len() - 1)
            });
        if let Some(call) = place.map(|place| &mut calls[place]) {
            call.call_id = request.call_id.owned();
            call.began = call.began.or_else(|| line.time());
        }
    }

    fn result(&mut self, line: &Line<'_>, result: &ActionResult<'_>) {
        let text = self.history.observation(line, result).into_owned();
        let content = Content::of(text, line, self.run);
        let mut open = self
            .last_calls()
            .into_iter()
            .flatten()
            .filter(|call| call.result.is_none());
        if let Some(call) = open.find(|call| call.action_id == *line.action_id) {
            call.result = Some(CallResult {
                at: line.time(),
                content,
                is_success: result.is_success(),
                status: result.status.owned(),
                exit_code: result.exit_code,
                duration_ms: result.duration_ms,
            });
        }
    }

    fn acceptance(&mut self, line: &Line<'_>, check: &Acceptance<'_>) {
        let what = &*check.what;
        let refusal = check.content.get().map(|_| check.content.text());
        let extra = json!({
            "event": line.kind.name(),
            "what": what,
            "exit_code": check.exit_code,
            "thought_seq": check.thought_seq,
        });
        let text = match &refusal {
            Some(text) => text.to_string(),
            None if check.exit_code == Some(0) => format!("{what}: accepted"),
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
            let named = self.out.children[place]
                .parent
                .as_ref()
                .and_then(|(_, call)| call.clone());
            let is_it = |call: &ExportedCall| match (&call.call_id, &named) {
                (Some(own), Some(named)) => {
                    let rest = named.strip_prefix(own.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                }
                _ => ended == Some(&call.action_id) || node.as_deref() == Some(&call.name),
            };
            let mut calls =
                self.out
                    .steps
                    .iter_mut()
                    .rev()
                    .filter_map(|step| match &mut step.what {
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
        let gathered = gather_run(run, &self.out.root, tree);
        tree.family.leave();
        let mut child = gathered.ok().filter(|child| !child.steps.is_empty())?;
        self.out.damaged.append(&mut child.damaged);
        self.out.children.push(child);
        let place = self.out.children.len() - 1;
        self.child_at.insert(run.path.clone(), place);
        Some(place)
    }

    /// The head of the first request, and the requests without an answer.
    fn requests(&mut self) -> Result<()> {
        let names = invocations::in_order(&self.run.io("invocations"))?;
        self.out.head = names
            .first()
            .and_then(|name| read_head(self.run, name))
            .unwrap_or_default();
        self.out.unanswered = names
            .iter()
            .filter(|name| !self.referenced.contains(*name))
            .map(|name| read_invocation(self.run, name))
            .collect();
        Ok(())
    }
}
