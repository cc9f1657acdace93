//! The difference of two results, paired by case, and what it would take to show one.
//!
//! Miller 2024 (arXiv 2411.00640); `McNemar` 1947 for one trial a case.

use super::distribution::{normal_quantile, t_quantile, t_tail};
use super::interval::{Interval, TAIL_95, within_variance};
use super::{Counts, exact, mean_and_variance};
use crate::text::names::named_enum;

/// The quantile at which four of five differences are found.
const POWER_80: f64 = 0.2;

/// Fewer pairs that differ cannot reach 5 % in `McNemar`'s test.
pub const DISCORDANT_PAIRS_NEEDED: u32 = 6;

named_enum! {
    /// The test whose p-value decides.
    pub enum Method {
        /// Paired t over the cases.
        PairedT = "paired_t",
        /// Exact permutation of signs over the cases.
        SignFlip = "sign_flip",
        /// `McNemar`'s exact test: one trial a case on both sides.
        McNemar = "mcnemar",
        /// No test: no case differs.
        None = "none",
    }
}

/// A difference over the cases that were measured on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Mean over the cases of the second rate or score less the first; of rates, −1..=1.
    pub difference: f64,
    /// 95 %, by t; none if there is one case or if all differ by the same.
    pub interval: Option<Interval>,
    /// The smallest difference that would have been shown four times of five.
    pub detectable: Option<f64>,
    pub method: Method,
    /// Of the test that decides, both sides.
    pub p_value: f64,
    /// The cases that only the first passes, and those that only the second passes; with one trial a case on both sides.
    pub discordant: Option<(u32, u32)>,
    pub cases: usize,
    /// Standard deviation of the cases' differences.
    pub deviation: f64,
    /// Part of the variance of a case's difference that is the trials', and would shrink with more of them. None if a case has
    /// a single trial.
    pub trial_variance: Option<f64>,
}

/// Compares two results case by case, first and second. None if no case was measured on both sides.
pub fn compare(pairs: &[(Counts, Counts)]) -> Option<Difference> {
    let both = |pair: &&(Counts, Counts)| pair.0.measured > 0 && pair.1.measured > 0;
    let pairs: Vec<(Counts, Counts)> = pairs.iter().filter(both).copied().collect();
    let differs = |pair: &(Counts, Counts)| Some(pair.1.rate()? - pair.0.rate()?);
    let differences: Vec<f64> = pairs.iter().filter_map(differs).collect();
    let mut found = compare_means(&differences, discordant_pairs(&pairs))?;
    if let Some(interval) = &mut found.interval {
        interval.lower = interval.lower.max(-1.0);
        interval.upper = interval.upper.min(1.0);
    }
    found.trial_variance = trial_variance(&pairs);
    Some(found)
}

/// The mean of the cases' differences. None without a case.
pub fn compare_means(differences: &[f64], discordant: Option<(u32, u32)>) -> Option<Difference> {
    let (difference, variance) = mean_and_variance(differences)?;
    let cases = differences.len();
    let error = (variance / cases as f64).sqrt();
    let freedom = cases as f64 - 1.0;
    let quantile = (cases > 1 && error > 0.0).then(|| t_quantile(TAIL_95, freedom));
    let (method, p_value) = decide(differences, difference, error, discordant);
    Some(Difference {
        difference,
        interval: quantile.map(|t| Interval {
            lower: difference - t * error,
            upper: difference + t * error,
        }),
        detectable: quantile.map(|t| (t + normal_quantile(POWER_80)) * error),
        method,
        p_value,
        discordant,
        cases,
        deviation: variance.sqrt(),
        trial_variance: None,
    })
}

/// The test that decides, and its p-value.
fn decide(
    differences: &[f64],
    mean: f64,
    error: f64,
    discordant: Option<(u32, u32)>,
) -> (Method, f64) {
    if differences.iter().all(|difference| *difference == 0.0) {
        return (Method::None, 1.0);
    }
    if let Some((first, second)) = discordant {
        return (Method::McNemar, exact::mcnemar(first, second));
    }
    if let Some(p_value) = exact::sign_flip(differences) {
        return (Method::SignFlip, p_value);
    }
    let cases = differences.len() as f64;
    if error == 0.0 {
        // All differ by the same: of all flips only two are as far from 0.
        return (Method::SignFlip, (1.0 - cases).exp2());
    }
    let p_value = 2.0 * t_tail((mean / error).abs(), cases - 1.0);
    (Method::PairedT, p_value)
}

