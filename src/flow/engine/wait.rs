//! Waiting for programs, and ending those that nobody wants any more.

use super::{FlowEngine, StepKey};
use crate::error::{Error, Result, may_fail};
use crate::flow::graph::router::Effect;
use crate::flow::view::progress_table::RunningProgram;
use crate::unix::process::{Token, Woken};
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Nobody wants a step any more.
    pub(super) fn cancel(&mut self, which: StepKey) {
        self.held.remove(&which);
        self.tries.remove(&which);
        self.prepared
            .retain(|waiting| waiting.active.which != which);
        let found = self.active.iter_mut().find(|(_, it)| it.which == which);
        if let Some((token, active)) = found {
            active.cancelled = true;
            self.children.interrupt(*token, self.options.grace);
        }
    }

    /// A root has failed, and nobody wants the ones behind it any more. Those before it go on, so that
    /// the first failure is the same however many run at once.
    pub(super) fn give_up_after(&mut self, number: usize) {
        let first = self.failed.map_or(number, |failed| failed.min(number));
        self.failed = Some(first);
        self.tally.cut_after(first);
        let behind: Vec<usize> = self.roots.range(first + 1..).map(|(at, _)| *at).collect();
        for at in behind {
            if let Some(mut root) = self.roots.remove(&at) {
                root.router.cancel();
                while let Some(effect) = root.router.next_effect() {
                    if let Effect::Cancel(step) = effect {
                        self.cancel((at, step));
                    }
                }
            }
        }
    }

    /// Waits until something has ended, and takes note of all that has.
    pub(super) fn wait(&mut self) -> Result<()> {
        /// How often it is looked how much programs have printed.
        const PERIOD: Duration = Duration::from_secs(1);
        let mut until = self.looked + PERIOD;
        let mut any = false;
        loop {
            if !any {
                self.draw();
            }
            let woken = self.children.wait(Some(until)).map_err(cannot_wait)?;
            match woken {
                Woken::Ended(token, outcome) => {
                    any = true;
                    // Whatever else has ended by now is written with it.
                    until = Instant::now();
                    if let Some(active) = self.active.remove(&token) {
                        self.ended(active, &outcome)?;
                    }
                }
                Woken::Suspended => {
                    self.table.erase();
                    self.signals.suspend();
                }
                Woken::Stopped(stop) => {
                    self.table.close();
                    self.stop = Some(stop);
                    let tokens: Vec<Token> = self.active.keys().copied().collect();
                    self.children.interrupt_all(&tokens, self.options.grace);
                    return Ok(());
                }
                Woken::Deadline if any => return Ok(()),
                Woken::Deadline => {
                    self.look_at_output();
                    self.looked = Instant::now();
                    until = self.looked + PERIOD;
                }
            }
        }
    }

    /// Shows what runs.
    fn draw(&mut self) {
        if !self.table.is_on() {
            return;
        }
        let running = self.active.values().filter_map(|active| {
            let (task, node) = self.named(active.which)?;
            Some(RunningProgram {
                task: task.to_owned(),
                node: node.to_owned(),
                attempt: self.tries.get(&active.which).map_or(1, |tries| tries.last),
                since: active.since,
            })
        });
        let running = running.collect();
        let waiting = self.ready.len() + self.prepared.len() + self.held.len();
        self.table.draw(running, waiting);
    }

    /// Ends all programs, and waits for their ends.
    pub(super) fn end_children(&mut self) {
        let tokens: Vec<Token> = self.active.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.options.grace);
        while !self.children.is_empty() {
            match self.children.wait(None) {
                Ok(Woken::Ended(token, _)) => {
                    self.active.remove(&token);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
        may_fail(self.journal.flush());
    }
}

fn cannot_wait(cause: std::io::Error) -> Error {
    let reason = crate::error::reason(&cause);
    Error::failure(format!("cannot wait for programs: {reason}"))
}
