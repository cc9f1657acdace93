//! The figures of a setting and of its cases.

use super::cells::{Cell, Column, Sum};
use super::{Plan, PlannedCase};
use crate::flow::eval::numbers::interval::{self, Interval, SuiteRate, TAIL_95};
use crate::flow::eval::numbers::pass::{self, PassAt};
use crate::flow::eval::numbers::{Counts, interval::of_case};
use serde::Serialize;
use std::collections::BTreeMap;

/// pass@k and pass^k are computed up to this k.
const MOST_K: u32 = 100;

/// The level of every interval that is printed.
const LEVEL: f64 = 0.95;

/// An interval with its level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct LevelEnds {
    pub lower: f64,
    pub upper: f64,
    pub level: f64,
}

impl From<Interval> for LevelEnds {
    fn from(interval: Interval) -> Self {
        Self {
            lower: interval.lower,
            upper: interval.upper,
            level: LEVEL,
        }
    }
}

/// The interval of a rate, and how it was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct RateInterval {
    pub lower: f64,
    pub upper: f64,
    pub level: f64,
    /// `wilson_cluster_t`: of cases like these; `wilson`: of the single case.
    pub method: &'static str,
    pub df: Option<u32>,
    pub n_eff: f64,
}

impl RateInterval {
    fn of(suite: &SuiteRate) -> Option<Self> {
        let Interval { lower, upper } = suite.interval?;
        Some(Self {
            lower,
            upper,
            level: LEVEL,
            method: match suite.freedom {
                Some(_) => "wilson_cluster_t",
                None => "wilson",
            },
            df: suite.freedom,
            n_eff: suite.effective,
        })
    }
}

/// A case under a setting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseFigures {
    pub id: String,
    /// SHA-256 of its text.
    pub hash: Option<String>,
    /// A digest of what judges it.
    pub graders: Option<String>,
    pub passed: u32,
    pub failed: u32,
    pub not_measured: u32,
    pub rate: Option<f64>,
    /// From five measured trials on.
    pub ci: Option<LevelEnds>,
    /// Mean of its measured trials.
    pub score: Option<f64>,
    /// Of all its measured trials.
    pub cost: Option<f64>,
    /// Median of its measured trials.
    pub duration_ms: Option<u64>,
}

impl CaseFigures {
    fn of(case: &PlannedCase, cell: &Cell, planned: u32) -> Self {
        let counts = Counts {
            passed: cell.passed,
            measured: cell.measured(),
        };
        Self {
            id: case.id.clone(),
            hash: case.hash.clone(),
            graders: case.graders.clone(),
            passed: cell.passed,
            failed: cell.failed,
            not_measured: planned.saturating_sub(cell.measured()),
            rate: counts.rate(),
            ci: of_case(counts).map(LevelEnds::from),
            score: (cell.scored > 0).then(|| cell.score / f64::from(cell.scored)),
            cost: cell.cost.known(),
            duration_ms: Durations::of(cell.durations.clone()).map(|times| times.median),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            passed: self.passed,
            measured: self.passed + self.failed,
        }
    }

    pub(crate) fn planned(&self) -> u32 {
        self.passed + self.failed + self.not_measured
    }
}

/// Wall clock of measured trials, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Durations {
    pub median: u64,
    pub p90: u64,
}

impl Durations {
    /// By nearest rank. None of nothing.
    fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        let rank = |percent: usize| {
            times
                .get((times.len() * percent).div_ceil(100).checked_sub(1)?)
                .copied()
        };
        Some(Self {
            median: rank(50)?,
            p90: rank(90)?,
        })
    }
}

/// The intervals of pass@k and pass^k, and what they are about.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PassInterval {
    pub k: u32,
    pub at: Option<Interval>,
    pub hat: Option<Interval>,
    /// Cases with at least k measured trials.
    pub cases: usize,
    /// Planned cases with fewer, which are left out.
    pub cases_left_out: usize,
}

