//! The spending of a start of the engine, and the ledgers in which it is written: its run's own and those of
//! the runs around it.
//!
//! Unaware of the loop and of the conversation. The ledger of a run has the spending of all runs below it,
//! so that each run reserves in its own and in those of all runs around it, from the outermost inwards.

mod outer;
mod budget_limit;

#[cfg(feature = "flow")]
pub(crate) use outer::{end_of_last, outer_runs};

use crate::config::agent::Agent;
use crate::config::pricing::{Budget, BudgetScope, GivenBudget, Pricing, unpriced};
use crate::error::{Error, Result, ignore};
use crate::model::ask::Expense;
use crate::model::usage::Uncounted;
use crate::record::event::{Line, Recorded, Tokens};
use crate::record::reader::counted_lines;
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, Amount, Denial, Kind, Ledger, LedgerEntry};
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use budget_limit::BudgetLimit;
use outer::{OuterLedger, ledgers_variable, outer_ledgers};
use std::time::{Duration, Instant};

/// The message while other processes' reservations fill a limit, and the interval at which they are checked.
const PENDING: &str =
    "waiting: other processes have reserved the rest of the budget and have not yet settled";
const SETTLEMENT: Duration = Duration::from_millis(50);

/// The estimate of an answer, in tokens, if the agent sets no limit.
const USUAL_ANSWER: u64 = 4096;

/// Makes the ledger of a run that starts others and asks no model itself. Returns the value of `LEDGERS` for
/// its programs.
///
/// # Errors
/// The ledger cannot be opened, or the environment names something else than ledgers.
pub(crate) fn open_tree(
    run: &RunDir,
    journal: &[u8],
    given: Option<GivenBudget>,
) -> Result<String> {
    let outer = outer_ledgers()?;
    let budget = given.map(GivenBudget::of_tree).unwrap_or_default();
    Ledger::open(&run.path.join(spending::FILE), true)?;
    let until = end_of_seconds(&budget, journal, &run.id);
    Ok(ledgers_variable(&outer, run, &budget, until))
}

/// End of a budget's seconds if nothing but the engine takes time from now on.
fn end_of_seconds(budget: &Budget, journal: &[u8], run: &RunId) -> Option<Instant> {
    // In the past if more is spent than the limit.
    (Instant::now() + budget.time()?).checked_sub(engine_time(journal, run))
}

/// The rules of a start's spending, known before anything is created.
#[derive(Clone, Debug)]
pub(crate) struct SpendingRules {
    pub budget: Budget,
    outer: Vec<OuterLedger>,
    pricing: Option<Pricing>,
    model: Option<String>,
    /// The estimate of an answer.
    answer_tokens: u64,
}

impl SpendingRules {
    /// The rules for an agent. `given` replaces its budget.
    ///
    /// # Errors
    /// A cost is limited, and the model has no price.
    pub(crate) fn of(agent: &Agent, given: Option<GivenBudget>) -> Result<Self> {
        let budget = given.map_or(agent.budget, |given| given.in_place_of(agent.budget));
        let outer = outer_ledgers()?;
        let model = agent.llm.model.clone();
        let pricing = agent.prices.of_model(model.as_deref());
        let limits_cost = budget.cost.is_some() || outer.iter().any(|it| it.cost.is_some());
        if limits_cost && pricing.is_none() {
            let what = match budget.cost {
                Some(_) => "the budget limits the cost",
                None => "the budget of a run around this one limits the cost",
            };
            return Err(Error::config(unpriced(what, model.as_deref())));
        }
        Ok(Self {
            budget,
            outer,
            pricing,
            model,
            answer_tokens: answer_tokens(agent),
        })
    }

    /// The rules when the agent asks another model in place of the first.
    ///
    /// # Errors
    /// A cost is limited, and that model has no price of its own.
    pub(crate) fn of_fallback(&self, agent: &Agent) -> std::result::Result<Self, String> {
        let model = agent.llm.model.clone();
        let pricing = agent.prices.of_named(model.as_deref());
        let limits_cost =
            self.budget.cost.is_some() || self.outer.iter().any(|it| it.cost.is_some());
        if limits_cost && pricing.is_none() {
            return Err("the budget limits the cost, and pricing has no price for it".to_owned());
        }
        Ok(Self {
            pricing,
            model,
            answer_tokens: answer_tokens(agent),
            ..self.clone()
        })
    }

    fn cost(&self, tokens: (u64, u64), cached: u64, cache_written: u64) -> Option<f64> {
        Some(self.pricing?.cost(tokens, cached, cache_written))
    }
}

