//! Samples of a measurement, and how they are shown.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Repeated measurements of one thing, sorted.
#[derive(Clone, Debug)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Of values in any order.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Of times, in milliseconds.
    pub fn of_times(times: impl IntoIterator<Item = Duration>) -> Self {
        Self::new(times.into_iter().map(|t| t.as_secs_f64() * 1e3).collect())
    }

    fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    /// The middle one.
    pub fn median(&self) -> f64 {
        self.at(0.5)
    }
}

/// The time of something done often, in milliseconds.
pub fn often(times: usize, mut what: impl FnMut()) -> Sample {
    Sample::of_times((0..times).map(|_| {
        let began = Instant::now();
        what();
        began.elapsed()
    }))
}

/// Prints a heading, with the columns below it.
pub fn heading(text: &str) {
    println!(
        "\n{text:<44} {:>10} {:>19} {:>6} {:>10} {:>7}",
        "median", "10th to 90th", "", "floor", "times"
    );
}

/// All that has been measured, printed as it comes.
#[derive(Default)]
pub struct Figures(Vec<Value>);

impl Figures {
    /// One figure, and what the same work costs without delta.
    pub fn add(&mut self, name: &str, unit: &str, sample: &Sample, floor: Option<f64>) {
        let (low, median, high) = (sample.at(0.1), sample.median(), sample.at(0.9));
        let short = |value: f64| match value {
            v if v.is_nan() => "-".to_owned(),
            v if v.abs() >= 1000.0 => format!("{v:.0}"),
            v if v.abs() >= 100.0 => format!("{v:.1}"),
            v => format!("{v:.2}"),
        };
        let spread = match sample.0.len() {
            1 => String::new(),
            _ => format!("{} to {}", short(low), short(high)),
        };
        let (beneath, times) = match floor {
            Some(floor) => (short(floor), format!("{:.1}", median / floor)),
            None => (String::new(), String::new()),
        };
        println!(
            "{name:<44} {:>10} {spread:>19} {unit:<6} {beneath:>10} {times:>7}",
            short(median)
        );
        self.0.push(json!({
            "name": name, "unit": unit, "median": median, "p10": low, "p90": high,
            "n": sample.0.len(), "floor": floor,
        }));
    }

    /// A figure that is what it is.
    pub fn one(&mut self, name: &str, unit: &str, value: f64) {
        self.add(name, unit, &Sample::new(vec![value]), None);
    }

    /// All of them.
    pub fn json(self) -> Value {
        Value::Array(self.0)
    }
}