/// A setting: a column of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SettingFigures {
    pub name: String,
    pub cases: Vec<CaseFigures>,
    pub trials_planned: u64,
    pub trials_measured: u64,
    /// Mean of the cases' rates; none if nothing was measured.
    pub rate: Option<f64>,
    pub ci: Option<RateInterval>,
    /// Of exactly these cases, 95 %; none unless each was measured twice.
    pub ci_these_cases: Option<LevelEnds>,
    /// With all missing trials counted as failed, and as passed.
    pub bounds: Option<Interval>,
    /// By k.
    pub pass_at_k: BTreeMap<u32, f64>,
    /// By k.
    pub pass_hat_k: BTreeMap<u32, f64>,
    pub pass_k_intervals: Vec<PassInterval>,
    /// Mean of the cases' scores.
    pub score: Option<f64>,
    pub cost_per_success: Option<f64>,
    /// The sum of all measured trials; none if one of them has none.
    pub cost: Option<f64>,
    /// Of the trials that were not measured.
    pub cost_not_measured: f64,
    /// The sum of all measured trials; none if one of them has none.
    pub tokens: Option<u64>,
    /// Retries included.
    pub duration_ms: Option<Durations>,
    /// Within measured trials.
    pub retries: u64,
    /// How many trials were not measured, by reason.
    pub not_measured: BTreeMap<String, u64>,
}

impl SettingFigures {
    pub(super) fn of(plan: &Plan, name: &str, column: &Column) -> Self {
        let pairs = plan.cases.iter().zip(&column.cells);
        let cases: Vec<CaseFigures> = pairs
            .map(|(case, cell)| CaseFigures::of(case, cell, plan.trials))
            .collect();
        let counts: Vec<Counts> = cases.iter().map(CaseFigures::counts).collect();
        let planned = u64::from(plan.trials) * plan.cases.len() as u64;
        let measured: u64 = counts.iter().map(|case| u64::from(case.measured)).sum();
        let passed: u64 = counts.iter().map(|case| u64::from(case.passed)).sum();
        let suite = interval::of_cases_like_these(&counts, TAIL_95);
        let chances = chances(&counts);
        let sum = |cost: Sum<f64>, cell: &Cell| cost.plus(cell.cost);
        let cost = column.cells.iter().fold(Sum::Empty, sum).known();
        let sum = |tokens: Sum<u64>, cell: &Cell| tokens.plus(cell.tokens);
        let tokens = column.cells.iter().fold(Sum::Empty, sum).known();
        let durations = column
            .cells
            .iter()
            .flat_map(|cell| cell.durations.iter().copied());
        Self {
            name: name.to_owned(),
            trials_planned: planned,
            trials_measured: measured,
            rate: suite.map(|suite| suite.rate),
            ci: suite.as_ref().and_then(RateInterval::of),
            ci_these_cases: interval::of_these_cases(&counts).map(LevelEnds::from),
            bounds: (planned > 0).then(|| interval::bounds(passed, planned - measured, planned)),
            pass_at_k: chances
                .iter()
                .map(|chance| (chance.k, chance.any))
                .collect(),
            pass_hat_k: chances
                .iter()
                .map(|chance| (chance.k, chance.all))
                .collect(),
            pass_k_intervals: chances
                .iter()
                .map(|chance| pass_interval(chance, cases.len()))
                .collect(),
            score: mean(cases.iter().filter_map(|case| case.score)),
            cost_per_success: cost.filter(|_| passed > 0).map(|cost| cost / passed as f64),
            cost,
            cost_not_measured: column.cost_not_measured,
            tokens,
            duration_ms: Durations::of(durations.collect()),
            retries: column.cells.iter().map(|cell| cell.retries).sum(),
            not_measured: reasons(column, planned - measured),
            cases,
        }
    }

    pub(crate) fn counts(&self) -> Vec<Counts> {
        self.cases.iter().map(CaseFigures::counts).collect()
    }

    /// Planned trials that were not measured.
    pub(crate) fn missing(&self) -> u64 {
        self.trials_planned - self.trials_measured
    }
}

/// pass@k and pass^k for all k for which a case has enough trials.
fn chances(counts: &[Counts]) -> Vec<PassAt> {
    let most = counts.iter().map(|case| case.measured).max().unwrap_or(0);
    let ks = 1..=most.min(MOST_K);
    ks.filter_map(|k| pass::of_suite(counts, k)).collect()
}

fn pass_interval(chance: &PassAt, planned_cases: usize) -> PassInterval {
    PassInterval {
        k: chance.k,
        at: chance.any_interval,
        hat: chance.all_interval,
        cases: chance.cases,
        cases_left_out: planned_cases - chance.cases,
    }
}

/// The reasons of all missing trials, those included that never came.
fn reasons(column: &Column, missing: u64) -> BTreeMap<String, u64> {
    let counted = column
        .reasons
        .iter()
        .map(|(reason, count)| (reason.clone(), u64::from(*count)));
    let mut reasons: BTreeMap<String, u64> = counted.collect();
    let came: u64 = reasons.values().sum();
    if missing > came {
        *reasons.entry("not_started".to_owned()).or_default() += missing - came;
    }
    reasons
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
