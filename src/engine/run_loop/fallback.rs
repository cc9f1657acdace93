//! Going on to another model when one fails, within one start.
//!
//! Architecture invariant: each change is in the journal before the other model is asked, and what was said for one
//! service alone, its key and its reasoning, is never sent to another.

use super::builder;
use super::chain::{FailedModel, FallbackModel};
use super::conversation::Conversation;
use super::limits::Limits;
use super::outcome::Step;
use super::run_log::RunLog;
use crate::config::agent::{ChainSource, ModelFailure};
use crate::engine::request::fallback_form;
use crate::error::Result;
use crate::model::wire::Wire;
use crate::record::engine_log::Level;
use crate::record::event::Event;
use crate::record::state::Run;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::Tone;

/// Takes over what earlier starts of the run decide about the models of this one.
pub(super) fn recall_models(talk: &mut Conversation<'_>, run: &Run<'_>) {
    if run.fallback_asked {
        talk.invocations.give_up_open();
    }
    if talk.model.playback().is_some() {
        return;
    }
    let chain = &mut talk.chain;
    if run.fallback_left_out && talk.agent.llm.chain != ChainSource::CommandLine {
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
pub(super) fn skip_first(
    talk: &mut Conversation<'_>,
    log: &mut RunLog<'_>,
    limits: &mut Limits<'_>,
) -> Step<()> {
    match talk.chain.skipped.take() {
        Some(skipped) => change_model(talk, log, limits, skipped),
        None => Ok(()),
    }
}

/// In a replay, switches to the model that gave the next answer in the recorded run.
pub(super) fn play_model(talk: &mut Conversation<'_>, log: &mut RunLog<'_>) -> Result<()> {
    let recorded = talk.model.playback().and_then(|it| it.fallback());
    let Some(recorded) = recorded.filter(|it| it.name != talk.chain.name) else {
        return Ok(());
    };
    let mut others = talk.chain.others.iter();
    let at = others.position(|other| other.name == recorded.name);
    if let Some(next) = at.and_then(|at| talk.chain.others.remove(at)) {
        record_change(talk, log, (&recorded.why, None), &next.name)?;
        go_on_to(talk, &next);
    }
    Ok(())
}

/// Switches to the next model that the chain allows after this failure. Ends the run if no model is left.
pub(super) fn change_model(
    talk: &mut Conversation<'_>,
    log: &mut RunLog<'_>,
    limits: &mut Limits<'_>,
    failed: FailedModel,
) -> Step<()> {
    while let Some(mut next) = talk.chain.others.pop_front() {
        if !next.after.contains(&failed.how) {
            continue;
        }
        let waits = talk
            .chain
            .not_before
            .iter()
            .rfind(|(name, _)| *name == next.name);
        let waits = waits.map(|(_, until)| format!("its service named {until}"));
        let sizes = talk.sizes.of_fallback(next.agent, &next.name);
        let conversation = talk.transcript.messages().len() as u64;
        let is_small = sizes.too_small_for(conversation);
        let is_small = is_small.map(|window| {
            format!("its window of {window} tokens is too small for this conversation")
        });
        if let Some(why) = next.obstacle.take().or(waits).or(is_small) {
            log.record_note(Level::Warn, &format!("{} is skipped: {why}", next.name))?;
            continue;
        }
        let Some(model) = next.model.take() else {
            continue;
        };
        let why = format!("{}: {}", failed.how.name(), failed.why);
        record_change(talk, log, (&why, failed.until), &next.name)?;
        let name = &talk.chain.name;
        let text = format!("{}; asking {} instead of {name}", failed.why, next.name);
        talk.ctx.log.line(Level::Warn, &text);
        log.print_progress(&[(Tone::Bad, &text)]);
        talk.chain.failed.push(failed);
        go_on_to(talk, &next);
        talk.model = model;
        talk.sizes = sizes;
        talk.attachments.refusal = None;
        limits.change_rules(next.spending);
        return Ok(());
    }
    talk.chain.failed.push(failed);
    Err(talk.chain.ending().into())
}

/// Makes requests for another model from now on.
fn go_on_to<'a>(talk: &mut Conversation<'a>, next: &FallbackModel<'a>) {
    talk.chain.name.clone_from(&next.name);
    talk.agent = next.agent;
    talk.wire = Wire::of_fallback(next.agent, talk.ctx.environment, &next.name);
    talk.builder.change_model(builder(next.agent));
    let environment = talk.ctx.environment;
    let form = fallback_form(&next.agent.llm, &next.name, environment);
    talk.transcript.change_form(form);
    talk.invocations.give_up_open();
}

fn record_change(
    talk: &Conversation<'_>,
    log: &mut RunLog<'_>,
    (why, until): (&str, Option<Timestamp>),
    to: &str,
) -> Result<()> {
    talk.ctx.workspace.raise_layout()?;
    let until = until.map(|until| until.to_string());
    log.add(&Event::ModelChanged {
        from: &talk.chain.name,
        to,
        why,
        until: until.as_deref(),
    });
    log.make_durable()
}