/// The cases that only the first passes, and those that only the second passes; none unless each has one trial on both sides.
fn discordant_pairs(pairs: &[(Counts, Counts)]) -> Option<(u32, u32)> {
    let single = |pair: &(Counts, Counts)| pair.0.measured == 1 && pair.1.measured == 1;
    if !pairs.iter().all(single) {
        return None;
    }
    let mut only = (0, 0);
    for (first, second) in pairs {
        only.0 += u32::from(first.passed > second.passed);
        only.1 += u32::from(first.passed < second.passed);
    }
    Some(only)
}

/// Mean over the cases of the variance that their trials give to a difference.
fn trial_variance(pairs: &[(Counts, Counts)]) -> Option<f64> {
    let of = |case: Counts| Some(within_variance(case)? / f64::from(case.measured));
    let sum: Option<f64> = pairs
        .iter()
        .map(|(first, second)| Some(of(*first)? + of(*second)?))
        .sum();
    Some(sum? / pairs.len() as f64)
}

impl Difference {
    /// True if `McNemar`'s test has too few pairs to say anything.
    pub fn has_too_few_pairs(&self) -> bool {
        self.discordant
            .is_some_and(|(first, second)| first + second < DISCORDANT_PAIRS_NEEDED)
    }

    /// The number of cases that shows a difference of this size four times in five.
    pub fn cases_for(&self, size: f64) -> usize {
        (needed() * self.deviation / size).powi(2).ceil() as usize
    }

    /// The factor of trials on the same cases that shows a difference of this size four times in five. None if no number of
    /// trials does, or if it is unknown.
    pub fn trials_factor_for(&self, size: f64) -> Option<f64> {
        let trials = self.trial_variance?;
        let between = (self.deviation.powi(2) - trials).max(0.0);
        let room = (size / needed()).powi(2) * self.cases as f64 - between;
        (room > 0.0 && trials > 0.0).then(|| trials / room)
    }
}

