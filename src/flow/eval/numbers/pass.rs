//! The chance that of k trials of a case at least one passes (pass@k), and that all do (pass^k), without bias.
//!
//! Chen et al. 2021 (arXiv 2107.03374) and Yao et al. 2024 (arXiv 2406.12045).

use super::interval::{Interval, of_mean};
use super::{Counts, sum_of};

/// The results of k trials of a case, over the cases that have k.
#[derive(Clone, Debug, PartialEq)]
pub struct PassAt {
    pub k: u32,
    /// Mean chance that at least one of k passes.
    pub any: f64,
    pub any_interval: Option<Interval>,
    /// Mean chance that all k pass.
    pub all: f64,
    pub all_interval: Option<Interval>,
    /// Cases with at least k measured trials: those that it is about.
    pub cases: usize,
}

/// The chance that at least one of k trials passes: 1 − C(n − c, k) / C(n, k). None for fewer trials than k.
pub fn any_of(counts: Counts, k: u32) -> Option<f64> {
    let failed = Counts {
        passed: counts.measured - counts.passed,
        ..counts
    };
    all_of(failed, k).map(|none| 1.0 - none)
}

/// The chance that all of k trials pass: C(c, k) / C(n, k). None for fewer trials than k.
pub fn all_of(counts: Counts, k: u32) -> Option<f64> {
    if k > counts.measured {
        return None;
    }
    if k > counts.passed {
        return Some(0.0);
    }
    let factor = |j| f64::from(counts.passed - j) / f64::from(counts.measured - j);
    Some((0..k).map(factor).product())
}

/// Both chances for one k over a suite; None if no case has k trials.
pub fn of_suite(cases: &[Counts], k: u32) -> Option<PassAt> {
    let any: Vec<f64> = cases.iter().filter_map(|case| any_of(*case, k)).collect();
    let all: Vec<f64> = cases.iter().filter_map(|case| all_of(*case, k)).collect();
    let count = any.len();
    (count > 0 && k > 0).then(|| PassAt {
        k,
        any: sum_of(&any) / count as f64,
        any_interval: of_mean(&any),
        all: sum_of(&all) / count as f64,
        all_interval: of_mean(&all),
        cases: count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C(n, k).
    fn choose(n: u32, k: u32) -> f64 {
        if k > n {
            return 0.0;
        }
        (0..k)
            .map(|j| f64::from(n - j) / f64::from(k - j))
            .product()
    }

    #[test]
    fn both_are_the_quotients_of_binomial_coefficients() {
        for measured in 1..12 {
            for passed in 0..=measured {
                let counts = Counts { passed, measured };
                for k in 1..=measured {
                    let all = choose(passed, k) / choose(measured, k);
                    let any = 1.0 - choose(measured - passed, k) / choose(measured, k);
                    assert!((all_of(counts, k).expect("a chance") - all).abs() < 1e-12);
                    assert!((any_of(counts, k).expect("a chance") - any).abs() < 1e-12);
                }
                assert_eq!(all_of(counts, measured + 1), None);
                assert_eq!(any_of(counts, measured + 1), None);
            }
        }
    }

    #[test]
    fn neither_is_a_power_of_the_rate() {
        let counts = Counts {
            passed: 2,
            measured: 4,
        };
        assert!((any_of(counts, 2).expect("a chance") - 5.0 / 6.0).abs() < 1e-12);
        assert!((all_of(counts, 2).expect("a chance") - 1.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn a_case_with_fewer_trials_is_left_out_and_counted() {
        let suite = [(4, 4), (0, 4), (1, 1), (0, 0)];
        let suite = suite.map(|(passed, measured)| Counts { passed, measured });
        let four = of_suite(&suite, 4).expect("chances");
        assert_eq!((four.cases, four.any, four.all), (2, 0.5, 0.5));
        assert_eq!(
            four.any_interval,
            Some(Interval {
                lower: 0.0,
                upper: 1.0
            })
        );
        let one = of_suite(&suite, 1).expect("chances");
        // k = 1 is the rate.
        assert_eq!((one.cases, one.any, one.all), (3, 2.0 / 3.0, 2.0 / 3.0));
        assert_eq!(of_suite(&suite, 5), None);
    }

    #[test]
    fn more_trials_raise_the_one_and_lower_the_other() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..2000 {
            let measured = random.u32(1..60);
            let counts = Counts {
                passed: random.u32(0..=measured),
                measured,
            };
            let rate = counts.rate().expect("a rate");
            let (mut any, mut all) = (rate, rate);
            for k in 1..=measured {
                let (next_any, next_all) = (
                    any_of(counts, k).expect("a chance"),
                    all_of(counts, k).expect("a chance"),
                );
                assert!(next_any >= any - 1e-12 && next_all <= all + 1e-12);
                assert!((0.0..=1.0).contains(&next_any) && (0.0..=1.0).contains(&next_all));
                (any, all) = (next_any, next_all);
            }
        }
    }
}
