//! Counts trials by setting and case.

use super::Plan;
use crate::error::{Error, Result};
use crate::flow::eval::trial::{Trial, TrialOutcome};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::AddAssign;

/// The number of reasons with a count of their own.
const REASONS_COUNTED: usize = 16;

/// A sum, and the number of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Total<T> {
    pub sum: T,
    pub count: u32,
}

impl<T: AddAssign> Total<T> {
    fn add(&mut self, part: Option<T>) {
        if let Some(part) = part {
            self.sum += part;
            self.count += 1;
        }
    }

    /// The sum of all.
    pub(super) fn of(totals: impl Iterator<Item = Self>) -> Self
    where
        T: Default,
    {
        totals.fold(Self::default(), |mut all, other| {
            all.sum += other.sum;
            all.count += other.count;
            all
        })
    }

    /// The sum, if it has this many parts.
    pub(super) fn of_all(self, count: u32) -> Option<T> {
        (count > 0 && self.count == count).then_some(self.sum)
    }
}

impl Total<f64> {
    /// Of at least one part.
    pub(super) fn mean(self) -> f64 {
        self.sum / f64::from(self.count)
    }
}

/// The trials of a case under a setting.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub passed: u32,
    pub failed: u32,
    // Of measured trials.
    pub score: Total<f64>,
    pub cost: Total<f64>,
    pub tokens: Total<u64>,
    pub tokens_estimated: u64,
    /// Of measured trials, in milliseconds.
    pub durations: Vec<u64>,
    pub retries: u64,
    /// By their names.
    pub scores: BTreeMap<String, Total<f64>>,
    /// Scores with a value outside 0..=1.
    pub wide_scores: BTreeSet<String>,
    numbers: BTreeSet<u32>,
    outputs: BTreeSet<Option<String>>,
    seeds: BTreeSet<Option<u64>>,
}

impl Cell {
    pub(super) fn measured(&self) -> u32 {
        self.passed + self.failed
    }

    /// Adds a trial that was measured.
    fn add(&mut self, trial: Trial) {
        if trial.outcome == TrialOutcome::Passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        self.score.add(trial.score);
        self.cost.add(trial.cost);
        self.tokens.add(trial.tokens);
        self.tokens_estimated += trial.tokens_estimated.unwrap_or(0);
        self.durations.extend(trial.duration_ms);
        self.retries += u64::from(trial.retries);
        for (name, score) in trial.scores {
            if !(0.0..=1.0).contains(&score) {
                self.wide_scores.insert(name.clone());
            }
            self.scores.entry(name).or_default().add(Some(score));
        }
        self.outputs.insert(trial.output_hash);
        self.seeds.insert(trial.seed);
    }
}

/// The trials under a setting.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// By the place of the case in the plan.
    pub cells: Vec<Cell>,
    /// The reasons why trials were not measured; those that never came are not in it.
    pub reasons: BTreeMap<String, u64>,
    /// The cost of trials that were not measured.
    pub cost_not_measured: f64,
}

impl Column {
    /// The number of trials that were not measured by their reasons; `missing`: of all, also those that never came.
    pub(super) fn not_measured(&self, missing: u64) -> BTreeMap<String, u64> {
        let mut all = self.reasons.clone();
        let came: u64 = all.values().sum();
        if missing > came {
            *all.entry("not_started".to_owned()).or_default() += missing - came;
        }
        all
    }

    fn add(&mut self, case: usize, trial: Trial) -> Result<()> {
        let cell = &mut self.cells[case];
        let fault = match trial.score {
            Some(score) if !(0.0..=1.0).contains(&score) => "the score is outside 0 to 1",
            _ if !cell.numbers.insert(trial.number) => "recorded twice",
            _ => {
                if trial.outcome == TrialOutcome::NotMeasured {
                    self.note_not_measured(&trial);
                } else {
                    cell.add(trial);
                }
                return Ok(());
            }
        };
        Err(Error::failure(format!(
            "case {:?}, setting {:?}, trial {}: {fault}",
            trial.case, trial.setting, trial.number
        )))
    }

    fn note_not_measured(&mut self, trial: &Trial) {
        self.cost_not_measured += trial.cost.filter(|cost| cost.is_finite()).unwrap_or(0.0);
        let is_known = self.reasons.contains_key(&trial.stop_reason);
        let reason = if is_known || self.reasons.len() < REASONS_COUNTED {
            &trial.stop_reason
        } else {
            "other"
        };
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }

    /// Warnings that what looks like several trials may be one.
    pub(super) fn repetition_warnings(&self, setting: &str) -> Vec<String> {
        let repeated = || self.cells.iter().filter(|cell| cell.measured() > 1);
        let mut warnings = Vec::new();
        if repeated().next().is_none() {
            return warnings;
        }
        if repeated().all(|cell| is_one(&cell.outputs)) {
            warnings.push(format!(
                "{setting}: trials are identical; repeated trials may be cached"
            ));
        }
        if repeated().all(|cell| is_one(&cell.seeds)) {
            warnings.push(format!(
                "{setting}: all trials of a case have the same seed; they may be one"
            ));
        }
        warnings
    }
}

fn is_one<T>(values: &BTreeSet<Option<T>>) -> bool {
    values.len() == 1 && values.iter().all(Option::is_some)
}

/// Sums trials up by settings and cases, both in the order of the plan.
pub(super) fn columns_of(
    plan: &Plan<'_>,
    trials: impl Iterator<Item = Trial>,
) -> Result<Vec<Column>> {
    let mut cases = HashMap::with_capacity(plan.cases.len());
    for (at, case) in plan.cases.iter().enumerate() {
        if cases.insert(&case.id, at).is_some() {
            return Err(Error::config(format!(
                "suite {:?}: two cases have the id {:?}",
                plan.suite, case.id
            )));
        }
    }
    let settings: HashMap<&String, usize> = plan.settings.iter().zip(0..).collect();
    let empty = Column {
        cells: vec![Cell::default(); plan.cases.len()],
        reasons: BTreeMap::new(),
        cost_not_measured: 0.0,
    };
    let mut columns = vec![empty; plan.settings.len()];
    for trial in trials {
        if let Some((setting, case)) = settings.get(&trial.setting).zip(cases.get(&trial.case))
            && (1..=plan.trials).contains(&trial.number)
        {
            columns[*setting].add(*case, trial)?;
        }
    }
    Ok(columns)
}
