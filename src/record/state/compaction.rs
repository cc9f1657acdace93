//! Compactions in the state: which turns requests have in a shorter form, and what is known of the size of
//! requests.
//!
//! Architecture invariant: no line behind a compaction changes which turns it concerns.

use super::{Run, Thought, Turn};
use crate::record::event::{CompactionKind, ReadUsage, recorded};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// How requests have the conversation in a shorter form.
#[derive(Debug, Default)]
pub struct Compaction<'j> {
    /// The newest summary.
    pub(crate) summary: Option<RecordedSummary<'j>>,
    /// The last line whose observation is given in its short form.
    cleared: Option<Extent>,
    /// The run whose files the model is referred to.
    pub(crate) run_id: Cow<'j, str>,
}

/// A summary in place of the beginning of a conversation.
#[derive(Debug)]
pub(crate) struct RecordedSummary<'j> {
    pub text: Cow<'j, str>,
    pub messages: MessageRules,
    extent: Extent,
}

/// Which messages of people are kept beside a summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageRules {
    /// The most bytes of them, but for the first.
    pub most_bytes: Option<u64>,
    /// Time when each was recorded, if not as the journal says.
    pub times: Vec<String>,
}

/// How far a compaction reaches: numbers of lines.
#[derive(Clone, Copy, Debug)]
struct Extent {
    through: u64,
    /// Its own.
    own: u64,
}

impl<'j> Compaction<'j> {
    /// Adds an event, whose number is `seq`. One that lacks what it needs changes nothing.
    pub(super) fn add(&mut self, event: recorded::Compaction<'j>, seq: u64) {
        let Some(through) = event.through_seq else {
            return;
        };
        let extent = Extent {
            through: through.min(seq),
            own: seq,
        };
        match CompactionKind::parse(&event.by) {
            Some(CompactionKind::Clear) => {
                self.cleared = self
                    .cleared
                    .filter(|it: &Extent| it.through > extent.through)
                    .or(Some(extent));
            }
            Some(CompactionKind::Summary) => {
                let text = event.summary.0.filter(|text| !text.trim().is_empty());
                let Some(text) = text else { return };
                self.summary = Some(RecordedSummary {
                    text,
                    messages: MessageRules {
                        most_bytes: event.message_bytes,
                        times: event.message_times.unwrap_or_default(),
                    },
                    extent,
                });
            }
            None => return,
        }
        self.run_id = event.run_id.0.unwrap_or_default();
    }

    /// True if requests are as if there were no compaction.
    pub(crate) fn is_none(&self) -> bool {
        self.summary.is_none() && self.cleared.is_none()
    }
}

/// The part of a conversation that is shortened: its first turns, whole iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldPart {
    pub(crate) turns: usize,
    /// The number of its last line.
    pub(crate) seq: u64,
    pub(crate) iteration: u64,
}

impl Run<'_> {
    /// The number of turns before the first line with a greater number; only complete iterations.
    fn turns_in(&self, extent: Extent) -> usize {
        let seq = extent.through;
        let is_whole = |turn: &Turn<'_>| match turn {
            Turn::User(message) => message.seq <= seq,
            Turn::Refusal(refusal) => refusal.seq <= seq,
            Turn::Thought(thought) => {
                let mut calls = thought.calls.iter();
                thought.last_seq <= seq && calls.all(|call| call.result.is_some())
            }
        };
        let mut whole = self.turns.iter().take_while(|turn| is_whole(turn)).count();
        let splits = |turn: Option<&Turn<'_>>| matches!(turn, Some(Turn::Refusal(it)) if it.seq <= extent.own);
        while whole > 0 && splits(self.turns.get(whole)) {
            whole -= 1;
        }
        whole
    }

    /// The number of turns that a summary replaces.
    pub(crate) fn summarized_turns(&self) -> usize {
        let summary = self.compaction.summary.as_ref();
        summary.map_or(0, |summary| self.turns_in(summary.extent))
    }

    /// How many turns have their observations in the short form.
    pub(crate) fn cleared_turns(&self) -> usize {
        self.compaction
            .cleared
            .map_or(0, |extent| self.turns_in(extent))
    }

    /// The complete iterations among the first turns, if there are any.
    pub(crate) fn part(&self, turns: usize) -> Option<OldPart> {
        let is_answer = |turn: &Turn<'_>| matches!(turn, Turn::Thought(_));
        let last = self.turns[..turns].iter().rposition(is_answer)?;
        let refusals = self.turns[last + 1..turns]
            .iter()
            .take_while(|turn| matches!(turn, Turn::Refusal(_)));
        let end = last + 1 + refusals.count();
        let (mut seq, mut iteration) = (0, 0);
        for turn in &self.turns[..end] {
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
    pub(crate) fn part_through(&self, iteration: u64) -> Option<OldPart> {
        let is_later =
            |turn: &Turn<'_>| matches!(turn, Turn::Thought(it) if it.iteration > iteration);
        let end = self.turns.iter().position(is_later);
        self.part(end.unwrap_or(self.turns.len()))
    }
}

/// Requests that services have counted or refused, by the models that were asked: JSON, as in [`Thought::asked_model`].
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    /// The newest answer of each model over each API whose request has been counted.
    answers: BTreeMap<AskedModel, CountedAnswer>,
    /// The windows that refusals have shown.
    windows: BTreeMap<Option<String>, LearntWindow>,
    /// `llm.window` of the newest start, until another model is asked in place of the first.
    given_window: Option<u64>,
    /// The estimate of the newest request that has been shortened, or could not be.
    pub(crate) compacted_to: Option<u64>,
    /// The last end was that the conversation is too long, and nothing has been added to it since.
    pub(crate) is_full: bool,
    /// A warning says that streams end without a reason.
    pub(crate) no_finish_reason: bool,
    /// A warning says that the server counts too few tokens.
    pub(crate) is_truncated: bool,
}

