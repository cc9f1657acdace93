//! Lengths of requests by estimate, their limits, and when one is shortened.
//!
//! Pure, but for what it remembers; unaware of how a conversation is shortened.
//!
//! Architecture invariant: an estimate ends no run. A request that cannot be shortened is sent as it is.

use crate::config::agent::Agent;
use crate::config::api::Api;
use crate::config::compact::CompactShares;
use crate::config::llm::MESSAGES_MAX_TOKENS;
use crate::record::event::{CompactionReason, RecordedUsage, Terms, Tokens};
use crate::record::state::{CountedAnswer, RequestCounts, Run, fallback_model};

/// The estimate of an answer, in tokens, if the request sets no limit.
const USUAL_ANSWER: u64 = 4096;

/// Difference in length from which a smaller count is suspicious.
const NOTABLE_BYTES: u64 = 4000;

/// Refusals in one iteration after which the conversation is not shortened again.
const MOST_REFUSALS: u32 = 4;

/// Tokens from which on a remote server is asked for the window.
const WORTH_ASKING: u64 = 8000;

/// Tokens from which on a refusal without a reason that is known may be one of the length.
const GUESSED_FROM: u64 = 16_000;

/// Sizes of requests, counted and estimated.
#[derive(Debug)]
pub(in crate::engine::run_loop) struct Sizes {
    shares: Option<CompactShares>,
    /// A person wants the next request to be shortened.
    pub(in crate::engine::run_loop) is_asked: bool,
    /// The tokens that the model takes, request and answer together.
    pub(in crate::engine::run_loop) window: Option<u64>,
    has_looked: bool,
    /// The model has answered in this run.
    has_answered: bool,
    /// The model has answered in this start.
    is_loaded: bool,
    /// This start has had an answer to a request that was made as the next one will be.
    pub(in crate::engine::run_loop) was_taken: bool,
    /// The limit of an answer, as requests carry it.
    answer_limit: Option<u64>,
    /// Name of the model in the state.
    model: Option<String>,
    api: Api,
    pub(in crate::engine::run_loop) counts: RequestCounts,
    /// Tokens of the attachments of the next request, by estimate.
    pub(in crate::engine::run_loop) attachment_tokens: u64,
    /// Tokens of the last request and its answer; 0 if they are not known.
    pub(in crate::engine::run_loop) last_total: u64,
    /// In this iteration.
    refusals: u32,
    was_cut_off: bool,
}

impl Sizes {
    pub(in crate::engine::run_loop) fn new(agent: &Agent, is_asked: bool) -> Self {
        let given = agent.llm.window;
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let mut parameters = agent.llm.parameters.iter();
        let limit = parameters
            .find(|(name, _)| names.contains(&name.as_str()))
            .and_then(|(_, value)| value.as_u64());
        let usual = (agent.llm.api == Api::Messages).then_some(MESSAGES_MAX_TOKENS);
        Self {
            shares: agent.compact,
            is_asked,
            window: given.filter(|window| *window > 0),
            has_looked: given.is_some(),
            has_answered: false,
            is_loaded: false,
            was_taken: false,
            answer_limit: limit.or(usual),
            model: agent.llm.model_json(),
            api: agent.llm.api,
            counts: RequestCounts::default(),
            attachment_tokens: 0,
            last_total: 0,
            refusals: 0,
            was_cut_off: false,
        }
    }

    /// Sizes for a model of this name that is asked in place of the first.
    pub(in crate::engine::run_loop) fn of_fallback(&self, agent: &Agent, name: &str) -> Self {
        let mut sizes = Self {
            model: Some(fallback_model(name)),
            ..Self::new(agent, self.is_asked)
        };
        sizes.take(self.counts.clone(), agent);
        sizes.counts.is_full = false;
        sizes
    }

    /// Goes on from what the journal knows of earlier starts.
    pub(in crate::engine::run_loop) fn recall(&mut self, run: &Run<'_>, agent: &Agent) {
        self.has_answered = run.usage.llm_calls > 0;
        self.take(run.counts.clone(), agent);
    }

    fn take(&mut self, counts: RequestCounts, agent: &Agent) {
        let learnt = counts.window_of(self.model.as_deref(), agent.llm.window);
        self.window = learnt.or(self.window);
        self.counts = counts;
    }

    /// The part of the window that the last request and its answer have taken, if both are known.
    pub(in crate::engine::run_loop) fn window_share(&self) -> Option<f64> {
        let taken = Some(self.last_total).filter(|total| *total > 0)?;
        Some(taken as f64 / self.window? as f64)
    }

    fn counted(&self) -> Option<CountedAnswer> {
        self.counts
            .answer_of(self.model.as_deref(), self.api.name())
    }

    /// True if the next request may be shortened before it is sent.
    pub(in crate::engine::run_loop) fn is_on(&self) -> bool {
        self.shares.is_some() || self.is_asked
    }