/// The estimate of an answer.
fn answer_tokens(agent: &Agent) -> u64 {
    let limit = |key: &str| {
        let parameters = &agent.llm.parameters;
        let found = parameters.iter().find(|(name, _)| name == key);
        found.and_then(|(_, value)| value.as_u64())
    };
    let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    names.into_iter().find_map(limit).unwrap_or(USUAL_ANSWER)
}

/// The spending of one start of the engine.
pub(crate) struct Account {
    rules: SpendingRules,
    run_id: String,
    process: Option<String>,
    budgets: Vec<BudgetLimit>,
    /// End of this start's time.
    start_limit: Option<Instant>,
    /// Reservations must be durable, because something is limited.
    has_limits: bool,
    is_mentioned: bool,
    /// An answer was booked at its estimate, which is worth a warning.
    is_uncounted: bool,
}

impl Account {
    /// The account of a run that begins or goes on now. `journal` is the run's.
    pub(crate) fn new(
        rules: SpendingRules,
        run: &RunDir,
        journal: &[u8],
        start_limit: Option<Instant>,
    ) -> Self {
        let Budget {
            cost, tokens, per, ..
        } = rules.budget;
        let until = end_of_seconds(&rules.budget, journal, &run.id);
        let outer = rules.outer.iter().map(|outer| BudgetLimit {
            path: outer.ledger.clone(),
            ledger: None,
            is_own: false,
            cost: outer.cost,
            tokens: outer.tokens,
            scope: BudgetScope::Tree,
            time: None,
            until: outer.until(),
        });
        let own = BudgetLimit {
            path: run.path.join(spending::FILE),
            ledger: None,
            is_own: true,
            cost,
            tokens,
            scope: per,
            time: rules.budget.time(),
            until,
        };
        let budgets: Vec<BudgetLimit> = outer.chain([own]).collect();
        let mut account = Self {
            has_limits: budgets.iter().any(BudgetLimit::limits),
            rules,
            run_id: run.id.to_string(),
            process: procfs::process_name(std::process::id()),
            budgets,
            start_limit,
            is_mentioned: false,
            is_uncounted: false,
        };
        // Children must find it. If it cannot be opened, the first expense reports why.
        ignore(account.open_all());
        account.drop_twins();
        account
    }

    /// Books by other rules from now on: another model is asked.
    pub(crate) fn change_rules(&mut self, rules: SpendingRules) {
        self.rules = rules;
    }

    /// Adds to the run's own ledger what it lacks of the usage in the journal, if the run has a budget, and returns these
    /// tokens. A ledger that cannot be used is reported by the first expense.
    pub(crate) fn restore_lost(&mut self, signals: &Signals, journal: &[u8]) -> Option<u64> {
        let own = self.budgets.last_mut()?;
        if own.cost.is_none() && own.tokens.is_none() {
            return None;
        }
        let ledger = own.open().ok()?;
        if ledger.lock(signals, None, false).is_err() {
            // Read from its beginning the next time.
            own.ledger = None;
            return None;
        }
        let (booked, used) = (ledger.tally().own(), recorded_usage(journal, &self.run_id));
        let lost = used.total_tokens.saturating_sub(booked.tokens());
        let cost = self
            .rules
            .cost((used.prompt_tokens, used.completion_tokens), 0, 0);
        let entry = LedgerEntry {
            run_id: &self.run_id,
            invocation: "journal",
            attempt: 1,
            model: None,
            tokens: lost,
            cost: cost.map(|cost| cost - booked.cost()),
            process: None,
        };
        // It is never settled, so it counts.
        let added = lost > 0 && ledger.append(&entry, Kind::Reserve).is_ok();
        ledger.release();
        added.then_some(lost)
    }

    /// The value of `LEDGERS` for the run's programs.
    pub(crate) fn variable(&self, run: &RunDir) -> String {
        let until = self.budgets.last().and_then(|own| own.until);
        ledgers_variable(&self.rules.outer, run, &self.rules.budget, until)
    }

    /// The instant at which the first time limit is reached, and the message for it.
    pub(crate) fn time_limit(&self) -> Option<(Instant, String)> {
        let budgets = self
            .budgets
            .iter()
            .filter(|budget_limit| budget_limit.until.is_some());
        let first = budgets.min_by_key(|budget_limit| budget_limit.until)?;
        Some((first.until?, first.time_words()))
    }

    /// The engine's working time in all starts, if that is limited.
    pub(crate) fn worked_ms(&self) -> Option<u64> {
        Some(self.budgets.last()?.time_spent()?.as_millis() as u64)
    }

