//! Waiting for programs, and ending those that nobody wants any more.

use super::FlowEngine;
use crate::error::{Error, Result, may_fail, reason};
use crate::flow::graph::{Effect, Failure, FailureCode, StepKey};
use crate::flow::record::attempt::{MOST_OUTPUT, too_much};
use crate::flow::view::progress_table::RunningProgram;
use crate::unix::process::{Token, Woken};
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Nobody wants a step any more.
    pub(super) fn cancel(&mut self, key: StepKey) {
        self.suspended.remove(&key);
        self.attempts.remove(&key);
        self.spent.forget(key);
        self.ready.forget_delayed(key);
        self.prepared.retain(|it| it.active.step.key != key);
        let found = self.active.iter_mut().find(|(_, it)| it.step.key == key);
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
        for mut router in self.roots.split_off(&(first + 1)).into_values() {
            router.cancel();
            while let Some(effect) = router.next_effect() {
                if let Effect::Cancel(key) = effect {
                    self.cancel(key);
                }
            }
        }
    }

    /// Waits until something has ended, and takes in all that has.
    pub(super) fn wait(&mut self) -> Result<()> {
        /// How often it is looked how much programs have printed.
        const PERIOD: Duration = Duration::from_secs(1);
        let mut until = self.earlier_of(self.looked + PERIOD);
        let mut any = false;
        loop {
            if !any {
                self.draw_table();
            }
            let source = match self.wants_inputs() {
                true => self.inputs.descriptor(self.options.queue.is_some()),
                false => None,
            };
            let woken = self.children.wait_or_read(Some(until), source);
            let woken = woken.map_err(|e| {
                let reason = reason(&e);
                Error::failure(format!("cannot wait for programs: {reason}"))
            })?;
            let Some(woken) = woken else {
                return self.receive_inputs();
            };
            match woken {
                Woken::Ended(token, outcome) => {
                    any = true;
                    // Whatever else has ended by now is written with it.
                    until = Instant::now();
                    if let Some(active) = self.active.remove(&token) {
                        self.end_program(active, &outcome)?;
                    }
                }
                Woken::Suspended => {
                    self.table.erase();
                    self.signals.suspend();
                }
                Woken::Stopped(stop) => {
                    self.table.close();
                    self.stop = Some(stop);
                    self.interrupt_all();
                    return Ok(());
                }
                Woken::Deadline if any => return Ok(()),
                Woken::Deadline => {
                    let now = Instant::now();
                    if now >= self.looked + PERIOD {
                        self.end_oversized_programs();
                        self.looked = now;
                    }
                    if self.ready.next_due().is_some_and(|due| due <= now) {
                        return Ok(());
                    }
                    until = self.earlier_of(self.looked + PERIOD);
                }
            }
        }
    }

    /// What comes through a pipe is taken in: as it comes, or, if only so many may be under way, when there is room.
    fn wants_inputs(&self) -> bool {
        match self.options.queue {
            None => self.failed.is_none() && self.stop.is_none(),
            Some(_) => self.may_admit(),
        }
    }

    fn receive_inputs(&mut self) -> Result<()> {
        self.inputs.receive()?;
        self.tell_of_inputs();
        Ok(())
    }

    /// Says what is to be known about the inputs.
    pub(super) fn tell_of_inputs(&mut self) {
        if let Some(note) = self.inputs.take_note() {
            self.warn(&note);
        }
    }

    /// A time, or that of the next retry, if it is earlier.
    fn earlier_of(&self, time: Instant) -> Instant {
        self.ready.next_due().map_or(time, |due| due.min(time))
    }

    /// Ends programs that print more than may be.
    fn end_oversized_programs(&mut self) {
        for (token, active) in &mut self.active {
            let printed = active.io.join("stdout.log").metadata();
            let printed = printed.map_or(0, |meta| meta.len());
            if printed > MOST_OUTPUT && active.failure.is_none() {
                let failure = Failure::new(FailureCode::Operation, too_much(printed));
                active.failure = Some(failure);
                self.children.interrupt(*token, self.options.grace);
            }
        }
    }

    fn draw_table(&mut self) {
        if !self.table.is_on() {
            return;
        }
        let running = self.active.values().map(|active| RunningProgram {
            task: active.step.task.to_string(),
            node: self.node_id(&active.step).to_owned(),
            attempt: self
                .attempts
                .get(&active.step.key)
                .map_or(1, |it| it.last.max(1)),
            since: active.since,
        });
        let running = running.collect();
        let waiting = self.ready.len() + self.prepared.len() + self.suspended.len();
        self.table.draw(running, waiting);
    }

    fn interrupt_all(&mut self) {
        let tokens: Vec<Token> = self.active.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.options.grace);
    }

    /// Ends all programs, and waits for their ends.
    pub(super) fn end_children(&mut self) {
        self.interrupt_all();
        while !self.children.is_empty() {
            match self.children.wait(None) {
                Ok(Woken::Ended(token, _)) => {
                    self.active.remove(&token);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
        may_fail(self.events.journal.flush());
    }
}
