//! The figures of a setting and of its cases.

use super::cells::{Cell, Column, Total};
use super::{Plan, PlannedCase};
use crate::flow::eval::numbers::interval::{self, Interval, SuiteRate, TAIL_95};
use crate::flow::eval::numbers::interval::{of_case, of_scores, of_values};
use crate::flow::eval::numbers::pass::{self, PassAt};
use crate::flow::eval::numbers::{Counts, mean_and_variance};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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

/// A score of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseScore {
    pub mean: f64,
    /// Measured trials that have it.
    pub trials: u32,
}

/// A score under a setting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScoreFigures {
    /// Of the cases' means.
    pub mean: f64,
    pub ci: Option<LevelEnds>,
    pub cases: usize,
    pub trials: u64,
}

/// A case under a setting. Only the counts of an earlier result are read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CaseFigures {
    pub id: String,
    /// SHA-256 of its text.
    pub hash: Option<String>,
    /// A digest of what judges it.
    pub graders: Option<String>,
    pub passed: u32,
    pub failed: u32,
    pub not_measured: u32,
    #[serde(skip_deserializing)]
    pub rate: Option<f64>,
    /// From five measured trials on.
    #[serde(skip_deserializing)]
    pub ci: Option<LevelEnds>,
    /// Mean of its measured trials.
    #[serde(skip_deserializing)]
    pub score: Option<f64>,
    /// By their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, CaseScore>,
    /// Of all its measured trials.
    #[serde(skip_deserializing)]
    pub cost: Option<f64>,
    /// Median of its measured trials.
    #[serde(skip_deserializing)]
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
            score: (cell.score.count > 0).then(|| cell.score.mean()),
            scores: cell
                .scores
                .iter()
                .map(|(name, score)| {
                    let (mean, trials) = (score.mean(), score.count);
                    (name.clone(), CaseScore { mean, trials })
                })
                .collect(),
            cost: cell.cost.of_all(cell.measured()),
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

    /// Measured and planned trials.
    pub(super) fn coverage(&self) -> (u32, u32) {
        (self.passed + self.failed, self.planned())
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

impl PassInterval {
    fn of(chance: &PassAt, planned: usize) -> Self {
        Self {
            k: chance.k,
            at: chance.any_interval,
            hat: chance.all_interval,
            cases: chance.cases,
            cases_left_out: planned - chance.cases,
        }
    }
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
    /// By their names.
    pub scores: BTreeMap<String, ScoreFigures>,
    pub cost_per_success: Option<f64>,
    /// All tokens of measured trials for each that passed.
    pub tokens_per_success: Option<f64>,
    /// All seconds of measured trials for each that passed.
    pub seconds_per_success: Option<f64>,
    /// The sum of all measured trials; none if one of them has none.
    pub cost: Option<f64>,
    /// Of the trials that were not measured.
    pub cost_not_measured: f64,
    /// The sum of all measured trials; none if one of them has none.
    pub tokens: Option<u64>,
    /// How many tokens of measured trials are estimates.
    pub tokens_estimated: u64,
    /// Retries included.
    pub duration_ms: Option<Durations>,
    /// Within measured trials.
    pub retries: u64,
    /// The number of trials not measured, by reason.
    pub not_measured: BTreeMap<String, u64>,
}

impl SettingFigures {
    pub(super) fn of(
        plan: &Plan,
        name: &str,
        column: &Column,
        wide_scores: &BTreeSet<&String>,
    ) -> Self {
        let cells = &column.cells;
        let cases = plan.cases.iter().zip(cells);
        let cases: Vec<CaseFigures> = cases
            .map(|(case, cell)| CaseFigures::of(case, cell, plan.trials))
            .collect();
        let counts: Vec<Counts> = cases.iter().map(CaseFigures::counts).collect();
        let planned = u64::from(plan.trials) * plan.cases.len() as u64;
        let measured: u32 = counts.iter().map(|case| case.measured).sum();
        let passed: u64 = counts.iter().map(|case| u64::from(case.passed)).sum();
        let missing = planned - u64::from(measured);
        let suite = interval::of_cases_like_these(&counts, TAIL_95);
        let most = counts.iter().map(|case| case.measured).max().unwrap_or(0);
        let ks = 1..=most.min(MOST_K);
        let chances: Vec<PassAt> = ks.filter_map(|k| pass::of_suite(&counts, k)).collect();
        let cost = Total::of(cells.iter().map(|cell| cell.cost)).of_all(measured);
        let tokens = Total::of(cells.iter().map(|cell| cell.tokens)).of_all(measured);
        let durations = cells.iter().flat_map(|cell| cell.durations.iter().copied());
        let durations: Vec<u64> = durations.collect();
        let seconds = durations.iter().map(|ms| *ms as f64 / 1000.0).sum();
        let is_timed = !durations.is_empty();
        let per_success = |sum: f64| (passed > 0).then(|| sum / passed as f64);
        let scores: Vec<f64> = cases.iter().filter_map(|case| case.score).collect();
        Self {
            name: name.to_owned(),
            trials_planned: planned,
            trials_measured: measured.into(),
            rate: suite.map(|suite| suite.rate),
            ci: suite.as_ref().and_then(RateInterval::of),
            ci_these_cases: interval::of_these_cases(&counts).map(LevelEnds::from),
            bounds: (planned > 0).then(|| interval::bounds(passed, missing, planned)),
            pass_at_k: chances.iter().map(|it| (it.k, it.any)).collect(),
            pass_hat_k: chances.iter().map(|it| (it.k, it.all)).collect(),
            pass_k_intervals: chances
                .iter()
                .map(|chance| PassInterval::of(chance, cases.len()))
                .collect(),
            score: (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64),
            scores: scores_of(&cases, wide_scores),
            cost_per_success: cost.and_then(per_success),
            tokens_per_success: tokens.and_then(|tokens| per_success(tokens as f64)),
            seconds_per_success: per_success(seconds).filter(|_| is_timed),
            cost,
            cost_not_measured: column.cost_not_measured,
            tokens,
            tokens_estimated: cells.iter().map(|cell| cell.tokens_estimated).sum(),
            duration_ms: Durations::of(durations),
            retries: cells.iter().map(|cell| cell.retries).sum(),
            not_measured: column.not_measured(missing),
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

/// The scores of a setting by their names; `wide` are those with a value outside 0..=1 under any setting. The mean of
/// another one is a share, and has the interval of a rate.
fn scores_of(cases: &[CaseFigures], wide: &BTreeSet<&String>) -> BTreeMap<String, ScoreFigures> {
    let figures = |name: &String| {
        let found = || cases.iter().filter_map(|case| case.scores.get(name));
        let means: Vec<f64> = found().map(|score| score.mean).collect();
        let trials = found().map(|score| u64::from(score.trials)).sum();
        let ends = if wide.contains(name) {
            of_values(&means).filter(|ends| ends.lower < ends.upper)
        } else {
            of_scores(&means, trials)
        };
        Some(ScoreFigures {
            mean: mean_and_variance(&means)?.0,
            ci: ends.map(LevelEnds::from),
            cases: means.len(),
            trials,
        })
    };
    let names: BTreeSet<&String> = cases.iter().flat_map(|case| case.scores.keys()).collect();
    let named = names.into_iter();
    named
        .filter_map(|name| Some((name.clone(), figures(name)?)))
        .collect()
}
