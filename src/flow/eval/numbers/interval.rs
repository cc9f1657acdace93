//! Intervals of rates: Wilson's for a case, and Wilson's at an effective size for a suite.
//!
//! Wilson 1927, JASA 22; Korn and Graubard 1998, Survey Methodology 24, for the effective size; Manski 2003 for bounds.

use super::distribution::{normal_quantile, t_quantile};
use super::{Counts, ROUNDING, mean_and_variance};
use serde::Serialize;

/// Fewer trials of a case are printed as a count, without an interval.
pub const TRIALS_FOR_AN_INTERVAL: u32 = 5;

/// The tails of an interval of 95 %.
pub const TAIL_95: f64 = 0.025;

/// Two ends, lower ≤ upper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub lower: f64,
    pub upper: f64,
}

/// A suite's rate with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuiteRate {
    /// The mean of the cases' rates.
    pub rate: f64,
    /// None if there is too little: one case with few trials.
    pub interval: Option<Interval>,
    /// The worth of the trials in independent ones.
    pub effective: f64,
    /// Degrees of freedom of t; none if the normal distribution was taken.
    pub freedom: Option<u32>,
    /// Cases with a measured trial.
    pub cases: usize,
}

/// Wilson's interval of a rate from a number of trials that need not be whole; `quantile` is z or t of a tail.
pub fn wilson(rate: f64, trials: f64, quantile: f64) -> Interval {
    let square = quantile * quantile;
    let shrink = 1.0 + square / trials;
    let centre = (rate + square / (2.0 * trials)) / shrink;
    let spread = rate * (1.0 - rate) / trials + square / (4.0 * trials * trials);
    let half = quantile / shrink * spread.sqrt();
    // At the ends it touches them; what is left over is rounding.
    Interval {
        lower: if rate <= 0.0 {
            0.0
        } else {
            (centre - half).max(0.0)
        },
        upper: if rate >= 1.0 {
            1.0
        } else {
            (centre + half).min(1.0)
        },
    }
}

/// The 95 % interval of one case; none below five trials.
pub fn of_case(counts: Counts) -> Option<Interval> {
    let rate = counts.rate()?;
    (counts.measured >= TRIALS_FOR_AN_INTERVAL)
        .then(|| wilson(rate, f64::from(counts.measured), normal_quantile(TAIL_95)))
}

/// The rate of cases like these, with a tail at each end. None without a measured trial.
///
/// One case says only something of itself: its own interval.
pub fn of_cases_like_these(cases: &[Counts], tail: f64) -> Option<SuiteRate> {
    let (rates, trials) = rates_of(cases);
    of_shares(&rates, trials, tail)
}

/// The mean of scores within 0..=1 over cases like these, by the means of the cases; so many trials in all.
pub fn of_scores(means: &[f64], trials: u64) -> Option<Interval> {
    // In simulations with more for a case, skewed scores of ten cases were covered in 85 % instead of 97 %.
    let worth = trials.min(2 * means.len() as u64);
    of_shares(means, worth as f64, TAIL_95)?.interval
}

fn of_shares(rates: &[f64], trials: f64, tail: f64) -> Option<SuiteRate> {
    let (rate, variance) = mean_and_variance(rates)?;
    let count = rates.len();
    let effective = if count == 1 {
        trials
    } else if variance == 0.0 || is_extreme(rate) {
        // Ten identical passes of one case are one fact.
        count as f64
    } else {
        (rate * (1.0 - rate) * count as f64 / variance).min(trials)
    };
    let freedom = u32::try_from(count - 1).ok().filter(|freedom| *freedom > 0);
    let quantile = match freedom {
        Some(freedom) => t_quantile(tail, f64::from(freedom)),
        None => normal_quantile(tail),
    };
    let is_enough = count > 1 || trials >= f64::from(TRIALS_FOR_AN_INTERVAL);
    Some(SuiteRate {
        rate,
        interval: is_enough.then(|| wilson(rate, effective, quantile)),
        effective,
        freedom,
        cases: count,
    })
}

/// The rate of exactly these cases, at 95 %: of new trials, and nothing of a new case. None unless each case that
/// was measured was measured twice.
pub fn of_these_cases(cases: &[Counts]) -> Option<Interval> {
    let (rates, trials) = rates_of(cases);
    let (rate, _) = mean_and_variance(&rates)?;
    let mut square_error = 0.0;
    for case in cases.iter().filter(|case| case.measured > 0) {
        square_error += within_variance(*case)? / f64::from(case.measured);
    }
    square_error /= (rates.len() as f64).powi(2);
    let effective = match square_error {
        _ if is_extreme(rate) => trials,
        _ if square_error < ROUNDING => 5.0 * trials,
        _ => (rate * (1.0 - rate) / square_error).min(5.0 * trials),
    };
    Some(wilson(rate, effective, normal_quantile(TAIL_95)))
}