    /// The time that a person took does not count.
    pub(crate) fn add_wait(&mut self, time: Duration) {
        if let Some(until) = self.budgets.last_mut().and_then(|own| own.until.as_mut()) {
            *until += time;
        }
    }

    /// Checks that more may be spent. Without limits the ledgers are not read.
    pub(crate) fn check(&mut self, signals: &Signals) -> std::result::Result<(), Denial> {
        if !self.has_limits {
            return Ok(());
        }
        let checked = self.lock_to_spend(signals);
        self.release_all();
        checked
    }

    /// Reserves what an attempt is estimated to cost, or settles what it has cost.
    pub(crate) fn book(
        &mut self,
        signals: &Signals,
        invocation: &str,
        request_bytes: usize,
        attempt: u64,
        expense: &Expense,
    ) -> std::result::Result<(), Denial> {
        let estimate = (request_bytes as u64 / 4 + 1, self.rules.answer_tokens);
        let estimated = estimate.0.saturating_add(estimate.1);
        let (kind, tokens, cost) = match expense {
            Expense::Reserve => (Kind::Reserve, estimated, self.rules.cost(estimate, 0, 0)),
            Expense::Unknown(of_answer) => {
                // Servers without usage are common, and without a limit their estimates do no harm.
                self.is_uncounted |= match of_answer {
                    Some(Uncounted::Silent) => self.has_limits,
                    Some(Uncounted::Odd) => true,
                    None => false,
                };
                (Kind::Settle, estimated, self.rules.cost(estimate, 0, 0))
            }
            Expense::Nothing => (Kind::Settle, 0, self.rules.cost((0, 0), 0, 0)),
            Expense::Counted(counted) => {
                let tokens = counted.tokens;
                let parts = (tokens.prompt_tokens, tokens.completion_tokens);
                let cost = self
                    .rules
                    .cost(parts, counted.cached, counted.cache_written);
                (Kind::Settle, tokens.total_tokens, cost)
            }
        };
        let model = self.rules.model.clone();
        let (run_id, process) = (self.run_id.clone(), self.process.clone());
        let entry = LedgerEntry {
            run_id: &run_id,
            invocation,
            attempt,
            model: model.as_deref(),
            tokens,
            cost,
            process: process.as_deref(),
        };
        let is_reservation = kind == Kind::Reserve;
        let locked = if is_reservation {
            self.lock_to_spend(signals)
        } else {
            self.lock_all(signals, true)
        };
        let booked = locked.and_then(|()| self.append_all(&entry, kind));
        self.release_all();
        booked?;
        if is_reservation && self.has_limits {
            self.ledgers().try_for_each(Ledger::sync)?;
        }
        Ok(())
    }

    /// True once after an answer was booked at its estimate: time for a warning.
    pub(crate) fn has_uncounted_answer(&mut self) -> bool {
        let is_new = self.is_uncounted && !self.is_mentioned;
        self.is_mentioned |= is_new;
        is_new
    }

    /// Spending of this run and the runs below it over their whole lives, and whether it has a price.
    pub(crate) fn spent(&mut self, signals: &Signals) -> Option<(Amount, bool)> {
        let budget_limit = self.budgets.last_mut()?;
        let no_wait = Some(Instant::now());
        let read_on = |ledger: &mut Ledger| {
            ledger.lock(signals, no_wait, false).ok()?;
            ledger.release();
            Some(ledger.tally().all())
        };
        let all = match budget_limit.ledger.as_mut().and_then(read_on) {
            Some(all) => all,
            None => spending::read_tally(&budget_limit.path).ok()??.all(),
        };
        Some((all, self.rules.pricing.is_some()))
    }

    fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.budgets
            .iter()
            .filter_map(|budget_limit| budget_limit.ledger.as_ref())
    }

    fn ledgers_mut(&mut self) -> impl Iterator<Item = &mut Ledger> {
        self.budgets
            .iter_mut()
            .filter_map(|budget_limit| budget_limit.ledger.as_mut())
    }

    fn open_all(&mut self) -> std::result::Result<(), Denial> {
        for budget_limit in &mut self.budgets {
            budget_limit.open()?;
        }
        Ok(())
    }

    /// Leaves out ledgers that are there twice: the second lock on one would never come.
    fn drop_twins(&mut self) {
        let ledger = |budget_limit: &BudgetLimit| budget_limit.ledger.as_ref().map(Ledger::file_id);
        let ids: Vec<_> = self.budgets.iter().map(ledger).collect();
        let mut at = 0;
        self.budgets.retain(|_| {
            at += 1;
            ids[at - 1].is_none() || !ids[at..].contains(&ids[at - 1])
        });
    }

    fn lock_all(&mut self, signals: &Signals, is_last: bool) -> std::result::Result<(), Denial> {
        let until = self.waits_end();
        for budget_limit in &mut self.budgets {
            budget_limit.open()?.lock(signals, until, is_last)?;
        }
        Ok(())
    }

    /// End of the wait for a ledger, by the limits of time.
    fn waits_end(&self) -> Option<Instant> {
        let limits = self.time_limit().map(|(until, _)| until);
        limits.into_iter().chain(self.start_limit).min()
    }

    fn release_all(&self) {
        self.ledgers().for_each(Ledger::release);
    }

    /// Locks the ledgers when more may be spent. What other processes have reserved may turn out to be less: then
    /// their settlements are waited for.
    fn lock_to_spend(&mut self, signals: &Signals) -> std::result::Result<(), Denial> {
        let mut is_reported = false;
        loop {
            self.lock_all(signals, false)?;
            let denials = self
                .budgets
                .iter()
                .filter_map(|budget_limit| budget_limit.check().err());
            let is_pending = |denial: &Denial| matches!(denial, Denial::Pending(_));
            let Some(denial) = denials.max_by_key(|it| !is_pending(it)) else {
                return Ok(());
            };
            let is_late = self.waits_end().is_some_and(|end| Instant::now() >= end);
            if !is_pending(&denial) || is_late {
                return Err(denial);
            }
            self.release_all();
            if !is_reported {
                is_reported = true;
                Screen::default().warn(PENDING);
            }
            signals.sleep(SETTLEMENT).map_err(Denial::Stopped)?;
        }
    }

    fn append_all(
        &mut self,
        entry: &LedgerEntry<'_>,
        kind: Kind,
    ) -> std::result::Result<(), Denial> {
        let append = |(at, ledger): (usize, &mut Ledger)| {
            if kind == Kind::Settle && !ledger.tally().has_open(entry) {
                // An earlier start has made the reservation, and not below that run.
                return None;
            }
            let denial = ledger.append(entry, kind).err()?;
            Some((at, denial))
        };
        let failed = self.ledgers_mut().enumerate().find_map(append);
        let Some((at, denial)) = failed else {
            return Ok(());
        };
        if kind == Kind::Reserve {
            let nothing = LedgerEntry {
                tokens: 0,
                cost: entry.cost.map(|_| 0.0),
                ..*entry
            };
            let before = self.ledgers_mut().take(at);
            before.for_each(|it| ignore(it.append(&nothing, Kind::Settle)));
        }
        Err(denial)
    }
}

/// The usage that lines show for the starts of their own run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordedUsage {
    pub sum: Tokens,
    is_own: bool,
}

impl RecordedUsage {
    /// Adds the next line.
    pub(crate) fn add(&mut self, line: &Line<'_>, run: &str) {
        if let Recorded::EngineStart(start) = &line.event {
            self.is_own = start.run_id.get() == Some(run);
        }
        if let Some(usage) = line.usage().filter(|_| self.is_own) {
            self.sum.add(usage.tokens());
        }
    }
}

/// The usage that a journal shows for the starts of its own run.
pub(crate) fn recorded_usage(journal: &[u8], run: &str) -> Tokens {
    let mut found = RecordedUsage::default();
    counted_lines(journal).for_each(|line| found.add(&line, run));
    found.sum
}

/// The engine's working time in all starts of a run, without waits for a person, as far as its journal shows.
pub(crate) fn engine_time(journal: &[u8], run: &RunId) -> Duration {
    let mut sum = Duration::ZERO;
    let mut is_own = false;
    // Since when the engine has been seen running.
    let mut since: Option<Timestamp> = None;
    for line in counted_lines(journal) {
        let Some(at) = line.time() else { continue };
        if let Recorded::EngineStart(start) = &line.event {
            // A fork's journal begins with the starts of the run that it was made from.
            is_own = start.run_id.get() == Some(run.as_str());
            since = is_own.then_some(at);
            continue;
        }
        if let Some(since) = since {
            sum = sum.saturating_add(at.since(since));
        }
        let is_pause = match &line.event {
            Recorded::EngineEnd(end) => {
                let recorded = end.engine_ms.filter(|_| is_own);
                sum = recorded.map_or(sum, Duration::from_millis);
                true
            }
            Recorded::HumanInputRequest(_) => true,
            _ => false,
        };
        since = (is_own && !is_pause).then(|| since.map_or(at, |since| since.max(at)));
    }
    sum
}
