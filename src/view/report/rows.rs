//! A run, and those that its tools or nodes have started, as the lines of the page's data, in order.
//!
//! Unaware of the fields of an event, and of how they are shown. Each event has a line of its own; the
//! page's script groups them.

use super::Damaged;
use super::events::{self, began, name_of};
use super::flow_steps::Attempts;
use super::source::SourceEvent;
use super::writer::Writer;
use crate::error::Result;
use crate::record::event::{EventKind, FlowEvent, Line};
use crate::record::invocations::{self, Requests};
use crate::record::metadata::{self, Metadata, Status};
use crate::record::reader::{JournalReader, Stopped};
use crate::record::run_dir::RunDir;
use crate::record::subruns::{OpenActions, RunTree, StartedRun};
use crate::runs::inspect::is_live;
use crate::text::timestamp::Timestamp;
use crate::view::asked::KnownTools;
use crate::view::shown_answers::ShownAnswers;
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

/// A run that is about to be written.
pub(super) struct OpenedRun {
    lines: JournalReader,
    figures: Figures,
    /// Requests that have not been written yet.
    invocations: VecDeque<String>,
}

/// State from one event of a run to the next.
struct RenderedRun {
    run: RunDir,
    invocations: VecDeque<String>,
    underway: OpenActions,
    attempts: Attempts,
    answers: ShownAnswers,
    tools: KnownTools,
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
    pub(super) fn open(run: &RunDir) -> Result<OpenedRun> {
        Ok(OpenedRun {
            lines: JournalReader::open(&run.journal())?,
            figures: stats::of(run)?.0,
            invocations: invocations::in_order(&run.io("invocations"))?.into(),
        })
    }

    /// Renders a run from its beginning to the current end of its journal.
    pub(super) fn run(
        &mut self,
        opened: OpenedRun,
        run: &RunDir,
        summary: &Metadata,
    ) -> Result<()> {
        let OpenedRun {
            mut lines,
            figures,
            invocations,
        } = opened;
        self.writer.record("run", |record| {
            record
                .put("id", run.id.as_str())
                .put("dir", &run.path.to_string_lossy())
                .put("agent", &summary.agent_name)
                .put("status", summary.status.name())
                .put("now", &Timestamp::now().millis())
                .put("figures", &figures)
                .maybe("parent", summary.parent_run_id.as_ref())
                .maybe("call", summary.parent_call_id.as_ref());
        })?;
        let mut telling = RenderedRun {
            run: run.clone(),
            invocations,
            underway: OpenActions::default(),
            attempts: Attempts::new(),
            answers: ShownAnswers::default(),
            tools: KnownTools::default(),
            system: String::new(),
            has_started: false,
            ended: None,
        };
        let stopped = lines.read_while(|text, line| {
            self.event(&mut telling, text, line)?;
            Ok(!self.writer.unread)
        })?;
        match stopped {
            Stopped::AtEnd { torn } => self.end(&mut telling, torn)?,
            Stopped::AtDamage(damage) => {
                self.writer.record("damage", |record| {
                    record
                        .put("line", &damage.line)
                        .put("column", &damage.column)
                        .put("text", &damage.message);
                })?;
                let path = run.journal();
                self.damaged.push(Damaged { path, damage });
            }
            Stopped::Enough => {}
        }
        self.writer.record("end of run", |_| {})
    }

    fn event(&mut self, telling: &mut RenderedRun, text: &str, line: &Line<'_>) -> Result<()> {
        let at = line.time();
        match line.kind {
            EventKind::EngineStart => {
                telling.has_started = true;
                telling.tools = KnownTools::of_start(line);
            }
            EventKind::Thought | EventKind::Error | EventKind::EngineEnd => {
                self.requests_before(telling, line, at)?;
            }
            _ => {}
        }
        if let Some(key) = line
            .step()
            .filter(|_| line.kind == EventKind::Flow(FlowEvent::NodeStart))
        {
            // Another attempt, without an end of the one before.
            self.so_far(telling, &key)?;
        }
        let runs = self
            .family
            .of_event(&mut telling.underway, &telling.run, line);
        self.children(runs)?;
        let Some(name) = events::record_name(line) else {
            return Ok(());
        };
        let about = SourceEvent {
            run: &telling.run,
            line,
            text,
            tools: &telling.tools,
        };
        let (answers, attempts) = (&mut telling.answers, &mut telling.attempts);
        self.writer.record(name, |record| {
            about.fill(record, answers, attempts);
        })?;
        telling.ended = Some(line.kind == EventKind::EngineEnd);
        Ok(())
    }

