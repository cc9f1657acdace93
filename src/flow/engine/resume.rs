//! Goes on where the journal leaves a run: what an earlier engine did is routed again, and what is
//! missing of its record is added.

use super::agents::is_own_run;
use super::finish::{AttemptEnd, add_tool_calls};
use super::ready::wait_after;
use super::{FlowEngine, KeptRun};
use crate::error::Result;
use crate::flow::PROGRAM;
use crate::flow::graph::{Effect, Failure, FailureCode, StepRef};
use crate::flow::manifest::ResumePolicy;
use crate::flow::record::lineage::Attempts;
use crate::flow::record::{Lineage, Replay, Replayed, TakenBack, each_line, edge_told};
use crate::record::event::{EventKind, FlowEvent};
use crate::text::timestamp::Timestamp;
use crate::unix::process;
use crate::unix::terminal::counted;
use std::collections::HashSet;
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Brings everything to where the journal leaves it.
    pub(super) fn resume(&mut self) -> Result<()> {
        self.begin_recall()?;
        let (flow, plan) = (self.place.flow, self.place.plan);
        let mut lineage = Lineage::default();
        let path = self.events.journal.path().to_owned();
        let taken = TakenBack::read(&path)?;
        let mut replay = Replay::new(plan, &self.place.run.path, taken);
        let mut stored: HashSet<String> = HashSet::new();
        let mut dead = Vec::new();
        each_line(&path, false, |line| {
            lineage.add(line);
            let recall = &mut self.recall;
            let time = line.time().unwrap_or(Timestamp::from_millis(0));
            let replayed = replay.follow(&mut self.roots, line, |step, output| {
                recall.note(flow, step, output, time)
            })?;
            match replayed {
                Replayed::Root(number, input) => {
                    if let Some(fault) = line.input_error.as_deref() {
                        self.faults.insert(number, fault.to_owned());
                    }
                    self.inputs.pass_over(number, &input)?;
                }
                Replayed::RootEnd(number) => {
                    self.harvest(number);
                    if !self.roots.contains_key(&number) {
                        dead.extend(lineage.running_calls(Some(&format!("T{number}"))));
                        lineage.forget(&format!("T{number}"));
                    }
                }
                Replayed::Other if line.kind == EventKind::Flow(FlowEvent::Retry) => {
                    // What the steps that are done again had left in stores does not count.
                    self.recall.forget_stored(&stored);
                    stored.clear();
                    lineage.retire(&replay.open_steps());
                }
                Replayed::Other if line.kind == EventKind::Flow(FlowEvent::Memory) => {
                    stored.extend(line.item_id.as_deref().map(str::to_owned));
                }
                Replayed::End(_) => {
                    let is_good = line.status.as_deref() != Some("failure");
                    self.table.count_end(is_good);
                    self.spend_replayed(line, &lineage);
                }
                Replayed::Other => {}
            }
            Ok(true)
        })?;
        self.recall.forget_stored(&stored);
        self.store_items(true)?;
        self.tell_of_inputs();
        for (number, report) in replay.unrecorded() {
            if let Some(router) = self.roots.get(number) {
                self.events.add_effect(router, report, None);
            }
        }
        // A race that is decided is on disk before its losers are ended.
        if replay
            .unrecorded()
            .any(|(_, it)| matches!(it, Effect::Won(..)))
        {
            self.events.journal.sync()?;
        }
        // Of steps that nobody wants any more, too.
        dead.extend(lineage.running_calls(None));
        self.begun_before = lineage.begun_before();
        self.go_on(replay.into_open(), &lineage, dead)
    }

    /// Begins again with the steps that have not ended.
    fn go_on(
        &mut self,
        open: Vec<StepRef>,
        lineage: &Lineage,
        mut dead: Vec<String>,
    ) -> Result<()> {
        let flow = self.place.flow;
        let mut failed = Vec::new();
        for step in open {
            let (node, edge) = (self.node_id(&step), edge_told(&flow.graph, &step));
            let edge = edge.as_deref();
            let record = lineage.open_step(&step.task, node, edge);
            if let Some(record) = record.filter(|record| record.is_running) {
                if let Some(io) = record.records.last() {
                    let io = self.place.run.path.join(io);
                    add_tool_calls(&mut self.events, &self.place, &step, (&io, &record.calls))?;
                }
                let fails = flow.nodes[step.node].on_resume == ResumePolicy::Fail;
                if fails && record.call_id.is_some() && !is_own_run(flow, step.node) {
                    failed.push(step);
                    continue;
                }
            }
            if let Some((run, is_open)) = lineage.own_run(&step.task, node, edge) {
                self.own_runs.insert(step.key, KeptRun { run, is_open });
            }
            let attempts = lineage.attempts(&step.task, node, edge);
            if let Some(record) = lineage.open_step(&step.task, node, edge) {
                self.note_records(step.key, record.records.iter().cloned());
            }
            if attempts.last > 0 || attempts.pause_acknowledged {
                self.attempts.insert(step.key, attempts);
            }
            match rest_of_wait(&attempts) {
                Some(wait) => self.ready.delay(step, Instant::now() + wait),
                None => self.ready.push_back(step),
            }
        }
        if self.recall.asks(flow) {
            dead.push(self.calls_of_helpers());
        }
        self.end_leftovers(&dead)?;
        for number in self.roots.keys().copied().collect::<Vec<_>>() {
            self.harvest(number);
        }
        for step in failed {
            let message = "the engine was stopped while it ran, and on_resume: fail is set";
            let failure = Failure::new(FailureCode::Operation, message);
            self.finish(&step, Err(failure), AttemptEnd::default())?;
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
            self.warn(&text);
            self.events.journal.flush()?;
        }
        Ok(())
    }

    /// Says something, and notes that it was said.
    pub(super) fn warn(&mut self, text: &str) {
        self.options.screen.warn_as(PROGRAM, text);
        let journal = &mut self.events.journal;
        journal.add_line(EventKind::SystemMessage, |line| {
            line.put("level", "WARN").put("content", text);
        });
    }
}

/// How long a retry still waits. Neither a clock that jumped nor a record makes that longer than it was.
fn rest_of_wait(attempts: &Attempts) -> Option<Duration> {
    let rest = attempts.retry_at?.since(Timestamp::now());
    Some(rest.min(wait_after(attempts.failed)))
}
