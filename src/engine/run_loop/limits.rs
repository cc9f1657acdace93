//! The limits of a start: iterations, time, tokens and money; and repeated calls.

use super::Ending;
use super::run_log::RunLog;
use crate::engine::account::{Account, SpendingRules, engine_time};
use crate::engine::run_context::{LASTING_LIMITS, RunContext};
use crate::error::Result;
use crate::model::ask::Expense;
use crate::record::engine_log::Level;
use crate::record::same_calls::SameCalls;
use crate::record::spending::{Amount, Denial};
use crate::record::state::Run;
use crate::record::stop_reason::StopReason;
use crate::text::amounts::counted;
use crate::text::shorten::in_short;
use std::time::{Duration, Instant};

const UNCOUNTED: &str =
    "the model's server does not say how many tokens it counted: the ledger has estimates";

/// The limits of one start, and what counts against them: as a rule what this start has brought.
pub(super) struct Limits<'a> {
    ctx: &'a RunContext<'a>,
    max_iterations: u64,
    iterations: u64,
    tokens: u64,
    /// End of this start's time.
    start_limit: Option<Instant>,
    account: Option<Account>,
    /// The calls that the model repeats, if the agent limits that.
    pub(super) same_calls: Option<SameCalls>,
}

impl<'a> Limits<'a> {
    /// Opens the account, unless nothing is spent, and names its ledgers to the run's programs.
    pub(super) fn new(
        ctx: &'a RunContext<'a>,
        log: &RunLog<'_>,
        record: &[u8],
        max_iterations: u64,
        rules: Option<SpendingRules>,
    ) -> Self {
        let (iterations, tokens, time) = match std::env::var_os(LASTING_LIMITS) {
            Some(_) => {
                let time = engine_time(record, &ctx.run.id);
                let tokens = log.metadata.usage.total_tokens;
                (log.metadata.iterations, tokens, time)
            }
            None => (0, 0, Duration::ZERO),
        };
        let left = ctx
            .agent
            .longest_start()
            .map(|limit| limit.saturating_sub(time));
        let start_limit = left.map(|left| Instant::now() + left);
        let account = rules.map(|rules| Account::new(rules, &ctx.run, record, start_limit));
        let ledgers = account.as_ref().map(|account| account.variable(&ctx.run));
        ctx.ledgers.replace(ledgers);
        Self {
            ctx,
            max_iterations,
            iterations,
            tokens,
            start_limit,
            account,
            same_calls: None,
        }
    }

    /// Counts the repeated calls that a run's journal has.
    pub(super) fn recall_calls(&mut self, run: &Run<'_>) {
        let limit = self.ctx.agent.same_call;
        let tools = self.ctx.agent.tools.iter();
        // Asking such a tool again may be the model's way to wait.
        let late = tools
            .filter(|tool| tool.later.is_some())
            .map(|tool| tool.name.clone())
            .collect();
        self.same_calls = (limit > 0).then(|| SameCalls::of(run, limit, late));
    }

    /// Counts an answer of the model.
    pub(super) fn count_iteration(&mut self) {
        self.iterations += 1;
    }

