//! The context of a step before it begins, and what a step leaves in the files of stores.
//!
//! A program that must be asked first is started like that of an attempt, in its place; when it has
//! answered, the step begins anew and finds everything known.

use super::prepare::BeginningStep;
use super::programs::ActiveProgram;
use super::{FlowEngine, RunPlace};
use crate::error::Result;
use crate::flow::context::helper::{HelperAnswers, HelperQuestion};
use crate::flow::context::recall::{self, Recall};
use crate::flow::context::select::{AssembledContext, NoContext, select_items};
use crate::flow::manifest::{Flow, PayloadForm};
use crate::flow::record::attempt::{self, PrintedOutput};
use crate::record::event::FlowEvent;
use crate::unix::process::Outcome;
use std::time::Duration;

/// Reads what the run remembers, before the journal is read back.
pub(super) fn begin_recall(engine: &mut FlowEngine<'_>) -> Result<()> {
    let place = &engine.place;
    let (flow, root) = (place.flow, place.workspace.root.as_path());
    engine.context = Recall::new(flow, root, &place.run)?;
    if engine.options.answered.is_some() {
        engine.context.leave_stores();
    }
    if !engine.options.is_live {
        return Ok(());
    }
    let signals = engine.programs.signals;
    match engine.context.begin(flow, (root, &place.run), signals) {
        Err(_) if engine.programs.take_stop() => Ok(()),
        begun => begun,
    }
}

/// The context of a step: the empty one if it runs nothing.
pub(super) fn assemble(
    engine: &FlowEngine<'_>,
    beginning: &BeginningStep,
) -> std::result::Result<AssembledContext, NoContext> {
    let (place, step) = (&engine.place, &beginning.step);
    let answered = engine.options.answered.as_ref();
    if let Some(context) = answered.and_then(|it| it.context(place, step)) {
        return Ok(context);
    }
    let settings = &place.flow.nodes[step.node];
    let profile = recall::profile_of(place.flow, settings.context).filter(|_| settings.runs());
    let (Some(profile), Some(router)) = (profile, engine.roots.router(step.key)) else {
        return Ok(AssembledContext::none());
    };
    let notes = router.notes(step.key.step);
    let known = HelperAnswers::new(place.flow, place.workspace);
    let candidates = engine
        .context
        .candidates(place.flow, &profile, (step.key.root, &notes))
        .map_err(NoContext::Fault)?;
    select_items(&profile, &beginning.input, &candidates, &known)
}

/// The time that a program has for an answer.
pub(super) fn time_for(flow: &Flow, ask: &HelperQuestion) -> Option<Duration> {
    ask.kind.of(flow)?.timeout
}

/// Keeps the answers of a program that has ended. Returns why it has none.
pub(super) fn learn(
    place: &RunPlace<'_>,
    active: &ActiveProgram,
    (ask, outcome): (&HelperQuestion, &Outcome),
) -> Result<Option<String>> {
    let fault = match &active.failure {
        Some(failure) => Some(failure.clone()),
        None => attempt::find_failure(&active.io, outcome, time_for(place.flow, ask))?,
    };
    if let Some(failure) = fault {
        return Ok(Some(failure.message.to_string()));
    }
    let printed = PrintedOutput::read(&active.io)?.payload(PayloadForm::Json, "");
    let printed = printed.map_err(|failure| failure.message.to_string());
    let answers = printed.as_ref().map_err(String::clone);
    match answers.and_then(|printed| ask.answers(printed)) {
        Ok(answers) => {
            HelperAnswers::new(place.flow, place.workspace).learn(ask, &answers)?;
            Ok(None)
        }
        Err(why) => Ok(Some(why)),
    }
}

/// Appends the items of steps that have ended to the files of stores, once the ends are on disk, and records it.
/// `once`: a process that died may have appended some of it.
pub(super) fn store_items(engine: &mut FlowEngine<'_>, once: bool) -> Result<()> {
    if engine.context.owed().is_empty() || !engine.options.is_live {
        return Ok(());
    }
    engine.events.journal.sync()?;
    match engine.context.pay(once, engine.programs.signals) {
        Ok(paid) => {
            for (store, item) in paid {
                engine.events.journal.add_line(FlowEvent::Memory, |line| {
                    line.put("task_id", &item.task_id)
                        .put("node_id", &item.node_id)
                        .put("store", store.name())
                        .put("item_id", &item.id);
                });
            }
            Ok(())
        }
        // Another process holds the file, and a signal does not wait. The next start appends it.
        Err(_) if engine.programs.take_stop() => Ok(()),
        Err(error) => Err(error),
    }
}
