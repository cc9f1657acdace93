//! A refusal without a reason that is known, of a long conversation: one shorter request shows whether that was the length.
//!
//! Architecture invariant: the compaction is recorded only when the service has taken the shorter request.

use super::super::Engine;
use super::super::conversation::ModelReply;
use super::super::fallback::chain::FailedModel;
use super::super::outcome::Step;
use super::super::unreadable;
use super::plan;
use super::{aim_of, event, record};
use crate::config::agent::ModelFailure;
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::event::{CompactionKind, CompactionReason, Event};
use crate::record::state::OldPart;
use crate::text::timestamp::Timestamp;

/// A compaction that is in the newest request and not in the journal.
pub(in crate::engine::run_loop) struct Trial {
    /// The service's words for the request before.
    why: String,
    part: OldPart,
    tokens: [u64; 2],
}

/// A reply, or the request to be made in its place.
pub(in crate::engine::run_loop) enum Tried {
    Again(Neutral),
    Reply(ModelReply),
}

const BY: CompactionKind = CompactionKind::Clear;
const WHY: CompactionReason = CompactionReason::Refused;

/// Ends a trial by the reply to its request, or begins one.
pub(in crate::engine::run_loop) fn try_shorter(
    engine: &mut Engine<'_>,
    trial: &mut Option<Trial>,
    reply: ModelReply,
) -> Step<Tried> {
    let refused = |why| {
        let how = ModelFailure::Refused;
        let until = None;
        Tried::Reply(ModelReply::Failed(FailedModel { how, why, until }))
    };
    Ok(match (trial.take(), reply) {
        (Some(tried), ModelReply::Answered(answered)) => {
            let event = event(engine, BY, WHY, tried.part, tried.tokens);
            record(engine, event)?;
            Tried::Reply(ModelReply::Answered(answered))
        }
        (Some(tried), ModelReply::TooLong(rejected)) if rejected.is_guess => refused(tried.why),
        (Some(tried), ModelReply::Failed(failed)) if failed.how == ModelFailure::Refused => {
            refused(tried.why)
        }
        (None, ModelReply::TooLong(rejected)) if rejected.is_guess => {
            engine.go_on()?;
            let shorter = shorter(engine, rejected.why.clone())?;
            engine.may_ask()?;
            shorter.map_or_else(
                || refused(rejected.why),
                |(request, begun)| {
                    *trial = Some(begun);
                    Tried::Again(request)
                },
            )
        }
        (_, reply) => Tried::Reply(reply),
    })
}

/// The request with observations in their short form, unless it has none that could be shorter.
fn shorter(engine: &mut Engine<'_>, why: String) -> Step<Option<(Neutral, Trial)>> {
    let request = engine.build_request()?;
    let mut journal = engine.log.whole_journal()?;
    let run = engine.read_run(&journal)?;
    let aim = aim_of(engine, &request, CompactionReason::Refused)?;
    let sizes = plan::turn_sizes(&run, engine.transcript.form(), aim.rate);
    let Some((part, after)) = plan::clear(&run, &sizes, &aim) else {
        return Ok(None);
    };
    let tokens = [aim.before, after];
    let seq = 1 + memchr::memchr_iter(b'\n', &journal).count() as u64;
    let event = event(engine, BY, WHY, part, tokens);
    event.write(&mut journal, seq, Timestamp::now(), engine.log.iteration);
    let transcript = &engine.transcript;
    let shorter = transcript
        .of_journal(&journal)
        .map_err(|e| unreadable(&e, &engine.log.journal))?;
    let shorter = request.with_conversation(transcript.messages(), shorter.messages());
    let line = format!("{why}; asking once with a shorter conversation");
    engine.ctx.log.line(Level::Warn, &line);
    Ok(shorter.map(|request| (request, Trial { why, part, tokens })))
}
