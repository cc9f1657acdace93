//! What the loop may still spend: time, tokens and money.

use super::{Ending, Engine};
use crate::engine::account::Account;
use crate::error::Result;
use crate::record::spending::{Amount, Denial};
use crate::record::stop_reason::StopReason;
use std::time::{Duration, Instant};

const UNCOUNTED: &str =
    "the model's server does not say how many tokens it counted: the ledger has estimates";

impl Engine<'_> {
    /// The limit that has been reached, if one has: it ends the run before the next request is built.
    pub(super) fn limit_reached(&mut self) -> Option<Ending> {
        let agent = self.ctx.agent;
        let (limit, of) = (self.options.max_iterations, agent.limit_tokens);
        if self.iterations_here >= limit {
            let times = crate::unix::terminal::counted(limit as usize, "iteration");
            let text = format!("no final answer within {times}");
            return Some(Ending::new(StopReason::MaxIterations, text));
        }
        if of > 0 && self.tokens_here >= of {
            let text = format!("{} tokens spent, the limit is {of}", self.tokens_here);
            return Some(Ending::new(StopReason::Tokens, text));
        }
        if let Some(ending) = self.time_is_over() {
            return Some(ending);
        }
        if self.invocations.has_open() {
            // It has been asked for, and is reserved.
            return None;
        }
        let account = self.account.as_mut()?;
        let denial = account.check(&self.ctx.signals).err()?;
        let is_late = matches!(denial, Denial::Pending(_));
        let out_of_time = is_late.then(|| self.time_is_over()).flatten();
        Some(out_of_time.unwrap_or_else(|| Ending::denied(denial)))
    }

    pub(super) fn time_is_over(&self) -> Option<Ending> {
        let deadline = self.time_limit()?;
        (Instant::now() >= deadline).then(|| self.out_of_time())
    }

    /// When the limits of time end the waiting for the model.
    pub(super) fn time_limit(&self) -> Option<Instant> {
        let budget = self
            .account
            .as_ref()
            .and_then(super::super::account::Account::time_limit);
        let budget = budget.map(|(until, _)| until);
        self.start_limit.into_iter().chain(budget).min()
    }

    /// The end of a run whose time is over, by the limit that comes first.
    pub(super) fn out_of_time(&self) -> Ending {
        let budget = self
            .account
            .as_ref()
            .and_then(super::super::account::Account::time_limit);
        match (self.start_limit, budget) {
            (limit, Some((until, why))) if limit.is_none_or(|limit| until < limit) => {
                Ending::new(StopReason::Budget, why)
            }
            _ => {
                let limit = self.ctx.agent.limit_seconds;
                let text = format!("the limit of {limit} s has been reached");
                Ending::new(StopReason::Seconds, text)
            }
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

    /// Mentions once that a limit is kept by estimates.
    pub(super) fn mention_uncounted(&mut self) -> Result<()> {
        let account = self.account.as_mut();
        if account.is_some_and(Account::has_uncounted_answer) {
            self.log.record_note("WARN", UNCOUNTED)?;
        }
        Ok(())
    }

    /// What the run and those below it have spent.
    pub(super) fn spent(&self) -> Option<(Amount, bool)> {
        self.account.as_ref()?.spent()
    }
}
