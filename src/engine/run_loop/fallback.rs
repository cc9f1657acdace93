//! Going on to another model when one fails, within one start.
//!
//! Architecture invariant: each change is in the journal before the other model is asked, and what was said for one
//! service alone, its key and its reasoning, is never sent to another.

pub(super) mod chain;

use super::outcome::Step;
use super::{Engine, builder};
use crate::config::agent::{ChainSource, ModelFailure};
use crate::engine::request::form;
use crate::model::wire::Wire;
use crate::record::engine_log::Level;
use crate::record::event::ModelChangedEvent;
use crate::record::state::Run;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::Tone;
use chain::FailedModel;

/// Takes over what earlier starts of the run decide about the models of this one.
pub(super) fn recall_models(engine: &mut Engine<'_>, run: &Run<'_>) {
    if run.fallback_asked {
        engine.invocations.give_up_open();
    }
    let chain = &mut engine.chain;
    if run.fallback_left_out && engine.asked.llm.chain != ChainSource::CommandLine {
        chain.others.clear();
    }
    if chain.others.is_empty() {
        return;
    }
    let now = Timestamp::now();
    for recorded in &run.not_before {
        let Some(until) = Timestamp::parse(&recorded.until).filter(|until| *until > now) else {
            continue;
        };
        if *recorded.model == *chain.name {
            let how = recorded.why.split_once(": ").map_or("", |(how, _)| how);
            chain.skipped = Some(FailedModel {
                how: ModelFailure::parse(how).unwrap_or(ModelFailure::Unavailable),
                why: format!("{} is not asked before {until}", chain.name),
                until: Some(until),
            });
        }
        chain.not_before.push((recorded.model.to_string(), until));
    }
}

/// Goes on to another model if the first is not to be asked yet.
pub(super) fn skip_first(engine: &mut Engine<'_>) -> Step<()> {
    match engine.chain.skipped.take() {
        Some(skipped) => change_model(engine, skipped),
        None => Ok(()),
    }
}

/// Switches to the next model that the chain allows after this failure. Ends the run if no model is left.
pub(super) fn change_model(engine: &mut Engine<'_>, failed: FailedModel) -> Step<()> {
    while let Some(mut next) = engine.chain.others.pop_front() {
        if !next.after.contains(&failed.how) {
            continue;
        }
        let waits = engine
            .chain
            .not_before
            .iter()
            .rfind(|(name, _)| *name == next.name)
            .map(|(_, until)| format!("its service named {until}"));
        let sizes = engine.sizes.of_fallback(next.agent, &next.name);
        let conversation = engine.transcript.messages().len() as u64;
        let is_small = sizes.too_small_for(conversation).map(|window| {
            format!("its window of {window} tokens is too small for this conversation")
        });
        if let Some(why) = next.obstacle.take().or(waits).or(is_small) {
            engine
                .log
                .record_note(Level::Warn, &format!("{} is skipped: {why}", next.name))?;
            continue;
        }
        let Some(model) = next.model.take() else {
            continue;
        };
        let why = format!("{}: {}", failed.how.name(), failed.why);
        let until = failed.until.map(|until| until.to_string());
        engine.log.add_durably(&ModelChangedEvent {
            from: &engine.chain.name,
            to: &next.name,
            why: &why,
            until: until.as_deref(),
        })?;
        let name = &engine.chain.name;
        let text = format!("{}; asking {} instead of {name}", failed.why, next.name);
        engine.ctx.log.line(Level::Warn, &text);
        engine.log.print_progress(&[(Tone::Bad, &text)]);
        engine.chain.failed.push(failed);
        let environment = engine.ctx.environment;
        let form = form(&next.agent.llm, environment, Some(&next.name));
        engine.asked = next.agent;
        engine.wire = Wire::of_fallback(next.agent, environment, &next.name);
        engine.builder.change_model(builder(next.agent));
        engine.transcript.change_form(form);
        engine.invocations.give_up_open();
        engine.chain.name = next.name;
        engine.model = model;
        engine.sizes = sizes;
        engine.attachments.refusal = None;
        engine.limits.change_rules(next.spending);
        return Ok(());
    }
    engine.chain.failed.push(failed);
    Err(engine.chain.ending().into())
}
