//! The context of a step before it begins, and what a step leaves in the files of stores.
//!
//! A program that must be asked first is started like that of an attempt, in its place; when it has
//! answered, the step begins anew and finds everything known.

use super::begin::{BeginningStep, start_of};
use super::finish::AttemptEnd;
use super::{Active, FlowEngine, Waiting};
use crate::error::Result;
use crate::flow::context::helper::{HelperAnswers, HelperQuestion};
use crate::flow::context::recall::{self, Recall};
use crate::flow::context::select::{AssembledContext, Selection, select};
use crate::flow::graph::choice::{Failure, FailureCode};
use crate::flow::manifest::OutputForm;
use crate::flow::record::attempt::{self, ProgramInput};
use crate::flow::record::events::NodeStart;
use crate::record::event::EventKind;
use crate::text::ids::hex;
use crate::unix::process::Outcome;
use std::time::{Duration, Instant};

impl FlowEngine<'_> {
    /// Looks what the run remembers, before it is read back.
    pub(super) fn begin_recall(&mut self) -> Result<()> {
        let (flow, root) = (self.place.flow, &self.place.workspace.root);
        self.recall = Recall::new(flow, root, &self.place.run)?;
        if self.options.is_live {
            let place = (root.as_path(), &self.place.run);
            match self.recall.begin(flow, place, self.signals) {
                Err(_) if self.signals.stop().is_some() => self.stop = self.signals.stop(),
                begun => return begun,
            }
        }
        Ok(())
    }

    /// The context of a step. One that runs nothing is given none. None at all if a program had to be asked
    /// first: the step begins anew when it has answered.
    pub(super) fn assemble(
        &mut self,
        beginning: &BeginningStep,
    ) -> Result<Option<std::result::Result<AssembledContext, Failure>>> {
        let flow = self.place.flow;
        let settings = &flow.nodes[beginning.node];
        let profile = recall::profile(flow, settings.context).filter(|_| settings.runs());
        let (Some(profile), Some(root)) = (profile, self.roots.get(&beginning.which.0)) else {
            return Ok(Some(Ok(AssembledContext::none())));
        };
        let notes = root.router.notes(beginning.which.1);
        let known = HelperAnswers::new(flow, self.place.workspace);
        let selected = self
            .recall
            .candidates(flow, &profile, (beginning.which.0, &notes))
            .and_then(|candidates| select(&profile, &beginning.input, &candidates, &known));
        match selected {
            Ok(Selection::Context(context)) => Ok(Some(Ok(context))),
            Ok(Selection::Ask(ask)) => self.ask(beginning, ask).map(|()| None),
            Err(why) => Ok(Some(Err(Failure::new(FailureCode::Context, why)))),
        }
    }

    /// Prepares a program that knows what a context needs.
    fn ask(&mut self, beginning: &BeginningStep, ask: HelperQuestion) -> Result<()> {
        let flow = self.place.flow;
        let Some(program) = ask.kind.of(flow) else {
            return Ok(());
        };
        let dir = self.place.workspace.root.clone();
        let home = flow.home.to_string_lossy().into_owned();
        let name = format!(
            "{}.{}",
            flow.graph.nodes[beginning.node].id,
            ask.kind.name()
        );
        let given = ProgramInput {
            argv: program.command.argv(&home, &dir.to_string_lossy()),
            dir,
            input: &ask.input(),
            context: None,
            stdin: None,
        };
        let place = (beginning.task.as_str(), name.as_str());
        let prepared = attempt::prepare(&self.place.run.path, place, given, &mut self.alike)?;
        let active = Active {
            which: beginning.which,
            io: prepared.io.clone(),
            since: Instant::now(),
            doomed: None,
            cancelled: false,
            asks: Some(ask),
        };
        self.prepared.push_back(Waiting {
            active,
            prepared,
            call_id: format!("{}.{}", self.calls_of_helpers(), hex(12)),
            task: beginning.task.clone(),
            node: beginning.node,
            attempt: beginning.attempt,
            is_recorded: false,
        });
        Ok(())
    }

    /// How long a program may take to answer.
    pub(super) fn time_for(&self, ask: &HelperQuestion) -> Option<Duration> {
        ask.kind.of(self.place.flow)?.timeout
    }

    /// What the ids of calls begin with that the journal does not tell of.
    pub(super) fn calls_of_helpers(&self) -> String {
        format!("{}{}", self.place.call_prefix, self.recall.key())
    }

    /// A program has been asked, and has ended.
    pub(super) fn told_by_program(&mut self, active: Active, outcome: &Outcome) -> Result<()> {
        let Some(ask) = &active.asks else {
            return Ok(());
        };
        let fault = match &active.doomed {
            Some(failure) => Some(failure.clone()),
            None => attempt::fault(&active.io, outcome, self.time_for(ask))?,
        };
        let printed = match fault {
            Some(failure) => Err(failure),
            None => attempt::output(&active.io, OutputForm::Json)?,
        };
        let printed = match printed {
            Ok(printed) => printed,
            Err(failure) => return self.cannot_tell(active, &failure.message),
        };
        let known = HelperAnswers::new(self.place.flow, self.place.workspace);
        match known.learn(ask, &printed)? {
            Ok(()) => self.ready.push_front(active.which),
            Err(why) => return self.cannot_tell(active, &why),
        }
        Ok(())
    }

    /// A program could not tell what a context needs.
    pub(super) fn cannot_tell(&mut self, active: Active, why: &str) -> Result<()> {
        let which = active.which;
        let name = active.asks.as_ref().map_or("", |ask| ask.kind.name());
        let attempt = self.tries.get(&which).map_or(0, |tries| tries.last) + 1;
        self.tries.entry(which).or_default().last = attempt;
        let reference = active.io.strip_prefix(&self.place.run.path);
        let reference = reference
            .unwrap_or(&active.io)
            .to_string_lossy()
            .into_owned();
        let start = NodeStart {
            execution_ref: Some(&reference),
            ..start_of(attempt)
        };
        self.record_start(which, start);
        let failure = Failure::new(FailureCode::Context, format!("{name}: {why}"));
        self.judge(which, Err(failure), AttemptEnd::recorded(active.io))
    }

    /// Appends to the files of stores what the ends of steps brought, once these are on disk, and says so.
    /// `once`: a process that died may have appended some of it.
    pub(super) fn write_down(&mut self, once: bool) -> Result<()> {
        if self.recall.owed().is_empty() || !self.options.is_live {
            return Ok(());
        }
        self.journal.sync()?;
        match self.recall.pay(once, self.signals) {
            Ok(paid) => {
                for (which, item) in paid {
                    self.journal.add_line(&EventKind::Memory, |line| {
                        line.put("task_id", &item.task_id)
                            .put("node_id", &item.node_id)
                            .put("store", which.name())
                            .put("item_id", &item.id);
                    });
                }
                Ok(())
            }
            // Somebody else writes there, and a signal does not wait. Whoever takes the run up appends it.
            Err(_) if self.signals.stop().is_some() => {
                self.stop = self.signals.stop();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
