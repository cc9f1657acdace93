//! How a conversation is shortened: which part, and in which way.
//!
//! Pure.

use crate::config::compact::CompactShares;
use crate::record::messages::{self, Form, shortened};
use crate::record::state::{Run, Turn};
use crate::text::json;

/// The size to which a conversation is shortened.
pub(super) struct Aim {
    pub(super) shares: CompactShares,
    /// The tokens that the model takes.
    pub(super) window: u64,
    /// The estimate of the request as it is.
    pub(super) before: u64,
    /// Tokens of a byte of the conversation, by estimate.
    pub(super) rate: f64,
}

/// The part of a conversation that is shortened: its first turns, whole iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OldPart {
    pub(super) turns: usize,
    /// The number of its last line.
    pub(super) seq: u64,
    pub(super) iteration: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompactionPlan {
    /// There is nothing before the newest part.
    Nothing,
    /// Give observations in their short form, after which the estimate is this.
    Clear(OldPart, u64),
    /// Have a summary written.
    Summary(OldPart),
}

/// The bytes of each turn in requests as they are now.
pub(super) fn turn_sizes(run: &Run<'_>, form: &Form) -> Vec<u64> {
    let (summarized, cleared) = (run.summarized_turns(), run.cleared_turns());
    let mut scratch = Vec::new();
    let size = |(at, turn): (usize, &Turn<'_>)| {
        if at < summarized {
            return 0;
        }
        scratch.clear();
        let compaction = Some(&run.compaction).filter(|_| at < cleared);
        messages::turn(&mut scratch, turn, form, compaction);
        scratch.len() as u64 + 1
    };
    run.turns.iter().enumerate().map(size).collect()
}

/// Chooses how to shorten a conversation to its aim.
pub(super) fn plan(run: &Run<'_>, sizes: &[u64], aim: &Aim) -> CompactionPlan {
    let Some(part) = part_of(run, before_newest(run, sizes, aim)) else {
        return CompactionPlan::Nothing;
    };
    let summarized = run.summarized_turns();
    let known = run.cleared_turns().max(summarized).min(part.turns);
    let turns = run.turns[known..part.turns].iter();
    let saved: u64 = turns.map(|turn| saved_in(run, turn)).sum();
    let after = aim.before.saturating_sub((saved as f64 * aim.rate) as u64);
    let wanted = (aim.shares.to * aim.window as f64).min(aim.before as f64 * 0.75);
    let has_more = part_of(run, summarized).map(|it| it.turns) != Some(part.turns);
    match saved > 0 && (after as f64 <= wanted || !has_more) {
        true => CompactionPlan::Clear(part, after),
        false if has_more => CompactionPlan::Summary(part),
        false => CompactionPlan::Nothing,
    }
}

/// The number of turns before the newest part, which is kept.
fn before_newest(run: &Run<'_>, sizes: &[u64], aim: &Aim) -> usize {
    let begins = |at: &usize| !matches!(run.turns.get(*at), Some(Turn::Refusal(_)) | None);
    let last = (0..run.turns.len()).rev().find(begins).unwrap_or(0);
    let most = aim.shares.keep * aim.window as f64;
    let mut kept = 0;
    let mut cut = run.turns.len();
    for at in (0..run.turns.len()).rev() {
        kept += sizes[at];
        if kept as f64 * aim.rate > most {
            break;
        }
        if begins(&at) {
            cut = at;
        }
    }
    cut.min(last)
}

/// The complete iterations among the first turns, if there are any.
fn part_of(run: &Run<'_>, turns: usize) -> Option<OldPart> {
    let is_answer = |turn: &Turn<'_>| matches!(turn, Turn::Thought(_));
    let last = run.turns[..turns].iter().rposition(is_answer)?;
    let refusals = run.turns[last + 1..turns].iter();
    let refusals = refusals.take_while(|turn| matches!(turn, Turn::Refusal(_)));
    let end = last + 1 + refusals.count();
    let (mut seq, mut iteration) = (0, 0);
    for turn in &run.turns[..end] {
        seq = seq.max(match turn {
            Turn::User(message) => message.seq,
            Turn::Refusal(refusal) => refusal.seq,
            Turn::Thought(thought) => {
                iteration = thought.iteration;
                thought.last_seq
            }
        });
    }
    Some(OldPart {
        turns: end,
        seq,
        iteration,
    })
}

/// The conversation up to an iteration.
pub(super) fn through_iteration(run: &Run<'_>, iteration: u64) -> Option<OldPart> {
    let is_later = |turn: &Turn<'_>| matches!(turn, Turn::Thought(it) if it.iteration > iteration);
    let end = run.turns.iter().position(is_later);
    part_of(run, end.unwrap_or(run.turns.len()))
}

/// The bytes that the short forms of a turn's observations save.
fn saved_in(run: &Run<'_>, turn: &Turn<'_>) -> u64 {
    let Turn::Thought(thought) = turn else {
        return 0;
    };
    let saved = thought.calls.iter().map(|call| {
        let short = shortened::observation(call, &run.compaction);
        let whole = call.result.map_or(0, str::len);
        short.map_or(0, |short| whole.saturating_sub(json::text(&short).len()))
    });
    saved.sum::<usize>() as u64
}
