//! A budget limit of this run or of a parent, with its ledger.

use crate::config::pricing::BudgetScope;
use crate::record::spending::{Amount, Denial, Ledger};
use crate::unix::files;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The words for a budget whose time is spent.
const SECONDS_OVER: &str = "its time is used up";

/// A budget limit and its ledger.
pub(super) struct BudgetLimit {
    pub path: PathBuf,
    pub ledger: Option<Ledger>,
    /// This run's own limit, not a parent's.
    pub is_own: bool,
    pub cost: Option<f64>,
    pub tokens: Option<u64>,
    pub scope: BudgetScope,
    /// None if it is not known, as of a run around this one.
    pub time: Option<Duration>,
    pub until: Option<Instant>,
}

impl BudgetLimit {
    pub(super) fn open(&mut self) -> std::result::Result<&mut Ledger, Denial> {
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            // The ledger of another run is there, or that run is not.
            None => Ledger::open(&self.path, self.is_own)?,
        };
        Ok(self.ledger.insert(ledger))
    }

    pub(super) fn limits(&self) -> bool {
        self.cost.is_some() || self.tokens.is_some() || self.until.is_some()
    }

    /// Checks that more may be spent.
    pub(super) fn check(&self) -> std::result::Result<(), Denial> {
        let Some(tally) = self.ledger.as_ref().map(Ledger::tally) else {
            return Ok(());
        };
        let spent = match self.scope {
            BudgetScope::Run => tally.own(),
            BudgetScope::Tree => tally.all(),
        };
        let Some(text) = self.exceeded(spent) else {
            return Ok(());
        };
        let is_pending =
            self.scope == BudgetScope::Tree && self.exceeded(tally.all_but_pending()).is_none();
        Err(if is_pending {
            Denial::Pending(text)
        } else {
            Denial::Exhausted(text)
        })
    }

    /// The limit that is reached when so much is spent.
    fn exceeded(&self, spent: Amount) -> Option<String> {
        if let Some(limit) = self.tokens
            && spent.tokens() >= limit
        {
            let spent = format!("{} of {limit} tokens", spent.tokens());
            return Some(self.words(&spent, "tokens"));
        }
        if let Some(limit) = self.cost
            && spent.reaches_cost(limit)
        {
            let cost = spent.cost();
            return Some(self.words(&format!("cost {cost:.6} of {limit}"), "cost"));
        }
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        is_over.then(|| self.time_words())
    }

    /// The time that is spent of a limit.
    pub(super) fn time_spent(&self) -> Option<Duration> {
        let (until, now) = (self.until?, Instant::now());
        let spent = self.time? + now.saturating_duration_since(until);
        Some(spent.saturating_sub(until.saturating_duration_since(now)))
    }

    /// The message when its time is spent.
    pub(super) fn time_words(&self) -> String {
        let times = self
            .time_spent()
            .zip(self.time)
            .map_or_else(String::new, |(spent, limit)| {
                format!(" ({:.1} of {} s)", spent.as_secs_f64(), limit.as_secs())
            });
        self.words(&format!("{SECONDS_OVER}{times}"), "seconds")
    }

    fn words(&self, spent: &str, key: &str) -> String {
        if self.is_own {
            return format!(
                "the budget is used up: {spent}; raise it in agent.yaml, or for one start with --budget {key}=N"
            );
        }
        let run = self.path.parent().map_or("".into(), files::name_of);
        format!("the budget of parent run {run} is used up: {spent}; raise it there")
    }
}