/// The ends that need no assumption about the trials that are missing; `planned` is not 0.
pub fn bounds(passed: u64, missing: u64, planned: u64) -> Interval {
    let planned = planned as f64;
    Interval {
        lower: passed as f64 / planned,
        upper: (passed + missing) as f64 / planned,
    }
}

/// The interval of a mean of values within 0..=1, with t. None of fewer than two.
pub fn of_mean(values: &[f64]) -> Option<Interval> {
    let Interval { lower, upper } = of_values(values)?;
    Some(Interval {
        lower: lower.max(0.0),
        upper: upper.min(1.0),
    })
}

/// The interval of a mean of any values, with t. None of fewer than two.
pub fn of_values(values: &[f64]) -> Option<Interval> {
    let (mean, variance) = mean_and_variance(values)?;
    let count = values.len() as f64;
    (values.len() > 1).then(|| {
        let half = t_quantile(TAIL_95, count - 1.0) * (variance / count).sqrt();
        Interval {
            lower: mean - half,
            upper: mean + half,
        }
    })
}

/// The variance of one trial of a case, without bias. None below two trials.
pub(super) fn within_variance(case: Counts) -> Option<f64> {
    let rate = case.rate()?;
    let trials = f64::from(case.measured);
    (case.measured > 1).then(|| rate * (1.0 - rate) * trials / (trials - 1.0))
}

/// The rates of the cases that were measured, and how many trials there are.
pub(super) fn rates_of(cases: &[Counts]) -> (Vec<f64>, f64) {
    let rates = cases.iter().filter_map(|case| case.rate()).collect();
    let trials = cases.iter().map(|case| f64::from(case.measured)).sum();
    (rates, trials)
}

