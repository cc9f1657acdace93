//! Attachments that the service refuses.
//!
//! Architecture invariant: a refused attachment ends no run. It becomes its line, in this request and all later ones.

use super::super::Engine;
use super::super::outcome::Step;
use super::taken;
use crate::error::Result;
use crate::model::ask::wants_answer_between;
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::LeftOutReason;

/// The request to be made in place of one whose attachments the service refuses: with those of the newest message that has
/// any as lines, then with all.
pub(in crate::engine::run_loop) fn after_refusal(
    engine: &mut Engine<'_>,
    why: &str,
) -> Step<Neutral> {
    let mut shown = engine.transcript.form().shown.clone();
    if wants_answer_between(why) && !shown.has_answer_between {
        shown.has_answer_between = true;
    } else {
        let newest = taken(engine.transcript.attached(), &shown)
            .last()
            .map(|it| it.seq);
        shown.not_from = match shown.not_from {
            None => newest.or(Some(0)),
            Some(_) => Some(0),
        };
        engine.attachments.refusal = Some(why.to_owned());
        let line = format!("{why}; asking again with lines in place of attachments");
        engine.ctx.log.line(Level::Warn, &line);
    }
    engine.transcript.change_shown(shown);
    engine.build_request()
}

/// Records what was left out of a request that has been answered, because the service had refused it with that.
pub(in crate::engine::run_loop) fn keep_left_out(engine: &mut Engine<'_>) -> Result<()> {
    let Some(why) = engine.attachments.refusal.take() else {
        return Ok(());
    };
    let mut shown = engine.transcript.form().shown.clone();
    let from = shown.not_from.take().unwrap_or_default();
    let sent = taken(engine.transcript.attached(), &shown).map(|it| it.seq);
    let mut seqs: Vec<u64> = sent.filter(|seq| *seq >= from).collect();
    seqs.dedup();
    engine.record_left_out(&seqs, None, LeftOutReason::Refused, Some(&why))?;
    engine.transcript.change_shown(shown);
    let note = format!(
        "the service refuses attachments, which are lines from now on: {why}; llm.attachments: true|images|false in \
         agent.yaml says which the model takes"
    );
    engine.log.record_note(Level::Warn, &note)
}
