//! The record of one start: what it appends to the journal, and what it shows of that.
//!
//! Unaware of what the events follow from.

use super::Ending;
use crate::engine::run_context::RunContext;
use crate::error::Result;
use crate::record::engine_log::Level;
use crate::record::event::{EndEvent, Event, EventTrait, NoteEvent};
use crate::record::journal::Journal;
use crate::record::metadata::Metadata;
use crate::record::stop_reason::StopReason;
use crate::text::shorten::cut_to_columns;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::{Screen, Tone};
use crate::unix::wait_line::{Outputs, WaitLine};
use std::fs::File;
use std::path::PathBuf;

/// The journal, the summary and the progress of one start on a run.
pub(super) struct RunLog<'a> {
    ctx: &'a RunContext<'a>,
    /// The run's journal, which this process owns.
    pub(super) journal: Journal,
    /// The run's summary.
    pub(super) metadata: Metadata,
    /// The current iteration, or the last one.
    pub(super) iteration: u64,
    /// The terminal for progress.
    pub(super) screen: Screen,
    /// The inbox, while no message may arrive because the run is ending.
    pub(super) inbox: Option<File>,
    /// The directories that lead to the journal are on disk.
    entries_synced: bool,
}

impl<'a> RunLog<'a> {
    pub(super) fn new(
        ctx: &'a RunContext<'a>,
        mut journal: Journal,
        metadata: Metadata,
        screen: Screen,
    ) -> Self {
        journal.set_sync(ctx.agent.sync);
        Self {
            ctx,
            journal,
            iteration: metadata.iterations,
            metadata,
            screen,
            inbox: None,
            entries_synced: false,
        }
    }

    /// Adds an event of the current iteration. It reaches the disk with the next flush.
    pub(super) fn add(&mut self, event: &dyn Event) {
        self.journal.add(self.iteration, event);
    }

    /// Adds an event that is on disk before anything follows from it, in a workspace that older engines leave alone if
    /// they would misread it.
    pub(super) fn add_durably(&mut self, event: &dyn Event) -> Result<()> {
        if event.kind().is(EventTrait::NewLayout) {
            self.ctx.workspace.raise_layout()?;
        }
        self.add(event);
        self.make_durable()
    }

    /// All that has been recorded.
    pub(super) fn whole_journal(&mut self) -> Result<Vec<u8>> {
        self.journal.flush()?;
        let mut journal = Vec::new();
        self.journal.read_new(0, &mut journal)?;
        Ok(journal)
    }

    /// Makes everything durable that has been recorded, and the directories that lead to it.
    pub(super) fn make_durable(&mut self) -> Result<()> {
        self.journal.sync()?;
        if !self.entries_synced && self.ctx.agent.sync {
            self.ctx.run.sync_entries()?;
        }
        self.entries_synced = true;
        Ok(())
    }

    pub(super) fn record_note(&mut self, level: Level, content: &str) -> Result<()> {
        self.record(NoteEvent::new(level, content))
    }

    pub(super) fn record(&mut self, note: NoteEvent<'_>) -> Result<()> {
        self.add(&note);
        self.journal.flush()?;
        if note.level != Level::Info {
            self.warn(note.content);
        }
        Ok(())
    }

    /// Warns on the screen and in engine.log.
    pub(super) fn warn(&self, text: &str) {
        self.screen.warn(text);
        self.ctx.log.line(Level::Warn, text);
    }

    pub(super) fn update_metadata(&mut self) -> Result<()> {
        self.metadata.iterations = self.iteration;
        self.metadata.updated_at = Timestamp::now().to_string();
        self.metadata.update(&self.ctx.run.path)
    }

    /// The end that a signal or a changed journal demands.
    pub(super) fn must_end(&self) -> Option<Ending> {
        if let Some(stop) = self.ctx.signals.stop() {
            return Some(Ending::stopped(stop));
        }
        self.journal.was_changed().then(|| {
            let path = self.journal.path().display();
            let text = format!(
                "{path} was changed by another program while the run was live; look at it, then resume the run"
            );
            Ending::new(StopReason::JournalChanged, text)
        })
    }

    /// Records how this start ended: first in the journal, then in the summary. A disk without room must
    /// not keep the rest from being recorded.
    pub(super) fn record_end(&mut self, ending: &Ending, engine_ms: Option<u64>) {
        let (result, error) = ending.status.result_or_error(&*ending.text);
        self.add(&EndEvent {
            run_id: self.ctx.run.id.as_str(),
            status: ending.status.name(),
            stop_reason: &ending.stop_reason,
            exit_code: ending.exit.code(),
            final_iteration: self.iteration,
            engine_ms,
            result,
            error,
        });
        if let Err(error) = self.make_durable() {
            self.warn(&format!(
                "warning: the end of the run may not be on disk: {error}"
            ));
        }
        self.inbox = None;
        let reason = &ending.stop_reason;
        let text = ending.text.clone();
        self.metadata.end(ending.status, reason, ending.exit, text);
        self.metadata.iterations = self.iteration;
    }

    pub(super) fn print_progress(&self, pieces: &[(Tone, &str)]) {
        let number = format!("[{}] ", self.iteration);
        let mut line = vec![(Tone::Dim, number.as_str())];
        line.extend_from_slice(pieces);
        self.screen.progress(&line);
    }

    /// Prints a line below the last one that has a number.
    pub(super) fn print_below(&self, tone: Tone, line: &str) {
        self.screen.progress(&[(Tone::Dim, "      "), (tone, line)]);
    }

    /// Prints how a call ended, and the head of its output if the user wants more.
    pub(super) fn print_outcome(&self, good: bool, outcome: &str, observation: &str) {
        let tone = if good { Tone::Good } else { Tone::Bad };
        self.print_progress(&[(Tone::Dim, "  "), (tone, outcome)]);
        if self.screen.verbose {
            for line in observation.lines().take(20) {
                self.print_below(Tone::Dim, &cut_to_columns(line, 200));
            }
        }
    }

    /// Shows at a terminal what the engine waits for, until the line is dropped.
    pub(super) fn wait_for(&self, what: &str) -> WaitLine {
        self.wait_for_outputs(what, Vec::new)
    }

    /// Shows the same with the last line of what programs have written into files.
    pub(super) fn wait_for_outputs(
        &self,
        what: &str,
        files: impl FnOnce() -> Vec<PathBuf>,
    ) -> WaitLine {
        let what = format!("[{}] waiting for {what}", self.iteration);
        WaitLine::begin(&self.ctx.signals, self.screen, what, || Outputs {
            files: files(),
            secrets: self.ctx.environment.secrets(),
        })
    }
}
