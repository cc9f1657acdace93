//! The statistics of an evaluation: pure functions of counts.
//!
//! Unaware of trials, settings and how anything is printed. Rates are 0..=1. A tail is the probability beyond a bound
//! on one side: an interval of 95 % has tails of 0.025.

pub mod distribution;
pub mod exact;
pub mod interval;
pub mod pass;
pub mod difference;
pub mod threshold;

use serde::Serialize;

/// A case under one setting: how many of its trials were measured, and how many of those passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// At most as many as were measured.
    pub passed: u32,
    pub measured: u32,
}

impl Counts {
    /// The share that passed; none without a measured trial.
    pub fn rate(self) -> Option<f64> {
        (self.measured > 0).then(|| f64::from(self.passed) / f64::from(self.measured))
    }
}

/// Sums of squares below this are rounding, since rates are quotients of counts.
const ROUNDING: f64 = 1e-24;

/// The mean and the variance with n − 1; none of nothing. The variance of a single value is 0.
pub(crate) fn mean_and_variance(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = sum_of(values) / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / (count - 1.0).max(1.0);
    Some((mean, if variance < ROUNDING { 0.0 } else { variance }))
}

/// The sum without the rounding of its parts (Neumaier 1974), so that equal rates have that rate as their mean.
fn sum_of(values: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        lost += if sum.abs() >= value.abs() {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    sum + lost
}
