//! Simulates evaluations whose truth is known: how often intervals cover it, and how often verdicts are wrong.
//!
//! A case's chance to pass is drawn from a Beta distribution with a mean and a concentration: 1 gives cases that nearly always or
//! nearly never pass, 16 gives cases that are much alike. The functions are those of `delta eval`.

use delta_engine::flow::eval::numbers::Counts;
use delta_engine::flow::eval::numbers::distribution::{normal_quantile, t_quantile};
use delta_engine::flow::eval::numbers::interval::{
    Interval, TAIL_95, of_cases_like_these, of_scores, of_these_cases, of_values, wilson,
};
use delta_engine::flow::eval::numbers::threshold::{Side, alpha_of_look, side_of};
use fastrand::Rng;
use std::ops::RangeInclusive;

/// Suites of each kind.
const SUITES: u32 = 4000;

const MEANS: [f64; 3] = [0.5, 0.8, 0.9];
const CONCENTRATIONS: [f64; 3] = [1.0, 4.0, 16.0];
const TRIALS: [u32; 3] = [1, 4, 10];
/// Numbers of cases, and what the interval promises to cover with them, in percent.
const CASES: [(usize, f64); 4] = [(5, 90.0), (10, 90.0), (20, 90.0), (50, 94.0)];

/// Prints all simulations.
pub fn simulate() {
    let mut random = Rng::with_seed(22);
    println!("\nevaluations, simulated: {SUITES} suites of each kind\n");
    print_coverage(&mut random);
    print_scores(&mut random);
    print_losses(&mut random);
    print_looks(&mut random);
}

/// The least and the greatest coverage over all kinds of suites, in percent.
struct Coverage(RangeInclusive<f64>);

impl Coverage {
    fn none() -> Self {
        Self(100.0..=0.0)
    }

    fn add(&mut self, covered: u32, suites: u32) {
        if suites == 0 {
            return;
        }
        let percent = f64::from(covered) * 100.0 / f64::from(suites);
        self.0 = self.0.start().min(percent)..=self.0.end().max(percent);
    }

    fn shown(&self) -> String {
        format!("{:.1} to {:.1}", self.0.start(), self.0.end())
    }
}

/// How often intervals of 95 % cover the truth, for each number of cases.
fn print_coverage(random: &mut Rng) {
    println!(
        "{:<7} {:>18} {:>18} {:>18} {:>18}   promised",
        "cases", "all trials pooled", "mean ± t·SE", "n_eff and t", "these cases only"
    );
    for (count, promised) in CASES {
        let mut pooled = Coverage::none();
        let mut mean = Coverage::none();
        let mut clustered = Coverage::none();
        let mut these = Coverage::none();
        for (rate, concentration, trials) in kinds() {
            let mut covered = [0_u32; 4];
            for _ in 0..SUITES {
                let chances: Vec<f64> = (0..count)
                    .map(|_| beta(random, rate, concentration))
                    .collect();
                let cases = tried(random, &chances, trials);
                let truth_here = chances.iter().sum::<f64>() / count as f64;
                let intervals = [
                    Some(pooled_wilson(&cases)),
                    Some(mean_and_t(&cases)),
                    of_cases_like_these(&cases, TAIL_95).and_then(|suite| suite.interval),
                    of_these_cases(&cases),
                ];
                let truths = [rate, rate, rate, truth_here];
                for ((hits, interval), truth) in covered.iter_mut().zip(intervals).zip(truths) {
                    *hits += u32::from(interval.is_some_and(|interval| covers(interval, truth)));
                }
            }
            if trials > 1 {
                pooled.add(covered[0], SUITES);
                these.add(covered[3], SUITES);
            }
            mean.add(covered[1], SUITES);
            clustered.add(covered[2], SUITES);
        }
        // The least of many is below its expectation; two standard errors of a simulation are chance.
        let share = promised / 100.0;
        let chance = 200.0 * (share * (1.0 - share) / f64::from(SUITES)).sqrt();
        let kept = match *clustered.0.start() >= promised - chance {
            true => "kept",
            false => "NOT KEPT",
        };
        println!(
            "{count:<7} {:>18} {:>18} {:>18} {:>18}   {promised:.0} {kept}",
            pooled.shown(),
            mean.shown(),
            clustered.shown(),
            these.shown(),
        );
    }
}