fn is_extreme(rate: f64) -> bool {
    rate <= 0.0 || rate >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of (passed, measured).
    fn cases(counts: &[(u32, u32)]) -> Vec<Counts> {
        let case = |(passed, measured): &(u32, u32)| Counts {
            passed: *passed,
            measured: *measured,
        };
        counts.iter().map(case).collect()
    }

    #[track_caller]
    fn assert_interval(interval: Interval, lower: f64, upper: f64) {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(interval.lower, lower) && near(interval.upper, upper),
            "{interval:?} instead of [{lower}, {upper}]"
        );
    }

    #[test]
    fn wilson_is_that_of_the_tables() {
        let z = normal_quantile(TAIL_95);
        for (passed, trials, lower, upper) in [
            (0.0, 1.0, 0.0, 0.793_450_685_622_762_7),
            (1.0, 1.0, 0.206_549_314_377_237_4, 1.0),
            (3.0, 5.0, 0.230_724_281_276_012_9, 0.882_379_225_767_352_2),
            (7.0, 10.0, 0.396_778_147_461_145_4, 0.892_208_732_593_698_9),
            (
                157.0,
                160.0,
                0.946_329_887_900_685_6,
                0.993_603_149_246_740_5,
            ),
        ] {
            assert_interval(wilson(passed / trials, trials, z), lower, upper);
        }
    }

    #[test]
    fn a_suite_is_the_mean_of_cases_at_the_effective_size_with_t() {
        let suite = of_cases_like_these(
            &cases(&[
                (0, 4),
                (1, 4),
                (2, 4),
                (3, 4),
                (4, 4),
                (4, 4),
                (4, 4),
                (3, 4),
            ]),
            TAIL_95,
        )
        .expect("a rate");
        assert!((suite.rate - 0.656_25).abs() < 1e-12);
        assert!((suite.effective - 12.732_283_464_566_93).abs() < 1e-9);
        assert_eq!((suite.freedom, suite.cases), (Some(7), 8));
        let interval = suite.interval.expect("an interval");
        assert_interval(interval, 0.341_905_323_306_349, 0.875_235_962_718_130_8);
    }

    #[test]
    fn all_passes_are_worth_as_much_as_there_are_cases_and_not_trials() {
        for (passed, rate) in [(10, 1.0), (0, 0.0)] {
            let suite = of_cases_like_these(&cases(&[(passed, 10); 20]), TAIL_95).expect("a rate");
            assert_eq!((suite.rate, suite.effective), (rate, 20.0));
        }
        // Nor are cases that do not differ.
        let suite = of_cases_like_these(&cases(&[(3, 10); 20]), TAIL_95).expect("a rate");
        assert_eq!(suite.effective.to_bits(), 20.0_f64.to_bits());
    }

    #[test]
    fn the_effective_size_is_at_most_the_number_of_trials() {
        let suite = of_cases_like_these(&cases(&[(4, 10), (5, 10), (6, 10)]), TAIL_95);
        assert_eq!(
            suite.expect("a rate").effective.to_bits(),
            30.0_f64.to_bits()
        );
    }

    #[test]
    fn unequal_numbers_of_trials_do_not_change_the_weight_of_a_case() {
        let suite = of_cases_like_these(&cases(&[(1, 1), (0, 99)]), TAIL_95).expect("a rate");
        assert_eq!(suite.rate.to_bits(), 0.5_f64.to_bits());
    }

    #[test]
    fn a_case_without_a_measured_trial_is_not_in_the_rate() {
        let with = of_cases_like_these(&cases(&[(2, 4), (0, 0), (4, 4)]), TAIL_95);
        assert_eq!(
            with,
            of_cases_like_these(&cases(&[(2, 4), (4, 4)]), TAIL_95)
        );
        assert_eq!(of_cases_like_these(&cases(&[(0, 0)]), TAIL_95), None);
        assert_eq!(of_these_cases(&cases(&[(0, 0)])), None);
    }

    #[test]
    fn one_case_has_its_own_interval_from_five_trials_on() {
        let few = of_cases_like_these(&cases(&[(3, 4)]), TAIL_95).expect("a rate");
        assert_eq!((few.interval, few.freedom), (None, None));
        let enough = of_cases_like_these(&cases(&[(3, 5)]), TAIL_95).expect("a rate");
        assert_eq!(
            enough.interval,
            of_case(Counts {
                passed: 3,
                measured: 5
            })
        );
        assert_eq!(
            of_case(Counts {
                passed: 4,
                measured: 4
            }),
            None
        );
    }

    #[test]
    fn exactly_these_cases_are_known_better_than_cases_like_these() {
        let suite = cases(&[(10, 10), (0, 10), (9, 10), (10, 10), (2, 10)]);
        let these = of_these_cases(&suite).expect("an interval");
        let like = of_cases_like_these(&suite, TAIL_95).and_then(|suite| suite.interval);
        let like = like.expect("an interval");
        assert!(these.upper - these.lower < (like.upper - like.lower) / 2.0);
        // SE² = (0.09/9 + 0.16/9) / 25, P = 0.62: n_eff = 212.04.
        assert_interval(these, 0.553_081_229_868, 0.682_648_138_824);
        // One trial says nothing of its own spread.
        assert_eq!(of_these_cases(&cases(&[(1, 1), (3, 4)])), None);
        // All pass: worth the trials.
        let all = of_these_cases(&cases(&[(2, 2); 10])).expect("an interval");
        assert_eq!(all, wilson(1.0, 20.0, normal_quantile(TAIL_95)));
    }

    #[test]
    fn bounds_take_what_is_missing_for_failed_and_for_passed() {
        assert_interval(bounds(71, 3, 80), 71.0 / 80.0, 74.0 / 80.0);
    }

    #[test]
    fn intervals_hold_the_rate_are_mirrored_and_narrow_with_trials() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            let counts: Vec<(u32, u32)> = (0..random.usize(1..30))
                .map(|_| {
                    let measured = random.u32(0..12);
                    (random.u32(0..=measured), measured)
                })
                .collect();
            let suite = cases(&counts);
            let Some(SuiteRate {
                rate,
                interval: Some(interval),
                effective,
                ..
            }) = of_cases_like_these(&suite, TAIL_95)
            else {
                continue;
            };
            let Interval { lower, upper } = interval;
            assert!(
                0.0 <= lower && lower <= rate && rate <= upper && upper <= 1.0,
                "{counts:?}"
            );
            assert!(lower < upper, "{counts:?}");
            let (rates, trials) = rates_of(&suite);
            assert!(
                effective <= trials.max(rates.len() as f64) + 1e-9,
                "{counts:?}"
            );
            let mirrored: Vec<(u32, u32)> = counts.iter().map(|(c, n)| (n - c, *n)).collect();
            let mirror =
                of_cases_like_these(&cases(&mirrored), TAIL_95).and_then(|suite| suite.interval);
            assert_interval(mirror.expect("an interval"), 1.0 - upper, 1.0 - lower);
            // A smaller error is a wider interval.
            let wider = of_cases_like_these(&suite, TAIL_95 / 3.0).and_then(|suite| suite.interval);
            let wider = wider.expect("an interval");
            assert!(wider.lower <= lower && wider.upper >= upper, "{counts:?}");
            let missing = random.u64(0..9);
            let planned = trials as u64 + missing;
            let passed = counts.iter().map(|(c, _)| u64::from(*c)).sum();
            let Interval { lower, upper } = bounds(passed, missing, planned);
            assert!(0.0 <= lower && lower <= upper && upper <= 1.0);
        }
    }

    #[test]
    fn wilson_rises_with_the_rate_and_narrows_with_the_trials() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..3000 {
            let (a, b) = (random.f64(), random.f64());
            let (low, high) = (a.min(b), a.max(b));
            let trials = 1.0 + random.f64() * 100.0;
            let t = 0.5 + random.f64() * 12.0;
            let (below, above) = (wilson(low, trials, t), wilson(high, trials, t));
            assert!(below.lower <= above.lower + 1e-12 && below.upper <= above.upper + 1e-12);
            let more = wilson(low, trials * 2.0, t);
            assert!(more.upper - more.lower <= below.upper - below.lower + 1e-12);
        }
    }
}
