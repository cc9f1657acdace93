//! A run, and those that its tools or nodes have started, as the lines of the page's data, in order.
//!
//! Unaware of the fields of an event, and of how they are shown. Each event has a line of its own; the
//! page's script groups them.

use super::Damaged;
use super::events::{Attempts, SourceEvent, name_of};
use super::files::FileDiffs;
use super::writer::Writer;
use crate::error::Result;
use crate::record::event::{Line, Recorded};
use crate::record::history::History;
use crate::record::invocations::{self, Requests, began};
use crate::record::metadata::{self, Metadata, Status};
use crate::record::reader::{JournalReader, Stopped};
use crate::record::run_dir::RunDir;
use crate::record::subruns::{OpenActions, RunTree, StartedRun};
use crate::runs::inspect::is_live;
use crate::text::timestamp::Timestamp;
use crate::view::stats::{self, Figures};
use serde::Deserialize;
use serde_json::Value;
use std::collections::VecDeque;

/// Renders a run and those that it started.
pub(super) struct Renderer<'s> {
    pub(super) writer: Writer<'s>,
    pub(super) damaged: Vec<Damaged>,
    family: RunTree,
}

/// A run that is written, and the state from one event to the next.
pub(super) struct RenderedRun {
    run: RunDir,
    figures: Figures,
    /// Requests that have not been written yet.
    invocations: VecDeque<String>,
    underway: OpenActions,
    attempts: Attempts,
    history: History,
    files: FileDiffs,
    /// The system prompt that was shown last.
    system: String,
    /// True if an engine has started since a request was last shown.
    has_started: bool,
    /// True if the last event is the end of an engine; none before the first.
    ended: Option<bool>,
}

impl<'s> Renderer<'s> {
    pub(super) fn new(writer: Writer<'s>, run: &RunDir) -> Self {
        Self {
            writer,
            damaged: Vec::new(),
            family: RunTree::around(run),
        }
    }

    /// Opens what is read of a run.
    ///
    /// # Errors
    /// Fails if the journal or the records cannot be read.
    pub(super) fn open(run: &RunDir) -> Result<(JournalReader, RenderedRun)> {
        let rendered = RenderedRun {
            run: run.clone(),
            figures: stats::of(run)?.0,
            invocations: invocations::in_order(&run.io("invocations"))?.into(),
            underway: OpenActions::default(),
            attempts: Attempts::new(),
            history: History::default(),
            files: FileDiffs::default(),
            system: String::new(),
            has_started: false,
            ended: None,
        };
        Ok((JournalReader::open(&run.journal())?, rendered))
    }

    /// Renders a run from its beginning to the current end of its journal.
    pub(super) fn run(
        &mut self,
        mut lines: JournalReader,
        mut rendered: RenderedRun,
        summary: &Metadata,
    ) -> Result<()> {
        let run = &rendered.run;
        self.writer.record("run", |record| {
            record
                .put("id", run.id.as_str())
                .put("dir", &run.path.to_string_lossy())
                .put("agent", &summary.agent_name)
                .put("status", summary.status.name())
                .put("now", &Timestamp::now().millis())
                .put("figures", &rendered.figures)
                .maybe("parent", summary.parent_run_id.as_ref())
                .maybe("call", summary.parent_call_id.as_ref());
        })?;
        let stopped = lines.read_while(|line| {
            self.event(&mut rendered, line)?;
            Ok(!self.writer.unread)
        })?;
        match stopped {
            Stopped::AtEnd { torn } => self.end(&mut rendered, torn)?,
            Stopped::AtDamage(damage) => {
                self.writer.record("damage", |record| {
                    record
                        .put("line", &damage.line)
                        .put("column", &damage.column)
                        .put("text", &damage.message);
                })?;
                let path = rendered.run.journal();
                self.damaged.push(Damaged { path, damage });
            }
            Stopped::Enough => {}
        }
        self.writer.record("end of run", |_| {})
    }

    fn event(&mut self, rendered: &mut RenderedRun, line: &Line<'_>) -> Result<()> {
        let at = line.time();
        rendered.history.add(line);
        let mut diff = String::new();
        match &line.event {
            Recorded::EngineStart(start) => {
                rendered.has_started = true;
                rendered.files.note(&rendered.run, start);
            }
            Recorded::Files(files) => diff = rendered.files.of_next(&rendered.run, files),
            Recorded::Thought(thought) => {
                let answered = thought.llm_invocation_ref.get().map(name_of);
                self.requests_before(rendered, answered, at)?;
            }
            Recorded::Error(_) | Recorded::EngineEnd(_) => {
                self.requests_before(rendered, None, at)?;
            }
            // Another attempt, without an end of the one before.
            Recorded::NodeStart(_) => {
                if let Some(key) = line.step() {
                    self.so_far(rendered, &key)?;
                }
            }
            _ => {}
        }
        let runs = self
            .family
            .of_event(&mut rendered.underway, &rendered.run, line);
        self.children(runs)?;
        if matches!(line.event, Recorded::Memory(_)) {
            // It follows from the end of a node.
            return Ok(());
        }
        let about = SourceEvent {
            run: &rendered.run,
            line,
            history: &rendered.history,
        };
        let attempts = &mut rendered.attempts;
        self.writer.record(line.kind.name(), |record| {
            about.fill(record, attempts);
            record.text("diff", &diff, "delta git show");
        })?;
        rendered.ended = Some(matches!(line.event, Recorded::EngineEnd(_)));
        Ok(())
    }

