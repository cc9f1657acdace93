//! Tails and quantiles of the normal, Student's t and the binomial distribution.
//!
//! Formulas by their numbers in the NIST Digital Library of Mathematical Functions (DLMF).

use std::f64::consts::PI;

/// More terms than any series or continued fraction here takes.
const TERMS: u32 = 100_000;

/// P(Z > z) of the standard normal distribution.
pub fn normal_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    let density = (-z * z / 2.0).exp() / (2.0 * PI).sqrt();
    if z > 4.0 {
        // DLMF 7.9.2, from the inside out.
        let inner = (1..=60).rev().fold(z, |rest, k| z + f64::from(k) / rest);
        return density / inner;
    }
    // DLMF 7.6.2.
    let mut term = z;
    let mut sum = z;
    for k in 1..TERMS {
        term *= z * z / f64::from(2 * k + 1);
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    0.5 - density * sum
}

/// The z beyond which a standard normal variable is with this probability, 0 < tail < 1.
pub fn normal_quantile(tail: f64) -> f64 {
    quantile(tail, normal_tail)
}

/// P(T > t) of Student's t with `freedom` degrees of freedom, which need not be whole (DLMF 8.17.2).
pub fn t_tail(t: f64, freedom: f64) -> f64 {
    let half = 0.5 * incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t));
    if t < 0.0 { 1.0 - half } else { half }
}

/// The t that a variable with these degrees of freedom exceeds with this probability, 0 < tail < 1.
pub fn t_quantile(tail: f64, freedom: f64) -> f64 {
    quantile(tail, |t| t_tail(t, freedom))
}

/// P(X ≤ most) of a fair coin thrown so often (DLMF 8.17.5).
pub fn fair_coin_tail(most: u32, throws: u32) -> f64 {
    if most >= throws {
        return 1.0;
    }
    incomplete_beta(f64::from(throws - most), f64::from(most) + 1.0, 0.5)
}

/// The place where a symmetric distribution's tail has this probability: by bisection, to the last bits.
fn quantile(tail: f64, tail_of: impl Fn(f64) -> f64) -> f64 {
    if tail > 0.5 {
        return -quantile(1.0 - tail, tail_of);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while tail_of(high) > tail && high < 1e300 {
        low = high;
        high *= 2.0;
    }
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high || high - low < 1e-14 * high {
            return middle;
        }
        if tail_of(middle) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// ln Γ(x), x > 0: Stirling's series (DLMF 5.11.1) where it is exact to the last bits.
pub(super) fn ln_gamma(x: f64) -> f64 {
    let mut product = 1.0;
    let mut x = x;
    while x < 15.0 {
        product *= x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = y.mul_add(
        y.mul_add(y.mul_add(-1.0 / 1680.0, 1.0 / 1260.0), -1.0 / 360.0),
        1.0 / 12.0,
    );
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * PI).ln() + series / x - product.ln()
}

/// `I_x(a, b)`, the regularised incomplete beta function.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean only (DLMF 8.17.4 is the symmetry).
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let ln_front = a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    ln_front.exp() / a * beta_fraction(a, b, x)
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
#[allow(clippy::many_single_char_names)] // As in the source.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let never_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / never_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for coefficient in [even, odd] {
            d = 1.0 / never_zero(1.0 + coefficient * d);
            c = never_zero(1.0 + coefficient / c);
            step = c * d;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(value: f64, expected: f64, what: &str) {
        let error = ((value - expected) / expected).abs();
        assert!(error < 1e-10, "{what}: {value} instead of {expected}");
    }

    #[test]
    fn tails_and_quantiles_of_the_normal_distribution_are_those_of_the_tables() {
        for (z, tail) in [
            (1.0, 0.158_655_253_931_457_07),
            (3.9, 4.809_634_401_760_261e-5),
            (4.1, 2.065_750_691_254_671_7e-5),
            (8.0, 6.220_960_574_271_74e-16),
            (-1.0, 0.841_344_746_068_542_9),
        ] {
            assert_near(normal_tail(z), tail, &format!("z = {z}"));
        }
        for (tail, z) in [
            (0.025, 1.959_963_984_540_054_5),
            (0.05, 1.644_853_626_951_472_9),
            (0.2, 0.841_621_233_572_914_2),
            (1e-6, 4.753_424_308_822_899),
            (0.975, -1.959_963_984_540_054_5),
        ] {
            assert_near(normal_quantile(tail), z, &format!("tail {tail}"));
        }
    }

    #[test]
    fn tails_and_quantiles_of_t_are_those_of_the_tables() {
        for (t, freedom, tail) in [
            (1.0, 1.0, 0.25),
            (2.5, 3.0, 0.043_853_323_504_032_78),
            (12.0, 7.5, 1.830_403_227_809_740_5e-6),
            (-1.3, 20.0, 0.895_807_752_243_306_6),
            (3.0, 1e5, 0.001_350_230_442_032_361_7),
        ] {
            assert_near(t_tail(t, freedom), tail, &format!("t = {t}, {freedom}"));
        }
        for (tail, freedom, t) in [
            (0.025, 1.0, 12.706_204_736_174_705),
            (0.025, 4.0, 2.776_445_105_197_794_3),
            (0.025, 19.0, 2.093_024_054_408_31),
            (0.025, 999.0, 1.962_341_461_133_449_8),
            (0.05, 9.0, 1.833_112_932_656_237_6),
            (0.05 / 6.0, 49.0, 2.478_953_032_321_818_3),
            (0.05 / 110.0, 1.0, 700.281_273_605_387_9),
            (0.3, 2.0, 0.617_213_399_848_367_8),
        ] {
            assert_near(
                t_quantile(tail, freedom),
                t,
                &format!("tail {tail}, {freedom}"),
            );
        }
    }

    #[test]
    fn tails_of_a_fair_coin_are_those_of_the_tables() {
        for (most, throws, tail) in [
            (0, 6, 0.015_625),
            (3, 10, 0.171_875),
            (40, 100, 0.028_443_966_820_490_444),
            (480, 1000, 0.108_724_146_602_070_75),
        ] {
            assert_near(
                fair_coin_tail(most, throws),
                tail,
                &format!("{most} of {throws}"),
            );
        }
        assert_eq!(fair_coin_tail(6, 6).to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn tails_are_symmetric_and_fall() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let freedom = 1.0 + (random.f64() * 8.0).exp();
            let (a, b) = (random.f64() * 12.0 - 6.0, random.f64() * 12.0 - 6.0);
            let (low, high) = (a.min(b), a.max(b));
            assert!((t_tail(a, freedom) + t_tail(-a, freedom) - 1.0).abs() < 1e-12);
            assert!((normal_tail(a) + normal_tail(-a) - 1.0).abs() < 1e-12);
            assert!(
                t_tail(low, freedom) >= t_tail(high, freedom),
                "{low} {high} {freedom}"
            );
            assert!(normal_tail(low) >= normal_tail(high), "{low} {high}");
        }
    }

    #[test]
    fn quantiles_undo_tails() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..300 {
            let tail = (random.f64() * -12.0).exp() * 0.999;
            let freedom = f64::from(random.u32(1..3000));
            assert_near(t_tail(t_quantile(tail, freedom), freedom), tail, "t");
            assert_near(normal_tail(normal_quantile(tail)), tail, "normal");
            // t has heavier tails.
            if tail < 0.4 {
                assert!(t_quantile(tail, freedom) > normal_quantile(tail));
            }
        }
    }
}
