//! Counts trials by setting and case.

use super::Plan;
use crate::error::{Error, Result};
use crate::flow::eval::trial::{Trial, TrialOutcome};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The number of reasons with a count of their own.
const REASONS_COUNTED: usize = 16;

/// The trials of a case under a setting.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub passed: u32,
    pub failed: u32,
    /// Sum of the scores of measured trials.
    pub score: f64,
    /// How many of them have one.
    pub scored: u32,
    /// Of measured trials; none as soon as one has none.
    pub cost: Sum<f64>,
    pub tokens: Sum<u64>,
    /// Of measured trials, in milliseconds.
    pub durations: Vec<u64>,
    pub retries: u64,
    numbers: BTreeSet<u32>,
    output: Alike<String>,
    seed: Alike<u64>,
}

/// A sum that is known if all its parts are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Sum<T> {
    #[default]
    Empty,
    Known(T),
    Unknown,
}

impl<T: Copy + std::ops::Add<Output = T>> Sum<T> {
    fn add(&mut self, part: Option<T>) {
        *self = match (*self, part) {
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            (Self::Empty, Some(part)) => Self::Known(part),
            (Self::Known(sum), Some(part)) => Self::Known(sum + part),
        }
    }

    /// Both sums together.
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, sum) | (sum, Self::Empty) => sum,
            (Self::Known(one), Self::Known(other)) => Self::Known(one + other),
            _ => Self::Unknown,
        }
    }

    pub(super) fn known(self) -> Option<T> {
        match self {
            Self::Known(sum) => Some(sum),
            Self::Empty | Self::Unknown => None,
        }
    }
}

/// Whether all measured trials of a case have one value.
#[derive(Clone, Debug, Default)]
enum Alike<T> {
    #[default]
    None,
    One(T),
    All(T),
    Different,
}

impl<T: PartialEq> Alike<T> {
    fn add(&mut self, value: Option<T>) {
        *self = match (std::mem::take(self), value) {
            (Self::None, Some(value)) => Self::One(value),
            (Self::One(first) | Self::All(first), Some(value)) if first == value => {
                Self::All(first)
            }
            _ => Self::Different,
        }
    }
}

impl<T> Alike<T> {
    fn is_repeated(&self) -> bool {
        matches!(self, Self::All(_))
    }
}

impl Cell {
    pub(super) fn measured(&self) -> u32 {
        self.passed + self.failed
    }

    fn add(&mut self, trial: &Trial) {
        match trial.outcome {
            TrialOutcome::Passed => self.passed += 1,
            TrialOutcome::Failed => self.failed += 1,
            TrialOutcome::NotMeasured => return,
        }
        if let Some(score) = trial.score {
            self.score += score;
            self.scored += 1;
        }
        self.cost.add(trial.cost);
        self.tokens.add(trial.tokens);
        self.durations.extend(trial.duration_ms);
        self.retries += u64::from(trial.retries);
        self.output.add(trial.output_hash.clone());
        self.seed.add(trial.seed);
    }
}

/// The trials under a setting.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// By the place of the case in the plan.
    pub cells: Vec<Cell>,
    /// Why trials were not measured; those that never came are not in it.
    pub reasons: BTreeMap<String, u32>,
    /// What trials cost that were not measured.
    pub cost_not_measured: f64,
}

impl Column {
    fn note_not_measured(&mut self, trial: &Trial) {
        self.cost_not_measured += trial.cost.filter(|cost| cost.is_finite()).unwrap_or(0.0);
        let is_known = self.reasons.contains_key(&trial.stop_reason);
        let reason = match is_known || self.reasons.len() < REASONS_COUNTED {
            true => trial.stop_reason.as_str(),
            false => "other",
        };
        *self.reasons.entry(reason.to_owned()).or_default() += 1;
    }

    /// Warnings that what looks like several trials may be one.
    pub(super) fn repetition_warnings(&self, setting: &str) -> Vec<String> {
        let repeated: Vec<&Cell> = self
            .cells
            .iter()
            .filter(|cell| cell.measured() > 1)
            .collect();
        let all = |is_so: fn(&Cell) -> bool| {
            !repeated.is_empty() && repeated.iter().all(|cell| is_so(cell))
        };
        let mut warnings = Vec::new();
        if all(|cell| cell.output.is_repeated()) {
            warnings.push(format!(
                "{setting}: trials are identical; repeated trials may be cached"
            ));
        }
        if all(|cell| cell.seed.is_repeated()) {
            warnings.push(format!(
                "{setting}: all trials of a case have the same seed; they may be one"
            ));
        }
        warnings
    }
}

/// All settings, while trials come in.
pub(super) struct Columns<'p> {
    most_trials: u32,
    settings: HashMap<&'p str, usize>,
    cases: HashMap<&'p str, usize>,
    columns: Vec<Column>,
}

impl<'p> Columns<'p> {
    pub(super) fn new(plan: &Plan<'p>) -> Result<Self> {
        let mut cases = HashMap::with_capacity(plan.cases.len());
        for (at, case) in plan.cases.iter().enumerate() {
            if cases.insert(case.id.as_str(), at).is_some() {
                return Err(Error::config(format!(
                    "suite {:?}: two cases have the id {:?}",
                    plan.suite, case.id
                )));
            }
        }
        let empty = Column {
            cells: vec![Cell::default(); plan.cases.len()],
            reasons: BTreeMap::new(),
            cost_not_measured: 0.0,
        };
        let places = plan.settings.iter().enumerate();
        Ok(Self {
            most_trials: plan.trials,
            settings: places.map(|(at, name)| (name.as_str(), at)).collect(),
            cases,
            columns: vec![empty; plan.settings.len()],
        })
    }

    pub(super) fn add(&mut self, trial: &Trial) -> Result<()> {
        let place = (
            self.settings.get(trial.setting.as_str()),
            self.cases.get(trial.case.as_str()),
        );
        let (Some(setting), Some(case)) = place else {
            return Ok(());
        };
        if trial.number == 0 || trial.number > self.most_trials {
            return Ok(());
        }
        let named = || {
            format!(
                "case {:?}, setting {:?}, trial {}",
                trial.case, trial.setting, trial.number
            )
        };
        if trial
            .score
            .is_some_and(|score| !(0.0..=1.0).contains(&score))
        {
            return Err(Error::failure(format!(
                "{}: the score is outside 0 to 1",
                named()
            )));
        }
        let column = &mut self.columns[*setting];
        let cell = &mut column.cells[*case];
        if !cell.numbers.insert(trial.number) {
            return Err(Error::failure(format!("{}: recorded twice", named())));
        }
        cell.add(trial);
        if trial.outcome == TrialOutcome::NotMeasured {
            column.note_not_measured(trial);
        }
        Ok(())
    }

    pub(super) fn into_columns(self) -> Vec<Column> {
        self.columns
    }
}
