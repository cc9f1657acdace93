//! Attachments that the service refuses.
//!
//! Architecture invariant: a refused attachment ends no run. It becomes its line, in this request and all later ones.

use super::attachments::taken;
use super::outcome::Step;
use super::{Engine, from_journal};
use crate::error::Result;
use crate::model::ask::wants_answer_between;
use crate::model::replay::Playback;
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::LeftOutReason;
use crate::record::state::Turn;

/// The request to be made in place of one whose attachments the service refuses: with those of the newest message that has
/// any as lines, then with all.
pub(super) fn after_refusal(engine: &mut Engine<'_>, why: &str) -> Step<Neutral> {
    let mut shown = engine.talk.transcript.form().shown.clone();
    if wants_answer_between(why) && !shown.has_answer_between {
        shown.has_answer_between = true;
    } else {
        let newest = taken(&engine.talk.transcript, &shown)
            .last()
            .map(|it| it.seq);
        shown.not_from = match shown.not_from {
            None => newest.or(Some(0)),
            Some(_) => Some(0),
        };
        engine.talk.attachments.refusal = Some(why.to_owned());
        let line = format!("{why}; asking again with lines in place of attachments");
        engine.ctx.log.line(Level::Warn, &line);
    }
    engine.talk.transcript.change_shown(shown);
    engine.talk.build_request(&mut engine.log)
}

/// Records what was left out of a request that has been answered, because the service had refused it with that.
pub(super) fn keep_left_out(engine: &mut Engine<'_>) -> Result<()> {
    let Engine { talk, log, .. } = engine;
    let Some(why) = talk.attachments.refusal.take() else {
        return Ok(());
    };
    let mut shown = talk.transcript.form().shown.clone();
    let from = shown.not_from.take().unwrap_or_default();
    let mut seqs: Vec<u64> = taken(&talk.transcript, &shown)
        .iter()
        .map(|it| it.seq)
        .collect();
    seqs.retain(|seq| *seq >= from);
    seqs.dedup();
    let what = (&seqs[..], None);
    let why_left_out = (LeftOutReason::Refused, Some(why.as_str()));
    talk.attachments.record(log, what, why_left_out)?;
    talk.transcript.change_shown(shown);
    let note = format!(
        "the service refuses attachments, which are lines from now on: {why}; llm.attachments: true|images|false in \
         agent.yaml says which the model takes"
    );
    log.record_note(Level::Warn, &note)
}

/// Leaves out of the next request what the recorded run left out here.
pub(super) fn replay(engine: &mut Engine<'_>) -> Result<()> {
    let playback = engine.talk.model.playback();
    let refused = playback.map_or_else(Vec::new, Playback::refused);
    if refused.is_empty() {
        return Ok(());
    }
    let seqs: Vec<u64> = from_journal(engine, |run| {
        let attached = run.turns.iter().flat_map(Turn::attached);
        let attached = attached.filter(|it| !it.all().is_empty());
        attached.map(|it| it.seq).collect()
    })?;
    let Engine { talk, log, .. } = engine;
    for refused in &refused {
        let places = refused.places.iter();
        let own: Vec<u64> = places
            .filter_map(|place| seqs.get(*place).copied())
            .collect();
        let why = (LeftOutReason::Refused, Some(refused.message.as_str()));
        talk.attachments.record(log, (&own, None), why)?;
    }
    Ok(())
}
