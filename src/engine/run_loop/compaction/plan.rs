//! The plan to shorten a conversation: which part, and in which way.
//!
//! Pure.

use crate::config::compact::CompactShares;
use crate::record::messages::attached::ShownAttachments;
use crate::record::messages::{self, Form, shortened};
use crate::record::state::{OldPart, Run, Turn};
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
    /// The attachments that requests have.
    pub(super) shown: ShownAttachments,
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

/// The bytes of each turn in requests as they are now; those of its attachments by their tokens, at this rate.
pub(super) fn turn_sizes(run: &Run<'_>, form: &Form, rate: f64) -> Vec<u64> {
    let (summarized, cleared) = (run.summarized_turns(), run.cleared_turns());
    let mut scratch = Vec::new();
    let size = |(at, turn): (usize, &Turn<'_>)| {
        if at < summarized {
            return 0;
        }
        scratch.clear();
        let compaction = Some(&run.compaction).filter(|_| at < cleared);
        messages::turn(&mut scratch, turn, form, compaction);
        let attached = if at < cleared {
            0
        } else {
            tokens_of(turn, &form.shown)
        };
        scratch.len() as u64 + 1 + (attached as f64 / rate) as u64
    };
    run.turns.iter().enumerate().map(size).collect()
}

/// Chooses how to shorten a conversation to its aim.
pub(super) fn plan(run: &Run<'_>, sizes: &[u64], aim: &Aim) -> CompactionPlan {
    let Some(part) = run.part(before_newest(run, sizes, aim)) else {
        return CompactionPlan::Nothing;
    };
    let wanted = (aim.shares.to * aim.window as f64).min(aim.before as f64 * 0.75);
    let has_more = run.part(run.summarized_turns()).map(|it| it.turns) != Some(part.turns);
    match clear(run, sizes, aim) {
        Some((part, after)) if after as f64 <= wanted || !has_more => {
            CompactionPlan::Clear(part, after)
        }
        _ if has_more => CompactionPlan::Summary(part),
        _ => CompactionPlan::Nothing,
    }
}

/// The part whose observations would be shorter in their short form, and the estimate of the request with them.
pub(super) fn clear(run: &Run<'_>, sizes: &[u64], aim: &Aim) -> Option<(OldPart, u64)> {
    let part = run.part(before_newest(run, sizes, aim))?;
    let known = run.cleared_turns().max(run.summarized_turns());
    let turns = run.turns[known.min(part.turns)..part.turns].iter();
    let attached: u64 = turns.clone().map(|turn| tokens_of(turn, &aim.shown)).sum();
    let saved: u64 = turns.map(|turn| saved_in(run, turn)).sum();
    let saved = (saved as f64 * aim.rate) as u64 + attached;
    (saved > 0).then(|| (part, aim.before.saturating_sub(saved)))
}

/// The tokens of a turn's attachments in requests.
fn tokens_of(turn: &Turn<'_>, shown: &ShownAttachments) -> u64 {
    turn.attached().into_iter().map(|it| shown.tokens(it)).sum()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::state::{self, Reading};
    use serde_json::{Value, json};

    fn form() -> Form {
        Form::chat(None)
    }

    /// A message, and iterations with a call each, whose observations have these lengths in bytes.
    fn journal(observations: &[usize]) -> String {
        let mut lines = vec![json!({"type": "USER_MESSAGE", "content": "go"})];
        for (at, bytes) in observations.iter().enumerate() {
            let id = format!("c{at}");
            let call =
                json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
            lines.push(json!({"type": "THOUGHT", "content": "", "tool_calls": [call]}));
            lines.push(
                json!({"type": "ACTION_RESULT", "action_id": id, "execution_ref": "io/x",
                "observation_content": "o".repeat(*bytes)}),
            );
        }
        text(&lines)
    }

    fn text(lines: &[Value]) -> String {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        lines.concat()
    }

    fn read(journal: &str) -> Run<'_> {
        state::read(journal.as_bytes(), Reading::default()).unwrap()
    }

    /// The plan for a window of `window` tokens, a byte each.
    fn planned(run: &Run<'_>, window: u64) -> CompactionPlan {
        let sizes = turn_sizes(run, &form(), 1.0);
        let aim = Aim {
            shares: CompactShares::default(),
            window,
            before: sizes.iter().sum(),
            rate: 1.0,
            shown: ShownAttachments::default(),
        };
        plan(run, &sizes, &aim)
    }

    #[test]
    fn long_observations_are_cleared_where_that_is_enough_and_else_there_is_a_summary() {
        let long = journal(&[3000; 6]);
        let CompactionPlan::Clear(part, after) = planned(&read(&long), 20_000) else {
            panic!("no short form");
        };
        assert_eq!((part.turns, part.iteration), (6, 5));
        assert!(after < 10_000, "{after}");
        let short = journal(&[900; 20]);
        let CompactionPlan::Summary(part) = planned(&read(&short), 20_000) else {
            panic!("no summary");
        };
        assert_eq!((part.turns, part.seq), (18, 35));
    }

    #[test]
    fn the_newest_iteration_stays_however_long_it_is() {
        assert_eq!(
            planned(&read(&journal(&[50_000])), 1000),
            CompactionPlan::Nothing
        );
        let two = journal(&[9000, 50_000]);
        let CompactionPlan::Summary(part) = planned(&read(&two), 90_000) else {
            panic!("no summary");
        };
        assert_eq!(part.turns, 2);
    }

    #[test]
    fn what_has_been_summarized_is_not_summarized_again() {
        let journal = journal(&[900; 6]);
        let summary =
            json!({"type": "COMPACTION", "by": "summary", "through_seq": 11, "summary": "s"});
        let journal = journal + &text(&[summary]);
        let run = read(&journal);
        assert_eq!(run.summarized_turns(), 6);
        assert_eq!(planned(&run, 3000), CompactionPlan::Nothing);
    }

    #[test]
    fn parts_are_whole_iterations_before_the_newest_turn() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let each: Vec<usize> = (0..random.usize(0..12))
                .map(|_| random.usize(0..4000))
                .collect();
            let mut journal = journal(&each);
            if random.bool() {
                journal += &text(&[json!({"type": "USER_MESSAGE", "content": "more"})]);
            }
            let run = read(&journal);
            let before: u64 = turn_sizes(&run, &form(), 1.0).iter().sum();
            match planned(&run, random.u64(500..40_000)) {
                CompactionPlan::Nothing => {}
                CompactionPlan::Clear(part, _) | CompactionPlan::Summary(part) => {
                    assert!(part.turns < run.turns.len(), "seed {seed}");
                    let last = &run.turns[part.turns - 1];
                    assert!(matches!(last, Turn::Thought(it) if it.last_seq == part.seq));
                }
            }
            if let CompactionPlan::Clear(_, after) = planned(&run, 20_000) {
                assert!(after < before, "seed {seed}");
            }
        }
    }
}