    /// Writes the requests without an answer before the current event, and the text that the model receives
    /// before the conversation.
    fn requests_before(
        &mut self,
        rendered: &mut RenderedRun,
        answered: Option<&str>,
        at: Option<Timestamp>,
    ) -> Result<()> {
        loop {
            let Some(name) = rendered.invocations.front().cloned() else {
                return Ok(());
            };
            if rendered.has_started {
                rendered.has_started = false;
                self.system(rendered, &name)?;
            }
            let is_answered = answered == Some(name.as_str());
            // A journal that was edited may have lost an answer: it must not hide those that follow.
            let is_later = answered.is_some_and(|answered| !rendered.has(answered))
                || answered.is_none() && began(&name) > at;
            if is_later {
                return Ok(());
            }
            rendered.invocations.pop_front();
            if is_answered {
                return Ok(());
            }
            let reference = format!("io/invocations/{name}");
            let record = invocations::metadata(&rendered.run.path.join(&reference));
            let (status, took, attempts) = record.map_or((None, None, 0), |record| {
                let took = Some(record.duration_ms);
                (record.status, took, record.attempts.len())
            });
            self.writer.record("asked", |record| {
                record
                    .put("iteration", &iteration_of(&name))
                    .maybe("began", began(&name).map(Timestamp::millis))
                    .maybe("took", took)
                    .maybe("status", status)
                    .put("attempts", &attempts)
                    .put("ref", &reference);
            })?;
        }
    }

    /// Writes the messages before the conversation in a request, unless they have been written.
    fn system(&mut self, rendered: &mut RenderedRun, name: &str) -> Result<()> {
        let dir = rendered.run.io("invocations");
        let Ok(text) = Requests::of(&dir).read(name).map(system_of) else {
            return Ok(());
        };
        if text.is_empty() || text == rendered.system {
            return Ok(());
        }
        let place = format!("io/invocations/{name}");
        self.writer.record("context", |record| {
            record
                .put("iteration", &iteration_of(name))
                .text("text", &text, &place);
        })?;
        rendered.system = text;
        Ok(())
    }

    /// Renders runs that the current one started, before the end of the step that started them.
    fn children(&mut self, runs: Vec<StartedRun>) -> Result<()> {
        for StartedRun { run: child, .. } in runs {
            if !self.family.enter(&child) {
                continue;
            }
            if let Ok((lines, rendered)) = Self::open(&child) {
                let mut summary = metadata::read_or_empty(&child.path);
                if summary.status == Status::Running && !is_live(&child) {
                    summary.status = Status::Interrupted;
                }
                self.run(lines, rendered, &summary)?;
            }
            self.family.leave();
        }
        Ok(())
    }

    /// Renders the output so far of an attempt without an end.
    fn so_far(&mut self, rendered: &RenderedRun, key: &(String, String)) -> Result<()> {
        let Some(reference) = rendered.attempts.get(key) else {
            return Ok(());
        };
        let about = SourceEvent {
            run: &rendered.run,
            line: &Line::default(),
            history: &rendered.history,
        };
        self.writer.record("so far", |record| {
            record.put("task_id", &key.0).put("node_id", &key.1);
            about.fill_output(record, reference);
        })
    }

    /// Renders what is missing at the end of a journal.
    fn end(&mut self, rendered: &mut RenderedRun, torn: bool) -> Result<()> {
        let live = is_live(&rendered.run);
        let runs = self.family.of_open(&mut rendered.underway, &rendered.run);
        self.children(runs)?;
        for key in rendered.attempts.keys() {
            self.so_far(rendered, key)?;
        }
        let kind = match (live, rendered.ended) {
            (true, _) => "live",
            (false, Some(true)) if !torn => return Ok(()),
            (false, _) => "dead",
        };
        self.writer.record(kind, |record| {
            record.put("torn", &(torn && !live));
        })
    }
}

impl RenderedRun {
    /// True if a request of this name has not been shown yet.
    fn has(&self, name: &str) -> bool {
        self.invocations.iter().any(|other| other == name)
    }
}

fn iteration_of(name: &str) -> Option<u64> {
    name.split('_').nth(1)?.parse().ok()
}

/// The text of a request's system messages.
fn system_of(request: &[u8]) -> String {
    #[derive(Deserialize)]
    struct SentRequest {
        messages: Vec<Value>,
    }
    let Ok(request) = serde_json::from_slice::<SentRequest>(request) else {
        return String::new();
    };
    let texts: Vec<String> = request
        .messages
        .iter()
        .filter(|message| message["role"] == "system")
        .map(|message| match message["content"].as_str() {
            Some(text) => text.to_owned(),
            None => message["content"].to_string(),
        })
        .collect();
    texts.join("\n\n")
}