/// How often intervals of the mean of a score cover the truth: of shares, drawn from a Beta distribution around the mean of
/// their case, and of one to five stars, which are those shares in fifths, rounded at random.
fn print_scores(random: &mut Rng) {
    println!("\nscores: percent of suites whose interval of 95 % covers the truth");
    println!(
        "{:<7} {:>18} {:>18} {:>18}",
        "cases", "shares", "stars", "shares, mean ± t·SE"
    );
    for (count, _) in CASES {
        let mut found = [Coverage::none(), Coverage::none(), Coverage::none()];
        for (mean, concentration, trials) in kinds() {
            let mut covered = [0_u32; 3];
            for _ in 0..SUITES {
                let (mut shares, mut stars) = (Vec::new(), Vec::new());
                for _ in 0..count {
                    let of_case = beta(random, mean, concentration);
                    let (mut sum, mut sum_of_stars) = (0.0, 0.0);
                    for _ in 0..trials {
                        let share = beta(random, of_case.clamp(1e-9, 1.0 - 1e-9), 4.0);
                        sum += share;
                        sum_of_stars += 1.0 + (4.0 * share + random.f64()).floor();
                    }
                    shares.push(sum / f64::from(trials));
                    stars.push(sum_of_stars / f64::from(trials));
                }
                let all = u64::from(trials) * count as u64;
                let of_stars = of_values(&stars).filter(|ends| ends.lower < ends.upper);
                let intervals = [of_scores(&shares, all), of_stars, of_values(&shares)];
                let truths = [mean, 1.0 + 4.0 * mean, mean];
                for ((hits, interval), truth) in covered.iter_mut().zip(intervals).zip(truths) {
                    *hits += u32::from(interval.is_some_and(|interval| covers(interval, truth)));
                }
            }
            for (found, covered) in found.iter_mut().zip(covered) {
                found.add(covered, SUITES);
            }
        }
        let [shares, stars, by_t] = found.map(|it| it.shown());
        println!("{count:<7} {shares:>18} {stars:>18} {by_t:>18}");
    }
}

fn kinds() -> impl Iterator<Item = (f64, f64, u32)> {
    MEANS.into_iter().flat_map(|mean| {
        let concentrations = CONCENTRATIONS.into_iter();
        concentrations.flat_map(move |c| TRIALS.into_iter().map(move |trials| (mean, c, trials)))
    })
}

fn covers(interval: Interval, truth: f64) -> bool {
    interval.lower <= truth && truth <= interval.upper
}

/// What is wrong as soon as cases differ.
fn pooled_wilson(cases: &[Counts]) -> Interval {
    let sum = |of: fn(&Counts) -> u32| cases.iter().map(|case| f64::from(of(case))).sum::<f64>();
    let trials = sum(|case| case.measured);
    wilson(
        sum(|case| case.passed) / trials,
        trials,
        normal_quantile(TAIL_95),
    )
}

/// What is wrong for few cases and for high rates.
fn mean_and_t(cases: &[Counts]) -> Interval {
    let rates: Vec<f64> = cases.iter().filter_map(|case| case.rate()).collect();
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    let half = t_quantile(TAIL_95, count - 1.0) * (squares / (count * (count - 1.0))).sqrt();
    Interval {
        lower: mean - half,
        upper: mean + half,
    }
}