    /// Counts what an answer, or a part of one, has cost.
    pub(super) fn count_tokens(&mut self, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// The limit that has been reached, if one has: it ends the run before the next request is built. The
    /// answer to a request that `is_open` is reserved already.
    pub(super) fn reached(&mut self, is_open: bool) -> Option<Ending> {
        let of = self.ctx.agent.limits.tokens;
        if self.iterations >= self.max_iterations {
            let times = counted(self.max_iterations as usize, "iteration");
            let text = format!("no final answer within {times}");
            return Some(Ending::new(StopReason::MaxIterations, text));
        }
        if of > 0 && self.tokens >= of {
            let text = format!("{} tokens spent, the limit is {of}", self.tokens);
            return Some(Ending::new(StopReason::Tokens, text));
        }
        if let Some(ending) = self.time_is_over() {
            return Some(ending);
        }
        let account = self.account.as_mut().filter(|_| !is_open)?;
        let denial = account.check(&self.ctx.signals).err()?;
        let is_late = matches!(denial, Denial::Pending(_));
        let out_of_time = is_late.then(|| self.time_is_over()).flatten();
        Some(out_of_time.unwrap_or_else(|| Ending::denied(denial)))
    }

    /// The end of a run whose model has repeated a call too often.
    pub(super) fn no_progress(&self) -> Option<Ending> {
        let limit = self.ctx.agent.same_call;
        let row = self.same_calls.as_ref()?.long_row(limit)?;
        let (n, name, arguments) = (row.length, row.name, in_short(row.arguments, 200));
        let text = format!(
            "{n} calls in a row had the same arguments and the same result: {name} {arguments}; send a message, or \
             raise same_call, which is {limit}"
        );
        Some(Ending::new(StopReason::NoProgress, text))
    }

    pub(super) fn time_is_over(&self) -> Option<Ending> {
        let deadline = self.time_limit()?;
        (Instant::now() >= deadline).then(|| self.out_of_time())
    }

    /// End of the wait for the model, by the limits of time.
    pub(super) fn time_limit(&self) -> Option<Instant> {
        let budget = self.budget_limit().map(|(until, _)| until);
        self.start_limit.into_iter().chain(budget).min()
    }

    fn budget_limit(&self) -> Option<(Instant, String)> {
        self.account.as_ref()?.time_limit()
    }

    /// The end of a start while an answer is made in the background; another start only helps within the budget.
    pub(super) fn left_open(&self, why: String) -> Ending {
        match self.budget_limit() {
            Some((until, why)) if until <= Instant::now() => Ending::new(StopReason::Budget, why),
            _ => Ending::new(StopReason::Background, why),
        }
    }

    /// The end of a run whose time is over, by the limit that comes first.
    pub(super) fn out_of_time(&self) -> Ending {
        match (self.start_limit, self.budget_limit()) {
            (limit, Some((until, why))) if limit.is_none_or(|limit| until < limit) => {
                Ending::new(StopReason::Budget, why)
            }
            _ => {
                let limit = self.ctx.agent.limits.seconds;
                let text = format!("the limit of {limit} s has been reached");
                Ending::new(StopReason::Seconds, text)
            }
        }
    }

    /// Books an attempt of an invocation, by its name and the length of its request.
    pub(super) fn book(
        &mut self,
        invocation: &str,
        request_bytes: usize,
        attempt: u64,
        expense: &Expense,
    ) -> std::result::Result<(), Denial> {
        match &mut self.account {
            Some(account) => {
                let signals = &self.ctx.signals;
                account.book(signals, invocation, request_bytes, attempt, expense)
            }
            None => Ok(()),
        }
    }

    /// Books by the rules of another model from now on.
    pub(super) fn change_rules(&mut self, rules: Option<SpendingRules>) {
        if let (Some(account), Some(rules)) = (&mut self.account, rules) {
            account.change_rules(rules);
        }
    }

    /// Leaves out of the budget's seconds what a person took.
    pub(super) fn add_wait(&mut self, time: Duration) {
        if let Some(account) = &mut self.account {
            account.add_wait(time);
            let ledgers = account.variable(&self.ctx.run);
            self.ctx.ledgers.replace(Some(ledgers));
        }
    }

    /// Leaves a wait for a time out of all seconds.
    pub(super) fn leave_out(&mut self, time: Duration) {
        self.start_limit = self.start_limit.map(|limit| limit + time);
        self.add_wait(time);
    }

    /// Mentions once that a limit is kept by estimates.
    pub(super) fn mention_uncounted(&mut self, log: &mut RunLog<'_>) -> Result<()> {
        let account = self.account.as_mut();
        if account.is_some_and(Account::has_uncounted_answer) {
            log.record_note(Level::Warn, UNCOUNTED)
        } else {
            Ok(())
        }
    }

    /// Counts against a budget what the journal shows and the ledger lacks.
    pub(super) fn restore_ledger(&mut self, log: &mut RunLog<'_>, journal: &[u8]) -> Result<()> {
        let account = self.account.as_mut();
        match account.and_then(|it| it.restore_lost(&self.ctx.signals, journal)) {
            Some(lost) => {
                let note = format!(
                    "the ledger lacks {lost} tokens that the journal shows; they count as spent"
                );
                log.record_note(Level::Warn, &note)
            }
            None => Ok(()),
        }
    }

    /// The engine's working time on the run.
    pub(super) fn worked_ms(&self) -> Option<u64> {
        self.account.as_ref()?.worked_ms()
    }

    /// Spending of the run and those below it.
    pub(super) fn spent(&mut self) -> Option<(Amount, bool)> {
        self.account.as_mut()?.spent(&self.ctx.signals)
    }
}