/// Standard errors between 0 and a difference that is found four times of five at 5 %.
fn needed() -> f64 {
    normal_quantile(TAIL_95) + normal_quantile(POWER_80)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of trials, and how many of them pass.
    fn pairs(trials: u32, passed: &[(u32, u32)]) -> Vec<(Counts, Counts)> {
        let counts = |passed| Counts {
            passed,
            measured: trials,
        };
        passed
            .iter()
            .map(|(first, second)| (counts(*first), counts(*second)))
            .collect()
    }

    #[track_caller]
    fn assert_near(value: f64, expected: f64) {
        assert!(
            (value - expected).abs() < 1e-9,
            "{value} instead of {expected}"
        );
    }

    /// Differences of 0.25, 0.5, −0.25, 0, 0.75, 0.5, 0.25, 0, −0.5, 1, 0.25, 0.5.
    fn twelve() -> Vec<(Counts, Counts)> {
        pairs(
            4,
            &[
                (1, 2),
                (1, 3),
                (2, 1),
                (4, 4),
                (0, 3),
                (2, 4),
                (0, 1),
                (0, 0),
                (3, 1),
                (0, 4),
                (3, 4),
                (1, 3),
            ],
        )
    }

    #[test]
    fn ten_cases_and_more_are_judged_by_the_paired_t_test() {
        let compared = compare(&twelve()).expect("a difference");
        assert_near(compared.difference, 3.25 / 12.0);
        let interval = compared.interval.expect("an interval");
        assert_near(interval.lower, 0.004_536_201_280_398_666);
        assert_near(interval.upper, 0.537_130_465_386_268);
        assert_eq!((compared.method, compared.cases), (Method::PairedT, 12));
        assert_near(compared.p_value, 0.046_825_989_975_192_654);
        // (2.200985 + 0.841621) · SE.
        let error = (interval.upper - interval.lower) / 2.0 / t_quantile(0.025, 11.0);
        assert_near(
            compared.detectable.expect("a size"),
            (t_quantile(0.025, 11.0) + 0.841_621_233_572_914) * error,
        );
    }

    #[test]
    fn fewer_cases_are_judged_by_flips_of_signs_and_keep_the_interval_of_t() {
        let compared =
            compare(&pairs(4, &[(0, 4), (0, 4), (0, 4), (0, 4), (1, 4)])).expect("a difference");
        assert_eq!(compared.method, Method::SignFlip);
        // The interval is far from 0, and five cases cannot say it.
        assert!(compared.interval.expect("an interval").lower > 0.5);
        assert_near(compared.p_value, 0.0625);
    }

    #[test]
    fn one_trial_a_case_is_judged_by_mcnemar() {
        let mut one = vec![(0, 1); 7];
        one.extend([(1, 0), (1, 1), (0, 0)]);
        let compared = compare(&pairs(1, &one)).expect("a difference");
        assert_eq!(
            (compared.method, compared.discordant),
            (Method::McNemar, Some((1, 7)))
        );
        assert_near(compared.p_value, 0.070_312_5);
        assert!(!compared.has_too_few_pairs());
        let few =
            compare(&pairs(1, &[(0, 1), (0, 1), (0, 1), (1, 0), (1, 1)])).expect("a difference");
        assert!(few.has_too_few_pairs());
        assert!(few.p_value > 0.05);
    }

    #[test]
    fn without_a_case_that_differs_there_is_no_t() {
        let compared = compare(&pairs(4, &[(2, 2); 12])).expect("a difference");
        assert_eq!(
            (compared.method, compared.interval, compared.detectable),
            (Method::None, None, None)
        );
        assert_near(compared.p_value, 1.0);
        // Nor if all differ by the same.
        let compared = compare(&pairs(4, &[(1, 2); 12])).expect("a difference");
        assert_eq!(
            (compared.method, compared.interval),
            (Method::SignFlip, None)
        );
        assert_near(compared.p_value, 2.0 / 4096.0);
    }

    #[test]
    fn only_cases_that_were_measured_on_both_sides_are_compared() {
        let none = Counts {
            passed: 0,
            measured: 0,
        };
        let full = Counts {
            passed: 4,
            measured: 4,
        };
        let mut some = twelve();
        some.push((none, full));
        some.push((full, none));
        assert_eq!(compare(&some), compare(&twelve()));
        assert_eq!(compare(&[(none, full)]), None);
    }

    #[test]
    fn a_single_case_shows_no_difference() {
        let compared = compare(&pairs(10, &[(0, 10)])).expect("a difference");
        assert_eq!((compared.interval, compared.detectable), (None, None));
        assert_near(compared.p_value, 1.0);
    }

    #[test]
    fn a_plan_is_the_formula_solved_for_cases_and_for_trials() {
        let compared = compare(&twelve()).expect("a difference");
        let needed = 1.959_963_984_540_054 + 0.841_621_233_572_914;
        let cases = compared.cases_for(0.1);
        let error = |cases: usize| compared.deviation / (cases as f64).sqrt();
        assert!(needed * error(cases) <= 0.1 && needed * error(cases - 1) > 0.1);
        // Twice the trials halve their part of the variance; the part between the cases stays.
        let factor = compared.trials_factor_for(0.3).expect("a factor");
        let trials = compared.trial_variance.expect("a variance");
        let variance = compared.deviation.powi(2) - trials + trials / factor;
        assert_near(needed * (variance / 12.0).sqrt(), 0.3);
        // More trials alone do not show everything.
        assert_eq!(compared.trials_factor_for(0.01), None);
    }

    #[test]
    fn a_difference_is_antisymmetric_and_within_its_interval() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut counts = || {
                let measured = random.u32(0..6);
                Counts {
                    passed: random.u32(0..=measured),
                    measured,
                }
            };
            let pairs: Vec<(Counts, Counts)> = (0..14).map(|_| (counts(), counts())).collect();
            let turned: Vec<(Counts, Counts)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let (Some(there), Some(back)) = (compare(&pairs), compare(&turned)) else {
                continue;
            };
            assert_near(there.difference, -back.difference);
            assert_near(there.p_value, back.p_value);
            assert!((0.0..=1.0).contains(&there.p_value));
            if let Some(Interval { lower, upper }) = there.interval {
                assert!(
                    -1.0 <= lower
                        && lower <= there.difference
                        && there.difference <= upper
                        && upper <= 1.0
                );
            }
        }
    }
}