/// Verdicts at a threshold of 0.8 with all trials, and with a fifth of them not measured.
fn print_losses(random: &mut Rng) {
    const THRESHOLD: f64 = 0.8;
    println!(
        "\nthreshold {THRESHOLD}, 4 trials a case, a fifth of them lost at random; percent of suites"
    );
    println!(
        "{:<7} {:>6}   {:>24}   {:>24}   {:>16} {:>16}",
        "cases",
        "truth",
        "all: pass, fail, neither",
        "lost: pass, fail, neither",
        "failed to passed",
        "passed to failed"
    );
    for (count, _) in CASES {
        for truth in [0.5, 0.7, 0.8, 0.9, 0.98] {
            let mut all = [0_u32; 3];
            let mut lost = [0_u32; 3];
            let mut moved = [0_u32; 2];
            for _ in 0..SUITES {
                let chances: Vec<f64> = (0..count).map(|_| beta(random, truth, 4.0)).collect();
                let cases = tried(random, &chances, 4);
                let thinned: Vec<Counts> = cases
                    .iter()
                    .map(|case| without_a_fifth(random, *case))
                    .collect();
                let before = side_of(&cases, THRESHOLD, alpha_of_look(1));
                let after = side_of(&thinned, THRESHOLD, alpha_of_look(1));
                all[place(before)] += 1;
                lost[place(after)] += 1;
                moved[0] += u32::from((before, after) == (Side::Below, Side::Above));
                moved[1] += u32::from((before, after) == (Side::Above, Side::Below));
            }
            let percent = |count: u32| f64::from(count) * 100.0 / f64::from(SUITES);
            let three = |counts: [u32; 3]| {
                let [above, below, unknown] = counts.map(percent);
                format!("{above:.1}, {below:.1}, {unknown:.1}")
            };
            println!(
                "{count:<7} {truth:>6}   {:>24}   {:>24}   {:>16.2} {:>16.2}",
                three(all),
                three(lost),
                percent(moved[0]),
                percent(moved[1]),
            );
        }
    }
}

fn place(side: Side) -> usize {
    match side {
        Side::Above => 0,
        Side::Below => 1,
        Side::Unknown => 2,
    }
}

/// Each trial is lost with a chance of a fifth, whatever it came to.
fn without_a_fifth(random: &mut Rng, case: Counts) -> Counts {
    let kept =
        |random: &mut Rng, trials: u32| (0..trials).filter(|_| random.f64() >= 0.2).count() as u32;
    let passed = kept(random, case.passed);
    Counts {
        passed,
        measured: passed + kept(random, case.measured - case.passed),
    }
}

/// How often a rate that is just the threshold passes, if a verdict is printed again and again.
fn print_looks(random: &mut Rng) {
    const THRESHOLD: f64 = 0.8;
    println!(
        "\nrate and threshold {THRESHOLD}, 20 cases of one trial more for each look; percent that passed at any look"
    );
    println!("{:<7} {:>16} {:>16}", "looks", "always 5 %", "error spent");
    for looks in [1, 5, 10] {
        let mut passed = [0_u32; 2];
        for _ in 0..SUITES {
            let mut cases = Vec::new();
            let mut ever = [false; 2];
            for look in 1..=looks {
                cases.extend(tried(random, &[THRESHOLD; 20], 1));
                for (ever, alpha) in ever.iter_mut().zip([0.05, alpha_of_look(look)]) {
                    *ever |= side_of(&cases, THRESHOLD, alpha) == Side::Above;
                }
            }
            for (count, ever) in passed.iter_mut().zip(ever) {
                *count += u32::from(ever);
            }
        }
        let [always, spent] = passed.map(|count| f64::from(count) * 100.0 / f64::from(SUITES));
        println!("{looks:<7} {always:>16.1} {spent:>16.1}");
    }
}

/// So many trials of each case.
fn tried(random: &mut Rng, chances: &[f64], trials: u32) -> Vec<Counts> {
    let counts = |chance: &f64| Counts {
        passed: (0..trials).filter(|_| random.f64() < *chance).count() as u32,
        measured: trials,
    };
    chances.iter().map(counts).collect()
}

/// A draw from a Beta distribution with this mean; the concentration is the sum of its parameters.
fn beta(random: &mut Rng, mean: f64, concentration: f64) -> f64 {
    let one = gamma(random, mean * concentration);
    let other = gamma(random, (1.0 - mean) * concentration);
    match one + other {
        sum if sum > 0.0 => one / sum,
        // Both were too small for a float.
        _ => f64::from(u8::from(random.f64() < mean)),
    }
}

/// A draw from a Gamma distribution of scale 1 (Marsaglia and Tsang 2000).
fn gamma(random: &mut Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        let boost = random.f64().powf(1.0 / shape);
        return gamma(random, shape + 1.0) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - random.f64()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

/// A draw from the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}
