//! Waiting for programs and for inputs.

use super::FlowEngine;
use super::program_end::end_program;
use crate::error::{Error, Result, reason};
use crate::flow::view::progress_table::RunningProgram;
use crate::text::timestamp::Timestamp;
use crate::unix::process::Woken;
use crate::unix::unread_stdin;
use std::time::{Duration, Instant};

/// Waits until something has ended, and takes in all that has.
pub(super) fn wait(engine: &mut FlowEngine<'_>) -> Result<()> {
    /// The time between two looks at how much programs have printed.
    const PERIOD: Duration = Duration::from_secs(1);
    let mut until = earlier_of(engine, engine.programs.looked + PERIOD);
    let mut any = false;
    loop {
        if !any {
            draw_table(engine);
        }
        let source = match wants_inputs(engine) {
            true => engine
                .queue
                .inputs
                .descriptor(engine.options.queue.is_some()),
            false => None,
        };
        let woken = engine.programs.children.wait_or_read(Some(until), source);
        let woken = woken.map_err(|e| {
            let reason = reason(&e);
            Error::failure(format!("cannot wait for programs: {reason}"))
        })?;
        let Some(woken) = woken else {
            return receive_inputs(engine);
        };
        match woken {
            Woken::Ended(token, outcome) => {
                any = true;
                // The other programs that have ended by now are written with it.
                until = Instant::now();
                unread_stdin::warn();
                if let Some(active) = engine.programs.active.remove(&token) {
                    end_program(engine, active, &outcome)?;
                }
            }
            Woken::Suspended => {
                engine.table.erase();
                engine.programs.signals.suspend();
            }
            Woken::Stopped(stop) => {
                engine.table.close();
                engine.programs.stop = Some(stop);
                engine.programs.interrupt_all();
                return Ok(());
            }
            Woken::Deadline if any => return Ok(()),
            Woken::Deadline => {
                let now = Instant::now();
                if now >= engine.programs.looked + PERIOD {
                    engine.programs.end_oversized();
                    engine.programs.looked = now;
                }
                let is_retry_due = engine.queue.ready.next_due().is_some_and(|due| due <= now);
                if is_retry_due || engine.queue.has_timer_due(Timestamp::now()) {
                    return Ok(());
                }
                until = earlier_of(engine, engine.programs.looked + PERIOD);
            }
        }
    }
}

/// Input from a pipe is taken in as it comes, or, with a limit on roots, when there is room.
fn wants_inputs(engine: &FlowEngine<'_>) -> bool {
    match engine.options.queue {
        None => engine.roots.failed.is_none() && engine.programs.stop.is_none(),
        Some(_) => engine.may_admit(),
    }
}

fn receive_inputs(engine: &mut FlowEngine<'_>) -> Result<()> {
    engine.queue.inputs.receive()?;
    note_inputs(engine);
    Ok(())
}

/// Prints and records the message about the inputs.
pub(super) fn note_inputs(engine: &mut FlowEngine<'_>) {
    if let Some(note) = engine.queue.inputs.take_note() {
        engine.warn(&note);
    }
}

/// A time, or that of the next retry, if it is earlier.
fn earlier_of(engine: &FlowEngine<'_>, time: Instant) -> Instant {
    engine
        .queue
        .ready
        .next_due()
        .map_or(time, |due| due.min(time))
}

fn draw_table(engine: &mut FlowEngine<'_>) {
    if !engine.table.is_on() {
        return;
    }
    let running = engine
        .programs
        .active
        .values()
        .map(|active| RunningProgram {
            task: active.step.task.to_string(),
            node: engine.place.node_id(&active.step).to_owned(),
            attempt: engine.attempts.of(active.step.key).last.max(1),
            since: active.since,
        });
    let running = running.collect();
    let (queue, prepared) = (&engine.queue, engine.programs.prepared.len());
    let waiting = queue.ready.len() + prepared + queue.suspended.len();
    engine.table.draw(running, waiting);
}