    /// The shares, if conversations are shortened.
    pub(in crate::engine::run_loop) fn shares(&self) -> Option<CompactShares> {
        self.shares
    }

    /// The estimate of a request, in tokens.
    pub(in crate::engine::run_loop) fn tokens(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.rate()).ceil() as u64 + self.attachment_tokens
    }

    /// Count of a service for a request of this length, for the record.
    pub(in crate::engine::run_loop) fn recorded<'t>(
        &self,
        tokens: Tokens,
        terms: &'t Terms,
        request_bytes: u64,
    ) -> RecordedUsage<'t> {
        RecordedUsage {
            tokens,
            terms,
            request_bytes: Some(request_bytes),
            attachment_tokens: Some(self.attachment_tokens).filter(|it| *it > 0),
        }
    }

    /// The bytes that a request is booked at: a token is four of them.
    pub(in crate::engine::run_loop) fn booked_bytes(&self, text: &[u8]) -> usize {
        text.len() + 4 * self.attachment_tokens as usize
    }

    /// The tokens of a byte of a request, by estimate.
    fn rate(&self) -> f64 {
        let rate = self.counted().map_or(0.25, |it| {
            let tokens = it.prompt_tokens.saturating_sub(it.attachment_tokens);
            tokens as f64 / it.request_bytes as f64
        });
        rate.clamp(0.125, 1.0)
    }

    /// The tokens that an answer may take of a window.
    pub(in crate::engine::run_loop) fn answer_room(&self, window: u64) -> u64 {
        self.answer_limit.unwrap_or(USUAL_ANSWER).min(window / 4)
    }

    /// The window that is known, if it is too small for a conversation of this many bytes, which is not shortened.
    pub(in crate::engine::run_loop) fn too_small_for(&self, bytes: u64) -> Option<u64> {
        let is_small = |window: &u64| !self.is_on() && self.tokens(bytes) > *window;
        self.window.filter(is_small)
    }

    /// The most that a request for a summary may have, if the window is known. Its answer takes less than others.
    pub(in crate::engine::run_loop) fn summary_limit(&self) -> Option<u64> {
        let window = self.window?;
        Some(window - self.answer_room(window).min(window / 8))
    }

    pub(in crate::engine::run_loop) fn begin_iteration(&mut self) {
        self.refusals = 0;
        self.was_cut_off = false;
    }

    /// True when it is time to ask the server for the window: once, but a local server reports none before it has loaded
    /// the model.
    pub(in crate::engine::run_loop) fn must_look(&mut self, is_local: bool, estimate: u64) -> bool {
        let is_time = if is_local {
            self.has_answered
        } else {
            estimate >= WORTH_ASKING
        };
        let must = self.window.is_none() && !self.has_looked && is_time;
        self.has_looked |= must && (self.is_loaded || !is_local);
        must
    }

    /// Reason to shorten a request of this estimate, if it must be.
    pub(in crate::engine::run_loop) fn reason(
        &mut self,
        estimate: u64,
    ) -> Option<CompactionReason> {
        let was_full = std::mem::take(&mut self.counts.is_full);
        if std::mem::take(&mut self.is_asked) {
            return Some(CompactionReason::Asked);
        }
        let (shares, window) = (self.shares?, self.window?);
        let at = (shares.at * window as f64) as u64;
        let is_long = estimate >= at || estimate + self.answer_room(window) > window;
        let compacted_to = self.counts.compacted_to;
        let has_grown =
            compacted_to.is_none_or(|before| estimate >= before.saturating_add(window / 10));
        // A server may have been given more room.
        (is_long && has_grown && !was_full).then_some(CompactionReason::Size)
    }

    /// Notes a refusal. True: shorten the conversation and send the request again.
    pub(in crate::engine::run_loop) fn add_refusal(&mut self, was_full: bool) -> bool {
        self.refusals += 1;
        self.shares.is_some() && !was_full && self.refusals < MOST_REFUSALS
    }

    /// True if a request of this length may have been refused, without a known reason, because of it.
    pub(in crate::engine::run_loop) fn may_be_too_long(&self, bytes: u64) -> bool {
        self.shares.is_some() && self.was_taken && self.tokens(bytes) > GUESSED_FROM
    }

    /// True if the service has refused this conversation in an earlier start.
    pub(in crate::engine::run_loop) fn is_full(&self) -> bool {
        self.counts.is_full
    }

    /// True if this answer was cut off because the window was full; once in an iteration.
    pub(in crate::engine::run_loop) fn is_cut_off(
        &mut self,
        usage: Option<Tokens>,
        says_so: bool,
    ) -> bool {
        let total = usage.map_or(0, |usage| usage.total_tokens);
        // Some servers stop a few tokens earlier.
        let is_at_window = self
            .window
            .is_some_and(|window| total.saturating_add(8) >= window);
        let is_cut_off = self.shares.is_some() && (says_so || is_at_window) && !self.was_cut_off;
        if is_cut_off {
            self.was_cut_off = true;
            self.window = self.window.or(Some(total).filter(|total| *total > 0));
        }
        is_cut_off
    }

    /// Notes the estimate of a request that was shortened, or could not be.
    pub(in crate::engine::run_loop) fn note_compaction(&mut self, estimate: u64) {
        self.counts.compacted_to = Some(estimate);
    }

    /// Notes what the service has counted for a request. Returns the sizes of the request before and of this one, if
    /// that one was shorter and was counted as more; once in a run.
    pub(in crate::engine::run_loop) fn note_count(
        &mut self,
        bytes: u64,
        tokens: u64,
    ) -> Option<[u64; 4]> {
        (self.has_answered, self.is_loaded, self.was_taken) = (true, true, true);
        let now = CountedAnswer {
            request_bytes: bytes,
            prompt_tokens: tokens,
            attachment_tokens: self.attachment_tokens,
        };
        let (model, api) = (self.model.as_deref(), self.api.name());
        let before = self.counts.add_answer(model, api, now)?;
        let is_suspicious = !self.counts.is_truncated
            && bytes >= before.request_bytes.saturating_add(NOTABLE_BYTES)
            && self.attachment_tokens >= before.attachment_tokens
            && tokens.saturating_mul(10) <= before.prompt_tokens.saturating_mul(9);
        self.counts.is_truncated |= is_suspicious;
        let sizes = [before.request_bytes, before.prompt_tokens, bytes, tokens];
        is_suspicious.then_some(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(window: Option<u64>) -> Sizes {
        let mut agent = Agent {
            compact: Some(CompactShares::default()),
            ..Agent::default()
        };
        agent.llm.window = window;
        Sizes::new(&agent, false)
    }

    #[test]
    fn estimates_follow_the_newest_count_within_bounds() {
        let mut sizes = sizes(None);
        assert_eq!(sizes.tokens(1000), 250);
        for (tokens, estimate) in [(500, 500), (1, 125), (9000, 1000)] {
            sizes.note_count(1000, tokens);
            assert_eq!(sizes.tokens(1000), estimate);
        }
        sizes.note_count(1000, 0);
        assert_eq!(sizes.tokens(1000), 1000, "a server that counts nothing");
    }

    #[test]
    fn a_request_is_too_long_at_its_share_or_without_room_for_an_answer() {
        let size = Some(CompactionReason::Size);
        assert_eq!(sizes(None).reason(1_000_000), None);
        let mut known = sizes(Some(100_000));
        assert_eq!(known.reason(79_999), None);
        assert_eq!(known.reason(80_000), size);
        known.answer_limit = Some(90_000);
        assert_eq!((known.reason(75_000), known.reason(75_001)), (None, size));
    }

    #[test]
    fn the_next_compaction_waits_until_the_conversation_has_grown() {
        let mut sizes = sizes(Some(100_000));
        sizes.note_compaction(85_000);
        assert_eq!(sizes.reason(94_999), None);
        assert_eq!(sizes.reason(95_000), Some(CompactionReason::Size));
        sizes.counts.is_full = true;
        assert_eq!(sizes.reason(99_000), None, "the service is asked first");
        assert_eq!(sizes.reason(99_000), Some(CompactionReason::Size));
    }

    #[test]
    fn a_count_that_no_service_makes_is_compared() {
        let mut sizes = sizes(Some(u64::MAX));
        assert_eq!(sizes.note_count(u64::MAX, u64::MAX), None);
        assert_eq!(sizes.note_count(1000, 250), None);
    }

    #[test]
    fn refusals_of_one_iteration_come_to_an_end() {
        let mut sizes = sizes(None);
        let tries = (0..9).filter(|_| sizes.add_refusal(false)).count();
        assert_eq!(tries as u32, MOST_REFUSALS - 1);
        sizes.begin_iteration();
        assert!(sizes.add_refusal(false) && !sizes.add_refusal(true));
    }

    #[test]
    fn a_server_elsewhere_is_asked_for_the_window_once_and_a_local_one_after_an_answer() {
        let mut elsewhere = sizes(None);
        assert!(!elsewhere.must_look(false, WORTH_ASKING - 1));
        assert!(elsewhere.must_look(false, WORTH_ASKING));
        assert!(!elsewhere.must_look(false, WORTH_ASKING));
        let mut local = sizes(None);
        assert!(!local.must_look(true, 1_000_000));
        local.note_count(1000, 0);
        assert!(local.must_look(true, 0) && !local.must_look(true, 0));
        assert!(!sizes(Some(0)).must_look(false, 1_000_000));
    }
}