    /// Writes the requests without an answer before the current event, and the text that the model receives
    /// before the conversation.
    fn requests_before(
        &mut self,
        telling: &mut RenderedRun,
        line: &Line<'_>,
        at: Option<Timestamp>,
    ) -> Result<()> {
        let answered = line.llm_invocation_ref.as_deref().map(name_of);
        loop {
            let Some(name) = telling.invocations.front().cloned() else {
                return Ok(());
            };
            if telling.has_started {
                telling.has_started = false;
                self.system(telling, &name)?;
            }
            let is_answered = answered == Some(name.as_str());
            // A journal that was edited may have lost an answer: it must not hide those that follow.
            let is_later = answered.is_some_and(|answered| !telling.has(answered))
                || answered.is_none() && began(&name) > at;
            if is_later {
                return Ok(());
            }
            telling.invocations.pop_front();
            if is_answered {
                return Ok(());
            }
            let reference = format!("io/invocations/{name}");
            let record = invocations::metadata(&telling.run.path.join(&reference));
            let (status, took, attempts) = record.map_or((None, None, 0), |record| {
                let took = Some(record.duration_ms);
                (record.status, took, record.attempts.len())
            });
            self.writer.record("asked", |record| {
                record
                    .put("i", &iteration_of(&name))
                    .maybe("s", began(&name).map(Timestamp::millis))
                    .maybe("d", took)
                    .maybe("status", status)
                    .put("attempts", &attempts)
                    .put("ref", &reference);
            })?;
        }
    }

    /// Writes the messages before the conversation in a request, unless they have been written.
    fn system(&mut self, telling: &mut RenderedRun, name: &str) -> Result<()> {
        let dir = telling.run.io("invocations");
        let Ok(text) = Requests::of(&dir).read(name).map(system_of) else {
            return Ok(());
        };
        if text.is_empty() || text == telling.system {
            return Ok(());
        }
        let place = format!("io/invocations/{name}");
        self.writer.record("context", |record| {
            record
                .put("i", &iteration_of(name))
                .text("text", &text, &place);
        })?;
        telling.system = text;
        Ok(())
    }

    /// Renders runs that the current one started, before the end of the step that started them.
    fn children(&mut self, runs: Vec<StartedRun>) -> Result<()> {
        for StartedRun { run: child, .. } in runs {
            if !self.family.enter(&child) {
                continue;
            }
            if let Ok(opened) = Self::open(&child) {
                let mut summary = metadata::read(&child.path).unwrap_or_default();
                if summary.status == Status::Running && !is_live(&child) {
                    summary.status = Status::Interrupted;
                }
                self.run(opened, &child, &summary)?;
            }
            self.family.leave();
        }
        Ok(())
    }

    /// Renders the output so far of an attempt without an end.
    fn so_far(&mut self, telling: &RenderedRun, key: &(String, String)) -> Result<()> {
        let Some(reference) = telling.attempts.get(key) else {
            return Ok(());
        };
        let about = SourceEvent {
            run: &telling.run,
            line: &Line::default(),
            text: "",
            tools: &telling.tools,
        };
        self.writer
            .record("so far", |record| about.fill_so_far(record, key, reference))
    }

    /// Renders what is missing at the end of a journal.
    fn end(&mut self, telling: &mut RenderedRun, torn: bool) -> Result<()> {
        let live = is_live(&telling.run);
        let runs = self.family.of_open(&mut telling.underway, &telling.run);
        self.children(runs)?;
        for key in telling.attempts.keys() {
            self.so_far(telling, key)?;
        }
        let kind = match (live, telling.ended) {
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
