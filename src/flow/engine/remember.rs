//! The context of a step before it begins, and what a step leaves in the files of stores.
//!
//! A program that must be asked first is started like that of an attempt, in its place; when it has
//! answered, the step begins anew and finds everything known.

use super::begin::BeginningStep;
use super::finish::AttemptEnd;
use super::{ActiveProgram, FlowEngine, WaitingProgram};
use crate::error::Result;
use crate::flow::context::helper::{HelperAnswers, HelperQuestion};
use crate::flow::context::recall::{self, Recall};
use crate::flow::context::select::{AssembledContext, NoContext, select_items};
use crate::flow::graph::{Failure, FailureCode};
use crate::flow::manifest::PayloadForm;
use crate::flow::record::attempt::PrintedOutput;
use crate::flow::record::{NodeStart, ProgramInput, attempt};
use crate::record::event::FlowEvent;
use crate::text::ids::hex;
use crate::unix::process::Outcome;
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Looks what the run remembers, before it is read back.
    pub(super) fn begin_recall(&mut self) -> Result<()> {
        let (flow, root) = (self.place.flow, &self.place.workspace.root);
        self.recall = Recall::new(flow, root, &self.place.run)?;
        if self.options.answered.is_some() {
            self.recall.leave_stores();
        }
        if self.options.is_live {
            let place = (root.as_path(), &self.place.run);
            match self.recall.begin(flow, place, self.signals) {
                Err(_) if self.signals.stop().is_some() => self.stop = self.signals.stop(),
                begun => return begun,
            }
        }
        Ok(())
    }

    /// The context of a step. One that runs nothing is given none.
    pub(super) fn assemble(
        &self,
        beginning: &BeginningStep,
    ) -> std::result::Result<AssembledContext, NoContext> {
        let flow = self.place.flow;
        let key = beginning.step.key;
        if let Some(context) = self.recorded_context(&beginning.step) {
            return Ok(context);
        }
        let settings = &flow.nodes[beginning.step.node];
        let profile = recall::profile_of(flow, settings.context).filter(|_| settings.runs());
        let (Some(profile), Some(router)) = (profile, self.router(key)) else {
            return Ok(AssembledContext::none());
        };
        let notes = router.notes(key.step);
        let known = HelperAnswers::new(flow, self.place.workspace);
        let candidates = self
            .recall
            .candidates(flow, &profile, (key.root, &notes))
            .map_err(NoContext::Fault)?;
        select_items(&profile, &beginning.input, &candidates, &known)
    }

    /// Prepares a program that knows what a context needs.
    pub(super) fn ask_helper(
        &mut self,
        beginning: &BeginningStep,
        ask: HelperQuestion,
    ) -> Result<()> {
        let flow = self.place.flow;
        let Some(program) = ask.kind.of(flow) else {
            return Ok(());
        };
        let step = &beginning.step;
        let dir = self.place.workspace.root.clone();
        let name = format!("{}.{}", self.node_id(step), ask.kind.name());
        let given = ProgramInput {
            argv: program.command.argv(&flow.home, &dir),
            dir,
            input: &ask.input(),
            context: None,
            stdin: None,
        };
        let place = (&*step.task, name.as_str());
        let prepared =
            attempt::prepare_attempt(&self.place.run.path, place, given, &mut self.linked)?;
        self.note_records(step.key, [prepared.reference.clone()].into_iter());
        self.prepared.push_back(WaitingProgram {
            active: ActiveProgram {
                step: step.clone(),
                io: prepared.io.clone(),
                since: Instant::now(),
                failure: None,
                cancelled: false,
                asks: Some(ask),
            },
            prepared,
            call_id: format!("{}.{}", self.calls_of_helpers(), hex(12)),
            attempt: beginning.attempt,
            is_recorded: false,
        });
        Ok(())
    }

    /// How long a program may take to answer.
    pub(super) fn time_for(&self, ask: &HelperQuestion) -> Option<Duration> {
        ask.kind.of(self.place.flow)?.timeout
    }

    /// The beginning of the ids of calls that the journal does not have.
    pub(super) fn calls_of_helpers(&self) -> String {
        format!("{}{}", self.place.call_prefix, self.recall.key())
    }

    /// A program has been asked, and has ended.
    pub(super) fn end_helper(&mut self, active: ActiveProgram, outcome: &Outcome) -> Result<()> {
        let Some(ask) = &active.asks else {
            return Ok(());
        };
        let fault = match &active.failure {
            Some(failure) => Some(failure.clone()),
            None => attempt::find_failure(&active.io, outcome, self.time_for(ask))?,
        };
        let printed = match fault {
            Some(failure) => Err(failure),
            None => PrintedOutput::read(&active.io)?.payload(PayloadForm::Json, ""),
        };
        let printed = printed.map_err(|failure| failure.message.to_string());
        let answers = printed.as_ref().map_err(String::clone);
        match answers.and_then(|printed| ask.answers(printed)) {
            Ok(answers) => {
                let known = HelperAnswers::new(self.place.flow, self.place.workspace);
                known.learn(ask, &answers)?;
                self.ready.push_front(active.step);
                Ok(())
            }
            Err(why) => self.fail_helper(active, &why),
        }
    }

    /// A program could not answer what a context needs.
    pub(super) fn fail_helper(&mut self, active: ActiveProgram, why: &str) -> Result<()> {
        let name = active.asks.as_ref().map_or("", |ask| ask.kind.name());
        let attempts = self.attempts.entry(active.step.key).or_default();
        attempts.last += 1;
        let reference = attempt::reference(&self.place.run.path, &active.io);
        let start = NodeStart {
            attempt: attempts.last,
            execution_ref: Some(&reference),
            ..NodeStart::default()
        };
        self.events.add_node_start(&active.step, start);
        let failure = Failure::new(FailureCode::Context, format!("{name}: {why}"));
        let ended = AttemptEnd {
            io: Some(active.io.clone()),
            ..AttemptEnd::default()
        };
        self.judge(&active.step, Err(failure), ended)
    }

    /// Appends to the files of stores what the ends of steps brought, once these are on disk, and says so.
    /// `once`: a process that died may have appended some of it.
    pub(super) fn store_items(&mut self, once: bool) -> Result<()> {
        if self.recall.owed().is_empty() || !self.options.is_live {
            return Ok(());
        }
        self.events.journal.sync()?;
        match self.recall.pay(once, self.signals) {
            Ok(paid) => {
                for (store, item) in paid {
                    self.events.journal.add_line(FlowEvent::Memory, |line| {
                        line.put("task_id", &item.task_id)
                            .put("node_id", &item.node_id)
                            .put("store", store.name())
                            .put("item_id", &item.id);
                    });
                }
                Ok(())
            }
            // Somebody else writes there, and a signal does not wait. The next start appends it.
            Err(_) if self.signals.stop().is_some() => {
                self.stop = self.signals.stop();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
