//! Exact tests, and Holm's correction for several of them at once.

use super::Counts;
use super::distribution::{fair_coin_tail, ln_gamma};
use crate::text::order;

/// The most values whose signs are flipped: 512 sums.
pub const MOST_FLIPPED: usize = 9;

/// `McNemar`'s exact test of pairs that differ, counted by direction. The two-sided p-value.
pub fn mcnemar(one_way: u32, other_way: u32) -> f64 {
    let pairs = one_way.saturating_add(other_way);
    (2.0 * fair_coin_tail(one_way.min(other_way), pairs)).min(1.0)
}

/// Fisher's exact test of two shares. The p-value of both sides: the tables that are at most as probable as this one.
pub fn fisher(one: Counts, other: Counts) -> f64 {
    let passed = one.passed + other.passed;
    let failed = one.measured + other.measured - passed;
    let ln_choose = |n: u32, k: u32| ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let ln_all = ln_choose(passed + failed, one.measured);
    let ln_probability =
        |k: u32| ln_choose(passed, k) + ln_choose(failed, one.measured - k) - ln_all;
    let here = ln_probability(one.passed);
    let tables = one.measured.saturating_sub(failed)..=passed.min(one.measured);
    // Tables of the same probability differ by rounding.
    tables
        .map(ln_probability)
        .filter(|ln| *ln <= here + 1e-7)
        .map(f64::exp)
        .sum::<f64>()
        .min(1.0)
}

/// The p-value, both sides, of a mean that is not 0, if each value could as well have the other sign. None of more values than
/// [`MOST_FLIPPED`].
pub fn sign_flip(values: &[f64]) -> Option<f64> {
    if values.len() > MOST_FLIPPED {
        return None;
    }
    let observed = values.iter().sum::<f64>().abs();
    let flips = 1_u32 << values.len();
    let sum_of = |flip: u32| -> f64 {
        let signed = |(at, value): (usize, &f64)| if flip >> at & 1 == 1 { -value } else { *value };
        values.iter().enumerate().map(signed).sum()
    };
    // Sums that are the same differ by rounding.
    let as_far = (0..flips).filter(|flip| sum_of(*flip).abs() >= observed * (1.0 - 1e-9));
    Some(as_far.count() as f64 / f64::from(flips))
}

/// P-values of several tests, corrected so that the chance of any false discovery is kept (Holm 1979); in the order given.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order::sort_by(&mut order, |a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut least = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        let left = (p_values.len() - rank) as f64;
        least = least.max((p_values[at] * left).min(1.0));
        corrected[at] = least;
    }
    corrected
}

fn ln_factorial(n: u32) -> f64 {
    ln_gamma(f64::from(n) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares as (passed, trials).
    fn fisher(one: (u32, u32), other: (u32, u32)) -> f64 {
        let counts = |(passed, measured)| Counts { passed, measured };
        super::fisher(counts(one), counts(other))
    }

    #[track_caller]
    fn assert_near(value: f64, expected: f64) {
        assert!(
            (value - expected).abs() < 1e-9,
            "{value} instead of {expected}"
        );
    }

    #[test]
    fn mcnemar_is_that_of_the_tables_and_needs_six_pairs() {
        for (one_way, other_way, p) in [
            (0, 6, 0.031_25),
            (1, 8, 0.039_062_5),
            (3, 3, 1.0),
            (5, 20, 0.004_077_315_330_505_371),
            (0, 0, 1.0),
        ] {
            assert_near(mcnemar(one_way, other_way), p);
            assert_near(mcnemar(other_way, one_way), p);
        }
        for pairs in 0..6 {
            for one_way in 0..=pairs {
                assert!(
                    mcnemar(one_way, pairs - one_way) > 0.05,
                    "{one_way} of {pairs}"
                );
            }
        }
    }

    #[test]
    fn fisher_is_that_of_the_tables() {
        for (one, other, p) in [
            ((0, 5), (5, 5), 0.007_936_507_936_507_938),
            ((1, 5), (4, 5), 0.206_349_206_349_206_4),
            ((3, 10), (9, 10), 0.019_766_611_097_880_443),
            ((50, 100), (70, 100), 0.005_937_341_166_015_536),
            ((2, 7), (5, 9), 0.357_517_482_517_482_5),
            ((0, 5), (0, 7), 1.0),
        ] {
            assert_near(fisher(one, other), p);
            assert_near(fisher(other, one), p);
        }
    }

    #[test]
    fn sign_flips_are_counted_exactly_up_to_nine_values() {
        let p = sign_flip(&[0.5, 0.25, -0.25, 1.0, 0.75, 0.0, 0.5]);
        assert_near(p.expect("a p-value"), 0.093_75);
        // All one way: two of 2^n.
        assert_near(sign_flip(&[0.25; 9]).expect("a p-value"), 2.0 / 512.0);
        assert_near(sign_flip(&[0.25; 5]).expect("a p-value"), 2.0 / 32.0);
        assert_near(sign_flip(&[0.0; 4]).expect("a p-value"), 1.0);
        assert_eq!(sign_flip(&[0.25; 10]), None);
    }

    #[test]
    fn with_one_trial_a_case_sign_flips_are_mcnemar() {
        for (one_way, other_way) in [(0_usize, 6_usize), (1, 7), (2, 3), (4, 5)] {
            let values: Vec<f64> = std::iter::repeat_n(1.0, one_way)
                .chain(std::iter::repeat_n(-1.0, other_way))
                .collect();
            let p = mcnemar(one_way as u32, other_way as u32);
            assert_near(sign_flip(&values).expect("a p-value"), p);
        }
    }

    #[test]
    fn holm_is_that_of_the_tables() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (value, expected) in corrected.into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert_near(value, expected);
        }
        for (value, expected) in holm(&[0.2, 0.2, 0.9]).into_iter().zip([0.6, 0.6, 0.9]) {
            assert_near(value, expected);
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn p_values_are_probabilities_and_holm_keeps_their_order() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..1000 {
            let (n, m) = (random.u32(1..40), random.u32(1..40));
            let p = fisher((random.u32(0..=n), n), (random.u32(0..=m), m));
            assert!(p > 0.0 && p <= 1.0, "{p}");
            let values: Vec<f64> = (0..random.usize(1..=MOST_FLIPPED))
                .map(|_| random.f64() - 0.5)
                .collect();
            let p = sign_flip(&values).expect("a p-value");
            assert!(p >= 2.0 / f64::from(1_u32 << values.len()) && p <= 1.0);
            let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
            assert_eq!(sign_flip(&mirrored), Some(p));
            let raw: Vec<f64> = (0..random.usize(1..9)).map(|_| random.f64()).collect();
            let corrected = holm(&raw);
            for (a, b) in raw.iter().zip(&corrected) {
                assert!(b >= a && *b <= 1.0 && *b <= a * raw.len() as f64 + 1e-12);
                for (c, d) in raw.iter().zip(&corrected) {
                    assert!(a > c || b <= d);
                }
            }
        }
    }
}