/// A model as JSON, and its API as agent.yaml names it.
type AskedModel = (Option<String>, String);

/// An answer whose request has been counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedAnswer {
    pub request_bytes: u64,
    pub prompt_tokens: u64,
    /// Of them for attachments, by estimate.
    pub attachment_tokens: u64,
}

#[derive(Clone, Copy, Debug)]
struct LearntWindow {
    window: u64,
    /// `llm.window` at that time.
    given: Option<u64>,
}

impl RequestCounts {
    /// A start of an engine has this `llm.window`; none: another model is asked.
    pub(super) fn begin(&mut self, given_window: Option<u64>) {
        self.given_window = given_window;
    }

    pub(super) fn add_thought(&mut self, usage: Option<ReadUsage>, thought: &Thought<'_>) {
        self.is_full = false;
        let Some(usage) = usage else { return };
        let model = thought.asked_model.as_deref();
        let counted = CountedAnswer {
            request_bytes: usage.request_bytes.unwrap_or_default(),
            prompt_tokens: usage.prompt_tokens,
            attachment_tokens: usage.attachment_tokens.unwrap_or(0),
        };
        self.add_answer(model, &thought.api(), counted);
    }

    /// Notes what a service has counted for a request. Returns the request before to the same model.
    pub(crate) fn add_answer(
        &mut self,
        asked_model: Option<&str>,
        api: &str,
        counted: CountedAnswer,
    ) -> Option<CountedAnswer> {
        if counted.request_bytes == 0 || counted.prompt_tokens == 0 {
            return None;
        }
        let asked = (asked_model.map(str::to_owned), api.to_owned());
        self.answers.insert(asked, counted)
    }

    pub(super) fn add_note(
        &mut self,
        note: &recorded::SystemMessage<'_>,
        asked_model: Option<&str>,
    ) {
        if let Some(window) = note.window.filter(|window| *window > 0) {
            let learnt = LearntWindow {
                window,
                given: self.given_window,
            };
            self.windows.insert(asked_model.map(str::to_owned), learnt);
        }
        self.compacted_to = note.tokens_before.or(self.compacted_to);
        self.is_truncated |= note.is_truncated == Some(true);
        self.no_finish_reason |= note.no_finish_reason == Some(true);
    }

    /// The newest answer of this model whose request has been counted.
    pub(crate) fn answer_of(&self, asked_model: Option<&str>, api: &str) -> Option<CountedAnswer> {
        let asked = (asked_model.map(str::to_owned), api.to_owned());
        self.answers.get(&asked).copied()
    }

    /// The window that a refusal of this model has shown, unless a person has given another since.
    pub(crate) fn window_of(&self, asked_model: Option<&str>, given: Option<u64>) -> Option<u64> {
        let learnt = self.windows.get(&asked_model.map(str::to_owned))?;
        let is_known = given.is_some_and(|window| window > 0);
        (!is_known || learnt.given == given).then_some(learnt.window)
    }
}
