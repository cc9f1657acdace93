//! Waiting for programs and for inputs.

use super::FlowEngine;
use crate::error::{Error, Result, reason};
use crate::flow::view::progress_table::RunningProgram;
use crate::unix::process::Woken;
use crate::unix::unread_stdin;
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Waits until something has ended, and takes in all that has; no longer than to the next retry, or to the next look at
    /// how much programs have printed.
    pub(super) fn await_event(&mut self) -> Result<()> {
        /// The time between two looks.
        const PERIOD: Duration = Duration::from_secs(1);
        let look = self.programs.looked + PERIOD;
        let mut until = self.queue.next_due().map_or(look, |due| due.min(look));
        let mut any = false;
        loop {
            if !any {
                self.draw_table();
            }
            let inputs = &self.queue.inputs;
            let source = if self.wants_inputs() {
                inputs.descriptor(self.options.queue.is_some())
            } else {
                None
            };
            let woken = self
                .programs
                .children
                .wait_or_read(Some(until), source)
                .map_err(|e| Error::failure(format!("cannot wait for programs: {}", reason(&e))))?;
            match woken {
                None => {
                    self.queue.inputs.receive()?;
                    self.note_inputs();
                    return Ok(());
                }
                Some(Woken::Ended(token, outcome)) => {
                    any = true;
                    // The other programs that have ended by now are written with it.
                    until = Instant::now();
                    unread_stdin::warn();
                    if let Some(active) = self.programs.active.remove(&token) {
                        self.end_program(active, &outcome)?;
                    }
                }
                Some(Woken::Suspended) => {
                    self.table.erase();
                    self.programs.signals.suspend();
                }
                Some(Woken::Stopped(stop)) => {
                    self.table.close();
                    self.programs.stop = Some(stop);
                    self.programs.interrupt_all();
                    return Ok(());
                }
                Some(Woken::Deadline) => {
                    if Instant::now() >= look {
                        self.programs.end_oversized();
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Input from a pipe is taken in as it comes, or, with a limit on roots, when there is room.
    fn wants_inputs(&self) -> bool {
        match self.options.queue {
            None => self.roots.failed.is_none() && self.programs.stop.is_none(),
            Some(_) => self.may_admit(),
        }
    }

    /// Prints and records the message about the inputs.
    pub(super) fn note_inputs(&mut self) {
        if let Some(note) = self.queue.inputs.take_note() {
            self.warn(&note);
        }
    }

    fn draw_table(&mut self) {
        if !self.table.is_on() {
            return;
        }
        let running = self.programs.active.values().map(|active| RunningProgram {
            task: active.step.task.to_string(),
            node: self.place.node_id(&active.step).to_owned(),
            attempt: self.attempts.of(active.step.key).last.max(1),
            since: active.since,
        });
        let (queue, prepared) = (&self.queue, self.programs.prepared.len());
        let waiting = queue.ready.len() + queue.held() + prepared + queue.suspended.len();
        self.table.draw(running.collect(), waiting);
    }
}
