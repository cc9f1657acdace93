//! The ledgers of the runs around a process, which the environment names.

use crate::config::pricing::{Budget, BudgetScope};
use crate::engine::run_context::LEDGERS;
use crate::error::{Error, Result};
use crate::record::run_dir::RunDir;
use crate::record::spending;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A ledger of a run around this one, and the limits of that run's tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OuterLedger {
    pub(super) ledger: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<u64>,
    /// End of that run's seconds, for processes of other machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The same end by a monotonic clock: its name, and milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<(String, u64)>,
}

impl OuterLedger {
    /// True if the path is that of a ledger in a run's directory.
    fn is_in_a_run(&self) -> bool {
        let mut parts = self.ledger.iter().rev().map(|part| part.to_str());
        let (file, run, control) = (parts.next(), parts.next(), parts.next());
        let is_run = run.flatten().is_some_and(|name| RunId::parse(name).is_ok());
        self.ledger.is_absolute()
            && file == Some(Some(spending::FILE))
            && is_run
            && control == Some(Some(".delta"))
    }

    pub(super) fn until(&self) -> Option<Instant> {
        let until = Timestamp::parse(self.until.as_deref()?)?;
        let left = match (&self.clock, procfs::monotonic_clock()) {
            (Some((theirs, end)), Some((ours, now))) if *theirs == ours => {
                Duration::from_millis(end.saturating_sub(now))
            }
            _ => until.since(Timestamp::now()),
        };
        Some(Instant::now() + left)
    }
}

/// The ledgers of the runs around this process, as its environment names them.
///
/// # Errors
/// It names something else.
pub(super) fn outer_ledgers() -> Result<Vec<OuterLedger>> {
    let Some(text) = std::env::var_os(LEDGERS).filter(|text| !text.is_empty()) else {
        return Ok(Vec::new());
    };
    let list: Option<Vec<OuterLedger>> = serde_json::from_slice(text.as_encoded_bytes()).ok();
    let is_believable = |ledger: &OuterLedger| {
        let is_time = ledger.until.is_none() || ledger.until().is_some();
        ledger.is_in_a_run() && is_time && ledger.cost.is_none_or(|cost| cost >= 0.0)
    };
    list.filter(|list| list.iter().all(is_believable))
        .ok_or_else(|| {
            Error::config(format!(
                "{LEDGERS} does not name the ledgers of runs; unset it to begin a run of its own"
            ))
        })
}

/// End of the seconds of the last budget in a value of [`LEDGERS`].
pub(crate) fn end_of_last(ledgers: &str) -> Option<Instant> {
    let ledgers: Vec<OuterLedger> = serde_json::from_str(ledgers).ok()?;
    ledgers.last()?.until()
}

/// The directories of the runs around this process, as its environment names them.
pub(crate) fn outer_runs() -> Result<Vec<PathBuf>> {
    let ledgers = outer_ledgers()?.into_iter();
    Ok(ledgers
        .filter_map(|outer| outer.ledger.parent().map(Path::to_owned))
        .collect())
}

/// The value of [`LEDGERS`] for the programs of a run.
pub(super) fn ledgers_variable(
    outer: &[OuterLedger],
    run: &RunDir,
    budget: &Budget,
    until: Option<Instant>,
) -> String {
    let binds = budget.per == BudgetScope::Tree;
    let left = until
        .filter(|_| binds)
        .map(|until| until.saturating_duration_since(Instant::now()));
    let clock = procfs::monotonic_clock().zip(left);
    let own = OuterLedger {
        ledger: run.path.join(spending::FILE),
        cost: budget.cost.filter(|_| binds),
        tokens: budget.tokens.filter(|_| binds),
        until: left.map(|left| Timestamp::now().plus(left).to_string()),
        clock: clock.map(|((name, now), left)| (name, now + left.as_millis() as u64)),
    };
    json::text(&outer.iter().chain([&own]).collect::<Vec<_>>())
}
