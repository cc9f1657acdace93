//! Goes on where the journal leaves a run: the ends that it has are routed again, and events that are
//! missing are added.

use super::FlowEngine;
use super::attempt_runs::KeptRun;
use super::queue::wait_after;
use crate::error::Result;
use crate::flow::graph::{Effect, Failure, StepRef};
use crate::flow::manifest::ResumePolicy;
use crate::flow::record::lineage::Attempts;
use crate::flow::record::{AttemptEnd, Lineage, Replay, Replayed, Retries, each_line, edge_told};
use crate::record::event::{Line, Recorded};
use crate::record::reader::JournalSource;
use crate::text::amounts::counted;
use crate::text::timestamp::Timestamp;
use crate::unix::process;
use std::collections::HashSet;
use std::time::{Duration, Instant};

impl<'e> FlowEngine<'e> {
    /// Brings everything to where the journal leaves it.
    pub(super) fn resume(&mut self, record: &[u8]) -> Result<()> {
        self.begin_recall()?;
        let mut lineage = Lineage::default();
        let journal = JournalSource {
            path: self.events.journal.path().to_owned(),
            read: Some(record),
        };
        let retries = Retries::read(journal.clone())?;
        let mut replay = Replay::new(self.place.plan, &self.place.run.path, retries);
        let mut stored = HashSet::new();
        let mut dead = Vec::new();
        each_line(journal, false, |line| {
            lineage.add(line);
            self.replay_line(line, &mut replay, &mut lineage, &mut stored, &mut dead)?;
            Ok(true)
        })?;
        self.context.forget_stored(&stored);
        self.store_items(true)?;
        self.note_inputs();
        for (number, report) in replay.unrecorded() {
            if let Some(router) = self.roots.open.get(number) {
                self.events.add_effect(router, report, None);
            }
        }
        // A race that is decided is on disk before its losers are ended.
        let is_won = |(_, effect): &(_, Effect)| matches!(effect, Effect::Won(..));
        if replay.unrecorded().any(is_won) {
            self.events.journal.sync()?;
        }
        // Of cancelled steps, too.
        dead.extend(lineage.running_calls(None));
        self.attempts.begun_before = lineage.begun_before();
        let failed: Vec<StepRef> = self.reopen(replay.into_open(), &lineage)?;
        self.end_leftovers(&dead)?;
        for number in self.roots.open.keys().copied().collect::<Vec<_>>() {
            self.harvest_root(number);
        }
        for step in failed {
            let message = "the engine was stopped while it ran, and on_resume: fail is set";
            self.finish_step(
                &step,
                Err(Failure::operation(message)),
                AttemptEnd::default(),
            )?;
        }
        Ok(())
    }

    /// Follows a line of the journal. Items of steps that are `stored` are in the files of stores; calls that are `dead` may
    /// have left processes.
    fn replay_line(
        &mut self,
        line: &Line<'_>,
        replay: &mut Replay<'e>,
        lineage: &mut Lineage,
        stored: &mut HashSet<String>,
        dead: &mut Vec<String>,
    ) -> Result<()> {
        let (flow, recall) = (self.place.flow, &mut self.context);
        let time = line.time().unwrap_or(Timestamp::from_millis(0));
        let replayed = replay.follow(&mut self.roots.open, line, |step, output| {
            recall.note(flow, step, output, time)
        })?;
        match (replayed, &line.event) {
            (Replayed::Root(number, input), event) => {
                if let Recorded::TaskCreated(task) = event {
                    self.queue
                        .faults
                        .extend(task.input_error.owned().map(|it| (number, it)));
                }
                self.queue.inputs.pass_over(number, &input)?;
            }
            (Replayed::RootEnd(number), _) => {
                self.harvest_root(number);
                if !self.roots.open.contains_key(&number) {
                    dead.extend(lineage.running_calls(Some(number)));
                    lineage.forget(number);
                }
            }
            (Replayed::Other, Recorded::Retry(_)) => {
                // What the steps that are done again had left in stores does not count.
                self.context.forget_stored(stored);
                stored.clear();
                lineage.retire(&replay.open_steps());
            }
            (Replayed::Other, Recorded::Memory(memory)) => stored.extend(memory.item_id.owned()),
            (Replayed::End(_), Recorded::NodeEnd(end)) => {
                self.table.count_end(!end.has_failed());
                let (spent, place) = (&mut self.programs.spent, &self.place);
                spent.spend_replayed(place, line, lineage);
                spent.remove(place, &self.events.journal);
            }
            (Replayed::Other | Replayed::End(_), _) => {}
        }
        Ok(())
    }

    /// Makes the steps ready that have not ended. Returns those that must not be begun again.
    fn reopen(&mut self, open: Vec<StepRef>, lineage: &Lineage) -> Result<Vec<StepRef>> {
        let flow = self.place.flow;
        let mut failed = Vec::new();
        for step in open {
            let (node, edge) = (self.place.node_id(&step), edge_told(&flow.graph, &step));
            let (key, edge) = (step.key, edge.as_deref());
            let record = lineage.open_step(&step.task, node, edge);
            if let Some(record) = record.filter(|record| record.is_running) {
                if let Some(io) = record.records.last() {
                    self.add_tool_calls(&step, &self.place.run.path.join(io), &record.calls)?;
                }
                let fails = flow.nodes[step.node].on_resume == ResumePolicy::Fail;
                if fails && record.call_id.is_some() && !flow.is_own_run(step.node) {
                    failed.push(step);
                    continue;
                }
            }
            let attempts = lineage.attempts(&step.task, node, edge);
            if let Some(record) = record {
                let is_open = record.is_running;
                let own_run = record.own_run.iter().cloned();
                self.attempts
                    .own_runs
                    .extend(own_run.map(|run| (key, KeptRun { run, is_open })));
                for reference in &record.records {
                    self.programs.spent.note(key, reference);
                }
                self.attempts
                    .deferred
                    .extend(record.deferred.iter().cloned().map(|it| (key, it)));
            }
            if attempts.last > 0 || attempts.pause_acknowledged {
                self.attempts.counts.insert(key, attempts);
            }
            match rest_of_wait(&attempts) {
                Some(wait) => self.queue.delay(step, Instant::now() + wait),
                None => self.queue.ready.push_back(step),
            }
        }
        Ok(failed)
    }

    /// Ends what is left of programs whose engine died.
    fn end_leftovers(&mut self, calls: &[String]) -> Result<()> {
        if !self.options.is_ours || calls.is_empty() {
            return Ok(());
        }
        let count = process::end_all_leftovers(calls);
        if count > 0 {
            let processes = counted(count, "process");
            self.warn(&format!(
                "ended {processes} that an engine that died had left"
            ));
            self.events.journal.flush()?;
        }
        Ok(())
    }
}

/// The rest of the wait of a retry. Neither a clock that jumped nor a record makes that longer than it was.
fn rest_of_wait(attempts: &Attempts) -> Option<Duration> {
    Some(
        attempts
            .retry_at?
            .since(Timestamp::now())
            .min(wait_after(attempts.failed)),
    )
}
