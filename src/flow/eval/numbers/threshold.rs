//! A threshold: passed, failed or undecided, with the error spent over looks.
//!
//! A look is a verdict that was printed. Look k spends α / (k (k + 1)), which sums to α over all looks.

use super::Counts;
use super::distribution::{normal_quantile, t_quantile};
use super::interval::{TRIALS_FOR_AN_INTERVAL, of_cases_like_these, wilson};

/// The error of all looks together.
pub const ALPHA: f64 = 0.05;

/// No plan is longer.
const MOST_CASES: usize = 10_000_000;

/// The position of a rate relative to a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The lower bound reaches it.
    Above,
    /// The upper bound is below it.
    Below,
    /// Within the bounds, or there are no bounds.
    Unknown,
}

/// The error that a look spends; looks count from 1.
pub fn alpha_of_look(look: u32) -> f64 {
    let look = f64::from(look.max(1));
    ALPHA / (look * (look + 1.0))
}

/// The position of the rate over similar cases, with one-sided bounds of this error.
pub fn side_of(cases: &[Counts], threshold: f64, alpha: f64) -> Side {
    let interval = of_cases_like_these(cases, alpha).and_then(|suite| suite.interval);
    match interval {
        Some(interval) if interval.lower >= threshold => Side::Above,
        Some(interval) if interval.upper < threshold => Side::Below,
        _ => Side::Unknown,
    }
}

/// The fewest cases that reach a threshold if everything passes. None if no number does.
pub fn cases_needed(threshold: f64, alpha: f64) -> Option<usize> {
    fewest_cases(1.0, 1.0, threshold, alpha)
}

/// The fewest trials of a single case that reach a threshold if all pass. None if no number does.
pub fn trials_needed_of_one_case(threshold: f64, alpha: f64) -> Option<u32> {
    // n / (n + z²) ≥ t.
    let z = normal_quantile(alpha);
    let trials = (threshold * z * z / (1.0 - threshold)).ceil();
    (trials <= f64::from(u32::MAX)).then(|| (trials as u32).max(TRIALS_FOR_AN_INTERVAL))
}

/// The fewest cases in all that show on which side of a threshold a rate is, at this rate and this number of
/// independent trials per case. None if no number does.
pub fn fewest_cases(rate: f64, worth: f64, threshold: f64, alpha: f64) -> Option<usize> {
    let shows = |cases: usize| {
        let quantile = t_quantile(alpha, cases as f64 - 1.0);
        let interval = wilson(rate, worth * cases as f64, quantile);
        interval.lower >= threshold || interval.upper < threshold
    };
    let mut high = 2;
    while !shows(high) {
        if high > MOST_CASES {
            return None;
        }
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if shows(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(cases: usize, passed: u32, measured: u32) -> Vec<Counts> {
        vec![Counts { passed, measured }; cases]
    }

    #[test]
    fn the_fewest_passes_in_a_row_are_those_of_the_table() {
        let thresholds = [0.5, 0.7, 0.8, 0.9, 0.95, 0.99];
        for (alpha, needed) in [
            (0.05, [5, 9, 13, 27, 54, 270]),
            (0.025, [7, 12, 18, 38, 76, 383]),
        ] {
            for (threshold, cases) in thresholds.into_iter().zip(needed) {
                assert_eq!(
                    cases_needed(threshold, alpha),
                    Some(cases),
                    "{threshold} at {alpha}"
                );
                let below = suite(cases - 1, 1, 1);
                assert_eq!(side_of(&below, threshold, alpha), Side::Unknown);
                assert_eq!(side_of(&suite(cases, 1, 1), threshold, alpha), Side::Above);
            }
        }
        assert_eq!(cases_needed(1.0, 0.025), None);
    }

    #[test]
    fn repeated_trials_do_not_replace_cases() {
        assert_eq!(side_of(&suite(37, 100, 100), 0.9, 0.025), Side::Unknown);
        assert_eq!(side_of(&suite(38, 1, 1), 0.9, 0.025), Side::Above);
    }

    #[test]
    fn a_single_case_can_reach_a_threshold_for_itself() {
        for threshold in [0.1, 0.5, 0.9] {
            let trials = trials_needed_of_one_case(threshold, 0.025).expect("a number");
            assert_eq!(
                side_of(&suite(1, trials, trials), threshold, 0.025),
                Side::Above
            );
            let fewer = suite(1, trials - 1, trials - 1);
            assert_eq!(side_of(&fewer, threshold, 0.025), Side::Unknown);
        }
        assert_eq!(trials_needed_of_one_case(1.0, 0.025), None);
    }

    #[test]
    fn the_upper_end_fails_and_nothing_is_no_verdict() {
        assert_eq!(side_of(&suite(20, 0, 1), 0.5, 0.025), Side::Below);
        assert_eq!(side_of(&suite(20, 0, 0), 0.5, 0.025), Side::Unknown);
        assert_eq!(side_of(&suite(3, 0, 1), 0.5, 0.025), Side::Unknown);
    }

    #[test]
    fn looks_spend_the_error_and_never_more() {
        assert!((alpha_of_look(1) - 0.025).abs() < 1e-15);
        assert!((alpha_of_look(2) - 0.05 / 6.0).abs() < 1e-15);
        let spent: f64 = (1..100_000).map(alpha_of_look).sum();
        assert!(spent < ALPHA && spent > 0.0499);
        // What passes at a later look would have passed at an earlier one.
        let cases = cases_needed(0.9, alpha_of_look(3)).expect("a number");
        assert!(cases > 38);
        assert_eq!(
            side_of(&suite(cases, 1, 1), 0.9, alpha_of_look(1)),
            Side::Above
        );
    }

    #[test]
    fn a_plan_for_more_cases_is_kept() {
        for (rate, worth, threshold) in [(0.85, 1.3, 0.8), (0.7, 2.0, 0.8), (0.95, 1.0, 0.9)] {
            let cases = fewest_cases(rate, worth, threshold, 0.025).expect("a number");
            let shown = |cases: usize| {
                let t = t_quantile(0.025, cases as f64 - 1.0);
                let interval = wilson(rate, worth * cases as f64, t);
                interval.lower >= threshold || interval.upper < threshold
            };
            assert!(
                shown(cases) && !shown(cases - 1),
                "{rate} {threshold}: {cases}"
            );
        }
        // On the threshold itself no number of cases says more.
        assert_eq!(fewest_cases(0.8, 1.0, 0.8, 0.025), None);
    }
}
